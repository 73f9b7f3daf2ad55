"""`Peers` on the task plane: a node id becomes an address, and our own id a call of our own handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dhtcrawl.rpc.connection import Handler
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.events import Failure, FailureKind
from dhtcrawl.rpc.messages import Answer, Call, Refused, Request, Result
from dhtcrawl.rpc.peers import refused
from dhtcrawl.rpc.signals import Hello
from dhtcrawl.rpc.transport import TaskTransport
from dhtcrawl.rpc.view import View


class TaskPeers:
    """The swarm as this node can ask it."""

    def __init__(
        self,
        node_id: bytes,
        transport: TaskTransport,
        handler: Handler,
        hello: Callable[[], Hello],
        view: Callable[[], View],
        address_of: Callable[[bytes], Address | None],
    ) -> None:
        """`handler` is what others reach through the transport; `address_of` knows where a member listens."""
        self.node_id = node_id
        self.asked = 0
        self._transport = transport
        self._handler = handler
        self._hello = hello
        self._view = view
        self._address_of = address_of

    @property
    def view(self) -> View:
        return self._view()

    async def ask(self, node: bytes, message: Request, timeout_s: float | None = None) -> Answer | Failure:
        if node == self.node_id:
            reply = self._handler(self._hello(), message)
            if isinstance(reply, asyncio.Future):
                reply = await reply
            return refused(reply) if isinstance(reply, Refused) else reply
        address = self._address_of(node)
        if address is None:
            return Failure(FailureKind.CONNECT, f"{node.hex()[:12]} is no member", sent=False)
        self.asked += 1
        return await self._transport.request(address, message, node_id=node, timeout_s=timeout_s)

    async def call(
        self,
        node: bytes,
        name: str,
        args: dict[str, Any],
        *,
        timeout_s: float | None = None,
        reply_bytes_max: int = 16 * 1024,
    ) -> dict[str, Any] | Failure:
        own = node == self.node_id
        reply = await self.ask(node, Call(name, _as_received(args) if own else args, reply_bytes_max), timeout_s)
        if isinstance(reply, Failure):
            return reply
        assert isinstance(reply, Result), "the kind that answers CALL"
        value: dict[str, Any] = _as_received(reply.value) if own else reply.value
        return value


def _as_received(value: Any) -> Any:
    """A value as it would come from the wire, where lists are tuples."""
    if isinstance(value, dict):
        return {name: _as_received(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(_as_received, value))
    return value
