"""One crawl on one node: frontier, fetchers and writer, from start to end.

    start ──▶ running ──(nothing left, a limit, or stop)──▶ draining ──▶ ended

While running, the crawl gives each job that the frontier offers to a free fetcher,
fills the frontier's fronts from the store, and checks its limits. It is complete
when nothing is queued, in flight, under way to an owner or unwritten.
While draining, it starts nothing new, lets requests in flight finish within
`drain_timeout_s`, and writes their results.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from dhtcrawl.config import FetchSettings
from dhtcrawl.crawl.budget import CrawlLimits, Stop
from dhtcrawl.crawl.fetcher import Fetcher
from dhtcrawl.crawl.frontier import Job
from dhtcrawl.crawl.host_standing import frontier_obstacle
from dhtcrawl.crawl.parts import CrawlParts
from dhtcrawl.crawl.places import PlaceLimits
from dhtcrawl.crawl.ports import Assignment, Budget
from dhtcrawl.crawl.record_finder import finder_of
from dhtcrawl.crawl.refill import Refill
from dhtcrawl.crawl.resends import Resends
from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.crawl.seed_links import SeedPart, seed_parts
from dhtcrawl.crawl.services import Services
from dhtcrawl.fetch.politeness import HoldReason
from dhtcrawl.loop_state import loop_state
from dhtcrawl.standing import Cause, Obstacle
from dhtcrawl.storage.store import counters, tasks
from dhtcrawl.storage.store.txn import Txn

log = logging.getLogger(__name__)

LIMITS_EVERY_S = 0.25


class _Stage:
    """The stage of the crawl: running, draining, ending."""

    def __init__(self) -> None:
        self.starting = True
        self.ending = False
        self.stopped: Stop | None = None
        self.ended = asyncio.Event()
        self.drained = asyncio.Event()


class _Fetchers:
    """The idle fetchers, and how many jobs the others have."""

    def __init__(self, settings: FetchSettings) -> None:
        self.limits = PlaceLimits(settings.concurrency, settings.open_pages_max)
        self.idle: deque[asyncio.Future[Job | None]] = deque()
        self.started = 0
        self.running = 0  # jobs handed to fetchers
        self.pages = 0  # of them, those for a page


class _RunTime:
    """Adds this run's time, and what its node counted of impolite requests meanwhile, to those of earlier runs."""

    def __init__(self, services: Services, counters: CrawlCounters) -> None:
        self.started_at = 0.0
        self._clock = services.clock
        self._hosts, self._gate = services.hosts, services.gate
        self._counters = counters
        self._seconds_before = counters.seconds
        self._violations_before = counters.politeness_violations - self._hosts.violations
        self._exceptions_before = counters.politeness_exceptions - self._gate.exceptions

    @property
    def elapsed_s(self) -> float:
        """How long this run has taken; 0 before it has started."""
        return self._clock.monotonic() - self.started_at if self.started_at else 0.0

    @property
    def seconds(self) -> float:
        """How long the crawl has run on this node, earlier runs included."""
        return self._seconds_before + self.elapsed_s

    def count(self) -> None:
        """Bring the counters up to date."""
        self._counters.seconds = self._seconds_before + self.elapsed_s
        self._counters.politeness_violations = self._violations_before + self._hosts.violations
        self._counters.politeness_exceptions = self._exceptions_before + self._gate.exceptions


