"""Converts task outcomes to rows of the calls about assigned tasks, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile

from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.swarm.calls.assignment import DETAIL_CHARS_MAX, OutcomeRow
from dhtcrawl.swarm.calls.membership import HeldRow
from dhtcrawl.swarm.calls.words import HELD_KEYS_MAX, KEYS_MAX

_MS = 1000.0
_RESULTS = list(TaskResult)


def first_rows(rows: Sequence[HeldRow]) -> tuple[HeldRow, ...]:
    """The first rows, as many as go into one answer."""
    counts = takewhile(lambda count: count <= HELD_KEYS_MAX, accumulate(len(row.keys) for row in rows))
    return tuple(rows[: min(len(list(counts)), KEYS_MAX)])


def to_rows(given: Iterable[TaskOutcome]) -> tuple[OutcomeRow, ...]:
    """The rows for outcomes; times in whole milliseconds."""
    return tuple(
        OutcomeRow(
            each.key, each.host, _RESULTS.index(each.result), round(each.seconds * _MS),
            None if each.connect_s is None else round(each.connect_s * _MS), each.bytes, each.detail[:DETAIL_CHARS_MAX],
        )
        for each in given
    )  # fmt: skip


def from_rows(rows: Sequence[OutcomeRow]) -> list[TaskOutcome]:
    """The outcomes in a worker's report."""
    return [
        TaskOutcome(
            row.key, row.host, _RESULTS[row.result], row.ms / _MS,
            None if row.connect_ms is None else row.connect_ms / _MS, row.bytes, row.detail,
        )
        for row in rows
    ]  # fmt: skip
