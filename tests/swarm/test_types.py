"""Node types over a whole swarm: labels reach the coordinator, and the owners by its plan."""

from __future__ import annotations

import asyncio
import dataclasses

from .story import Story, a_world


def of_type(world: Story, name: str) -> None:
    settings = dataclasses.replace(world.spec.settings, policy="dynamic", policy_options=(f"type={name}",))
    world.spec = dataclasses.replace(world.spec, settings=settings)


async def test_nodes_of_the_crawls_type_fetch() -> None:
    async with a_world(pages=40, nodes=3, node__labels=["type=meta"]) as world:
        of_type(world, "meta")
        crawl = await world.crawl(world.spec)
        await world.until(lambda: world.ended(crawl))
        assert len({visit.client for visit in world.web.visits}) > 1


async def test_where_no_node_is_of_the_type_nothing_is_fetched() -> None:
    async with a_world(pages=40, nodes=2, node__labels=["type=meta"]) as world:
        of_type(world, "blog")
        await world.crawl(world.spec)
        await asyncio.sleep(60)
        assert [visit.url for visit in world.web.visits if not visit.url.endswith("/robots.txt")] == []