@loop_state
class Crawl:
    """Runs one crawl: call `run` once, read `counters` at any time."""

    def __init__(
        self,
        services: Services,
        parts: CrawlParts,
        assignment: Assignment,
        budget: Budget,
        *,
        disk_used: Callable[[], Awaitable[bool]],
    ) -> None:
        """`disk_used()` says whether the disk limit is reached."""
        self.parts = parts
        self._s = services
        self._assignment = assignment
        self._budget = budget
        self._disk_used = disk_used
        self._stage = _Stage()
        self._fetchers = _Fetchers(services.config.fetch)
        self._time = _RunTime(services, parts.counters)
        crawl = parts.start.crawl_id
        self._refill = Refill(services, crawl, parts.frontier, parts.due, refilled=self._dispatch)
        finder = finder_of(parts.start.spec)
        self._resends = Resends(services, parts.start, parts.next_round, parts.discovery, finder, resent=self._dispatch)
        self._fetcher = Fetcher(services, parts.start.spec, parts, assignment)
        self._timer: asyncio.TimerHandle | None = None
        parts.changed.listen(self._dispatch)

    @property
    def counters(self) -> CrawlCounters:
        """The crawl's counters, earlier runs included."""
        return self.parts.counters

    @property
    def stopped(self) -> Stop | None:
        """What ended the crawl before it was complete."""
        return self._stage.stopped

    @property
    def complete(self) -> bool:
        """Whether there was nothing left to do."""
        return self._stage.ended.is_set() and self._stage.stopped is None

    @property
    def seconds(self) -> float:
        """How long the crawl has run on this node, earlier runs included."""
        return self._time.seconds

    @property
    def elapsed_s(self) -> float:
        """How long this run has taken; 0 before it has started."""
        return self._time.elapsed_s

    @property
    def waiting(self) -> dict[str, int]:
        """What this node knows is left to do here: counts, by the words of `standing.OWED`."""
        parts, waits = self.parts, self.parts.next_round
        reading = self._refill.busy or not parts.intake.idle
        found = {
            "queued": int(self._stage.starting or not parts.frontier.empty or reading),
            "in_flight": self._fetchers.running,
            "unwritten": int(not parts.writer.state.idle),
            "unsettled": parts.next_round.resends.pending + len(waits.open_pages),
            "copies": len(waits.copying),
            "links": len(waits.outbox),
        }
        return {word: count for word, count in found.items() if count}

    @property
    def obstacle(self) -> Obstacle | None:
        """What keeps this node from starting a request; None while one is under way, or may begin soon."""
        if self._fetchers.running or self._stage.ending:
            return None
        parts, now = self.parts, self._s.clock.monotonic()
        return frontier_obstacle(parts.frontier, self._s.hosts, parts.origins, now)

    @property
    def activity(self) -> int:
        """A number that grows with every event that may be, or lead to, work for a node."""
        return self._fetchers.started + self.parts.writer.state.rounds + self.parts.intake.activity

    def host_free(self, host: str) -> None:
        """A host became free: another crawl finished its request, or the host was leased to this node."""
        self.parts.frontier.host_free(host, self._s.clock.monotonic())
        self._dispatch()

    def stop(self, reason: Stop) -> None:
        """Start nothing new; `run` returns once what is in flight is written."""
        if self._stage.stopped is None and not self._stage.ended.is_set():
            self._stage.stopped = reason
            self._end(f"stops ({reason.word})")

    def finish(self) -> None:
        """End the crawl as complete: no node of the swarm has work left."""
        if not self._stage.ended.is_set():
            self._end("has ended in the whole swarm")

    def learn_aliases(self, aliases: list[str]) -> None:
        """Count these URLs, which seeds redirect to, as seeds."""
        extended = [self.parts.scope.extend(alias) for alias in aliases]
        if any(extended):
            self.parts.discovery.forget()

    async def run(self) -> None:
        """Crawl until nothing is left or a limit is reached.

        Raises:
            StorageError: the disk failed; all that was acknowledged is on disk.
        """
        self._time.started_at = self._s.clock.monotonic()
        crawl, pages = self.parts.start.crawl_id.hex(), self.counters.pages
        log.info("crawl %s begins here, with %d pages of earlier runs", crawl[:12], pages, extra={"crawl": crawl})
        if self.parts.start.owed:
            count, longest_s = len(self.parts.start.owed), max(self.parts.start.owed.values())
            log.info("%d hosts had asked for longer waits, up to %.3g s, which begin again", count, longest_s)
        for host, wait_s in self.parts.start.owed.items():
            self._s.hosts.clock(host).hold(self._time.started_at, wait_s, HoldReason(Cause.RESTART))
        self.parts.shares.run()
        try:
            await self._run()
        finally:
            # Cancelled or not: no timer of this crawl may fire from here on.
            self._stage.ending = True
            self.parts.shares.close()
            if self._timer is not None:
                self._timer.cancel()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.parts.writer.run())
            workers = [group.create_task(self._work()) for _ in range(self._s.config.fetch.concurrency)]
            background = [
                # The intake may wait for backups that are gone; the links and records it took are in the store.
                group.create_task(self.parts.intake.run()),
                group.create_task(self._refill.run()),
                group.create_task(self._watch_limits()),
                group.create_task(self._resends.run()),
            ]
            try:
                await self._begin()
                await self._stage.ended.wait()
            except asyncio.CancelledError:
                # The tasks above may find something to start on their way out.
                self._stage.ending = True
                raise
            await self._drain(workers)
            for task in (*workers, *background):
                task.cancel()
            self._time.count()
            self.parts.intake.close()
            self.parts.writer.close()

    # -- jobs --

    async def _work(self) -> None:
        """Do one job after another, as one fetcher."""
        fetchers = self._fetchers
        while True:
            waiting: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()
            fetchers.idle.append(waiting)
            self._dispatch()
            job = await waiting
            if job is None:
                return
            try:
                await self._fetcher.run(job)
            finally:
                fetchers.running -= 1
                if job.task is not None:
                    fetchers.pages -= 1
                    self.parts.in_flight.pop(job.task.key, None)
                if self._stage.ending and not fetchers.running:
                    self._stage.drained.set()

    def _dispatch(self) -> None:
        """Give jobs to idle fetchers; called whenever a job may have become possible."""
        if self._stage.ending or self._stage.starting:
            return
        stop = self._limit_reached()
        if stop is not None and not self._nothing_left():
            self.stop(stop)
            return
        self._start_jobs()
        frontier = self.parts.frontier
        if frontier.wants_assigning:
            self._assignment.assign()
        if frontier.wants_refill or frontier.wants_hosts:
            self._refill.wanted()
        if self._s.ports.ownership.alone and self._nothing_left():
            self._end("is complete")
        else:
            # No fetcher free, unwritten pages, the budget: when such an obstacle goes,
            # this method is called. Only a host's delay needs a timer.
            due_at = frontier.next_due_at()
            self._wake_at(due_at if due_at != math.inf and self._may_start() else math.inf)

    def _start_jobs(self) -> None:
        now, fetchers, handed_in = self._s.clock.monotonic(), self._fetchers, self.parts.next_round
        may_start = self._budget.may_start(handed_in.unwritten_pages + fetchers.pages)
        self.parts.shares.may_start = may_start
        while may_start and self._has_place():
            job = self.parts.frontier.next(now)
            if job is None:
                break
            fetchers.running += 1
            fetchers.started += 1
            if job.task is not None:
                fetchers.pages += 1
                self.parts.in_flight[job.task.key] = None
            fetchers.idle.popleft().set_result(job)
            may_start = bool(fetchers.idle) and self._budget.may_start(handed_in.unwritten_pages + fetchers.pages)

    def _may_start(self) -> bool:
        """Whether a fetcher is free, and the bounds of `PlaceLimits` and the budget allow one more page."""
        fetchers, handed_in = self._fetchers, self.parts.next_round
        return self._has_place() and self._budget.may_start(handed_in.unwritten_pages + fetchers.pages)

    def _has_place(self) -> bool:
        """The same but for the budget."""
        fetchers, handed_in = self._fetchers, self.parts.next_round
        while fetchers.idle and fetchers.idle[0].done():
            fetchers.idle.popleft()  # its fetcher was cancelled, as another part of the crawl has failed
        if not fetchers.idle:
            return False
        return fetchers.limits.free(fetchers.running, handed_in.unwritten_pages, handed_in.open_pages)

    def _limit_reached(self) -> Stop | None:
        if not self._s.ports.ownership.alone:
            return None  # in a swarm the coordinator checks the limits of the whole crawl
        counters, limits = self.counters, CrawlLimits(self.parts.start.spec.settings)
        stop = limits.exceeded(pages=counters.pages, seconds=self._time.elapsed_s, size_bytes=counters.body_bytes)
        # Only when the pages in flight are written, and after a crash the links of the last ones are sent, is it known
        # whether any work is left, and so whether the crawl is complete: wait. `_may_start` starts nothing meanwhile.
        return None if stop is Stop.PAGE_LIMIT and self._is_busy() else stop

    def _is_busy(self) -> bool:
        """Whether a page, its links or a stored queue are being dealt with, which may bring work or be all of it."""
        reads = self.parts.next_round.resends.pending or self._refill.busy
        return bool(self._fetchers.running or reads or not self.parts.writer.state.idle)

    def _wake_at(self, due_at: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_at != math.inf:
            # At least a microsecond: a timer that fires a rounding error too early would spin.
            delay_s = max(1e-6, due_at - self._s.clock.monotonic())
            self._timer = loop.call_later(delay_s, self._dispatch)

    def _nothing_left(self) -> bool:
        parts = self.parts
        return (
            parts.frontier.empty
            and not self._fetchers.running
            and not parts.next_round.resends.pending
            and not self._refill.busy
            and parts.writer.state.idle
            and not parts.next_round.open_pages
            and not self._s.ports.replication.busy
        )

    # -- start and end --

    async def _begin(self) -> None:
        """Queue the seeds, resume unfinished pages, and bring hosts with work into memory."""
        submit, alone = self._s.committer.submit, self._s.ports.ownership.alone
        crawl = self.parts.start.crawl_id
        begun_depth = self.parts.start.begun_depth
        if begun_depth is not None:
            from dhtcrawl.crawl import depth_change  # here: that of most crawls never changes

            await depth_change.mark_owing(self._s, self.parts.start, begun_depth)
            if alone:
                await depth_change.open_again(self._s, self.parts.start)
        if alone:
            await self._seed()
        cursor = b""
        while pages := await submit(partial(tasks.unsettled, crawl=crawl, limit=1000, cursor=cursor)):
            for page in pages:
                self.parts.next_round.resends.put(page)
            cursor = pages[-1]
        self._stage.starting = False
        self._refill.wanted()
        if not alone:
            self.parts.intake.look_again()

    async def _seed(self) -> None:
        """Queue the seeds of a crawl of one node, from where an earlier run was."""
        submit, start = self._s.committer.submit, self.parts.start
        begun = await submit(partial(tasks.seeded, crawl=start.crawl_id))
        for part in seed_parts(start.spec, begun):
            write = partial(_write_seeds, crawl=start.crawl_id, part=part, orders=self.parts.orders)
            new = await submit(write)
            self.counters.urls_seen += new
            if self._stage.ended.is_set():
                return  # stopped

    def _end(self, how: str) -> None:
        crawl, running = self.parts.start.crawl_id.hex(), self._fetchers.running
        log.info("crawl %s %s, with %d requests in flight", crawl[:12], how, running, extra={"crawl": crawl})
        self._stage.ending = True
        if not self._fetchers.running:
            self._stage.drained.set()
        self._stage.ended.set()

    async def _drain(self, workers: list[asyncio.Task[None]]) -> None:
        while self._fetchers.idle:
            waiting = self._fetchers.idle.popleft()
            if not waiting.done():
                waiting.set_result(None)
        try:
            async with asyncio.timeout(self._s.config.node.drain_timeout_s):
                await self._stage.drained.wait()
        except TimeoutError:
            self._s.observer.event("drain-timeout", running=self._fetchers.running)
            text = "%d requests did not end within %g s and are given up; the next run makes them again"
            log.info(text, self._fetchers.running, self._s.config.node.drain_timeout_s)

    # -- background --

    async def _watch_limits(self) -> None:
        while True:
            await asyncio.sleep(LIMITS_EVERY_S)
            self._time.count()
            self._s.hosts.sweep(self._s.clock.monotonic(), self.parts.origins.delay_s)
            stop = self._limit_reached()
            if stop is None and await self._disk_used():
                stop = Stop.DISK_LIMIT
            # A crawl that reached its limit with its very last page is complete.
            if stop is None or self._nothing_left():
                continue
            if self._s.ports.ownership.alone:
                self.stop(stop)
            else:
                # No other node may fetch what this one owns: without it the crawl would neither go on nor end.
                await self._s.ports.record.stop(stop.word)


def _write_seeds(txn: Txn, crawl: bytes, part: SeedPart, orders: Iterator[int]) -> int:
    """Write some of the seeds, and count those that are new; how many these are."""
    new = tasks.seed(txn, crawl, part.links, orders, part.tasks)
    counters.count(txn, crawl, {"urls_seen": new} if new else {})
    return new
