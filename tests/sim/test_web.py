"""The seeded web: the same for everybody, a truth that a crawl can meet, and a memory for haste."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dhtcrawl.fetch.http import Exchange, FetchFailure, FetchFailureKind, HttpRequest, Limits, Truncated
from dhtcrawl.sim.loop import VirtualClock, run
from dhtcrawl.sim.machines import SimMachine
from dhtcrawl.sim.pages import DOWN_HOST, Pages, Response, WebShape
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import BYTES_PER_S, SimClient, SimWeb
from dhtcrawl.url import canonicalize, host_of
from sim import replay


def test_a_simple_crawl_finds_the_truth() -> None:
    crawl = run(replay.crawl())
    assert crawl.found == crawl.web.truth().keys()
    assert len(crawl.found) > 100


def test_a_polite_crawl_has_no_violations_and_a_hasty_one_has() -> None:
    crawl = run(replay.crawl(delay=1.0))
    assert crawl.web.violations(1.0) == []
    assert crawl.web.violations(1.1) != []


async def test_requests_side_by_side_are_a_violation() -> None:
    loop = asyncio.get_running_loop()
    web = SimWeb(1, WebShape(hosts=1, pages=3))
    client = SimClient(web, VirtualClock(loop))
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(client.exchange(HttpRequest("http://site-0.test/")))
    (violation,) = web.violations(0.0)
    assert violation.gap < 0


@pytest.mark.parametrize("waits", [True, False])
async def test_what_is_cut_short_on_the_line_of_the_client_has_brought_nothing(waits: bool) -> None:
    web = SimWeb(1, WebShape(hosts=1, pages=3))
    client = SimClient(web, VirtualClock(asyncio.get_running_loop()), machine=SimMachine(60.0, 1e12))
    for _ in range(2):
        request = asyncio.ensure_future(client.exchange(HttpRequest("http://site-0.test/")))
        await asyncio.wait([request], timeout=200.0 if waits else 30.0)
        request.cancel()
    assert web.refetched() == int(waits)


async def test_a_far_host_answers_later_and_a_silent_one_takes_all_the_time_that_a_connection_may() -> None:
    loop = asyncio.get_running_loop()
    web = SimWeb(1, WebShape(hosts=2, pages=4))
    clock = VirtualClock(loop)
    own = SimMachine(0.0, 1e12, {"site-1.test": None}, silent=True, away_s={"site-0.test": 3.0})
    request = HttpRequest("http://site-0.test/", limits=Limits(connect_s=7.0))
    near = await SimClient(web, clock).exchange(request)
    far = await SimClient(web, clock, machine=own).exchange(request)
    assert far.ended_at - far.started_at == pytest.approx(near.ended_at - near.started_at + 3.0)
    refused = await SimClient(web, clock, machine=own).exchange(request._replace(url="http://site-1.test/"))
    assert isinstance(refused, FetchFailure)
    assert refused.kind is FetchFailureKind.CONNECT
    assert refused.ended_at - refused.started_at == pytest.approx(7.0)


def test_the_trace_is_the_same_whatever_the_hash_seed() -> None:
    hashes = set()
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        output = subprocess.run(
            [sys.executable, str(Path(replay.__file__))], env=environment, capture_output=True, text=True, check=True
        )
        hashes.add(output.stdout.strip())
    assert hashes == {run(replay.crawl()).trace.hash}


def test_another_seed_is_another_web() -> None:
    assert run(replay.crawl(seed=4)).trace.hash != run(replay.crawl(seed=5)).trace.hash


@settings(max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 6), st.integers(0, 60))
@example(127, 1, 57)
def test_every_page_is_found_where_robots_do_not_matter(seed: int, hosts: int, pages: int) -> None:
    web = Pages(seed, WebShape(hosts=hosts, pages=pages))
    found = web.truth(obey_robots=False)
    assert len(found) == max(hosts, pages)
    assert {host_of(url) for url in found} == set(web.hosts)
    assert web.truth().keys() <= found.keys()
    for url in found:
        assert canonicalize(url) == url
        assert web.respond(url, 2).status == 200
        assert web.respond(url, 2) == Pages(seed, WebShape(hosts=hosts, pages=pages)).respond(url, 2)


@given(st.text(max_size=30))
def test_any_path_has_an_answer(path: str) -> None:
    url = canonicalize(path, "http://site-0.test/r/")
    if url is not None:
        assert Pages(1).respond(url).status in (200, 301, 404, 503)


def test_there_is_something_of_everything() -> None:
    web = Pages(1, WebShape(hosts=6, pages=600))
    responses = {url: web.respond(url) for url in web.truth(obey_robots=False)}
    types = {dict(response.headers).get("Content-Type") for response in responses.values()}
    assert {"text/html", "text/html; charset=iso-8859-1", "application/octet-stream"} <= types
    assert any(response.status == 503 for response in responses.values())
    assert any(web.latency(url) > 1 for url in responses)
    assert any(web.disallows(url) for url in responses)
    links = [link for host in web.hosts for number in range(20) for link in web.links_of(host, number)]
    assert {301, 404} <= {web.respond(link).status for link in links if host_of(link) != DOWN_HOST}
    across = sum(
        host_of(link) != host for host in web.hosts for number in range(20) for link in web.links_of(host, number)
    )
    assert 0.02 < across / len(links) < 0.2


def test_a_search_finds_words_in_the_charset_of_the_page_that_leads_to_it() -> None:
    web = Pages(1, WebShape(hosts=3, pages=200, searches=True))
    searches = [url for url in web.truth() if "/find?" in url]
    for word in ("Größe café".encode("latin-1"), "Привет мир".encode("cp1251"), "Größe · 大小".encode()):
        assert any(quote(word) in url for url in searches)
    assert len(searches) == len(set(map(canonicalize, searches))) > 20
    assert web.respond(f"http://site-0.test/find?w={quote('Привет мир')}&n=0").status == 404
    assert not any("/find?" in url for url in Pages(1, WebShape(hosts=3, pages=200)).truth())


def test_hosts_are_large_and_small() -> None:
    found = Pages(1, WebShape(hosts=10, pages=1000)).truth(obey_robots=False)
    sizes = sorted(
        (sum(host_of(url) == host for url in found) for host in {host_of(url) for url in found}), reverse=True
    )
    assert sum(sizes) == 1000
    assert 1.8 < sizes[0] / sizes[1] < 2.3


@pytest.mark.parametrize(
    ("limits", "truncated", "size"),
    [(Limits(), None, 10_000_000), (Limits(body_s=0.5), Truncated.TIME, BYTES_PER_S // 2)],
)
async def test_a_body_takes_its_time(limits: Limits, truncated: Truncated | None, size: int) -> None:
    class Large(SimWeb):
        def respond(self, url: str, attempt: int = 1) -> Response:
            return super().respond(url, attempt)._replace(body=b"x" * 10_000_000)

    web = Large(1)
    exchange = await SimClient(web, VirtualClock(asyncio.get_running_loop())).exchange(
        HttpRequest("http://site-0.test/", limits=limits)
    )
    assert isinstance(exchange, Exchange)
    assert (exchange.truncated, exchange.body.size) == (truncated, size)
    assert exchange.ended_at - exchange.started_at >= size / BYTES_PER_S


async def test_a_cancelled_request_has_an_end() -> None:
    web = SimWeb(1, WebShape(latency_s=10))
    client = SimClient(web, VirtualClock(asyncio.get_running_loop()))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await client.exchange(HttpRequest("http://site-0.test/"))
    assert web.visits[0].end == 1.0


async def test_a_host_that_is_down_refuses() -> None:
    client = SimClient(SimWeb(1), VirtualClock(asyncio.get_running_loop()))
    failure = await client.exchange(HttpRequest(f"http://{DOWN_HOST}/"))
    assert isinstance(failure, FetchFailure)
    assert failure.kind is FetchFailureKind.CONNECT


def test_a_trace_tells_order_time_and_fields_apart() -> None:
    now = 0.0

    def traced(*events: tuple[float, str, int]) -> Trace:
        nonlocal now
        trace = Trace(lambda: now, tail=2)
        for at, name, value in events:
            now = at
            trace.event(name, value=value)
        return trace

    base = traced((1.0, "a", 1), (2.0, "b", 2))
    assert base.hash == traced((1.0, "a", 1), (2.0 + 1e-9, "b", 2)).hash
    others = [
        traced((2.0, "b", 2), (1.0, "a", 1)),
        traced((1.0, "a", 1), (2.1, "b", 2)),
        traced((1.0, "a", 1), (2.0, "b", 3)),
        traced((1.0, "a", 1)),
    ]
    assert len({base.hash, *(other.hash for other in others)}) == 5
    assert traced((1.0, "a", 1), (2.0, "b", 2), (3.0, "c", 3)).lines() == ["2.000000 b value=2", "3.000000 c value=3"]


def test_a_trace_shows_what_was_around_the_first_mark_and_ids_by_their_beginning() -> None:
    trace = Trace(lambda: 1.0, tail=2)
    for number in range(3):
        trace.event("before", number=number)
    trace.mark("wrong")
    trace.mark("wrong again")
    trace.event("after", nodes=[bytes(20), b"\xff" * 20])
    trace.event("later")
    assert trace.lines() == [
        "1.000000 before number=1",
        "1.000000 before number=2",
        "1.000000 wrong",
        "1.000000 after nodes=[000000000000, ffffffffffff]",
    ]


def test_a_trace_refuses_what_has_no_order() -> None:
    with pytest.raises(TypeError):
        Trace(lambda: 0.0).event("a", value={1, 2})
