"""A worker fetches for others as long as they hear it, and says what it gives back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from harness.bench import Bench

from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.swarm.assignment import assigned, worker
from dhtcrawl.swarm.assignment.assigned import FENCE_S, REPORT_EVERY_S, AssignedHere
from dhtcrawl.swarm.assignment.wire import first_rows, from_rows, to_rows
from dhtcrawl.swarm.assignment.worker import CONNECT_LEAST_S, CONNECT_MOST_S, Worker
from dhtcrawl.swarm.calls.assignment import Lend, LetGo, OutcomeRow, Recall, ReportLent
from dhtcrawl.swarm.calls.membership import HeldRow
from dhtcrawl.swarm.calls.words import HELD_KEYS_MAX, KEYS_MAX, Done
from swarm.fake_peers import node, view_of

CRAWL = bytes(16)
REPORT = ReportLent.terms.name
OWNER, OTHER = node(1), node(2)
# Nodes are spread evenly; these are the owner's.
K1, K2, K3 = (OWNER[:1] + bytes([number]) + bytes(18) for number in (1, 2, 3))
NO_LIMITS: Mapping[str, float] = {}
SILENCE = Failure(FailureKind.TIMEOUT, "no answer")


class WorkerBench(Bench):
    """Node 0, which node 1 lends something."""

    crawl_id = CRAWL
    takes = True
    depth_matters = False

    def __init__(self) -> None:
        super().__init__()
        self.peers.calls[REPORT] = lambda args: {}
        self.incarnations: dict[bytes, int] = {OWNER: 1, OTHER: 1}
        self.flying: set[bytes] = set()
        self.tried: set[bytes] = set()
        self.polite: set[bytes] = set()  # wait for their host's sake
        self.over: list[bytes] = []
        self.queued: set[bytes] = set()
        self.dropped: list[bytes] = []  # their records were handed over
        self.epochs: list[int] = []  # of owners' plans
        queues: Any = self
        self.borrower = Worker(
            queues,
            self.peers,
            self.clock,
            AssignedHere(),
            incarnation_of=self.incarnations.get,
            lent_here=self.epochs.append,
        )

    async def lend(
        self,
        *keys: bytes,
        by: bytes = OWNER,
        patient: tuple[bytes, ...] = (),
        connect_s: Mapping[str, float] = NO_LIMITS,
    ) -> Any:
        return await self.borrower.on_lend(by, Lend(CRAWL, keys, patient, connect_s))

    def told(self) -> list[TaskOutcome]:
        """What the owner was told of tasks."""
        calls = [args["given"] for peer, name, args in self.peers.called if name == REPORT and peer == OWNER]
        return [each for rows in calls for each in from_rows([OutcomeRow(*row) for row in rows])]

    # Queues

    def has_in_flight(self, key: bytes) -> bool:
        return key in self.flying

    def retrying(self) -> set[bytes]:
        return self.tried

    def kept_back(self, keys: list[bytes]) -> frozenset[bytes]:
        return frozenset(self.polite)

    def forget(self, keys: list[bytes]) -> None:
        self.queued.difference_update(keys)

    async def requeue(self, keys: list[bytes]) -> None:
        await asyncio.sleep(0)
        for key in keys:
            (self.queued.add if key in self.borrower.borrowed else self.queued.discard)(key)

    async def queue_borrowed(self, keys: list[bytes]) -> list[bytes]:
        await self.requeue([key for key in keys if key not in self.dropped])
        return [key for key in keys if key in self.dropped]

    async def settled(self, keys: list[bytes]) -> list[bytes]:
        return [key for key in keys if key in self.over]


@asynccontextmanager
async def a_world() -> AsyncIterator[WorkerBench]:
    async with asyncio.TaskGroup() as group:
        world = WorkerBench()
        running = group.create_task(world.borrower.run())
        yield world
        running.cancel()


async def test_what_an_owner_lends_is_queued_and_what_came_of_it_is_told() -> None:
    async with a_world() as world:
        assert await world.lend(K1, K2) == Done()
        assert world.epochs == [0], "the owner has no plan"
        assert world.queued == {K1, K2}
        page = TaskOutcome(K1, "a.test", TaskResult.PAGE, 1.25, 0.5, 1000, "")
        assert world.borrower.over(page)
        assert not world.borrower.over(page), "once"
        failed = TaskOutcome(K2, "a.test", TaskResult.FAILED, 30.0, detail="it hangs")
        world.borrower.over(failed)
        await asyncio.sleep(1)
        assert world.told() == [page, failed]
        assert not world.borrower.busy


async def test_an_owner_awaits_a_page_unless_it_may_know_a_smaller_depth() -> None:
    async with a_world() as world:
        await world.lend(K1, K2, K3)
        world.borrower.over(TaskOutcome(K1, "a.test", TaskResult.PAGE, 1.0))
        world.borrower.over(TaskOutcome(K2, "a.test", TaskResult.FAILED, 1.0))
        world.depth_matters = True
        world.borrower.over(TaskOutcome(K3, "a.test", TaskResult.PAGE, 1.0))
        assert [world.borrower.borrowed.was_brought(key) for key in (K1, K2, K3)] == [True, False, False]


async def test_no_owner_keeps_a_host_from_being_reached_by_the_time_that_it_may_take_to_connect() -> None:
    async with a_world() as world:
        await world.lend(connect_s={"a.test": 5.0})
        assert world.borrower.connect_s == {}, "of no task"
        await world.lend(K1, by=OTHER, connect_s={"a.test": 5.0})
        assert world.borrower.connect_s == {}, "of none that is its own"
        await world.lend(K1, connect_s={"a.test": 0.001, "b.test": 5.0, "c.test": 3_600.0})
        assert world.borrower.connect_s == {"a.test": CONNECT_LEAST_S, "b.test": 5.0, "c.test": CONNECT_MOST_S}


async def test_only_the_owner_lends_and_only_to_who_fetches() -> None:
    async with a_world() as world:
        assert await world.lend(K1, by=OTHER) == Refused("not-owner")
        world.takes = False
        assert await world.lend(K1) == Refused("not-ready")
        assert world.queued == set()


async def test_where_one_of_several_tasks_is_not_the_owners_none_is_taken_and_none_given_back() -> None:
    theirs = OTHER[:1] + bytes(19)
    async with a_world() as world:
        assert await world.lend(K1, theirs) == Refused("not-owner")
        assert (len(world.borrower.borrowed), world.queued) == (0, set())
        await world.lend(K1)
        assert await world.borrower.on_recall(OWNER, Recall(CRAWL, (K1, theirs))) == Refused("not-owner")
        assert K1 in world.borrower.borrowed


async def test_a_worker_that_has_as_many_tasks_as_it_can_keep_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigned, "LENT_MAX", 2)
    async with a_world() as world:
        assert await world.lend(K1, K2) == Done()
        assert await world.lend(K3) == Refused("full")
        world.borrower.over(TaskOutcome(K1, "a.test", TaskResult.FAILED, 1.0))
        assert await world.lend(K3) == Done()


async def test_of_many_hosts_the_latest_times_to_connect_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "HOSTS_MAX", 2)
    async with a_world() as world:
        for host in ("a.test", "b.test", "a.test", "c.test"):
            await world.lend(K1, connect_s={host: 5.0})
        assert list(world.borrower.connect_s) == ["a.test", "c.test"]


async def test_a_task_that_is_begun_while_it_is_recalled_is_not_given_back() -> None:
    async with a_world() as world, asyncio.TaskGroup() as group:
        await world.lend(K1, K2)
        recall = group.create_task(world.borrower.on_recall(OWNER, Recall(CRAWL, (K1, K2))))
        await asyncio.sleep(0)
        world.flying.add(K1)
        assert await recall == LetGo((K2,), ())


async def test_an_outcome_is_to_be_heard_until_the_owner_has_answered() -> None:
    async with a_world() as world:
        waiting = list[bool]()

        def report(args: Any) -> dict[str, Any]:
            waiting.append(world.borrower.busy)
            return {}

        await world.lend(K1)
        world.peers.calls[REPORT] = report
        world.borrower.over(TaskOutcome(K1, "a.test", TaskResult.FAILED, 1.0))
        await asyncio.sleep(1.0)
        assert waiting[-1], "or the crawl might end before it is heard"
        assert not world.borrower.busy


async def test_a_task_whose_record_was_handed_over_before_it_came_is_given_back_at_once() -> None:
    async with a_world() as world:
        world.dropped = [K1]
        assert await world.lend(K1, K2) == Done()
        assert world.borrower.borrowed.of(OWNER) == [K2]
        assert world.borrower.busy, "the owner has yet to hear of it"
        await asyncio.sleep(1)
        assert [(each.key, each.result) for each in world.told()] == [(K1, TaskResult.RECALLED)]


async def test_an_owner_hears_that_we_are_here() -> None:
    async with a_world() as world:
        await world.lend(K1)
        await asyncio.sleep(10 * REPORT_EVERY_S)
        reports = [name for peer, name, _ in world.peers.called if peer == OWNER and name == REPORT]
        assert 9 <= len(reports) <= 12
        assert K1 in world.borrower.borrowed


async def test_who_is_not_heard_begins_nothing_more() -> None:
    async with a_world() as world:
        await world.lend(K1)
        world.peers.calls[REPORT] = lambda args: SILENCE
        await asyncio.sleep(FENCE_S - 1)
        assert world.queued == {K1}
        await asyncio.sleep(2)
        assert world.queued == set()
        assert not len(world.borrower.borrowed)


async def test_news_that_was_not_heard_is_told_again_as_long_as_the_owner_is_there() -> None:
    async with a_world() as world:
        await world.lend(K1)
        world.peers.calls[REPORT] = lambda args: SILENCE
        world.borrower.over(TaskOutcome(K1, "a.test", TaskResult.FAILED, 1.0))
        await asyncio.sleep(5)
        assert world.borrower.busy
        world.peers.calls[REPORT] = lambda args: {}
        await asyncio.sleep(2)
        assert not world.borrower.busy
        world.borrower.borrowed.borrow(OWNER, 1, [K2], 0.0)
        world.borrower.over(TaskOutcome(K2, "a.test", TaskResult.FAILED, 1.0))
        del world.incarnations[OWNER]
        await asyncio.sleep(2)
        assert not world.borrower.busy, "nobody is there to hear it"


async def test_when_another_owns_a_task_it_is_forgotten_at_once_but_for_what_is_in_flight() -> None:
    async with a_world() as world:
        await world.lend(K1)
        world.peers.view = view_of([0, 2])
        world.borrower.forget_void()
        assert world.queued == set(), "before anything else happens"
        assert world.borrower.borrowed.of(OWNER) == []


async def test_an_owner_that_was_started_again_has_lent_nothing() -> None:
    async with a_world() as world:
        await world.lend(K1)
        world.incarnations[OWNER] = 2
        await asyncio.sleep(1)
        assert world.queued == set()
        await world.lend(K2)
        assert world.queued == {K2}


async def test_what_is_recalled_is_given_back_but_for_what_is_in_flight_or_over() -> None:
    async with a_world() as world:
        await world.lend(K1, K2, K3)
        world.flying.add(K2)
        world.over.append(K3)
        gone = OWNER[:1] + b"\xff" * 19
        answer = await world.borrower.on_recall(OWNER, Recall(CRAWL, (K1, K2, K3, gone)))
        assert answer == LetGo((K1, gone))
        assert K1 not in world.queued
        assert K2 in world.borrower.borrowed


async def test_what_waits_on_purpose_is_given_back_and_said_to() -> None:
    async with a_world() as world:
        await world.lend(K1, K2, K3)
        world.polite = {K2, K3}
        world.over.append(K3)
        answer = await world.borrower.on_recall(OWNER, Recall(CRAWL, (K1, K2, K3)))
        assert answer == LetGo((K1, K2), (K2,))


async def test_an_owner_that_took_us_for_gone_has_everything_forgotten_that_it_lent() -> None:
    async with a_world() as world:
        others = OTHER[:1] + bytes(19)
        await world.lend(K1, K2)
        await world.lend(others, by=OTHER)
        world.flying = {K1}
        assert await world.borrower.on_recall(OWNER, Recall(CRAWL, ())) == LetGo(())
        assert world.queued == {others}
        assert K1 not in world.borrower.borrowed, "what is in flight is not tried again either"
        await asyncio.sleep(1)
        assert world.told() == [], "it knows"


async def test_others_cannot_recall_what_one_has_lent_but_who_owns_it_by_now_can() -> None:
    async with a_world() as world:
        await world.lend(K1)
        assert await world.borrower.on_recall(OTHER, Recall(CRAWL, (K1,))) == Refused("not-owner")
        assert K1 in world.borrower.borrowed
        world.peers.view = view_of([0, 2])
        owner = world.peers.view.owner(K1)
        assert owner is not None
        assert owner.id != OWNER
        assert await world.borrower.on_recall(owner.id, Recall(CRAWL, (K1,))) == LetGo((K1,))
        assert K1 not in world.borrower.borrowed


async def test_what_was_tried_and_waits_for_another_try_is_not_given_back() -> None:
    async with a_world() as world:
        await world.lend(K1)
        world.tried.add(K1)
        assert await world.borrower.on_recall(OWNER, Recall(CRAWL, (K1,))) == LetGo(())
        assert K1 in world.borrower.borrowed


async def test_many_news_go_in_reports_that_fit() -> None:
    async with a_world() as world:
        keys = [OWNER[:1] + number.to_bytes(19, "big") for number in range(1, 3 * KEYS_MAX)]
        for first in range(0, len(keys), KEYS_MAX):
            await world.lend(*keys[first : first + KEYS_MAX])
        world.borrower.give_all_back()
        await asyncio.sleep(5)
        assert len(world.told()) == len(keys)
        assert not world.borrower.busy


async def test_who_stops_gives_everything_back_that_is_not_in_flight() -> None:
    async with a_world() as world:
        await world.lend(K1, K2)
        world.flying.add(K2)
        world.borrower.give_all_back()
        await asyncio.sleep(1)
        assert [(each.key, each.result) for each in world.told()] == [(K1, TaskResult.RECALLED)]


def test_a_report_comes_over_as_it_was() -> None:
    given = [TaskOutcome(K1, "a.test", result, 1.5, None, 7, "why") for result in TaskResult]
    assert from_rows(to_rows(given)) == given


def test_as_many_keys_as_fit_into_an_answer_are_told_those_in_front_first() -> None:
    full = (HeldRow(CRAWL, (K1,) * KEYS_MAX, None),) * (HELD_KEYS_MAX // KEYS_MAX)
    more, others = HeldRow(CRAWL, (K1,), None), HeldRow(CRAWL, (K1,), OWNER)
    assert first_rows(full) == full
    assert first_rows((*full, more)) == full
    assert first_rows((others, *full)) == (others, *full[1:])
    single = (more,) * 600
    assert first_rows(single) == single[:KEYS_MAX]
