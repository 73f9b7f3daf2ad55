"""Records and how two copies of one become one: a lattice (design invariant I2).

    pending ──▶ fetched ──▶ done
       │           ▲
       └──▶ dead ──┘  (a result counts whatever its attempt)

Two copies merge to the higher `gen`; within it `done`, then `dead`, beats any
attempt; else the higher attempt wins, then the state. Depth merges by minimum.
Merging is commutative, associative and idempotent, so copies may meet in any
order and any number of times.

A stored value is one byte of format version and a msgpack array or map.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgpack

from dhtcrawl.errors import StorageError, StoreTooNew

VALUE_VERSION = 1
_VERSION = bytes([VALUE_VERSION])
# A record is read several times between two changes: kept as long as a few thousand others are not read in between.
TASKS_KEPT_MAX = 4096


class State(IntEnum):
    """Where a task stands; the order is the lattice's.

    Number 1 was "leased", which no version wrote: what is lent is known in
    memory only. The number stays taken, and is read as pending, so that the
    other numbers keep their meaning in stores and on the wire.
    """

    PENDING = 0
    FETCHED = 2
    DEAD = 3
    DONE = 4

    @classmethod
    def _missing_(cls, value: object) -> State | None:
        return cls.PENDING if value == _RETIRED else None


_RETIRED = 1
_STATES = {number: State(number) for number in (_RETIRED, *map(int, State))}


class SkipReason:
    """Why a URL was not fetched, as reports/skipped.jsonl says it."""

    OUT_OF_SCOPE = "out-of-scope"
    EXCLUDED = "excluded"
    DEPTH = "depth"
    NOFOLLOW = "nofollow"
    ROBOTS = "robots"
    FAILED = "failed"
    PRIVATE_ADDRESS = "private-address"
    REDIRECT_LIMIT = "redirect-limit"
    NOT_A_URL = "not-a-url"
    PAGE_LIMIT = "page-limit"
    TIME_LIMIT = "time-limit"
    SIZE_LIMIT = "size-limit"
    DISK_LIMIT = "disk-limit"
    DROPPED = "dropped"


class Place(NamedTuple):
    """Where a body lies: a response record in an archive file of a node."""

    node: str
    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Task:
    """A task record. `order` is the discovery's place in time on this node."""

    url: str
    depth: int
    order: int
    referrer: str
    state: State = State.PENDING
    gen: int = 0
    attempt: int = 0
    hops: int = 0  # redirects that led here, in a row
    seed: bool = False  # a seed, or what a seed redirects to
    reason: str = ""  # of a dead task: a SkipReason
    detail: str = ""
    place: Place | None = None  # of a fetched or done one: the winning copy

    def pack(self) -> bytes:
        """The stored value."""
        return _VERSION + cast(
            bytes,
            msgpack.packb(
                (
                    self.url, self.depth, self.order, self.referrer, int(self.state), self.gen, self.attempt,
                    self.hops, self.seed, self.reason, self.detail, self.place,
                )
            ),
        )  # fmt: skip


@lru_cache(maxsize=TASKS_KEPT_MAX)
def unpack_task(value: bytes) -> Task:
    """The task record in a stored value.

    Raises:
        StoreTooNew: a later version wrote it.
        StorageError: it is damaged.
    """
    fields = unpack(value)
    try:
        url, depth, order, referrer, state, gen, attempt, hops, seed, reason, detail, place = fields[:12]
        return Task(
            url, depth, order, referrer, _STATES[state], gen, attempt, hops, seed, reason, detail,
            Place(*place) if place is not None else None,
        )  # fmt: skip
    except (ValueError, TypeError, LookupError) as error:
        raise _damaged(error) from error


def merge(a: Task, b: Task) -> Task:
    """The one record that two copies of it amount to."""
    if a.gen == b.gen and a.state == b.state == State.DONE:
        # Both fetched it: the lowest attempt wins, then the node id. The rest
        # makes it the same one whichever comes first.
        winner = min(a, b, key=lambda task: (task.attempt, task.place or (), task.reason, task.detail))
    else:
        winner = max(a, b, key=_rank)
    # How it was found goes with the shallowest finder, as one: a mix of two
    # finders' fields would make the merge depend on the order of meeting.
    finder = min(a, b, key=lambda task: (task.depth, task.order, task.referrer, task.hops))
    return replace(
        winner,
        depth=finder.depth,
        order=finder.order,
        referrer=finder.referrer,
        hops=finder.hops,
        seed=a.seed or b.seed,
    )


def _rank(task: Task) -> tuple[Any, ...]:
    settled = task.state if task.state >= State.DEAD else 0
    return (task.gen, settled, task.attempt, task.state, task.reason, task.detail, task.place or ())


def pack(value: object) -> bytes:
    """Any other record as a stored value."""
    return _VERSION + cast(bytes, msgpack.packb(value))


def unpack(value: bytes) -> Any:
    """The content of a stored value.

    Raises:
        StoreTooNew: a later version wrote it.
        StorageError: it is damaged.
    """
    if not value or value[0] != VALUE_VERSION:
        if value[:1] < _VERSION:
            raise _damaged("no record begins so")
        raise StoreTooNew(
            f"the store has a record of format {value[0]}, this version reads {VALUE_VERSION}; upgrade dhtcrawl"
        )
    try:
        return msgpack.unpackb(memoryview(value)[1:], strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise _damaged(error) from error


def _damaged(why: object) -> StorageError:
    return StorageError(f"the store has a damaged record ({why}); run 'dhtcrawl fsck'")
