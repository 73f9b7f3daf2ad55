"""Asks a swarm who its members are, before this node has an id of its own in it.

The call `members`, which a stranger may make, without a record of ours: so nobody learns of a node that will never be.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from dhtcrawl.node.reception import Reception
from dhtcrawl.node_key import NodeKey
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.server import hosts_of
from dhtcrawl.rpc.membership.hello import NodeState, parse_records
from dhtcrawl.rpc.membership.member_exchange import CALLS_MAX
from dhtcrawl.rpc.membership.member_rows import ROWS_A_CALL_MAX, ExchangeMembers, MemberRows
from dhtcrawl.rpc.peers.port import call_of, reply_to
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.sockets import TlsContexts
from dhtcrawl.rpc.tasks.transport import TaskTransport, TransportLimits

log = logging.getLogger(__name__)

# In all. A node that hears nothing has another id than it might have, and no more.
TIMEOUT_S: Final = 5.0
ASKED_MAX: Final = 3
LIMITS: Final = TransportLimits(connect_s=2.0, request_s=3.0, close_s=1.0)


async def member_ids(bootstrap: Sequence[Address], stranger: NodeKey, tls: TlsContexts | None = None) -> list[bytes]:
    """The ids of those who are there, joining ones included, as the first of these nodes that answers has them.

    `stranger` is the key under which is asked; in a closed swarm that in the certificate of `tls`. Empty where nobody
    answers.
    """
    reception = Reception(stranger.node_id, incarnation=1)
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            TaskTransport(reception.hello, reception.handle, limits=LIMITS, tls=tls, key=stranger) as transport,
        ):
            for host, port in bootstrap[:ASKED_MAX]:
                hosts = await hosts_of((host, port))
                for each in [] if isinstance(hosts, str) else hosts:
                    found = await _ids_at(transport, (each, port))
                    if found:
                        return found
    except TimeoutError:
        log.debug("the members were not told within %g s", TIMEOUT_S)
    return []


async def _ids_at(transport: TaskTransport, address: Address) -> list[bytes]:
    found: list[bytes] = []
    cursor = b""
    for _ in range(CALLS_MAX):
        answer = await _page(transport, address, cursor)
        if answer is None:
            break
        records, _ = parse_records(answer.rows, address[0], ROWS_A_CALL_MAX)
        own = (record for record in records if record.state not in (NodeState.LEFT, NodeState.DEAD))
        found += [record.id for record in own if not record.is_outbound]
        cursor = answer.cursor
        if not cursor:
            return found
    return []  # a part of them would show sections that are none


async def _page(transport: TaskTransport, address: Address, cursor: bytes) -> MemberRows | None:
    asked = ExchangeMembers((), cursor, 0)
    answer = reply_to(asked, await transport.request(address, call_of(asked)))
    return None if isinstance(answer, Failure) else answer
