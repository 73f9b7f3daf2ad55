"""What may be under way on a node at once, whatever its backups do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dhtcrawl.config import FetchSettings
from dhtcrawl.crawl.crawler import Crawl
from dhtcrawl.crawl.places import OpenPages, PlaceLimits
from dhtcrawl.crawl.single_node import PORTS, NoReplication, SoleBudget
from dhtcrawl.fetch.robots import Robots
from dhtcrawl.storage.store.records import Place
from dhtcrawl.storage.store.replicas import TaskReplica

from .fetch_world import SEED, SmallWeb

CONCURRENCY, PAGES_MAX = 4, 10


class SilentBackups(NoReplication):
    """Records are safe at once; tombstones when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def keep(self, copies: Sequence[TaskReplica], then: Callable[[], None], *, over: bool = False) -> None:
        if over:
            self.waiting.append(then)
        else:
            then()

    def answer(self) -> None:
        """They have all tombstones that were sent so far."""
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then()


class Swarming:
    """A crawl of many pages on a node whose backups are silent."""

    def __init__(self, pages: int, *, delay_s: float = 0.0, size: int = 1) -> None:
        self.backups = SilentBackups()
        urls = [f"{SEED}{number}" for number in range(pages)]
        body = b"x" * size
        web = self.web = SmallWeb(
            {url: (200, {}, body) for url in urls}, PORTS._replace(replication=self.backups), delay_s=delay_s
        )
        web.services.archive.append = lambda item: (Place("ab" * 20, "a.warc.gz", 0, 1), "")  # type: ignore[method-assign]
        web.parts.robots.put("http://a.example", Robots.parse(b""))
        for url in urls:
            web.add(url)
        fetch = FetchSettings(concurrency=CONCURRENCY, open_pages_max=PAGES_MAX)
        services = web.services._replace(config=replace(web.services.config, fetch=fetch))
        self.crawl = Crawl(services, web.parts, web.assignment, SoleBudget(0, web.parts.counters), disk_used=no)

    @contextlib.asynccontextmanager
    async def running(self) -> Any:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.crawl.run())
            yield
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def no() -> bool:
    return False


def open_pages(*sizes: int) -> OpenPages:
    found = OpenPages()
    for number, size in enumerate(sizes):
        found.add(bytes([number]), size)
    return found


@pytest.mark.parametrize(
    ("requests", "unwritten", "sizes", "free"),
    [
        (3, 0, [], True),
        (4, 0, [], False),
        (3, 1, [1], False),  # not on disk here: decision 0008
        (3, 0, [1] * 6, True),  # on disk here: they hold no request's place
        (3, 0, [1] * 7, False),
        (0, 0, [99], True),
        (0, 0, [60, 40], False),
    ],
)
def test_pages_on_disk_hold_no_place_of_a_request_but_are_bounded_in_number_and_bytes(
    requests: int, unwritten: int, sizes: list[int], free: bool
) -> None:
    assert PlaceLimits(CONCURRENCY, PAGES_MAX, 100).free(requests, unwritten, open_pages(*sizes)) is free


def test_a_page_that_came_twice_counts_once_and_one_that_is_not_open_may_be_closed() -> None:
    found = open_pages(5, 7)
    found.add(b"\x00", 9)
    assert (len(found), found.body_bytes, list(found)) == (2, 16, [b"\x00", b"\x01"])
    found.close(b"\x00")
    found.close(b"\x00")
    assert (len(found), found.body_bytes, b"\x01" in found) == (1, 7, True)


async def test_silent_backups_stop_no_fetch_before_the_bound_is_reached_and_every_fetch_then() -> None:
    swarm = Swarming(100)
    async with swarm.running():
        await asyncio.sleep(60)
        assert len(swarm.web.asked) == PAGES_MAX, "more than the requests that may be under way, and no more than these"
        assert len(swarm.web.parts.open_tasks()) == PAGES_MAX, "what a newcomer is told, and a crash repeats"
        swarm.backups.answer()
        await asyncio.sleep(60)
        assert len(swarm.web.asked) == 2 * PAGES_MAX, "the next ones start as soon as the backups have answered"


async def test_a_host_is_asked_one_request_at_a_time_however_many_pages_are_open() -> None:
    swarm = Swarming(100, delay_s=2.0)
    async with swarm.running():
        await asyncio.sleep(10.5)
        assert len(swarm.web.asked) == 5, "from 2 s on one every 2.1 s: the delay follows the end of each"
