"""Events that a link has for its shell, and the failures that a request may end with in place of an answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dhtcrawl.rpc.tasks.messages import Answer, Reply, Request
from dhtcrawl.rpc.tasks.signals import Hello


class FailureKind(StrEnum):
    """Why no answer came."""

    CONNECT = "connect"  # no connection came about
    VERSION = "version"  # the peer speaks no version of ours
    NODE = "node"  # another node than the one asked for listens there, or we do ourselves
    TIMEOUT = "timeout"  # no answer in time
    LOST = "lost"  # the connection ended first
    PARTED = "parted"  # the peer said goodbye, or we did
    PROTOCOL = "protocol"  # the peer broke the rules
    BUSY = "busy"  # too much waits to be sent, or no connection is to spare
    TOO_LONG = "too-long"  # the message fits into no frame
    REFUSED = "refused"  # the peer does not know the request, or failed
    CLOSED = "closed"  # our transport is closing


@dataclass(frozen=True, slots=True)
class Failure:
    """No answer. `detail` is one line for people.

    Without `sent` the request has not left this node; otherwise the peer may
    have got it, and may have done what it asks.
    """

    kind: FailureKind
    detail: str
    sent: bool = True


class Opened(NamedTuple):
    """The handshake is done."""

    hello: Hello


class Asked(NamedTuple):
    """The peer asks; answer with `PeerLink.reply`, exactly once, in any order."""

    request_id: int
    message: Request


class Answered(NamedTuple):
    """The peer's answer to our request."""

    request_id: int
    reply: Answer


class RequestFailed(NamedTuple):
    """Our request will get no answer."""

    request_id: int
    failure: Failure


class Ended(NamedTuple):
    """The connection is over: flush what `take_bytes` still has, then close it."""

    failure: Failure


Event = Opened | Asked | Answered | RequestFailed | Ended

__all__ = ["Answered", "Asked", "Ended", "Event", "Failure", "FailureKind", "Opened", "Reply", "RequestFailed"]
