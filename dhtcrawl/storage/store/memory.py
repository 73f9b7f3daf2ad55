"""The `Engine` without a disk, for tests and the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sortedcontainers import SortedDict

from dhtcrawl.storage.store.txn import Batch


class MemoryEngine:
    """A sorted dictionary; the content outlives `close`, as a disk's would."""

    def __init__(self) -> None:
        self._data: SortedDict[bytes, bytes] = SortedDict()
        self._scans = 0

    def get(self, key: bytes) -> bytes | None:
        value: bytes | None = self._data.get(key)
        return value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        return [self._data.get(key) for key in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        data = self._data
        self._scans += 1
        try:
            for key in data.irange(start, stop, inclusive=(True, False)):
                yield key, data[key]
        finally:
            self._scans -= 1

    def write(self, batch: Batch, *, sync: bool) -> None:
        if self._scans:
            # Scans under way keep the data with which they began, as LevelDB's do.
            self._data = self._data.copy()
        for key, value in batch.items():
            if value is None:
                self._data.pop(key, None)
            else:
                self._data[key] = value

    def close(self) -> None:
        pass
