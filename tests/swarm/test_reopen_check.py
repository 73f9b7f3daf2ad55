"""A crawl that is said to be complete goes on at a node with work left, and no other does (I10)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest
from harness.bench import Bench
from storage.stores import CRAWL, SPEC, link, page

from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.crawl_record import COMPLETE, FAILED, RUNNING, STOPPED, CrawlRecord
from dhtcrawl.storage.store.records import Place
from dhtcrawl.swarm.lifecycle.reopen_check import ReopenCheck

URL = "http://a.example/1"


class Ended(Bench):
    """A node with a crawl that has ended, and what the check did about it."""

    def __init__(self, group: asyncio.TaskGroup, ended: str = COMPLETE) -> None:
        super().__init__()
        self.record: CrawlRecord | None = CrawlRecord(CRAWL, SPEC, b"", ended=ended)
        self.claims: Callable[[bytes], bool] = lambda key: True
        self.reopened: list[CrawlRecord] = []
        self.check = ReopenCheck(
            self.committer, group, over=lambda crawl: self.record, claims=lambda: self.claims, reopen=self._reopen
        )

    async def _reopen(self, record: CrawlRecord) -> None:
        self.reopened.append(record)

    async def queue(self) -> None:
        await self.committer.submit(
            lambda txn: tasks.accept(txn, CRAWL, [link(URL)], itertools.count(1), depth_matters=False)
        )

    async def fetch(self) -> None:
        place = Place("ab" * 20, "a.warc.gz", 0, 9)
        await self.committer.submit(lambda txn: tasks.fetched(txn, CRAWL, page(URL), place, 0))

    async def looked(self, times: int = 1) -> int:
        """How often the crawl was opened again after so many calls."""
        for _ in range(times):
            self.check.at(CRAWL)
        await asyncio.sleep(1.0)
        return len(self.reopened)


@pytest.mark.parametrize(("ended", "goes_on"), [(COMPLETE, 1), (FAILED, 1), (STOPPED, 0), ("page limit", 0), ("", 0)])
async def test_a_crawl_goes_on_unless_a_limit_or_a_user_ended_it(ended: str, goes_on: int) -> None:
    async with asyncio.TaskGroup() as group:
        node = Ended(group, ended)
        await node.queue()
        assert await node.looked() == goes_on
        assert [(each.state, each.ended) for each in node.reopened] == [(RUNNING, "")] * goes_on


async def test_a_crawl_without_work_here_stays_over() -> None:
    async with asyncio.TaskGroup() as group:
        node = Ended(group)
        assert await node.looked() == 0
        await node.queue()
        node.claims = lambda key: False
        assert await node.looked() == 0, "another node's"
        await node.fetch()
        assert await node.looked() == 1, "but its links are this node's to send"


async def test_calls_before_a_check_count_as_one_and_one_after_it_as_another() -> None:
    async with asyncio.TaskGroup() as group:
        node = Ended(group)
        await node.queue()
        assert await node.looked(times=3) == 1
        assert await node.looked() == 2


async def test_a_crawl_that_is_forgotten_or_opened_meanwhile_is_not_opened_by_the_check() -> None:
    async with asyncio.TaskGroup() as group:
        node = Ended(group)
        await node.queue()
        node.check.at(CRAWL)
        node.record = None
        await asyncio.sleep(1.0)
        assert node.reopened == []
        node.check.at(CRAWL)
        await asyncio.sleep(1.0)
        assert node.reopened == []
