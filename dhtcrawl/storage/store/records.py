"""Task records and the merge of two replicas of one: a lattice (design invariant I2).

    pending ──▶ fetched ──▶ done
       │           ▲
       └──▶ dead ──┘  (a result counts whatever its attempt)

Two replicas merge to the higher `gen`; within it `done`, then `dead`, beats any
attempt; else the higher attempt wins, then the state. Depth merges by minimum.
Fetches are counted for each node (a grow-only counter: Shapiro et al. 2011,
section 3.1.1) and merge by maximum, so that a record always says how often its page
was fetched. Merging is commutative, associative and idempotent, so replicas may meet
in any order and any number of times.

A stored value is one byte of format version and a msgpack array or map.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgpack

from dhtcrawl.errors import StorageError, StoreTooNew

VALUE_VERSION = 1
_VERSION = bytes([VALUE_VERSION])
# The letter before the number of an archive file that holds copies of other nodes' bodies.
COPIES = "c"
# How many nodes that fetched a page, besides the one that has it, are kept: those with the smallest ids.
OTHERS_MAX = 40
_PLAIN = 12  # fields of a stored task with empty `others` and `later`, which would be the next two
# A record is read several times between two changes: the cache has it until a few thousand others are read.
TASKS_KEPT_MAX = 4096


class State(IntEnum):
    """Where a task stands; the order is the lattice's.

    Number 1 was "leased", which no version wrote: assignments are kept in memory
    only. The number stays reserved, and is read as pending, so that the other
    numbers keep their meaning in stores and on the wire.
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
    """Why a URL was not fetched, in the words of reports/skipped.jsonl."""

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

    @property
    def is_copy(self) -> bool:
        """Whether `node` did not fetch the page, but has a copy of its body (`--copies`)."""
        return holds_copies(self.file)


def holds_copies(name: str) -> bool:
    """Whether an archive file holds copies of pages that other nodes fetched."""
    return name.rpartition("-")[2].startswith(COPIES)


@dataclass(frozen=True, slots=True)
class Task:
    """A task record. `order` numbers the tasks of a node in the order of their discovery."""

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
    place: Place | None = None  # of a fetched or done task: where its body lies
    others: tuple[str, ...] = ()  # nodes that fetched the page besides `place.node`: ids, sorted, once for each fetch
    later: bytes = b""  # what a later version adds to a record; kept and passed on

    @property
    def fetchers(self) -> tuple[str, ...]:
        """The nodes known to have fetched the page: ids, sorted, once for each fetch."""
        if self.place is None or self.place.is_copy:
            return self.others
        return tuple(sorted((*self.others, self.place.node)))

    def pack(self) -> bytes:
        return self.pack_with(self.order)

    def pack_with(self, order: int) -> bytes:
        """The stored value of `replace(self, order=order)`."""
        fields = (
            self.url, self.depth, order, self.referrer, int(self.state), self.gen, self.attempt,
            self.hops, self.seed, self.reason, self.detail, self.place,
        )  # fmt: skip
        return _VERSION + cast(bytes, msgpack.packb((*fields, *additions(self.others, self.later))))


@lru_cache(maxsize=TASKS_KEPT_MAX)
def unpack_task(value: bytes) -> Task:
    """The task record in a stored value.

    Raises:
        StoreTooNew: a later version wrote it.
        StorageError: it is damaged.
    """
    fields = unpack(value)
    try:
        url, depth, order, referrer, state, gen, attempt, hops, seed, reason, detail, place = fields[:_PLAIN]
        return Task(
            url, depth, order, referrer, _STATES[state], gen, attempt, hops, seed, reason, detail,
            Place(*place) if place is not None else None, *additions_of(fields),
        )  # fmt: skip
    except (ValueError, TypeError, LookupError) as error:
        raise _damaged(error) from error


def additions(others: tuple[str, ...], later: bytes) -> tuple[Any, ...]:
    """`Task.others` and `Task.later` as they follow the other fields: left out where they are empty."""
    return (others, later) if later else (others,) if others else ()


def additions_of(fields: list[Any]) -> tuple[tuple[str, ...], bytes]:
    """`Task.others` and `Task.later` of a stored record's fields."""
    if len(fields) == _PLAIN:
        return (), b""
    return tuple(fields[_PLAIN]), fields[_PLAIN + 1] if len(fields) > _PLAIN + 1 else b""


def is_task(fields: object, *, plain: bool = False) -> bool:
    """Whether a stored value's content has the fields of a task record of this version; `plain`: without additions."""
    return type(fields) is list and _PLAIN <= len(fields) <= _PLAIN + (0 if plain else 2)


def merge(a: Task, b: Task) -> Task:
    """Merge two replicas of a record."""
    if a.gen == b.gen and a.state == b.state == State.DONE:
        # Both replicas are of a page that was fetched: the lowest attempt wins, then the
        # node id. The other fields make the winner the same in either order.
        winner = min(a, b, key=lambda task: (task.attempt, task.place or (), task.reason, task.detail))
    else:
        winner = max(a, b, key=_rank)
    # The fields about the discovery are those of the replica with the smallest depth, all
    # of them: a mix would make the merge depend on the order in which replicas meet.
    finder = min(a, b, key=lambda task: (task.depth, task.order, task.referrer, task.hops))
    return replace(
        winner,
        depth=finder.depth,
        order=finder.order,
        referrer=finder.referrer,
        hops=finder.hops,
        seed=a.seed or b.seed,
        others=_others(winner, a, b),
        later=max(a.later, b.later),  # its meaning is unknown: any rule would do that is the same at all nodes
    )


def fetched_again(task: Task, node: str) -> tuple[str, ...]:
    """`Task.others` after `node` has fetched the page again while its place stays the same."""
    return tuple(sorted((*task.others, node))[:OTHERS_MAX])


def others_beside(place: Place | None, fetchers: Iterable[str]) -> tuple[str, ...]:
    """`Task.others` of a page that lies at `place` and was fetched by `fetchers`, as `Task.fetchers` has them."""
    known = sorted(fetchers)
    if place is not None and not place.is_copy and place.node in known:
        known.remove(place.node)
    return tuple(known[:OTHERS_MAX])


def _others(winner: Task, a: Task, b: Task) -> tuple[str, ...]:
    if not a.others and not b.others:
        loser = b if winner is a else a
        if loser.place is None or loser.place == winner.place:
            return ()  # the usual case
    return others_beside(winner.place, (Counter(a.fetchers) | Counter(b.fetchers)).elements())


def _rank(task: Task) -> tuple[Any, ...]:
    settled = task.state if task.state >= State.DEAD else 0
    return (task.gen, settled, task.attempt, task.state, task.reason, task.detail, task.place or ())


def pack(value: object) -> bytes:
    """The stored value of any other record."""
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
