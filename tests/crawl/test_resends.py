"""Pages whose links go out again; and fronts that are filled from the stored queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from storage.stores import CRAWL

from dhtcrawl.crawl import recovery
from dhtcrawl.crawl.frontier import FRONT_MAX
from dhtcrawl.crawl.refill import Refill
from dhtcrawl.crawl.resends import Resends
from dhtcrawl.crawl.single_node import PORTS, NoReplication
from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.records import Place, Task
from dhtcrawl.storage.store.tasks import FetchedPage, Link

from .fetch_world import SEED, SmallWeb

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"


async def resend(world: SmallWeb, page: bytes) -> int:
    """Look through one page; how often it was said that something may have changed."""
    times = 0

    def resent() -> None:
        nonlocal times
        times += 1

    resends = Resends(world.services, world.parts.start, world.parts.next_round, world.parts.discovery, None, resent)
    running = asyncio.create_task(resends.run())
    world.parts.next_round.resend([page])
    assert world.parts.next_round.resends.pending == 1
    await asyncio.sleep(1)
    running.cancel()
    return times


async def test_a_page_that_is_not_here_sends_nothing() -> None:
    world = SmallWeb({})
    assert await resend(world, b"x" * 20) == 1
    assert world.parts.next_round.resends.pending == 0
    assert world.parts.next_round.empty


async def resent(monkeypatch: pytest.MonkeyPatch, head: bytes, body: bytes, **fields: object) -> list[Link]:
    """The links of a page in the archive whose page record has `fields`."""
    world = SmallWeb({}, user_agent="MyBot/2")
    key = world.spec.key_of(SEED)
    fields = {"url": SEED, "status": 200, "depth": 0, "referrer": None, **fields}
    page = FetchedPage(key, 0, fields, b"", [])
    fetched: Any = partial(tasks.fetched, crawl=CRAWL, page=page, place=Place("ab" * 20, "f", 0, 9), attempt=0)
    await world.services.committer.submit(fetched)
    record: Any = SimpleNamespace(head=head, payload=body)
    stored = recovery.StoredPage(Task(SEED, 0, 1, ""), fields, record)
    monkeypatch.setattr(recovery, "read_page", lambda txn, **_: stored)
    assert await resend(world, key) == 1
    links = world.parts.next_round.outbox.take(10)
    world.parts.next_round.acked(links)
    round_ = world.handed_in()
    assert (list(round_.relinked), round_.done) == ([key], [key])
    assert round_.relinked[key].link_keys == b"".join(link.key for link in links)
    return links


async def test_a_page_is_looked_through_as_when_it_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    links = await resent(monkeypatch, HEAD, b'<a href="/x">x</a>')
    assert [link.url for link in links] == [f"{SEED}x"]


async def test_a_page_that_told_this_crawler_to_follow_nothing_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shy = b"<meta name=mybot content=nofollow>"
    assert await resent(monkeypatch, HEAD, shy + b'<a href="/x">x</a>') == []


@pytest.mark.parametrize(
    ("fields", "query"),
    [
        ({}, "%C3%A9"),  # a version that knew no charset of queries fetched it, and had them in UTF-8
        ({"query_charset": "windows-1252"}, "%E9"),
        ({"query_charset": "windows-1251"}, "%26%23233%3B"),  # as a version that takes the page for Russian had it
        *(({"query_charset": odd}, "%C3%A9") for odd in (None, 7, "", "rot13", "é")),
    ],
)
async def test_links_that_go_out_again_are_the_same_pages_as_before(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], query: str
) -> None:
    head = HEAD.replace(b"html", b"html; charset=latin1")
    links = await resent(monkeypatch, head, "<a href=?é>".encode("latin-1"), charset="windows-1252", **fields)
    assert [link.url for link in links] == [f"{SEED}?{query}"]


async def test_a_front_is_filled_from_the_store_host_by_host() -> None:
    world = SmallWeb({})
    links = [Link(world.spec.key_of(url), url, 1, SEED) for url in (f"{SEED}{n}" for n in range(3))]
    accept: Any = partial(tasks.accept, crawl=CRAWL, links=links, orders=world.parts.orders, depth_matters=False)
    await world.services.committer.submit(accept)
    world.frontier.distrust(world.clock.monotonic())
    told = asyncio.Event()
    refill = Refill(world.services, CRAWL, world.frontier, world.parts.due, told.set)
    running = asyncio.create_task(refill.run())
    for _ in range(2):  # the hosts first, then their tasks
        told.clear()
        refill.wanted()
        await told.wait()
    running.cancel()
    assert len(world.frontier) == len(links)
    assert not refill.busy


class NoBackups(NoReplication):
    """Nothing is ever safe."""

    def unsafe(self, key: bytes) -> bool:
        return True

    def when_kept(self, key: bytes, then: Callable[[], None]) -> bool:
        return True


async def test_a_queue_whose_head_waits_for_backups_is_read_again_after_a_pause() -> None:
    world = SmallWeb({}, PORTS._replace(replication=NoBackups()))
    links = [Link(world.spec.key_of(url), url, 1, SEED) for url in (f"{SEED}{n}" for n in range(FRONT_MAX + 1))]
    accept: Any = partial(tasks.accept, crawl=CRAWL, links=links, orders=world.parts.orders, depth_matters=False)
    await world.services.committer.submit(accept)
    world.frontier.distrust(world.clock.monotonic())
    passes = 0

    def refilled() -> None:
        nonlocal passes
        passes += 1
        assert passes < 100, "without a pause"
        if world.frontier.wants_refill:
            refill.wanted()

    refill = Refill(world.services, CRAWL, world.frontier, world.parts.due, refilled)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(refill.run())
        refill.wanted()
        await asyncio.sleep(1)
        assert 5 < passes < 15
        running.cancel()
