"""What a host asked for is remembered over a crash."""

from __future__ import annotations

from itertools import pairwise

import pytest

from dhtcrawl.config import load
from dhtcrawl.sim.pages import Response, WebShape
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.sim.world import SimNode
from dhtcrawl.spec import make_spec

HOST = "site-0.test"


async def _visits_over_a_crash(web: SimWeb, crash_after_s: float) -> list[tuple[float, str]]:
    """When which URL was asked for, by a node that crashes once and goes on at once."""

    import asyncio

    trace = Trace(asyncio.get_running_loop().time)
    config = load(flags={"crawl.delay_s": 1.0})
    spec = make_spec([f"http://{HOST}/"], config.crawl)
    node = SimNode("node", 1, config, web, trace, commit_s=0.01)
    assert await node.crawl_until(spec, crash_after_s) is None
    await node.crawl(spec)
    return [(visit.start, visit.url) for visit in web.visits]


async def test_a_restart_waits_as_long_as_retry_after_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    web = SimWeb(1, WebShape(hosts=1, pages=3, flaky=0.0))
    real = web.respond
    busy = Response(503, [("Content-Type", "text/plain"), ("Retry-After", "600")], b"")

    def respond(url: str, attempt: int = 1) -> Response:
        return busy if url == f"http://{HOST}/" and attempt == 1 else real(url, attempt)

    monkeypatch.setattr(web, "respond", respond)
    visits = await _visits_over_a_crash(web, crash_after_s=20)
    starts = [start for start, _ in visits]
    assert visits[1][1] == f"http://{HOST}/"  # robots.txt was first
    assert starts[1] < 20
    assert starts[2] >= 20 + 600


async def test_a_restart_keeps_the_crawl_delay_before_it_has_read_robots_txt_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    web = SimWeb(1, WebShape(hosts=1, pages=3, flaky=0.0))
    real = web.respond
    rules = Response(200, [("Content-Type", "text/plain")], b"User-agent: *\nCrawl-delay: 30\n")

    def respond(url: str, attempt: int = 1) -> Response:
        return rules if url.endswith("/robots.txt") else real(url, attempt)

    monkeypatch.setattr(web, "respond", respond)
    visits = await _visits_over_a_crash(web, crash_after_s=35)
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(visits)]
    assert min(gaps) >= 30


async def test_a_host_that_answers_again_is_owed_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    web = SimWeb(1, WebShape(hosts=1, pages=5, flaky=0.0))
    real = web.respond
    busy = Response(503, [("Content-Type", "text/plain"), ("Retry-After", "60")], b"")

    def respond(url: str, attempt: int = 1) -> Response:
        return busy if url == f"http://{HOST}/" and attempt == 1 else real(url, attempt)

    monkeypatch.setattr(web, "respond", respond)
    visits = await _visits_over_a_crash(web, crash_after_s=63.5)
    after = [start for start, _ in visits if start > 63.5]
    assert after[0] < 63.5 + 5
