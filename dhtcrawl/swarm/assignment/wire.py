"""What owners and workers say to each other about loans, beside the records themselves.

lend     owner → worker   keys, and how long each host may take to connect
recall   owner → worker   keys; the answer has those that were not begun and are forgotten. None: all of this owner's
report   worker → owner   what came of tasks, and that the worker is there
in_hand  worker → owner   keys that became the owner's while the worker had them in flight for another
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile
from typing import Any

from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.policy.seam import TaskResult

LEND, RECALL, REPORT, IN_HAND = "lend", "recall", "lent_report", "in_hand"
# A list on the wire has 512 items at most.
KEYS_A_CALL_MAX = 500
KEYS_AN_ANSWER = 8_000  # two thirds of the answer that a newcomer wants to hold, where keys are longest
HOST_CHARS_MAX = 300
DETAIL_CHARS_MAX = 200
_MS = 1000.0
_RESULTS = list(TaskResult)


def keys_in(value: object) -> list[bytes] | None:
    """Task keys that came over the wire; None where they are none."""
    if not isinstance(value, tuple) or len(value) > KEYS_A_CALL_MAX:
        return None
    good = all(isinstance(key, bytes) and len(key) in (KEY_BYTES, 2 * KEY_BYTES) for key in value)
    return list(value) if good and len(set(value)) == len(value) else None


def first_rows(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """As many of some rows, each of a crawl, keys and perhaps more, as go into one answer: those in front."""
    counts = takewhile(lambda count: count <= KEYS_AN_ANSWER, accumulate(len(row[1]) for row in rows))
    return list(rows[: min(len(list(counts)), KEYS_A_CALL_MAX)])


def to_rows(given: Iterable[TaskOutcome]) -> list[list[Any]]:
    """For the wire; times in whole milliseconds."""
    return [
        [
            each.key, each.host, _RESULTS.index(each.result), round(each.seconds * _MS),
            None if each.connect_s is None else round(each.connect_s * _MS), each.bytes, each.detail[:DETAIL_CHARS_MAX],
        ]
        for each in given
    ]  # fmt: skip


def from_rows(rows: object) -> list[TaskOutcome] | None:
    """The same back, None where it is anything else."""
    if not isinstance(rows, tuple) or len(rows) > KEYS_A_CALL_MAX:
        return None
    given = [_given(row) for row in rows]
    return [each for each in given if each is not None] if None not in given else None


def _given(row: object) -> TaskOutcome | None:
    if not isinstance(row, tuple) or len(row) != 7:
        return None
    key, host, result, ms, connect_ms, size, detail = row
    numbers = (result, ms, size, 0 if connect_ms is None else connect_ms)
    if any(type(each) is not int or each < 0 for each in numbers) or result >= len(_RESULTS):
        return None
    if not (isinstance(host, str) and isinstance(detail, str) and keys_in((key,)) is not None):
        return None
    if len(host) > HOST_CHARS_MAX or len(detail) > DETAIL_CHARS_MAX:
        return None
    connect_s = None if connect_ms is None else connect_ms / _MS
    return TaskOutcome(key, host, _RESULTS[result], ms / _MS, connect_s, size, detail)
