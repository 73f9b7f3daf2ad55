"""How a node finds the swarm when it starts, and remembers it for the next time."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.errors import BootstrapUnreachable
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.exchange import REPLY_BYTES_MAX
from dhtcrawl.rpc.gossip import Gossip
from dhtcrawl.rpc.hello import NodeState
from dhtcrawl.rpc.messages import Call, Result
from dhtcrawl.rpc.rows import Peer
from dhtcrawl.rpc.transport import TaskTransport
from dhtcrawl.rpc.view import MemberState, View
from dhtcrawl.storage.committer import Committer, Txn
from dhtcrawl.storage.records import pack, unpack
from dhtcrawl.units import format_address

log = logging.getLogger(__name__)

REMEMBERED_MAX = 64
MEMBERS_TIMEOUT_S = 5.0
# A peer may name any address as a node's: so many of them are greeted, each once in a while.
GREETED_MAX = 256
GREET_AGAIN_S = 10.0
_MEMBERS_KEY = b"\x00members"


class Acquaintances:
    """Of one node."""

    def __init__(self, gossip: Gossip, committer: Committer, clock: Clock, own: Address) -> None:
        self._gossip = gossip
        self._committer = committer
        self._clock = clock
        self._own = own
        self._greeted: OrderedDict[bytes, float] = OrderedDict()
        self._noted: list[list[Any]] = []  # what the store has of it

    async def find(self, bootstrap: Sequence[Address]) -> bool:
        """Join through the nodes that were named, or those that were members when we last ran.

        Returns:
            Whether there is, or was, a swarm to join; False where this node begins one.

        Raises:
            BootstrapUnreachable: nodes were named, and none of them answered.
        """
        remembered = await self._committer.submit(_remembered)
        known = [address for address in remembered if address not in (self._own, *bootstrap)]
        try:
            if bootstrap or known:
                await self._gossip.join([*bootstrap, *known])
        except BootstrapUnreachable as error:
            if bootstrap:
                names = ", ".join(map(format_address, bootstrap))
                raise BootstrapUnreachable(
                    f"bootstrap: no answer from {names}; is a node listening there, and does UDP get through?"
                ) from error
            log.info("nobody of the swarm that this node was in answers; it goes on by itself")
        if bootstrap and len(self._gossip.view.members) <= 1:
            # To go on would begin a second swarm.
            names = ", ".join(map(format_address, bootstrap))
            raise BootstrapUnreachable(f"bootstrap: {names} answers, but not as a member of a swarm; name one that is")
        return bool(bootstrap or known)

    async def remember(self) -> None:
        """Note who is there, where that has changed: a node that forgot the others would begin a swarm of its own."""
        own = self._gossip.members.me.id
        known = [list(member.address) for member in self._gossip.view.members[: REMEMBERED_MAX + 1] if member.id != own]
        del known[REMEMBERED_MAX:]
        if known and known != self._noted:
            await self._committer.submit(lambda txn: txn.put(_MEMBERS_KEY, pack(known)))
            self._noted = known

    def greet(self, peer: Peer) -> None:
        """Somebody takes a node that we do not know for an owner: get to know it."""
        now = self._clock.monotonic()
        if (
            peer.node_id in self._gossip.members
            or self._greeted.get(peer.node_id, -GREET_AGAIN_S) > now - GREET_AGAIN_S
        ):
            return
        self._greeted[peer.node_id] = now
        if len(self._greeted) > GREETED_MAX:
            self._greeted.popitem(last=False)
        self._gossip.greet((peer.host, peer.port), peer.node_id)


class Standing:
    """The gossip as the entrance wants it."""

    def __init__(self, gossip: Gossip) -> None:
        self._gossip = gossip

    @property
    def view(self) -> View:
        return self._gossip.view

    @property
    def incarnation(self) -> int:
        return self._gossip.members.me.incarnation

    def become(self, state: MemberState) -> None:
        self._gossip.set_state(NodeState.ACTIVE if state is MemberState.ACTIVE else NodeState.JOINING)

    async def exchange(self, node: bytes) -> bool:
        return await self._gossip.exchange(node)


async def ask_members(
    transport: TaskTransport, address: Address, node: bytes, args: dict[str, Any]
) -> dict[str, Any] | None:
    """The call `members`, by address: before a node is a member there is no other way to it."""
    message = Call("members", args, REPLY_BYTES_MAX)
    reply = await transport.request(address, message, node_id=node, timeout_s=MEMBERS_TIMEOUT_S)
    return reply.value if isinstance(reply, Result) else None


def _remembered(txn: Txn) -> list[Address]:
    value = txn.get(_MEMBERS_KEY)
    return [] if value is None else [(host, port) for host, port in unpack(value)]
