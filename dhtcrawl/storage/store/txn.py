"""An ordered map of bytes, as a database and as one transaction sees it.

`Engine` is all that we need of a database: LevelDB (`dhtcrawl.storage.store.engine`) or a sorted dictionary
(`dhtcrawl.storage.store.memory`). A `Txn` shows an engine with the writes of its group on top.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final, Protocol

from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.known_depths import NOT_KEPT, KnownDepths
from dhtcrawl.storage.store.records import depth_of

Batch = Mapping[bytes, bytes | None]  # None deletes
NOTHING_WRITTEN: Final[Batch] = MappingProxyType({})
_ABSENT: Final[Any] = object()  # of a key that the group has not written


class Engine(Protocol):
    """An ordered map in byte order. Single-threaded: one caller at a time."""

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`, or None.

        Raises:
            StorageError: the value cannot be read, or is damaged.
        """

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        """The value of each of these keys, or None, in their order: records of which few were ever removed.

        A large store may have to pass all that was removed behind a key, but is left as it is by it.

        Raises:
            StorageError: a value cannot be read, or is damaged.
        """

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield pairs with start <= key < stop, in order, as they are when the first is taken.

        Raises:
            StorageError: they cannot be read, or are damaged.
        """

    def write(self, batch: Batch, *, sync: bool) -> None:
        """Write all of `batch` or nothing; with `sync` it survives a power cut.

        Raises:
            StorageFull: no space is left; nothing of the batch is visible.
            StorageError: the disk failed.
        """

    def close(self) -> None:
        """Close the database; further calls are a bug."""


class Txn:
    """The store as one transaction sees it; valid only while its function runs."""

    __slots__ = ("_before", "_engine", "_known", "_ordered", "_ordered_of", "_writes", "put")

    def __init__(
        self,
        engine: Engine,
        writes: dict[bytes, bytes | None],
        known: KnownDepths | None = None,
        before: Batch = NOTHING_WRITTEN,
    ) -> None:
        """Its writes go into `writes`; `before` has those of the transactions before it in its group.

        `known` is told of all that is written to `engine`.
        """
        self._engine = engine
        self._writes = writes
        self._before = before
        self._known = known
        # The keys of both in order, while there are as many writes as then: a transaction that
        # only reads, and seeks from host to host, sorts them once.
        self._ordered: list[bytes] = []
        self._ordered_of = -1
        # A page costs a swarm's nodes some twenty writes: none of them is a Python call.
        self.put: Callable[[bytes, bytes], None] = writes.__setitem__

    def get(self, key: bytes) -> bytes | None:
        written: bytes | None = self._writes.get(key, _ABSENT)
        if written is _ABSENT:
            written = self._before.get(key, _ABSENT)
        return self._engine.get(key) if written is _ABSENT else written

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """What `get` gives for each of these keys, in their order, for less than so many calls."""
        written = self._written(keys)
        if written is None:
            return self._engine.get_many(keys)
        if written.count(_ABSENT) == len(written):
            return self._engine.get_many(keys)
        stored = iter(self._engine.get_many(key for key, value in zip(keys, written, strict=True) if value is _ABSENT))
        return [next(stored) if value is _ABSENT else value for value in written]

    def _written(self, keys: list[bytes]) -> list[Any] | None:
        """What the group has written for these keys, or `_ABSENT`; None: it has written nothing."""
        if not self._writes:
            return list(map(self._before.get, keys, repeat(_ABSENT))) if self._before else None
        written = list(map(self._writes.get, keys, repeat(_ABSENT)))
        if self._before:
            before = self._before
            written = [
                before.get(key, _ABSENT) if value is _ABSENT else value
                for key, value in zip(keys, written, strict=True)
            ]
        return written

    def task_depths(self, crawl: bytes, task_keys: list[bytes]) -> list[int | None]:
        """The depths in the records of these tasks, in their order; None where there is no record.

        Raises:
            StoreTooNew: a later version wrote one of them.
            StorageError: one cannot be read, or is damaged.
        """
        head, known = keys.TASK + crawl, self._known
        full = [head + key for key in task_keys]
        if known is None:
            return [None if value is None else depth_of(value) for value in self.get_many(full)]
        kept = known.find(crawl, full)
        written = self._written(full) or ()
        group = {key for key, value in zip(full, written, strict=False) if value is not _ABSENT}
        if group:
            kept = [NOT_KEPT if key in group else depth for key, depth in zip(full, kept, strict=True)]
        wanted = [key for key, depth in zip(full, kept, strict=True) if depth == NOT_KEPT]
        if not wanted:
            return [*kept]
        read = [None if value is None else depth_of(value) for value in self.get_many(wanted)]
        found = {key: depth for key, depth in zip(wanted, read, strict=True) if depth is not None and key not in group}
        known.keep(crawl, list(found), found.values())
        stored = iter(read)
        return [next(stored) if depth == NOT_KEPT else depth for depth in kept]

    def delete(self, key: bytes) -> None:
        self._writes[key] = None

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Pairs with start <= key < stop, in order, this group's writes included."""
        writes, before = self._writes, self._before
        if self._ordered_of != len(writes):
            self._ordered, self._ordered_of = sorted({*writes, *before}), len(writes)
        first, last = bisect_left(self._ordered, start), bisect_left(self._ordered, stop)
        if first == last:
            return self._engine.scan(start, stop)
        return self._overlaid(start, stop, self._ordered[first:last])

    def _overlaid(self, start: bytes, stop: bytes, overlay: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """The pairs of the engine, with what the group has written under the keys of `overlay`."""
        writes, before = self._writes, self._before
        position = 0
        for key, value in self._engine.scan(start, stop):
            while position < len(overlay) and overlay[position] < key:
                own = overlay[position]
                written = writes[own] if own in writes else before[own]
                if written is not None:
                    yield own, written
                position += 1
            if position < len(overlay) and overlay[position] == key:
                continue
            yield key, value
        for own in overlay[position:]:
            written = writes[own] if own in writes else before[own]
            if written is not None:
                yield own, written

    def rows(self, kind: bytes, crawl: bytes, cursor: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield a crawl's records of a kind from `cursor` on: the part of the key behind the crawl's id, the value."""
        head = kind + crawl
        for full, value in self.scan(head + cursor, keys.after(head)):
            yield full[len(head) :], value

    def page(
        self, kind: bytes, crawl: bytes, cursor: bytes, limit: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Up to `limit` of these rows, read before anything is written; and the next cursor, None at their end."""
        found: list[tuple[bytes, bytes]] = []
        for key, value in self.rows(kind, crawl, cursor):
            if len(found) == limit:
                return found, key
            found.append((key, value))
        return found, None
