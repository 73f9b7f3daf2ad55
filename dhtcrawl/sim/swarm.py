"""Many nodes in one process: a swarm on a virtual clock, in-memory networks and a seeded web.

The nodes are the real ones (`dhtcrawl.swarm.node`). A crash takes a node off
both networks, leaves its disk as a crash would, and tells nobody. A `Witness`
sees what no node can: all disks, all messages and all requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from dhtcrawl.config import Config
from dhtcrawl.errors import BootstrapUnreachable
from dhtcrawl.node import Node, Ports, open_node
from dhtcrawl.rpc.messages import Reply, Request
from dhtcrawl.rpc.signals import Hello
from dhtcrawl.sim.loop import VirtualClock, VirtualLoop
from dhtcrawl.sim.net import Network as Datagrams
from dhtcrawl.sim.net import Weather, current_host
from dhtcrawl.sim.streams import Streams, StreamWeather
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimClient, SimWeb
from dhtcrawl.sim.world import CrashingCommitter, Disk
from dhtcrawl.storage.committer import Committer, GroupRunner
from dhtcrawl.storage.memory import MemoryEngine
from dhtcrawl.swarm.node import Network, SwarmNode

PORT = 8468
# What a supervisor does with a node that found nobody to join through.
START_AGAIN_S = 1.0


class Witness(Protocol):
    """Who watches; called on the loop, and never changes anything."""

    def engine(self, host: SimHost) -> MemoryEngine:
        """A new disk for a host, which reports what is written to it."""
        ...

    def asked(self, host: SimHost, asker: bytes, message: Request) -> Callable[[Reply], None]:
        """A message came to a node; what comes back is called with the answer."""
        ...

    def fetches(self, host: SimHost, url: str) -> None:
        """A node asks the web."""
        ...


class SimSwarm:
    """The world of a swarm."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        seed: int,
        config: Config,
        web: SimWeb,
        trace: Trace,
        *,
        weather: Weather | None = None,
        commit_s: float = 0.004,
    ) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "a simulation runs on virtual time"
        weather = weather or Weather()
        self.group = group
        self.seed = seed
        self.config = config
        self.web = web
        self.trace = trace
        self.commit_s = commit_s
        self.datagrams = Datagrams(loop, seed, weather)
        self.streams = Streams(
            loop, seed, StreamWeather(delay_s=weather.delay_s, jitter_s=weather.jitter_s), current_host.get
        )
        loop.network = self.datagrams
        loop.streams = self.streams
        self.witness: Witness | None = None  # to be set before the first `add`
        self.hosts: list[SimHost] = []

    def add(self) -> SimHost:
        """One more machine, not started yet."""
        host = SimHost(self, len(self.hosts))
        self.hosts.append(host)
        return host

    @property
    def up(self) -> list[SimHost]:
        """Those that run."""
        return [host for host in self.hosts if host.swarm is not None]


