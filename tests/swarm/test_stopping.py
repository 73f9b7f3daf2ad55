"""Whole nodes, on virtual time: how they stop, and what one crawl is to another."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any

from dhtcrawl.config import load
from dhtcrawl.sim import loop
from dhtcrawl.sim.swarm import SimHost, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import CrawlSpec, make_spec


class World:
    def __init__(self, sim: SimSwarm, hosts: list[SimHost], web: SimWeb, spec: CrawlSpec) -> None:
        self.sim, self.hosts, self.web, self.spec = sim, hosts, web, spec

    async def crawl(self, spec: CrawlSpec, nonce: bytes = bytes(16)) -> bytes:
        swarm = self.hosts[0].swarm
        assert swarm is not None
        return (await swarm.crawls.create(spec, nonce)).crawl_id

    def ended(self, crawl: bytes) -> bool:
        swarm = self.hosts[0].swarm
        known = None if swarm is None else swarm.crawls.get(crawl)
        return known is not None and bool(known.ended)

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(300.0):
            while not done():  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)


def tell(story: Callable[[World], Any], *, pages: int = 150, nodes: int = 5) -> None:
    async def main() -> None:
        web = SimWeb(1, hosts=5, pages=pages)
        config = load(flags={"fetch.concurrency": 4})
        async with asyncio.TaskGroup() as group:
            sim = SimSwarm(group, 1, config, web, Trace(asyncio.get_running_loop().time, tail=1))
            hosts = [sim.add() for _ in range(nodes)]
            await hosts[0].start([])
            for host in hosts[1:]:
                await host.start(hosts[:1])
            await story(World(sim, hosts, web, make_spec(web.seeds(), dataclasses.replace(config.crawl, delay_s=0.0))))
            async with asyncio.timeout(60.0):
                for host in sim.up:
                    await host.stop()

    loop.run(main())


def test_a_node_stops_although_its_backups_have_crashed() -> None:
    async def story(world: World) -> None:
        await world.crawl(world.spec)
        await world.until(lambda: len(world.web.visits) > 50)
        await world.hosts[1].crash()
        await world.hosts[2].crash()
        async with asyncio.timeout(60.0):
            await world.hosts[3].stop()

    tell(story)


def test_a_node_stops_while_it_is_still_looking_for_the_others() -> None:
    async def story(world: World) -> None:
        newcomer = world.sim.add()
        newcomer.begin(world.hosts[:1])
        await world.until(lambda: newcomer.swarm is not None)
        await asyncio.sleep(0.03)
        async with asyncio.timeout(60.0):
            await newcomer.stop()

    tell(story, nodes=2)


def test_a_node_leaves_although_it_has_not_joined_yet() -> None:
    async def story(world: World) -> None:
        crawl = await world.crawl(world.spec)
        await world.until(lambda: len(world.web.visits) > 30)
        newcomer = world.sim.add()
        newcomer.begin(world.hosts[:1])
        await world.until(lambda: newcomer.swarm is not None)
        await asyncio.sleep(0.05)
        async with asyncio.timeout(120.0):
            await newcomer.leave()
        await world.until(lambda: world.ended(crawl))

    tell(story, nodes=3)


def test_a_small_crawl_ends_while_a_large_one_goes_on() -> None:
    async def story(world: World) -> None:
        large = await world.crawl(world.spec)
        depth_0 = dataclasses.replace(world.spec.settings, depth=0)
        small = await world.crawl(make_spec(world.web.seeds()[:1], depth_0), b"n" * 16)
        await world.until(lambda: world.ended(small))
        assert not world.ended(large)
        assert len(world.web.visits) < 200

    tell(story, pages=400)
