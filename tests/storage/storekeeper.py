"""A process that commits for ever and prints what it was told is safe; `test_kill_store.py` kills it."""

from __future__ import annotations

import asyncio
import itertools
import sys
from functools import partial
from pathlib import Path

from storage.stores import CRAWL, SPEC, archive_in, link, page
from storage.warcs import item

from dhtcrawl.storage.archive.archive import Archive
from dhtcrawl.storage.store import catalog, tasks
from dhtcrawl.storage.store.committer import GroupRunner, ThreadCommitter
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.files import DiskDirectory
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.storage.store.txn import Txn

BYTES_MAX = 20_000  # some ten exchanges a file
SIDE_BY_SIDE = 4


def url_of(number: int) -> str:
    return f"http://h{number % 7}.example/{number}"


def step(txn: Txn, number: int, orders: itertools.count[int], archive: Archive) -> None:
    """Accept two tasks, fetch one of them, settle the one before, and give up every fifth."""
    links: list[Link] = [link(url_of(number)), link(url_of(number + 1))]
    tasks.accept(txn, CRAWL, links, orders, depth_matters=False)
    body = b"<p>%d</p>" % number * 100
    place, digest = archive.append(item(url_of(number), body, number=number, spooled=number % 2 == 0))
    brought = page(url_of(number), links=[url_of(number + 1)], payload_digest=digest)
    tasks.fetched(txn, CRAWL, brought, place, 0)
    before = tasks.get_task(txn, CRAWL, SPEC.key_of(url_of(number - SIDE_BY_SIDE)))
    if before is not None and before.place is not None:
        tasks.settle(txn, CRAWL, SPEC.key_of(url_of(number - SIDE_BY_SIDE)))
    if number % 5 == 0:
        tasks.accept(txn, CRAWL, [link(url_of(number) + "/dead")], orders, depth_matters=False)
        tasks.kill(txn, CRAWL, SPEC.key_of(url_of(number) + "/dead"), "failed", "", 0)


async def main(directory: Path, first: int) -> None:
    runner = GroupRunner(LevelEngine(directory / "store"), sync=True)
    committer = ThreadCommitter(runner)
    await committer.submit(catalog.check_format)
    incarnation = await committer.submit(catalog.next_incarnation)
    archive = archive_in(DiskDirectory(directory / "archive"), bytes_max=BYTES_MAX, sync=True)
    await committer.submit(archive.recover)
    runner.participants.append(archive)
    numbers, orders = itertools.count(first), itertools.count(incarnation << 40)

    async def work() -> None:
        for number in numbers:
            await committer.submit(partial(step, number=number, orders=orders, archive=archive))
            print(number, flush=True)

    async with asyncio.TaskGroup() as group:
        for _ in range(SIDE_BY_SIDE):
            group.create_task(work())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
