"""What comes from other nodes is safe, queued and known to the frontier, or none of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from harness.bench import Bench
from storage.stores import CRAWL, SPEC
from swarm.sync_swarm import copy

from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.due_tasks import DueTasks
from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.crawl.intake import Intake
from dhtcrawl.crawl.rounds import CrawlCounters, CrawlStart
from dhtcrawl.keyspace import url_key
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.storage.store import counters, keys, tasks
from dhtcrawl.storage.store import replicas as stored
from dhtcrawl.storage.store.known_depths import DepthTable
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.records import Place, State
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.storage.store.tasks import FetchedPage, Link

from .by_hand import make

DONE: Any = {"state": State.DONE, "place": Place("ab" * 20, "a.warc.gz", 0, 9)}


class LookedError(Exception):
    pass


class IntakeBench(Bench):
    """A node's side of a crawl; its backups answer when the test lets them."""

    def __init__(self, spec: CrawlSpec = SPEC) -> None:
        super().__init__()
        self.frontier: Frontier = make(parallel=100)
        self.owned: Callable[[bytes], bool] = lambda key: True
        self.waiting: list[Callable[[], None]] = []
        self.kept: list[TaskReplica] = []
        self.told: list[TaskReplica] = []
        self.resent: list[bytes] = []
        self.took_part: list[str] = []
        self.changes = 0
        corridor: Any = SimpleNamespace(counters=SimpleNamespace(urls_seen=0), resend=self.resent.extend)
        self.together: Any = SimpleNamespace(
            joins=False,
            mine=lambda key: self.owned(key),
            owns=lambda key: self.owned(key),
            owned=lambda keys: [key for key in keys if self.owned(key)],
            held=lambda key: False,
            snapshot=lambda _=None: OwnershipSnapshot(self.owned),
            keep=self._keep,
            busy=True,
            when_kept=lambda key, then: False,
            took_part=self.took_part.extend,
            tell=self.told.extend,
        )
        services: Any = SimpleNamespace(
            committer=self.committer,
            clock=self.clock,
            safe_tasks=DepthTable(),
            ports=SimpleNamespace(ownership=self.together, replication=self.together, record=self.together),
        )
        self.counters = CrawlCounters()
        start = CrawlStart(spec, CRAWL, self.counters, [], {})
        self.due = DueTasks(self.frontier, self.together, self.clock)
        self.intake = Intake(
            services, start, self.frontier, self.due, corridor, itertools.count(1), changed=self._changed
        )

    def _keep(self, kept: Sequence[TaskReplica], then: Callable[[], None]) -> None:
        self.kept += kept
        self.waiting.append(then)

    def under_way(self, key: bytes, then: Callable[[], None]) -> bool:
        """As `Replication.when_kept`."""
        found = key in [kept.key for kept in self.kept]
        if found:
            self.waiting.append(then)
        return found

    def _changed(self) -> None:
        self.changes += 1

    async def knows(self, *links: Link) -> list[bool]:
        """Which of these links are accepted without a look into the store."""
        submit, looked = self.committer.submit, []

        def refuse(function: Any) -> Any:
            looked.append(function)
            raise LookedError

        self.committer.submit = refuse  # type: ignore[method-assign]
        try:
            found = []
            for each in links:
                looked.clear()
                with suppress(LookedError):
                    assert await self.intake.accept([each]) == frozenset()
                found.append(not looked)
            return found
        finally:
            self.committer.submit = submit  # type: ignore[method-assign]

    def backups_answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then()

    def startable(self) -> set[str]:
        found = set()
        while (job := self.frontier.next(self.clock.monotonic())) is not None:
            assert job.task is not None
            found.add(job.task.url)
        return found

    def queued(self) -> set[bytes]:
        return {keys.queue_task(key) for key, _ in self.engine.scan(*keys.bounds(keys.QUEUE, CRAWL))}

    def stored_counters(self) -> CrawlCounters:
        return CrawlCounters.unpack(self.engine.get(keys.key(keys.COUNTERS, CRAWL)))

    async def merge(self, *found: TaskReplica) -> None:
        def write(txn: Any) -> Merged:
            return stored.merge_in(
                txn,
                CRAWL,
                found,
                itertools.count(1),
                mine=lambda key: self.owned(key),
                held=lambda key: False,
                depth_matters=True,
            )

        self.intake.merged(await self.committer.submit(write))


