"""Tries whether a node can be reached at an address, from ports that it has never heard of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.rpc.contact import Address, parse_id
from dhtcrawl.rpc.discovery.server import RoutingServer, together
from dhtcrawl.rpc.peers.port import call_of
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.transport import TaskTransport, TransportLimits
from dhtcrawl.swarm.calls import membership as calls
from dhtcrawl.swarm.membership.reach_check import HERE, Tried

TIMEOUT_S: Final = 4.0  # for each of the two
LIMITS: Final = TransportLimits(connect_s=3.0, close_s=1.0)
DATAGRAMS, DATAGRAM_S = 3, 0.5


async def try_address(
    address: Address,
    node: bytes,
    transport: Callable[[TransportLimits], TaskTransport],
    routing: Callable[[bytes], RoutingServer],
    rng: Random,
) -> Tried:
    """Whether a datagram and a connection reach `node` there; both planes are made for it, and listen to nobody.

    The one for datagrams has an id for this once: in a closed swarm a node has one session, and a second one under our
    own id would end the first.
    """
    datagram, connection = await together(
        (
            _by_datagram(address, node, routing(rng.randbytes(KEY_BYTES))),
            _by_connection(address, node, transport(LIMITS)),
        )
    )
    return Tried(datagram, connection)


async def _by_datagram(address: Address, node: bytes, routing: RoutingServer) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await routing.listen(0, "::" if ":" in address[0] else "0.0.0.0")
            happened, value = await routing.plane.call(address, HERE, tries=DATAGRAMS, timeout_s=DATAGRAM_S)
            return happened and parse_id(value) == node
    except (OSError, TimeoutError):  # this machine has no such family, or no way there
        return False
    finally:
        routing.stop()


async def _by_connection(address: Address, node: bytes, transport: TaskTransport) -> bool:
    async with transport:
        here = calls.Here(node)
        answer = await transport.request(address, call_of(here), node_id=node, timeout_s=TIMEOUT_S)
        # Whatever the node says, it is there.
        return not isinstance(answer, Failure) or answer.kind is FailureKind.REFUSED
