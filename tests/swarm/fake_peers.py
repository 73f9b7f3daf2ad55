"""Other nodes as one node asks them, by functions that a test gives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from harness.world import GONE, LATENCY_S, across

from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.rpc.peers.port import call_of, reply_to
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.frame import TooLong
from dhtcrawl.rpc.tasks.messages import (
    Ack,
    Answer,
    Call,
    Code,
    DeleteBackup,
    Refused,
    Request,
    Result,
    StoreBackup,
    StoreTask,
)
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap

__all__ = ["GONE", "FakePeers", "node", "taken", "view_of"]

R = TypeVar("R", bound=WireMap)

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
    """`Peers` of the node 0. A node without a handler accepts all records; a call without one is a KeyError."""

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

    async def call(self, node: bytes, args: CallArgs[R], **_: Any) -> R | Failure:
        call = across(call_of(args))
        assert isinstance(call, Call)
        self.called.append((node, call.name, call.args))
        await asyncio.sleep(LATENCY_S)
        return answered(args, self.calls[call.name](call.args))

    def to(self, number: int) -> list[Request]:
        """What was said to a node."""
        return [message for peer, message in self.said if peer == node(number)]


def answered(args: CallArgs[R], value: dict[str, Any] | Failure | Refused) -> R | Failure:
    """What the asker makes of a map, or of what came instead of one."""
    if isinstance(value, Failure):
        return value
    reply = across(value if isinstance(value, Refused) else Result(value))
    assert isinstance(reply, Result | Refused)
    return reply_to(args, reply)


def served(kind: type[CallArgs[R]], handler: Callable[[bytes, Any], Any], asker: bytes) -> CallHandler:
    """A handler of a node as one of maps, for calls that it answers at once."""

    def handle(args: dict[str, Any]) -> dict[str, Any] | Refused:
        value = handler(asker, kind.parse(args))
        return value if isinstance(value, Refused) else value.to_map()

    return handle


def taken(message: Request) -> Answer:
    assert isinstance(message, StoreTask | StoreBackup | DeleteBackup)
    return Ack.all(Code.ACCEPTED, message.items)
