"""The progress line of a crawl by one node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from sim.test_hostile import Answer, ScriptedClient, page

from dhtcrawl.cli.progress import CrawlProgress
from dhtcrawl.config import load
from dhtcrawl.crawl.services import Silent
from dhtcrawl.node.single import Ports, open_node
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.sim.loop import VirtualClock, run
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.outputs.outputs import OutputDirs
from dhtcrawl.storage.store.memory import MemoryEngine


async def crawl_shown(max_pages: int) -> None:
    """Crawl a site without an end, and show it."""
    config = load(flags={"crawl.delay_s": 0.0, "crawl.max_pages": max_pages})

    async def offload(function: Callable[[], Any]) -> Any:
        return function()

    async def never() -> bool:
        return False

    def answer(url: str) -> Answer:
        return (404, {}, b"") if url.endswith("robots.txt") else page(f"{url}1", f"{url}2")

    clock = VirtualClock(asyncio.get_running_loop())
    client = ScriptedClient(answer, clock, 0.05)
    slow_disk = partial(LoopCommitter, latency_s=25.0)
    key = SimKey(b"n" * 20)
    ports = Ports(clock, Random(1), client, MemoryEngine(), slow_disk, offload, offload, key, Silent())
    async with open_node(config, ports) as node:
        record = await node.create_crawl(make_spec(["http://a.test/"], config.crawl))
        running = await node.prepare(record, OutputDirs.in_memory(), disk_used=never)
        with CrawlProgress(running, resumed=False, sync=True) as progress:
            async with asyncio.TaskGroup() as group:
                ticking = group.create_task(progress.tick())
                await running.run()
                ticking.cancel()


def test_the_outputs_are_said_to_be_written_before_and_after_the_crawl(capsys: pytest.CaptureFixture[str]) -> None:
    run(crawl_shown(max_pages=4))
    lines = capsys.readouterr().err.splitlines()[1:]
    writing = [line.endswith("writing the outputs") for line in lines]
    assert (writing[0], writing[-1], all(writing)) == (True, True, False)
    assert lines[0].startswith("0.0 s  0 pages"), "the crawl has not begun"
    assert "4 pages" in lines[-1]
