"""The store's `Engine` on LevelDB, by plyvel: an ordered map of bytes with atomic batches.

`dhtcrawl.storage.store.memory.MemoryEngine` is the fake that ships with it. Both pass
`tests/storage/test_engine_contract.py`. Calls block; `dhtcrawl.storage.store.committer` keeps them off the event loop.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import plyvel

from dhtcrawl.errors import StorageError, StorageFull
from dhtcrawl.storage.store.txn import Batch

OPEN_FILES_MAX = 200  # of LevelDB's tables


class LevelEngine:
    """A LevelDB database; only one process at a time can open a directory."""

    # With Bloom filters a miss, the usual answer to "URL seen?", costs no
    # disk read (LevelDB doc/index.md, "Filters"; 10 bits a key give 1 %).
    def __init__(self, path: Path, *, cache_bytes: int = 8 << 20, write_buffer_bytes: int = 4 << 20) -> None:
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._db = plyvel.DB(
                str(path),
                create_if_missing=True,
                bloom_filter_bits=10,
                lru_cache_size=cache_bytes,
                write_buffer_size=write_buffer_bytes,
                max_open_files=OPEN_FILES_MAX,
                # A hole in the log is to be reported as damage, not taken for the log's end.
                paranoid_checks=True,
            )
        except (plyvel.Error, OSError) as error:
            raise storage_error(error, f"cannot open the store {path}") from error

    # Without checksums LevelDB can miss keys in a damaged block, and a page that was
    # fetched would count as never seen.
    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key, verify_checksums=True)
        except (plyvel.Error, OSError) as error:
            raise storage_error(error, "cannot read the store") from error
        return value

    def get_many(self, keys: Iterable[bytes]) -> list[bytes | None]:
        try:
            return list(map(partial(self._db.get, verify_checksums=True), keys))
        except (plyvel.Error, OSError) as error:
            raise storage_error(error, "cannot read the store") from error

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        try:
            with self._db.iterator(start=start, stop=stop, verify_checksums=True) as iterator:
                yield from iterator
        except (plyvel.Error, OSError) as error:
            raise storage_error(error, "cannot read the store") from error

    def write(self, batch: Batch, *, sync: bool) -> None:
        try:
            with self._db.write_batch(transaction=True, sync=sync) as writer:
                put, delete = writer.put, writer.delete
                for key, value in batch.items():
                    if value is None:
                        delete(key)
                    else:
                        put(key, value)
        except (plyvel.Error, OSError) as error:
            raise storage_error(error, "cannot write to the store") from error

    def close(self) -> None:
        self._db.close()


def storage_error(error: Exception, what: str) -> StorageError:
    """Turn an error of LevelDB or the system into ours, with the remedy."""
    # plyvel passes LevelDB's message on as bytes.
    text = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else str(error)
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or os.strerror(errno.ENOSPC) in text:
        return StorageFull(f"{what}: no space left on the disk; free some and run the same command again")
    if isinstance(error, NotADirectoryError | FileExistsError) or "Not a directory" in text:
        return StorageError(f"{what}: a file is in the way; name another directory with --out or --data-dir")
    # Not "lock" anywhere in the text: paths may contain it, and so does "block".
    if text.startswith("IO error: lock "):
        return StorageError(f"{what}: another dhtcrawl process is using it; stop that one first")
    if isinstance(error, PermissionError) or "Permission denied" in text:
        return StorageError(f"{what}: permission denied; check its owner and mode")
    if isinstance(error, plyvel.CorruptionError) or text.startswith("Corruption: "):
        return StorageError(f"{what}: it is damaged ({text}); restore it, or start with another directory")
    return StorageError(f"{what}: {text}")