def link(number: int) -> Link:
    url = copy(number).task.url
    return Link(url_key(url), url, 1, "")


@asynccontextmanager
async def a_world() -> AsyncIterator[tuple[IntakeBench, asyncio.TaskGroup]]:
    async with asyncio.TaskGroup() as group:
        yield IntakeBench(), group


async def test_a_link_is_acked_and_queued_only_once_the_backups_have_it() -> None:
    async with a_world() as (world, group):
        accepting = group.create_task(world.intake.accept([link(1)]))
        await asyncio.sleep(1.0)
        assert world.queued() == {link(1).key}
        assert not accepting.done()
        assert world.startable() == set()
        assert not world.intake.idle
        world.backups_answer()
        assert await accepting == {link(1).key}
        assert world.startable() == {link(1).url}
        assert world.intake.idle


async def test_a_link_that_was_known_is_no_new_one_and_waits_for_nobody() -> None:
    async with a_world() as (world, group):
        first = group.create_task(world.intake.accept([link(1)]))
        await asyncio.sleep(1.0)
        world.backups_answer()
        await first
        assert await world.intake.accept([link(1)]) == frozenset()
        assert world.counters.urls_seen == 1


async def test_links_are_counted_in_the_transaction_that_writes_them_also_beside_a_round_that_had_begun() -> None:
    async with a_world() as (world, group):
        before = world.counters.figures()
        accepting = group.create_task(world.intake.accept([link(1), link(2)]))
        await asyncio.sleep(1.0)
        assert world.stored_counters().urls_seen == 2, "the node may end before the next round"
        await world.committer.submit(partial(counters.put_counters, crawl=CRAWL, known=before, counted={"pages": 1}))
        assert world.stored_counters() == CrawlCounters(urls_seen=2, pages=1)
        world.backups_answer()
        await accepting
        assert world.counters.urls_seen == 2


async def test_a_link_is_known_from_memory_once_it_is_acked_unless_it_is_nearer() -> None:
    async with a_world() as (world, group):
        accepting = group.create_task(world.intake.accept([link(1), link(2)]))
        await asyncio.sleep(1.0)
        assert await world.knows(link(1), link(2)) == [False, False], "its backups do not have it"
        world.backups_answer()
        await accepting
        activity = world.intake.activity
        assert await world.knows(link(1), link(3), link(2)) == [True, False, True]
        assert world.intake.activity > activity, "who asks whether all is over must see it"
        assert await world.knows(link(1)._replace(depth=0), link(2)._replace(depth=5)) == [False, True]


async def test_nothing_is_known_from_memory_after_the_node_owns_other_keys() -> None:
    async with a_world() as (world, group):
        world.intake.view_changed("before")
        first = group.create_task(world.intake.accept([link(1)]))
        await asyncio.sleep(1.0)
        world.backups_answer()
        await first
        world.intake.view_changed("before")
        assert await world.knows(link(1)) == [True]
        second = group.create_task(world.intake.accept([link(2)]))
        await asyncio.sleep(1.0)
        world.intake.view_changed("after")
        world.backups_answer()
        await second
        assert await world.knows(link(1), link(2)) == [False, False], "nor what was under way then"
        world.intake.view_changed("before")
        assert await world.knows(link(1), link(2)) == [False, False]


async def test_what_a_node_keeps_for_another_is_not_known_from_memory() -> None:
    async with a_world() as (world, group):
        world.owned = lambda key: key == link(1).key
        accepting = group.create_task(world.intake.accept([link(1), link(2)]))
        await asyncio.sleep(1.0)
        world.backups_answer()
        await accepting
        assert await world.knows(link(1), link(2)) == [True, False]


async def test_a_task_that_a_backup_knows_as_done_is_not_fetched() -> None:
    async with a_world() as (world, group):
        accepting = group.create_task(world.intake.accept([link(1), link(2)]))
        await asyncio.sleep(1.0)
        await world.merge(copy(1, **DONE))
        world.backups_answer()
        await accepting
        assert world.startable() == {link(2).url}
        assert world.queued() == {link(2).key}


