"""Simulated swarms that join, crawl and idle, each on a virtual loop of its own, and what that takes."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from dhtcrawl.config import Config, load
from dhtcrawl.rpc.contact import Address
from dhtcrawl.sim.loop import VirtualLoop
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.swarm import SimHost, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.storage.store.crawl_record import COMPLETE

# As many for every swarm, or nodes would ask more gatekeepers for the robots.txt of fewer pages each.
HOSTS = 10
CONCURRENCY = 8
IDLE_S = 20.0
WAVE_MIN = 8
LOOK_S = 0.5
# Of several swarms each gets so much of its own time in turn, so that the caches are as full of the others as in one
# large swarm, where whoever comes next may be anybody.
TURN_S = 0.001
SALT = bytes(16)


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used up, by a moment or between two."""

    cpu_s: float
    virtual_s: float
    task_bytes: int
    datagram_bytes: int
    datagrams: int
    messages: int  # requests of the task plane, between different nodes
    connections: int

    def __sub__(self, other: Spent) -> Spent:
        ours, theirs = dataclasses.astuple(self), dataclasses.astuple(other)
        return Spent(*(a - b for a, b in zip(ours, theirs, strict=True)))


@dataclass(frozen=True, slots=True)
class Sample:
    """One swarm's run."""

    nodes: int
    pages: int
    join: Spent
    crawl: Spent
    idle: Spent
    rss_bytes: int

    def a_page(self, name: str) -> float:
        """Of one measure, what the crawl took beyond what idle nodes take in the same time, for each page.

        Over connections idle nodes say nothing but goodbye to whom they met in the crawl: that is the crawl's.
        """
        if name == "rpc_bytes":
            return self.a_page("task_bytes") + self.a_page("datagram_bytes")
        if name == "task_bytes":
            return float((self.crawl.task_bytes + self.idle.task_bytes) / self.pages)
        idle = getattr(self.idle, name) / self.idle.virtual_s * self.crawl.virtual_s
        return float((getattr(self.crawl, name) - idle) / self.pages)

    def a_node_second(self, name: str) -> float:
        """Of one measure, what an idle node takes in a second."""
        return float(getattr(self.idle, name) / self.nodes / self.idle.virtual_s)

    def a_newcomer(self, name: str) -> float:
        """Of one measure, what the whole swarm spends for each node that joins, idling included."""
        return float(getattr(self.join, name) / self.nodes)


# One run


Phase = Callable[["Simulated"], Coroutine[Any, Any, None]]


def run(nodes: int, pages: int, seed: int, swarms: int = 1) -> Sample:
    """Join, crawl, idle: a swarm, or several side by side that know nothing of each other.

    Raises:
        SystemExit: not all pages were fetched, or a crawl has ended otherwise.
    """
    all_of_them = [Simulated(nodes, pages, seed + number) for number in range(swarms)]
    sample = measured(all_of_them, nodes * swarms)
    for each in all_of_them:
        each.end()
    return sample


def measured(all_of_them: Sequence[Simulated], nodes: int) -> Sample:
    """The three phases of swarms that have so many nodes together; they go on.

    Raises:
        SystemExit: not all pages were fetched, or a crawl has ended otherwise.
    """
    joined = took(all_of_them, lambda swarm: swarm.join())
    took(all_of_them, Simulated.calm)
    # A thousand nodes in one heap: the collector would look at millions of objects of the others, again and again.
    gc.disable()
    crawled = took(all_of_them, Simulated.crawl)
    idled = took(all_of_them, Simulated.idle)
    fetched = sum(each.fetched() for each in all_of_them)
    return Sample(nodes, fetched, joined, crawled, idled, rss_bytes())


def took(swarms: Sequence[Simulated], phase: Phase) -> Spent:
    """What all of them used up in one phase; of virtual time, what one of them did."""
    began = [each.spent() for each in swarms]
    tasks = [each.loop.create_task(phase(each)) for each in swarms]
    if len(swarms) == 1:
        swarms[0].loop.run_until_complete(tasks[0])
    while not all(task.done() for task in tasks):
        for each, task in zip(swarms, tasks, strict=True):
            if not task.done():
                each.loop.run_until_complete(asyncio.sleep(TURN_S))
    for task in tasks:
        task.result()
    of_each = [each.spent() - before for each, before in zip(swarms, began, strict=True)]
    total = [sum(values) for values in zip(*map(dataclasses.astuple, of_each), strict=True)]
    # The process is one, and so is its CPU time.
    return dataclasses.replace(Spent(*total), cpu_s=of_each[-1].cpu_s, virtual_s=median(s.virtual_s for s in of_each))


