"""How a node finds the swarm when it starts, remembers it for the next time, and looks for those who are not there.

Nodes that start while others are away join through those that answer. Later each
asks those that it knew, and those that it was told of, until they answer. Otherwise
no node would ever ask them, and one swarm would stay two.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import count, islice
from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.errors import BootstrapUnreachable
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.server import unreachable
from dhtcrawl.rpc.membership.gossip import Gossip
from dhtcrawl.rpc.membership.hello import NodeState
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers, MemberRows
from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.rpc.peers.port import call_of, reply_to
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.rows import PeerRow
from dhtcrawl.rpc.tasks.transport import TaskTransport
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.records import pack, unpack
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.membership.contact import LostContact, SwarmContact
from dhtcrawl.units import format_address

log = logging.getLogger(__name__)

REMEMBERED_MAX = 64  # members, and as many that are not there
SEEK_EVERY_S = 2.0  # one of those that are not there is asked
NAMED_EVERY = 5  # so many times as often as one that was named as bootstrap
# A peer may name any address as a node's: so many of them are greeted, each once in a while.
GREETED_MAX = 256
GREET_AGAIN_S = 10.0
_ALONE = "nor does a node that this one knew; any of them that is started without --bootstrap goes on by itself"
_MEMBERS_KEY = b"\x00acquaintances"


@loop_state
class PeerStore:
    """Keeps the addresses of other nodes in this node's store, and asks those that are away."""

    def __init__(self, gossip: Gossip, committer: Committer, clock: Clock, own: Address) -> None:
        self._gossip = gossip
        self._committer = committer
        self._clock = clock
        self._own = own
        self._greeted: OrderedDict[bytes, float] = OrderedDict()
        self._named: deque[Address] = deque()  # whom to ask next comes first
        self._there: dict[bytes, Address] = {}
        self._away: dict[bytes, Address] = {}  # the one that went last comes first
        self._asked: dict[bytes, int] = {}  # of those, at which turn
        self._looked: tuple[View, list[bytes]] | None = None  # the view that was noted, and who of those away had left
        self._noted: list[list[Any]] = []  # what the store has of it
        self._contact = SwarmContact(gossip.members.me.id)

    async def find(self, bootstrap: Sequence[Address]) -> bool:
        """Join through the nodes that were named, or those that were members when we last ran.

        Returns:
            Whether there is, or was, a swarm to join; False where this node begins one.

        Raises:
            BootstrapUnreachable: nodes were named, and none of them answered, or their names are unknown.
        """
        self._named.extend(dict.fromkeys(bootstrap))
        for node, address, there in await self._committer.submit(_remembered):
            if address != self._own:
                (self._there if there else self._away)[node] = address
        known = [address for address in (self._there or self._away).values() if address not in bootstrap]
        try:
            if bootstrap or known:
                await self._gossip.join([*bootstrap, *known])
        except BootstrapUnreachable as error:
            if bootstrap:
                also = "; ".join(filter(None, (_ALONE if known else "", error.also)))
                raise unreachable(bootstrap, error.unknown, also=also) from error
            log.info("no node of the swarm that this node was in answers; it goes on by itself, and asks them again")
        if bootstrap and len(self._gossip.view.members) <= 1:
            # To go on would begin a second swarm.
            names = ", ".join(map(format_address, bootstrap))
            said = "of these, and the nodes that this one knew, none that answers is a member of a swarm"
            said = f": {said}" if known else " answers, but not as a member of a swarm"
            raise BootstrapUnreachable(f"bootstrap: {names}{said}; name one that is")
        return bool(bootstrap or known)

    @property
    def addresses(self) -> list[Address]:
        """Of the nodes that are there, and of those that were."""
        return [*self._there.values(), *self._away.values()]

    async def remember(self) -> None:
        """Note who is there and who was, where that has changed: who forgot the others would begin another swarm."""
        self.lost_contact()  # so that it is known since when
        members, view = self._gossip.members, self._gossip.view
        left = [node for node in self._away if (known := members.get(node)) and known.state is NodeState.LEFT]
        # In a large swarm there is much to go through, and most seconds nothing is new.
        if self._looked is not None and self._looked[0] is view and self._looked[1] == left:
            return
        self._looked = view, left
        reachable = [member for member in view.members if member.state is not MemberState.OUTBOUND]
        there = {member.id: member.address for member in reachable if member.id != members.me.id}
        # One that lost its disk comes back as another, at the same address.
        taken = set(there.values())
        # Two that leave at once would forget each other.
        leaving = members.me.state is NodeState.LEFT
        away: dict[bytes, Address] = {}
        for node, address in [*reversed(self._there.items()), *self._away.items()]:
            known = members.get(node)
            has_left = known is not None and known.state is NodeState.LEFT and not leaving
            if not (node in there or address in taken or has_left) and len(away) < REMEMBERED_MAX:
                away[node] = address
                taken.add(address)
        self._away = away
        self._there = dict(islice(there.items(), REMEMBERED_MAX))
        rows = [[*address, node, True] for node, address in self._there.items()]
        rows += [[*address, node, False] for node, address in self._away.items()]
        if rows and rows != self._noted:
            await self._committer.submit(lambda txn: txn.put(_MEMBERS_KEY, pack(rows)))
            self._noted = rows

    def lost_contact(self) -> LostContact | None:
        """What is lost where none of the nodes that this one knows answers now; None with contact."""
        return self._contact.look(self._gossip.view, (*self._there, *self._away), self._clock.monotonic())

    async def seek(self) -> None:
        """Ask those that are not there, one after the other, for as long as this node runs."""
        for turn in count(1):
            await asyncio.sleep(SEEK_EVERY_S)
            if turn % NAMED_EVERY == 0 and self._named:
                await self._gossip.meet(self._named[0])
                self._named.rotate(-1)
            else:
                self._seek_one(turn)

    def _seek_one(self, turn: int) -> None:
        # Whom gossip takes for dead, it asks itself.
        unknown = [node for node in reversed(self._away) if self._gossip.members.get(node) is None]
        self._asked = {node: self._asked.get(node, 0) for node in unknown}
        if unknown:
            node = min(unknown, key=self._asked.__getitem__)
            self._asked[node] = turn
            self._gossip.greet(self._away[node], node)

    def greet(self, peer: PeerRow) -> None:
        """Get to know a node that another takes for an owner, and that we do not know."""
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


class GossipStanding:
    """The gossip as `Join` wants it."""

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
    transport: TaskTransport, address: Address, node: bytes, asked: ExchangeMembers
) -> MemberRows | None:
    """The call `members`, by address: before a node is a member there is no other way to it."""
    terms = asked.terms
    reply = await transport.request(address, call_of(asked), node_id=node, timeout_s=terms.timeout_s)
    answer = reply_to(asked, reply)
    return None if isinstance(answer, Failure) else answer


def _remembered(txn: Txn) -> list[tuple[bytes, Address, bool]]:
    value = txn.get(_MEMBERS_KEY)
    return [] if value is None else [(node, (host, port), there) for host, port, node, there in unpack(value)]
