"""Calls of `swarm/hosts`: leases of hosts, and shared robots.txt. No I/O."""

from typing import Annotated, Any, Final, NamedTuple

from dhtcrawl.config import ROBOTS_TOKEN_CHARS_MAX
from dhtcrawl.fetch.robots import PARSED_BYTES_MAX, RobotsVerdict
from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.rpc.tasks.schema import (
    CallArgs,
    WireMap,
    flag,
    integer,
    items,
    octets,
    octets_up_to,
    or_nil,
    rows,
    text,
    variants,
    word,
)
from dhtcrawl.swarm.calls.words import Host, is_host, is_origin
from dhtcrawl.url import HOST_CHARS_MAX

HOST_ROWS_MAX: Final = 256  # with the longest hosts 80 KB
SPAN_MS_MAX: Final = 86_400_000  # a longer delay or hold is told as a day
TTL_MS_MAX: Final = 3_600_000
REQUESTS_MAX: Final = 1_000_000
LEASE_ID_BYTES: Final = 8
ROBOTS_BYTES_MAX: Final = PARSED_BYTES_MAX  # what follows is never read
ROBOTS_HEAD_BYTES: Final = 1024  # what an answer has besides the body

Span = Annotated[int, integer(0, SPAN_MS_MAX)]
LeaseId = Annotated[bytes, octets(LEASE_ID_BYTES)]
LeaseIdOrNone = Annotated[bytes, octets(0, LEASE_ID_BYTES)]
_HOST_TIMEOUT_S: Final = 2.0  # a grant's time counts from the asking: an older answer is worth little
_ROBOTS_TIMEOUT_S: Final = 10.0


class AskRow(NamedTuple):
    """An ask for a host, or for a lease to be renewed."""

    host: Host
    delay_ms: Span
    hold_ms: Span
    lease_id: LeaseIdOrNone


class MovedRow(NamedTuple):
    """Another node is gatekeeper."""

    tag: Annotated[int, integer(0, 0)] = 0


class GrantedRow(NamedTuple):
    """The host is leased."""

    tag: Annotated[int, integer(1, 1)]
    lease_id: LeaseId
    ttl_ms: Annotated[int, integer(0, TTL_MS_MAX)]
    requests: Annotated[int, integer(0, REQUESTS_MAX)]
    not_before_ms: Span
    delay_ms: Span


class WaitRow(NamedTuple):
    """The asker has a place in line, or its lease is not renewed."""

    tag: Annotated[int, integer(2, 2)]
    after_ms: Span


AnswerRow = MovedRow | GrantedRow | WaitRow


class HostAnswers(WireMap):
    """Answer to `host_ask`."""

    answers: Annotated[
        tuple[AnswerRow, ...],
        items(variants(MovedRow, GrantedRow, WaitRow), HOST_ROWS_MAX),
        "one for each ask, in order",
    ]


class AskHosts(CallArgs[HostAnswers], name="host_ask", timeout_s=_HOST_TIMEOUT_S, reply_bytes_max=32 * 1024):
    """A node that wants hosts asks their gatekeeper."""

    asks: Annotated[
        tuple[AskRow, ...], rows(AskRow, HOST_ROWS_MAX), "with the id of a lease that is to be renewed, or empty"
    ]

    def misfit(self, reply: HostAnswers) -> str:
        return "" if len(reply.answers) == len(self.asks) else "answers"


class BackRow(NamedTuple):
    """A lease that is given back."""

    host: Host
    lease_id: LeaseId
    since_end_ms: Annotated[int | None, or_nil(integer(0, SPAN_MS_MAX))]
    hold_ms: Span


class HostsTaken(WireMap):
    """Answer to `host_give_back`."""

    taken: Annotated[bytes, octets_up_to(HOST_ROWS_MAX), "a byte for each row, 1 or 0 (not the gatekeeper)"]


