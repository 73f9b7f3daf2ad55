"""How a part of a node asks another node, or its own, by node id.

`Peers` is the port; what stands behind it is the task plane, and for our own
id the handlers of this node, without a network. A role (owner, gatekeeper,
coordinator) belongs to the member closest to a key, so a part asks the node of
the role and does not care whether that is itself.

Calls are classes (`dhtcrawl.rpc.tasks.schema`). A handler gets the arguments
only when they are within the protocol, and its caller the answer; what is not
becomes `Refused` with `bad-args`, or a `Failure` of the kind PROTOCOL, here.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol, TypeVar

from dhtcrawl.errors import StorageError
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Ack, Answer, Call, Records, Refused, Reply, Request, Result
from dhtcrawl.rpc.tasks.schema import BadArguments, CallArgs, WireMap

log = logging.getLogger(__name__)

A = TypeVar("A", bound=CallArgs[Any])
R = TypeVar("R", bound=WireMap)

NOT_A_MEMBER = "not-a-member"  # refused: the receiver does not know the asker as a node of the swarm
UNKNOWN_CALL = "unknown-call"  # refused: the receiver is of a version that has no such call
UNKNOWN_CRAWL = "unknown-crawl"  # refused: the receiver does not know, or does not run, the crawl
# What a handler answers to a call.
Served = WireMap | Refused
CallHandler = Callable[[bytes, A], "Served | Awaitable[Served]"]


class Peers(Protocol):
    """All nodes of the swarm, ourselves included, as those to ask."""

    node_id: bytes

    @property
    def view(self) -> View:
        """The members, and so the owner of every key, as of now."""

    async def ask(self, node: bytes, message: Request, timeout_s: float | None = None) -> Answer | Failure:
        """A node's answer to a message of the task plane."""

    async def call(
        self, node: bytes, args: CallArgs[R], *, timeout_s: float | None = None, reply_bytes_max: int | None = None
    ) -> R | Failure:
        """A node's answer to a call; without a time and a size, those of its terms."""


class CallRegistry:
    """The calls that this node answers."""

    def __init__(self) -> None:
        self._handlers: dict[str, tuple[type[CallArgs[Any]], CallHandler[Any]]] = {}

    def serve(self, call: type[A], handler: CallHandler[A]) -> None:
        """Answer calls with `handler(asker's node id, args)`: a reply, a refusal, or an awaitable of one.

        A handler may raise `BadArguments` for what only it can see to be wrong.
        """
        name = call.terms.name
        assert name not in self._handlers, f"{name} is served twice"
        self._handlers[name] = call, handler

    def served(self) -> Iterable[str]:
        return self._handlers.keys()

    def answer(self, asker: bytes, call: Call, group: asyncio.TaskGroup) -> Reply | asyncio.Future[Reply]:
        """The answer, or a future of it; waiting happens in `group`."""
        served = self._handlers.get(call.name)
        if served is None:
            return Refused(UNKNOWN_CALL, call.name)
        kind, handler = served
        try:
            value = handler(asker, kind.parse(call.args))
        except BadArguments as error:
            return Refused("bad-args", error.field)
        except Exception:
            log.exception("%s from %s failed", call.name, asker.hex())
            return Refused("failed", call.name)
        if inspect.isawaitable(value):
            return group.create_task(_later(kind, asker, value))
        return _reply(kind, value)


async def _later(kind: type[CallArgs[Any]], asker: bytes, value: Awaitable[Served]) -> Reply:
    try:
        return _reply(kind, await value)
    except BadArguments as error:
        return Refused("bad-args", error.field)
    except StorageError as error:
        # The node is about to end over it, and says so.
        return Refused("storage", type(error).__name__)
    except Exception:
        log.exception("%s from %s failed", kind.terms.name, asker.hex())
        return Refused("failed", kind.terms.name)


def _reply(kind: type[CallArgs[Any]], value: Served) -> Reply:
    if isinstance(value, Refused):
        return value
    assert isinstance(value, kind.reply), f"{kind.terms.name} is not answered by {type(value).__name__}"
    return Result(value.to_map())


Run = TypeVar("Run")


def by_crawl(run_of: Callable[[bytes], Run | None], handler_of: Callable[[Run], CallHandler[Any]]) -> CallHandler[Any]:
    """A handler of calls about one crawl, for whatever runs it here; refused where nothing does."""

    def handle(asker: bytes, args: Any) -> Served | Awaitable[Served]:
        run = run_of(args.crawl)
        return Refused(UNKNOWN_CRAWL) if run is None else handler_of(run)(asker, args)

    return handle


def call_of(args: CallArgs[Any], reply_bytes_max: int | None = None) -> Call:
    """The message that carries a call."""
    return Call(args.terms.name, args.to_map(), reply_bytes_max or args.terms.reply_bytes_max)


def reply_to(args: CallArgs[R], answer: Ack | Records | Result | Refused | Failure) -> R | Failure:
    """The answer to a call as its class; what is none is a failure of its own kind."""
    if isinstance(answer, Failure):
        return answer
    if isinstance(answer, Refused):
        return refused(answer)
    assert isinstance(answer, Result), "the kind that answers CALL"
    try:
        return args.answered(answer.value)
    except BadArguments as error:
        log.debug("an answer to %s has a bad %s", args.terms.name, error.field)
        return Failure(FailureKind.PROTOCOL, f"an answer to {args.terms.name} with a bad {error.field}")


def refused(reply: Refused) -> Failure:
    """What a refusal is to the one who asked."""
    return Failure(FailureKind.REFUSED, f"{reply.reason}: {reply.detail}" if reply.detail else reply.reason)
