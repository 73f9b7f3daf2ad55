"""Links for a node that we have no connection to, in one datagram.

A swarm may have more members than a node may have connections. Then most links
go to a member that this node is not connected to and will not be for long, and
the connection costs more than the link. Such links go as the paper's STORE_TASK
does (Tao & Xiang 2015): as an RPC of the routing plane.

    store_task  [asker, asked, kind and body of the frame]  ─▶  kind and body of the answer, or nil

nil, no reply, or a message that is too long: the caller makes a connection and
asks again there. So a request may be carried out twice, which is why only links
go this way: the second time they are KNOWN. Both ends have to take each other
for members at these addresses; what a stranger sends is answered with nil.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.datagram import DATAGRAM_BYTES_MAX
from dhtcrawl.rpc.discovery.protocol import RoutingProtocol
from dhtcrawl.rpc.membership.hello import MemberRecord
from dhtcrawl.rpc.peers.port import refused
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.frame import HEADER, Kind, Malformed
from dhtcrawl.rpc.tasks.messages import Ack, Refused, Reply, StoreTask, decode, encode
from dhtcrawl.rpc.tasks.signals import Hello

RPC = "store_task"
# Head, array, name, array, two ids and the length of the frame's bytes.
FRAME_BYTES_MAX = DATAGRAM_BYTES_MAX - (21 + 1 + 11 + 1 + 22 + 22 + 3)
# The owner answers when its backups have the links: two round trips more than a ping takes, and two writes.
TRIES, TIMEOUT_S = 3, 1.0
OPEN_MAX = 1024  # requests of others; for more they make a connection, where there is credit
# A member that said nil or nothing is asked over connections for so long: it may know us at another address.
SHUNNED_S = 60.0
SHUNNED_MAX = 4096
_KIND_AT = HEADER.size - 1  # in a frame: behind its length

Answer = Callable[[Any], None]


class Connectionless:
    """Sends links in datagrams, and answers those of others; one for each node."""

    def __init__(
        self,
        node_id: bytes,
        plane: RoutingProtocol,
        handler: Handler,
        record_of: Callable[[bytes], MemberRecord | None],
    ) -> None:
        """`handler` is that of the task plane."""
        self.asked = self.answered = 0
        self._node_id = node_id
        self._plane = plane
        self._handler = handler
        self._record_of = record_of
        self._open: set[tuple[bytes, int, int]] = set()  # asker, its incarnation, number of its request
        self._shunned: dict[bytes, float] = {}  # member → until when
        self._last_number = 0
        plane.register(RPC, self._on_store_task, 3, later=True)

    async def ask(self, member: MemberRecord, message: StoreTask) -> Ack | Failure | None:
        """The member's answer; None where a connection is to be made for it."""
        now = asyncio.get_running_loop().time()
        if self._shunned.get(member.id, now) > now:
            return None
        number = self._last_number = self._last_number + 1
        try:
            frame = encode(number, message)[_KIND_AT:]
        except Malformed:
            return None  # the link says what is wrong with it
        if len(frame) > FRAME_BYTES_MAX:
            return None
        self.asked += 1
        args = (self._node_id, member.id, frame)
        happened, value = await self._plane.call(
            member.address, RPC, *args, tries=TRIES, timeout_s=TIMEOUT_S, timed=False
        )
        read = _read(value) if happened else None
        reply = read[1] if read is not None and read[0] == number else None
        if isinstance(reply, Refused):
            return refused(reply)
        if isinstance(reply, Ack) and len(reply.codes) == message.items:
            self.answered += 1
            return reply
        if len(self._shunned) >= SHUNNED_MAX:
            self._shunned.clear()
        self._shunned[member.id] = now + SHUNNED_S
        return None

    def _on_store_task(self, answer: Answer, address: Address, asker: Any, asked: Any, frame: Any) -> None:
        read = _read(frame)
        member = self._record_of(asker) if type(asker) is bytes else None
        if (
            read is None
            or not isinstance(message := read[1], StoreTask)
            or asked != self._node_id
            or member is None
            or member.state.is_gone
            or member.address != address
            or len(self._open) >= OPEN_MAX
        ):
            answer(None)
            return
        # A node that was started again counts from the beginning.
        which = member.id, member.incarnation, read[0]
        if which in self._open:
            return  # sent again; the answer will come
        reply = self._handler(Hello(member.id, member.incarnation, "active"), message)
        if isinstance(reply, asyncio.Future):
            self._open.add(which)
            reply.add_done_callback(partial(self._on_reply, answer, which))
        else:
            answer(_written(read[0], reply))

    def _on_reply(self, answer: Answer, which: tuple[bytes, int, int], reply: asyncio.Future[Reply]) -> None:
        self._open.discard(which)
        if reply.cancelled() or reply.exception() is not None:
            answer(None)  # asked again over a connection, it will be told why
        else:
            answer(_written(which[-1], reply.result()))


def _written(number: int, reply: Reply) -> bytes:
    return encode(number, reply)[_KIND_AT:]


def _read(frame: Any) -> tuple[int, Any] | None:
    """The number and the message of a frame without its length; None for what is none."""
    if type(frame) is not bytes or not 2 <= len(frame) <= FRAME_BYTES_MAX:
        return None
    try:
        return decode(Kind(frame[0]), frame[1:])
    except ValueError:  # Malformed is one
        return None
