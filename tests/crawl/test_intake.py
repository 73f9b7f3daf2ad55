"""A task is fetched once, however many batches of copies it was held back by."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhtcrawl.clock import Clock
from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.due_tasks import DueTasks
from dhtcrawl.crawl.frontier import Frontier, FrontierLimits
from dhtcrawl.crawl.intake import Intake
from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.outbox import Outbox
from dhtcrawl.fetch.politeness import HostClock
from dhtcrawl.storage.store.known_depths import DepthTable
from dhtcrawl.storage.store.replicas import Merged
from dhtcrawl.storage.store.tasks import Queued

HOST = "a.example"


def task(depth: int = 2, order: int = 1) -> Queued:
    return Queued(depth, order, b"k" * 20, f"http://{HOST}/k", "", 0, False)


@pytest.fixture
def frontier() -> Frontier:
    made = Frontier(
        clock_of=lambda host: HostClock(),
        delay_of=lambda host: 0.0,
        robots_known=lambda origin: True,
        limits=FrontierLimits(parallel=4),
    )
    made.walk_begins()
    made.walk_ended()  # nothing is on disk
    return made


@pytest.fixture
def held() -> set[bytes]:
    return set()


class UnderWay:
    """Copies that are on their way to the backups."""

    joins = False

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.any = True

    def when_kept(self, key: bytes, then: Callable[[], None]) -> bool:
        if self.any:
            self.waiting.append(then)
        return self.any

    def arrive(self) -> None:
        self.any = False
        while self.waiting:
            self.waiting.pop(0)()


@pytest.fixture
def under_way() -> UnderWay:
    return UnderWay()


@pytest.fixture
def ownership(held: set[bytes]) -> Any:
    return SimpleNamespace(owns=lambda key: True, owned=list, mine=lambda key: True, held=held.__contains__)


@pytest.fixture
def due(frontier: Frontier, ownership: Any) -> DueTasks:
    return DueTasks(frontier, ownership, cast(Clock, SimpleNamespace(monotonic=lambda: 0.0)))


@pytest.fixture
def intake(frontier: Frontier, due: DueTasks, ownership: Any, under_way: UnderWay) -> Intake:
    services: Any = SimpleNamespace(
        ports=SimpleNamespace(ownership=ownership, replication=under_way),
        clock=SimpleNamespace(monotonic=lambda: 0.0),
        safe_tasks=DepthTable(),
    )
    start: Any = SimpleNamespace(crawl_id=bytes(16))
    return Intake(services, start, frontier, due, cast(NextRound, None), itertools.count(1), lambda: None)


def fetch(due: DueTasks, frontier: Frontier) -> None:
    """What the crawl does with the one task that there is."""
    job = frontier.next(0.0)
    assert job is not None
    assert job.task is not None
    frontier.finish(job, 0.0)
    due.written(job.task.key)
    frontier.written(job.host, job.task.key, 0.0)


@pytest.mark.parametrize("depth", [-1, 3])
def test_a_link_to_what_its_owner_has_safely_is_not_sent_unless_a_nearer_way_is_news(
    frontier: Frontier, due: DueTasks, depth: int
) -> None:
    outbox = Outbox(depth_matters=depth >= 0)
    services: Any = SimpleNamespace(safe_tasks=DepthTable())
    start: Any = SimpleNamespace(crawl_id=bytes(16), spec=SimpleNamespace(settings=CrawlSettings(depth=depth)))
    waits: Any = SimpleNamespace(outbox=outbox)
    intake = Intake(services, start, frontier, due, waits, itertools.count(1), lambda: None)
    intake.known_to_owner([b"a" * 20, b"b" * 20])
    assert outbox.not_acked([b"a" * 20, b"b" * 20, b"c" * 20], 2)[1] == [
        *([] if depth < 0 else [b"a" * 20, b"b" * 20]),
        b"c" * 20,
    ]


def test_a_task_that_left_its_queue_and_is_read_from_it_again_starts_with_its_batch(
    due: DueTasks, frontier: Frontier
) -> None:
    due.expect([task()])
    due.written(task().key)
    due.await_safe(task(), lambda key, add: pytest.fail("it is due already"))
    due.add([task()])
    job = frontier.next(0.0)
    assert job is not None
    assert job.task == task()


def test_a_shorter_way_that_is_safe_before_the_first_queues_nothing_twice(due: DueTasks, frontier: Frontier) -> None:
    due.expect([task(depth=3)])
    due.expect([task(depth=2)])
    due.add([task(depth=2)])
    fetch(due, frontier)
    due.add([task(depth=3)])
    assert frontier.next(0.0) is None
    assert frontier.next_due_at() == math.inf


def test_a_task_read_from_the_store_before_its_batch_is_safe_is_not_queued_again(
    due: DueTasks, frontier: Frontier
) -> None:
    due.expect([task()])
    frontier.distrust(0.0)
    frontier.activate(HOST)
    assert frontier.refills()
    frontier.refilled(HOST, [task()], True, 0.0)
    fetch(due, frontier)
    due.add([task()])
    assert frontier.next(0.0) is None


def test_a_task_that_is_opened_again_meanwhile_is_queued_once(
    due: DueTasks, intake: Intake, frontier: Frontier
) -> None:
    due.expect([task()])
    intake.merged(Merged([], [task()], [(HOST, task().key)], [], 0))
    due.add([task()])
    fetch(due, frontier)
    assert frontier.next(0.0) is None


def test_what_left_the_queue_stays_away_for_no_longer_than_it_was_due(
    due: DueTasks, intake: Intake, frontier: Frontier
) -> None:
    due.expect([task()])
    intake.merged(Merged([], [], [(HOST, task().key)], [], 0))
    due.add([task()])
    assert frontier.next(0.0) is None
    due.expect([task()])
    due.add([task()])
    fetch(due, frontier)


def test_a_shorter_way_to_what_another_node_has_in_flight_does_not_begin_it_here(
    due: DueTasks, frontier: Frontier, held: set[bytes]
) -> None:
    held.add(task().key)
    due.expect([task()])
    due.add([task()])
    assert frontier.next(0.0) is None


def test_what_lay_in_the_queue_while_another_node_had_it_begins_once_that_lets_go(
    due: DueTasks, intake: Intake, frontier: Frontier, held: set[bytes]
) -> None:
    held.add(task().key)
    due.expect([task()])
    due.add([task()])
    held.clear()
    intake.let_go(Merged([], [], [], [], 0))  # it was queued before, so it is not queued again
    assert frontier.activate(HOST)
    assert [host for host, _ in frontier.refills()] == [HOST]
    frontier.refilled(HOST, [task()], True, 0.0)
    fetch(due, frontier)


def test_a_known_task_whose_backups_are_asked_again_begins_once_they_have_it(
    due: DueTasks, frontier: Frontier, under_way: UnderWay
) -> None:
    due.await_safe(task(), under_way.when_kept)
    due.await_safe(task(), under_way.when_kept)
    assert frontier.next(0.0) is None
    under_way.arrive()
    fetch(due, frontier)
    assert frontier.next(0.0) is None


def test_a_task_that_its_own_batch_will_bring_is_not_waited_for_twice(
    due: DueTasks, frontier: Frontier, under_way: UnderWay
) -> None:
    due.expect([task()])
    due.await_safe(task(), under_way.when_kept)
    assert not under_way.waiting
    due.add([task()])
    fetch(due, frontier)


def test_a_task_that_became_safe_meanwhile_begins_at_once(
    due: DueTasks, frontier: Frontier, under_way: UnderWay
) -> None:
    under_way.any = False
    due.await_safe(task(), under_way.when_kept)
    fetch(due, frontier)
