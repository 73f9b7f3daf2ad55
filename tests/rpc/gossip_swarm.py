"""Nodes with membership in memory, for the tests of gossip; the task plane is a function call with a delay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import msgpack

from dhtcrawl.clock import Clock
from dhtcrawl.errors import BootstrapUnreachable
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.membership.gossip import Gossip
from dhtcrawl.rpc.membership.gossip_settings import GossipSettings
from dhtcrawl.rpc.membership.hello import OUTBOUND, MemberRecord, NodeState
from dhtcrawl.rpc.membership.member_exchange import TaskPlane
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers, MemberRows
from dhtcrawl.rpc.membership.view import MemberState
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.sim.net import Weather
from dhtcrawl.sim.trace import Trace
from rpc.records import own
from rpc.routing_swarm import CALM, PORT, Plane, host, world

TASK_PLANE_DELAY_S = 0.05
TASK_PLANE_TIMEOUT_S = 2.0


class Swarm:
    """Members by host; what they reported; who cannot be reached."""

    def __init__(self, w: Plane) -> None:
        self.world = w
        self.nodes: dict[str, Gossip] = {}
        self.asked_members = 0
        self.declared_dead: list[str] = []
        self.connections: dict[tuple[str, bytes], float] = {}  # at a host, from a node: seconds since it was heard
        self._sides: dict[str, int] = {}

    async def start(
        self,
        number: int,
        *,
        incarnation: int = 1,
        settings: GossipSettings | None = None,
        address: Address | None = None,
        clock: Clock | None = None,
        outbound: bool = False,
    ) -> Gossip:
        """A node that listens and runs, and knows nobody; an `outbound` one is behind a NAT."""
        name, features = host(number), (OUTBOUND if outbound else "test",)
        server = await self.world.node("ours", name)
        if outbound:
            self.world.net.wires.hide(name)
            server.plane.hide()

        async def ask(address: Address, node_id: bytes, args: ExchangeMembers) -> MemberRows | None:
            return await self._ask(name, address, node_id, args)

        gossip = Gossip(
            server,
            own(MemberRecord.newcomer(server.node.id, address or (name, PORT), incarnation, features)),
            clock=clock or VirtualClock(self.world.loop),
            rng=Random(f"{self.world.seed} gossip {name} {incarnation}"),
            tasks=TaskPlane(ask, lambda node_id: self.connections.get((name, node_id))),
            settings=settings,
        )
        gossip.on_declared_dead.append(lambda: self.declared_dead.append(name))
        self.nodes[name] = gossip
        assert self.world.group is not None
        self.world.group.create_task(gossip.run())
        return gossip

    async def grow(self, count: int, **options: Any) -> list[Gossip]:
        """Nodes that join one after the other, through one of those before, and are active at once."""
        rng = Random(f"{self.world.seed} joins")
        made: list[Gossip] = []
        for number in range(1, count + 1):
            made.append(await self.start(number, **options))
            if number > 1:
                await join(made[-1], host(rng.randrange(1, number)))
            made[-1].set_state(NodeState.ACTIVE)
        return made

    def later(self, seconds: float, action: Callable[..., object], *args: object) -> None:
        self.world.loop.call_later(seconds, action, *args)

    def cut(self, *sides: list[str]) -> None:
        """Datagrams and calls cross from no side to another."""
        self.world.net.wires.partition(*sides)
        self._sides = {name: number for number, side in enumerate(sides, start=1) for name in side}

    def heal(self) -> None:
        self.world.net.wires.heal()
        self._sides = {}

    def crash(self, name: str) -> None:
        self.nodes.pop(name).stop()
        self.world.crash(name)

    async def until_agreed(self, within_s: float, count: int | None = None) -> float:
        """How long it took until all nodes saw the same members (`count` of them), all of them active."""
        began_at = self.world.loop.time()
        while self.world.loop.time() - began_at <= within_s:
            if self.agreed(len(self.nodes) if count is None else count):
                return self.world.loop.time() - began_at
            await asyncio.sleep(0.1)
        seen = {name: sorted(states_of(gossip).items()) for name, gossip in self.nodes.items()}
        raise AssertionError(f"no agreement within {within_s} s: {seen}")

    def agreed(self, count: int) -> bool:
        fingerprints = {gossip.fingerprint() for gossip in self.nodes.values()}
        return len(fingerprints) == 1 and all(
            len(gossip.view.members) == gossip.view.active == count for gossip in self.nodes.values()
        )

    async def _ask(self, name: str, address: Address, node_id: bytes, args: ExchangeMembers) -> MemberRows | None:
        self.asked_members += 1
        await asyncio.sleep(TASK_PLANE_DELAY_S)
        asked = self.nodes.get(address[0])
        apart = self._sides.get(name, 0) != self._sides.get(address[0], 0)
        if asked is None or name not in self.nodes or apart or asked.members.me.id != node_id:
            await asyncio.sleep(TASK_PLANE_TIMEOUT_S)
            return None
        answer = asked.answer_members(self.nodes[name].members.me.id, args.parse(wired(args.to_map())))
        await asyncio.sleep(TASK_PLANE_DELAY_S)
        return answer.parse(wired(answer.to_map()))


async def join(gossip: Gossip, through: str) -> None:
    """As a node does that is not put off by two lost datagrams."""
    for _ in range(2):
        with suppress(BootstrapUnreachable):
            await gossip.join([(through, PORT)])
            return
    await gossip.join([(through, PORT)])


def wired(value: dict[str, Any]) -> dict[str, Any]:
    """What arrives on the other side of the task plane: lists are tuples."""
    unpacked: dict[str, Any] = msgpack.unpackb(msgpack.packb(value), use_list=False)
    return unpacked


def states_of(gossip: Gossip) -> dict[str, MemberState]:
    """Host → state, as one node sees it."""
    return {member.address[0]: member.state for member in gossip.view.members}


@asynccontextmanager
async def swarm(seed: int = 1, weather: Weather = CALM, trace: Trace | None = None) -> AsyncIterator[Swarm]:
    """A swarm whose nodes are stopped at its end."""
    async with world(seed, weather, trace) as w:
        made = Swarm(w)
        try:
            yield made
        finally:
            for gossip in made.nodes.values():
                gossip.stop()
