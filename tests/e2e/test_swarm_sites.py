"""The four sites by swarms of one, three and five nodes: what one node would bring, and nothing twice.

That of five crawls all of them, one after the other; the others one each. Every other time tasks live by host.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Serve
from .crawler import Crawler
from .outputs import Outputs
from .sites import ALL, DOCBOOK, GNUPLOT, START, DocSite
from .swarm import Swarm, submitted
from .test_real_sites import CLEAN, assert_exactly_the_site
from .truth import truth_of

RUNS = [
    *((5, site, key) for site, key in zip(ALL, ("host", "url", "url", "host"), strict=True)),
    (3, GNUPLOT, "url"),
    (1, DOCBOOK, "host"),
]


@pytest.fixture(scope="module")
def swarm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """So many nodes that know each other."""
    home: Path = tmp_path_factory.mktemp("swarm")
    with Swarm(home) as swarm:
        swarm.start(request.param)
        swarm.meet()
        yield swarm
        assert len(swarm.alive) == request.param, swarm.logs()
        swarm.check()


@pytest.mark.needs_nginx
@pytest.mark.parametrize(
    ("swarm", "site", "key"),
    RUNS,
    indirect=["swarm"],
    ids=[f"{count}-nodes-{site.package}-{key}" for count, site, key in RUNS],
)
def test_a_swarm_crawls_a_site_whole_and_each_page_once(
    swarm: Swarm, site: DocSite, key: str, serve: Serve, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve(site)
    # Through another node each time: none is special.
    through = swarm.nodes[(ALL.index(site) + (key == "host")) % len(swarm.nodes)]
    options = ["--delay", "0", "--key", key, "--policy", "xor"]
    with submitted(crawler, through, outputs, server.url + START, *options) as crawl:
        summary = crawl.finish(swarm, CLEAN | {"key": key, "policy": "xor", "nodes": len(swarm.nodes)})

    truth = truth_of(site.root, START, site.encoding)
    assert summary["fetches"] == len(truth.requests)
    fetched = [node["pages"] for node in summary["per_node"]]
    assert len(fetched) == len(swarm.nodes)
    assert sum(fetched) == summary["pages"]
    # All of one host is one node's with --key host; by URL everybody has a share.
    assert sum(pages > 0 for pages in fetched) == (1 if key == "host" else len(swarm.nodes))
    assert_exactly_the_site(server, truth, outputs, crawler)
