"""Brings a crawl in line with its depth limit, if that was ever changed, as its run begins.

    pages that owe their links   are marked, and sent again as after a crash (`dhtcrawl.storage.store.depth_limits`)
    tasks beyond a lower limit   are given up when their turn comes (`dhtcrawl.crawl.fetcher`)
    tasks within a higher one    that were given up so are opened again: by a node alone here, in a swarm by the owners
                                 (`dhtcrawl.swarm.lifecycle.scope_growth`)

A limit that changes while a run goes on ends the run, and the next one begins within it: so there is one way for both.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from dhtcrawl.crawl.rounds import CrawlStart
from dhtcrawl.crawl.services import Services
from dhtcrawl.storage.store import depth_limits, given_up
from dhtcrawl.storage.store.depth_limits import OwedStep, reaches
from dhtcrawl.storage.store.given_up import GivenUp, OpenedAgain

log = logging.getLogger(__name__)

PAGES_A_STEP = 500
TASKS_A_STEP = 2_000


async def mark_owing(services: Services, start: CrawlStart, begun: int) -> None:
    """Mark the pages here that owe their links; `begun` is the limit that the crawl began with.

    Raises:
        StorageError: the store cannot be read or written.
    """
    limit, owing, cursor = start.spec.settings.depth, 0, b""
    mark: Any = partial(depth_limits.owe_links, crawl=start.crawl_id, begun=begun, limit=limit, pages_max=PAGES_A_STEP)
    step: OwedStep = await services.committer.submit(partial(mark, cursor=cursor))
    while step.cursor is not None:
        owing += step.owing
        step = await services.committer.submit(partial(mark, cursor=step.cursor))
    owing += step.owing
    if owing:
        crawl, text = start.crawl_id.hex(), "crawl %s: %d pages send their links, as its depth limit has changed"
        log.info(text, crawl[:12], owing, extra={"crawl": crawl})


async def open_again(services: Services, start: CrawlStart) -> None:
    """Open tasks again, at a node that is alone, that were given up beyond a limit and lie within the present one.

    Raises:
        StorageError: the store cannot be read or written.
    """
    crawl, now = start.crawl_id, services.ports.ownership.snapshot()
    cursor: bytes | None = b""
    while cursor is not None:
        read: Any = partial(
            given_up.died_too_deep, crawl=crawl, cursor=cursor, scanned_max=TASKS_A_STEP, found_max=TASKS_A_STEP,
            mine=now.mine,
        )  # fmt: skip
        found: list[GivenUp]
        found, cursor = await services.committer.submit(read)
        reached = [task.key for task in found if reaches(start.spec.settings.depth, task.depth)]
        if reached:
            write: Any = partial(given_up.reach, crawl=crawl, task_keys=reached, mine=now.mine, held=now.held)
            again: OpenedAgain = await services.committer.submit(write)
            start.counters.heard(again.counted)
