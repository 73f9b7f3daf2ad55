"""Many nodes in one process: a swarm on a virtual clock, in-memory networks and a seeded web.

The nodes are the real ones (`dhtcrawl.node.swarm_node`). A crash takes a node off
both networks, leaves its disk as a crash would, and tells no other. A `Witness`
sees what no node can: all disks, all messages and all requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from dhtcrawl.closed.secret import Ring
from dhtcrawl.config import Config
from dhtcrawl.errors import BootstrapUnreachable, StorageFull
from dhtcrawl.node.planes import NetworkConfig
from dhtcrawl.node.single import Ports, open_node
from dhtcrawl.node.swarm_node import SwarmNode
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.messages import Reply, Request
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.sim.committer import CrashingCommitter
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.sim.loop import VirtualClock, VirtualLoop, on_host
from dhtcrawl.sim.machines import SimMachine, address_of
from dhtcrawl.sim.net import DatagramNetwork, Weather
from dhtcrawl.sim.streams import Streams, StreamWeather
from dhtcrawl.sim.tally import MessageTally
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimClient, SimWeb
from dhtcrawl.sim.wires import Wires
from dhtcrawl.sim.world import SimDisk, never, offload
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.committer import Committer, GroupRunner
from dhtcrawl.storage.store.crawl_record import CrawlRecord, new_record
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.records import unpack

PORT = 8468
# What a supervisor does with a node that found none to join through.
START_AGAIN_S = 1.0
# How many nodes a new one is told of.
BOOTSTRAP_MAX = 8
RATE_OFF = 1e-4
# What a slow node adds to every way, and by how much its disk is slower.
SLOW_WAY_S = 0.25
SLOW_DISK = 25.0


class Witness(Protocol):
    """Watches a swarm; called on the loop, and never changes anything."""

    def engine(self, host: SimHost) -> MemoryEngine:
        """A new disk for a host, which reports what is written to it."""

    def asked(self, host: SimHost, asker: bytes, message: Request) -> Callable[[Reply], None]:
        """A message came to a node; what comes back is called with the answer."""

    def fetches(self, host: SimHost, url: str) -> None:
        """A node asks the web."""


@dataclass(frozen=True, slots=True)
class SimConditions:
    """What a swarm's machines and lines are like."""

    weather: Weather = field(default_factory=Weather)
    wires: Wires | None = None  # None: as the weather has it
    bytes_per_s: float = 12_500_000.0  # of each connection, each way
    commit_s: float = 0.004  # what an fsync takes
    skew_s: float = 0.0  # walls are off by up to so much, and what counts durations runs up to 0.1 ‰ fast or slow
    machine_of: Callable[[int], SimMachine] | None = None
    ring: Ring | None = None  # seals the datagrams; connections in memory have no TLS
    type_of: Callable[[int], str] | None = None
    handler_of: Callable[[SimHost, Handler], Handler] | None = None  # what answers in place of a node's own handler


@dataclass(slots=True)
class _Running:
    """What there is of a host while it runs, and through which addresses it joins."""

    bootstrap: list[str] = field(default_factory=list)
    since: float = 0.0
    disk_full: bool = False  # that ended its latest life
    clock: VirtualClock | None = None
    web: SimClient | None = None
    committer: CrashingCommitter | None = None
    task: asyncio.Task[None] | None = None


class SimSwarm:
    """The world of a swarm."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        seed: int,
        config: Config,
        web: SimWeb,
        trace: Trace,
        conditions: SimConditions | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "a simulation runs on virtual time"
        conditions = conditions or SimConditions()
        weather, wires = conditions.weather, conditions.wires or Wires(seed, conditions.weather.delay_s)
        self.group = group
        self.seed = seed
        self.config = config
        self.web = web
        self.trace = trace
        self.conditions = conditions
        self.tally = MessageTally()
        self.loop = loop
        self.datagrams = DatagramNetwork(loop, seed, weather, wires=wires)
        stream_weather = StreamWeather(jitter_s=weather.jitter_s, bytes_per_s=conditions.bytes_per_s)
        self.streams = Streams(loop, seed, stream_weather, wires)
        loop.network = self.datagrams
        loop.streams = self.streams
        self.witness: Witness | None = None  # to be set before the first `add`
        self.hosts: list[SimHost] = []

    def add(self, *, hidden: bool = False) -> SimHost:
        """A machine; a hidden one no other reaches, and its node takes no connections."""
        host = SimHost(self, len(self.hosts))
        if hidden:
            self.wires.hide(host.address)
        self.hosts.append(host)
        return host

    def type_of(self, host: SimHost) -> str | None:
        """The type of a node; None where nodes are of none."""
        return None if self.conditions.type_of is None else self.conditions.type_of(self.hosts.index(host))

    def config_of(self, host: SimHost) -> Config:
        """A node's own configuration."""
        kind = self.type_of(host)
        if kind is None:
            return self.config
        return dataclasses.replace(self.config, node=dataclasses.replace(self.config.node, labels=(f"type={kind}",)))

    @property
    def slow_write_s(self) -> float:
        """What one more write takes at a slow host, there and back; 0 where none is slow."""
        return SLOW_DISK * self.conditions.commit_s + 2 * SLOW_WAY_S if any(host.slow for host in self.hosts) else 0.0

    @property
    def wires(self) -> Wires:
        return self.streams.wires

    @property
    def up(self) -> list[SimHost]:
        return [host for host in self.hosts if host.swarm is not None]