async def test_a_record_that_moves_here_is_queued_and_known_to_the_frontier() -> None:
    async with a_world() as (world, _):
        await world.merge(copy(1), copy(2, **DONE))
        world.backups_answer()
        assert world.startable() == {copy(1).task.url}
        assert world.changes


async def test_what_another_node_owns_is_taken_into_custody_and_not_fetched() -> None:
    async with a_world() as (world, group):
        world.owned = lambda key: False
        accepting = group.create_task(world.intake.accept([link(1)]))
        await asyncio.sleep(1.0)
        world.backups_answer()
        assert await accepting == {link(1).key}
        assert world.startable() == set()


async def test_a_backup_that_hears_of_an_end_tells_the_owner() -> None:
    async with a_world() as (world, _):
        world.owned = lambda key: False
        await world.merge(copy(1), copy(2), copy(3, **DONE))
        assert not world.told, "what was not here comes from somebody who sees to it"
        await world.merge(copy(1, **DONE), copy(2))
        assert [(each.key, each.task.state) for each in world.told] == [(copy(1).key, State.DONE)]
        await world.merge(copy(1, **DONE))
        assert len(world.told) == 1, "it was no news"


async def test_an_owner_that_hears_of_an_end_tells_nobody_by_the_way() -> None:
    async with a_world() as (world, _):
        await world.merge(copy(1))
        await world.merge(copy(1, **DONE))
        assert not world.told


async def test_what_is_not_ours_any_more_leaves_memory_at_once_and_the_store_in_a_while() -> None:
    async with a_world() as (world, group):
        running = group.create_task(world.intake.run())
        await world.merge(*(copy(n) for n in range(20)))
        world.backups_answer()
        assert len(world.queued()) == len(world.frontier) == 20
        world.owned = lambda key: False
        world.intake.look_again()
        assert world.startable() == set()
        assert not world.intake.idle
        await asyncio.sleep(1.0)
        assert world.queued() == set()
        assert world.intake.idle
        world.intake.close()
        await running


async def test_what_becomes_ours_is_found_in_the_store_and_the_seeds_are_made_tasks() -> None:
    async with a_world() as (world, group):
        running = group.create_task(world.intake.run())
        world.owned = lambda key: False
        await world.merge(*(copy(n) for n in range(20)))
        world.owned = lambda key: True
        world.intake.look_again()
        await asyncio.sleep(1.0)
        world.backups_answer()
        await asyncio.sleep(1.0)
        assert len(world.queued()) == 21
        assert {kept.task.url for kept in world.kept} == set(SPEC.seeds)
        assert world.frontier.overflowed, "the frontier is to read the stored queues anew"
        world.intake.close()
        await running


async def test_a_view_that_changes_during_a_sweep_begins_it_anew() -> None:
    async with a_world() as (world, group):
        running = group.create_task(world.intake.run())
        await world.merge(*(copy(n) for n in range(20)))
        world.owned = lambda key: False
        world.intake.look_again()
        await asyncio.sleep(0.001)
        world.owned = lambda key: True
        world.intake.look_again()
        await asyncio.sleep(1.0)
        world.backups_answer()
        await asyncio.sleep(1.0)
        assert len(world.queued()) == 21
        assert world.intake.idle
        world.intake.close()
        await running


async def test_a_node_is_not_idle_while_it_sweeps_and_says_so_once_it_has_swept() -> None:
    async with a_world() as (world, group):
        running = group.create_task(world.intake.run())
        world.owned = lambda key: False
        world.intake.view_changed("a")
        changes = world.changes
        await asyncio.sleep(0)
        assert not world.intake.idle, "the sweep has begun"
        await asyncio.sleep(1.0)
        assert world.intake.idle
        assert world.changes > changes
        world.intake.close()
        await running


async def test_the_store_is_swept_when_the_claim_changes_and_not_when_other_nodes_come_and_go() -> None:
    async with a_world() as (world, group):
        running = group.create_task(world.intake.run())
        world.owned = lambda key: False
        world.intake.view_changed("a")
        await asyncio.sleep(1.0)
        activity = world.intake.activity
        world.intake.view_changed("a")
        assert world.intake.idle
        assert world.intake.activity > activity, "who asks whether all is over must see it"
        world.intake.view_changed("b")
        assert not world.intake.idle
        world.intake.close()
        await running


