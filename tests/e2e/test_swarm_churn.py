"""Nodes die, come back, join and leave in the middle of a crawl: it ends whole, and asks for next to nothing twice.

The middle is a number of requests, not a time: the server answers slowly until
what was to happen has happened.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .archive import assert_valid
from .conftest import ServeSlowly
from .crawler import Crawler
from .deadline import until
from .nginx import Nginx
from .outputs import Outputs
from .sites import SMALL, START
from .swarm import ASK_EVERY_S, CLEAN, DEADLINE_S, IN_FLIGHT, Node, Swarm, SwarmCrawl, bodies_of, submitted
from .test_real_sites import describe
from .truth import truth_of

SITE = SMALL
DELAY = ["--delay", "0"]
NOTHING_TWICE = CLEAN | {"refetches": 0}
GRACE = ["--set", "swarm.holder_grace_s=3s"]

pytestmark = pytest.mark.needs_nginx


def test_two_of_five_die_and_come_back_and_nothing_is_lost(
    swarm: Swarm, serve_slowly: ServeSlowly, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve_slowly(SITE, 100)
    # The first is the one that all joined through.
    dead = swarm_of(swarm, 5)[:2]
    with submitted(crawler, swarm.nodes[-1], outputs, server.url + START, *DELAY) as crawl:
        for node, moment in zip(dead, (150, 250), strict=True):
            crawl.reach(server, moment)
            node.kill()
        swarm.give_up(*dead)
        swarm.restart(*dead)
        server.open()
        crawl.finish(swarm)
    again = assert_whole(server, crawl, crawler)
    print(f"{len(again)} requests made again after two deaths")
    assert sum(again.values()) <= len(dead) * IN_FLIGHT, again
    assert all(node.ready().counters(crawl.id)["pages"] for node in dead)


def test_what_only_a_lost_disk_held_is_fetched_again_and_nothing_else(
    swarm: Swarm, serve_slowly: ServeSlowly, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve_slowly(SITE, 100)
    lost = swarm_of(swarm, 5, *GRACE)[1]
    with submitted(crawler, swarm.nodes[-1], outputs, server.url + START, *DELAY) as crawl:
        crawl.reach(server, 250)
        lost.kill()
        had = {url.removeprefix(server.url) for url in bodies_of(lost, crawl.id)} - {"/robots.txt"}
        lost.lose_disk()
        server.open()
        swarm.restart(lost)
        crawl.finish(swarm)
    assert had, "it had fetched something"
    again = assert_whole(server, crawl, crawler)
    assert max(again.values()) == 1, "once more, not twice"
    assert had <= again.keys(), describe(again.keys(), had)
    assert len(again.keys() - had) <= IN_FLIGHT, describe(again.keys(), had)


def test_a_node_that_joins_in_the_middle_gets_its_share(
    swarm: Swarm, serve_slowly: ServeSlowly, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve_slowly(SITE, 40)
    swarm_of(swarm, 3)
    with submitted(crawler, swarm.nodes[1], outputs, server.url + START, *DELAY) as crawl:
        crawl.reach(server, 120)
        server.hold()  # else the site may be fetched whole before a slow machine has started a node
        (newcomer,) = swarm.start(1)
        # It may have fetched all of it before we have asked for what was done.
        until(lambda: queued_at(newcomer, crawl.id) > 0, "the newcomer has its share", DEADLINE_S, ASK_EVERY_S)
        swarm.meet()
        done = [hit.uri for hit in server.hits() if hit.uri != "/robots.txt"]
        theirs = [uri for uri in done if owner_of(server.url + uri, swarm.nodes[0], crawl.id) == newcomer.id]
        assert theirs, "by chance, some of what was done is the newcomer's now"
        for uri in theirs:
            (answer,) = newcomer.ask(f"why?crawl={crawl.id}&url={server.url}{uri}")
            assert answer["state"] == "done", "the tombstones came, too"
        server.open()
        summary = crawl.finish(swarm, NOTHING_TWICE)
    fetched = {row["node"]: row["pages"] for row in summary["per_node"]}
    assert fetched[newcomer.id] > 0
    assert len(fetched) == 4
    assert not assert_whole(server, crawl, crawler)


@pytest.mark.parametrize("how", ["by-command", "by-signal"])
def test_a_node_that_leaves_in_the_middle_costs_nothing(
    how: str, swarm: Swarm, serve_slowly: ServeSlowly, crawler: Crawler, outputs: Outputs, tmp_path: Path
) -> None:
    server = serve_slowly(SITE, 100)
    leaver = swarm_of(swarm, 3)[0]
    with submitted(crawler, swarm.nodes[-1], outputs, server.url + START, *DELAY) as crawl:
        crawl.reach(server, 150)
        if how == "by-command":
            Crawler(tmp_path / "leave").run("leave", "--admin", leaver.admin).ended_with(0)
            leaver.running.wait().ended_with(0)
        else:
            leaver.terminate().ended_with(0)
        server.open()
        crawl.finish(swarm, NOTHING_TWICE)
    assert not assert_whole(server, crawl, crawler)


def test_a_swarm_that_dies_as_a_whole_goes_on_when_it_is_started_again(
    swarm: Swarm, serve_slowly: ServeSlowly, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve_slowly(SITE, 100)
    nodes = swarm_of(swarm, 3)
    with submitted(crawler, swarm.nodes[-1], outputs, server.url + START, *DELAY) as crawl:
        crawl.reach(server, 200)
        for node in nodes:
            node.kill()
        server.open()
        for node in nodes:
            # Each as it was started at first; none of them runs yet.
            node.start(*([nodes[0].address] if node is not nodes[0] else []))
        crawl.finish(swarm)
    again = assert_whole(server, crawl, crawler)
    assert sum(again.values()) <= len(nodes) * IN_FLIGHT, again


def test_five_nodes_that_join_five_at_once_cost_nothing(
    swarm: Swarm, serve_slowly: ServeSlowly, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve_slowly(SITE, 40)
    swarm_of(swarm, 5)
    with submitted(crawler, swarm.nodes[-1], outputs, server.url + START, *DELAY) as crawl:
        crawl.reach(server, 60)
        server.hold()  # else the site may be fetched whole before they have joined
        newcomers = swarm.start(5)
        until(
            lambda: any(queued_at(node, crawl.id) > 0 for node in newcomers),
            "they have a share",
            DEADLINE_S,
            ASK_EVERY_S,
        )
        server.open()
        summary = crawl.finish(swarm, NOTHING_TWICE)
    fetched = {row["node"]: row["pages"] for row in summary["per_node"]}
    assert any(fetched.get(node.id) for node in newcomers), fetched
    assert not assert_whole(server, crawl, crawler)


def swarm_of(swarm: Swarm, count: int, *options: str) -> list[Node]:
    nodes = swarm.start(count, *options)
    swarm.meet()
    return nodes


def owner_of(url: str, node: Node, crawl: str) -> str:
    (answer,) = node.ask(f"locate?crawl={crawl}&url={url}")
    return str(answer["owner"]["node"])


def queued_at(node: Node, crawl: str) -> float:
    """How many tasks of a crawl a node has to fetch; 0 while it knows nothing of it."""
    rows = node.ask(f"crawls/{crawl}")["per_node"] if node.counters(crawl) else []
    return next((float(row["counters"].get("queued", 0)) for row in rows if row["node"] == node.id), 0.0)


def assert_whole(server: Nginx, crawl: SwarmCrawl, crawler: Crawler) -> dict[str, int]:
    """The outputs are the site's, each page once; how often more than once which URIs were asked for."""
    truth = truth_of(SITE.root, START, SITE.encoding)
    asked = server.requests()
    assert asked.keys() == truth.requests, describe(asked.keys(), truth.requests)
    html = crawl.outputs.html()
    assert html.keys() == truth.pages.keys(), describe(html.keys(), truth.pages.keys())
    assert_valid(crawl.outputs.warcs())
    crawler.check(crawl.outputs.out)
    return {uri: count - 1 for uri, count in asked.items() if count > 1}
