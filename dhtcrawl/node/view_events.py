"""What a node does when the others come, go, own, or take it for dead."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial

from dhtcrawl.keyspace import host_key
from dhtcrawl.node.swarm_parts import Ground, SwarmParts
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import NOT_A_MEMBER
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.store import catalog
from dhtcrawl.swarm.calls import membership as calls
from dhtcrawl.swarm.lifecycle import in_flight


@dataclasses.dataclass(frozen=True, slots=True)
class ViewEvents:
    """Tells each part of one node what the gossip has found."""

    ground: Ground
    group: asyncio.TaskGroup
    parts: SwarmParts

    def subscribe(self) -> None:
        """Hear of every change from here on."""
        gossip = self.parts.planes.gossip
        self.ground.registry.serve(calls.Activate, self._on_activate)
        gossip.on_change.append(self._view_changed)
        gossip.on_declared_dead.append(self._declared_dead)
        gossip.on_reunited.append(self.parts.gate.reunited)

    def _view_changed(self, view: View) -> None:
        parts = self.parts
        self.ground.network.met(member.address for member in view.members)
        runs, gossip = parts.lifecycle.runs, parts.planes.gossip
        parts.planes.peers.view_changed(view)
        crawling = runs.records.running
        parts.records.merger.view_changed()
        runs.view_changed(view)
        parts.records.replicator.view_changed()
        parts.gate.view_changed(view, crawling, dead=gossip.members.dead_count)
        parts.membership.join.view_changed()

    def _declared_dead(self) -> None:
        known = self.parts.planes.gossip.members.me.incarnation
        if known > self.ground.node.incarnation:
            # A restored data directory: the others have seen later starts of this node.
            self.group.create_task(self._remember_start(known))
        self.parts.gate.void()
        self.parts.membership.join.rejoin()

    async def _remember_start(self, incarnation: int) -> None:
        await self.ground.node.committer.submit(partial(catalog.remember_incarnation, incarnation=incarnation))

    def _on_activate(self, asker: bytes, args: calls.Activate) -> calls.Activated | Refused:
        """A newcomer owns from now on: what we have in flight of its tasks."""
        runs, gossip, office = self.parts.lifecycle.runs, self.parts.planes.gossip, self.parts.gate.office
        lent = in_flight.lent(runs)
        if not gossip.mark_active(asker, args.incarnation):
            return Refused(NOT_A_MEMBER, "tell members first")
        owner = gossip.view.owner
        hosts = office.export(lambda host: (found := owner(host_key(host))) is not None and found.id == asker)
        return calls.Activated(in_flight.in_flight_of(runs, gossip.view, asker, lent), hosts)