async def test_a_claim_that_came_and_went_before_it_was_swept_is_swept_when_it_comes_again() -> None:
    async with a_world() as (world, group):
        running = group.create_task(world.intake.run())
        world.owned = lambda key: False
        world.intake.view_changed("a")
        await asyncio.sleep(1.0)
        world.intake.view_changed("b")
        world.intake.view_changed("a")
        await asyncio.sleep(1.0)
        world.intake.view_changed("b")
        assert not world.intake.idle, "the sweep was for the other one"
        world.intake.close()
        await running


async def test_of_two_claims_that_come_during_a_sweep_the_later_is_the_one_that_is_swept() -> None:
    async with a_world() as (world, group):
        running = group.create_task(world.intake.run())
        world.owned = lambda key: False
        world.intake.view_changed("a")
        await asyncio.sleep(0)
        world.intake.view_changed("b")
        await asyncio.sleep(1.0)
        world.intake.view_changed("b")
        assert world.intake.idle
        world.intake.view_changed("a")
        assert not world.intake.idle
        world.intake.close()
        await running


async def test_what_a_sweep_changes_counts_as_activity() -> None:
    async with a_world() as (world, group):
        running = group.create_task(world.intake.run())
        world.owned = lambda key: False
        await world.merge(copy(1))
        for claims in ((lambda key: True), (lambda key: False)):
            world.owned = claims
            world.intake.look_again()
            await asyncio.sleep(0)
            activity = world.intake.activity
            await asyncio.sleep(1.0)
            assert world.intake.activity > activity
            world.backups_answer()
            await asyncio.sleep(1.0)
        world.intake.close()
        await running


async def test_a_node_makes_tasks_of_the_seeds_that_it_owns_only() -> None:
    spec = make_spec(["http://a.example/", "http://b.example/"], CrawlSettings())
    async with asyncio.TaskGroup() as group:
        world = IntakeBench(spec)
        running = group.create_task(world.intake.run())
        world.owned = spec.key_of("http://b.example/").__eq__
        world.intake.look_again()
        await asyncio.sleep(1.0)
        assert [kept.task.url for kept in world.kept] == ["http://b.example/"]
        world.backups_answer()
        world.intake.close()
        await running


async def test_a_task_in_memory_that_is_over_by_what_another_node_knows_is_not_fetched() -> None:
    async with a_world() as (world, _):
        await world.merge(copy(1))
        world.backups_answer()
        await world.merge(copy(1, **DONE))
        assert world.startable() == set()


async def test_who_fetched_what_this_node_learns_of_takes_part() -> None:
    async with a_world() as (world, _):
        await world.merge(copy(1))
        assert world.took_part == []
        await world.merge(copy(1, **DONE))
        assert world.took_part == ["ab" * 20]


async def test_the_owner_is_told_of_a_page_that_is_fetched_and_not_done_yet() -> None:
    async with a_world() as (world, _):
        world.owned = lambda key: False
        await world.merge(copy(1), copy(2, depth=3))
        await world.merge(copy(1, state=State.FETCHED, place=DONE["place"]), copy(2, depth=2))
        assert [(each.key, each.task.state) for each in world.told] == [(copy(1).key, State.FETCHED)]


async def test_a_page_that_another_node_found_on_a_shorter_way_sends_its_links_again() -> None:
    async with a_world() as (world, _):
        world.intake.merged(Merged([], [], [], [copy(1).key], 0))
        assert world.resent == [copy(1).key]


async def test_a_page_that_a_link_leads_to_on_a_shorter_way_sends_its_links_again_once_the_backups_know() -> None:
    async with asyncio.TaskGroup() as group:
        world, here = IntakeBench(make_spec(["http://a.example/"], CrawlSettings(depth=5))), link(1)
        accepting = group.create_task(world.intake.accept([here._replace(depth=3)]))
        await asyncio.sleep(1.0)
        world.backups_answer()
        await accepting
        fields = {"url": here.url, "status": 200, "depth": 3, "referrer": None}
        page = FetchedPage(here.key, 3, fields, b"", [])
        write: Any = partial(tasks.fetched, crawl=CRAWL, page=page, place=DONE["place"], attempt=0)
        await world.committer.submit(write)
        accepting = group.create_task(world.intake.accept([here]))
        await asyncio.sleep(1.0)
        assert world.resent == []
        world.backups_answer()
        assert await accepting == frozenset()
        assert world.resent == [here.key]


