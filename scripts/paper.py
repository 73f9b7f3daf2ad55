"""The task protocol of Tao & Xiang (2015), to measure ours against; it runs in the simulator only.

What the paper says, and this does:

- The finder of a link looks up the node closest to its hash (FIND_NODE), sends
  that node STORE_TASK and its neighbours STORE_BACKUP, before anybody has
  looked whether the link is known. One RPC carries one task.
- The owner drops what is in its queue or its table of processed URLs. That
  table is its own: nobody else has it.
- It fetches its queue in order (breadth first), enters the URL in the table
  and sends DELETE_BACKUP to its neighbours.
- A newcomer looks up its own id, is an owner from then on, and asks its
  neighbours (REFRESH_TASK), who send it what it is closest to of their task
  and backup queues as STORE_TASK, and what it is a neighbour of as STORE_BACKUP.
- Backups are published anew now and then: to the closest node as STORE_TASK,
  to its neighbours as STORE_BACKUP. So a crashed owner's tasks are found again,
  and so is everything whose backup was stored after its DELETE_BACKUP.

Where the paper is silent, we assume what suits it:

- Look-ups are always right: they return the closest nodes that run, at once
  after a crash, and take `LOOKUP_S`. They are counted by themselves.
- There are as many backups as ours has (R), not k = 20; they are published anew
  each minute, not each hour.
- RPCs are acknowledged and sent three times; STORE_TASK then goes to whoever is
  closest by now. What is handed on is let go of only once it is acknowledged.
- Queues and the table are on disk the moment they change. A task that is being
  fetched is still in its queue.
- The links of a page are on their way when the page enters the table; what is
  on its way lives in memory.
- robots.txt is known to everybody; a failed request is repeated as ours does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import msgpack

from dhtcrawl.fetch.http import Exchange, FetchFailure, HttpRequest
from dhtcrawl.fetch.links import extract
from dhtcrawl.keyspace import url_key
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.sim.web import SimClient
from dhtcrawl.url import canonicalize, host_of

if TYPE_CHECKING:
    from paper_swarm import PaperSwarm

PORT = 8468
LOOKUP_S = 0.17  # of our prototype's look-ups, the median
LOOKUP_RPCS = 5  # the same one's
RPC_TIMEOUT_S = 1.0
RPC_TRIES = 3
REPUBLISH_S = 60.0
# What our fetcher does with a page that answers 503: two further attempts, the server's Retry-After in between.
ATTEMPTS_MAX = 3
RETRY_S = 2.0
_TRY_LATER = (429, 503)

TASK, BACKUP, DELETE, REFRESH = "STORE_TASK", "STORE_BACKUP", "DELETE_BACKUP", "REFRESH_TASK"


@dataclass(slots=True)
class PaperDisk:
    """What outlives a crash. Dicts, for their order."""

    tasks: dict[str, None] = field(default_factory=dict)
    backups: dict[str, None] = field(default_factory=dict)
    processed: dict[str, None] = field(default_factory=dict)
    bodies: dict[str, None] = field(default_factory=dict)


class _Rpc(NamedTuple):
    kind: str
    url: str
    target: PaperHost
    tries: int
    then: Callable[[], None] | None


class PaperHost:
    """One machine with its disk, and the node on it."""

    paused = hidden = False  # never, but `Faults` asks

    def __init__(self, swarm: PaperSwarm, number: int) -> None:
        self.number = number
        self.name = f"node {number}"
        self.address = f"10.0.{number // 250}.{number % 250 + 1}"
        self.id = Random(f"{swarm.seed} {self.name} id").randbytes(20)
        self.disk = PaperDisk()
        self.running = False
        self.joined = False
        self._swarm = swarm
        self._starts = 0
        self._rng = Random(f"{swarm.seed} {self.name}")
        self._client = SimClient(swarm.web, VirtualClock(swarm.loop), self.name)
        self._numbers = count()
        self._forget()

    # What befalls it

    def begin(self, _through: list[PaperHost]) -> None:
        """Start the node."""
        self.begin_again()

    def begin_again(self) -> None:
        """Start it, with what is on its disk."""
        self.running = True
        self._starts += 1
        transport, _ = self._swarm.datagrams.open_datagram(lambda: _Ear(self._heard), (self.address, PORT))
        self._send_datagram = transport.sendto
        self._queue.extend(self.disk.tasks)
        # The look-up of its own id, and then those of the far buckets.
        self._later(2 * LOOKUP_S, self._join)

    async def crash(self) -> None:
        """From one moment to the next it is gone."""
        self._swarm.trace.event("crash", node=self.id)
        self._swarm.datagrams.crash(self.address)
        self.running = self.joined = False
        self._swarm.membership_changed()
        for task in self._fetching.values():
            task.cancel()
        self._forget()

    async def lose_disk(self) -> None:
        """A crash that takes the disk along: the node that starts here next is another one."""
        await self.crash()
        self.id = Random(f"{self._swarm.seed} {self.name} id {self._starts}").randbytes(20)
        self.disk = PaperDisk()

    def bodies(self) -> set[bytes]:
        """The keys of pages with status 200 whose bodies are on its disk."""
        return {url_key(url) for url in self.disk.bodies}

    def _forget(self) -> None:
        self._queue: deque[str] = deque()
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._waiting: dict[int, _Rpc] = {}

    def _later(self, delay_s: float, function: Callable[..., None], *args: Any) -> None:
        """Unless it has crashed by then."""
        self._swarm.loop.call_later(delay_s, self._if_alive, self._starts, function, args)

    def _if_alive(self, start: int, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.running and self._starts == start:
            function(*args)

    def _join(self) -> None:
        self.joined = True
        self._swarm.membership_changed()
        for neighbour in self._swarm.neighbours(self):
            self._ask(REFRESH, "", neighbour)
        self._later(self._rng.random() * REPUBLISH_S, self._republish)
        self._work()

    # Links

    def find(self, url: str) -> None:
        """A link, or a seed: to its owner and the neighbours of that."""
        self._swarm.found(url)
        self._look_up(url, self._store)

    def _look_up(self, url: str, then: Callable[[str, list[PaperHost]], None]) -> None:
        self._swarm.lookups += 1
        self._later(LOOKUP_S, self._looked_up, url, then)

    def _looked_up(self, url: str, then: Callable[[str, list[PaperHost]], None]) -> None:
        near = self._swarm.near(url)
        if near:
            then(url, near)
        else:
            self._look_up(url, then)

    def _store(self, url: str, near: list[PaperHost]) -> None:
        for host in near:
            self._ask(TASK if host is near[0] else BACKUP, url, host)

    def _store_task(self, url: str, near: list[PaperHost]) -> None:
        self._ask(TASK, url, near[0])

    def _delete_backups(self, url: str, near: list[PaperHost]) -> None:
        for host in near:
            self._ask(DELETE, url, host)

    # Backups

    def _republish(self) -> None:
        for url in list(self.disk.backups):
            owner, *others = self._swarm.near(url)
            # Who is no neighbour any more hands the backup on.
            self._ask(TASK, url, owner, None if self in others else partial(self._drop, url))
            for host in others:
                if host is not self:
                    self._ask(BACKUP, url, host)
        self._later(REPUBLISH_S, self._republish)

    def _share(self, joiner: PaperHost) -> None:
        """Send a newcomer what is its own."""
        for url in [url for url in self.disk.tasks if url not in self._fetching]:
            if self._swarm.near(url)[0] is joiner:
                self._ask(TASK, url, joiner, partial(self._let_go, url))
        for url in list(self.disk.backups):
            near = self._swarm.near(url)
            if joiner in near:
                then = None if self in near else partial(self._drop, url)
                self._ask(TASK if joiner is near[0] else BACKUP, url, joiner, then)

    def _drop(self, url: str) -> None:
        self.disk.backups.pop(url, None)

    def _let_go(self, url: str) -> None:
        if url not in self._fetching:
            self.disk.tasks.pop(url, None)

    # RPCs

    def _ask(self, kind: str, url: str, target: PaperHost, then: Callable[[], None] | None = None) -> None:
        if target is self:
            self._take(kind, url, self)
            if then is not None:
                then()
        else:
            self._send(_Rpc(kind, url, target, RPC_TRIES, then))

    def _send(self, rpc: _Rpc) -> None:
        number = next(self._numbers)
        self._waiting[number] = rpc
        data = msgpack.packb([number, rpc.kind, rpc.url, self.number])
        self._send_datagram(data, (rpc.target.address, PORT))
        self._later(RPC_TIMEOUT_S, self._timed_out, number)

    def _timed_out(self, number: int) -> None:
        rpc = self._waiting.pop(number, None)
        if rpc is None:
            return
        if rpc.tries > 1:
            self._send(rpc._replace(tries=rpc.tries - 1))
        elif rpc.kind == TASK and rpc.then is None:
            self._look_up(rpc.url, self._store_task)

    def _heard(self, data: bytes) -> None:
        number, *asked = msgpack.unpackb(data)
        if not asked:
            rpc = self._waiting.pop(number, None)
            if rpc is not None and rpc.then is not None:
                rpc.then()
            return
        kind, url, sender = asked
        asker = self._swarm.hosts[sender]
        self._swarm.tally.count(kind, 0 if kind == REFRESH else 1, len(data))
        self._send_datagram(msgpack.packb([number]), (asker.address, PORT))
        self._take(kind, url, asker)

    def _take(self, kind: str, url: str, asker: PaperHost) -> None:
        disk = self.disk
        if kind == TASK and url not in disk.tasks and url not in disk.processed:
            disk.tasks[url] = None
            self._queue.append(url)
            self._swarm.moved()
            self._work()
        elif kind == BACKUP:
            disk.backups[url] = None
        elif kind == DELETE:
            disk.backups.pop(url, None)
        elif kind == REFRESH and asker.joined:
            self._share(asker)

    # Fetching

    def _work(self) -> None:
        while self.joined and self._queue and len(self._fetching) < self._swarm.concurrency:
            url = self._queue.popleft()
            if url in self.disk.tasks and url not in self._fetching:
                self._fetching[url] = self._swarm.group.create_task(self._fetch(url))

    async def _fetch(self, url: str) -> None:
        outcome: Exchange | FetchFailure | None = None
        for attempt in range(0 if self._swarm.web.disallows(url) else ATTEMPTS_MAX):
            await asyncio.sleep(RETRY_S if attempt else 0)
            outcome = await self._client.exchange(HttpRequest(url))
            if isinstance(outcome, Exchange) and outcome.status not in _TRY_LATER:
                break
        links = []
        if isinstance(outcome, Exchange):
            self._swarm.trace.event("fetched", node=self.id, url=url, status=outcome.status)
            links = [link for link in links_of(url, outcome) if host_of(link) in self._swarm.scope]
            if outcome.status == 200:
                self.disk.bodies[url] = None
        self.disk.processed[url] = None
        self.disk.tasks.pop(url, None)
        self._fetching.pop(url, None)
        for link in links:
            self.find(link)
        self._look_up(url, self._delete_backups)
        self._swarm.processed(url)
        self._work()


class _Ear(asyncio.DatagramProtocol):
    def __init__(self, heard: Callable[[bytes], None]) -> None:
        self._heard = heard

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._heard(data)


def links_of(url: str, exchange: Exchange) -> list[str]:
    """Where a response leads: canonical URLs, each once."""
    hrefs = [exchange.header("location") or ""]
    if exchange.status == 200 and (exchange.header("content-type") or "").startswith("text/html"):
        hrefs += extract(exchange.body.data).hrefs
    links = (canonicalize(href, url) for href in hrefs if href)
    return list(dict.fromkeys(link for link in links if link is not None))
