"""Sites that would hold up a crawl, on the virtual clock: what is theirs dies, the rest goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from dhtcrawl.config import Config, load
from dhtcrawl.crawl.services import Silent
from dhtcrawl.errors import Exit
from dhtcrawl.fetch.heads import request_head, response_head
from dhtcrawl.fetch.http import Body, Exchange, FetchFailure, FetchFailureKind, HttpRequest
from dhtcrawl.node.single import Ports, open_node
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.outputs.outputs import OutputDirs
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.url import host_of, path_of

Answer = tuple[int, dict[str, str], bytes] | FetchFailureKind


class ScriptedClient:
    """The web port, answered by a function; every request takes `latency_s` of virtual time."""

    def __init__(self, answer: Callable[[str], Answer], clock: VirtualClock, latency_s: float) -> None:
        self.asked: list[tuple[float, str]] = []
        self._answer = answer
        self._clock = clock
        self._latency_s = latency_s

    async def exchange(self, request: HttpRequest) -> Exchange | FetchFailure:
        started_at, fetched_at = self._clock.monotonic(), self._clock.wall()
        self.asked.append((started_at, request.url))
        await asyncio.sleep(self._latency_s)
        answer, ended_at = self._answer(request.url), self._clock.monotonic()
        if isinstance(answer, FetchFailureKind):
            return FetchFailure(answer, "as scripted", started_at, ended_at)
        status, headers, content = answer
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        return Exchange(
            request_head(path_of(request.url), (("Host", host_of(request.url)),)),
            response_head((1, 1), status, "", raw, len(content)),
            status,
            [(name.lower(), value) for name, value in headers.items()],
            Body(content),
            "11.0.0.1",
            started_at,
            ended_at,
            fetched_at,
        )

    async def close(self) -> None: ...


async def crawl(
    seeds: list[str], answer: Callable[[str], Answer], *, latency_s: float = 0.05, **settings: object
) -> tuple[Summary, Exit, list[tuple[float, str]]]:
    """A whole crawl; its summary, exit code, and when what was asked for."""
    config: Config = load(flags={key.replace("__", "."): value for key, value in settings.items()})

    async def offload(function: Callable[[], Any]) -> Any:
        return function()

    async def never() -> bool:
        return False

    clock = VirtualClock(asyncio.get_running_loop())
    client = ScriptedClient(answer, clock, latency_s)
    ports = Ports(
        clock, Random(1), client, MemoryEngine(), LoopCommitter, offload, offload, SimKey(b"n" * 20), Silent()
    )
    async with open_node(config, ports) as node:
        record = await node.create_crawl(make_spec(seeds, config.crawl))
        running = await node.prepare(record, OutputDirs.in_memory(), disk_used=never)
        summary, code = await running.run()
    return summary, code, client.asked


def page(*links: str) -> Answer:
    text = "".join(f'<a href="{link}">x</a>' for link in links)
    return 200, {"Content-Type": "text/html"}, f"<html>{text}".encode()


async def test_a_scheme_that_nobody_answers_does_not_take_the_other_with_it() -> None:
    def answer(url: str) -> Answer:
        if url.startswith("https://"):
            return FetchFailureKind.CONNECT
        links = ["https://a.test/secure", *(f"/{number}" for number in range(40))]
        return (404, {}, b"") if url.endswith("robots.txt") else page(*links)

    summary, code, _ = await crawl(["http://a.test/"], answer)
    assert (summary.pages, summary.skipped, code) == (41, {"failed": 1}, Exit.COMPLETE)


async def test_a_certificate_that_does_not_verify_is_not_asked_again() -> None:
    def answer(url: str) -> Answer:
        return FetchFailureKind.TLS

    summary, code, asked = await crawl(["https://a.test/"], answer)
    assert (len(asked), summary.skipped, code) == (1, {"failed": 1}, Exit.NOTHING_FETCHED)


async def test_robots_files_redirected_to_a_slow_host_leave_the_fetchers_free() -> None:
    def answer(url: str) -> Answer:
        host = host_of(url)
        if host == "slow.test":
            return 200, {"Content-Type": "text/plain"}, b"User-agent: *\nCrawl-delay: 60\n"
        if url.endswith("/robots.txt") and host != "honest.test":
            return 302, {"Location": f"http://slow.test/robots.txt?{host}"}, b""
        if url.endswith("/robots.txt"):
            return 404, {}, b""
        return page(*(f"/{number}" for number in range(20)))

    crowd = [f"http://crowd-{number}.test/" for number in range(40)]
    slow = ["http://slow.test/", *crowd, "http://honest.test/"]
    _, code, asked = await crawl(slow, answer, fetch__concurrency=4)
    honest = [at for at, url in asked if host_of(url) == "honest.test"]
    assert code is Exit.COMPLETE
    assert len(honest) == 22
    assert max(honest) < 120
    at_slow = sorted(at for at, url in asked if host_of(url) == "slow.test")
    assert min(later - earlier for earlier, later in pairwise(at_slow[1:])) >= 60


async def test_origins_that_share_a_robots_txt_ask_for_it_once() -> None:
    def answer(url: str) -> Answer:
        if url == "http://main.test/robots.txt":
            return 200, {"Content-Type": "text/plain"}, b"User-agent: *\nDisallow: /x\n"
        if url.endswith("/robots.txt"):
            return 301, {"Location": "http://main.test/robots.txt"}, b""
        return page("/x", "/y")

    seeds = ["http://main.test/", *(f"http://alias-{number}.test/" for number in range(5))]
    summary, _, asked = await crawl(seeds, answer)
    assert sum(url == "http://main.test/robots.txt" for _, url in asked) <= 2
    assert summary.skipped == {"robots": 6}
    assert summary.pages == 12


async def test_a_host_that_never_answers_its_pages_is_given_up() -> None:
    def answer(url: str) -> Answer:
        if url.endswith("/robots.txt"):
            return 404, {}, b""
        return page(*(f"/{number}" for number in range(1000))) if path_of(url) == "/" else FetchFailureKind.TIMEOUT

    summary, code, asked = await crawl(["http://a.test/"], answer, politeness__host_silences_max=20)
    assert (summary.skipped, code) == ({"failed": 1000}, Exit.COMPLETE)
    assert len({url for _, url in asked}) == 2 + 20


@pytest.mark.parametrize(
    "bad", [(503, {}, b""), (429, {}, b""), FetchFailureKind.TIMEOUT, FetchFailureKind.DISCONNECTED]
)
async def test_a_part_of_a_site_that_answers_nothing_useful_does_not_take_the_rest_with_it(bad: Answer) -> None:
    def answer(url: str) -> Answer:
        if url.endswith("/robots.txt"):
            return 404, {}, b""
        if path_of(url).startswith("/bad"):
            return bad
        return page(*(f"/bad/{number}" for number in range(19)), *(f"/{number}" for number in range(30)))

    summary, _, asked = await crawl(["http://a.test/"], answer, politeness__host_silences_max=20)
    assert len(asked) == 2 + 30 + 19 * (1 + Config().fetch.retries_max)
    assert summary.pages_ok == 1 + 30


async def test_a_host_that_is_busy_for_ever_is_given_up() -> None:
    def answer(url: str) -> Answer:
        if url.endswith("/robots.txt"):
            return 404, {}, b""
        return page(*(f"/{number}" for number in range(100))) if path_of(url) == "/" else (429, {}, b"")

    summary, _, asked = await crawl(["http://a.test/"], answer, politeness__host_silences_max=20)
    assert len({url for _, url in asked}) == 2 + 20
    assert summary.lost == 0
    assert summary.pages + summary.skipped["failed"] == 101


@pytest.mark.parametrize(("delay_s", "begins_at"), [(1.0, 30.0), (0.0, 0.16)])
async def test_an_outage_of_a_quarter_of_an_hour_loses_nothing(delay_s: float, begins_at: float) -> None:
    def flaky(now: Callable[[], float]) -> Callable[[str], Answer]:
        def answer(url: str) -> Answer:
            if begins_at < now() < begins_at + 15 * 60:
                return FetchFailureKind.CONNECT
            return (404, {}, b"") if url.endswith("robots.txt") else page(*(f"/{number}" for number in range(100)))

        return answer

    now = asyncio.get_running_loop().time
    summary, code, _ = await crawl(["http://a.test/"], flaky(now), crawl__delay_s=delay_s)
    assert now() > 15 * 60, "the outage was met"
    assert (summary.pages, summary.skipped, code) == (101, {}, Exit.COMPLETE)


async def test_a_page_limit_that_is_just_enough_is_no_limit() -> None:
    def answer(url: str) -> Answer:
        return (404, {}, b"") if url.endswith("robots.txt") else page(*(f"/{number}" for number in range(9)))

    summary, code, _ = await crawl(["http://a.test/"], answer, crawl__max_pages=10)
    assert (summary.pages, summary.complete, code) == (10, True, Exit.COMPLETE)
    summary, code, _ = await crawl(["http://a.test/"], answer, crawl__max_pages=9)
    assert (summary.pages, summary.complete, code) == (9, False, Exit.PAGE_LIMIT)
