"""A page whose node is gone stands where a copy of it is, and only where there is none it is fetched again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from storage.stores import CRAWL, SPEC

from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.keyspace import KEY_BYTES, placement
from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import Place
from dhtcrawl.swarm.bodies.copier import Copier
from dhtcrawl.swarm.bodies.copy_watch import CopyWatch
from dhtcrawl.swarm.bodies.rehome import ASKED_MAX, Sought, seek
from swarm.fake_peers import node as node_id

from .copy_world import STAND_IN, CopyWorld, a_world, url

# Seeking


async def copied(world: CopyWorld, count: int, first: int = 0) -> list[bytes]:
    """Pages of a node, each with its copies."""
    pages = [await world.all[first].fetch(url(n)) for n in range(count)]
    await world.all[first].copy(*pages)
    return pages


def found_in(sought: Sought) -> dict[bytes, Place]:
    assert (sought.unsure, sought.nowhere) == ([], [])
    return dict(sought.found)


async def test_copies_are_found_where_they_should_be_and_are_pages_there_from_then_on() -> None:
    async with a_world(5) as world:
        pages = await copied(world, 20)
        world.remove(0)
        for key, place in found_in(await seek(world.all[1], CRAWL, pages)).items():
            (holder,) = world.closest(placement(key), b"")[:1]
            assert place.node == holder.hex()
            assert world.nodes[holder].page(key)["place"] == place
            assert world.nodes[holder].body(key, keys.PAGE) == b"<p>hello</p>"
        assert len(world.calls(STAND_IN)) == 4, "one call a node for all pages, one's own included"


async def test_a_copy_is_found_though_others_have_come_between() -> None:
    async with a_world(9) as world:
        for number in range(2, 9):
            world.remove(number)
        pages = await copied(world, 20)
        for number in range(2, 9):
            world.down.remove(node_id(number))
        world.view = View(Member(node_id(n), ("10.0.0.1", n + 1)) for n in range(1, 9))
        found = found_in(await seek(world.all[5], CRAWL, pages))
        assert {place.node for place in found.values()} == {node_id(1).hex()}


async def test_what_nobody_has_is_nowhere() -> None:
    async with a_world() as world:
        (there,) = await copied(world, 1)
        gone = await world.all[0].fetch(url(7))
        world.remove(0)
        sought = await seek(world.all[1], CRAWL, [there, gone])
        assert [key for key, _ in sought.found] == [there]
        assert (sought.unsure, sought.nowhere) == ([], [gone])
        assert await seek(world.all[1], CRAWL, []) == Sought([], [], [])


async def test_while_somebody_may_have_it_who_does_not_answer_nobody_knows() -> None:
    async with a_world() as world:
        key = await world.all[0].fetch(url(7))
        world.remove(0)
        world.down.add(node_id(2))
        assert await seek(world.all[1], CRAWL, [key]) == Sought([], [key], []), "so it is not fetched anew"
        world.remove(2)
        assert await seek(world.all[1], CRAWL, [key], [node_id(2)]) == Sought([], [key], []), "it may come back"
        assert await seek(world.all[1], CRAWL, [key]) == Sought([], [], [key])


async def test_what_was_found_is_sure_whoever_does_not_answer_or_may_come_back() -> None:
    async with a_world(5) as world:
        pages = await copied(world, 20)
        world.remove(0)
        holders = {key: world.closest(placement(key), b"")[0] for key in pages}
        silent = holders[pages[0]]
        world.down.add(silent)
        sought = await seek(world.all[1] if world.all[1].id != silent else world.all[2], CRAWL, pages, [node_id(0)])
        assert sorted(key for key, _ in sought.found) == sorted(key for key in pages if holders[key] != silent)
        assert sorted(sought.unsure) == sorted(key for key in pages if holders[key] == silent)
        assert sought.nowhere == []


async def test_a_node_that_leaves_lets_nothing_stand_in() -> None:
    """Its heir would get neither the copy nor the page; it is asked when it has them."""
    async with a_world() as world:
        (key,) = await copied(world, 1)
        world.remove(0)
        holder = world.nodes[world.closest(placement(key), b"")[0]]
        holder.leaves = True
        assert (await seek(world.all[1], CRAWL, [key])).unsure == [key]
        assert key in holder.copies()


async def test_of_those_who_took_what_a_node_left_its_heir_lets_it_stand_in() -> None:
    """One that was asked first and failed has rows of it, too; but what names the node that left leads to its heir."""
    async with a_world(5) as world:
        (key,) = await copied(world, 1)
        left, *others = world.closest(placement(key), world.all[0].id)
        failed, heir = world.nodes[others[0]], world.nodes[others[-1]]
        rows = {kind + CRAWL + key: world.nodes[left].engine.get(kind + CRAWL + key) for kind in keys.COPIES[:2]}
        for taker in (failed, heir):
            taker.engine.write(rows, sync=False)
        for number in (0, world.all.index(world.nodes[left])):
            world.remove(number)
        for adopted, found in (({}, []), ({left.hex(): heir.id.hex()}, [key])):
            world.record = replace(world.record, adopted=adopted)
            assert [each for each, _ in (await seek(failed, CRAWL, [key])).found] == found
        assert heir.page(key)["place"].node == left.hex()
        assert key in failed.copies()


async def test_what_came_of_a_node_that_left_to_another_is_no_copy_and_is_taken_anew() -> None:
    """It was killed before this one had all that it left, so its copy would never stand in here."""
    async with a_world(3) as world:
        (key,) = await copied(world, 1)
        author = world.all[0]
        left, failed = (world.nodes[each] for each in world.closest(placement(key), author.id))
        rows = {kind + CRAWL + key: left.engine.get(kind + CRAWL + key) for kind in keys.COPIES[:2]}
        failed.engine.write(rows, sync=False)
        world.remove(world.all.index(left))
        assert await author.copy(key, again=True) == {key: (failed.id,)}
        world.remove(0)
        place = found_in(await seek(failed, CRAWL, [key]))[key]
        assert place.node == failed.id.hex()
        assert place.file in failed.directory.files


async def test_who_is_far_from_the_key_is_not_waited_for() -> None:
    key = SPEC.key_of(url(1))
    number = int.from_bytes(placement(key), "big")
    near = [(number ^ n).to_bytes(KEY_BYTES, "big") for n in range(ASKED_MAX)]
    far = (number ^ 1 << 159).to_bytes(KEY_BYTES, "big")

    async with a_world(1) as world:
        world.view = View(Member(node, ("10.0.0.1", 1)) for node in near)
        for node in near:
            world.nodes[node] = world.all[0]
        assert (await seek(world.all[0], CRAWL, [key], [far])).nowhere == [key]
        world.view = View(world.view.members[1:])
        assert (await seek(world.all[0], CRAWL, [key], [far])).unsure == [key]


async def test_who_is_just_starting_anew_is_asked_too() -> None:
    async with a_world() as world:
        (key,) = await copied(world, 1)
        world.remove(0)
        (holder,) = world.closest(placement(key), b"")[:1]
        world.become(holder, MemberState.JOINING)
        assert found_in(await seek(world.all[1], CRAWL, [key]))[key].node == holder.hex()


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"found": 5},
        {"found": ((b"\1" * 20, ("ab" * 20, "x.warc.gz", 0, 5)),)},
        Refused("failed"),
    ],
    ids=str,
)
async def test_an_answer_that_makes_no_sense_is_none(answer: Any) -> None:
    async with a_world() as world:
        (key,) = await copied(world, 1)
        for node in world.all:
            node.handlers[STAND_IN] = lambda asker, args: answer
        assert (await seek(world.all[1], CRAWL, [key])).unsure == [key]


# Getting back to as many copies as the crawl wants


class Watched:
    """A node's watch, and what it goes by."""

    def __init__(self, world: CopyWorld, number: int = 0) -> None:
        self.world, self.node = world, world.all[number]
        self.counters = CrawlCounters()
        self.gone: dict[bytes, bytes | None] = {}  # who is given up, and who has what it had
        self.copier: Copier = self.node.copier
        self.watch = CopyWatch(
            self.node.committer,
            CRAWL,
            self.copier,
            self.counters,
            standing=self._standing,
            enough_nodes=lambda: len(world.view) > self.copier.further,
        )

    def _standing(self) -> Callable[[bytes], bytes | None]:
        gone = dict(self.gone)
        return lambda node: gone.get(node, node)

    async def fetch(self, count: int) -> list[bytes]:
        """Pages that have copies, as the end of each notes it."""
        pages = [await self.node.fetch(url(n)) for n in range(count)]
        found = await self.node.copy(*pages)
        for key, holders in found.items():
            write = partial(body_copies.put_holders, crawl=CRAWL, key=key, holders=holders)
            await self.node.committer.submit(write)
            self.counters.pages_undercopied += len(holders) < self.copier.further
        return pages

    def holders(self, key: bytes) -> list[bytes]:
        value = self.node.engine.get(keys.HOLDERS + CRAWL + key) or b""
        return [value[first : first + KEY_BYTES] for first in range(0, len(value), KEY_BYTES)]


