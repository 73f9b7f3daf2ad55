"""Which tasks are known, and at which depth, in a few bytes each: most links need no read of the store. No I/O.

A table of slots of 8 bytes, found by some bits of a task key. A slot keeps 56 other bits of the key and a depth below
255; of two tasks that meet in a slot the later one stays. So memory is bounded, and what is not kept is looked up
in the store. That a link is taken for another task's has a chance of 2^-56; who wanted it would have to make both URLs.

Filled with what is read from the store and with every group that is written, on the committer's thread only.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from dhtcrawl.keyspace import CRAWL_ID_BYTES, KEY_BYTES
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import depth_of

NOT_KEPT: Final = 1 << 62  # deeper than any link
SLOTS_MIN = 1 << 14  # eight times as many, once half of them are in use
SLOTS_MAX = 1 << 21
_DEPTH: Final = 0xFF  # the bits of a slot for the depth: all of them where it keeps none
_NONE: Final = _DEPTH
_TASK = keys.TASK[0]
_HEAD = 1 + CRAWL_ID_BYTES
# The end of a task key is the key of its URL: with host keys, the beginning would be the same for all of a host.
_PARTS = {_HEAD + width: struct.Struct(f"<{_HEAD + width - 12}xIQ") for width in (KEY_BYTES, 2 * KEY_BYTES)}


class KnownDepths:
    """The depths of tasks that are in the store."""

    __slots__ = ("_filled", "_slots", "_slots_max")

    def __init__(self, slots_max: int = SLOTS_MAX) -> None:
        """`slots_max` is a power of two."""
        self._slots_max = slots_max
        self._filled = 0
        self._slots = _empty(min(SLOTS_MIN, slots_max))

    def __len__(self) -> int:
        """How many slots there are."""
        return len(self._slots)

    def find(self, crawl: bytes, records: Sequence[bytes]) -> list[int]:
        """The depth of each of these tasks of a crawl, or `NOT_KEPT`, in their order, by the keys of their records."""
        slots, mask, mix = self._slots, len(self._slots) - 1, _mix(crawl)
        return [
            depth
            if ((kept := slots[(at ^ mix) & mask]) ^ tag ^ mix) <= _DEPTH and (depth := kept & _DEPTH) < _DEPTH
            else NOT_KEPT
            for at, tag in _parts(records)
        ]

    def keep(self, crawl: bytes, records: Sequence[bytes], depths: Iterable[int]) -> None:
        """Keep the depths of tasks that are in the store; a depth of `NOT_KEPT` is that of a task that is not."""
        if 2 * self._filled > len(self._slots) and len(self._slots) < self._slots_max:
            # What is kept does not say where it would be among more slots: it is read once more.
            self._slots, self._filled = _empty(min(8 * len(self._slots), self._slots_max)), 0
        slots, mask, mix, filled = self._slots, len(self._slots) - 1, _mix(crawl), self._filled
        for (at, tag), depth in zip(_parts(records), depths, strict=True):
            at, tag = (at ^ mix) & mask, (tag ^ mix) | _DEPTH
            if depth < _DEPTH:
                filled += slots[at] == _NONE
                slots[at] = tag - _DEPTH + depth
            elif slots[at] | _DEPTH == tag:
                slots[at] = _NONE
        self._filled = filled

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


def _empty(slots: int) -> array[int]:
    return array("Q", [_NONE]) * slots


def _mix(crawl: bytes) -> int:
    """What keeps apart the tasks of two crawls that have the same URL."""
    return int.from_bytes(crawl[:8], "little")


def _parts(records: Sequence[bytes]) -> Iterable[tuple[int, int]]:
    """The bits that say where a task is kept, and those by which it is told; the keys have one width."""
    if not records:
        return ()
    return cast("Iterable[tuple[int, int]]", _PARTS[len(records[0])].iter_unpack(b"".join(records)))
