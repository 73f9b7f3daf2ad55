"""A newcomer has others try the address that it tells, before it joins: who cannot be reached would only be in the way.

    newcomer                         a member
       `── try_me(host, port) ──────▶   sends a datagram and opens a connection, both from new ports:
       ◀── whether each got through     an answer would also come through a firewall that lets nothing else in

A member tries no address but the one that the newcomer's record has, which it asks in any case from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from dhtcrawl.errors import NotReachable
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.contact import Address, canonical_host
from dhtcrawl.rpc.discovery.protocol import RoutingProtocol
from dhtcrawl.rpc.discovery.server import together
from dhtcrawl.rpc.membership.gossip import Gossip
from dhtcrawl.rpc.membership.hello import MemberRecord
from dhtcrawl.rpc.peers.port import CallRegistry, Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.swarm.calls import membership as calls
from dhtcrawl.swarm.calls.words import Done
from dhtcrawl.swarm.membership.reached import Attempt, unreached

log = logging.getLogger(__name__)

ASKED_MAX: Final = 3
# A burst of loss, or a moment in which this node stood still, is over by the third.
ROUNDS, PAUSE_S = 3, 1.0
TRYING_MAX: Final = 8  # for others, at once
HERE: Final = "here"  # the remote procedure of the routing plane: the id of who answers


class Tried(NamedTuple):
    """Whether a datagram and a connection reached a node."""

    datagram: bool
    connection: bool


# Tries an address from new ports, and expects the node with this id there.
TryAddress = Callable[[Address, bytes], Awaitable[Tried]]


@loop_state
class ReachCheck:
    """Tries for others, and has others try for this node."""

    def __init__(self, peers: Peers, gossip: Gossip, plane: RoutingProtocol, try_address: TryAddress) -> None:
        self._peers = peers
        self._gossip = gossip
        self._plane = plane
        self._try_address = try_address
        self._trying: set[bytes] = set()

    def serve(self, registry: CallRegistry) -> None:
        """Answer others from here on."""
        registry.serve(calls.TryMe, self.on_try_me)
        registry.serve(calls.Here, self.on_here)
        self._plane.register(HERE, lambda _: self._peers.node_id, 0)

    async def require(self) -> None:
        """Return once another node has reached this one, or where none can say.

        Raises:
            NotReachable: others tried, and none of them reached it. They are told that it has left.
        """
        problem = None
        for turn in range(ROUNDS):
            await asyncio.sleep(PAUSE_S if turn else 0.0)
            members = self._gossip.members
            me = members.me
            # Those on our own machine reach us in any case.
            others = [member for member in members.some(len(members)) if member.host != me.host]
            asked = await together(self._have_try(member, me.address) for member in others[:ASKED_MAX])
            attempts = [attempt for attempt in asked if attempt is not None]
            problem = unreached(me.address, attempts) if attempts else None
            if problem is None:
                return
        await self._gossip.leave()
        raise NotReachable(f"join: {problem}")

    async def _have_try(self, member: MemberRecord, told: Address) -> Attempt | None:
        """What a member found; None where it cannot say."""
        if not await self._gossip.exchange(member.id):  # it has to know us
            return None
        answer = await self._peers.call(member.id, calls.TryMe(*told))
        if isinstance(answer, Failure):
            log.info("node %s did not try to reach this one: %s", member.id.hex()[:12], answer.detail)
            return None
        happened, seen = await self._plane.call(member.address, "stun")
        is_address = happened and isinstance(seen, list) and bool(seen) and isinstance(seen[0], str)
        return Attempt(answer.datagram, answer.connection, canonical_host(seen[0]) if is_address else None)

    async def on_try_me(self, asker: bytes, args: calls.TryMe) -> calls.TriedAddress | Refused:
        """A newcomer wants to know whether it can be reached."""
        record = self._gossip.members.get(asker)
        if record is None or record.address != (args.host, args.port):
            return Refused("not-a-member", "tell members first")
        if asker in self._trying or len(self._trying) >= TRYING_MAX:
            return Refused("busy")
        self._trying.add(asker)
        try:
            tried = await self._try_address(record.address, asker)
        finally:
            self._trying.discard(asker)
        return calls.TriedAddress(*tried)

    def on_here(self, _asker: bytes, _args: calls.Here) -> Done:
        """A node that was asked to try has reached this one."""
        return Done()
