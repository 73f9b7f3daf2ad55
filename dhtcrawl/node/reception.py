"""What a node says of itself when it is greeted, and which part answers a request.

    closed ──open──▶ open ──close──▶ closed

While it is closed, every request is refused; what the node says of itself it can
say at any time. So the transport, and the part that calls this node itself, can be
made before the parts that answer.

Only members are answered: others get `not-a-member`, but for the call `members`, by
which a newcomer becomes one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers
from dhtcrawl.rpc.peers.port import NOT_A_MEMBER
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.messages import Call, Refused, Reply, Request
from dhtcrawl.rpc.tasks.signals import Hello

FEATURES = ("xor",)
# What a node may ask before it is a member.
OPEN_CALLS = frozenset({ExchangeMembers.terms.name})


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
        self._node = node
        self._is_active: Callable[[], bool] = _never
        self._is_member: Callable[[bytes], bool] = _nobody
        self._answer: Handler | None = None

    def open(self, answer: Handler, is_active: Callable[[], bool], is_member: Callable[[bytes], bool]) -> None:
        """Requests are answered from here on.

        `is_active()` says whether this node has joined, `is_member(id)` whether another is, or was, in the swarm.
        """
        self._answer, self._is_active, self._is_member = answer, is_active, is_member

    def close(self) -> None:
        """Requests are refused from here on."""
        self._answer = None

    def hello(self) -> Hello:
        """Who this node is: `joining` until it has joined, `active` then."""
        return self._joined if self._is_active() else self._joining

    def _handle(self, hello: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
        if self._answer is None:
            return Refused("closing")
        asker = hello.node_id
        if asker != self._node and not self._is_member(asker) and not _is_open(message):
            return Refused(NOT_A_MEMBER, "this node does not know the asker as a member")
        return self._answer(hello, message)


def _is_open(message: Request) -> bool:
    return isinstance(message, Call) and message.name in OPEN_CALLS


def _never() -> bool:
    return False


def _nobody(_node: bytes) -> bool:
    return False
