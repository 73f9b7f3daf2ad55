"""A node that no other can reach keeps a connection to each member that can be: others ask it over these."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.membership.view import MemberState
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.swarm.calls import membership as calls

LOOK_EVERY_S: Final = 1.0


@loop_state
class OutwardConnections:
    """Makes connections to members, and makes them anew when they end."""

    def __init__(self, peers: Peers, is_connected: Callable[[Address], bool]) -> None:
        """`is_connected(address)`: there is a connection to it, or one is being made."""
        self._peers = peers
        self._is_connected = is_connected
        self._asked: set[bytes] = set()

    async def run(self) -> None:
        """Look once a second, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                for member in self._peers.view.members:
                    others = member.id != self._peers.node_id and member.state is not MemberState.OUTBOUND
                    if others and member.id not in self._asked and not self._is_connected(member.address):
                        self._asked.add(member.id)
                        group.create_task(self._connect(member.id))
                await asyncio.sleep(LOOK_EVERY_S)

    async def _connect(self, node: bytes) -> None:
        # Whatever it answers, the connection is there; if it does not, this is tried again.
        await self._peers.call(node, calls.Here(node))
        self._asked.discard(node)
