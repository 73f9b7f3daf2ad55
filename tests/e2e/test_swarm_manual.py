"""What a person does about a crawl, with real nodes: the list of what was given up, and nodes for one kind of work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .crawler import Crawler
from .deadline import until
from .outputs import Outputs
from .stub import Answer, StubServer
from .swarm import DEADLINE_S, Swarm, submitted

REFUSED = Answer(headers={"Content-Type": "text/html", "X-Padding": "x" * 70_000})  # a head of over 64 KiB
ONE_TRY = ["--set", "fetch.retries_max=0"]
PAGES = 30


def given_up(crawler: Crawler, admin: str, crawl: str) -> dict[str, dict[str, Any]]:
    """By path."""
    ran = crawler.run("crawls", crawl, "--manual", "--json", "--admin", admin).ended_with(0)
    (answer,) = json.loads(ran.stdout)
    assert not answer["silent"]
    return {"/" + row["url"].split("/", 3)[3]: row for row in answer["tasks"]}


def test_what_was_given_up_is_released_or_dropped_by_hand(
    tmp_path: Path, stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    bad = [f"/bad/{number}" for number in range(4)]
    stub.page("/", *bad)
    stub.answers |= dict.fromkeys(bad, REFUSED)
    with Swarm(tmp_path / "swarm", *ONE_TRY) as swarm:
        swarm.start(3)
        swarm.meet()
        asked, other, _ = swarm.nodes
        with submitted(crawler, asked, outputs, stub.url + "/", "--delay", "0") as crawl:
            crawl.finish(swarm, {"complete": True, "lost": 0, "pages": 1})
        listed = given_up(crawler, other.admin, crawl.id)
        assert sorted(listed) == bad, "any node has the list of all"
        assert all(row["detail"] for row in listed.values())

        stub.page(bad[0])
        stub.page(bad[1])
        decided = ["--release", stub.url + bad[0], "--drop", stub.url + bad[1]]
        crawler.run("crawls", crawl.id, *decided, "--admin", other.admin).ended_with(0)
        until(lambda: _pages(swarm, crawl.id) == 2, "the released one is there", DEADLINE_S)
        assert sorted(given_up(crawler, asked.admin, crawl.id)) == bad[2:]

        stub.page(bad[2])
        crawler.run("crawls", crawl.id, "--release", "all", "--admin", asked.admin).ended_with(0)
        until(lambda: _pages(swarm, crawl.id) == 3, "what can be had is there", DEADLINE_S)
        until(lambda: sorted(given_up(crawler, asked.admin, crawl.id)) == bad[3:], "one is given up again", DEADLINE_S)
        swarm.check()
    assert stub.paths().count(bad[1]) == 1, "what was dropped is not asked for"


def _pages(swarm: Swarm, crawl: str) -> int:
    return sum(node.counters(crawl).get("pages", 0) for node in swarm.nodes)


def test_only_nodes_of_a_type_fetch_where_the_crawl_names_one(
    tmp_path: Path, stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    stub.page("/", *(f"/{number}" for number in range(PAGES)))
    for number in range(PAGES):
        stub.page(f"/{number}")
    with Swarm(tmp_path / "swarm") as swarm:
        swarm.start(1)
        swarm.start(1, "--label", "type=meta")
        swarm.start(1, "--label", "type=other")
        swarm.meet()
        plain, meta, _ = swarm.nodes
        options = ["--delay", "0", "--policy", "dynamic", "--policy-option", "type=meta"]
        with submitted(crawler, plain, outputs, stub.url + "/", *options) as crawl:
            summary = crawl.finish(swarm)
        swarm.check()
    assert {row["node"]: row["pages"] for row in summary["per_node"] if row["pages"]} == {meta.id: PAGES + 1}
