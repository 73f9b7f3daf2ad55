"""A member of a simulated swarm that does not do as it should, and what of a crawl may be lost for it.

It is the real node with other answers to what it is asked, and with things that it says unasked. In which way it
is bad:

    drops     every third request is never answered
    forgets   it acks what it is given to keep, and takes tasks that it is lent, and keeps and does nothing
    answers   at random: codes, places where a key's owner is not, old answers to other calls, what is none
    invents   one thing a second for a minute, to one of the others: links, records of pages that no page leads to,
              rests of hosts, that it is the heir of nodes; a crawl to which it adds for ever would not end

It says nothing of a task that another node owns but what an honest node would, nor of members: that a member can claim
tasks to be over, and make up members and deaths, is known, and stands in SECURITY.md.

A key may be lost when the bad member has owned it by any node's view, or has fetched the page, as for an owner that
could not connect; and what is only found by such pages may be, too (`may_be_lost`). So may the politeness towards hosts
whose gatekeeper it was.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Final

from dhtcrawl.keyspace import KEY_BYTES, distance, host_key, placement
from dhtcrawl.node.swarm_node import SwarmNode
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.messages import (
    Ack,
    Call,
    Code,
    DeleteBackup,
    Records,
    RefreshTask,
    Refused,
    Reply,
    Request,
    Result,
    StoreBackup,
    StoreTask,
)
from dhtcrawl.rpc.tasks.rows import LinkRow, PeerRow, PlaceRow, RecordRow
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.sim.loop import on_host
from dhtcrawl.sim.scenario import Manner
from dhtcrawl.sim.swarm import SimHost
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.store import bequests
from dhtcrawl.storage.store.crawl_record import to_wire
from dhtcrawl.storage.store.records import State
from dhtcrawl.swarm.calls.hosts import SPAN_MS_MAX, AskHosts, AskRow
from dhtcrawl.swarm.calls.lifecycle import TellCrawl
from dhtcrawl.url import host_of

_SAYS_EVERY_S: Final = 1.0
_SAYS: Final = 60
# The longest rest of a host in a simulation with a member that asks for a day's.
REST_MAX_S: Final = 30.0
_OLD_ANSWERS: Final = 16
# Bodies that it takes over would lie with it alone, as would copies; it never takes any, but may say that it has.
_BODY_CALLS: Final = ("adopt", "copy_pages")
_KEPT: Final = (StoreTask, StoreBackup, DeleteBackup)


def invented_records(rows: Iterable[tuple[bytes, str, int, str]], state: State, node: bytes) -> tuple[RecordRow, ...]:
    """Records as a node could have them, so that none is left out as invalid, of (key, URL, depth, referrer)."""
    reason = "failed" if state is State.DEAD else ""
    place = PlaceRow(node.hex(), "invented.warc.gz", 0, 9) if state is State.FETCHED else None
    return tuple(RecordRow(*row, 0, False, 1, int(state), 0, 1, reason, "", place) for row in rows)


class BadMember:
    """The node `name`, which is bad in one `manner`."""

    def __init__(self, name: str, manner: Manner, seed: int, crawl: bytes, spec: CrawlSpec) -> None:
        self.name = name
        self._manner = manner
        self._rng = Random(f"{seed} bad member")
        self._crawl = crawl
        self._spec = spec
        self._views: dict[frozenset[bytes], None] = {}  # that any node has had
        self._ids: dict[bytes, None] = {}  # its own: after the loss of its disk it has another
        self._fetched: set[str] = set()
        self._begun = False
        self._old: deque[Result] = deque(maxlen=_OLD_ANSWERS)
        self._left: dict[str, bytes] = {}  # what nodes that leave have signed for it

    # What it does

    def begin(self) -> None:
        """It is bad from here on: once the swarm is there, and the crawl begins."""
        self._begun = True

    def handler_of(self, host: SimHost, handler: Handler) -> Handler:
        """What answers for a node: its own handler, unless it is this one."""
        if host.name != self.name:
            return handler

        def answer(hello: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
            if hello.node_id == host.id or not self._begun:
                return handler(hello, message)
            if isinstance(message, Call) and message.name in _BODY_CALLS:
                if message.name == "adopt":
                    self._left[bequests.name_of(hello.node_id, host.id)] = message.args["bequest"]
                return Refused("failed")
            return self._answer(lambda: handler(hello, message), message)

        return answer

    def _answer(
        self, honest: Callable[[], Reply | asyncio.Future[Reply]], message: Request
    ) -> Reply | asyncio.Future[Reply]:
        if self._manner is Manner.DROPS and self._rng.random() < 1 / 3:
            never: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            return never
        if self._manner is Manner.FORGETS:
            if isinstance(message, _KEPT):
                return Ack.all(Code.ACCEPTED, message.items)
            if isinstance(message, Call) and message.name == "lend":
                return Result({})
        if self._manner is Manner.ANSWERS and self._rng.random() < 1 / 2:
            return self._wrong(message)
        reply = honest()
        if isinstance(reply, Result):
            self._old.append(reply)
        return reply

    def _wrong(self, message: Request) -> Reply:
        rng = self._rng
        if isinstance(message, _KEPT):
            codes = bytes(rng.choice(list(Code)) for _ in range(message.items))
            moved = bytes(codes.count(Code.MOVED))
            return Ack(codes, moved, (PeerRow(rng.randbytes(KEY_BYTES), "10.0.0.1", 8468),) if moved else ())
        if isinstance(message, RefreshTask):
            return Records(digests=rng.randbytes(8 << message.digest_bits) if message.digest_bits else b"")
        strange: list[Reply] = [
            Refused("failed"),
            Refused("unknown-crawl"),
            Result({}),
            Result({"answers": (), "value": 2**60}),
        ]
        return rng.choice([*self._old, *strange])

    async def run(self, hosts: list[SimHost]) -> None:
        """Say things unasked."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_SAYS if self._manner is Manner.INVENTS else 0):
                await asyncio.sleep(_SAYS_EVERY_S)
                host = next(host for host in hosts if host.name == self.name)
                others = [other for other in hosts if other is not host and other.swarm is not None]
                if host.swarm is None or not host.swarm.ready.is_set() or host.paused or not others:
                    continue
                with on_host(host.address):
                    group.create_task(self._say(host.swarm, self._rng.choice(others).id))

    async def _say(self, swarm: SwarmNode, other: bytes) -> None:
        rng = self._rng
        peers, what = swarm.peers, rng.choice(("links", "records", "rests", "heirs"))
        if what in ("links", "records"):
            invented = [self._invented(rng) for _ in range(rng.randint(1, 20))]
            rows = [(self._spec.key_of(url), url, rng.randint(0, 3), self._spec.seeds[0]) for url in invented]
            if what == "links":
                links = tuple(LinkRow(*row, rng.randint(0, 3), rng.random() < 0.2) for row in rows)
                await peers.ask(other, StoreTask(self._crawl, links))
            else:
                state = rng.choice((State.PENDING, State.FETCHED, State.DEAD))
                await peers.ask(other, StoreBackup(self._crawl, invented_records(rows, state, swarm.id)))
        elif what == "heirs":
            await self._inherit(swarm, other)
        else:
            row = AskRow(host_of(rng.choice(self._spec.seeds)), SPAN_MS_MAX, SPAN_MS_MAX, b"")
            await peers.call(other, AskHosts((row,)))

    async def _inherit(self, swarm: SwarmNode, other: bytes) -> None:
        """Say that it is the heir: of whom it was left pages that it has not taken, or of all that took part."""
        record, key = swarm.crawls.get(self._crawl), swarm.node.ports.key
        if record is None:
            return
        said = self._left
        if not said or self._rng.random() < 0.5:
            made = bequests.made(key, self._crawl, swarm.id, bequests.first_number(2**20))
            others = [bytes.fromhex(node) for node in record.participants if node != swarm.id.hex()]
            said = {false.name: false.packed() for false in (made._replace(node_id=node) for node in others)}
        told = replace(record, bequests=record.bequests | said)
        await swarm.peers.call(other, TellCrawl(to_wire(told)))

    def _invented(self, rng: Random) -> str:
        """A URL that no page leads to: on a host of the crawl mostly, where it is 404, and else out of scope."""
        host = host_of(rng.choice(self._spec.seeds)) if rng.random() < 0.8 else f"nowhere-{rng.randint(0, 9)}.test"
        return f"http://{host}/invented/{rng.getrandbits(32)}"

    # What may be lost for it

    def look(self, hosts: list[SimHost]) -> None:
        """Note whom nodes see now."""
        for host in hosts:
            if host.name == self.name:
                self._ids[host.id] = None
            if host.swarm is not None and host.swarm.listening:
                self._views[frozenset(member.id for member in host.swarm.gossip.view.members)] = None

    def fetches(self, url: str) -> None:
        """Note a page that it asks for, also for an owner that lent it the task: the body lies with it alone."""
        self._fetched.add(url)

    def may_be_lost(self, url: str) -> bool:
        """Whether any node has ever taken the bad member for the owner of a URL, or it has fetched it."""
        return url in self._fetched or self._has_owned(placement(self._spec.key_of(url)))

    def keeps_gate(self, host: str) -> bool:
        """Whether any node has ever taken it for a host's gatekeeper."""
        return self._has_owned(host_key(host))

    def _has_owned(self, key: bytes) -> bool:
        return any(min(view, key=lambda node: distance(node, key)) in self._ids for view in self._views if view)
