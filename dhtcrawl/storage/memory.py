"""The engine without a disk: for tests and the simulator."""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedDict

from dhtcrawl.storage.engine import Batch


class MemoryEngine:
    """A sorted dictionary; the content outlives `close`, as a disk's would."""

    def __init__(self) -> None:
        self._data: SortedDict[bytes, bytes] = SortedDict()

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._data.get(key)
        return value

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        # A copy of the keys: LevelDB's iterators see a snapshot too.
        for key in list(self._data.irange(start, stop, inclusive=(True, False))):
            value = self._data.get(key)
            if value is not None:
                yield key, value

    def write(self, batch: Batch, *, sync: bool) -> None:
        for key, value in batch.items():
            if value is None:
                self._data.pop(key, None)
            else:
                self._data[key] = value

    def close(self) -> None:
        pass
