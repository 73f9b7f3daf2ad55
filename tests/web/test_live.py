"""What a node tells while it is watched: one sampling for all viewers, and none for nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from dhtcrawl.errors import StorageError
from dhtcrawl.web import live
from dhtcrawl.web.admin import serve
from dhtcrawl.web.api import ApiError
from dhtcrawl.web.live import LiveFigures

from .fake import CRAWL, NODE, TWIN, FakeNode
from .test_admin import LOCAL, Browser, browsing

ID = CRAWL.hex()
SOCKETS = pytest.mark.loops("asyncio")


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: Any


def events_in(text: bytes) -> list[Event]:
    found = []
    for block in text.decode("ascii").split("\n\n")[:-1]:
        name, data = block.split("\n")
        found.append(Event(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


class Viewer:
    """An open stream of events."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self._read = b""

    async def next(self, name: str) -> Any:
        """The data of the next event of that name, or None at the end; others before it are passed over."""
        while True:
            block, end, rest = self._read.partition(b"\n\n")
            if end:
                self._read = rest
                (event,) = events_in(block + end)
                if event.name == name:
                    return event.data
            else:
                more = await self.response.content.readany()
                if not more:
                    return None
                self._read += more


@asynccontextmanager
async def watching(browser: Browser, query: str = "", **headers: str) -> AsyncIterator[Viewer]:
    url = f"http://{LOCAL}:{browser.port}/api/v1/events{query}"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with browser.session.get(url, headers=named) as response:
        yield Viewer(response)


def times_asked(node: FakeNode, what: str) -> int:
    return sum(call[0] == what for call in node.asked)


# -- over a socket --


@SOCKETS
async def test_a_viewer_is_told_what_the_api_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_S", 0.01)
    node = FakeNode()
    async with browsing(node) as browser, watching(browser) as viewer:
        headers = viewer.response.headers
        assert (headers["Content-Type"], headers["Cache-Control"]) == ("text/event-stream; charset=utf-8", "no-store")
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        told = await viewer.next("swarm")
        for what in ("status", "peers", "crawls"):
            assert told[what] == (await browser("GET", f"/api/v1/{what}")).json
        node.known[CRAWL]["counters"]["pages"] = 4711
        while told["crawls"][0]["counters"]["pages"] != 4711:
            told = await viewer.next("swarm")


@SOCKETS
async def test_a_viewer_of_a_crawl_is_told_its_nodes_and_hosts_too() -> None:
    node = FakeNode()
    node.known[CRAWL]["spec"]["seeds"] = [f"http://{number}.example/" for number in range(1000)]
    node.known[CRAWL]["seeds_total"] = 1000
    rows = [{"node": f"{number:040x}", "state": "active"} for number in range(400)]
    rows[399]["state"] = "gone"
    node.known[CRAWL]["per_node"] = rows
    async with browsing(node) as browser, watching(browser, f"?crawl={ID[:8]}") as viewer:
        told = await viewer.next("crawl")
        assert told["hosts"] == (await browser("GET", f"/api/v1/crawls/{ID}/hosts")).json
        crawl = told["crawl"]
        assert (crawl["crawl"], crawl["seeds_total"], len(crawl["spec"]["seeds"])) == (ID, 1000, live.SEEDS_MAX)
        assert (crawl["nodes_total"], len(crawl["per_node"])) == (400, live.ROWS_MAX)
        assert crawl["per_node"][0]["state"] == "gone"
    assert ("hosts", CRAWL) in node.asked


@SOCKETS
async def test_a_crawl_that_the_node_does_not_know_is_told_as_an_error() -> None:
    async with browsing(FakeNode()) as browser:
        async with watching(browser, f"?crawl={'ff' * 16}") as viewer:
            assert "no crawl ffffffffffff here" in (await viewer.next("crawl"))["error"]
        for bad, status in (("zz", 400), ("ffff", 404)):
            assert (await browser("GET", f"/api/v1/events?crawl={bad}")).status == status


