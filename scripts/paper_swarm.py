"""A swarm that crawls by the paper's protocol, on the network and the web that ours has, and what came of it.

    simulate_paper(scenario, seed)   beside   simulate_swarm(scenario, seed)

The same seed gives the same web, the same node ids, ways of the same length
and the same faults: `Faults` draws them here as it does there, as long as as
many nodes are up. Of a scenario only crashes, disk losses and joins are
modelled. The paper does not say when a crawl is over, so we do, from outside:
faults end as soon as every URL that was ever found was processed by somebody
(or nothing new comes any more), the model once everybody is back and all
backups were published anew without anything coming of it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from paper import REPUBLISH_S, PaperHost

from dhtcrawl.config import SwarmSettings
from dhtcrawl.keyspace import url_key
from dhtcrawl.rpc.membership.view import Member, View
from dhtcrawl.sim import loop
from dhtcrawl.sim.faults import Faults
from dhtcrawl.sim.net import DatagramNetwork, Weather
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.tally import MessageTally
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.sim.wires import Wires, read_matrix
from dhtcrawl.url import host_of

# What a crawl may take; the paper's need not end where nodes go on coming.
VIRTUAL_S_MAX = 7200.0
STEP_S = 0.5
# The last to republish may have been a full period ago, and what comes of it takes a while.
QUIET_S = REPUBLISH_S + 10.0
# What was found and is in nobody's queue or backups after so long is lost.
STALLED_S = 2 * REPUBLISH_S


class PaperSwarm:
    """The world of a swarm; for `dhtcrawl.sim.faults` it is what `SimSwarm` is."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        web: SimWeb,
        trace: Trace,
        datagrams: DatagramNetwork,
        concurrency: int,
    ) -> None:
        self.group = group
        self.web = web
        self.trace = trace
        self.datagrams = datagrams
        self.concurrency = concurrency
        self.replicas = SwarmSettings().replicas  # as many as ours has
        self.seed = web.seed
        self.loop = asyncio.get_running_loop()
        self.tally = MessageTally()
        self.lookups = 0
        self.hosts: list[PaperHost] = []
        self.scope = {host_of(url) for url in web.seeds()}
        self._open: dict[str, None] = {}  # found, and processed by nobody so far
        self._closed: dict[str, None] = {}
        self._news_at = 0.0  # when these last changed
        self.moved_at = 0.0  # when a task was last new to its owner, or over
        self.moved_by_then = (0, 0)  # records and frames
        self._view = View(())

    @property
    def up(self) -> list[PaperHost]:
        """Those that run."""
        return [host for host in self.hosts if host.running]

    @property
    def done(self) -> bool:
        """Whether nothing is to come that would be new."""
        return not self._open or self.loop.time() - self._news_at > STALLED_S

    def add(self) -> PaperHost:
        """One more machine, not started yet."""
        self.hosts.append(PaperHost(self, len(self.hosts)))
        return self.hosts[-1]

    def near(self, url: str) -> list[PaperHost]:
        """The owner of a URL and the neighbours that are to have its backups, closest first."""
        members = self._view.closest(url_key(url), self.replicas + 1)
        return [self.hosts[member.address[1]] for member in members]

    def neighbours(self, host: PaperHost) -> list[PaperHost]:
        """The nodes closest to one, itself aside."""
        members = self._view.closest(host.id, self.replicas + 2)
        return [found for member in members if (found := self.hosts[member.address[1]]) is not host]

    def membership_changed(self) -> None:
        """Somebody came or went."""
        joined = [host for host in self.hosts if host.joined]
        self._view = View(Member(host.id, (host.address, host.number)) for host in joined)

    def found(self, url: str) -> None:
        """Somebody found a link."""
        if url not in self._closed and url not in self._open:
            self._open[url] = None
            self._news_at = self.loop.time()

    def processed(self, url: str) -> None:
        """Somebody has done with it."""
        if url in self._open:
            del self._open[url]
            self._closed[url] = None
            self._news_at = self.loop.time()
        self.moved()

    def moved(self) -> None:
        """A task got further."""
        self.moved_at = self.loop.time()
        self.moved_by_then = (self.tally.records_moved, self.tally.record_frames)


