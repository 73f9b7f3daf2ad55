"""Converts values about hosts and robots.txt to rows of calls and back.

Durations are seconds here and integer milliseconds on the wire, rounded so that
an error only makes a wait longer. `dhtcrawl.swarm.calls` says what a row may
hold, and has checked the rows that arrive here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dhtcrawl.fetch.host_access import RobotsAnswer, RobotsFetch, RobotsKnown, RobotsWait
from dhtcrawl.fetch.robots import RobotsVerdict
from dhtcrawl.swarm.calls.hosts import (
    SPAN_MS_MAX,
    AnswerRow,
    AskRow,
    BackRow,
    GrantedRow,
    HostStateRow,
    MovedRow,
    RobotsAnswered,
    WaitRow,
)
from dhtcrawl.swarm.hosts.leases import GiveBack, Granted, HostState, LeaseAsk, Wait

_VERDICTS = {verdict.value: verdict for verdict in RobotsVerdict}
_FUZZ = 1e-6  # of a millisecond: 1.1 s are not 1101 ms


def ms_up(duration_s: float) -> int:
    """A duration in milliseconds, rounded up; at most a day."""
    return min(max(0, math.ceil(duration_s * 1000 - _FUZZ)), SPAN_MS_MAX)


def ms_down(duration_s: float) -> int:
    """A duration in milliseconds, rounded down; at most a day."""
    return min(max(0, math.floor(duration_s * 1000 + _FUZZ)), SPAN_MS_MAX)


def ask_rows(batch: Sequence[LeaseAsk]) -> tuple[AskRow, ...]:
    """The rows of `host_ask`."""
    return tuple(AskRow(ask.host, ms_up(ask.delay_s), ms_up(ask.hold_s), ask.lease_id) for ask in batch)


def asks_of(rows: Sequence[AskRow]) -> list[LeaseAsk]:
    """The asks in the rows of `host_ask`."""
    return [LeaseAsk(row.host, row.delay_ms / 1000, row.hold_ms / 1000, row.lease_id) for row in rows]


def answer_row(answer: Granted | Wait | None) -> AnswerRow:
    """The row of one answer to `host_ask`; None: another node is the gatekeeper."""
    if answer is None:
        return MovedRow()
    if isinstance(answer, Wait):
        return WaitRow(2, ms_up(answer.after_s))
    return GrantedRow(1, answer.lease_id, ms_down(answer.ttl_s), answer.requests,
                      ms_up(answer.not_before_s), ms_up(answer.delay_s))  # fmt: skip


def answer_of(row: AnswerRow) -> Granted | Wait | None:
    """A gatekeeper's answer to one ask; None: another node is the gatekeeper."""
    if isinstance(row, GrantedRow):
        return Granted(row.lease_id, row.ttl_ms / 1000, row.requests, row.not_before_ms / 1000, row.delay_ms / 1000)
    return Wait(row.after_ms / 1000) if isinstance(row, WaitRow) else None


def back_rows(batch: Sequence[GiveBack], now: float) -> tuple[BackRow, ...]:
    """The rows of `host_give_back`."""
    return tuple(_back_row(back, now) for back in batch)


def robots_answered(answer: RobotsAnswer, body_bytes_max: int) -> RobotsAnswered:
    """The answer to `robots_ask`, without a body that is longer than the asker has room for."""
    match answer:
        case RobotsFetch():
            return RobotsAnswered(fetch=True)
        case RobotsWait(after_s):
            return RobotsAnswered(wait_ms=ms_up(after_s))
        case RobotsKnown(verdict, body, age_s):
            sent = body if len(body) <= body_bytes_max else None
            return RobotsAnswered(verdict=verdict.value, size=len(body), age_ms=math.ceil(age_s * 1000), body=sent)


def robots_answer_of(reply: RobotsAnswered) -> RobotsAnswer | int | None:
    """The answer in a reply; an integer: the size of a body to ask for again; None: another node is the gatekeeper."""
    if reply.fetch:
        return RobotsFetch()
    if reply.wait_ms is not None:
        return RobotsWait(reply.wait_ms / 1000)
    if reply.moved or reply.age_ms is None:
        return None
    if reply.body is not None:
        return RobotsKnown(_VERDICTS[reply.verdict], reply.body, reply.age_ms / 1000)
    return reply.size or None


def verdict_of(word: str) -> RobotsVerdict | None:
    """The verdict that a word on the wire stands for; None: the fetch failed."""
    return _VERDICTS.get(word)


def state_rows(batch: Sequence[HostState]) -> tuple[HostStateRow, ...]:
    """The rows that a gatekeeper hands over to the next one."""
    return tuple(
        HostStateRow(state.host, state.node, state.lease_id, ms_up(state.left_s), ms_up(state.delay_s),
                     ms_up(state.next_in_s))
        for state in batch
    )  # fmt: skip


def states_of(rows: Sequence[HostStateRow]) -> list[HostState]:
    """The states in rows that the former gatekeeper handed over."""
    return [
        HostState(row.host, row.node, row.lease_id, row.left_ms / 1000, row.delay_ms / 1000, row.next_in_ms / 1000)
        for row in rows
    ]


def _back_row(back: GiveBack, now: float) -> BackRow:
    since_end_s = back.since_end_s(now)
    since_end_ms = None if since_end_s is None else ms_down(since_end_s)
    return BackRow(back.host, back.lease_id, since_end_ms, ms_up(back.hold_s(now)))
