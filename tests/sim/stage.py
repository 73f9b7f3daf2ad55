"""A swarm that only pretends: its views, states and disks are what a test says, so the oracle can be told anything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import inf
from types import SimpleNamespace
from typing import Any

from dhtcrawl.config import load
from dhtcrawl.keyspace import placement, url_key
from dhtcrawl.node_key import PUBLIC_BYTES, SIGNATURE_BYTES
from dhtcrawl.rpc.membership.hello import NodeState
from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.rpc.tasks.messages import Ack, Code, StoreTask
from dhtcrawl.rpc.tasks.rows import LinkRow
from dhtcrawl.sim.ledger import WatchedEngine
from dhtcrawl.sim.oracle import Oracle
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb, Visit
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.bequests import Bequest
from dhtcrawl.storage.store.records import Place, State, Task, pack

CRAWL = bytes(16)
GRACE_S = 60.0
FILE = "archive.warc.gz"


class Stage:
    """Some hosts that are all active and see one another, and the oracle that judges them."""

    def __init__(self, hosts: int = 5) -> None:
        self.web = SimWeb(1, WebShape(hosts=3, pages=40, flaky=0.0))
        config = load(flags={"swarm.holder_grace_s": f"{GRACE_S}s"})
        trace = Trace(lambda: 0.0)
        self.swarm: Any = SimpleNamespace(
            hosts=[], config=config, web=self.web, wires=SimpleNamespace(cut=self._cut), trace=trace, slow_write_s=0.0
        )
        spec = make_spec(self.web.seeds(), config.crawl)
        swarm: Any = self.swarm
        self.oracle = Oracle(swarm, spec, CRAWL)
        self.cut_off: list[Any] = []
        self.disks: dict[Any, WatchedEngine] = {}
        self.hosts = [self.add() for _ in range(hosts)]
        self.meet()
        self.oracle.step()

    def add(self) -> Any:
        """One more host, active, in nobody's view yet."""
        number = len(self.swarm.hosts)
        name, node_id = f"node {number}", bytes([40 * number + 7]) * 20
        address = f"10.0.0.{number}"
        host: Any = _Host(name=name, id=node_id, address=address, starts=1, started_at=-inf, hidden=False)
        self.swarm.hosts.append(host)
        self.disks[host] = self.oracle.engine(host)
        host.swarm = _Node()
        return host

    def meet(self, *hosts: Any, leaving: Sequence[Any] = ()) -> None:
        """These, or all that are up, have each other in their views."""
        there = hosts or [host for host in self.swarm.hosts if host.swarm is not None]
        states = {True: MemberState.JOINING, False: MemberState.ACTIVE}
        view = View(
            Member(each.id, (each.address, 1), states[each in leaving or not each.swarm.join.state.active])
            for each in there
        )
        for host in there:
            host.swarm.gossip.view = view

    def _cut(self, one: str, other: str) -> bool:
        few = {host.address for host in self.cut_off}
        return (one in few) != (other in few)

    def cut(self, *few: Any) -> None:
        """These are cut off from the others."""
        self.cut_off = list(few)
        many = [host for host in self.swarm.hosts if host not in few]
        self.oracle.partitions([list(few), many], one_way=False)

    def heal(self) -> None:
        """Everybody hears everybody."""
        self.cut_off = []
        self.oracle.healed()

    # Disks

    def url(self, number: int = 1) -> str:
        """A page that comes at the first attempt."""
        return sorted(self.web.truth())[number]

    def write(self, url: str, *hosts: Any, state: State = State.PENDING, order: int = 1, **fields: Any) -> None:
        """A record on the disks of these."""
        for host in hosts:
            value = Task(url, 0, order, "", state=state, **fields).pack()
            self.disks[host].write({keys.TASK + CRAWL + url_key(url): value}, sync=False)

    def drop(self, url: str, host: Any) -> None:
        """A record leaves a disk."""
        self.disks[host].write({keys.TASK + CRAWL + url_key(url): None}, sync=False)

    def body(self, host: Any, *holders: Any, page: bool = True) -> Place:
        """A body that a host fetched lies at these, with the record of its page."""
        for holder in holders:
            rows = {keys.ARCHIVE + CRAWL + FILE.encode(): pack(100)}
            if page:
                rows[keys.PAGE + CRAWL + url_key(self.url())] = pack({})
            self.disks[holder].write(rows, sync=False)
        return Place(host.id.hex(), FILE, 0, 50)

    def done(self, url: str, host: Any, *links: str, sends: bool = False) -> None:
        """A page becomes done at the host that fetched it, which still `sends` what it found or does not."""
        place = Place(host.id.hex(), FILE, 0, 50)
        self.disks[host].write({keys.LINKS + CRAWL + url_key(url): b"".join(map(url_key, links))}, sync=False)
        if sends:
            self.disks[host].write({keys.FETCHED + CRAWL + url_key(url): b""}, sync=False)
        self.write(url, host, state=State.DONE, place=place)

    def sent(self, url: str, host: Any) -> None:
        """What a host found on a page is no longer to be sent."""
        self.disks[host].write({keys.FETCHED + CRAWL + url_key(url): None}, sync=False)

    def says(self, host: Any, ended: str, version: int = 1, bequests: dict[str, bytes] | None = None) -> None:
        """A host writes down how the crawl stands."""
        record = {"version": version, "ended": ended, "bequests": bequests or {}}
        self.disks[host].write({keys.CRAWL + CRAWL: pack(record)}, sync=False)

    def bequeaths(self, host: Any, heir: Any, number: int = 1) -> None:
        """An heir writes down that a host left its pages to it."""
        bequest = Bequest(host.id, heir.id, number, bytes(PUBLIC_BYTES), bytes(SIGNATURE_BYTES))
        self.says(heir, "", bequests={bequest.name: bequest.packed()})

    def keepers(self, url: str) -> list[Any]:
        """Who is to keep a record, its owner first, by the view of the first host."""
        closest = self.hosts[0].swarm.gossip.view.closest(placement(url_key(url)), 4)
        return [next(host for host in self.swarm.hosts if host.id == member.id) for member in closest]

    # What happens

    def acks(self, host: Any, url: str, *, tried: tuple[bytes, ...] = ()) -> None:
        """A host acknowledges a link."""
        message = StoreTask(CRAWL, (LinkRow(url_key(url), url, 0, "", 0, False),), tried)
        self.oracle.asked(host, self.hosts[0].id, message)(Ack(bytes([Code.ACCEPTED])))

    def asks(self, host: Any, url: str, *, comes: bool = True) -> Visit:
        """A host asks the web for a page, and has it at once; or it is still under way."""
        self.oracle.fetches(host, url)
        visit, _ = self.web.begin(url, asyncio.get_running_loop().time(), host.name)
        if comes:
            self.arrives(visit)
        return visit

    def arrives(self, visit: Visit) -> None:
        """The last byte of a page is there."""
        visit.end, visit.status = asyncio.get_running_loop().time(), 200

    def crash(self, host: Any) -> None:
        """A host is gone; its disk is not."""
        self.oracle.crashes(host, bodies_gone=False)
        host.swarm = None

    def lose_disk(self, host: Any) -> None:
        """A host is gone with its disk."""
        self.crash(host)
        host.id = bytes([host.id[0] + 1]) * 20
        self.disks[host] = self.oracle.engine(host)
        self.oracle.disk_lost(host)

    def come_back(self, host: Any) -> None:
        """It is there again."""
        host.starts += 1
        host.started_at = asyncio.get_running_loop().time()
        host.swarm = _Node()
        self.oracle.step()

    @property
    def told(self) -> list[str]:
        """The invariants that the oracle says are broken."""
        return [violation.split(":")[0] for violation in self.oracle.violations]


class _Host(SimpleNamespace):
    """Two are the same only if they are one."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other


class _Node(SimpleNamespace):
    """What the oracle asks a node."""

    def __init__(self) -> None:
        me = SimpleNamespace(state=NodeState.ACTIVE)
        super().__init__(
            gossip=SimpleNamespace(view=View(()), members=SimpleNamespace(me=me)),
            listening=True,
            join=SimpleNamespace(state=SimpleNamespace(active=True)),
            ready=SimpleNamespace(is_set=lambda: True),
            state="active",
        )

    def joins(self) -> None:
        """It is joining."""
        self.join.state.active, self.state = False, "joining"
        self.gossip.members.me.state = NodeState.JOINING

    def activates(self) -> None:
        """It owns, and may fetch."""
        self.join.state.active, self.state = True, "active"
        self.gossip.members.me.state = NodeState.ACTIVE