@dataclass(frozen=True, slots=True)
class PaperResult:
    """What came of it; `lost` are pages that nobody fetched, `pages_missing` those whose body nobody has any more."""

    seed: int
    pages: int  # distinct URLs that were fetched
    found: int  # of them, pages with status 200
    lost: int
    pages_missing: int
    refetched: int  # as `SimWeb.refetched` says
    records_moved: int
    record_frames: int
    lookups: int
    bodies_lost: int  # pages that lay only on disks which were lost
    backups_left: int  # for URLs that somebody has processed
    crashes: int
    virtual_seconds: float
    trace_hash: str


def simulate_paper(scenario: Scenario, seed: int) -> PaperResult:
    """Run `scenario` with `seed` on a virtual clock."""
    return loop.run(_simulate(scenario, seed))


class _Judge:
    """What `Faults` tells, and asks for."""

    def __init__(self) -> None:
        self.ended_at: float | None = None
        self.work_left = True

    def step(self) -> None:
        """Nothing is looked at on the way."""

    def crashes(self, host: PaperHost, *, bodies_gone: bool) -> None:
        """The host knows."""

    def disk_lost(self, host: PaperHost) -> None:
        """The host knows."""


async def _simulate(scenario: Scenario, seed: int) -> PaperResult:
    running = asyncio.get_running_loop()
    time = running.time
    web = SimWeb(seed, scenario.web())
    trace = Trace(time)
    judge = _Judge()
    weather = Weather(loss=scenario.loss, duplication=scenario.duplication, late_s=scenario.late_s)
    matrix = read_matrix(Path(scenario.latency_matrix)) if scenario.latency_matrix else None
    wires = Wires(seed, (min(0.01, scenario.latency_s), scenario.latency_s), matrix)
    async with asyncio.TaskGroup() as group:
        swarm = PaperSwarm(
            group, web, trace, DatagramNetwork(running, seed, weather, wires=wires), scenario.concurrency
        )
        faults = Faults(cast(Any, swarm), cast(Any, judge), scenario, seed)
        for _ in range(scenario.nodes):
            swarm.add().begin([])
        await asyncio.sleep(1.0)
        for url in web.seeds():
            swarm.hosts[min(1, scenario.nodes - 1)].find(url)
        befalling = group.create_task(faults.run())
        while not swarm.done and time() < VIRTUAL_S_MAX:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(STEP_S)
        judge.ended_at, judge.work_left = time(), False
        befalling.cancel()
        while (faults.busy or time() - swarm.moved_at < QUIET_S) and time() < VIRTUAL_S_MAX:  # noqa: ASYNC110
            await asyncio.sleep(STEP_S)
        result = _judged(swarm, faults, trace)
        for host in swarm.up:
            await host.crash()
    return result


def _judged(swarm: PaperSwarm, faults: Faults, trace: Trace) -> PaperResult:
    web, truth = swarm.web, swarm.web.truth()
    fetched = {visit.url for visit in web.visits}
    brought = {visit.url for visit in web.visits if visit.status == 200}
    there = {url for host in swarm.up for url in host.disk.bodies}
    over = {url for host in swarm.up for url in host.disk.processed}
    records, frames = swarm.moved_by_then
    return PaperResult(
        seed=swarm.seed,
        pages=len(fetched),
        found=len(brought),
        lost=len(truth.keys() - brought),
        pages_missing=len(truth.keys() & brought - there),
        refetched=web.refetched(),
        records_moved=records,
        record_frames=frames,
        lookups=swarm.lookups,
        bodies_lost=faults.toll.bodies_lost,
        backups_left=sum(url in over for host in swarm.up for url in host.disk.backups),
        crashes=faults.toll.crashes,
        virtual_seconds=round(swarm.moved_at, 6),
        trace_hash=trace.hash,
    )
