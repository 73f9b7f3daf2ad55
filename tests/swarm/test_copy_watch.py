"""Pages with too few copies are offered again, for as long as there are nodes that could take them (I11)."""

from __future__ import annotations

import asyncio
from functools import partial

from storage.stores import CRAWL

from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.swarm.bodies.copy_watch import AGAIN_S, CopyWatch

from .copy_world import COPY, CopyNode, a_world


def _itself(holder: bytes) -> bytes:
    return holder


def watching(node: CopyNode, counters: CrawlCounters, *, enough: bool = True) -> CopyWatch:
    return CopyWatch(
        node.committer, CRAWL, node.copier, counters, standing=lambda: _itself, enough_nodes=lambda: enough
    )


async def fetched_without_copy(node: CopyNode, counters: CrawlCounters) -> bytes:
    """A page that is done with no copy, as no other node answered; as a round writes it."""
    page = await node.fetch("http://a.example/1")
    assert await node.copy(page) == {page: ()}
    note = partial(body_copies.note_holders, crawl=CRAWL, key=page, holders=(), wanted=1)
    counters.pages_undercopied += await node.committer.submit(note)
    return page


async def test_pages_with_too_few_copies_are_offered_again_though_no_node_comes_or_goes() -> None:
    counters = CrawlCounters()
    async with a_world(2) as world, asyncio.TaskGroup() as group:
        here, there = world.all
        watch = watching(here, counters)
        running = group.create_task(watch.run())
        await asyncio.sleep(1.0)
        world.down.add(there.id)
        page = await fetched_without_copy(here, counters)
        assert counters.pages_undercopied == 1
        world.down.clear()
        await asyncio.sleep(AGAIN_S + 1.0)
        assert list(there.copies()) == [page]
        assert (counters.pages_undercopied, watch.under_way) == (0, 0)
        asked = len(world.copied())
        await asyncio.sleep(3 * AGAIN_S)
        assert len(world.args(COPY)) == asked, "it has enough copies"
        running.cancel()


async def test_where_there_are_not_enough_nodes_nothing_is_offered() -> None:
    counters = CrawlCounters()
    async with a_world(2) as world, asyncio.TaskGroup() as group:
        here, there = world.all
        running = group.create_task(watching(here, counters, enough=False).run())
        world.down.add(there.id)
        await fetched_without_copy(here, counters)
        world.down.clear()
        asked = len(world.copied())
        await asyncio.sleep(3 * AGAIN_S)
        assert (len(world.copied()), counters.pages_undercopied) == (asked, 1)
        running.cancel()
