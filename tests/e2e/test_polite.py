"""Politeness as the server sees it: by its own log, with its own clock."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from .conftest import Serve
from .crawler import Crawler
from .outputs import Outputs
from .stub import Answer, StubServer

DELAY_S = 0.2
LOG_GRANULARITY_S = 0.005  # $msec and $request_time are each cut to the millisecond


@pytest.mark.needs_nginx
def test_no_request_begins_sooner_than_the_delay_after_the_last_byte_before(
    tmp_path: Path, serve: Serve, crawler: Crawler, outputs: Outputs
) -> None:
    site = tmp_path / "site"
    (site / "sub").mkdir(parents=True)
    (site / "robots.txt").write_text("User-agent: *\nDisallow: /private\n")
    links = [f"page{number}.html" for number in range(10)]
    anchors = "".join(f'<a href="{link}">' for link in [*links, "gone.html", "sub", "private.html"])
    (site / "index.html").write_text(anchors)
    for link in [*links, "sub/index.html", "private.html"]:
        (site / link).write_text('<a href="/index.html">')
    # The answer with a long body shows that the delay runs from its end (nginx
    # sends the first second's worth at once).
    (site / "page3.html").write_text(" " * 300_000)
    server = serve(site, extra="location = /page3.html { limit_rate 200k; }")

    seed = f"{server.url}/index.html"
    ran = crawler.run("crawl", seed, "--allow-private", "--delay", "0.2s", "--out", outputs.out, "--json")
    assert ran.ended_with(0).summary["politeness_violations"] == 0
    hits = server.hits()
    assert hits[0].uri == "/robots.txt"
    assert server.requests().keys() == {"/index.html", "/gone.html", "/sub", "/sub/", *(f"/{link}" for link in links)}
    slow = next(hit for hit in hits if hit.uri == "/page3.html")
    assert slow.took_s > 2 * LOG_GRANULARITY_S, "the long answer took no time: the test shows nothing"
    gaps = [(after.began_at - before.ended_at, after.uri) for before, after in pairwise(hits)]
    assert min(gaps)[0] >= DELAY_S - LOG_GRANULARITY_S, min(gaps)
    skipped = [(row["url"], row["reason"]) for row in outputs.skipped()]
    assert skipped == [(f"{server.url}/private.html", "robots")]


def test_a_server_that_asks_for_time_is_given_it(stub: StubServer, crawler: Crawler, outputs: Outputs) -> None:
    stub.page("/", "/busy", "/other")
    stub.page("/busy")
    stub.page("/other")
    page = stub.answers["/busy"]
    assert isinstance(page, Answer)
    stub.answers["/busy"] = [Answer(b"later", 503, {"Retry-After": "1"}), page]
    ran = crawler.run("crawl", f"{stub.url}/", "--allow-private", "--delay", "10ms", "--out", outputs.out, "--json")
    ran.ended_with(0)
    assert outputs.html().keys() == {"/", "/busy", "/other"}
    position = stub.paths().index("/busy") + 1  # after robots.txt
    refusal, after = stub.asked[position], stub.asked[position + 1]
    assert refusal.ended_at is not None
    # The wait is the host's: whatever is asked for next, it comes a second later.
    assert after.began_at - refusal.ended_at >= 0.99
    assert (ran.summary["lost"], ran.summary["refetches"]) == (0, 0)


def test_robots_that_forbid_everything_leave_nothing_to_fetch(
    stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    stub.answers["/robots.txt"] = Answer(b"User-agent: *\nDisallow: /\n", headers={"Content-Type": "text/plain"})
    stub.page("/")
    ended = crawler.run("crawl", f"{stub.url}/", "--allow-private", "--delay", "0", "--out", outputs.out).ended_with(9)
    assert "robots" in ended.one_line()
    assert stub.paths() == []
