"""`Peers` on the task plane: a node id becomes an address, and our own id a call of our own handler.

A member that listens nowhere is asked over the connection that it has made.

A machine that died, or was cut off, resets no connection. So when a member is
declared dead, requests to it fail at once, and not at their deadlines: links
and replicas go to the next member.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.protocol import RoutingProtocol
from dhtcrawl.rpc.membership.hello import MemberRecord, NodeState
from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.rpc.peers.connectionless import Connectionless
from dhtcrawl.rpc.peers.port import call_of, refused, reply_to
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Answer, Call, Refused, Request, Result, StoreTask
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.rpc.tasks.transport import TaskTransport

log = logging.getLogger(__name__)

R = TypeVar("R", bound=WireMap)


class TaskPeers:
    """The swarm as this node can ask it."""

    def __init__(
        self,
        node_id: bytes,
        transport: TaskTransport,
        handler: Handler,
        hello: Callable[[], Hello],
        view: Callable[[], View],
        record_of: Callable[[bytes], MemberRecord | None],
        plane: RoutingProtocol | None = None,
    ) -> None:
        """`handler` is what others reach through the transport; `record_of` knows members, also those that are gone.

        Without a `plane` every request goes over a connection.
        """
        self.node_id = node_id
        self.asked = 0
        self._transport = transport
        self._handler = handler
        self._hello = hello
        self._view = view
        self._record_of = record_of
        self._connectionless = None if plane is None else Connectionless(node_id, plane, handler, record_of)
        self._present: dict[bytes, Address] = {}
        self._joining: set[bytes] = set()

    @property
    def view(self) -> View:
        return self._view()

    def incarnation_of(self, node: bytes) -> int | None:
        """How often a member, or we ourselves, have started; None for one that is not there."""
        record = self._record_of(node)
        if record is None or (record.state.is_gone and node != self.node_id):
            return None
        return record.incarnation

    def breaches(self, host: str) -> tuple[int, float]:
        """How often nodes at a host broke the protocol lately, and for how many seconds they are not let in for it."""
        return self._transport.breaches(host)

    def view_changed(self, view: View) -> None:
        """Give up requests to members that were declared dead, are at another address now, or join anew.

        One that left may still be asked for its last word.
        """
        present = {member.id: member.address for member in view.members}
        joining = {member.id for member in view.members if member.state is MemberState.JOINING}
        for node in joining - self._joining:
            incarnation = self.incarnation_of(node)
            if node in self._present and incarnation is not None:
                self._transport.give_up(node, present[node], before=incarnation)
        self._joining = joining
        for node, address in self._present.items():
            if node in present:
                # What a node that does not listen has made tells by itself that it has moved.
                if present[node] != address and node not in view.outbound:
                    self._transport.give_up(node, address)
            elif (record := self._record_of(node)) is not None and record.state is NodeState.DEAD:
                self._transport.give_up(node, record.address)
        self._present = present

    async def ask(self, node: bytes, message: Request, timeout_s: float | None = None) -> Answer | Failure:
        if node == self.node_id:
            reply = self._handler(self._hello(), message)
            if isinstance(reply, asyncio.Future):
                reply = await reply
            return refused(reply) if isinstance(reply, Refused) else reply
        self.asked += 1
        record = self._there(node)
        if (
            isinstance(message, StoreTask)
            and self._connectionless is not None
            and record is not None
            # With fewer, a connection that is made stays.
            and len(self._view().members) > self._transport.connections_max
            and not self._transport.is_connected(record.address)
        ):
            answer = await self._connectionless.ask(record, message)
            if answer is not None:
                return answer
            record = self._there(node)
        if record is None:
            return Failure(FailureKind.CONNECT, f"{node.hex()[:12]} is no member", sent=False)
        if record.is_outbound:
            told = await self._transport.request_back(node, message, timeout_s=timeout_s)
        else:
            told = await self._transport.request(record.address, message, node_id=node, timeout_s=timeout_s)
        if isinstance(told, Failure) and log.isEnabledFor(logging.DEBUG):
            name = message.name if isinstance(message, Call) else type(message).__name__
            text = "%s to node %s failed, %s: %s"
            log.debug(text, name, node.hex()[:12], told.kind, told.detail, extra={"peer": node.hex()})
        return told

    def _there(self, node: bytes) -> MemberRecord | None:
        record = self._record_of(node)
        return None if record is None or record.state is NodeState.DEAD else record

    async def call(
        self, node: bytes, args: CallArgs[R], *, timeout_s: float | None = None, reply_bytes_max: int | None = None
    ) -> R | Failure:
        call = call_of(args, reply_bytes_max)
        timeout_s = args.terms.timeout_s if timeout_s is None else timeout_s
        if node != self.node_id:
            return reply_to(args, await self.ask(node, call, timeout_s))
        reply = await self.ask(node, replace(call, args=as_received(call.args)), timeout_s)
        if isinstance(reply, Result):
            reply = Result(as_received(reply.value))
        return reply_to(args, reply)


def as_received(value: Any) -> Any:
    """A value as it would come from the wire, where lists are tuples."""
    if isinstance(value, dict):
        return {name: as_received(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(as_received, value))
    return value
