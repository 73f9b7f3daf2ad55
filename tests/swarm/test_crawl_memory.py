"""What was heard of nodes that are gone is known where a crawl that has ended goes on."""

from __future__ import annotations

import dataclasses

from storage.stores import SPEC

from dhtcrawl.storage.store.crawl_record import RUNNING, CrawlRecord, changed, with_settings
from dhtcrawl.swarm.calls.lifecycle import CrawlStanding, GoneRow
from dhtcrawl.swarm.lifecycle.crawl_memory import KEPT_MAX, CrawlMemories
from swarm.fake_peers import node
from swarm.story import Story, a_world

CRAWL = SPEC.crawl_id(bytes(16))
A, B = node(0), node(1)


def report(pages: int) -> CrawlStanding:
    return CrawlStanding(1, True, True, 0, bytes(16), bytes(8), 0, {}, {"pages": pages}, None)


def test_the_next_run_has_what_the_last_one_heard() -> None:
    memories = CrawlMemories()
    first = memories.of(CRAWL)
    first.book.put(A, (1, 1, 5))
    first.roll.heard(A, report(5), 0.0)
    again = memories.of(CRAWL)
    assert again is first
    assert again.book.total == 5
    assert again.roll.totals([B])["pages"] == 5
    assert memories.of(bytes(16)).book.total == 0


def test_what_a_coordinator_tells_later_of_a_node_that_is_gone_counts_in_the_next_run() -> None:
    memories = CrawlMemories()
    memories.of(CRAWL).roll.heard(A, report(5), 10.0)
    roll = memories.of(CRAWL).roll
    roll.hear_of([GoneRow(A, 60_000, {"pages": 3})], 20.0)
    assert roll.totals([B])["pages"] == 5, "that was heard before"
    roll.hear_of([GoneRow(A, 1_000, {"pages": 8})], 20.0)
    assert roll.totals([B])["pages"] == 8


def test_of_many_crawls_those_that_ran_last_are_kept() -> None:
    memories = CrawlMemories()
    crawls = [number.to_bytes(16, "big") for number in range(KEPT_MAX + 1)]
    for crawl in crawls[:-1]:
        memories.of(crawl).book.put(A, (1, 1, 5))
    memories.of(crawls[0])
    memories.of(crawls[-1])
    assert [memories.of(crawl).book.total for crawl in (crawls[0], crawls[1])] == [5, 0]


async def test_a_crawl_that_goes_on_after_an_end_counts_the_pages_of_a_node_that_left() -> None:
    async with a_world(pages=600, nodes=4) as world:
        settings = dataclasses.replace(world.spec.settings, max_pages=100)
        crawl = await world.crawl(dataclasses.replace(world.spec, settings=settings))
        await world.until(lambda: len(world.web.visits) > 50)
        await world.hosts.pop(2).leave()
        await world.until(lambda: all(world.ended(crawl, at) for at in range(3)))
        record = record_of(world, crawl)
        assert (record.ended, record.totals["pages"]) == ("page limit", 100)
        before = pages_of(world)
        assert before < 100, "the node that left had some"
        raised = with_settings(record, dataclasses.replace(record.settings, max_pages=150))
        await world.hosts[0].swarm.crawls.publish(changed(raised, RUNNING))  # type: ignore[union-attr]
        await world.until(lambda: all(world.ended(crawl, at) for at in range(3)))
        record = record_of(world, crawl)
        assert (record.ended, record.totals["pages"]) == ("page limit", 150)
        assert pages_of(world) - before == 50


def record_of(world: Story, crawl: bytes) -> CrawlRecord:
    swarm = world.hosts[0].swarm
    assert swarm is not None
    record = swarm.crawls.get(crawl)
    assert record is not None
    return record


def pages_of(world: Story) -> int:
    """How many pages the nodes that are there have fetched."""
    swarms = [host.swarm for host in world.hosts if host.swarm is not None]
    return sum(counters.pages for swarm in swarms for counters in swarm.runs.counters)