class GiveHostsBack(CallArgs[HostsTaken], name="host_give_back", timeout_s=_HOST_TIMEOUT_S):
    """A holder gives leases back to their gatekeeper."""

    backs: Annotated[
        tuple[BackRow, ...],
        rows(BackRow, HOST_ROWS_MAX),
        "with the time since the last byte (nil: nothing was requested)",
    ]

    def misfit(self, reply: HostsTaken) -> str:
        return "" if len(reply.taken) == len(self.backs) else "taken"


Hosts = Annotated[tuple[str, ...], items(text(HOST_CHARS_MAX, 1, made_of=is_host, says="a host"), HOST_ROWS_MAX)]


class HostsUnwanted(WireMap):
    """Answer to `host_offer`."""

    unwanted: Annotated[Hosts, "those that the node does not want any more"]


class OfferHosts(CallArgs[HostsUnwanted], name="host_offer", timeout_s=1.0):
    """A gatekeeper tells the next in line that hosts are free."""

    # as long as the node has to ask
    hosts: Hosts


Origin = Annotated[str, text(HOST_CHARS_MAX + 8, 1, where=is_origin, says="http:// or https:// and a host")]
Agent = Annotated[str, text(ROBOTS_TOKEN_CHARS_MAX), "a product token"]
_VERDICTS: Final = tuple(verdict.value for verdict in RobotsVerdict)


class RobotsAnswered(WireMap):
    """Answer to `robots_ask`: `moved`, `fetch`, `wait_ms`, or what is known."""

    moved: Annotated[bool, flag(), "another node is gatekeeper"] = False
    fetch: Annotated[bool, flag(), "fetch it, and tell the result"] = False
    wait_ms: Annotated[int | None, integer(0, SPAN_MS_MAX), "another node fetches it; ask again after this"] = None
    verdict: Annotated[str, word("", *_VERDICTS), "it is known"] = ""
    age_ms: Annotated[int | None, integer(0, 2**53), "for so long"] = None
    size: Annotated[int | None, integer(0, ROBOTS_BYTES_MAX), "so many bytes long"] = None
    body: Annotated[
        bytes | None, octets_up_to(ROBOTS_BYTES_MAX), "missing where it is longer than there is room for"
    ] = None

    def wrong(self) -> str:
        if self.moved or self.fetch or self.wait_ms is not None:
            return ""
        known = {"verdict": self.verdict or None, "age_ms": self.age_ms, "size": self.size}
        return next((name for name, value in known.items() if value is None), "")


class AskRobots(
    CallArgs[RobotsAnswered],
    name="robots_ask",
    timeout_s=_ROBOTS_TIMEOUT_S,
    reply_bytes_max=ROBOTS_BYTES_MAX + ROBOTS_HEAD_BYTES,
):
    """A node asks the gatekeeper of a host for its robots.txt."""

    origin: Origin
    agent: Agent
    body_bytes_max: Annotated[int, integer(0, ROBOTS_BYTES_MAX), "what the asker has room for"]


class RobotsTold(WireMap):
    """Answer to `robots_tell`."""

    moved: Annotated[bool, flag(), "another node is gatekeeper"] = False


class TellRobots(CallArgs[RobotsTold], name="robots_tell", timeout_s=_ROBOTS_TIMEOUT_S):
    """The node that fetched a robots.txt tells the gatekeeper."""

    origin: Origin
    agent: Agent
    verdict: Annotated[str, word("", *_VERDICTS), "empty: no result"]
    body: Annotated[bytes, octets_up_to(ROBOTS_BYTES_MAX)] = b""


class HostStateRow(NamedTuple):
    """The state of a host that one gatekeeper hands over to the next; times in milliseconds."""

    host: Host
    node: Annotated[bytes, octets(0, KEY_BYTES)]
    lease_id: LeaseIdOrNone
    left_ms: Annotated[int, integer(0, TTL_MS_MAX)]
    delay_ms: Span
    next_in_ms: Span


def is_host_state(state: tuple[Any, ...]) -> bool:
    """A host with a holder has a lease id; one without has no lease id, and no time left."""
    _, node, lease_id, left_ms, _, _ = state
    return bool(lease_id) if node else not lease_id and left_ms == 0
