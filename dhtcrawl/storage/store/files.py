"""Append-only files, which count only up to a committed length.

The real files and those in memory pass the same contract suite. Calls block;
they run on the committer's thread.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from dhtcrawl.errors import StorageError
from dhtcrawl.storage.store.engine import storage_error


class AppendFile(Protocol):
    """A file that only grows, except that a torn tail is cut off when it is opened."""

    name: str

    @property
    def size(self) -> int: ...

    def append(self, data: bytes) -> int:
        """Write `data` at the end; return the offset where it begins.

        Raises:
            StorageFull: no space; nothing was appended, `size` is unchanged.
            StorageError: the disk failed; the same.
        """

    def truncate(self, size: int) -> None:
        """Remove what was appended after `size`; never fails.

        For a writer whose second append failed. Committed bytes must not be
        removed.
        """

    def sync(self) -> None:
        """Return once everything appended survives a power cut.

        Raises:
            StorageError: the disk failed.
        """

    def close(self) -> None: ...


class Directory(Protocol):
    """A directory of append files.

    Raises:
        StorageError: by every method, if the disk fails.
    """

    def open(self, name: str, committed: int | None) -> AppendFile:
        """Open or create `name` and cut it to `committed` bytes; None keeps all of it.

        Raises:
            StorageError: the file is shorter than `committed`, and stays as it is; or it cannot be opened.
        """

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Read `length` bytes from `offset`, fewer only at the end of the file.

        Raises:
            StorageError: the file cannot be read.
        """

    def names(self) -> list[str]:
        """The names of the files, sorted."""

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""
        ...

    def replace(self, name: str, chunks: Iterable[bytes]) -> None:
        """Make `name` hold exactly `chunks`, or, after a crash or an error, what it held before.

        Raises:
            StorageError: the file cannot be written.
        """

    def free_bytes(self) -> int:
        """The free space, in bytes."""


class DiskDirectory:
    """A directory of the file system."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(error, f"cannot create {path}") from error

    def open(self, name: str, committed: int | None) -> DiskFile:
        return DiskFile(self._path / name, committed)

    def read(self, name: str, offset: int, length: int) -> bytes:
        try:
            with (self._path / name).open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            raise storage_error(error, f"cannot read {self._path / name}") from error

    def names(self) -> list[str]:
        try:
            return sorted(entry.name for entry in self._path.iterdir() if entry.is_file())
        except OSError as error:
            raise storage_error(error, f"cannot list {self._path}") from error

    def remove(self, name: str) -> None:
        try:
            (self._path / name).unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(error, f"cannot remove {self._path / name}") from error

    def replace(self, name: str, chunks: Iterable[bytes]) -> None:
        temporary = self._path / f".{name}.new"
        try:
            with temporary.open("wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path / name)
            sync_path(self._path)
        except BaseException as error:
            # Even if `chunks` fails: a full disk needs the space.
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise storage_error(error, f"cannot write {self._path / name}") from error
            raise

    def free_bytes(self) -> int:
        try:
            disk = os.statvfs(self._path)
        except OSError as error:
            raise storage_error(error, f"cannot look at {self._path}") from error
        return disk.f_bavail * disk.f_frsize


class DiskFile:
    """An unbuffered file on disk: each call is one write."""

    def __init__(self, path: Path, committed: int | None) -> None:
        self.name = path.name
        self._path = path
        try:
            created = not path.exists()
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            length = os.fstat(self._fd).st_size
            if committed is None:
                committed = length
            self.size = committed
            if length < committed:
                os.close(self._fd)
                if created:
                    path.unlink()
                found = "is gone" if created else f"has {length} bytes"
                raise StorageError(
                    f"{path} {found}, but {committed} bytes were committed to it: restore the file, or crawl anew "
                    "with another --out (what is left here stays readable)"
                )
            if length > committed:
                os.ftruncate(self._fd, committed)
            os.lseek(self._fd, committed, os.SEEK_SET)
            if created:
                sync_path(path.parent)
        except OSError as error:
            raise storage_error(error, f"cannot open {path}") from error

    def append(self, data: bytes) -> int:
        offset = self.size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self.truncate(offset)
            raise storage_error(error, f"cannot write {self._path}") from error
        self.size = offset + len(data)
        return offset

    def truncate(self, size: int) -> None:
        assert 0 <= size <= self.size
        self.size = size
        os.lseek(self._fd, size, os.SEEK_SET)
        # Frees the space, and leaves no torn tail if the process ends in order. If
        # even that fails, the tail stays until the file is opened again: it was
        # never committed.
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise storage_error(error, f"cannot write {self._path}") from error

    def close(self) -> None:
        os.close(self._fd)


def sync_path(path: Path) -> None:
    """Make a file's content survive a power cut; of a directory, the creation and renaming of its files."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_private(path: Path, data: bytes, *, durable: bool = True, keep_owner: bool = False) -> None:
    """Write a file that its owner alone can read, whole or not at all; `durable`: it survives a power cut.

    With `keep_owner` one that is there stays its owner's, else it is of whoever writes it.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.new")
    # A file that was there before would keep its owner and mode.
    temporary.unlink(missing_ok=True)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        if keep_owner and (owner := path.stat()).st_uid != os.geteuid():
            os.fchown(fd, owner.st_uid, owner.st_gid)
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
    if durable:
        sync_path(path.absolute().parent)


class MemoryDirectory:
    """The fake: keeps files as byte arrays, which outlive the node that wrote them."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.free = 1 << 60

    def open(self, name: str, committed: int | None) -> MemoryFile:
        data = self.files.get(name, bytearray())
        if committed is None:
            committed = len(data)
        if len(data) < committed:
            raise StorageError(f"{name} has {len(data)} bytes, but {committed} bytes were committed to it")
        self.files[name] = data
        del data[committed:]
        return MemoryFile(name, data)

    def read(self, name: str, offset: int, length: int) -> bytes:
        if name not in self.files:
            raise StorageError(f"cannot read {name}: no such file")
        return bytes(self.files[name][offset : offset + length])

    def names(self) -> list[str]:
        return sorted(self.files)

    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    def replace(self, name: str, chunks: Iterable[bytes]) -> None:
        self.files[name] = bytearray(b"".join(chunks))

    def free_bytes(self) -> int:
        return self.free


class MemoryFile:
    """A file of a `MemoryDirectory`."""

    def __init__(self, name: str, data: bytearray) -> None:
        self.name = name
        self._data = data

    @property
    def size(self) -> int:
        return len(self._data)

    def append(self, data: bytes) -> int:
        offset = len(self._data)
        self._data += data
        return offset

    def truncate(self, size: int) -> None:
        assert 0 <= size <= len(self._data)
        del self._data[size:]

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass
