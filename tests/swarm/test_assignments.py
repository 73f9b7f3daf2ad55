"""One crawl's assignments at several nodes: what is in flight somewhere is begun nowhere else."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from crawl.by_hand import make
from crawl.stored import task
from harness.world import Node, World
from storage.stores import CRAWL

from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.keyspace import placement, url_key
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import State, Task
from dhtcrawl.storage.store.replicas import Merged
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.swarm.assignment.assignments import LOOK_EVERY_S, AssignmentServices, build, serve
from dhtcrawl.swarm.assignment.facts import NodeTraits, PlannerFacts
from dhtcrawl.swarm.assignment.failures import Failures
from dhtcrawl.swarm.assignment.inherited import HELD_S
from dhtcrawl.swarm.assignment.owner_changes import ASKED_BACK_TIMES
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.assignment.site_places import Measures
from dhtcrawl.swarm.calls import assignment as calls
from dhtcrawl.swarm.calls.words import KEYS_MAX, Done
from dhtcrawl.swarm.claim import KeyClaim
from swarm.fake_peers import node

A, B, C = node(1), node(6), node(11)
URLS = [f"http://a/{number}" for number in range(60)]
TASKS = [task(url, number)._replace(key=url_key(url)) for number, url in enumerate(URLS)]


class AssigningNode(Node):
    """A node's assignments of a crawl without a policy, and its frontier."""

    world: AssigningWorld

    def __init__(self, world: AssigningWorld, node: bytes, group: asyncio.TaskGroup) -> None:
        super().__init__(world, node)
        self.frontier = make(parallel=100)
        self.flying: dict[bytes, None] = {}
        self.queued: list[bytes] = []  # what came back into its queues
        self.compared: list[bytes] = []
        parts: Any = SimpleNamespace(
            frontier=self.frontier,
            intake=self,
            counters=SimpleNamespace(pages=0, body_bytes=0),
            open_tasks=lambda: list(self.flying),
            has_open=self.flying.__contains__,
            changed=lambda: None,
        )
        run: Any = SimpleNamespace(parts=parts, crawl_id=CRAWL, owning=True, may_start=True, leaving=False)
        self.ownership = SwarmOwnership(self.claims())
        policies: Any = None  # nothing is asked of them without a policy
        services = AssignmentServices(
            self, self.clock, self.committer, group, world.incarnations.get, policies, self._merge, self._compare
        )
        timer: Any = None  # nothing is timed without a policy
        measures = Measures(PlannerFacts(NodeTraits(), lambda: 0), timer, follows_links=True)
        self.part = run.assignments = build(services, run, self.ownership, None, Failures(), measures)
        self.changes = self.part.changes
        serve(self.registry, lambda crawl: run if crawl == CRAWL else None)

    def claims(self) -> KeyClaim:
        """What is this node's by the view."""
        return KeyClaim(self.node_id, self.view, self.view)

    def sees(self) -> None:
        """It acts upon the view as it is now."""
        self.ownership.reclaim(self.claims())
        self.part.view_changed()

    def store(self, *some: Queued) -> None:
        """The records of these, as its copies."""
        rows = {keys.TASK + CRAWL + each.key: Task(each.url, each.depth, each.order, "").pack() for each in some}
        self.engine.write(rows, sync=False)

    def merged(self, merged: Merged) -> None:
        self.queued += [each.key for each in merged.queued]

    def let_go(self, merged: Merged) -> None:
        self.merged(merged)

    async def _merge(self, crawl: bytes, found: Any, worker: bytes) -> Merged:
        raise AssertionError("nothing is lent without a policy")

    async def _compare(self, crawl: bytes, asked: Any) -> bool:
        self.compared += asked
        return True


class AssigningWorld(World[AssigningNode]):
    """Three nodes, in their first incarnation."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        super().__init__()
        self.incarnations = {A: 1, B: 1, C: 1}
        self.join(A, B, C)
        for each in (A, B, C):
            AssigningNode(self, each, group)

    def owned_by(self, node: bytes) -> list[Queued]:
        """Tasks of this owner."""
        return [each for each in TASKS if self.view.closest(placement(each.key), 1)[0].id == node]

    def second(self, each: Queued) -> bytes:
        """The node that owns a task once its owner is gone."""
        return self.view.closest(placement(each.key), 2)[1].id


@asynccontextmanager
async def a_world() -> AsyncIterator[tuple[AssigningWorld, AssigningNode, AssigningNode]]:
    """A world, and two of its nodes, whose assignments are looked after."""
    async with asyncio.TaskGroup() as group:
        world = AssigningWorld(group)
        running = [group.create_task(each.part.run()) for each in world.nodes.values()]
        yield world, world.nodes[A], world.nodes[B]
        for each in running:
            each.cancel()


async def test_what_was_in_flight_at_the_former_owner_is_held_until_nothing_came_of_it() -> None:
    async with a_world() as (world, a, b):
        one, other, *_ = world.owned_by(B)
        b.store(one, other)
        answer = await a.call(B, calls.InHand(CRAWL, (one.key, world.owned_by(C)[0].key)))
        assert answer == Done()
        assert (b.ownership.holders(), b.part.waiting) == ({one.key: A}, 1), "the other one is not its own"
        a.part.released(one.key)
        assert a.ownership.releasing == 1, "its owner is being told"
        await world.until(lambda: not a.ownership.releasing and not b.part.waiting)
        assert (b.ownership.holders(), b.queued) == ({}, [one.key])


async def test_what_is_held_leaves_the_frontier() -> None:
    async with a_world() as (world, _, b):
        one, other, *_ = world.owned_by(B)
        b.frontier.add([one, other], b.clock.monotonic())
        b.changes.hold_for(A, [one.key])
        job = b.frontier.next(b.clock.monotonic())
        assert job is not None
        assert job.task == other


async def test_time_in_which_the_crawl_starts_nothing_says_nothing_of_how_fast_a_node_is() -> None:
    async with a_world() as (world, a, _):
        a.frontier.add(world.owned_by(A), a.clock.monotonic())
        run: Any = a.part.crawl

        async def fetches(seconds: int) -> None:
            for _ in range(seconds):
                run.parts.counters.pages += 10
                await asyncio.sleep(LOOK_EVERY_S)

        await fetches(40)
        run.may_start = False  # it is paused, or at its limit
        await asyncio.sleep(600)
        run.may_start = True
        await fetches(20)
        batches = list(a.part.facts.pace.batches)
        assert len(batches) > 6
        assert [pages / seconds for pages, seconds in batches] == pytest.approx([10] * len(batches), rel=0.3)
        assert a.part.facts.pace.rate == pytest.approx(10, rel=0.1)


async def test_what_another_owns_by_now_is_for_that_one_to_wait_for() -> None:
    async with a_world() as (world, _, b):
        one = world.owned_by(B)[0]
        b.changes.hold_for(A, [one.key])
        assert b.part.waiting == 1
        b.ownership.reclaim(KeyClaim(A, b.view, b.view))
        assert (b.part.waiting, b.ownership.holders()) == (0, {one.key: A}), "it may be its own again"


async def test_a_record_that_says_that_a_task_is_over_ends_the_wait() -> None:
    async with a_world() as (world, _, b):
        one = world.owned_by(B)[0]
        b.changes.hold_for(A, [one.key])
        over = Task(one.url, one.depth, one.order, "", state=State.DEAD, reason="failed")
        b.engine.write({keys.TASK + CRAWL + one.key: over.pack()}, sync=False)
        await asyncio.sleep(2 * LOOK_EVERY_S)
        assert (b.part.waiting, b.queued, b.compared) == (0, [], [])


async def test_a_holder_that_started_anew_or_never_tells_is_not_waited_for_but_others_are_asked() -> None:
    async with a_world() as (world, _, b):
        one, other, *_ = world.owned_by(B)
        b.store(one, other)
        b.changes.hold_for(A, [one.key])
        b.changes.hold_for(C, [other.key])
        world.incarnations[A] = 2
        await world.until(lambda: b.queued == [one.key])
        assert b.compared == [one.key]
        await asyncio.sleep(HELD_S + 10.0)
        assert (b.queued, b.part.waiting) == ([one.key, other.key], 0)


async def test_what_the_former_owner_had_lent_is_asked_back_from_whoever_does_not_know_of_it() -> None:
    async with a_world() as (world, a, b):
        one = world.owned_by(B)[0]
        b.store(one)
        a.handlers["recall"] = lambda asker, args: {"keys": args["keys"]}
        b.changes.hold_lent(A, [one.key])
        await world.until(lambda: b.queued == [one.key])
        assert b.part.waiting == 0


async def test_a_former_owner_that_knows_of_an_earlier_worker_only_does_not_free_a_task() -> None:
    async with a_world() as (world, a, b):
        one = world.owned_by(B)[0]
        b.store(one)
        world.nodes[C].handlers["recall"] = lambda asker, args: {"keys": args["keys"]}
        b.changes.hold_for(A, [one.key])
        b.changes.hold_lent(C, [one.key])
        await world.until(lambda: b.ownership.holders() == {one.key: A})
        await asyncio.sleep(LOOK_EVERY_S)
        assert (b.part.waiting, b.queued) == (1, []), "it is in flight at the other one"
        a.part.released(one.key)
        await world.until(lambda: b.queued == [one.key])
        assert b.part.waiting == 0


async def test_a_worker_that_does_not_answer_is_asked_a_few_times() -> None:
    async with a_world() as (world, _, b):
        world.closed.add(A)
        b.changes.hold_lent(A, [world.owned_by(B)[0].key])
        await asyncio.sleep(2 * ASKED_BACK_TIMES * LOOK_EVERY_S)
        assert len(world.calls("recall")) == ASKED_BACK_TIMES
        assert b.part.waiting == 1, "it may still have it in flight"


async def test_who_leaves_or_joins_is_told_what_is_in_hand_of_its_share() -> None:
    async with a_world() as (world, a, _):
        one = world.owned_by(C)[0]
        a.flying |= {one.key: None, world.owned_by(B)[0].key: None}
        assert a.changes.in_hand(C) == [one.key]
        assert a.changes.in_hand(A) == []


async def test_what_was_fetched_for_an_owner_that_went_is_held_by_the_next_until_it_is_on_disk() -> None:
    async with a_world() as (world, a, b):
        one = next(each for each in world.owned_by(C) if world.second(each) == B)
        b.store(one)
        a.flying[one.key] = None  # fetched, and no assignment any more
        world.leave(C)
        b.sees()
        a.sees()
        await world.until(lambda: not a.part.waiting)
        assert b.ownership.holders() == {one.key: A}


async def test_a_new_owner_hears_of_all_that_is_in_flight_and_not_of_as_much_as_one_call_carries() -> None:
    """With some thousand requests at once (`fetch.concurrency`) the rest was fetched twice."""
    async with a_world() as (world, a, b):
        found = (url_key(f"http://a/more/{number}") for number in itertools.count())
        theirs = (key for key in found if world.view.closest(placement(key), 1)[0].id == C)
        a.flying = dict.fromkeys(itertools.islice(theirs, 3 * KEYS_MAX))
        world.leave(C)
        b.sees()
        a.sees()
        await world.until(lambda: not a.part.waiting)
        mine = {key: A for key in a.flying if b.ownership.owns(key)}
        assert len(mine) > KEYS_MAX
        assert b.ownership.holders() == mine


async def test_who_has_what_this_node_had_assigned_is_known_when_its_new_owner_asks_late_or_again() -> None:
    async with a_world() as (world, a, _):
        world.leave(C)
        a.sees()
        before = world.owned_by(A)
        world.join(C)
        kept = world.owned_by(A)[0]
        moved = next(each for each in before if each not in world.owned_by(A))
        a.ownership.lent.lend(B, 1, "a", [kept.key, moved.key], a.clock.monotonic(), 60.0)
        a.sees()
        a.ownership.lent.let_go([moved.key])
        assert a.changes.holders() == {kept.key: B, moved.key: B}
        await asyncio.sleep(HELD_S)
        assert a.changes.holders() == {kept.key: B}


async def test_a_release_that_does_not_arrive_is_no_hold_up() -> None:
    async with a_world() as (world, a, _):
        world.closed.add(B)
        a.part.released(world.owned_by(B)[0].key)
        await asyncio.sleep(1.0)
        assert a.ownership.releasing == 0


async def test_without_a_policy_nothing_is_lent_and_nobody_reports() -> None:
    async with a_world() as (world, a, b):
        one = world.owned_by(B)[0]
        answers = (await a.call(B, calls.ReportLent(CRAWL, ())), await a.call(B, calls.ReportPlan(CRAWL, 0, b"")))
        assert answers == (Failure(FailureKind.REFUSED, "no-policy"),) * 2
        b.part.assign()
        given = TaskOutcome(one.key, "a", TaskResult.FAILED, 1.0)
        assert not b.part.passes_on(one, given), "it is for this node to try again"
        assert b.ownership.holders() == {}


async def test_a_crawl_that_does_not_run_here_is_unknown() -> None:
    async with a_world() as (_, a, _b):
        answer = await a.call(B, calls.Release(bytes(16), (TASKS[0].key,)))
        assert isinstance(answer, Failure)
        assert answer.detail == "unknown-crawl"
