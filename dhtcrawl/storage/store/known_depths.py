"""Which tasks are known, and at which depth, in a few bytes each: most links need no read of the store. No I/O.

A `DepthTable` has slots of 8 bytes. A slot keeps 56 bits of a task key and a depth below 255. Ten other bits of the key
say in which group of slots it lies, and some of the 56 in which two of the group it may be (Pagh and Rodler 2001).
Where both are taken, one of the tasks there goes to its own other slot if that is free, or else is forgotten. So memory
is bounded, and what is not kept is looked up in the store. Where a slot lies and what it keeps say where else its task
might be: so all that is kept moves, a few slots at a time, when the table grows.

That a link is taken for another task's has a chance below 2^-43; who wanted it would have to make both URLs.

`KnownDepths` is filled with what is read from the store and with every group that is written, on the committer's
thread only. The event loop has a table of its own (`dhtcrawl.crawl.safe_tasks`).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import repeat
from typing import Any, Final

from dhtcrawl.keyspace import CRAWL_ID_BYTES, KEY_BYTES
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import depth_of

NOT_KEPT: Final = 1 << 62  # deeper than any link
SLOTS_MIN = 1 << 14  # eight times as many, once half of them are in use
SLOTS_MAX = 1 << 21
GROUPS = 1 << 10
SALTS: Final = 1 << 64
MOVED_AT_ONCE: Final = 4_096  # slots; some 2 ms
_DEPTH: Final = 0xFF  # the bits of a slot for the depth: all of them where it keeps none
_NONE: Final = _DEPTH
# From which bit on a slot says where in its group its task may be.
_A, _B = 8, 30
_TASK = keys.TASK[0]
_HEAD = 1 + CRAWL_ID_BYTES
# The end of a task key is the key of its URL: with host keys, the beginning would be the same for all of a host.
_PARTS = {
    head + width: struct.Struct(f"<{head + width - 12}xIQ")
    for width in (KEY_BYTES, 2 * KEY_BYTES)
    for head in (0, _HEAD)
}


class DepthTable:
    """Depths by task key. Keys that are given together have one width; a `salt` keeps apart what has the same key."""

    __slots__ = ("_filled", "_former", "_groups", "_moved", "_slots", "_slots_max")

    def __init__(self, slots_max: int = SLOTS_MAX, groups: int = GROUPS) -> None:
        """Both are powers of two."""
        self._slots_max = slots_max
        self._filled = 0
        self._slots = _empty(min(SLOTS_MIN, slots_max))
        self._groups = min(groups, len(self._slots)) - 1  # as a mask
        self._former: array[int] | None = None  # a smaller table, of which the first `_moved` slots are empty now
        self._moved = 0

    def __len__(self) -> int:
        """How many slots there are."""
        return len(self._slots)

    def find(self, task_keys: Sequence[bytes], salt: int = 0) -> list[int]:
        """The depth of each of these tasks, or `NOT_KEPT`, in their order."""
        found = self._look(self._slots, task_keys, salt)
        if self._former is None:
            return found
        return list(map(min, found, self._look(self._former, task_keys, salt)))

    def keep(self, task_keys: Sequence[bytes], depths: Iterable[int], salt: int = 0) -> None:
        """Keep the depths of these tasks; a depth of `NOT_KEPT` is that of a task that is to be forgotten."""
        self._grow()
        depths = list(depths)
        if self._former is not None:
            self._put(self._former, task_keys, repeat(NOT_KEPT, len(depths)), salt)
        self._put(self._slots, task_keys, depths, salt)

    def _look(self, slots: array[int], task_keys: Sequence[bytes], salt: int) -> list[int]:
        groups = self._groups
        within, low = len(slots) - 1 - groups, salt & groups
        return [
            depth
            if (
                (slot := slots[(group := at & groups ^ low) | (tag := bits ^ salt) >> _A & within]) ^ tag <= _DEPTH
                or (slot := slots[group | tag >> _B & within]) ^ tag <= _DEPTH
            )
            and (depth := slot & _DEPTH) < _DEPTH
            else NOT_KEPT
            for at, bits in _parts(task_keys)
        ]

    def _put(self, slots: array[int], task_keys: Sequence[bytes], depths: Iterable[int], salt: int) -> None:
        groups = self._groups
        within, low, filled = len(slots) - 1 - groups, salt & groups, self._filled
        for (at, bits), depth in zip(_parts(task_keys), depths, strict=True):
            tag, group = (bits ^ salt) | _DEPTH, at & groups ^ low
            first, second = group | tag >> _A & within, group | tag >> _B & within
            one, other = slots[first], slots[second]
            if one | _DEPTH == tag:
                place = first
            elif other | _DEPTH == tag:
                place = second
            elif depth >= _DEPTH:
                continue
            else:
                place = first if one == _NONE else second if other == _NONE else self._room(slots, first, second)
                filled += slots[place] == _NONE
            if depth < _DEPTH:
                slots[place] = tag ^ (_DEPTH ^ depth)
            else:
                filled -= slots[place] != _NONE
                slots[place] = _NONE
        self._filled = filled

    def _room(self, slots: array[int], first: int, second: int) -> int:
        """The one of two slots that is to be used: empty, if one is there or whose task has another place to go."""
        within = len(slots) - 1 - self._groups
        for place in (first, second):
            there = slots[place]
            if there == _NONE:
                return place
            # One of its two places is this one.
            other = (there >> _A ^ there >> _B) & within ^ place
            if slots[other] == _NONE:
                slots[other], slots[place] = there, _NONE
                return place
        return first

    def _grow(self) -> None:
        """Begin to move into a larger table once half of this one is in use, or go on with it."""
        if self._former is not None:
            self._move(self._former)
        elif 2 * self._filled > len(self._slots) and len(self._slots) < self._slots_max:
            self._former, self._moved = self._slots, 0
            self._slots = _empty(min(8 * len(self._slots), self._slots_max))

    def _move(self, former: array[int]) -> None:
        slots, groups = self._slots, self._groups
        within = len(slots) - 1 - groups
        end = min(self._moved + MOVED_AT_ONCE, len(former))
        for place in range(self._moved, end):
            there = former[place]
            if there != _NONE:
                group = place & groups
                to = self._room(slots, group | there >> _A & within, group | there >> _B & within)
                self._filled -= slots[to] != _NONE
                slots[to], former[place] = there, _NONE
        self._moved = end
        if end == len(former):
            self._former = None


class KnownDepths:
    """The depths of tasks that are in the store."""

    __slots__ = ("_table",)

    def __init__(self, slots_max: int = SLOTS_MAX) -> None:
        """`slots_max` is a power of two."""
        self._table = DepthTable(slots_max)

    def find(self, crawl: bytes, records: Sequence[bytes]) -> list[int]:
        """The depth of each of these tasks of a crawl, or `NOT_KEPT`, in their order, by the keys of their records."""
        return self._table.find(records, salt_of(crawl))

    def keep(self, crawl: bytes, records: Sequence[bytes], depths: Iterable[int]) -> None:
        """Keep the depths of tasks that are in the store; a depth of `NOT_KEPT` is that of a task that is not."""
        self._table.keep(records, depths, salt_of(crawl))

    def written(self, batch: Mapping[bytes, bytes | None]) -> None:
        """A group was written: keep what it says of tasks."""
        records = [full for full in batch if full[0] == _TASK]
        # For a crawl that does not run here other nodes say how wide its keys are, and one of them may lie.
        alike = {(full[1:_HEAD], len(full)) for full in records}
        for crawl, width in alike:
            theirs = records
            if len(alike) > 1:
                theirs = [full for full in records if len(full) == width and full[1:_HEAD] == crawl]
            values = map(batch.__getitem__, theirs)
            self.keep(crawl, theirs, [NOT_KEPT if value is None else depth_of(value) for value in values])


@lru_cache(maxsize=64)
def salt_of(crawl: bytes) -> int:
    """What keeps apart the tasks of two crawls that have the same URL; who submits a crawl cannot choose it."""
    return int.from_bytes(blake2b(crawl, digest_size=8).digest(), "little")


def _empty(slots: int) -> array[int]:
    return array("Q", [_NONE]) * slots


def _parts(task_keys: Sequence[bytes]) -> Iterable[tuple[Any, ...]]:
    """The bits that say where a task is kept, and those by which it is told."""
    if not task_keys:
        return ()
    return _PARTS[len(task_keys[0])].iter_unpack(b"".join(task_keys))
