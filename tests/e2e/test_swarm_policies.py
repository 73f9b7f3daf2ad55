"""Whoever fetches: under every policy five nodes bring what one would, once, and lose nothing when nodes are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dhtcrawl.config import CrawlSettings
from dhtcrawl.policy.registry import OURS

from .conftest import Serve, ServeSlowly
from .crawler import Crawler
from .outputs import Outputs
from .sites import SMALL, START
from .swarm import AT_ONCE, CLEAN, IN_FLIGHT, Swarm, submitted
from .test_real_sites import assert_exactly_the_site
from .test_swarm_churn import assert_whole
from .truth import truth_of

NODES = 5
POLICIES = [name for name in OURS if name != CrawlSettings().policy]  # the other tests are about the default

pytestmark = pytest.mark.needs_nginx


@pytest.fixture(scope="module")
def quiet_swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """Nodes that know each other, and nobody kills."""
    with Swarm(tmp_path_factory.mktemp("swarm"), *AT_ONCE) as swarm:
        swarm.start(NODES)
        swarm.meet()
        yield swarm
        swarm.check()


@pytest.fixture
def swarm(tmp_path: Path) -> Iterator[Swarm]:
    """Nodes that know each other."""
    with Swarm(tmp_path / "swarm", *AT_ONCE) as swarm:
        swarm.start(NODES)
        swarm.meet()
        yield swarm
        swarm.check()


@pytest.mark.parametrize("policy", ["balanced", "bp-pso"])  # the others bring it below, with kills
def test_five_nodes_bring_a_site_whole_and_each_page_once(
    policy: str, quiet_swarm: Swarm, serve: Serve, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve(SMALL)
    options = ["--delay", "0", "--policy", policy]
    with submitted(crawler, quiet_swarm.nodes[0], outputs, server.url + START, *options) as crawl:
        summary = crawl.finish(quiet_swarm, CLEAN | {"policy": policy, "refetches": 0, "nodes": NODES})
    truth = truth_of(SMALL.root, START, SMALL.encoding)
    assert summary["fetches"] == len(truth.requests)
    fetched = [node["pages"] for node in summary["per_node"]]
    assert sum(fetched) == summary["pages"]
    if policy == "dspider":
        assert max(fetched) > 0.9 * sum(fetched), "a host is one node's"
    else:
        assert min(fetched) > 0, "everybody has a share"
    assert_exactly_the_site(server, truth, outputs, crawler)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_worker_and_the_coordinator_or_another_are_killed_and_nothing_is_lost(
    policy: str, swarm: Swarm, serve_slowly: ServeSlowly, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve_slowly(SMALL, 100)
    with submitted(crawler, swarm.nodes[0], outputs, server.url + START, "--delay", "0", "--policy", policy) as crawl:
        crawl.reach(server, 150)
        asked, *others = swarm.nodes
        # Whoever fetches most has most tasks of others. The command that waits needs the node that it asks.
        worker = max(others, key=lambda node: int(node.counters(crawl.id)["pages"]))
        coordinator = swarm.node(asked.ask(f"crawls/{crawl.id}")["coordinator"])
        if coordinator in (asked, worker):
            coordinator = next(node for node in others if node is not worker)
        for node, moment in ((worker, 150), (coordinator, 250)):
            crawl.reach(server, moment)
            node.kill()
        swarm.give_up(worker, coordinator)
        swarm.restart(worker, coordinator)
        server.open()
        crawl.finish(swarm)
    again = assert_whole(server, crawl, crawler)
    assert sum(again.values()) <= 2 * IN_FLIGHT, again
