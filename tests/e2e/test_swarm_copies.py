"""`--copies 2` with real processes: a disk that is gone in the middle of a crawl takes next to nothing along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .archive import assert_valid
from .conftest import Serve, ServeSlowly
from .crawler import Crawler
from .outputs import Outputs
from .sites import SMALL, START
from .swarm import CLEAN, Swarm, bodies_of, submitted
from .test_real_sites import describe
from .truth import truth_of

SITE = SMALL
IN_FLIGHT = 4  # pages a node has under way at most
OPTIONS = ["--delay", "0", "--copies", "2"]
NOTHING_TWICE = CLEAN | {"refetches": 0, "copies": 2, "pages_undercopied": 0}

pytestmark = pytest.mark.needs_nginx


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    options = ["--set", f"fetch.open_pages_max={IN_FLIGHT}", "--set", "swarm.holder_grace_s=3s"]
    with Swarm(tmp_path / "swarm", "--concurrency", str(IN_FLIGHT), *options) as swarm:
        swarm.start(4)
        swarm.meet()
        yield swarm
        swarm.check()


@pytest.mark.parametrize("how", ["its disk is lost", "it never comes back"])
def test_what_a_lost_disk_held_is_not_fetched_again(
    how: str, swarm: Swarm, serve_slowly: ServeSlowly, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve_slowly(SITE, 100)
    lost = swarm.nodes[1]
    with submitted(crawler, swarm.nodes[-1], outputs, server.url + START, *OPTIONS) as crawl:
        crawl.reach(server, 250)
        lost.kill()
        had = {url.removeprefix(server.url) for url in bodies_of(lost, crawl.id)} - {"/robots.txt"}
        if how == "its disk is lost":
            lost.lose_disk()
            swarm.restart(lost)
        server.open()
        summary = crawl.finish(swarm, NOTHING_TWICE)
    assert len(had) > 5 * IN_FLIGHT, "it had much to lose"
    asked, truth = server.requests(), truth_of(SITE.root, START, SITE.encoding)
    again = {uri: count - 1 for uri, count in asked.items() if count > 1}
    assert sum(again.values()) <= IN_FLIGHT, again
    assert asked.keys() == truth.requests, describe(asked.keys(), truth.requests)
    html = outputs.html()
    assert html.keys() == truth.pages.keys(), describe(html.keys(), truth.pages.keys())
    assert summary["pages"] == len(outputs.pages())
    fetched_by = {row["node"] for row in outputs.pages()}
    assert len(fetched_by) >= 4, "what the lost one fetched still says so"
    assert_valid(outputs.warcs())
    crawler.check(outputs.out)


def test_a_collection_has_each_body_once_and_no_file_of_copies(
    serve: Serve, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve(SITE)
    nodes = ("--nodes", "3", "--json", "--out", outputs.out)
    ran = crawler.run("crawl", server.url + START, "--allow-private", *OPTIONS, *nodes).ended_with(0)
    assert {name: ran.summary[name] for name in NOTHING_TWICE} == NOTHING_TWICE
    assert max(server.requests().values()) == 1
    assert not [path.name for path in outputs.warcs() if path.name.rpartition("-")[2][0] == "c"]
    crawler.check(outputs.out)


def test_a_node_by_itself_says_that_there_are_no_copies(serve: Serve, crawler: Crawler, outputs: Outputs) -> None:
    server = serve(SITE)
    ran = crawler.run(
        "crawl", server.url + START, "--allow-private", *OPTIONS, "--max-pages", "5", "--json", "--out", outputs.out
    ).ended_with(21)
    assert (ran.summary["copies"], ran.summary["pages_undercopied"]) == (2, ran.summary["pages"])


@pytest.mark.parametrize(("copies", "remedy"), [("0", "use 1 or more"), ("17", "use 16 or less"), ("two", "whole")])
def test_a_number_of_copies_that_makes_no_sense_is_refused(copies: str, remedy: str, crawler: Crawler) -> None:
    line = crawler.run("submit", "http://127.0.0.1/", "--copies", copies).ended_with(2).one_line()
    assert "--copies" in line
    assert remedy in line
