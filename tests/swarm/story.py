"""A swarm of whole nodes on virtual time, and a story that a test tells of it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from dhtcrawl.closed.secret import Ring
from dhtcrawl.config import load
from dhtcrawl.keyspace import distance, placement
from dhtcrawl.node.swarm_node import SwarmNode
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.swarm import SimConditions, SimHost, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import CrawlSpec, make_spec


class Story:
    def __init__(self, sim: SimSwarm, hosts: list[SimHost], web: SimWeb, spec: CrawlSpec) -> None:
        self.sim, self.hosts, self.web, self.spec = sim, hosts, web, spec

    async def crawl(self, spec: CrawlSpec, nonce: bytes = bytes(16)) -> bytes:
        return (await self.hosts[0].submit(spec, nonce)).crawl_id

    def owner_of(self, key: bytes) -> SwarmNode:
        """The node that owns a task, by its key."""
        nodes = [host.swarm for host in self.hosts if host.swarm is not None]
        return min(nodes, key=lambda node: distance(node.id, placement(key)))

    def ended(self, crawl: bytes, at: int = 0) -> bool:
        swarm = self.hosts[at].swarm
        known = None if swarm is None else swarm.crawls.get(crawl)
        return known is not None and bool(known.ended)

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(300.0):
            while not done():  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)


@asynccontextmanager
async def a_world(
    *, pages: int = 150, nodes: int = 5, refuses: bool = False, ring: Ring | None = None, **flags: object
) -> AsyncIterator[Story]:
    """Nodes that have joined and are stopped at the end, with a `ring` in a closed swarm.

    `flags` are settings, with `__` for the dot.
    """
    web = SimWeb(1, WebShape(hosts=5, pages=pages, refuses=refuses))
    said = {name.replace("__", "."): value for name, value in flags.items()}
    config = load(flags={"fetch.concurrency": 4, **said})
    async with asyncio.TaskGroup() as group:
        trace = Trace(asyncio.get_running_loop().time, tail=1)
        sim = SimSwarm(group, 1, config, web, trace, SimConditions(ring=ring))
        hosts = [sim.add() for _ in range(nodes)]
        await hosts[0].start([])
        for host in hosts[1:]:
            await host.start(hosts[:1])
        yield Story(sim, hosts, web, make_spec(web.seeds(), dataclasses.replace(config.crawl, delay_s=0.0)))
        async with asyncio.timeout(60.0):
            for host in sim.up:
                await host.stop()