class Simulated:
    """One swarm and its web, on a loop of its own."""

    def __init__(
        self,
        nodes: int,
        pages: int,
        seed: int,
        *,
        web: SimWeb | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """Without a `web` it is one of `HOSTS` hosts of very different sizes."""
        config = load(flags=settings or {"fetch.concurrency": CONCURRENCY})
        self.loop = VirtualLoop()
        self._nodes = nodes
        self._rng = Random(seed)
        self._web = web or SimWeb(seed, WebShape(hosts=HOSTS, pages=nodes * pages))
        self._spec = make_spec(self._web.seeds(), dataclasses.replace(config.crawl, delay_s=0.0))
        self._hosts: list[SimHost] = []
        self._over = asyncio.Event()
        self._open = asyncio.Event()
        self._kept = self.loop.create_task(self._keep(seed, config))
        self.loop.run_until_complete(self._open.wait())

    async def _keep(self, seed: int, config: Config) -> None:
        async with asyncio.TaskGroup() as group:
            self._swarm = SimSwarm(group, seed, config, self._web, Trace(self.loop.time))
            self._open.set()
            await self._over.wait()

    async def join(self) -> None:
        """All nodes come, in waves."""
        self._hosts = await gather(self._swarm, self._nodes, self._rng)

    async def calm(self) -> None:
        """What is left to tell of newcomers is dropped."""
        await calm(self._hosts)

    async def crawl(self) -> None:
        """From the submission until all know of the end."""
        await crawl(self._hosts, self._spec)

    async def idle(self) -> None:
        """Nobody crawls."""
        await asyncio.sleep(IDLE_S)

    async def after(self, seconds: float) -> None:
        """Until so much virtual time has gone."""
        await asyncio.sleep(seconds)

    def entries(self, number: int) -> list[tuple[bytes, bytes]]:
        """What the store of one node has."""
        return list(self._hosts[number].disk.engine.scan(b"", b"\xff" * 64))

    def fetched(self) -> int:
        """How many pages: all there are."""
        fetched = {visit.url for visit in self._web.visits if not visit.url.endswith("/robots.txt")}
        if lost := self._web.truth().keys() - fetched:
            raise SystemExit(f"bench: {len(lost)} pages of {self._nodes} nodes were not fetched, {min(lost)} for one")
        return len(fetched)

    def spent(self) -> Spent:
        """Since it began."""
        swarm = self._swarm
        return Spent(
            cpu_s=time.process_time(),
            virtual_s=self.loop.time(),
            task_bytes=swarm.streams.bytes_sent,
            datagram_bytes=swarm.datagrams.bytes_sent,
            datagrams=swarm.datagrams.sent,
            messages=sum(swarm.tally.frames.values()),
            connections=swarm.streams.connections_made,
        )

    def end(self) -> None:
        """Nothing of it runs any more."""
        self.loop.run_until_complete(self._end())
        self.loop.close()

    async def _end(self) -> None:
        for host in self._hosts:
            await host.crash()
        self._over.set()
        await self._kept


async def gather(swarm: SimSwarm, nodes: int, rng: Random) -> list[SimHost]:
    """A swarm of so many nodes, which came in waves through random members."""
    hosts = [swarm.add()]
    await hosts[0].start([])
    while len(hosts) < nodes:
        wave = [swarm.add() for _ in range(min(nodes - len(hosts), max(WAVE_MIN, len(hosts))))]
        for host in wave:
            host.begin(rng.sample(hosts, min(3, len(hosts))))
        for host in wave:
            while host.swarm is None:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(LOOK_S)
            await host.swarm.ready.wait()
        hosts += wave
        note(f"{len(hosts)} nodes have joined, {rss_bytes() >> 20} MiB")
    return hosts


async def calm(hosts: list[SimHost]) -> None:
    """Wait until all know all, then let them tell nobody again.

    Nor does anybody exchange all it knows with another one, which each does every
    few minutes: those who came together do it together, and whether a crawl or an
    idle time meets it is chance.
    """
    nodes = [host.swarm for host in hosts if host.swarm is not None]
    while len({node.gossip.fingerprint() for node in nodes}) > 1:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(LOOK_S)
    for node in nodes:
        # The bench alone wants that, so gossip offers no way.
        node.gossip._exchange.with_ = _exchanged  # type: ignore[method-assign]  # noqa: SLF001
        for member in node.gossip.view.ids:
            node.gossip.members.rumours.drop(member)
    await asyncio.sleep(1.0)


async def _exchanged(address: Address, node_id: bytes, *, news: bool = True) -> bool:
    return True


async def crawl(hosts: list[SimHost], spec: CrawlSpec) -> None:
    """Submit a crawl to one node, and wait until all know how it ended."""
    crawl_id = (await hosts[0].submit(spec, SALT)).crawl_id
    running = hosts
    while running:
        await asyncio.sleep(LOOK_S)
        running = [host for host in running if not is_over(host, crawl_id)]
    note("the crawl is over")


def is_over(host: SimHost, crawl_id: bytes) -> bool:
    """Whether a node knows that the crawl has ended, and has nothing more to do for it."""
    assert host.swarm is not None, "nothing makes it crash"
    record = host.swarm.crawls.get(crawl_id)
    if record is None or not record.ended:
        return False
    if record.ended != COMPLETE:
        raise SystemExit(f"bench: the crawl ended as {record.ended!r}; see {host.name}")
    return host.swarm.runs.of(crawl_id) is None


def rss_bytes() -> int:
    """What this process holds in memory now."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * 4096


def note(text: str) -> None:
    """Progress, on stderr."""
    print(f"  {time.process_time():8.1f} CPU-s  {text}", file=sys.stderr)
