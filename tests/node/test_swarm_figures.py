"""What a node tells of a crawl, and what Prometheus adds up of all nodes, is the same."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from swarm.story import Story, a_world

from dhtcrawl.config import CrawlSettings
from dhtcrawl.node.api import Api
from dhtcrawl.storage.store.outcomes import ERROR_KINDS

GROWS = ("pages", "pages_ok", "fetches", "refetches", "redirects", "dead", "body_bytes", "urls_seen", "robots_fetches")
OF_NOW = ("queued", "in_flight")


def apis(world: Story) -> list[Api]:
    swarms = [host.swarm for host in world.sim.up if host.swarm is not None]
    return [Api(swarm, swarm.registry) for swarm in swarms]


def by_metrics(nodes: list[Api]) -> dict[str, float]:
    """What the metrics of all nodes add up to, by the names of the API."""
    total: dict[str, float] = defaultdict(float)
    for api in nodes:
        for name, value in api.metrics().items():
            total[name] += value
    found = {name: total[f"{name}_total"] for name in GROWS} | {name: total[name] for name in OF_NOW}
    kinds = {kind: total[f'errors_total{{kind="{kind}"}}'] for kind in ERROR_KINDS}
    found |= {f"errors_{kind}": count for kind, count in kinds.items() if count}
    return found | {"errors": sum(kinds.values())}


def told(counters: Mapping[str, Any], like: Mapping[str, float]) -> dict[str, float]:
    return {name: counters.get(name, 0) for name in like}


async def test_all_figures_of_five_nodes_are_the_sum_while_a_crawl_is_paused_and_at_its_end_and_near_it_meanwhile() -> (
    None
):
    async with a_world(pages=120, nodes=5) as world:
        crawl = await world.crawl(dataclasses.replace(world.spec, settings=CrawlSettings(delay_s=0.5)))
        nodes = apis(world)

        async def same() -> dict[str, float]:
            sums = by_metrics(nodes)
            for api in nodes:
                one = await api.crawl(crawl)
                (row,) = await api.crawls()
                for counters in (one["counters"], row["counters"]):
                    assert told(counters, sums) == sums
                rows = [told(each["counters"], sums) for each in one["per_node"]]
                assert {name: sum(each[name] for each in rows) for name in sums} == sums
            return sums

        await world.until(lambda: by_metrics(nodes)["pages"] > 20)
        await nodes[0].control(crawl, "pause")
        await world.until(lambda: by_metrics(nodes)["in_flight"] == 0)
        await asyncio.sleep(2.0)
        paused = await same()
        assert paused["queued"] > 0

        await nodes[0].control(crawl, "resume")
        samples = 0
        while not world.ended(crawl):
            before = by_metrics(nodes)
            await asyncio.sleep(1.0)
            shown = await nodes[samples % 5].crawl(crawl)
            await asyncio.sleep(1.0)
            after = by_metrics(nodes)
            for name in GROWS:
                assert before[name] <= shown["counters"][name] <= after[name], name
            samples += 1
        assert samples >= 3

        await world.until(lambda: all(api.metrics()["crawls_running"] == 0 for api in nodes))
        assert (await same())["pages"] > paused["pages"]
