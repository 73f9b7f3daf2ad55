"""What a node tells people of a crawl."""

from __future__ import annotations

import asyncio
import re

from swarm.story import a_world

from dhtcrawl.node.api import Api
from dhtcrawl.standing import OWED


async def test_what_a_crawl_waits_for_is_told_in_words_for_people() -> None:
    async with a_world(pages=100, nodes=1) as world:
        swarm = world.hosts[0].swarm
        assert swarm is not None
        api = Api(swarm, swarm.registry)
        crawl = await world.crawl(world.spec)
        await world.until(lambda: api.metrics().get("in_flight", 0) > 0)
        told: list[str] = []
        while not world.ended(crawl):
            told += (await api.crawl(crawl))["waiting_for"]
            await asyncio.sleep(0.5)
        assert {re.sub(r"[0-9a-f]{12}: [0-9]+ ", "", line) for line in told} <= set(OWED.values())
        assert any(line.endswith(OWED["in_flight"]) for line in told)
        await world.until(lambda: world.ended(crawl))
