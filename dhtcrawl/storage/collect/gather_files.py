"""Brings archive files into a collection: bytes are appended and synced before their length counts.

As with a node's own archive, the store has the committed length of a file (`w`),
which is written after the bytes: when a file is continued after a crash, it is cut to
that length first. A file that a node on this machine will not touch again is linked
instead of copied. Runs on the committer's thread.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dhtcrawl.errors import StorageError
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.catalog import number_at
from dhtcrawl.storage.store.engine import storage_error
from dhtcrawl.storage.store.files import AppendFile, DiskDirectory, sync_path
from dhtcrawl.storage.store.records import pack
from dhtcrawl.storage.store.txn import Txn

SYNC_EVERY_BYTES = 64 << 20  # at most so much is copied once more after a crash
_COPY_BYTES = 1 << 20


class IncomingFile:
    """One archive file, which grows until it is as long as at its node."""

    def __init__(self, directory: Path, crawl: bytes, name: str, length: int) -> None:
        self._directory = DiskDirectory(directory)
        self._path = directory / name
        self._key = keys.ARCHIVE + crawl + name.encode()
        self._length = length
        self._file: AppendFile | None = None
        self._synced = 0

    def begin(self, txn: Txn) -> int:
        """Open the file; return the offset to go on from, the full length if nothing is left to bring.

        Raises:
            StorageError: the file cannot be opened.
        """
        committed = number_at(txn, self._key)
        size, links = _size_and_links(self._path)
        if size < committed:
            # The file, or a part of it, was removed: begin anew, and commit that first.
            committed = 0
            txn.put(self._key, pack(0))
        if committed >= self._length and size == committed and self._path.exists():
            return committed
        if links > 1:
            # It is linked, so it is its node's file, too: we may read it, but neither cut it nor append to it.
            self._directory.replace(self._path.name, _read(self._path, committed))
        self._file = self._directory.open(self._path.name, committed)
        self._synced = committed
        return committed

    def append(self, txn: Txn, data: bytes) -> None:
        """Append bytes.

        Raises:
            StorageFull: no space left.
        """
        file = self._file
        assert file is not None, "only after begin"
        file.append(data)
        if file.size >= self._length or file.size - self._synced >= SYNC_EVERY_BYTES:
            file.sync()
            self._synced = file.size
            txn.put(self._key, pack(file.size))

    def close(self) -> None:
        """Close the file; bytes that were not synced will be brought again."""
        if self._file is not None:
            self._file.close()
            self._file = None


def link_file(txn: Txn, crawl: bytes, directory: Path, source: Path, length: int) -> bool:
    """Link `source`, to which no node writes any more, into the collection; return False if it has to be copied."""
    path, key = directory / source.name, keys.ARCHIVE + crawl + source.name.encode()
    try:
        found = source.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size != length:
            return False
        if length < number_at(txn, key) <= _size_and_links(path)[0]:
            return True  # of another node, which has more of it
        if not (path.exists() and path.samefile(source)):
            _link(source, path)
        # Its node may run with `storage.sync` off, but a collection's files must be on disk.
        sync_path(path)
        sync_path(directory)
    except OSError:  # another file system, or one without links
        return False
    if number_at(txn, key) != length:
        txn.put(key, pack(length))
    return True


def _link(source: Path, path: Path) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary, follow_symlinks=False)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _size_and_links(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 1
    except OSError as error:
        raise storage_error(error, f"cannot open {path}") from error
    return found.st_size, found.st_nlink


def _read(path: Path, length: int) -> Iterator[bytes]:
    """The first `length` bytes of a file."""
    with path.open("rb") as file:
        while length > 0:
            data = file.read(min(length, _COPY_BYTES))
            if not data:
                raise StorageError(f"{path} is shorter than it was a moment ago; run the same command again")
            length -= len(data)
            yield data