async def while_watching(watched: Watched, seconds: float = 5.0) -> None:
    task = asyncio.create_task(watched.watch.run())
    await asyncio.sleep(seconds)
    task.cancel()


async def test_pages_whose_copies_are_gone_get_new_ones() -> None:
    async with a_world(5) as world:
        watched = Watched(world)
        pages = await watched.fetch(30)
        lost = [key for key in pages if watched.holders(key) == [node_id(2)]]
        assert lost
        world.remove(2)
        await while_watching(watched)
        assert all(watched.holders(key) == [node_id(2)] for key in lost), "it may come back"
        watched.gone[node_id(2)] = None
        watched.watch.holders_changed()
        await while_watching(watched)
        for key in lost:
            (holder,) = watched.holders(key)
            assert holder == world.closest(placement(key), node_id(0))[0]
            assert key in world.nodes[holder].copies()
        assert (watched.counters.pages_undercopied, watched.watch.under_way) == (0, 0)
        steps = watched.node.submitted
        await while_watching(watched, 100.0)
        assert watched.node.submitted == steps, "then it rests"


async def test_what_a_round_counts_while_copies_are_noted_is_not_lost() -> None:
    async with a_world(5) as world:
        watched = Watched(world)
        await watched.fetch(30)
        world.remove(2)
        watched.gone[node_id(2)] = None
        watched.watch.holders_changed()
        watching, rounds = asyncio.create_task(while_watching(watched)), 1000
        for _ in range(rounds):
            watched.counters.pages_undercopied += 1
            await asyncio.sleep(0.001)
        await watching
        assert watched.counters.pages_undercopied == rounds


