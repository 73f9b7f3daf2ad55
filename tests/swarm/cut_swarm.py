"""Nodes with membership and hosts that they share, all of whom ask the same web: cut in two, and whole again.

Who is there is found out by the real gossip on a network in memory, hosts are leased by the real gates over calls that
no side gets to the other; the rest of a node is left out. One that is declared dead drops its leases, is no gatekeeper,
and joins again a little later, told by all others of the hosts that are its own from then on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

from rpc.gossip_swarm import Swarm, swarm
from rpc.routing_swarm import host

from dhtcrawl.keyspace import host_key
from dhtcrawl.rpc.membership.gossip import Gossip
from dhtcrawl.rpc.membership.hello import NodeState
from dhtcrawl.sim.net import Weather

from .gate_swarm import GateNode, Gates

DELAY_S = 1.0
ANSWER_S = 0.05
JOINS_IN_S = 3.0
CALM_S = 10.0
LOOK_S = 0.05


class Visit(NamedTuple):
    """A request as the web saw it."""

    site: str
    node: bytes
    began_at: float
    ended_at: float


class CutSwarm:
    """So many nodes that fetch from the same sites without end; `visits` is what the web saw."""

    def __init__(self, members: Swarm) -> None:
        self.visits: list[Visit] = []
        self.gates = Gates(rtt_s=0.02)
        self.gates.loses_request = lambda said: self._side(said.asker) != self._side(said.asked)
        self._members = members
        self._gossip: dict[bytes, Gossip] = {}
        self._few: frozenset[bytes] = frozenset()

    def _side(self, node: bytes) -> bool:
        return node in self._few

    async def grow(self, count: int) -> None:
        """Make the nodes; all know each other then."""
        for gossip in await self._members.grow(count):
            node_id = gossip.members.me.id
            node = GateNode(self.gates, node_id)
            self._gossip[node_id] = gossip
            gossip.on_change.append(partial(self._changed, node, gossip))
            gossip.on_declared_dead.append(partial(self._declared_dead, node, gossip))
            gossip.on_reunited.append(node.gate.reunited)
        await self._members.until_agreed(20)
        for node_id, gossip in self._gossip.items():
            self.gates.nodes[node_id].own_view = gossip.view

    def _changed(self, node: GateNode, gossip: Gossip, *_: object) -> None:
        node.own_view = gossip.view
        node.gate.view_changed(gossip.view, True, dead=gossip.members.dead_count)

    def _declared_dead(self, node: GateNode, gossip: Gossip) -> None:
        node.fit = False
        node.gate.void()
        asyncio.get_running_loop().call_later(JOINS_IN_S, self._join, node, gossip)

    def _join(self, node: GateNode, gossip: Gossip) -> None:
        """It owns from now on, and whom it can reach tells it of the hosts that come to it."""
        me = gossip.members.me
        gossip.set_state(NodeState.ACTIVE)
        for other_id, other in self._gossip.items():
            if other_id != me.id and self._side(other_id) == self._side(me.id):
                other.mark_active(me.id, me.incarnation)
                office = self.gates.nodes[other_id].gate.office
                while rows := office.export(partial(_is_owner, other, me.id)):
                    node.gate.office.adopt(rows)
        node.fit = True

    def cut(self, few: int) -> None:
        """So many of them on one side, the others on the other; the web is reached by all."""
        ids = list(self._gossip)
        self._few = frozenset(ids[:few])
        self._members.cut(*([host(1 + ids.index(each)) for each in side] for side in (ids[:few], ids[few:])))

    def heal(self) -> None:
        self._few = frozenset()
        self._members.heal()

    @property
    def whole(self) -> bool:
        """Whether all know of each other."""
        return all(len(gossip.view.members) == len(self._gossip) for gossip in self._gossip.values())

    async def fetch(self, sites: Sequence[str]) -> None:
        """All nodes fetch from all these, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for node in self.gates.nodes.values():
                group.create_task(node.gate.run())
                for site in sites:
                    group.create_task(node.fetch(site, DELAY_S, 10**9, partial(self._serve, site, node.node_id)))

    async def _serve(self, site: str, node: bytes) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            await asyncio.sleep(ANSWER_S)
        finally:
            self.visits.append(Visit(site, node, began_at, loop.time()))

    def too_soon(self, since: float) -> list[float]:
        """When requests began, from then on, before the delay after the one before was over."""
        found, ended_at = [], dict[str, float]()
        for visit in sorted(self.visits, key=lambda visit: visit.began_at):
            if since <= visit.began_at < ended_at.get(visit.site, -math.inf) + DELAY_S - 1e-6:
                found.append(visit.began_at)
            ended_at[visit.site] = max(visit.ended_at, ended_at.get(visit.site, -math.inf))
        return found


def _is_owner(gossip: Gossip, node: bytes, site: str) -> bool:
    owner = gossip.view.owner(host_key(site))
    return owner is not None and owner.id == node


class Healed(NamedTuple):
    """What was seen after a cut was over; seconds count from then."""

    known_s: float  # until all knew of each other
    too_soon: list[float]


@asynccontextmanager
async def fetching(seed: int, nodes: int, sites: Sequence[str]) -> AsyncIterator[CutSwarm]:
    """Nodes that fetch meanwhile."""
    async with swarm(seed, Weather()) as members:
        made = CutSwarm(members)
        await made.grow(nodes)
        async with asyncio.TaskGroup() as group:
            work = group.create_task(made.fetch(sites))
            await asyncio.sleep(CALM_S)
            yield made
            work.cancel()


async def cut_and_healed(seed: int, nodes: int, few: int, lasts_s: float = 40.0) -> Healed:
    """A swarm is cut into `few` nodes and the others, and whole again; what came then, for half a minute."""
    time, sites = asyncio.get_running_loop().time, [f"site-{number}.test" for number in range(6)]
    async with fetching(seed, nodes, sites) as made:
        made.cut(few)
        await asyncio.sleep(lasts_s)
        made.heal()
        healed_at = time()
        while not made.whole:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(LOOK_S)
        known_at = time()
        await asyncio.sleep(30.0)
        return Healed(known_at - healed_at, [at - healed_at for at in made.too_soon(healed_at)])
