"""Five nodes of the `kademlia` package among fifteen of ours that crawl, while nodes of both kinds crash and come.

The five answer whoever asks them on the routing plane, from before the crawl
begins until it has ended; every now and then one of them crashes and another
one comes. All the while keys are set on one side and read on the other, and
look-ups begin at our nodes. The same crawl without the five is beside it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import random
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from statistics import mean, median
from typing import Any

import pytest
from kademlia.network import Server

from dhtcrawl.config import load
from dhtcrawl.rpc.discovery import server as routing
from dhtcrawl.rpc.discovery.lookup import Lookup
from dhtcrawl.sim import loop
from dhtcrawl.sim.faults import Faults
from dhtcrawl.sim.loop import on_host
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm import PORT, SimHost, SimSwarm
from dhtcrawl.sim.swarm_run import SwarmRun
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import make_spec

SEED = 1
STOCK = 5
CHURN = Scenario(
    nodes=15,
    hosts=5,
    pages=150,
    delay_s=0.5,
    concurrency=4,
    crashes=4,
    joins=2,
    crash_every_s=5,
    holder_grace_s=60,
    loss=0.01,
)
STOCK_CRASH_EVERY_S = 15.0
LOOK_UP_EVERY_S = 0.1
WIDE = 0.25  # of all look-ups, those for the k closest
# Of each side so many set a key, wait, and have the other side read it, again and again. A stock node takes
# seconds for each while it waits for nodes that have crashed.
WRITERS = 6
WRITE_EVERY_S = 2.0
READ_AFTER_S = 5.0

# A look-up for the owner asks the one node that it takes for it. Who that is the tables know as well with stock nodes
# in them as without, so nothing should change but which nodes are asked. With seeds 1 to 4 it took 1 to 2 % more RPCs
# and 2 to 7 % less time in the median; the bounds leave room for chance.
OWNER_RPCS, OWNER_TIME = 1.1, 1.15
# One for the k = 20 closest asks everybody in a swarm that is no larger: 15 to 17 nodes without, 20 with them. With
# seeds 1 to 4 that is 1.28 to 1.30 times the RPCs and 1.25 to 1.40 times the time; five more nodes of ours cost the
# same RPCs and 1.41 to 1.48 times the time (seeds 1 to 3). So a stock node may cost no more than one of ours.
CLOSEST_RPCS, CLOSEST_TIME = 1.35, 1.5


@dataclass(frozen=True, slots=True)
class LookedUp:
    rpcs: int
    time_s: float
    right: bool


@dataclass(slots=True)
class Seen:
    """What came of a run."""

    stock: list[bytes] = field(default_factory=list)  # the ids of all that were there
    called: list[Any] = field(default_factory=list)  # who connected to them by TCP
    members: set[bytes] = field(default_factory=set)  # of any node's view, at any time
    on_disks: list[str] = field(default_factory=list)  # ours that mention a stock node
    set_by_stock: list[bool] = field(default_factory=list)
    set_by_us: list[bool] = field(default_factory=list)
    read_by_us: list[bool] = field(default_factory=list)  # what stock nodes had set
    read_by_stock: list[bool] = field(default_factory=list)
    owner: list[LookedUp] = field(default_factory=list)
    closest: list[LookedUp] = field(default_factory=list)


class Crawl(SwarmRun):
    """The simulated crawl, with whatever else goes on in its swarm."""

    def __init__(self, stock: int) -> None:
        web = SimWeb(SEED, CHURN.web())
        config = load(
            flags={"fetch.concurrency": CHURN.concurrency, "swarm.holder_grace_s": f"{CHURN.holder_grace_s}s"}
        )
        settings = dataclasses.replace(config.crawl, delay_s=CHURN.delay_s)
        super().__init__(CHURN, SEED, config, web, make_spec(web.seeds(), settings))
        self.seen = Seen()
        self._count = stock
        self._stock: list[Server] = []  # those that have joined
        self._answering: list[bytes] = []  # and those that are about to
        self._rng = Random(f"{SEED} stock")
        self._tasks: list[asyncio.Task[None]] = []

    async def _gather_nodes(self, swarm: SimSwarm, faults: Faults) -> SimHost:
        submitter = await super()._gather_nodes(swarm, faults)
        self._swarm = swarm
        for _ in range(self._count):
            await self._add_stock()
        jobs = [self._look_up(), self._watch()]
        if self._count:
            jobs.append(self._come_and_go())
            jobs += [job() for job in (self._stock_writes, self._we_write) for _ in range(WRITERS)]
        self._tasks = [swarm.group.create_task(job) for job in jobs]
        return submitter

    def _judge(self, *everything: Any) -> None:
        for task in self._tasks:
            task.cancel()
        for node in self._stock:
            node.stop()
        for host in self._swarm.hosts:
            rows = b"".join(key + value for key, value in host.disk.engine.scan(b"", b"\xff" * 64))
            assert host.id in rows or b"10.0." in rows, "a disk says whom it knows"
            self.seen.on_disks += [host.name for node in self.seen.stock if node in rows or b"10.9." in rows]
        super()._judge(*everything)

    @property
    def _crawling(self) -> bool:
        witness: Any = self._swarm.witness
        return witness.ended_at is None

    @property
    def _ours(self) -> list[SimHost]:
        return [host for host in self._swarm.up if host.swarm is not None and host.swarm.ready.is_set()]

    # Stock nodes

    async def _add_stock(self) -> None:
        number = len(self.seen.stock) + 1
        node_id = Random(f"{SEED} stock {number}").randbytes(20)
        host = f"10.9.0.{number}"
        self.seen.stock.append(node_id)
        with on_host(host):
            node = Server(node_id=node_id)
            await node.listen(PORT)
            self._answering.append(node_id)
            await self._swarm.streams.create_server(lambda: Ear(self.seen.called), host, PORT)
            through = self._rng.sample(self._ours, min(3, len(self._ours)))
            assert await node.bootstrap([(other.address, PORT) for other in through])
        self._stock.append(node)

    async def _come_and_go(self) -> None:
        while self._crawling:
            await asyncio.sleep(STOCK_CRASH_EVERY_S)
            node = self._stock.pop(self._rng.randrange(len(self._stock)))
            self._answering.remove(node.node.id)
            host = node.transport.get_extra_info("sockname")[0]
            self._swarm.datagrams.crash(host)
            self._swarm.streams.crash(host)
            node.stop()
            await self._add_stock()

    # Keys

    async def _stock_writes(self) -> None:
        async for key in self._keys():
            node = self._rng.choice(self._stock)
            try:
                stored = await node.set(key, key)
            except ValueError:  # the package looks for the furthest of no nodes where one that has crashed finds nobody
                stored = False
            if node in self._stock and self._crawling:  # it has neither crashed nor stopped meanwhile
                self.seen.set_by_stock.append(stored)
                await asyncio.sleep(READ_AFTER_S)
                await self._we_read(key)

    async def _we_read(self, key: str) -> None:
        host = self._rng.choice(self._ours)
        life = host.swarm
        assert life is not None
        value = await life.routing.get(key)
        if host.swarm is life and self._crawling:
            self.seen.read_by_us.append(value == key)

    async def _we_write(self) -> None:
        async for key in self._keys():
            host = self._rng.choice(self._ours)
            life = host.swarm
            assert life is not None
            stored = await life.routing.set(key, key)
            if host.swarm is life and self._crawling:
                self.seen.set_by_us.append(stored)
                await asyncio.sleep(READ_AFTER_S)
                await self._stock_reads(key)

    async def _stock_reads(self, key: str) -> None:
        node = self._rng.choice(self._stock)
        value = await node.get(key)
        if node in self._stock and self._crawling:
            self.seen.read_by_stock.append(value == key)

    async def _keys(self) -> Any:
        while self._crawling:
            await asyncio.sleep(self._rng.uniform(0, 2 * WRITE_EVERY_S))
            yield f"key {self._rng.random()}"

    # Look-ups

    async def _look_up(self) -> None:
        while self._crawling:
            await asyncio.sleep(LOOK_UP_EVERY_S)
            self._swarm.group.create_task(self._look_up_once())

    async def _look_up_once(self) -> None:
        host, key, wide = self._rng.choice(self._ours), self._rng.randbytes(20), self._rng.random() < WIDE
        life = host.swarm
        assert life is not None
        began_at, there, made = self._swarm.loop.time(), self._owner_of(key), list[Lookup]()
        lookups.set(made)
        if wide:
            found = (await life.routing.find_closest(key))[0].id
            there = found  # our own node is none of those that it asks
        else:
            found = (await life.routing.find_owner(key)).id
        if host.swarm is life and self._crawling:
            time_s = self._swarm.loop.time() - began_at
            # Whoever comes or goes meanwhile may be right, or not.
            right = found in (there, self._owner_of(key))
            (self.seen.closest if wide else self.seen.owner).append(LookedUp(made[0].asked, time_s, right))

    def _owner_of(self, key: bytes) -> bytes:
        number = int.from_bytes(key, "big")
        return min(
            [*(host.id for host in self._swarm.up), *self._answering],
            key=lambda node_id: int.from_bytes(node_id, "big") ^ number,
        )

    # Members

    async def _watch(self) -> None:
        while self._crawling:
            for host in self._ours:
                assert host.swarm is not None
                self.seen.members.update(member.id for member in host.swarm.gossip.view.members)
            await asyncio.sleep(0.5)


class Ear(asyncio.Protocol):
    """Notes who calls."""

    def __init__(self, called: list[Any]) -> None:
        self._called = called

    def connection_made(self, transport: Any) -> None:
        self._called.append(transport.get_extra_info("peername"))
        transport.close()


# Those that a task has begun, where it wants to know.
lookups: ContextVar[list[Lookup] | None] = ContextVar("lookups", default=None)


class Noted(Lookup):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        made = lookups.get()
        if made is not None:
            made.append(self)


@functools.cache
def crawl(stock: int) -> Seen:
    random.seed(SEED)  # what the library uses
    run = Crawl(stock)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "Lookup", Noted)
        loop.run(run.run())
    assert run.result.violations == [], run.result.tail
    assert (run.result.lost, run.result.crashes) == (0, CHURN.crashes)
    return run.seen


def share(values: list[bool]) -> float:
    return sum(values) / len(values)


def test_keys_resolve_both_ways_while_nodes_of_both_kinds_crash() -> None:
    seen = crawl(STOCK)
    assert len(seen.stock) >= STOCK + 3
    for values in (seen.set_by_stock, seen.read_by_us, seen.set_by_us, seen.read_by_stock):
        assert len(values) >= 20
        assert share(values) == 1.0


def test_a_stock_node_is_no_member_is_called_by_nobody_and_stands_on_no_disk() -> None:
    seen = crawl(STOCK)
    assert len(seen.members) == CHURN.nodes + CHURN.joins
    assert not seen.members & set(seen.stock)
    assert seen.called == []
    assert seen.on_disks == []


def test_stock_nodes_slow_look_ups_down_by_no_more_than_a_bound() -> None:
    without, seen = crawl(0), crawl(STOCK)
    for before, after, rpcs_max, time_max in (
        (without.owner, seen.owner, OWNER_RPCS, OWNER_TIME),
        (without.closest, seen.closest, CLOSEST_RPCS, CLOSEST_TIME),
    ):
        assert len(before) >= 100
        assert len(after) >= 100
        assert mean(one.rpcs for one in after) <= rpcs_max * mean(one.rpcs for one in before)
        assert median(one.time_s for one in after) <= time_max * median(one.time_s for one in before)
    assert median(one.rpcs for one in seen.owner) == median(one.rpcs for one in without.owner) == 1
    assert share([one.right for one in seen.owner]) >= 0.98