class SimHost:
    """One machine with its disk. Its randomness is its own, so that another's does not change it."""

    def __init__(self, world: SimSwarm, number: int) -> None:
        self.address = f"10.0.{number // 250}.{number % 250 + 1}"
        self.name = f"node {number}"
        self.starts = 0
        self._bootstrap: list[str] = []
        self.swarm: SwarmNode | None = None
        self._world = world
        self._rng = Random(f"{world.seed} {self.name}")
        self.id = Random(f"{world.seed} {self.name} id").randbytes(20)
        self.disk = self._new_disk()
        self._committer: CrashingCommitter | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, bootstrap: list[SimHost]) -> SwarmNode:
        """Start the node, through others where there are some; returns once it owns what it should."""
        self.begin(bootstrap)
        while self.swarm is None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
        await self.swarm.ready.wait()
        return self.swarm

    def begin(self, bootstrap: list[SimHost]) -> None:
        """Start the node."""
        self._bootstrap = [host.address for host in bootstrap]
        self.begin_again()

    def begin_again(self) -> None:
        """Start it as it was started before."""
        self.starts += 1
        self._world.streams.restart(self.address)
        token = current_host.set(self.address)
        try:
            self._task = self._world.group.create_task(self._run(self._bootstrap))
        finally:
            current_host.reset(token)

    async def crash(self) -> None:
        """From one moment to the next it is gone."""
        self._world.trace.event("crash", node=self.id)
        self._world.datagrams.crash(self.address)
        self._world.streams.crash(self.address)
        if self._committer is not None:
            self._committer.crash()
        await self._end()
        self.disk.tear(self._rng)

    async def lose_disk(self) -> None:
        """A crash that takes the disk along: the node that starts here next is another one."""
        await self.crash()
        self.id = Random(f"{self._world.seed} {self.name} id {self.starts}").randbytes(20)
        self.disk = self._new_disk()

    async def leave(self) -> bool:
        """Hand over and stop; whether everything was taken."""
        assert self.swarm is not None, "it runs"
        swarm = self.swarm
        swarm.leave()
        assert self._task is not None
        await self._task
        return swarm.handed_over

    async def stop(self) -> None:
        """Stop in order, without handing over."""
        assert self.swarm is not None, "it runs"
        self.swarm.shutdown()
        assert self._task is not None
        await self._task

    async def _end(self) -> None:
        assert self._task is not None, "it was started"
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self.swarm = None

    def _new_disk(self) -> Disk:
        witness = self._world.witness
        return Disk() if witness is None else Disk(witness.engine(self))

    async def _run(self, bootstrap: list[str]) -> None:
        while not await self._run_once(bootstrap):
            await asyncio.sleep(START_AGAIN_S)
            # Whoever starts it again names nodes that are there.
            there = [host for host in self._world.up if host.swarm is not None and host.swarm.ready.is_set()]
            bootstrap = [host.address for host in there] or bootstrap

    async def _run_once(self, bootstrap: list[str]) -> bool:
        """One life; False if nobody was there to join through."""
        clock = VirtualClock(asyncio.get_running_loop())
        alone = False
        try:
            async with open_node(self._world.config, self._ports(clock)) as node:
                self.swarm = _WatchedNode(
                    self,
                    self._world.witness,
                    node,
                    Network(
                        listen=(self.address, PORT),
                        bootstrap=tuple((address, PORT) for address in bootstrap),
                        source=self.address,
                    ),
                    outputs=lambda _: self.disk.outputs,
                    disk_used=lambda _: _never,
                )
                await self.swarm.run()
        except* BootstrapUnreachable:
            alone = True
        finally:
            self.swarm = None
        return not alone

    def _fetches(self, url: str) -> None:
        if self._world.witness is not None:
            self._world.witness.fetches(self, url)

    def _ports(self, clock: VirtualClock) -> Ports:
        world = self._world

        def make_committer(runner: GroupRunner) -> Committer:
            self._committer = CrashingCommitter(runner, latency_s=world.commit_s)
            return self._committer

        async def offload(function: Callable[[], Any]) -> Any:
            await asyncio.sleep(0)
            return function()

        return Ports(
            clock=clock,
            rng=self._rng,
            http=SimClient(world.web, clock, self.name, self._fetches),
            engine=self.disk.engine,
            make_committer=make_committer,
            offload=offload,
            node_id=self.id,
            observer=world.trace,
        )


class _WatchedNode(SwarmNode):
    """A node whose messages are seen by the witness, those to itself included."""

    def __init__(self, host: SimHost, witness: Witness | None, node: Node, network: Network, **parts: Any) -> None:
        super().__init__(node, network, **parts)
        self._host = host
        self._witness = witness

    def _handle(self, hello: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
        if self._witness is None:
            return super()._handle(hello, message)
        answered = self._witness.asked(self._host, hello.node_id, message)
        reply = super()._handle(hello, message)
        if not isinstance(reply, asyncio.Future):
            answered(reply)
            return reply
        reply.add_done_callback(lambda done: _tell(answered, done))
        return reply


def _tell(answered: Callable[[Reply], None], done: asyncio.Future[Reply]) -> None:
    if not done.cancelled() and done.exception() is None:
        answered(done.result())


async def _never() -> bool:
    return False
