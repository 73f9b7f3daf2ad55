"""Builds the parts of a crawl, each from those before it; `dhtcrawl.crawl.crawler` runs them.

    next_round; robots ─▶ origins ─▶ frontier ─▶ due ─▶ writer, intake

In a swarm, further parts are made from these before the crawl itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.attempts import Attempts
from dhtcrawl.crawl.copy_barrier import CopyBarrier
from dhtcrawl.crawl.discovery import Discovery
from dhtcrawl.crawl.due_tasks import DueTasks
from dhtcrawl.crawl.frontier import Frontier, FrontierLimits
from dhtcrawl.crawl.intake import Intake
from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.origins import Beginning, Origins
from dhtcrawl.crawl.outbox import Outbox
from dhtcrawl.crawl.resend_queue import ResendQueue
from dhtcrawl.crawl.round_transaction import RoundTransaction
from dhtcrawl.crawl.round_writer import RoundWriter
from dhtcrawl.crawl.rounds import CrawlCounters, CrawlStart
from dhtcrawl.crawl.scope import Scope
from dhtcrawl.crawl.services import Services
from dhtcrawl.crawl.slot_shares import SlotShares
from dhtcrawl.crawl.wake_up import WakeUp
from dhtcrawl.fetch.robots import product_token
from dhtcrawl.fetch.robots_book import RobotsBook
from dhtcrawl.storage.outputs.outputs import LivePages
from dhtcrawl.storage.store.tasks import Queued


class CrawlParts(NamedTuple):
    """The parts of a crawl at this node, as they are made."""

    start: CrawlStart
    orders: Iterator[int]  # drawn by the committer's thread only
    changed: WakeUp  # called when there may be something to start, or nothing left
    scope: Scope
    discovery: Discovery
    robots: RobotsBook
    origins: Origins
    frontier: Frontier
    due: DueTasks
    next_round: NextRound
    writer: RoundWriter
    intake: Intake
    in_flight: dict[bytes, None]  # task keys of pages that are being fetched
    attempts: Attempts
    shares: SlotShares

    @property
    def counters(self) -> CrawlCounters:
        """The crawl's counters, earlier runs included."""
        return self.start.counters

    def open_tasks(self) -> list[bytes]:
        """Keys of tasks whose fetch, or its outcome, is known to this node alone."""
        return list(dict.fromkeys([*self.in_flight, *self.next_round.open_pages]))

    def has_open(self, key: bytes) -> bool:
        """Whether `open_tasks` has this one."""
        return key in self.in_flight or key in self.next_round.open_pages

    def owe(self, host: str, wait_s: float) -> None:
        """Store a wait that is longer than the delay for a restart; 0 when it is over."""
        changed = self.origins.owe(host, wait_s)
        if changed is not None:
            self.next_round.owe(host, changed)


class _Progress:
    """The writer's `Listener`: tells the frontier, the due tasks and the crawl of each round."""

    def __init__(self, frontier: Frontier, due: DueTasks, clock: Clock, changed: WakeUp) -> None:
        self._frontier = frontier
        self._due = due
        self._clock = clock
        self._changed = changed

    def written(self, tasks: list[tuple[str, bytes]]) -> None:
        for _, key in tasks:
            self._due.written(key)
        self._frontier.all_written(tasks, self._clock.monotonic())

    def spared(self) -> None:
        self._frontier.distrust(self._clock.monotonic())
        self._changed()

    def expected(self, tasks: list[Queued]) -> None:
        self._due.expect(tasks)

    def queued(self, tasks: list[Queued]) -> None:
        self._due.add(tasks)
        self._changed()

    def settled(self) -> None:
        self._changed()


def first_round(start: CrawlStart) -> NextRound:
    """The `NextRound` of a crawl; made first, because the link sender needs its `acked` and `put_back`."""
    settings = start.spec.settings
    outbox, copying = Outbox(depth_matters=settings.depth >= 0), CopyBarrier(settings.copies - 1)
    return NextRound(outbox, copying, start.aliases, ResendQueue())


def build(services: Services, start: CrawlStart, next_round: NextRound, live: LivePages) -> CrawlParts:
    """Build the parts of a crawl that goes on from `start`."""
    config, settings, ports = services.config, start.spec.settings, services.ports
    changed, orders = WakeUp(), itertools.count(services.incarnation << 40)
    robots = RobotsBook(
        product_token(settings.user_agent),
        now=services.clock.monotonic,
        ttl_s=config.politeness.robots_ttl_s,
        crawl_delay_max_s=config.politeness.crawl_delay_max_s,
    )
    delays = start.spec.searches.delays
    beginning = Beginning(start.owed, start.counters.pages > 0, ports.ownership.alone)
    origins = Origins(settings, config.politeness, robots, services.hosts, services.clock, beginning, delays)
    shares = SlotShares(config.fetch.concurrency, crawls=services.crawls)
    frontier = Frontier(
        clock_of=services.hosts.clock,
        delay_of=origins.delay_s,
        robots_known=origins.may_ask,
        limits=FrontierLimits(
            parallel=config.fetch.concurrency,
            tasks_max=config.frontier.tasks_in_memory_max,
            hosts_max=config.frontier.hosts_active_max,
        ),
        on_quiet=services.hosts.quiet,
        waits=ports.ownership.waits,
        shares=shares,
    )
    due, scope = (
        DueTasks(frontier, ports.ownership, services.clock),
        Scope([*start.spec.seeds, *start.aliases], settings, services.clock.monotonic, start.spec.searches),
    )
    outbox = next_round.outbox
    writer = RoundWriter(
        services,
        next_round,
        RoundTransaction(start.crawl_id, services.archive, orders, settings.depth >= 0, settings.copies - 1),
        start.counters,
        _Progress(frontier, due, services.clock, changed),
        live,
    )
    return CrawlParts(
        start,
        orders,
        changed,
        scope,
        Discovery(
            start.spec,
            scope,
            redirects_max=config.fetch.redirects_max,
            known_to_owner=outbox.knows,
            not_acked=outbox.not_acked,
        ),
        robots,
        origins,
        frontier,
        due,
        next_round,
        writer,
        Intake(services, start, frontier, due, next_round, orders, changed),
        {},
        Attempts(),
        shares,
    )
