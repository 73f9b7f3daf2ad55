"""The node's end of the routing plane: the stock library's protocol, with its faults mended.

On the wire nothing differs: PING, STORE, FIND_NODE and FIND_VALUE have the
stock signatures, and a stock node cannot tell. Behind it, datagrams are
handled where they arrive (no task for each), every handler answers, and a
sender enters the table only after it answered a ping of ours with its id.
Until its address is verified so, a sender gets at most `AMPLIFICATION_MAX`
times what it sent (RFC 9000, section 8.1): a sender that forges an address
cannot use us to flood the node there.

In a closed swarm every datagram is sealed (`dhtcrawl.rpc.discovery.sealed`), and
what does not open is dropped without an answer.

`docs/protocol-routing.md` lists what the stock library does instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from kademlia.node import Node
from kademlia.protocol import KademliaProtocol

from dhtcrawl.clock import Clock
from dhtcrawl.closed.sealing import OpenedDatagram
from dhtcrawl.rpc.contact import Address, Contact, canonical_host, parse_id, source_of
from dhtcrawl.rpc.discovery.datagram import (
    DATAGRAM_BYTES_MAX,
    VALUE_BYTES_MAX,
    DatagramReply,
    DatagramRequest,
    Garbage,
    TooLarge,
    decode,
    encode_reply,
    packed_bytes,
)
from dhtcrawl.rpc.discovery.pending import TRIES, Done, PendingRpc, PendingRpcs, RoutingCounters
from dhtcrawl.rpc.discovery.sealed import Admission, SealedPlane
from dhtcrawl.rpc.discovery.table import RoutingTable
from dhtcrawl.rpc.discovery.verify import Verifier

log = logging.getLogger(__name__)

AMPLIFICATION_MAX = 3
VALUE_TYPES = (int, float, bool, str, bytes)
PING_BYTES = 50  # what verifying a sender costs its address, besides the reply
# A remote procedure: the sender's address and the arguments in, the reply out. It never waits.
Handler = Callable[..., Any]
_UNKNOWN: tuple[Handler | None, int, bool] = (None, 0, False)


class RoutingProtocol(KademliaProtocol):  # type: ignore[misc]  # the library has no types
    """One node's UDP endpoint. `RoutingServer` makes it; others ask it through `call` and `begin`."""

    def __init__(
        self,
        source_node: Node,
        storage: Any,
        ksize: int,
        *,
        clock: Clock,
        rng: Random,
        sealed: SealedPlane | None = None,
    ) -> None:
        """Without `sealed` the swarm is open, and datagrams go as they are."""
        super().__init__(source_node, storage, ksize)
        self.sealed = sealed
        self.table = RoutingTable(source_node.id, ksize)
        self.router = None  # the library's table, in whose place `table` is
        self.counters = RoutingCounters()
        self.calls = PendingRpcs(self._send, rng, self.counters, clock.monotonic)
        self.verifier = Verifier(source_node.id, self.table, self.calls, self.counters, clock)
        self._ipv6 = False
        self._pong: bytes | None = source_node.id  # what a ping is answered with
        # Only what stands here can be called from outside, and all of it takes an address first.
        # How many arguments it takes, and whether it answers later.
        self._handlers: dict[str, tuple[Handler, int, bool]] = {
            "stun": (self.rpc_stun, 0, False),
            "ping": (self.rpc_ping, 1, False),
            "store": (self._store_later, 3, True),
            "find_node": (self.rpc_find_node, 2, False),
            "find_value": (self.rpc_find_value, 2, False),
        }

    def __getattr__(self, name: str) -> Any:
        # The library turns every unknown attribute into a remote call, and a typo into a timeout.
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def register(self, name: str, handler: Handler, arguments: int, *, later: bool = False) -> None:
        """Answer the remote procedure `name` with `handler(address, *arguments)`.

        A handler decides at once and never awaits. What it returns is the
        reply; a list that is too long is cut.

        With `later` the reply is what `handler(answer, address, *arguments)`
        calls `answer` with: at any time, once or never; the caller is to be
        one that waits. It hears nil where the answer does not fit into a
        datagram.
        """
        self._handlers[name] = (handler, arguments, later)

    def hide(self) -> None:
        """Answer pings without an id from here on: others verify our address, and put it into no table."""
        self._pong = None

    # Sockets

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:
        super().connection_made(transport)
        bound = transport.get_extra_info("sockname")
        self._ipv6 = bound is not None and ":" in bound[0]

    def connection_lost(self, exc: Exception | None) -> None:
        self.close()

    def error_received(self, exc: Exception) -> None:
        self.counters.network_errors += 1

    def close(self) -> None:
        """No more datagrams; every call in flight ends without a reply."""
        self.verifier.close()
        self.calls.close()

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self.counters.received += 1
        opened = None
        if self.sealed is not None:
            opened = self.sealed.sealer.open(data)
            if opened is None:
                self.counters.unsealed += 1
                return
        message = decode(data if opened is None else opened.datagram)
        host = canonical_host(addr[0])
        if isinstance(message, Garbage) or host is None:
            self.counters.garbage += 1
            return
        address = (host, addr[1])
        if opened is not None and not self._is_admitted(opened, message, address):
            return
        if isinstance(message, DatagramReply):
            self._reply_received(message, address)
        else:
            self._request_received(message, address, len(data))

    def _is_admitted(self, opened: OpenedDatagram, message: DatagramReply | DatagramRequest, address: Address) -> bool:
        assert self.sealed is not None, "only sealed datagrams are opened"
        expected = isinstance(message, DatagramReply) and self.calls.expects(message.message_id, address)
        admission = self.sealed.admit(opened, message, address, expected=expected)
        if admission in (Admission.ASK, Admission.ASK_AND_ANSWER):
            # Asked before it is answered, so that it can prove itself before it asks for more.
            self.verifier.verify(Contact(opened.sender, *address), tries=1)
        if admission is Admission.ASK_AND_ANSWER:
            self._send(encode_reply(message.message_id, self._pong), address, opened.sender)
        if isinstance(message, DatagramRequest) and message.name == "ping" and not opened.seen:
            self.calls.repeat(address)
        if opened.seen:
            self.counters.unsealed += admission is not Admission.TAKE
        else:
            self.counters.unproven += admission is not Admission.TAKE
        return admission is Admission.TAKE

    def _send(self, datagram: bytes, address: Address, receiver: bytes | None = None) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        self.counters.sent += 1
        if self.sealed is not None:
            datagram = self.sealed.seal(datagram, address, receiver)
        host, port = address
        # A dual-stack socket writes to IPv4 through mapped addresses only.
        to = (f"::ffff:{host}" if self._ipv6 and ":" not in host else host, port)
        try:
            self.transport.sendto(datagram, to)
        except (ValueError, OSError):
            # uvloop raises where an address is of a family that the socket does not have: peers name such ones.
            self.counters.network_errors += 1

    # Questions of ours

    def begin(self, contact: Contact, name: str, args: tuple[object, ...], done: Done) -> PendingRpc:
        """Ask a contact; the table learns from the outcome. See `PendingRpcs.begin`."""
        return self.calls.begin(contact.address, name, args, partial(self._finished, contact, done))

    async def call(
        self,
        address: Address,
        name: str,
        *args: object,
        tries: int = TRIES,
        timeout_s: float | None = None,
        timed: bool = True,
    ) -> tuple[bool, Any]:
        """Ask an address: `(True, reply)`, or `(False, None)` when none came. Cancelling it leaves nothing behind."""
        future: asyncio.Future[tuple[bool, Any]] = asyncio.get_running_loop().create_future()

        def done(happened: bool, value: Any) -> None:
            if not future.done():
                future.set_result((happened, value))

        call = self.calls.begin(address, name, args, done, tries=tries, timeout_s=timeout_s, timed=timed)
        try:
            return await future
        finally:
            call.cancel()

    async def ping(self, address: Address, node_id: bytes) -> tuple[bool, Any]:
        return await self.call(address, "ping", node_id)

    async def store(self, address: Address, node_id: bytes, key: bytes, value: Any) -> tuple[bool, Any]:
        return await self.call(address, "store", node_id, key, value)

    def _finished(self, contact: Contact, done: Done, happened: bool, value: Any) -> None:
        self.verifier.note(contact, happened)
        done(happened, value)

    def _reply_received(self, reply: DatagramReply, address: Address) -> None:
        if not self.calls.expects(reply.message_id, address):
            self.counters.stray_replies += 1
            return
        self.verifier.answered_from(address)
        self.calls.reply(reply.message_id, reply.value)

    # Questions of others

    def _request_received(self, request: DatagramRequest, address: Address, received_bytes: int) -> None:
        handler, arguments, later = self._handlers.get(request.name, _UNKNOWN)
        value = None
        if handler is None:
            self.counters.unknown_rpcs += 1
        elif len(request.args) < arguments:
            self.counters.refused += 1
        else:
            try:
                # What a later version adds behind our arguments is for a later version.
                args = request.args[:arguments]
                if later:
                    handler(partial(self._answer, request.message_id, address, received_bytes), address, *args)
                    return
                value = handler(address, *args)
            except Exception:
                # Without a reply the caller would take us for dead.
                self.counters.handler_errors += 1
                log.exception("%s from %s:%d failed", request.name, *address)
        self._answer(request.message_id, address, received_bytes, value)

    def _answer(self, message_id: bytes, address: Address, received_bytes: int, value: Any) -> None:
        allowed = DATAGRAM_BYTES_MAX
        if not self.verifier.is_verified(address):
            allowed = min(allowed, AMPLIFICATION_MAX * received_bytes - PING_BYTES * self.verifier.is_pinged(address))
        try:
            datagram = encode_reply(message_id, value, allowed)
        except ValueError as error:
            if isinstance(error, TooLarge) and allowed < DATAGRAM_BYTES_MAX:
                # A list is cut; a value is not, so it waits until the address has answered a ping.
                again = partial(self._answer, message_id, address, received_bytes, value)
                self.verifier.when_verified(address, again)
                return
            self.counters.handler_errors += not isinstance(error, TooLarge)
            datagram = encode_reply(message_id, None)
        self._send(datagram, address)

    def rpc_stun(self, sender: Address) -> list[str | int]:
        return list(sender)

    def rpc_ping(self, sender: Address, nodeid: Any) -> bytes | None:
        self._sender(sender, nodeid)
        return self._pong

    def _store_later(self, answer: Callable[[Any], None], sender: Address, nodeid: Any, key: Any, value: Any) -> None:
        """Store once the sender's address has answered: whoever forges one has not as many places as addresses."""

        def store() -> None:
            answer(self.rpc_store(sender, nodeid, key, value))

        if self.verifier.is_verified(sender) or parse_id(key) is None or not is_storable(value):
            store()
        else:
            self._sender(sender, nodeid)
            self.verifier.when_verified(sender, store)

    def rpc_store(self, sender: Address, nodeid: Any, key: Any, value: Any) -> bool:
        self._sender(sender, nodeid)
        if parse_id(key) is None or not is_storable(value) or not self.storage.put(key, value, source_of(sender[0])):
            self.counters.refused += 1
            return False
        return True

    def rpc_find_node(self, sender: Address, nodeid: Any, key: Any) -> list[Contact] | None:
        self._sender(sender, nodeid)
        if parse_id(key) is None:
            self.counters.refused += 1
            return None
        return self.table.closest(key, exclude=parse_id(nodeid))

    def rpc_find_value(self, sender: Address, nodeid: Any, key: Any) -> Any:
        if parse_id(key) is not None:
            value = self.storage.get(key, None)
            if value is not None:
                self._sender(sender, nodeid)
                return {"value": value}
        return self.rpc_find_node(sender, nodeid, key)

    def _sender(self, address: Address, nodeid: Any) -> None:
        node_id = parse_id(nodeid)
        if node_id is None:
            self.counters.refused += 1
        else:
            self.verifier.heard(Contact(node_id, *address))


def is_storable(value: object) -> bool:
    """Whether a value is one that STORE takes."""
    if type(value) not in VALUE_TYPES:
        return False
    try:
        return packed_bytes(value) <= VALUE_BYTES_MAX
    except ValueError:
        return False