def first_id(seed: int, number: int) -> bytes:
    """The id of a host's node, until its disk is lost."""
    return Random(f"{seed} node {number} id").randbytes(20)


class SimHost:
    """One machine with its disk. Its randomness is its own, so that another's does not change it."""

    def __init__(self, world: SimSwarm, number: int) -> None:
        self.address = address_of(number)
        self.name = f"node {number}"
        self.starts = 0
        self.paused = False
        self.slow = False
        self._running = _Running()
        self.swarm: SwarmNode | None = None
        self._world = world
        self._rng = Random(f"{world.seed} {self.name}")
        self.id = first_id(world.seed, number)
        self.machine = None if world.conditions.machine_of is None else world.conditions.machine_of(number)
        self.disk = self._new_disk()

    @property
    def hidden(self) -> bool:
        """Whether no other host reaches it."""
        return self._world.wires.is_hidden(self.address)

    @property
    def started_at(self) -> float:
        """When its latest life began; a node that reaches no other begins another one."""
        return self._running.since

    @property
    def disk_full(self) -> bool:
        """Whether its latest life ended since its disk took nothing more, whatever else was to end it."""
        return self._running.disk_full

    async def start(self, bootstrap: list[SimHost]) -> SwarmNode:
        """Start the node, through others where there are some; returns once it owns what it should."""
        self.begin(bootstrap)
        return await self.joined()

    async def joined(self) -> SwarmNode:
        """Return once it owns what it should, in any of its lives: a node that reaches no other is started again."""
        while True:
            while self.swarm is None:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_AGAIN_S):
                    await self.swarm.ready.wait()
                    return self.swarm

    def begin(self, bootstrap: list[SimHost]) -> None:
        self._running.bootstrap = [host.address for host in bootstrap]
        self.begin_again()

    def begin_again(self) -> None:
        self.starts += 1
        self.disk.takes_nothing = False
        self._world.streams.restart(self.address)
        with on_host(self.address):
            self._running.task = self._world.group.create_task(self._run(self._running.bootstrap))

    async def submit(self, spec: CrawlSpec, salt: bytes) -> CrawlRecord:
        """Begin a crawl here: what it starts is this machine's, and stands still with it."""
        assert self.swarm is not None, "it runs"
        record = new_record(spec, salt, self.swarm.node.ports.key)
        with on_host(self.address):
            task = asyncio.get_running_loop().create_task(self.swarm.crawls.publish(record))
        return await task

    async def crash(self) -> None:
        self._world.trace.event("crash", node=self.id)
        self._world.datagrams.crash(self.address)
        self._world.streams.crash(self.address)
        if self._running.committer is not None:
            # What was being written may have been, in the last moment.
            self._running.committer.crash(written=self._rng.random() < 0.5)
        if self._running.web is not None:
            self._running.web.gone = True
        await self._end()
        self.disk.tear(self._rng)

    async def lose_disk(self) -> None:
        """A crash that takes the disk along: the node that starts here next is another one."""
        await self.crash()
        self.id = Random(f"{self._world.seed} {self.name} id {self.starts}").randbytes(20)
        self.disk = self._new_disk()
        # It knows no other node, so it is named some that are there, though the first was once told of none.
        there = [host.address for host in self._world.up if not host.hidden]
        self._running.bootstrap = there[:BOOTSTRAP_MAX] or self._running.bootstrap

    def bodies(self) -> set[bytes]:
        """The keys of pages with status 200 whose bodies are on its disk."""
        rows = (row for kind in (keys.PAGE, keys.COPY) for row in self.disk.engine.scan(kind, keys.after(kind)))
        return {keys.suffix(full) for full, value in rows if unpack(value)["status"] == 200}

    def pause(self) -> None:
        """Stand still, as under SIGSTOP: what is sent to it waits."""
        self._world.trace.event("pause", node=self.id)
        self.paused = True
        self._world.loop.pause(self.address)

    def resume(self) -> None:
        """Let it go on; nothing tells it that it stood still."""
        if self.paused:
            self._world.trace.event("resume", node=self.id)
            self.paused = False
            self._world.loop.resume(self.address)

    def slow_down(self) -> None:
        self.slow = True
        self._world.wires.slow_down(self.address, SLOW_WAY_S)

    def jump(self, by_s: float) -> None:
        if self._running.clock is not None:
            self._running.clock.off_s += by_s

    async def fail_disk(self) -> bool:
        """Its disk takes nothing more, and that ends it sooner or later; False if something else ended it before."""
        self._world.trace.event("disk error", node=self.id)
        self.disk.takes_nothing = True
        if self._running.committer is not None:
            self._running.committer.fail()
        assert self._running.task is not None, "it runs"
        task = self._running.task
        await asyncio.wait([task])
        return not task.cancelled()

    async def leave(self) -> bool:
        """Hand over and stop; whether everything was taken."""
        assert self.swarm is not None, "it runs"
        swarm = self.swarm
        swarm.leave()
        assert self._running.task is not None
        await self._running.task
        return bool(swarm.handed)

    async def stop(self) -> None:
        assert self.swarm is not None, "it runs"
        self.swarm.shutdown()
        assert self._running.task is not None
        await self._running.task

    async def _end(self) -> None:
        assert self._running.task is not None, "it was started"
        self._running.task.cancel()
        self.resume()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running.task
        self.swarm = None

    def _new_disk(self) -> SimDisk:
        witness = self._world.witness
        return SimDisk() if witness is None else SimDisk(witness.engine(self))

    async def _run(self, bootstrap: list[str]) -> None:
        while not await self._run_once(bootstrap):
            await asyncio.sleep(START_AGAIN_S)
            # A node that is started again is named nodes that are there.
            up = [host for host in self._world.up if not host.hidden]
            there = [host for host in up if host.swarm is not None and host.swarm.ready.is_set()]
            bootstrap = [host.address for host in there] or bootstrap

    async def _run_once(self, bootstrap: list[str]) -> bool:
        """One life; False if no node was there to join through."""
        self._running.since, self._running.disk_full = self._world.loop.time(), False
        clock = self._running.clock = self._new_clock()
        alone = False
        try:
            async with open_node(self._world.config_of(self), self._ports(clock)) as node:
                self.swarm = SwarmNode(
                    node,
                    NetworkConfig(
                        listen=(self.address, PORT),
                        bootstrap=tuple((address, PORT) for address in bootstrap),
                        source=self.address,
                        ring=self._world.conditions.ring,
                        outbound_only=self.hidden,
                    ),
                    outputs=lambda _: self.disk.outputs,
                    disk_used=never,
                    through=self._through,
                )
                await self.swarm.run()
        except* BootstrapUnreachable:
            alone = True
        except* StorageFull:
            self._running.disk_full = True
            # As a process that ends: nothing of it is left to answer.
            self._world.datagrams.crash(self.address)
            self._world.streams.crash(self.address)
        finally:
            self.swarm = None
        return not alone

    def _through(self, handler: Handler) -> Handler:
        handler_of = self._world.conditions.handler_of
        own = handler if handler_of is None else handler_of(self, handler)
        return _Watched(self, self._world.witness, self._world.tally, own)

    def _new_clock(self) -> VirtualClock:
        loop, skew_s = self._world.loop, self._world.conditions.skew_s
        if not skew_s:
            return VirtualClock(loop)
        rng = Random(f"{self._world.seed} {self.name} clock {self.starts}")
        rate = 1 + rng.uniform(-RATE_OFF, RATE_OFF)
        return VirtualClock(loop, started=rng.uniform(0, 1e6), off_s=rng.uniform(-skew_s, skew_s), rate=rate)

    def _fetches(self, url: str) -> None:
        if self._world.witness is not None:
            self._world.witness.fetches(self, url)

    def _ports(self, clock: VirtualClock) -> Ports:
        world = self._world

        def make_committer(runner: GroupRunner) -> Committer:
            commit_s = world.conditions.commit_s * (SLOW_DISK if self.slow else 1.0)
            held = Random(f"{world.seed} {self.name} commits {self.starts}")
            self._running.committer = CrashingCommitter(runner, latency_s=commit_s, rng=held)
            if self.disk.takes_nothing:
                self._running.committer.fail()
            return self._running.committer

        self._running.web = SimClient(world.web, clock, self.name, self._fetches, self.machine)
        return Ports(
            clock=clock,
            rng=self._rng,
            http=self._running.web,
            engine=self.disk.engine,
            make_committer=make_committer,
            offload=offload,
            aside=offload,
            key=SimKey(self.id, self.starts),
            observer=world.trace,
            machine=dict if self.machine is None else self.machine.traits,
        )


@dataclass(frozen=True, slots=True)
class _Watched:
    """What answers for a node, seen by the witness; what the node asks itself comes through here, too."""

    host: SimHost
    witness: Witness | None
    tally: MessageTally
    handler: Handler

    def __call__(self, hello: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
        self.tally.asked(self.host.id, hello.node_id, message)
        told: list[Callable[[Reply], None]] = [partial(self.tally.answered, self.host.id, hello.node_id)]
        if self.witness is not None:
            told.append(self.witness.asked(self.host, hello.node_id, message))
        reply = self.handler(hello, message)
        if isinstance(reply, asyncio.Future):
            reply.add_done_callback(lambda done: _tell(told, done))
        else:
            for answered in told:
                answered(reply)
        return reply


def _tell(told: list[Callable[[Reply], None]], done: asyncio.Future[Reply]) -> None:
    if not done.cancelled() and done.exception() is None:
        for answered in told:
            answered(done.result())
