"""What a person does about a crawl, with real nodes: the list of what was given up, and nodes for one kind of work."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dhtcrawl.keyspace import distance, url_key

from .crawler import Crawler
from .deadline import until
from .outputs import Outputs
from .stub import Answer, StubServer
from .swarm import DEADLINE_S, Node, Swarm, submitted

REFUSED = Answer(headers={"Content-Type": "text/html", "X-Padding": "x" * 70_000})  # a head of over 64 KiB
ONE_TRY = ["--set", "fetch.retries_max=0"]
PAGES = 30
HASTY = """
from dataclasses import replace

from dhtcrawl.policy.dynamic import Dynamic


class Hasty(Dynamic):
    \"\"\"For which a second without a page is a minute.\"\"\"

    recall_idle_s = 1.0

    def terms(self, node, host):
        return replace(super().terms(node, host), idle_s=1.0)
"""


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


def _owned_by(node: Node, swarm: Swarm, stub: StubServer) -> str:
    """A path that a node owns."""
    ids = {each.id: bytes.fromhex(each.id) for each in swarm.nodes}

    def owner(path: str) -> str:
        return min(ids, key=lambda each: distance(ids[each], url_key(stub.url + path)))

    return next(path for number in itertools.count() if owner(path := f"/{number}") == node.id)


def _pages(swarm: Swarm, crawl: str) -> int:
    return sum(node.counters(crawl).get("pages", 0) for node in swarm.nodes)


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """Three nodes, of which the second alone is of the type `meta`; it makes one request at a time."""
    home = tmp_path_factory.mktemp("typed")
    for number in range(3):
        (home / f"node{number}").mkdir()
        (home / f"node{number}" / "hasty.py").write_text(HASTY)
    with Swarm(home, "--allow-policy", "hasty:Hasty") as swarm:
        swarm.start(1)
        swarm.start(1, "--label", "type=meta", "--concurrency", "1", "--set", "fetch.idle_timeout_s=120")
        swarm.start(1, "--label", "type=other")
        swarm.meet()
        yield swarm


def test_only_nodes_of_a_type_fetch_where_the_crawl_names_one(
    typed: Swarm, stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    stub.page("/", *(f"/{number}" for number in range(PAGES)))
    for number in range(PAGES):
        stub.page(f"/{number}")
    plain, meta, _ = typed.nodes
    options = ["--delay", "0", "--policy", "dynamic", "--policy-option", "type=meta"]
    with submitted(crawler, plain, outputs, stub.url + "/", *options) as crawl:
        summary = crawl.finish(typed)
    typed.check()
    assert {row["node"]: row["pages"] for row in summary["per_node"] if row["pages"]} == {meta.id: PAGES + 1}


def test_what_its_only_node_takes_and_never_begins_is_a_persons_after_five_recalls_and_kill_9(
    typed: Swarm, stub: StubServer, crawler: Crawler, outputs: Outputs
) -> None:
    plain, meta, other = typed.nodes
    # What it owns itself is not lent to it: most likely that one is begun first, and keeps its only fetcher.
    own, *lent = (_owned_by(node, typed, stub) for node in (meta, plain, other))
    taken = [own, *lent]
    stub.page("/", *taken)
    stub.answers |= dict.fromkeys(taken, Answer(b"<p>", headers={"Content-Type": "text/html"}, holds=True))
    options = ["--delay", "0", "--policy", "hasty:Hasty", "--policy-option", "type=meta"]
    with submitted(crawler, other, outputs, stub.url + "/", *options) as crawl:
        until(lambda: not set(taken).isdisjoint(stub.paths()), "one is begun", DEADLINE_S)
        (begun,) = set(taken) & set(stub.paths())
        left = sorted(set(lent) - {begun})
        until(lambda: sorted(given_up(crawler, other.admin, crawl.id)) == left, "a person's", DEADLINE_S, 1.0)
        plain.kill()
        typed.restart(plain)
        plain.ready()
        typed.meet()
        listed = given_up(crawler, plain.admin, crawl.id)
        assert sorted(listed) == left
        for path, row in listed.items():
            assert row["detail"] == f"taken and not begun, recalled from: {meta.id[:8]} (5)"
            why = crawler.run("why", stub.url + path, "--admin", plain.admin).ended_with(0).stdout
            assert "recalled: nodes took it and did not begin it in time" in why
        stub.release()
        pages, recalled = 4 - len(left), {"recalled": len(left)}
        summary = crawl.finish(typed, {"complete": True, "lost": 0, "pages": pages, "skipped": recalled})
        assert {row["url"]: row["reason"] for row in outputs.skipped()} == {
            stub.url + path: "recalled" for path in listed
        }
        assert summary["errors"] == 0
        crawler.run("crawls", crawl.id, "--release", "all", "--admin", other.admin).ended_with(0)
        until(lambda: _pages(typed, crawl.id) == 4, "what was released is there", DEADLINE_S)
        assert given_up(crawler, other.admin, crawl.id) == {}
    typed.check()
