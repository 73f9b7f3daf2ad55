"""A swarm is as polite as one node, whoever dies, and nearly as fast: the server's log says so."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Serve
from .crawler import Crawler
from .deadline import until
from .nginx import Hit, Nginx
from .outputs import Outputs
from .sites import GNUPLOT, START
from .swarm import DEADLINE_S, Swarm, submitted

DELAY_S = 0.2
# nginx takes the time when a batch of events begins, and logs it in whole milliseconds.
GRAIN_S = 0.005
STEADY = 15  # requests until both have found their pace
COMPARED = 75
SHARE = 0.8

pytestmark = pytest.mark.needs_nginx


@pytest.fixture
def swarms(tmp_path: Path) -> Iterator[tuple[Swarm, Swarm]]:
    """One node, and five of which each has a host for 3 s at most: it goes round."""
    lease = ["--set", "swarm.lease_s=3s"]
    with Swarm(tmp_path / "one", *lease) as one, Swarm(tmp_path / "five", *lease) as five:
        for swarm, count in ((one, 1), (five, 5)):
            swarm.start(count)
            swarm.meet()
        yield one, five
        one.check()
        five.check()


def test_five_nodes_keep_the_delay_of_one_and_its_pace_and_survive_the_gatekeeper(
    swarms: tuple[Swarm, Swarm], serve: Serve, crawler: Crawler, tmp_path: Path
) -> None:
    one, five = swarms
    servers = serve(GNUPLOT), serve(GNUPLOT)
    options = ["--delay", f"{DELAY_S}s", "--key", "url"]
    outputs = Outputs(tmp_path / "out1"), Outputs(tmp_path / "out5")
    with (
        submitted(crawler, one.nodes[0], outputs[0], servers[0].url + START, *options) as alone,
        submitted(crawler, five.nodes[0], outputs[1], servers[1].url + START, *options) as together,
    ):
        alone.reach(servers[0], COMPARED)
        together.reach(servers[1], STEADY)
        few, many = in_the_same_span(*servers)
        print(f"requests in the same span: one node {few}, five nodes {many}")
        assert many >= SHARE * few

        host = servers[1].url.removeprefix("http://")
        keeper = five.node(five.nodes[0].ask(f"hosts/{host}")["gatekeeper"])
        keeper.kill()
        five.give_up(keeper)
        through, before = five.alive[0], servers[1].hit_count()
        assert through.ask(f"hosts/{host}")["gatekeeper"] != keeper.id
        until(lambda: servers[1].hit_count() >= before + STEADY, "they go on", DEADLINE_S)
        askers = through.ask(f"crawls/{together.id}")["per_node"]
        assert sum(row["counters"]["fetches"] > 0 for row in askers) > 1, "the host went round"
        assert not any(row["counters"]["politeness_violations"] for row in askers)
    for server in servers:
        keeps_the_delay(server.hits())
    assert max(servers[0].requests().values()) == 1
    # What the killed one was fetching, nobody else can know of.
    again = [path for path, times in servers[1].requests().items() if times > 1]
    assert len(again) <= 1, again
    assert max(servers[1].requests().values()) <= 2
    assert sum(hit.uri == "/robots.txt" for hit in servers[0].hits()) == 1


def in_the_same_span(first: Nginx, second: Nginx) -> tuple[int, int]:
    """How many requests each answered from when both were steady until the first to be asked had its share."""
    logs = first.hits(), second.hits()
    begin = max(hits[STEADY - 1].ended_at for hits in logs)
    end = min(hits[-1].ended_at for hits in logs)
    few, many = (sum(begin < hit.ended_at <= end for hit in hits) for hits in logs)
    assert few > STEADY, "a span to compare"
    return few, many


def keeps_the_delay(hits: list[Hit]) -> None:
    """No request, that for robots.txt included, begins sooner than the delay after the response before."""
    hits = sorted(hits, key=lambda hit: hit.began_at)
    gaps = [(later.began_at - before.ended_at, later.uri) for before, later in itertools.pairwise(hits)]
    assert min(gaps) >= (DELAY_S - GRAIN_S, ""), sorted(gaps)[:5]
