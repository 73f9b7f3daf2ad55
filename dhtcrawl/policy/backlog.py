"""How many tasks of a host a node has at a time: about what it brings in `HORIZON_S`. Pure.

A crawl ends when the slowest node has done what it was given. So no node is given
more than it does in a moment, however large its share; the rest waits at its
owner, and goes to a node that has room. What a node brings in a moment is found as
TCP finds a window (Jacobson 1988): it begins small, and after each round becomes
what the pace of the round says, at most twice and at least half of what it was. A
round is over with as many outcomes as it may have tasks, or after `HORIZON_S`.

    size ← outcomes of a round / its seconds · max(HORIZON_S, LATENCIES · seconds of an attempt)

The second term is Little's law, with room: where an attempt takes long, as many
have to be under way that less would make the node slower, and that would make
the next size smaller again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dhtcrawl.policy.seam import (
    BATCH,
    AssignmentTerms,
    Candidate,
    Outcome,
    Policy,
    PolicyTask,
    Settings,
    TaskResult,
)
from dhtcrawl.policy.window import Windows

FIRST, LEAST = 4, 2
HORIZON_S = 5.0
LATENCIES = 3.0
KEEPS = 0.7  # of what an attempt took before, with each that is heard of
PAIRS_MAX = 100_000


@dataclass(slots=True)
class _Round:
    """What one node has of one host, since a moment."""

    size: int
    since: float
    count: int = 0
    seconds: float = 0.0  # an attempt's


class Backlog:
    """Sets how many tasks an owner assigns at a time. Times are seconds on the caller's monotonic clock."""

    def __init__(self, *, first: int = FIRST, least: int = LEAST, horizon_s: float = HORIZON_S) -> None:
        """`first` is a size to begin with, `least` the smallest; a node has about what it brings in `horizon_s`."""
        self._first = first
        self._least = least
        self._horizon_s = horizon_s
        self._rounds: dict[tuple[bytes, str], _Round] = {}  # the least recently heard of first

    def size(self, node: bytes, host: str) -> int:
        known = self._rounds.get((node, host))
        return self._first if known is None else known.size

    def heard(self, outcome: Outcome, now: float) -> None:
        """Learn from a result. A recalled task had far more time than it takes, and brought nothing."""
        pair = outcome.node, outcome.host
        known = self._rounds.pop(pair, None) or _Round(self._first, now)
        self._rounds[pair] = known
        if len(self._rounds) > PAIRS_MAX:
            del self._rounds[next(iter(self._rounds))]
        if outcome.result is TaskResult.RECALLED:
            known.size, known.since, known.count = max(known.size // 2, self._least), now, 0
            return
        known.seconds = KEEPS * known.seconds + (1 - KEEPS) * outcome.seconds if known.seconds else outcome.seconds
        known.count += 1
        took_s = max(now - known.since, 1e-3)
        if known.count < known.size and took_s < self._horizon_s:
            return
        wanted = known.count / took_s * max(self._horizon_s, LATENCIES * known.seconds)
        size = round(min(max(wanted, known.size / 2), 2 * known.size))
        known.size, known.since, known.count = min(max(size, self._least), BATCH), now, 0


class PlannedPolicy(Policy):
    """What policies have in common that rank by their planner's table: backlog and window say what a node has."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._table: Mapping[str, Any] = {}
        self._backlog = Backlog()
        self._windows = Windows()
        self._now = 0.0  # of the last rank

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        self._now = now
        self._windows.look(candidates, now)
        return self.ranked(task, candidates)

    def ranked(self, task: PolicyTask, candidates: Sequence[Candidate]) -> list[bytes]:
        """The ids of the nodes that may fetch it, best first, as `rank` has them."""
        raise NotImplementedError

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        return AssignmentTerms(self._backlog.size(node, host), at_work_max=self._windows.room(node, self._now))

    def heard(self, outcome: Outcome, now: float) -> None:
        self._backlog.heard(outcome, now)
        self._windows.heard(outcome, now)

    def adopt(self, table: Mapping[str, Any]) -> None:
        self._table = table