async def test_whoever_waits_for_work_hears_of_what_was_accepted_and_of_what_was_let_go() -> None:
    async with a_world() as (world, group):
        accepting = group.create_task(world.intake.accept([link(1)]))
        await asyncio.sleep(1.0)
        changes = world.changes
        world.backups_answer()
        await accepting
        assert world.changes > changes
        changes = world.changes
        world.intake.let_go(Merged([], [], [], [copy(1).key], 0))
        assert world.changes > changes
        assert world.resent == [copy(1).key]
        assert world.frontier.overflowed, "what was let go may have lain in the stored queue before"


async def test_everything_that_comes_counts_as_activity() -> None:
    async with a_world() as (world, group):
        before = world.intake.activity
        await world.merge(copy(1))
        after_merge = world.intake.activity
        accepting = group.create_task(world.intake.accept([link(2)]))
        await asyncio.sleep(1.0)
        world.backups_answer()
        await accepting
        assert before < after_merge < world.intake.activity


async def test_what_comes_to_its_owner_as_a_copy_is_fetched_only_once_the_other_backups_have_it() -> None:
    async with a_world() as (world, _):
        await world.merge(copy(1), copy(2, **DONE))
        assert [kept.key for kept in world.kept] == [copy(1).key, copy(2).key]
        assert world.startable() == set()
        world.backups_answer()
        assert world.startable() == {copy(1).task.url}


async def test_what_comes_as_a_copy_to_a_backup_is_sent_to_nobody() -> None:
    async with a_world() as (world, _):
        world.owned = lambda key: False
        await world.merge(copy(1))
        assert world.kept == []


async def test_a_link_that_is_known_from_an_owner_that_vanished_is_acked_only_once_the_backups_have_it() -> None:
    """The owner before us may have died before it had told any other backup than us."""
    async with a_world() as (world, group):
        world.owned = lambda key: False
        await world.merge(copy(1))
        accepting = group.create_task(world.intake.accept([link(1)]))
        await asyncio.sleep(1)
        assert not accepting.done()
        assert [kept.key for kept in world.kept] == [copy(1).key]
        world.backups_answer()
        assert await accepting == frozenset()


async def test_a_further_link_to_a_new_task_waits_for_its_backups_also_while_what_came_with_it_is_doubted() -> None:
    async with a_world() as (world, group):
        new, known = link(1), link(2)
        await world.merge(copy(2))
        world.backups_answer()
        world.kept.clear()
        world.together.when_kept = world.under_way
        first, second = (group.create_task(world.intake.accept(links)) for links in ([new, known], [new]))
        await asyncio.sleep(0)
        world.owned = new.key.__eq__  # both are being written; the known one is another node's from now on
        await asyncio.sleep(1)
        assert (first.done(), second.done()) == (False, False)
        assert [kept.key for kept in world.kept] == [new.key, known.key]
        world.backups_answer()
        assert (await first, await second) == (frozenset([new.key]), frozenset())


@pytest.mark.parametrize("joins", [True, False])
async def test_what_changes_at_an_owner_is_told_to_whoever_is_joining_who_may_have_asked_before(joins: bool) -> None:
    async with a_world() as (world, _):
        await world.merge(copy(1))
        world.backups_answer()
        world.kept.clear()
        world.together.joins = joins
        await world.merge(copy(1, **DONE))
        assert [(each.key, each.task.state) for each in world.kept] == [(copy(1).key, State.DONE)] * joins


@pytest.mark.parametrize("joins", [True, False])
async def test_how_an_owners_tasks_ended_is_told_on_while_a_node_joins(joins: bool) -> None:
    async with a_world() as (world, _):
        world.owned, world.together.joins = copy(1).key.__eq__, joins
        assert world.intake.told_on([copy(1).key, copy(2).key]) == frozenset([copy(1).key] * joins)
