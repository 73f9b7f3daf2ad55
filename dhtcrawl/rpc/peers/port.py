"""How a part of a node asks another node, or its own, by node id.

`Peers` is the port; what stands behind it is the task plane, and for our own
id the handlers of this node, without a network. A role (owner, gatekeeper,
coordinator) belongs to whoever is closest to a key, so a part asks the node of
the role and does not care whether that is itself.

Calls are registered by name. A handler checks its arguments and never lets a
peer's value raise: `Refused` is the answer to nonsense.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from dhtcrawl.errors import StorageError
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Answer, Call, Refused, Reply, Request, Result

log = logging.getLogger(__name__)

CallValue = dict[str, Any] | Refused
CallHandler = Callable[[bytes, dict[str, Any]], "CallValue | Awaitable[CallValue]"]
BAD_ARGUMENTS = Refused("bad-args")


class Peers(Protocol):
    """All nodes of the swarm, ourselves included, as those to ask."""

    node_id: bytes

    @property
    def view(self) -> View:
        """Who owns what, as of now."""
        ...

    async def ask(self, node: bytes, message: Request, timeout_s: float | None = None) -> Answer | Failure:
        """A node's answer to a message of the task plane."""
        ...

    async def call(
        self,
        node: bytes,
        name: str,
        args: dict[str, Any],
        *,
        timeout_s: float | None = None,
        reply_bytes_max: int = 16 * 1024,
    ) -> dict[str, Any] | Failure:
        """A node's answer to a call; the caller checks what it reads."""
        ...


class CallRegistry:
    """The calls that this node answers."""

    def __init__(self) -> None:
        self._handlers: dict[str, CallHandler] = {}

    def register(self, name: str, handler: CallHandler) -> None:
        """Answer calls of `name` with `handler(asker's node id, args)`; the value or an awaitable of it."""
        assert name not in self._handlers, f"{name} is registered twice"
        self._handlers[name] = handler

    def answer(self, asker: bytes, call: Call, group: asyncio.TaskGroup) -> Reply | asyncio.Future[Reply]:
        """The answer, or a future of it; waiting happens in `group`."""
        handler = self._handlers.get(call.name)
        if handler is None:
            return Refused("unknown-call", call.name)
        try:
            value = handler(asker, call.args)
        except Exception:
            log.exception("%s from %s failed", call.name, asker.hex())
            return Refused("failed", call.name)
        if inspect.isawaitable(value):
            return group.create_task(_later(call.name, asker, value))
        return _reply(value)


async def _later(name: str, asker: bytes, value: Awaitable[CallValue]) -> Reply:
    try:
        return _reply(await value)
    except StorageError as error:
        # The node is about to end over it, and says so.
        return Refused("storage", type(error).__name__)
    except Exception:
        log.exception("%s from %s failed", name, asker.hex())
        return Refused("failed", name)


def _reply(value: CallValue) -> Reply:
    return value if isinstance(value, Refused) else Result(value)


def refused(reply: Refused) -> Failure:
    """What a refusal is to the one who asked."""
    return Failure(FailureKind.REFUSED, f"{reply.reason}: {reply.detail}" if reply.detail else reply.reason)
