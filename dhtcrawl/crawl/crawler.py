"""One crawl on one node: frontier, fetchers and corridor, from start to end.

    start ──▶ running ──(nothing left, a limit, or stop)──▶ draining ──▶ ended

Running, the crawl hands each job the frontier offers to a free fetcher, fills
the frontier's fronts from the store, and looks at its limits. It is complete
when nothing is queued, in flight, under way to an owner or unwritten.
Draining, it starts nothing new, lets requests in flight finish within
`drain_timeout_s`, and writes what they brought.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

from dhtcrawl.crawl.budget import CrawlLimits, Stop
from dhtcrawl.crawl.discovery import Discovery
from dhtcrawl.crawl.fetcher import Fetcher
from dhtcrawl.crawl.frontier import Frontier, Job
from dhtcrawl.crawl.intake import Intake
from dhtcrawl.crawl.refill import Refill
from dhtcrawl.crawl.resends import Resends
from dhtcrawl.crawl.round_writer import RoundWriter
from dhtcrawl.crawl.rounds import CrawlCounters, CrawlStart
from dhtcrawl.crawl.scope import Scope
from dhtcrawl.crawl.services import Services
from dhtcrawl.fetch.robots import product_token
from dhtcrawl.fetch.robots_book import RobotsBook
from dhtcrawl.storage.outputs.outputs import LivePages
from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.tasks import Queued

LIMITS_EVERY_S = 0.25


class Crawl:
    """Runs one crawl; make it, `run` it once, read `counters` at any time."""

    def __init__(
        self, services: Services, start: CrawlStart, *, live: LivePages, disk_used: Callable[[], Awaitable[bool]]
    ) -> None:
        """`disk_used()` says whether the disk limit is reached."""
        config = services.config
        self.spec = start.spec
        self.crawl_id = start.crawl_id
        self.stopped: Stop | None = None
        self._s = services
        self._disk_used = disk_used
        settings = start.spec.settings
        self._limits = CrawlLimits(settings)
        self._scope = scope = Scope([*start.spec.seeds, *start.aliases], settings)
        robots = RobotsBook(
            product_token(settings.user_agent),
            now=services.clock.monotonic,
            ttl_s=config.politeness.robots_ttl_s,
            crawl_delay_max_s=config.politeness.crawl_delay_max_s,
        )
        self.frontier = Frontier(
            clock_of=services.hosts.clock,
            delay_of=lambda host: self._fetcher.delay_s(host),
            robots_known=lambda origin: self._fetcher.may_ask(origin),
            parallel=config.fetch.concurrency,
            tasks_max=config.frontier.tasks_in_memory_max,
            hosts_max=config.frontier.hosts_active_max,
            on_quiet=services.hosts.quiet,
            waits=services.ports.assignment.waits,
        )
        self._orders = orders = itertools.count(services.incarnation << 40)
        self.corridor = RoundWriter(
            services,
            start.crawl_id,
            start.counters,
            self,
            depth_matters=settings.depth >= 0,
            orders=orders,
            aliases=list(start.aliases),
            live=live,
            copies=settings.copies,
        )
        self.intake = Intake(
            services, start.crawl_id, start.spec, self.frontier, self.corridor, orders, changed=self._dispatch
        )
        self._discovery = Discovery(
            start.spec,
            scope,
            redirects_max=config.fetch.redirects_max,
            known_to_owner=self.corridor.outbox.knows,
        )
        self._resends = Resends(services, start.crawl_id, self.corridor, self._discovery, resent=self._dispatch)
        self._fetcher = Fetcher(services, start.spec, self.frontier, self.corridor, self._discovery, robots, start.owed)
        self.origins = self._fetcher.origins
        self.held = False  # nothing is started: paused, or not an owner yet
        self._started = 0
        self._in_flight: dict[bytes, None] = {}
        self._idle: deque[asyncio.Future[Job | None]] = deque()
        self._running = 0  # jobs handed to fetchers
        self._pages_in_flight = 0
        self._refill = Refill(
            services, start.crawl_id, self.frontier, await_safe=self.intake.await_safe, refilled=self._dispatch
        )
        self._starting = True
        self._ending = False
        self._ended = asyncio.Event()
        self._drained = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._owed = start.owed
        self._seconds_before = start.counters.seconds
        self._violations_before = start.counters.politeness_violations
        self._started_at = 0.0

    @property
    def counters(self) -> CrawlCounters:
        """What was done so far, restarts included."""
        return self.corridor.counters

    @property
    def elapsed_s(self) -> float:
        """How long this run has taken."""
        return self._s.clock.monotonic() - self._started_at

    @property
    def complete(self) -> bool:
        """Whether there was nothing left to do."""
        return self._ended.is_set() and self.stopped is None

    @property
    def waiting(self) -> dict[str, int]:
        """What is left to do here, as far as this node knows, by the words of `termination.WAITING`."""
        found = {
            "queued": int(self._starting or not self.frontier.empty or self._refill.busy or not self.intake.idle),
            "in_flight": self._running,
            "unwritten": int(not self.corridor.idle),
            "unsettled": self._resends.pending + len(self.corridor.open_pages),
            "copies": len(self.corridor.copying),
            "links": len(self.corridor.outbox),
        }
        return {word: count for word, count in found.items() if count}

    @property
    def seconds(self) -> float:
        """How long the crawl has been running on this node, restarts included."""
        return self._seconds_before + (self.elapsed_s if self._started_at else 0.0)

    @property
    def activity(self) -> int:
        """Grows with everything that could be, or bring, work for somebody."""
        return self._started + self.corridor.rounds + self.intake.activity

    @property
    def in_flight(self) -> list[bytes]:
        """Task keys of which only this node knows that they are being fetched, or what came of it."""
        return list(self._in_flight | self.corridor.open_pages)

    def has_in_flight(self, key: bytes) -> bool:
        """Whether `in_flight` has this one."""
        return key in self._in_flight or key in self.corridor.open_pages

    def host_free(self, host: str) -> None:
        """Somebody else is done with the host, or it was leased to this node."""
        self.frontier.host_free(host, self._s.clock.monotonic())
        self._dispatch()

    def stop(self, reason: Stop) -> None:
        """Start nothing new; `run` returns once what is in flight is written."""
        if self.stopped is None and not self._ended.is_set():
            self.stopped = reason
            self._end()

    def finish(self) -> None:
        """The swarm has nothing left."""
        if not self._ended.is_set():
            self._end()

    def learn_aliases(self, aliases: list[str]) -> None:
        """A seed redirects there: seeds themselves."""
        extended = [self._scope.extend(alias) for alias in aliases]
        if any(extended):
            self._discovery.forget()

    async def run(self) -> None:
        """Crawl until nothing is left or a limit is reached.

        Raises:
            StorageError: the disk failed; what was acknowledged is safe.
        """
        self._started_at = self._s.clock.monotonic()
        for host, wait_s in self._owed.items():
            self._s.hosts.clock(host).hold(self._started_at, wait_s)
        try:
            await self._run()
        finally:
            # Cancelled or not: no timer of ours may fire from here on.
            self._ending = True
            if self._timer is not None:
                self._timer.cancel()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.corridor.run())
            workers = [group.create_task(self._work()) for _ in range(self._s.config.fetch.concurrency)]
            background = [
                # It may be waiting for backups that are gone: what came is in the store.
                group.create_task(self.intake.run()),
                group.create_task(self._refill.run()),
                group.create_task(self._watch_limits()),
                group.create_task(self._resends.run()),
            ]
            try:
                await self._begin()
                await self._ended.wait()
            except asyncio.CancelledError:
                # The tasks above may find something to start on their way out.
                self._ending = True
                raise
            await self._drain(workers)
            for task in (*workers, *background):
                task.cancel()
            self._count_time()
            self.intake.close()
            self.corridor.close()

    # -- what the corridor reports (Listener) --

    def written(self, host: str, key: bytes) -> None:
        """A task's outcome is in the store."""
        self.intake.written(key)
        self.frontier.written(host, key, self._s.clock.monotonic())

    def expected(self, tasks: list[Queued]) -> None:
        """New tasks are in the store, and not yet on the backups."""
        self.intake.expect(tasks)

    def queued(self, tasks: list[Queued]) -> None:
        """They are on the backups, too."""
        self.intake.add(tasks)
        self._dispatch()

    def resend(self, page: bytes) -> None:
        """A page's links must go out (again)."""
        self._resends.put(page)

    def settled(self) -> None:
        """A round is over."""
        self._dispatch()

    # -- jobs --

    async def _work(self) -> None:
        """One fetcher: a job, and the next."""
        while True:
            waiting: asyncio.Future[Job | None] = asyncio.get_running_loop().create_future()
            self._idle.append(waiting)
            self._dispatch()
            job = await waiting
            if job is None:
                return
            try:
                await self._fetcher.run(job)
            finally:
                self._running -= 1
                if job.task is not None:
                    self._pages_in_flight -= 1
                    self._in_flight.pop(job.task.key, None)
                if self._ending and not self._running:
                    self._drained.set()

    def _dispatch(self) -> None:
        """Give jobs to idle fetchers; called whenever something may have changed."""
        if self._ending or self._starting:
            return
        now = self._s.clock.monotonic()
        stop = self._limit_reached()
        if stop is not None and not self._nothing_left():
            self.stop(stop)
            return
        while self._may_start():
            job = self.frontier.next(now)
            if job is None:
                break
            self._running += 1
            self._started += 1
            if job.task is not None:
                self._pages_in_flight += 1
                self._in_flight[job.task.key] = None
            self._idle.popleft().set_result(job)
        if self.frontier.wants_assigning:
            self._s.ports.assignment.assign()
        if self.frontier.wants_refill or self.frontier.wants_hosts:
            self._refill.wanted()
        if self._s.ports.ownership.alone and self._nothing_left():
            self._end()
        else:
            # Whatever forbids a start now (no fetcher free, unwritten pages, the
            # budget) ends in a call of this method; only a host's time does not.
            self._wake_at(self.frontier.next_due_at() if self._may_start() else math.inf)

    def _may_start(self) -> bool:
        """Whether a fetcher is free, and one more page is not too many.

        A page that is not on disk yet, or of which the backups do not know,
        counts as in flight: a crash would have it fetched again.
        """
        unwritten = self.corridor.unwritten_pages
        if self.held or not self._idle:
            return False
        if self._running + len(self.corridor.open_pages) >= self._s.config.fetch.concurrency:
            return False
        return self._s.ports.budget.may_start(unwritten + self._pages_in_flight)

    def _limit_reached(self) -> Stop | None:
        if not self._s.ports.ownership.alone:
            return None  # the crawl's coordinator sees all of it
        counters = self.counters
        stop = self._limits.exceeded(pages=counters.pages, seconds=self.elapsed_s, size_bytes=counters.body_bytes)
        # What the last page leads to says whether it was the last of all: wait.
        # Nothing is started meanwhile, `_may_start` sees to that.
        if stop is Stop.PAGE_LIMIT and (self._running or not self.corridor.idle):
            return None
        return stop

    def _wake_at(self, due_at: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_at != math.inf:
            # Not at once: a timer that fires a rounding error too early would spin.
            delay_s = max(1e-6, due_at - self._s.clock.monotonic())
            self._timer = loop.call_later(delay_s, self._dispatch)

    def _nothing_left(self) -> bool:
        return (
            self.frontier.empty
            and not self._running
            and not self._resends.pending
            and not self._refill.busy
            and self.corridor.idle
            and not self.corridor.open_pages
            and not self._s.ports.replication.busy
        )

    # -- start and end --

    async def _begin(self) -> None:
        """Seeds in, unfinished pages on, hosts with work into memory."""
        submit, crawl = self._s.committer.submit, self.crawl_id
        if self._s.ports.ownership.alone:
            seeds = [tasks.Link(self.spec.key_of(seed), seed, 0, "", 0, True) for seed in self.spec.seeds]
            await submit(partial(tasks.accept, crawl=crawl, links=seeds, orders=self._orders, depth_matters=False))
        cursor = b""
        while pages := await submit(partial(tasks.unsettled, crawl=crawl, limit=1000, cursor=cursor)):
            for page in pages:
                self.resend(page)
            cursor = pages[-1]
        self._starting = False
        self._refill.wanted()
        if not self._s.ports.ownership.alone:
            self.intake.look_again()

    def _end(self) -> None:
        self._ending = True
        if not self._running:
            self._drained.set()
        self._ended.set()

    async def _drain(self, workers: list[asyncio.Task[None]]) -> None:
        while self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)
        try:
            async with asyncio.timeout(self._s.config.node.drain_timeout_s):
                await self._drained.wait()
        except TimeoutError:
            self._s.observer.event("drain-timeout", running=self._running)

    def _count_time(self) -> None:
        self.counters.seconds = self._seconds_before + self.elapsed_s
        self.counters.politeness_violations = self._violations_before + self._s.hosts.violations

    # -- background --

    async def _watch_limits(self) -> None:
        while True:
            await asyncio.sleep(LIMITS_EVERY_S)
            self._count_time()
            self._s.hosts.sweep(self._s.clock.monotonic(), self._fetcher.delay_s)
            stop = self._limit_reached()
            if stop is None and await self._disk_used():
                stop = Stop.DISK_LIMIT
            # A crawl whose last page was also the last it may fetch is complete.
            if stop is not None and not self._nothing_left():
                self.stop(stop)
