"""What a node of a swarm tells Prometheus."""

from __future__ import annotations

from swarm.story import Story, a_world

from dhtcrawl.node.api import Api
from dhtcrawl.node.swarm_node import SwarmNode
from dhtcrawl.web.metrics import HELP


def first(world: Story) -> tuple[SwarmNode, Api]:
    swarm = world.hosts[0].swarm
    assert swarm is not None
    return swarm, Api(swarm, swarm.registry)


async def test_every_figure_that_is_described_is_sent_while_a_crawl_runs() -> None:
    async with a_world(pages=100, nodes=1) as world:
        _, api = first(world)
        crawl = await world.crawl(world.spec)
        await world.until(lambda: api.metrics().get("pages_total", 0) > 0)
        assert {name.partition("{")[0] for name in api.metrics()} == HELP.keys()
        assert api.metrics()["in_flight"] > 0
        await world.until(lambda: world.ended(crawl))


async def test_requests_that_broke_politeness_are_counted_from_the_start_of_the_node() -> None:
    async with a_world(pages=10, nodes=1) as world:
        swarm, api = first(world)
        names = ("politeness_violations_total", "politeness_exceptions_total")
        assert [api.metrics()[name] for name in names] == [0, 0]
        swarm.gate.book.clock("h.example").begin(swarm.node.ports.clock.monotonic(), 1.0)  # without a lease
        swarm.gate.office.keeper.exceptions += 2
        assert [api.metrics()[name] for name in names] == [1, 2]
