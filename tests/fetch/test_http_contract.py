"""What every web port must do, asked of both: sockets against a served `SimWeb`, and `SimClient`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from dhtcrawl.clock import SystemClock
from dhtcrawl.fetch.aiohttp_client import AiohttpClient
from dhtcrawl.fetch.http import Exchange, FetchFailure, FetchFailureKind, HttpClient, HttpRequest, Limits, Truncated
from dhtcrawl.fetch.resolver import NameFailure
from dhtcrawl.sim.loop import VirtualClock, VirtualLoop
from dhtcrawl.sim.pages import DOWN_HOST, WebShape
from dhtcrawl.sim.web import SimClient, SimWeb
from dhtcrawl.url import host_of, path_of

SEED = 11
HEADERS = (("User-Agent", "dhtcrawl/0.1"), ("Accept", "*/*"))
LIMITS = Limits(connect_s=20, head_s=20, body_s=20, idle_s=20)
# As the sockets' side serves the web on one port, its hosts carry that port.
Fetch = Callable[[HttpRequest], Awaitable[Exchange | FetchFailure]]
World = contextlib.AbstractAsyncContextManager[tuple[SimWeb, Fetch]]

# Commands run on uvloop.
pytestmark = pytest.mark.loops("asyncio", "uvloop", "virtual")


def a_web() -> SimWeb:
    return SimWeb(SEED, WebShape(hosts=3, pages=60, flaky=0.2))


class _Names:
    """Every host of the web is this machine."""

    async def addresses(self, name: str) -> list[str]:
        if name not in (*a_web().hosts, DOWN_HOST):
            raise NameFailure("the name does not resolve")
        return ["127.0.0.1"]

    def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def served(sim: SimWeb) -> AsyncIterator[int]:
    """The web behind a real server; slow pages never answer."""
    never = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        url = f"http://{request.host.partition(':')[0]}{request.raw_path}"
        _, response = sim.begin(url, 0.0)
        assert response is not None, "no connection breaks off"
        if sim.latency(url) > 1:
            await never.wait()
        return web.Response(status=response.status, headers=response.headers, body=response.body)

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        never.set()
        await runner.cleanup()


@contextlib.asynccontextmanager
async def on_sockets(directory: Path) -> AsyncIterator[tuple[SimWeb, Fetch]]:
    sim = a_web()
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        closed_port = unheard.getsockname()[1]
        async with served(sim) as port:
            client = AiohttpClient(SystemClock(), directory, connections_max=4, resolver=_Names())

            async def fetch(request: HttpRequest) -> Exchange | FetchFailure:
                host = host_of(request.url)
                if host.endswith(".test"):
                    host = f"{host}:{closed_port if host == DOWN_HOST else port}"
                    url = f"http://{host}{path_of(request.url)}"
                    request = request._replace(url=url, private_hosts=request.private_hosts | {host})
                return await client.exchange(request)

            try:
                yield sim, fetch
            finally:
                await client.close()


@contextlib.asynccontextmanager
async def on_a_seed() -> AsyncIterator[tuple[SimWeb, Fetch]]:
    sim = a_web()
    client: HttpClient = SimClient(sim, VirtualClock(asyncio.get_running_loop()))
    yield sim, client.exchange
    await client.close()


@pytest.fixture
async def world(tmp_path: Path) -> World:
    virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
    return on_a_seed() if virtual else on_sockets(tmp_path)


def quick(sim: SimWeb) -> list[str]:
    """URLs of every sort that answer soon."""
    root = f"http://{sim.hosts[0]}"
    urls = [*sorted(sim.truth(obey_robots=False)), *(f"http://{host}/robots.txt" for host in sim.hosts)]
    urls += [
        f"{root}/r/1",
        f"{root}/r/2",
        f"{root}/loop/a",
        f"{root}/missing/1.html",
        f"{root}/?",
        f"{root}/p/999.html",
    ]
    return [url for url in urls if sim.latency(url) < 1]


async def test_every_sort_of_url_is_answered_as_the_web_says(world: World) -> None:
    async with world as (sim, fetch):
        for url in quick(sim):
            for attempt in (1, 2):
                expected = sim.respond(url, attempt)
                exchange = await fetch(HttpRequest(url, HEADERS, LIMITS))
                assert isinstance(exchange, Exchange)
                assert exchange.status == expected.status
                assert b"".join(exchange.body.chunks()) == expected.body
                assert exchange.truncated is None
                for name, value in expected.headers:
                    assert exchange.header(name.lower()) == value
                assert exchange.header("content-length") == str(len(expected.body))


async def test_heads_are_those_of_a_get(world: World) -> None:
    async with world as (sim, fetch):
        exchange = await fetch(HttpRequest(f"http://{sim.hosts[1]}/?", HEADERS, LIMITS))
        assert isinstance(exchange, Exchange)
        line, host, *rest = exchange.request_head.split(b"\r\n")
        assert line == b"GET /? HTTP/1.1"
        assert host.startswith(f"Host: {sim.hosts[1]}".encode())
        assert rest == [b"User-Agent: dhtcrawl/0.1", b"Accept: */*", b"", b""]
        assert exchange.response_head.startswith(b"HTTP/1.1 404 Not Found\r\n")
        assert exchange.response_head.endswith(b"\r\n\r\n")
        assert f"Content-Length: {exchange.body.size}".encode() in exchange.response_head
        assert exchange.started_at <= exchange.ended_at
        assert exchange.fetched_at.utcoffset() is not None
        assert exchange.remote_ip.count(".") == 3


async def test_a_head_brings_the_head_alone_and_the_time_of_its_first_byte(world: World) -> None:
    async with world as (sim, fetch):
        url = f"http://{sim.hosts[1]}/robots.txt"
        for _ in range(2):
            exchange = await fetch(HttpRequest(url, HEADERS, LIMITS, method="HEAD"))
            assert isinstance(exchange, Exchange)
            assert exchange.request_head.startswith(b"HEAD /robots.txt HTTP/1.1\r\n")
            assert (exchange.status, exchange.body.size, exchange.truncated) == (sim.respond(url, 1).status, 0, None)
            assert 0 < exchange.first_byte_s <= exchange.ended_at - exchange.started_at
        page = await fetch(HttpRequest(sim.seeds()[0], HEADERS, LIMITS))
        assert isinstance(page, Exchange)
        assert page.body.size > 0, "the connection is none of HEADs alone"


async def test_a_body_past_the_limit_is_cut(world: World) -> None:
    async with world as (sim, fetch):
        url = sim.seeds()[0]
        exchange = await fetch(HttpRequest(url, limits=LIMITS._replace(body_bytes_max=100)))
        assert isinstance(exchange, Exchange)
        assert exchange.body.data == sim.respond(url).body[:100]
        assert exchange.truncated is Truncated.LENGTH
        assert b"\r\nContent-Length: 100\r\n" in exchange.response_head


async def test_no_head_in_time_is_a_timeout(world: World) -> None:
    async with world as (sim, fetch):
        slow = next(url for url in sorted(sim.truth(obey_robots=False)) if sim.latency(url) > 1)
        failure = await fetch(HttpRequest(slow, limits=LIMITS._replace(head_s=0.1)))
        assert isinstance(failure, FetchFailure)
        assert (failure.kind, failure.detail) == (FetchFailureKind.TIMEOUT, "no complete response head within 0.1 s")


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        (f"http://{DOWN_HOST}/", FetchFailureKind.CONNECT),
        ("http://unknown.example/", FetchFailureKind.DNS),
        ("http://127.0.0.1:1/", FetchFailureKind.PRIVATE_ADDRESS),
        ("http://[::1]/", FetchFailureKind.PRIVATE_ADDRESS),
        ("http://169.254.169.254/latest/", FetchFailureKind.PRIVATE_ADDRESS),
    ],
)
async def test_no_connection_is_a_failure(world: World, url: str, kind: FetchFailureKind) -> None:
    async with world as (_, fetch):
        failure = await fetch(HttpRequest(url, limits=LIMITS))
        assert isinstance(failure, FetchFailure)
        assert failure.kind is kind
        assert failure.detail
        assert failure.started_at <= failure.ended_at
