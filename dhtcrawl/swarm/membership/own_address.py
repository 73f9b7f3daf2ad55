"""Where others reach this node, looked up again as long as it runs: an address that the network gives may change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.membership.gossip import Gossip
from dhtcrawl.swarm.membership.own_host import own_host
from dhtcrawl.units import format_address

log = logging.getLogger(__name__)

LOOK_EVERY_S = 2.0  # less than `swarm.suspicion_s`: a node that moves is not taken for dead

# This node's addresses as of now, given those of others; the best first, none where nothing is known.
OwnHosts = Callable[[Sequence[Address]], Awaitable[Sequence[str]]]


@loop_state
class OwnAddress:
    """Tells the others where this node is, once that is elsewhere."""

    def __init__(
        self,
        gossip: Gossip,
        own_hosts: OwnHosts,
        known: Callable[[], Sequence[Address]],
        moved: Callable[[], None],
    ) -> None:
        """`known` are addresses of nodes, those that are gone included; `moved` hears when the address has changed."""
        self._gossip = gossip
        self._own_hosts = own_hosts
        self._known = known
        self._moved = moved

    async def look(self) -> None:
        """Look now."""
        me, view = self._gossip.members.me, self._gossip.view
        # Whose address has changed may hear nobody any more, and take all others for dead.
        others = [member.address for member in view.members if member.id != me.id] or self._known()
        candidates = await self._own_hosts(others)
        host = own_host(me.host, candidates, [address[0] for address in others])
        if self._gossip.move((host, me.port)):
            log.warning("the others reach this node at %s from now on", format_address((host, me.port)))
            self._moved()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.look()
