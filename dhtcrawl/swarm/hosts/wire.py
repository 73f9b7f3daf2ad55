"""Host leases and robots.txt on the wire: values of the five calls, written and read.

Durations are integer milliseconds, rounded so that an error makes somebody wait
longer. What comes from a peer is checked here and nowhere else: a reader
answers None where a value is not what the protocol allows. `docs/protocol-hosts.md`
has the fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dhtcrawl.fetch.host_access import RobotsAnswer, RobotsFetch, RobotsKnown, RobotsWait
from dhtcrawl.fetch.robots import PARSED_BYTES_MAX, RobotsVerdict
from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.swarm.hosts.leases import LEASE_ID_BYTES, NO_LEASE, GiveBack, Granted, HostState, LeaseAsk, Wait

T = TypeVar("T")

ROWS_MAX = 256  # of 512 elements that a list may have; with the longest hosts 80 KB
HOST_CHARS_MAX = 261  # 255 octets of a name (RFC 1035, 2.3.4), a colon, a port
AGENT_CHARS_MAX = 256
SPAN_MS_MAX = 86_400_000  # a longer delay or hold is told as a day
TTL_MS_MAX = 3_600_000
REQUESTS_MAX = 1_000_000
ROBOTS_BYTES_MAX = PARSED_BYTES_MAX  # what follows is never read
MOVED = {"moved": True}  # ask the node that is gatekeeper now

_MOVED, _GRANTED, _WAIT = range(3)
_VERDICTS = {verdict.value: verdict for verdict in RobotsVerdict}
_FUZZ = 1e-6  # of a millisecond: 1.1 s are not 1101 ms


def ms_up(duration_s: float) -> int:
    """Milliseconds, rounded up."""
    return min(max(0, math.ceil(duration_s * 1000 - _FUZZ)), SPAN_MS_MAX)


def ms_down(duration_s: float) -> int:
    """Milliseconds, rounded down."""
    return min(max(0, math.floor(duration_s * 1000 + _FUZZ)), SPAN_MS_MAX)


# -- host_ask --


def asks(batch: Sequence[LeaseAsk]) -> dict[str, Any]:
    """The arguments of `host_ask`."""
    return {"asks": [(ask.host, ms_up(ask.delay_s), ms_up(ask.hold_s), ask.lease_id) for ask in batch]}


def read_asks(args: dict[str, Any]) -> list[LeaseAsk] | None:
    """What a peer asks for."""
    return _rows(args.get("asks"), _read_ask)


def answers(batch: Sequence[Granted | Wait | None]) -> dict[str, Any]:
    """The answer to `host_ask`, in the order of the asks; None: not ours to give."""
    return {"answers": [_answer(answer) for answer in batch]}


def read_answers(value: dict[str, Any], count: int) -> list[Granted | Wait | None] | None:
    """What a gatekeeper answers to `count` asks."""
    rows: Any = value.get("answers")
    if type(rows) not in (tuple, list) or len(rows) != count or not all(map(_is_answer, rows)):
        return None
    return [_read_answer(row) for row in rows]


def _read_ask(row: Any) -> LeaseAsk | None:
    if len(row) != 4:
        return None
    host, delay_ms, hold_ms, lease_id = row
    if not (_is_host(host) and _is_span(delay_ms) and _is_span(hold_ms)):
        return None
    if lease_id != NO_LEASE and not _is_lease(lease_id):
        return None
    return LeaseAsk(host, delay_ms / 1000, hold_ms / 1000, lease_id)


def _answer(answer: Granted | Wait | None) -> tuple[Any, ...]:
    if answer is None:
        return (_MOVED,)
    if isinstance(answer, Wait):
        return (_WAIT, ms_up(answer.after_s))
    return (_GRANTED, answer.lease_id, ms_down(answer.ttl_s), answer.requests,
            ms_up(answer.not_before_s), ms_up(answer.delay_s))  # fmt: skip


def _is_answer(row: Any) -> bool:
    match row:
        case (0,):
            return type(row[0]) is int
        case (1, lease_id, ttl_ms, requests, not_before_ms, delay_ms):
            return (
                _is_lease(lease_id)
                and _is_span(ttl_ms, TTL_MS_MAX)
                and _is_span(requests, REQUESTS_MAX)
                and _is_span(not_before_ms)
                and _is_span(delay_ms)
            )
        case (2, after_ms):
            return _is_span(after_ms)
        case _:
            return False


def _read_answer(row: Any) -> Granted | Wait | None:
    if row[0] == _GRANTED:
        return Granted(row[1], row[2] / 1000, row[3], row[4] / 1000, row[5] / 1000)
    return Wait(row[1] / 1000) if row[0] == _WAIT else None


# -- host_give_back, host_offer --


def give_backs(batch: Sequence[GiveBack], now: float) -> dict[str, Any]:
    """The arguments of `host_give_back`."""
    return {"backs": [_give_back(back, now) for back in batch]}


def read_give_backs(args: dict[str, Any]) -> list[tuple[str, bytes, float | None, float]] | None:
    """Host, lease, seconds since the last byte (None: nothing was requested), seconds of hold."""
    return _rows(args.get("backs"), _read_give_back)


def read_taken(value: dict[str, Any], count: int) -> bytes:
    """Which of `count` leases were taken back: a byte each, 0 where the gatekeeper is another."""
    taken = value.get("taken")
    return taken if type(taken) is bytes and len(taken) == count else bytes(count)


def read_hosts(hosts: Any) -> list[str] | None:
    """A list of hosts, as in `host_offer` and its answer."""
    if type(hosts) not in (tuple, list) or len(hosts) > ROWS_MAX or not all(map(_is_host, hosts)):
        return None
    return list(hosts)


def _give_back(back: GiveBack, now: float) -> tuple[str, bytes, int | None, int]:
    since_end_s = back.since_end_s(now)
    since_end_ms = None if since_end_s is None else ms_down(since_end_s)
    return (back.host, back.lease_id, since_end_ms, ms_up(back.hold_s(now)))


def _read_give_back(row: Any) -> tuple[str, bytes, float | None, float] | None:
    if len(row) != 4:
        return None
    host, lease_id, since_end_ms, hold_ms = row
    if not (_is_host(host) and _is_lease(lease_id) and _is_span(hold_ms)):
        return None
    if since_end_ms is None:
        return host, lease_id, None, hold_ms / 1000
    return (host, lease_id, since_end_ms / 1000, hold_ms / 1000) if _is_span(since_end_ms) else None


# -- robots_ask, robots_tell --


def robots_subject(args: dict[str, Any]) -> tuple[str, str] | None:
    """The origin and the agent that a call about robots.txt names."""
    origin, agent = args.get("origin"), args.get("agent")
    if not isinstance(origin, str) or not isinstance(agent, str) or len(agent) > AGENT_CHARS_MAX:
        return None
    scheme, separator, host = origin.partition("://")
    return (origin, agent) if scheme in ("http", "https") and separator and _is_host(host) else None


def robots_answer(answer: RobotsAnswer, body_bytes_max: int) -> dict[str, Any]:
    """The answer to `robots_ask`, without a body that is longer than the asker has room for."""
    match answer:
        case RobotsFetch():
            return {"fetch": True}
        case RobotsWait(after_s):
            return {"wait_ms": ms_up(after_s)}
        case RobotsKnown(verdict, body, age_s):
            known: dict[str, Any] = {"verdict": verdict.value, "size": len(body), "age_ms": math.ceil(age_s * 1000)}
            return {**known, "body": body} if len(body) <= body_bytes_max else known


def read_robots_answer(value: dict[str, Any]) -> RobotsAnswer | int | None:
    """What is known; an integer: known, but of so many bytes that it has to be asked for again."""
    if value.get("fetch") is True:
        return RobotsFetch()
    if _is_span(value.get("wait_ms")):
        return RobotsWait(value["wait_ms"] / 1000)
    age_ms: Any = value.get("age_ms")
    verdict, size, body = value.get("verdict"), value.get("size"), value.get("body")
    if not isinstance(verdict, str) or verdict not in _VERDICTS or not _is_span(age_ms, 2**53):
        return None
    if type(body) is bytes and len(body) <= ROBOTS_BYTES_MAX:
        return RobotsKnown(_VERDICTS[verdict], body, age_ms / 1000)
    return size if isinstance(size, int) and 0 < size <= ROBOTS_BYTES_MAX else None


def robots_told(origin: str, agent: str, verdict: RobotsVerdict | None, body: bytes) -> dict[str, Any]:
    """The arguments of `robots_tell`."""
    return {"origin": origin, "agent": agent, "verdict": "" if verdict is None else verdict.value, "body": body}


def read_robots_told(args: dict[str, Any]) -> tuple[RobotsVerdict | None, bytes] | None:
    """What came of a fetch; no verdict: nothing."""
    verdict, body = args.get("verdict"), args.get("body", b"")
    if not isinstance(verdict, str) or type(body) is not bytes or len(body) > ROBOTS_BYTES_MAX:
        return None
    if verdict == "":
        return None, b""
    return (_VERDICTS[verdict], body) if verdict in _VERDICTS else None


# -- the state that a gatekeeper hands over --


def states(batch: Sequence[HostState]) -> list[tuple[str, bytes, bytes, int, int, int]]:
    """Rows for the next gatekeeper."""
    return [
        (row.host, row.node, row.lease_id, ms_up(row.left_s), ms_up(row.delay_s), ms_up(row.next_in_s)) for row in batch
    ]


def read_states(rows: Any) -> list[HostState] | None:
    """Rows from the last gatekeeper."""
    return _rows(rows, _read_state)


def _read_state(row: Any) -> HostState | None:
    if len(row) != 6 or not _is_host(row[0]) or not all(map(_is_span, row[3:])):
        return None
    host, node, lease_id, left_ms, delay_ms, next_in_ms = row
    held = type(node) is bytes and len(node) == KEY_BYTES and _is_lease(lease_id) and left_ms <= TTL_MS_MAX
    if not held and not (node == b"" and lease_id == NO_LEASE and left_ms == 0):
        return None
    return HostState(host, node, lease_id, left_ms / 1000, delay_ms / 1000, next_in_ms / 1000)


# -- parts --


def _rows(rows: Any, read: Callable[[Any], T | None]) -> list[T] | None:
    """All rows, or None if one of them is not what it should be."""
    if type(rows) not in (tuple, list) or len(rows) > ROWS_MAX:
        return None
    found = [read(row) if type(row) in (tuple, list) else None for row in rows]
    whole = [row for row in found if row is not None]
    return whole if len(whole) == len(found) else None


def _is_host(value: object) -> bool:
    return (
        isinstance(value, str)
        and 1 <= len(value) <= HOST_CHARS_MAX
        and value.isascii()
        and value.isprintable()
        and "/" not in value
    )


def _is_lease(value: object) -> bool:
    return type(value) is bytes and len(value) == LEASE_ID_BYTES


def _is_span(value: object, most: int = SPAN_MS_MAX) -> bool:
    return type(value) is int and 0 <= value <= most
