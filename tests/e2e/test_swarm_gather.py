"""`submit --wait --out` that is interrupted, and `gather` while the crawl runs, after its end, and again."""

from __future__ import annotations

import signal

import pytest

from .conftest import ServeSlowly
from .crawler import Crawler
from .deadline import until
from .outputs import Outputs
from .sites import SMALL, START
from .swarm import ASK_EVERY_S, CLEAN, DEADLINE_S, Swarm, submitted
from .test_swarm_churn import assert_whole
from .truth import truth_of

pytestmark = pytest.mark.needs_nginx


def test_whoever_stops_waiting_has_all_pages_later_and_none_is_fetched_again(
    swarm: Swarm, serve_slowly: ServeSlowly, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve_slowly(SMALL, 100)
    swarm.start(3)
    swarm.meet()
    through = swarm.nodes[-1]
    with submitted(crawler, through, outputs, server.url + START, "--delay", "0") as crawl:
        crawl.reach(server, 150)
        server.hold()
        crawl.running.send(signal.SIGINT)
        interrupted = crawl.running.wait()
    assert interrupted.code == 11, interrupted
    assert f"dhtcrawl gather {crawl.id[:12]} --out {outputs.out}" in interrupted.stderr
    gather = ["gather", crawl.id[:12], "--out", str(outputs.out), "--json", "--admin", through.admin]

    so_far = crawler.run(*gather).ended_with(0).summary
    assert so_far["complete"] is False
    assert so_far["pages"] >= 100
    crawler.check(outputs.out)

    server.open()
    until(lambda: through.ask(f"crawls/{crawl.id}")["state"] == "ended", "the crawl ends", DEADLINE_S, ASK_EVERY_S)
    whole = crawler.run(*gather).ended_with(0).summary
    assert {key: whole[key] for key in CLEAN} == CLEAN
    assert whole["pages"] == len(truth_of(SMALL.root, START, SMALL.encoding).requests)
    assert not assert_whole(server, crawl, crawler)

    before = {path: path.read_bytes() for path in outputs.out.rglob("*") if path.is_file()}
    assert crawler.run(*gather).ended_with(0).summary == whole
    assert {path: path.read_bytes() for path in before} == before
