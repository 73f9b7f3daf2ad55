"""Lists tasks that were given up as failed or recalled, so that a user may have them tried again or dropped.

    given_up       the tasks of a part of the store, with their failures
    release        a new generation, from `pending` on
    drop           off the list, for good: a new generation that is dead for another reason
    died_beyond    in place of those that failed, those that died beyond the crawl's scope or its depth limit
    died_too_deep  of these, those beyond its depth limit
    reach          a new generation of these

The list is Yu et al.'s (2014) manual queue. It takes a scan, since a crawl that runs
well does not need it. All functions take a `Txn` and run on the committer's thread.
Those that read a record raise `StorageError` if it is damaged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from dhtcrawl.storage.store import counters, keys, replicas
from dhtcrawl.storage.store.ownership import Test
from dhtcrawl.storage.store.records import SkipReason, State, Task, unpack_task
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.storage.store.tasks import get_task, is_too_deep
from dhtcrawl.storage.store.txn import Txn

_BEYOND = (SkipReason.OUT_OF_SCOPE, SkipReason.EXCLUDED, SkipReason.DEPTH)
MANUAL = (SkipReason.FAILED, SkipReason.RECALLED)  # why a task is for a person to decide about


class GivenUp(NamedTuple):
    """A task that was given up."""

    key: bytes
    url: str
    depth: int
    attempts: int
    detail: str  # the failure, and who had it without beginning it; if several nodes tried, that of each


def is_given_up(task: Task) -> bool:
    """Whether a task is dead because it failed, or no node began it, and not because it must not be fetched."""
    return task.state == State.DEAD and task.reason in MANUAL


def is_beyond(task: Task) -> bool:
    """Whether a task is dead because the crawl's scope or its depth limit did not reach it."""
    return task.state == State.DEAD and task.reason in _BEYOND


def _listed(
    txn: Txn,
    crawl: bytes,
    cursor: bytes,
    *,
    scanned_max: int,
    found_max: int,
    mine: Test,
    when: Callable[[Task], bool],
) -> tuple[list[GivenUp], bytes | None]:
    """Up to `found_max` such tasks of ours among `scanned_max` records from `cursor` on, and the next cursor."""
    found: list[GivenUp] = []
    for scanned, (key, value) in enumerate(txn.rows(keys.TASK, crawl, cursor)):
        if scanned == scanned_max or len(found) == found_max:
            return found, key
        task = unpack_task(value)
        if when(task) and mine(key):
            found.append(GivenUp(key, task.url, task.depth, task.attempt + 1, task.detail))
    return found, None


given_up = partial(_listed, when=is_given_up)
died_beyond = partial(_listed, when=is_beyond)
died_too_deep = partial(_listed, when=is_too_deep)


class OpenedAgain(NamedTuple):
    """What was opened again."""

    opened: list[TaskReplica]  # for the backups
    merged: Merged  # the changes of our queues
    counted: Mapping[str, int]  # how the counters stand that changed, by name


class Dropped(NamedTuple):
    """What was taken off the list."""

    dropped: list[TaskReplica]  # for the backups
    counted: Mapping[str, int]  # as of `OpenedAgain`


def _reopened(
    txn: Txn, crawl: bytes, task_keys: Iterable[bytes], *, when: Callable[[Task], bool], mine: Test, held: Test
) -> OpenedAgain:
    """Open tasks again for which `when` still holds, and count that they are given up no more."""
    found, counted = list(dict.fromkeys(task_keys)), Counter[str]()
    for key in found:
        task = get_task(txn, crawl, key)
        if task is not None and when(task):
            counted += counters.of_change(task, None)
    opened, merged = replicas.reopen(txn, crawl, found, when=when, mine=mine, held=held)
    return OpenedAgain(opened, merged, counters.count(txn, crawl, counted))


release = partial(_reopened, when=is_given_up)
reach = partial(_reopened, when=is_beyond)


def drop(txn: Txn, crawl: bytes, task_keys: Iterable[bytes]) -> Dropped:
    """Take tasks off the list."""
    dropped, counted = list[TaskReplica](), Counter[str]()
    for key in task_keys:
        task = get_task(txn, crawl, key)
        if task is not None and is_given_up(task):
            gone = task._replace(gen=task.gen + 1, reason=SkipReason.DROPPED)
            txn.put(keys.TASK + crawl + key, gone.pack())
            dropped.append(TaskReplica(key, gone))
            counted += counters.of_change(task, gone)
    return Dropped(dropped, counters.count(txn, crawl, counted))
