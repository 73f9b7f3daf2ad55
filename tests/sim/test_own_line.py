"""A node whose own line is down for a while loses no page for it. On the virtual clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from dhtcrawl.config import load
from dhtcrawl.crawl.budget import Stop
from dhtcrawl.crawl.services import Silent
from dhtcrawl.fetch.http import FetchFailureKind
from dhtcrawl.fetch.own_line import AGAIN_S
from dhtcrawl.node.single import Ports, open_node
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.outputs.outputs import OutputDirs
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.store.memory import MemoryEngine

from .test_hostile import Answer, ScriptedClient, crawl, page

HOUR_S = 3_600.0
PAGES = 30  # of each site


def site(url: str) -> Answer:
    """Pages 1 to `PAGES` of a site, each of which leads to the next."""
    if url.endswith("/robots.txt"):
        return 404, {}, b""
    number = int(url.rpartition("/")[2] or 0)
    return page(f"/{number + 1}") if number < PAGES else page()


def while_up(answer: Callable[[str], Answer], from_s: float, to_s: float) -> Callable[[str], Answer]:
    """The same, but between these two moments of the virtual clock no host is reached."""

    def answer_now(url: str) -> Answer:
        down = from_s <= asyncio.get_running_loop().time() < to_s
        return FetchFailureKind.DNS if down else answer(url)

    return answer_now


@pytest.mark.parametrize("sites", [1, 8])
async def test_an_hour_without_a_line_costs_no_page_of_sites_that_were_under_way(sites: int) -> None:
    seeds = [f"http://{name}.test/" for name in "abcdefgh"[:sites]]
    start = asyncio.get_running_loop().time()
    answer = while_up(site, start + 10.0, start + 10.0 + HOUR_S)
    summary, _, asked = await crawl(seeds, answer, crawl__delay_s=1.0)
    assert (summary.pages, summary.skipped) == (len(seeds) * (PAGES + 1), {})
    times = Counter(url for _, url in asked)
    assert max(times.values()) <= HOUR_S / AGAIN_S + 5, "each host is tried again once a minute"


async def test_hosts_that_are_met_while_there_is_no_line_are_not_given_up() -> None:
    """A list of sites with one page each, of which some are dead: those are given up, and no other."""
    dead = {f"http://dead{number}.test/" for number in range(30)}
    seeds = [*(f"http://s{number}.test/" for number in range(400)), *sorted(dead)]
    Random(1).shuffle(seeds)

    def one_page(url: str) -> Answer:
        if any(url.startswith(each) for each in dead):
            return FetchFailureKind.DNS
        return (404, {}, b"") if url.endswith("/robots.txt") else page()

    start = asyncio.get_running_loop().time()
    answer = while_up(one_page, start + 1.0, start + 1.0 + HOUR_S)
    summary, _, asked = await crawl(seeds, answer, latency_s=0.2, fetch__concurrency=8)
    assert asked[-1][0] > start + HOUR_S
    assert (summary.pages, summary.skipped) == (400, {"failed": len(dead)})


async def test_a_crawl_of_which_only_dead_hosts_are_left_ends() -> None:
    def dying(url: str) -> Answer:
        if asyncio.get_running_loop().time() > died_at:
            return FetchFailureKind.CONNECT
        return site(url)

    start = asyncio.get_running_loop().time()
    died_at = start + 10.0
    summary, _, asked = await crawl(
        [f"http://{name}.test/" for name in "abcd"], dying, crawl__delay_s=1.0, politeness__line_wait_max_s=1_000.0
    )
    assert summary.skipped["failed"] == 4
    assert 1_000 < asked[-1][0] - start < 4_000


@pytest.mark.parametrize("hosts", [1, 5])
async def test_a_machine_that_starts_before_its_line_does_goes_on_where_it_was(hosts: int) -> None:
    """After a power cut a computer is up before the router is: the three tries that a new origin has take seconds."""
    seeds = [f"http://s{number}.test/" for number in range(hosts)]
    engine = MemoryEngine()
    up_at = [0.0]

    async def run(stop_after_s: float | None) -> Summary:
        config = load(flags={"crawl.delay_s": 1.0})

        async def offload(function: Callable[[], Any]) -> Any:
            return function()

        async def never() -> bool:
            return False

        def answer_now(url: str) -> Answer:
            return site(url) if clock.monotonic() >= up_at[0] else FetchFailureKind.DNS

        clock = VirtualClock(asyncio.get_running_loop())
        client = ScriptedClient(answer_now, clock, 0.05)
        ports = Ports(clock, Random(1), client, engine, LoopCommitter, offload, offload, SimKey(b"n" * 20), Silent())
        async with open_node(config, ports) as node:
            crawls = await node.crawls()
            record = crawls[0] if crawls else await node.create_crawl(make_spec(seeds, config.crawl))
            running = await node.prepare(record, dirs, disk_used=never)
            if stop_after_s is not None:
                asyncio.get_running_loop().call_later(stop_after_s, running.crawl.stop, Stop.INTERRUPTED)
            summary, _ = await running.run()
            return summary

    dirs = OutputDirs.in_memory()
    await run(8.0)
    up_at[0] = asyncio.get_running_loop().time() + 900.0
    summary = await run(None)
    assert (summary.pages, summary.skipped) == (hosts * (PAGES + 1), {})
