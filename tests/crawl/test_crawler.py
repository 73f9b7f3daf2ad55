"""How a crawl ends when it is told to, whatever its parts still do."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any, cast

from dhtcrawl.crawl.crawler import Crawl


async def test_a_crawl_that_is_cancelled_starts_nothing_while_its_parts_end() -> None:
    """`balanced` under random seed 21: links were being accepted, and there was something to start for a fetcher that
    had ended."""

    async with asyncio.TaskGroup() as group:
        ending: list[bool] = []

        async def part() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ending.append(crawl._stage.ending)

        async def nothing() -> None: ...

        runs = SimpleNamespace(run=part)
        crawl: Any = SimpleNamespace(
            _s=SimpleNamespace(config=SimpleNamespace(fetch=SimpleNamespace(concurrency=2))),
            parts=SimpleNamespace(writer=runs, intake=runs),
            _refill=runs,
            _resends=runs,
            _work=part,
            _watch_limits=part,
            _begin=nothing,
            _stage=SimpleNamespace(ended=asyncio.Event(), ending=False),
        )
        running = group.create_task(Crawl._run(cast(Any, crawl)))
        await asyncio.sleep(1)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        assert ending == [True] * 7
