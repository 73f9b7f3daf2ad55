"""Other nodes as one node asks them, by functions that a test gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.rpc.peers.port import refused
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.frame import TooLong
from dhtcrawl.rpc.tasks.messages import Ack, Answer, Code, DeleteBackup, Refused, Request, StoreBackup, StoreTask

from .sync_swarm import across

LATENCY_S = 0.01
GONE = Failure(FailureKind.TIMEOUT, "no answer")

Handler = Callable[[Request], Answer | Failure]
CallHandler = Callable[[dict[str, Any]], "dict[str, Any] | Failure | Refused"]


def node(number: int) -> bytes:
    """A node's id; nodes are spread evenly."""
    return bytes([number * 16]) + bytes(19)


def view_of(active: Iterable[int], joining: Iterable[int] = ()) -> View:
    members = [Member(node(n), ("10.0.0.1", n + 1)) for n in active]
    members += [Member(node(n), ("10.0.0.1", n + 1), MemberState.JOINING) for n in joining]
    return View(members)


class FakePeers:
    """`Peers` of the node 0. Whoever has no handler takes everything."""

    def __init__(self, view: View) -> None:
        self.node_id = node(0)
        self.view = view
        self.said: list[tuple[bytes, Request]] = []
        self.handlers: dict[bytes, Handler] = {}
        self.calls: dict[str, CallHandler] = {}
        self.called: list[tuple[bytes, str, dict[str, Any]]] = []

    async def ask(self, node: bytes, message: Request, timeout_s: float | None = None) -> Answer | Failure:
        try:
            request = across(message)
        except TooLong as error:
            return Failure(FailureKind.TOO_LONG, str(error), sent=False)
        assert isinstance(request, Request)
        self.said.append((node, request))
        await asyncio.sleep(LATENCY_S)
        return self.handlers.get(node, taken)(request)

    async def call(self, node: bytes, name: str, args: dict[str, Any], **_: Any) -> dict[str, Any] | Failure:
        self.called.append((node, name, args))
        await asyncio.sleep(LATENCY_S)
        value = self.calls[name](args)
        return refused(value) if isinstance(value, Refused) else value

    def to(self, number: int) -> list[Request]:
        """What was said to a node."""
        return [message for peer, message in self.said if peer == node(number)]


def taken(message: Request) -> Answer:
    assert isinstance(message, StoreTask | StoreBackup | DeleteBackup)
    return Ack.all(Code.ACCEPTED, message.items)