@SOCKETS
async def test_a_viewer_too_many_is_refused_until_another_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_S", 0.01)
    async with browsing(FakeNode()) as browser, AsyncExitStack() as others:
        for _ in range(live.VIEWERS_MAX - 1):
            await others.enter_async_context(watching(browser))
        async with watching(browser):
            answer = await browser("GET", "/api/v1/events")
            assert (answer.status, "16 browsers watch this node already" in answer.error) == (503, True)
        while True:  # the node sees that one has gone when it next writes to it
            async with watching(browser) as viewer:
                if viewer.response.status == 200:
                    assert await viewer.next("swarm")
                    return
            await asyncio.sleep(0.01)


@SOCKETS
async def test_head_of_the_events_has_their_headers_and_no_body_and_takes_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "VIEWERS_MAX", 1)
    node = FakeNode()
    async with browsing(node) as browser, watching(browser) as viewer:
        await viewer.next("swarm")
        asked = len(node.asked)
        reader, writer = await asyncio.open_connection(LOCAL, browser.port)
        writer.write(f"HEAD /api/v1/events?crawl={ID} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    assert head.splitlines()[0] == b"HTTP/1.1 200 OK"
    assert b"\r\nContent-Type: text/event-stream; charset=utf-8\r\n" in head
    assert (body, len(node.asked)) == (b"", asked)


@SOCKETS
async def test_a_viewer_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_S", 0.0)
    monkeypatch.setattr(live, "WRITE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(live, "VIEWERS_MAX", 1)
    node = FakeNode()
    node.known[CRAWL]["seeds"] = ["x" * (1 << 20)]
    async with browsing(node) as browser:
        _, writer = await asyncio.open_connection(LOCAL, browser.port, limit=1 << 10)
        writer.write(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while not node.asked:  # noqa: ASYNC110 - a fake has no event to wait for
            await asyncio.sleep(0.01)
        node.known[CRAWL]["seeds"] = []
        while True:
            async with watching(browser) as viewer:
                if viewer.response.status == 200:
                    break
            node.known[CRAWL]["seeds"] = ["x" * (1 << 20)]
            await asyncio.sleep(0.01)
        writer.transport.abort()


@SOCKETS
async def test_the_streams_end_with_a_word_when_the_node_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_S", 3600.0)
    async with asyncio.timeout(2), aiohttp.ClientSession() as session, AsyncExitStack() as viewers:
        async with serve(FakeNode(), LOCAL, 0) as (_, port):
            browser = Browser(session, port)
            open_ones = [await viewers.enter_async_context(watching(browser)) for _ in range(3)]
            for viewer in open_ones:
                assert await viewer.next("swarm")
        for viewer in open_ones:
            assert await viewer.next("end") == {"error": "the node has stopped"}
            assert await viewer.next("swarm") is None


@SOCKETS
@pytest.mark.parametrize(
    "headers", [{"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}, {"Origin": "http://evil.example"}]
)
async def test_a_page_of_another_site_may_not_take_a_viewers_place(headers: dict[str, str]) -> None:
    node = FakeNode()
    async with browsing(node) as browser, watching(browser, **headers) as viewer:
        assert viewer.response.status == 403
    assert node.asked == []


# -- the sampling, on a virtual clock --


async def test_one_sampling_a_second_serves_all_viewers_and_none_nobody() -> None:
    node = FakeNode()
    figures = LiveFigures(node)
    await asyncio.sleep(3600)
    assert node.asked == []

    async def look(crawl: bytes | None) -> None:
        seen = 0
        async with figures.viewing(crawl):
            for _ in range(10):
                sample = await figures.next(seen)
                assert sample.number > seen
                seen = sample.number

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(look(CRAWL))
            group.create_task(look(None))
    asked = {what: times_asked(node, what) for what in ("status", "peers", "crawls", "crawl", "hosts")}
    assert asked == dict.fromkeys(asked, 10)
    await asyncio.sleep(3600)
    assert times_asked(node, "status") == 10


async def test_a_sample_that_takes_long_serves_all_viewers_too() -> None:
    node = FakeNode()

    async def slow() -> list[dict[str, Any]]:
        await asyncio.sleep(4)  # a coordinator does not answer, say
        return []

    node.peers = slow  # type: ignore[method-assign]
    figures = LiveFigures(node)

    async def look() -> None:
        seen = 0
        async with figures.viewing(None):
            for _ in range(3):
                seen = (await figures.next(seen)).number

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(look())
    assert times_asked(node, "status") == 3


async def test_what_a_viewer_is_told_first_is_not_old() -> None:
    node = FakeNode()
    figures = LiveFigures(node)
    for pages in (7, 8):
        node.known[CRAWL]["counters"]["pages"] = pages
        async with figures.viewing(None):
            (told,) = events_in((await figures.next(0)).swarm)
        assert told.data["crawls"][0]["counters"]["pages"] == pages
        await asyncio.sleep(60)


async def test_a_node_that_cannot_tell_is_asked_again() -> None:
    node = FakeNode()
    figures = LiveFigures(node)
    async with figures.viewing(CRAWL):
        for error, says in ((ApiError(503, "later"), "later"), (StorageError("no disk"), "no disk")):
            node.error = error
            sample = await figures.next(0)
            (told,), (crawl,) = events_in(sample.swarm), events_in(sample.crawls[CRAWL])
            assert (told.name, told.data["error"], crawl.data["error"]) == ("trouble", says, says)
            await asyncio.sleep(2)
        node.error = None
        assert events_in((await figures.next(0)).swarm)[0].name == "swarm"


async def test_crawls_under_way_and_nodes_that_are_gone_are_among_those_told() -> None:
    node = FakeNode()
    node.known = {bytes(15) + bytes([n]): node.one(bytes(15) + bytes([n]), "ended", "complete") for n in range(250)}
    node.known[TWIN] = node.one(TWIN)
    peers = [{"node": f"{n:040x}", "address": "192.0.2.1:1", "state": "active", "self": False} for n in range(300)]
    peers += [{"node": NODE.hex(), "state": "active", "self": True}, {"node": "ff", "state": "gone", "self": False}]

    async def many() -> list[dict[str, Any]]:
        return peers

    node.peers = many  # type: ignore[method-assign]
    figures = LiveFigures(node)
    async with figures.viewing(None):
        (told,) = events_in((await figures.next(0)).swarm)
    assert [row["crawl"] for row in told.data["crawls"][:2]] == [TWIN.hex(), (bytes(15) + bytes([249])).hex()]
    assert [row["node"] for row in told.data["peers"][:2]] == [NODE.hex(), "ff"]
    assert (len(told.data["crawls"]), len(told.data["peers"]), told.data["peers_total"]) == (200, 200, 302)


async def test_of_a_plan_the_shares_of_those_nodes_are_told_that_are_shown() -> None:
    node = FakeNode()
    rows = [{"node": f"{n:040x}", "state": "active", "counters": {}} for n in range(300)]
    plan: dict[str, Any] = {
        "epoch": 4,
        "model": "net",
        "error": 0.03,
        "samples": 40,
        "shares": {row["node"]: 1 / 300 for row in rows},
    }
    node.known[CRAWL] |= {"per_node": rows[:-1], "plan": plan}
    figures = LiveFigures(node)
    async with figures.viewing(CRAWL):
        (told,) = events_in((await figures.next(0)).crawls[CRAWL])
    shown = told.data["crawl"]["plan"]
    assert shown["shares"].keys() == {row["node"] for row in told.data["crawl"]["per_node"]}
    assert (len(shown["shares"]), shown["model"], len(plan["shares"])) == (live.ROWS_MAX, "net", 300)


async def test_nothing_in_an_event_can_begin_another() -> None:
    (told,) = events_in(live.event("swarm", {"said": "a\n\nevent: end\r\ndata: {}\u2028\ud800"}))
    assert (told.name, list(told.data)) == ("swarm", ["said"])
