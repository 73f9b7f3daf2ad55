"""What a node says of itself when it is greeted, and which part answers a request.

    closed ──open──▶ open ──close──▶ closed

While it is closed, every request is refused; what the node says of itself it can
say at any time. So the transport, and the part that calls this node itself, can be
made before the parts that answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.messages import Refused, Reply, Request
from dhtcrawl.rpc.tasks.signals import Hello

FEATURES = ("xor",)


def directly(handler: Handler) -> Handler:
    """Requests go to the handler as they come."""
    return handler


@loop_state
class Reception:
    """Takes the requests to one node, those of the node to itself included."""

    def __init__(self, node: bytes, incarnation: int, through: Callable[[Handler], Handler] = directly) -> None:
        """`through(handler)` is what requests go through before they are answered here."""
        self.handle: Handler = through(self._handle)
        self._joining = Hello(node, incarnation, "joining", FEATURES)
        self._joined = Hello(node, incarnation, "active", FEATURES)
        self._is_active: Callable[[], bool] = _never
        self._answer: Handler | None = None

    def open(self, answer: Handler, is_active: Callable[[], bool]) -> None:
        """Requests are answered from here on; `is_active()` says whether this node has joined."""
        self._answer, self._is_active = answer, is_active

    def close(self) -> None:
        """Requests are refused from here on."""
        self._answer = None

    def hello(self) -> Hello:
        """Who this node is: `joining` until it has joined, `active` then."""
        return self._joined if self._is_active() else self._joining

    def _handle(self, hello: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
        return Refused("closing") if self._answer is None else self._answer(hello, message)


def _never() -> bool:
    return False
