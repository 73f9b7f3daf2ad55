"""Many names whose bodies drip beside one good host: the good one is finished while they still drip."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fetch.raw_server import Peer, page, serving

from dhtcrawl.clock import Clock, SystemClock
from dhtcrawl.config import load
from dhtcrawl.crawl.services import Silent
from dhtcrawl.errors import Exit
from dhtcrawl.fetch.aiohttp_client import AiohttpClient
from dhtcrawl.fetch.heads import request_head, response_head
from dhtcrawl.fetch.http import Body, Exchange, FetchFailure, HttpClient, HttpRequest, Truncated
from dhtcrawl.node.single import Ports, RunningCrawl, open_node
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.outputs.outputs import OutputDirs
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.url import host_of, path_of

PAGES = 5
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
LINKS = "".join(f'<a href="/{number}">x</a>' for number in range(1, PAGES)).encode()


class Watch:
    """What was asked and what was over when the last page of the good host was sent."""

    def __init__(self) -> None:
        self.good_pages = 0
        self.drips_begun = 0
        self.drips_over = 0
        self.good_done = asyncio.Event()
        self.over_then: int | None = None

    def good_page(self) -> None:
        self.good_pages += 1
        if self.good_pages == PAGES:
            self.over_then = self.drips_over
            self.good_done.set()


class DrippingWeb:
    """The web port: names of `drip` hosts answer with a body that is cut after half a minute, the others at once."""

    def __init__(self, clock: VirtualClock, watch: Watch, drip_address: str) -> None:
        self._clock = clock
        self._watch = watch
        self._drip_address = drip_address

    async def exchange(self, request: HttpRequest) -> Exchange | FetchFailure:
        started_at, fetched_at = self._clock.monotonic(), self._clock.wall()
        drips = "drip" in host_of(request.url)
        await asyncio.sleep(0.1)
        robots, content, truncated = request.url.endswith("/robots.txt"), LINKS, None
        if drips and not robots:
            self._watch.drips_begun += 1
            await asyncio.sleep(30.0)
            content, truncated = b"......", Truncated.SLOW
            self._watch.drips_over += 1
        elif not robots:
            self._watch.good_page()
        status = 404 if robots else 200
        raw = [(b"Content-Type", b"text/html")]
        return Exchange(
            request_head(path_of(request.url), (("Host", host_of(request.url)),)),
            response_head((1, 1), status, "", raw, len(content)),
            status,
            [("content-type", "text/html")],
            Body(content),
            self._drip_address if drips else "11.0.0.2",
            started_at,
            self._clock.monotonic(),
            fetched_at,
            truncated,
        )

    async def close(self) -> None: ...


async def prepared(node: Any, seeds: list[str], settings: Any, dirs: OutputDirs) -> RunningCrawl:
    async def never() -> bool:
        return False

    record = await node.create_crawl(make_spec(seeds, settings))
    running: RunningCrawl = await node.prepare(record, dirs, disk_used=never)
    return running


def ports_of(clock: Clock, http: HttpClient) -> Ports:
    async def offload(function: Any) -> Any:
        return function()

    return Ports(clock, Random(1), http, MemoryEngine(), LoopCommitter, offload, offload, SimKey(b"n" * 20), Silent())


@pytest.mark.parametrize("names", ["one domain", "one address"])
async def test_a_good_host_is_finished_while_forty_names_drip(names: str) -> None:
    clock, watch = VirtualClock(asyncio.get_running_loop()), Watch()
    domain = "n{}.drip.test" if names == "one domain" else "drip{}.test"
    seeds = [f"http://{domain.format(number)}/" for number in range(40)]
    config, dirs = load(flags={}), OutputDirs.in_memory()
    async with open_node(config, ports_of(clock, DrippingWeb(clock, watch, "11.0.0.1"))) as node:
        running = await prepared(node, [*seeds, "http://good.test/"], config.crawl, dirs)
        summary, code = await running.run()
    assert watch.over_then == 0
    assert watch.drips_begun == 40
    assert (summary.pages, code) == (40 + PAGES, Exit.COMPLETE)
    lines = [json.loads(line) for name in dirs.pages.names() for line in dirs.pages.read(name, 0, 1 << 20).splitlines()]
    errors = {line["url"]: line["error"] for line in lines}
    assert errors[seeds[0]] == "truncated: slow"
    assert errors["http://good.test/"] is None


async def test_a_good_host_of_another_crawl_on_the_node_is_finished_while_a_site_drips() -> None:
    clock, watch = VirtualClock(asyncio.get_running_loop()), Watch()
    config, web = load(flags={}), DrippingWeb(clock, watch, "11.0.0.1")
    places = asyncio.Semaphore(config.fetch.concurrency)  # as the client's connections: of all crawls together
    exchange = web.exchange

    async def in_turn(request: HttpRequest) -> Exchange | FetchFailure:
        async with places:
            return await exchange(request)

    web.exchange = in_turn  # type: ignore[method-assign]
    async with open_node(config, ports_of(clock, web)) as node, asyncio.TaskGroup() as group:
        drips = [f"http://n{number}.drip.test/" for number in range(200)]
        good = await prepared(node, ["http://good.test/"], config.crawl, OutputDirs.in_memory())
        bad = await prepared(node, drips, config.crawl, OutputDirs.in_memory())
        dripping = group.create_task(bad.run())
        summary, _ = await good.run()
        assert not dripping.done()
        assert (summary.pages, watch.over_then) == (PAGES, 0)
        await dripping


class Names:
    """Every name is on this machine."""

    async def addresses(self, name: str) -> list[str]:
        return ["127.0.0.1"]

    def close(self) -> None: ...


@pytest.mark.loops("asyncio")
async def test_on_sockets_too_a_good_host_is_finished_while_forty_names_drip(tmp_path: Path) -> None:
    watch = Watch()

    def answers(peer: Peer) -> None:
        if b"Host: good." in peer.request_head:
            peer.send(page(LINKS, b"Content-Type: text/html"))
            watch.good_page()
            return
        watch.drips_begun += 1
        peer.closed.add_done_callback(lambda _: setattr(watch, "drips_over", watch.drips_over + 1))
        peer.send(HEAD + b"\r\n.")  # and no more while this test lasts

    async with serving(answers) as server:
        seeds = [f"http://n{number}.drip.test:{server.port}/" for number in range(40)]
        seeds.append(f"http://good.test:{server.port}/")
        flags = {"crawl.delay_s": 0.01, "crawl.ignore_robots": True, "crawl.allow_private": True}
        config = load(flags={**flags, "node.drain_timeout_s": 0.01})
        clock = SystemClock()
        http = AiohttpClient(clock, tmp_path, connections_max=config.fetch.concurrency, resolver=Names())
        async with open_node(config, ports_of(clock, http)) as node:
            running = await prepared(node, seeds, config.crawl, OutputDirs.in_memory())
            task = asyncio.create_task(running.run())
            async with asyncio.timeout(30.0):  # it would wait for a place for ever
                await watch.good_done.wait()
            over, begun = watch.drips_over, watch.drips_begun
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert over == 0
    assert 0 < begun < config.fetch.concurrency, "one place was kept free"
