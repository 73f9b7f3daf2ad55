"""Frontiers of several nodes over their gates: hosts shared, none forgotten, none asked too soon."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

import pytest
from crawl.stored import task

from dhtcrawl.crawl.frontier import Frontier, FrontierLimits, Job

from .gate_swarm import GateNode, Gates, Server

IDS = [bytes([number * 40 + 10]) + bytes(19) for number in range(5)]
DELAY_S = 0.2
TURNS_MAX = 50_000  # far more than it takes: a gate that spins would never let time pass


@dataclass(eq=False)
class Crawler:
    """A frontier and its dispatcher, as in `dhtcrawl.crawl.crawler`, without a store."""

    node: GateNode
    servers: dict[str, Server]
    group: asyncio.TaskGroup
    done: int = 0
    timer: asyncio.TimerHandle | None = None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)

    def __post_init__(self) -> None:
        gate = self.node.gate
        self.frontier = Frontier(
            clock_of=gate.book.clock,
            delay_of=lambda _: DELAY_S,
            robots_known=lambda _: True,
            limits=FrontierLimits(parallel=8),
        )
        self.frontier.walk_begins()
        self.frontier.walk_ended()
        self.node.on_free = self.free
        self.node.turns_max = TURNS_MAX

    def free(self, host: str) -> None:
        self.frontier.host_free(host, self.loop.time())
        self.dispatch()

    def dispatch(self) -> None:
        while (job := self.frontier.next(self.loop.time())) is not None:
            self.group.create_task(self.fetch(job))
        if self.timer is not None:
            self.timer.cancel()
        due_at = self.frontier.next_due_at()
        self.timer = None if due_at == math.inf else self.loop.call_at(due_at, self.dispatch)

    async def fetch(self, job: Job) -> None:
        assert job.task is not None
        await self.node.gate.within_lease(job.host, self.servers[job.host])
        self.node.gate.book.clock(job.host).end(self.loop.time())
        self.frontier.finish(job, self.loop.time())
        self.frontier.written(job.host, job.task.key, self.loop.time())
        if not self.frontier.load(job.host):
            self.node.gate.book.quiet(job.host)
        self.done += 1
        self.dispatch()

    async def feed(self, number: int, pages: int, every_s: float) -> None:
        hosts = list(self.servers)
        for page in range(pages):
            host = hosts[(7 * page + number) % len(hosts)]
            self.frontier.add([task(f"http://{host}/{number}/{page}", page)], self.loop.time())
            self.dispatch()
            await asyncio.sleep(every_s)


@pytest.mark.parametrize(
    ("pages", "hosts", "every_s", "seconds_max"),
    [
        # One host with work everywhere, with work in drops, twenty hosts, more hosts than pages of each.
        (60, 1, 0.0, 60 * 5 * 0.22 / 0.9),
        (60, 1, 0.9, 60 * 5 * 0.22 / 0.8),
        (200, 20, 0.01, 200 * 5 / 20 * 0.22 / 0.9),
        (60, 300, 0.0, 2.0),
    ],
)
async def test_all_pages_of_all_nodes_are_fetched_in_time(
    pages: int, hosts: int, every_s: float, seconds_max: float
) -> None:
    swarm = Gates()
    swarm.join(*IDS)
    nodes = [GateNode(swarm, id_) for id_ in IDS]
    servers = {f"h{number}.example": Server() for number in range(hosts)}
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        gates = [group.create_task(node.gate.run()) for node in nodes]
        async with asyncio.TaskGroup() as fetchers:
            crawlers = [Crawler(node, servers, fetchers) for node in nodes]
            for number, crawler in enumerate(crawlers):
                fetchers.create_task(crawler.feed(number, pages, every_s))
            while sum(crawler.done for crawler in crawlers) < pages * len(nodes):
                await asyncio.sleep(0.5)
                assert loop.time() < 2 * seconds_max + 1.0, "somebody was forgotten"
        for gate in gates:
            gate.cancel()
    assert max(end for server in servers.values() for _, end in server.served) <= seconds_max
    assert min(server.shortest_gap_s() for server in servers.values()) >= DELAY_S - 1e-6
    assert sum(node.gate.book.violations for node in nodes) == 0
