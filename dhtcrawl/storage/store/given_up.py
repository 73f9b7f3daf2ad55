"""Tasks that were given up as failed: what a person may have tried again, or dropped.

    given_up   those of a part of the store, with what was said of them
    release    a new generation, from `pending` on
    drop       off the list, for good: a new generation that is dead for another reason

The list is Yu et al.'s (2014) manual queue. It takes a scan: nobody asks for it
while a crawl runs well. All functions take a `Txn` and run on the committer's thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from dhtcrawl.storage.store import keys, replicas
from dhtcrawl.storage.store.ownership import Test
from dhtcrawl.storage.store.records import SkipReason, State, Task, unpack_task
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.txn import Txn


class GivenUp(NamedTuple):
    """A task that came to nothing."""

    key: bytes
    url: str
    depth: int
    attempts: int
    detail: str  # what happened, and where several nodes tried: to each of them


def is_given_up(task: Task) -> bool:
    """Whether a task is dead because it failed, and not because it is not ours to fetch."""
    return task.state == State.DEAD and task.reason == SkipReason.FAILED


def given_up(
    txn: Txn, crawl: bytes, cursor: bytes, *, scanned_max: int, found_max: int, mine: Test
) -> tuple[list[GivenUp], bytes | None]:
    """Ours among `scanned_max` records from the task key `cursor` on, `found_max` at most, and where to go on."""
    start, stop = keys.bounds(keys.TASK, crawl)
    found: list[GivenUp] = []
    for scanned, (full, value) in enumerate(txn.scan(start + cursor, stop)):
        key = keys.suffix(full)
        if scanned == scanned_max or len(found) == found_max:
            return found, key
        task = unpack_task(value)
        if is_given_up(task) and mine(key):
            found.append(GivenUp(key, task.url, task.depth, task.attempt + 1, task.detail))
    return found, None


release = partial(replicas.reopen, when=is_given_up)


def drop(txn: Txn, crawl: bytes, task_keys: Iterable[bytes]) -> list[TaskReplica]:
    """Take tasks off the list; their records, for the backups."""
    dropped: list[TaskReplica] = []
    for key in task_keys:
        value = txn.get(keys.TASK + crawl + key)
        task = None if value is None else unpack_task(value)
        if task is not None and is_given_up(task):
            gone = replace(task, gen=task.gen + 1, reason=SkipReason.DROPPED)
            txn.put(keys.TASK + crawl + key, gone.pack())
            dropped.append(TaskReplica(key, gone))
    return dropped