async def test_copies_that_were_left_to_an_heir_count_and_those_left_to_us_do_not() -> None:
    async with a_world(5) as world:
        watched = Watched(world)
        pages = await watched.fetch(30)
        (of_two, of_three) = ([k for k in pages if watched.holders(k) == [node_id(n)]] for n in (2, 3))
        watched.gone = {node_id(2): node_id(4), node_id(3): None}  # three left to us: see `BodyCopies._standing`
        watched.watch.holders_changed()
        await while_watching(watched)
        assert all(watched.holders(key) == [node_id(2)] for key in of_two)
        assert all(watched.holders(key) != [node_id(0)] and watched.holders(key) for key in of_three)


async def test_a_swarm_that_was_too_small_catches_up_when_nodes_come() -> None:
    async with a_world(4, copies=3) as world:
        for number in (1, 2, 3):
            world.remove(number)
        watched = Watched(world)
        pages = await watched.fetch(10)
        assert watched.counters.pages_undercopied == 10
        world.down.clear()
        world.view = View(Member(node_id(n), ("10.0.0.1", n + 1)) for n in range(4))
        watched.watch.nodes_came()
        await while_watching(watched)
        assert all(len(watched.holders(key)) == 2 for key in pages)
        assert watched.counters.pages_undercopied == 0


async def test_a_disk_that_was_full_is_tried_again_after_a_while() -> None:
    async with a_world(2) as world:
        world.all[1].directory.free = 0
        watched = Watched(world)
        (key,) = await watched.fetch(1)
        await while_watching(watched, 200.0)
        assert (watched.holders(key), watched.counters.pages_undercopied) == ([], 1)
        world.all[1].directory.free = 1 << 40
        await while_watching(watched, 200.0)
        assert (watched.holders(key), watched.counters.pages_undercopied) == ([node_id(1)], 0)


async def test_where_all_is_well_nothing_is_read_or_asked() -> None:
    async with a_world() as world:
        watched = Watched(world)
        await watched.fetch(10)
        calls, groups = len(world.said), watched.node.groups
        watched.watch.nodes_came()
        await while_watching(watched, 1000.0)
        assert (len(world.said), watched.node.groups) == (calls, groups)


async def test_a_restart_goes_on_with_what_has_too_few() -> None:
    async with a_world(2) as world:
        world.all[1].directory.free = 0
        before = Watched(world)
        (key,) = await before.fetch(1)
        world.all[1].directory.free = 1 << 40
        await asyncio.sleep(100.0)
        after = Watched(world)
        after.counters.pages = 1
        after.counters.pages_undercopied = before.counters.pages_undercopied
        after.watch = CopyWatch(
            after.node.committer,
            CRAWL,
            after.copier,
            after.counters,
            standing=lambda: lambda node: node,
            enough_nodes=lambda: True,
        )
        await while_watching(after)
        assert after.holders(key) == [node_id(1)]


async def test_a_page_that_left_meanwhile_is_no_hold_up() -> None:
    async with a_world() as world:
        watched = Watched(world)
        (key,) = await watched.fetch(1)
        watched.node.engine.write({keys.PAGE + CRAWL + key: None}, sync=False)
        watched.gone = dict.fromkeys(watched.holders(key))
        watched.watch.holders_changed()
        await while_watching(watched)
        assert watched.counters.pages_undercopied == 1
