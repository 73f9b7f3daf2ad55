"""A page whose body went with its node is fetched anew, but not before that node had time to come back (I11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from harness.bench import Bench
from storage.stores import CRAWL

from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.records import Place, State, unpack_task
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.swarm.bodies.absences import Absences
from dhtcrawl.swarm.bodies.held_pages import Lacking
from dhtcrawl.swarm.bodies.missing import MissingBodies
from swarm.fake_peers import node
from swarm.sync_swarm import copy

GRACE_S = 60.0
GONE = node(3).hex()
OTHER = node(5).hex()


def page(number: int, holder: str = GONE) -> TaskReplica:
    return copy(number, state=State.DONE, place=Place(holder, "a.warc.gz", 0, 9))


class BodiesBench(Bench):
    def __init__(self, *records: TaskReplica) -> None:
        super().__init__()
        self.add(*records)
        self.gone: list[str] = []
        self.owned: Callable[[bytes], bool] = lambda key: True
        self.opened: list[TaskReplica] = []
        self.copies: Callable[[list[bytes]], tuple[list[bytes], int]] = lambda pages: (pages, 0)
        self.sought: list[float] = []
        self.given_up: list[list[str]] = []
        self.depth_matters = False
        self.reminded: list[bytes] = []
        self.untold: set[str] = set()
        self.remind_s = 0.0
        self.lacks: dict[str, list[bytes]] = {}
        self.silent: set[str] = set()
        self.asked_for: list[bytes] = []
        self.absences = Absences(lambda: self.gone, GRACE_S, earlier=[OTHER])
        self.bodies = MissingBodies(
            self.committer,
            self.clock,
            CRAWL,
            self.absences,
            lambda _=None: OwnershipSnapshot(self.owned),
            self,
            self._opened,
        )

    def add(self, *records: TaskReplica) -> None:
        self.engine.write({keys.TASK + CRAWL + key: task.pack() for key, task in records}, sync=False)

    async def rehome(self, gone: str, pages: list[bytes]) -> tuple[list[bytes], int]:
        assert gone in (GONE, OTHER)
        self.sought.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.1)
        return self.copies(pages)

    async def lacking(self, pages: list[bytes]) -> Lacking:
        assert self.bodies.missing, "the crawl does not end before"
        await asyncio.sleep(0.1)
        self.asked_for += pages
        lacked = {node: [key for key in keys if key in pages] for node, keys in self.lacks.items()}
        return Lacking({node: keys for node, keys in lacked.items() if keys}, set(self.silent))

    async def remind(self, pages: list[bytes]) -> set[str]:
        assert self.bodies.missing, "the crawl does not end before"
        await asyncio.sleep(self.remind_s)
        self.reminded += pages
        return self.untold

    def holders_changed(self) -> None:
        self.given_up.append(sorted(self.absences.given_up))

    def _opened(self, opened: list[TaskReplica], merged: Merged) -> None:
        assert {queued.key for queued in merged.queued} == {copy.key for copy in opened}
        self.opened += opened

    def leaves(self) -> None:
        self.gone = [GONE]
        self.bodies.view_changed(ours=True)

    def state_of(self, number: int) -> State:
        value = self.engine.get(keys.TASK + CRAWL + copy(number).key)
        assert value is not None
        return unpack_task(value).state


@asynccontextmanager
async def a_world(*records: TaskReplica) -> AsyncIterator[BodiesBench]:
    async with asyncio.TaskGroup() as group:
        world = BodiesBench(*records)
        looking = group.create_task(world.bodies.run())
        await asyncio.sleep(1.0)
        assert world.bodies.missing == 0
        yield world
        looking.cancel()


async def test_pages_of_a_node_that_is_gone_are_missing_at_once_and_opened_after_a_while() -> None:
    async with a_world(page(1), page(2), page(3, node(1).hex())) as world:
        world.leaves()
        assert world.bodies.missing, "not known yet, so it counts"
        await asyncio.sleep(GRACE_S - 5)
        assert world.bodies.missing == 2
        assert world.opened == []
        await asyncio.sleep(10)
        assert sorted(opened.key for opened in world.opened) == sorted([page(1).key, page(2).key])
        assert world.bodies.missing == 0
        assert [world.state_of(n) for n in (1, 2, 3)] == [State.PENDING, State.PENDING, State.DONE]


async def test_a_node_that_comes_back_in_time_costs_nothing() -> None:
    async with a_world(page(1)) as world:
        world.leaves()
        await asyncio.sleep(GRACE_S / 2)
        world.gone = []
        world.bodies.view_changed(ours=True)
        await asyncio.sleep(2 * GRACE_S)
        assert (world.opened, world.bodies.missing) == ([], 0)


@pytest.mark.parametrize("depth_matters", [True, False])
async def test_a_node_that_comes_back_is_told_of_its_pages_where_their_depths_count(depth_matters: bool) -> None:
    async with a_world(page(1), page(2), page(3), page(4, node(1).hex())) as world:
        world.depth_matters = depth_matters
        world.owned = lambda key: key != page(3).key
        world.leaves()
        await asyncio.sleep(5)
        assert world.reminded == []
        world.gone = []
        world.bodies.view_changed(ours=False)
        assert world.bodies.missing
        await asyncio.sleep(5)
        assert sorted(world.reminded) == (sorted([page(1).key, page(2).key]) if depth_matters else [])
        assert world.bodies.missing == 0


async def test_what_a_node_that_is_back_lacks_is_opened_at_once_unless_there_is_a_copy() -> None:
    async with a_world(page(1), page(2), page(3), page(4, OTHER)) as world:
        world.leaves()
        await asyncio.sleep(5)
        world.asked_for.clear()  # OTHER may have been away before
        world.lacks = {GONE: [page(1).key, page(2).key]}
        world.copies = lambda pages: ([page(1).key], 0)
        world.gone = []
        world.bodies.view_changed(ours=False)
        assert world.bodies.missing
        await asyncio.sleep(5)
        assert [opened.key for opened in world.opened] == [page(1).key]
        assert sorted(world.asked_for) == sorted([page(1).key, page(2).key, page(3).key])
        assert world.bodies.missing == 0
        await asyncio.sleep(GRACE_S)
        assert (len(world.asked_for), len(world.sought)) == (3, 1), "once"


async def test_what_somebody_may_have_a_copy_of_is_asked_for_again() -> None:
    async with a_world(page(1)) as world:
        world.leaves()
        world.lacks, world.copies = {GONE: [page(1).key]}, lambda pages: ([], len(pages))
        world.gone = []
        world.bodies.view_changed(ours=True)
        await asyncio.sleep(5)
        assert world.bodies.missing
        assert world.opened == []
        world.copies = lambda pages: (pages, 0)
        await asyncio.sleep(5)
        assert len(world.opened) == 1
        assert world.bodies.missing == 0


async def test_a_node_that_does_not_say_what_it_has_is_asked_again_while_it_is_there() -> None:
    async with a_world(page(1)) as world:
        world.silent = {GONE}
        world.leaves()
        await asyncio.sleep(5)
        world.gone = []
        world.bodies.view_changed(ours=False)
        await asyncio.sleep(5)
        assert world.bodies.missing
        assert len(world.asked_for) > 1
        world.gone = [GONE]  # and the view that says so has come before
        await asyncio.sleep(5)
        asked = len(world.asked_for)
        await asyncio.sleep(5)
        assert len(world.asked_for) == asked


async def test_a_node_that_was_started_looks_for_the_pages_that_it_has_itself() -> None:
    async with a_world(page(1, OTHER), page(2, OTHER)) as world:  # one of those that may have been away
        world.lacks = {OTHER: [page(2).key]}
        world.bodies.view_changed(ours=True)
        await asyncio.sleep(5)
        assert [opened.key for opened in world.opened] == [page(2).key]
        assert world.state_of(1) is State.DONE


async def test_the_node_that_comes_to_own_a_page_later_tells_the_node_that_was_away() -> None:
    async with a_world(page(1)) as world:
        world.depth_matters = True
        world.owned = lambda key: False
        world.leaves()
        await asyncio.sleep(5)
        world.gone = []
        world.bodies.view_changed(ours=False)
        await asyncio.sleep(5)
        assert world.reminded == []
        world.owned = lambda key: True
        world.bodies.view_changed(ours=True)
        await asyncio.sleep(5)
        assert world.reminded == [page(1).key]


async def test_a_node_that_was_started_tells_those_that_may_have_been_away_once() -> None:
    async with a_world(page(1), page(2, OTHER)) as world:
        world.depth_matters = True
        for _ in range(2):
            world.bodies.view_changed(ours=True)
            assert world.bodies.missing == (not world.reminded)
            await asyncio.sleep(5)
            assert world.reminded == [page(2).key]


async def test_a_node_that_could_not_be_told_is_told_again() -> None:
    async with a_world(page(1)) as world:
        world.depth_matters, world.untold = True, {GONE}
        world.leaves()
        await asyncio.sleep(5)
        world.gone = []
        world.bodies.view_changed(ours=False)
        await asyncio.sleep(5)
        assert world.bodies.missing
        assert len(world.reminded) > 1
        world.untold = set()
        await asyncio.sleep(5)
        assert world.bodies.missing == 0


async def test_pages_of_a_node_that_comes_back_while_another_is_told_are_not_opened() -> None:
    async with a_world(page(1), page(2, OTHER)) as world:
        world.depth_matters = True
        world.copies = lambda pages: ([], len(pages))  # it is not known whether there are any
        world.leaves()
        await asyncio.sleep(GRACE_S + 3)
        world.gone = [GONE, OTHER]
        world.bodies.view_changed(ours=False)
        await asyncio.sleep(2)
        world.copies, world.remind_s = lambda pages: (pages, 0), 3.0
        world.gone = [GONE]
        world.bodies.view_changed(ours=False)
        await asyncio.sleep(1)
        world.gone = []
        world.bodies.view_changed(ours=False)
        await asyncio.sleep(9)
        assert world.opened == []
        assert world.bodies.missing == 0


async def test_its_grace_begins_anew_each_time_it_goes() -> None:
    async with a_world(page(1)) as world:
        world.leaves()
        await asyncio.sleep(GRACE_S / 2)
        world.gone = []
        world.bodies.view_changed(ours=True)
        await asyncio.sleep(GRACE_S)
        world.leaves()
        await asyncio.sleep(GRACE_S / 2)
        assert world.opened == []


async def test_others_pages_are_for_others_to_open_until_they_are_ours() -> None:
    async with a_world(page(1)) as world:
        world.owned = lambda key: False
        world.leaves()
        await asyncio.sleep(2 * GRACE_S)
        assert (world.opened, world.bodies.missing) == ([], 0)
        world.owned = lambda key: True
        world.bodies.view_changed(ours=True)
        assert world.bodies.missing
        await asyncio.sleep(5)
        assert len(world.opened) == 1


async def test_what_has_a_copy_is_not_opened() -> None:
    async with a_world(page(1), page(2)) as world:
        world.copies = lambda pages: ([page(1).key], 0)
        world.leaves()
        await asyncio.sleep(GRACE_S - 2)
        assert world.sought == [], "it may come back"
        await asyncio.sleep(5)
        assert [opened.key for opened in world.opened] == [page(1).key]
        assert (world.bodies.missing, len(world.sought)) == (0, 1)


async def test_what_somebody_may_have_a_copy_of_is_missing_and_sought_now_and_then() -> None:
    async with a_world(page(1), page(2)) as world:
        world.copies = lambda pages: ([], len(pages))
        world.leaves()
        await asyncio.sleep(GRACE_S + 60)
        assert (world.opened, world.bodies.missing) == ([], 2)
        assert 5 <= len(world.sought) <= 15
        world.copies = lambda pages: (pages, 0)
        await asyncio.sleep(10)
        assert (len(world.opened), world.bodies.missing) == (2, 0)


async def test_it_is_sought_at_once_when_somebody_comes() -> None:
    async with a_world(page(1)) as world:
        world.copies = lambda pages: ([], len(pages))
        world.leaves()
        await asyncio.sleep(GRACE_S + 2)
        sought = len(world.sought)
        world.bodies.view_changed(ours=True)
        await asyncio.sleep(0.5)
        assert len(world.sought) == sought + 1


async def test_pages_that_others_tell_of_are_counted_when_they_are_known_to_lie_at_a_node_that_is_gone() -> None:
    async with a_world(page(1)) as world:
        world.leaves()
        await asyncio.sleep(1)
        assert world.bodies.missing == 1
        world.add(page(2))
        world.bodies.view_changed(ours=False)
        await asyncio.sleep(1)
        assert world.bodies.missing == 1, "nobody told of a further one, so nothing was read again"
        world.absences.lie_at([GONE])
        world.bodies.view_changed(ours=False)
        await asyncio.sleep(1)
        assert world.bodies.missing == 2


async def test_pages_that_come_while_they_are_counted_are_counted_in_the_next_look() -> None:
    async with a_world(page(1)) as world:
        world.copies = lambda pages: ([], len(pages))
        world.leaves()
        await asyncio.sleep(GRACE_S + 0.05)
        world.add(page(2))
        world.absences.lie_at([GONE])
        assert world.bodies.missing, "not known yet, so it counts"
        await asyncio.sleep(10)
        assert world.bodies.missing == 2


async def test_who_is_given_up_is_told_when_it_changes() -> None:
    async with a_world() as world:
        world.leaves()
        await asyncio.sleep(GRACE_S / 2)
        assert world.given_up == []
        await asyncio.sleep(GRACE_S)
        assert world.given_up == [[GONE]]
        world.gone = []
        world.bodies.view_changed(ours=True)
        await asyncio.sleep(1)
        assert world.given_up == [[GONE], []]
