"""Archive files on their way into a collection: bytes first, synced, then believed.

As with a node's own archive, how much of a file counts stands in the store
(`w`), in a later write than the bytes: what a crash leaves behind that length is
cut off when the file is gone on with. A file that a node on this machine will
not touch again is linked instead of copied. Runs on the committer's thread.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from dhtcrawl.errors import StorageError
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.engine import storage_error
from dhtcrawl.storage.store.files import AppendFile, DiskDirectory, sync_directory
from dhtcrawl.storage.store.records import pack, unpack
from dhtcrawl.storage.store.txn import Txn

SYNC_EVERY_BYTES = 64 << 20  # what a crash costs at most, copied once more
_COPY_BYTES = 1 << 20


class IncomingFile:
    """One archive file, appended to until it is as long as it is at its node."""

    def __init__(self, directory: Path, crawl: bytes, name: str, length: int) -> None:
        self._directory = DiskDirectory(directory)
        self._path = directory / name
        self._key = keys.ARCHIVE + crawl + name.encode()
        self._length = length
        self._file: AppendFile | None = None
        self._synced = 0

    def begin(self, txn: Txn) -> int:
        """Where to go on; no less than the length where nothing is left to bring.

        Raises:
            StorageError: the file cannot be opened.
        """
        committed = _committed(txn, self._key)
        size, links = _size_and_links(self._path)
        if size < committed:
            # Somebody took it away, or a part of it: begin anew, and say so first.
            committed = 0
            txn.put(self._key, pack(0))
        if committed >= self._length and size == committed and self._path.exists():
            return committed
        if links > 1:
            # It is its node's file too: ours to read, not to cut or to go on with.
            self._directory.replace(self._path.name, _read(self._path, committed))
        self._file = self._directory.open(self._path.name, committed)
        self._synced = committed
        return committed

    def append(self, txn: Txn, data: bytes) -> int:
        """Add bytes; where to go on.

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
        return file.size

    def close(self) -> None:
        """Give the file back; what was not synced will be brought again."""
        if self._file is not None:
            self._file.close()
            self._file = None


def link_file(txn: Txn, crawl: bytes, directory: Path, source: Path, length: int) -> bool:
    """Make `source`, which nobody writes to any more, a file of the collection; False where it has to be copied."""
    path, key = directory / source.name, keys.ARCHIVE + crawl + source.name.encode()
    try:
        found = source.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size != length:
            return False
        if not (path.exists() and path.samefile(source)):
            _link(source, path)
        _sync(path)
        sync_directory(directory)
    except OSError:  # another file system, or one without links
        return False
    if _committed(txn, key) != length:
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


def _sync(path: Path) -> None:
    """The node may run with `storage.sync` off; what a collection claims is on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _committed(txn: Txn, key: bytes) -> int:
    value = txn.get(key)
    length: int = 0 if value is None else unpack(value)
    return length


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
