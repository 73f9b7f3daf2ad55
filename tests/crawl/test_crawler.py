"""How a crawl counts, and how it ends when it is told to, whatever its parts still do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from storage.stores import CRAWL

from dhtcrawl.crawl import recovery
from dhtcrawl.crawl.budget import Stop
from dhtcrawl.crawl.crawler import LIMITS_EVERY_S, Crawl
from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.crawl.single_node import SoleBudget
from dhtcrawl.errors import StorageFull
from dhtcrawl.fetch.politeness import HoldReason
from dhtcrawl.storage.store import keys, tasks
from dhtcrawl.storage.store.records import Place, Task
from dhtcrawl.storage.store.tasks import FetchedPage, Link
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.url import host_of

from .fetch_world import SEED, SmallWeb

HELD = HoldReason("retry-after", "429")


def small_web() -> SmallWeb:
    """Its only host wants to be left alone for a minute."""
    web = SmallWeb({})
    web.services.hosts.clock(host_of(SEED)).hold(web.clock.monotonic(), 60.0, HELD)
    web.add(SEED)
    return web


async def never() -> bool:
    await asyncio.Event().wait()
    return False


def ends_late(web: SmallWeb, looked: asyncio.Event) -> Callable[[], Awaitable[bool]]:
    """What a crawl asks of its disk, and is never told; once that ends there is something to start."""

    async def disk_used() -> bool:
        looked.set()
        try:
            return await never()
        finally:
            web.add("http://b.example/")
            web.parts.changed()

    return disk_used


async def test_a_crawl_that_is_cancelled_starts_nothing_while_its_parts_end() -> None:
    """`balanced` under random seed 21: links were being accepted, and there was something to start for a fetcher that
    had ended."""
    web = small_web()
    looked = asyncio.Event()

    budget, disk_used = SoleBudget(0, web.parts.counters), ends_late(web, looked)
    crawl = Crawl(web.services, web.parts, web.assignment, budget, disk_used=disk_used)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(crawl.run())
        await looked.wait()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert web.asked == []
    assert len(web.frontier) == 2, "both are known, and wait"


async def test_a_crawl_whose_disk_fails_tells_that_whatever_its_parts_find_while_they_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Random seed 6622: the fetchers were cancelled before the crawl itself was."""
    web = small_web()
    looked, full = asyncio.Event(), asyncio.Event()

    async def fails() -> None:
        await full.wait()
        raise StorageFull("the disk is full")

    monkeypatch.setattr(web.parts.writer, "run", fails)
    budget, disk_used = SoleBudget(0, web.parts.counters), ends_late(web, looked)
    crawl = Crawl(web.services, web.parts, web.assignment, budget, disk_used=disk_used)
    running = asyncio.ensure_future(crawl.run())
    await looked.wait()
    full.set()
    with pytest.raises(ExceptionGroup) as raised:
        await running
    assert list(map(type, raised.value.exceptions)) == [StorageFull]
    assert web.asked == []


async def test_impolite_requests_are_those_that_the_node_counted_while_the_crawl_ran_and_those_of_earlier_runs() -> (
    None
):
    web = small_web()
    gate: Any = SimpleNamespace(exceptions=7)
    counters = web.parts.counters
    counters.politeness_exceptions, counters.politeness_violations = 3, 1
    services, budget = web.services._replace(gate=gate), SoleBudget(0, counters)
    crawl = Crawl(services, web.parts, web.assignment, budget, disk_used=never)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(crawl.run())
        gate.exceptions += 2
        await asyncio.sleep(1.5 * LIMITS_EVERY_S)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert (counters.politeness_exceptions, counters.politeness_violations) == (5, 1)


async def test_seeds_count_as_queued_from_the_start_and_once_however_often_the_crawl_begins_again() -> None:
    web = small_web()
    for _ in range(2):
        looked = asyncio.Event()

        async def disk_used(looked: asyncio.Event = looked) -> bool:
            looked.set()
            return await never()

        crawl = Crawl(web.services, web.parts, web.assignment, SoleBudget(0, web.parts.counters), disk_used=disk_used)
        running = asyncio.ensure_future(crawl.run())
        await looked.wait()
        assert crawl.counters.queued == 1
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    stored = web.engine.get(keys.key(keys.COUNTERS, CRAWL))
    assert CrawlCounters.unpack(stored).queued == 1


@pytest.mark.parametrize(("link", "stopped"), [(SEED, None), (f"{SEED}x", Stop.PAGE_LIMIT)])
async def test_a_crawl_that_was_killed_at_its_page_limit_sends_the_links_of_its_last_page_before_it_ends(
    monkeypatch: pytest.MonkeyPatch, link: str, stopped: Stop | None
) -> None:
    web = SmallWeb({}, max_pages=1)
    web.frontier.distrust(web.clock.monotonic())  # as at the start, the stored queues have to be looked through
    key, fields = web.spec.key_of(SEED), {"url": SEED, "status": 200, "depth": 0, "referrer": None}

    def killed(txn: Txn) -> None:
        tasks.seed(txn, CRAWL, [Link(key, SEED, 0, "", 0, True)], web.parts.orders, 0)
        tasks.fetched(txn, CRAWL, FetchedPage(key, 0, fields, b"", []), Place("ab" * 20, "f", 0, 9), 0)

    await web.services.committer.submit(killed)
    web.parts.counters.pages = 1
    head, body = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", f"<a href={link}>".encode()
    record: Any = SimpleNamespace(head=head, payload=body)
    stored = recovery.StoredPage(Task(SEED, 0, 1, ""), fields, record)
    monkeypatch.setattr(recovery, "read_page", lambda txn, **_: stored)

    async def offload(function: Callable[[], Any]) -> Any:
        await asyncio.sleep(0.01)
        return function()

    async def disk_used() -> bool:
        return False

    services, budget = web.services._replace(offload=offload), SoleBudget(1, web.parts.counters)
    crawl = Crawl(services, web.parts, web.assignment, budget, disk_used=disk_used)
    await crawl.run()
    assert crawl.stopped is stopped
    assert await services.committer.submit(lambda txn: tasks.unsettled(txn, CRAWL, 9)) == []
    task = await services.committer.submit(lambda txn: tasks.get_task(txn, CRAWL, web.spec.key_of(link)))
    assert task is not None, "the page limit is why it is not fetched, if it is not"
