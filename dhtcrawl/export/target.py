"""The file that an export writes: whole under its name, or not there.

.NAME.new    while it is written; locked, so that two exports to one name do not mix
NAME         once it is whole and on the disk
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from dhtcrawl.errors import UsageError
from dhtcrawl.storage.outputs.outputs import ARCHIVE_DIR, INDEXES_DIR, PAGES_DIR, REPORTS_DIR, SUMMARY_FILE
from dhtcrawl.storage.outputs.record_files import RECORDS_DIR
from dhtcrawl.storage.store.engine import storage_error
from dhtcrawl.storage.store.files import sync_path

_BUFFER_BYTES = 1 << 20
_OUTPUT_DIRS = (ARCHIVE_DIR, INDEXES_DIR, PAGES_DIR, REPORTS_DIR, RECORDS_DIR)


@contextmanager
def new_file(path: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """A seekable file that becomes `path` when the block ends, and leaves nothing behind when it raises.

    Raises:
        UsageError: `path` is there and shall not be overwritten, is a directory, or another export is writing it.
        StorageError: it cannot be written.
    """
    check_target(path, overwrite=overwrite)
    temporary = path.with_name(f".{path.name}.new")
    try:
        file = _locked(temporary, path)
    except OSError as error:
        raise UsageError(f"--to {path}: cannot be written ({error.strerror}); name another file") from error
    try:
        try:
            with file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                check_target(path, overwrite=overwrite)
                temporary.replace(path)
            sync_path(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise storage_error(error, f"cannot write {path}") from error


@contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Standard output.

    Raises:
        StorageError: it cannot be written; BrokenPipeError where nobody reads it any more.
    """
    try:
        with _whole(sys.stdout.buffer) as out:
            yield out
            out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise storage_error(error, "cannot write to standard output") from error


@contextmanager
def _whole(out: BinaryIO) -> Iterator[BinaryIO]:
    """The same stream, each write of which takes all: of a raw one, as with `python -u`, it may take a part."""
    if not isinstance(out, io.RawIOBase):
        yield out
        return
    buffered = io.BufferedWriter(out, _BUFFER_BYTES)
    try:
        yield buffered
    finally:
        # It is left open, also where it took not all.
        with contextlib.suppress(OSError):
            buffered.detach()


def opened_target(target: Path | None, *, overwrite: bool) -> AbstractContextManager[BinaryIO]:
    """`new_file`, or standard output where there is no target."""
    return standard_output() if target is None else new_file(target, overwrite=overwrite)


def named(root: Path, suffix: str, to: str | None) -> Path:
    """The file that was named by `to`, or one beside `root` that is called after it.

    Raises:
        UsageError: none was named, and nothing can lie beside `root`.
    """
    if to is not None:
        return Path(to)
    # `.` and `..` have no name of their own.
    of = root.resolve() if root.name in ("", "..") else root
    if not of.name:
        raise UsageError(f"{root} has no name, and nothing can lie beside it; name a file with --to")
    return of.with_name(of.name + suffix)


def check_target(path: Path, *, overwrite: bool) -> None:
    """Refuse a name that cannot be written, before anything is read.

    Raises:
        UsageError: it is taken and shall not be overwritten, is a directory, a device or a pipe, or lies in none.
    """
    if path.is_dir():
        raise UsageError(f"--to {path}: is a directory; name a file")
    if not path.parent.is_dir():
        raise UsageError(f"--to {path}: there is no directory {path.parent}; create it first")
    if path.exists() and not path.is_file():
        # What is written takes the place of what is there: of a device nothing would be left.
        raise UsageError(f"--to {path}: is no ordinary file; name another one, or --to - for standard output")
    if not overwrite and os.path.lexists(path):
        raise UsageError(f"{path} is there already; name another file with --to, or add --overwrite")


def check_outside(path: Path, root: Path) -> None:
    """Refuse a name among what a crawl has written below `root`: the export would take the place of it.

    Raises:
        UsageError: it is such a one.
    """
    # What is written takes the place of a link, and not of the file that the link leads to.
    place, below = Path(os.path.realpath(path.parent)), Path(os.path.realpath(root))
    taken = {below / name for name in _OUTPUT_DIRS}
    if place / path.name == below / SUMMARY_FILE or not taken.isdisjoint((place, *place.parents)):
        raise UsageError(f"--to {path}: lies among the outputs of {root}; name another file")


def open_locked(path: Path, taken: str) -> BinaryIO:
    """Open a file for reading and writing, made where it is missing, which is locked until it is closed.

    Raises:
        UsageError: another process has locked it; the message is `taken`.
        OSError: it cannot be opened.
    """
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666), "w+b", _BUFFER_BYTES)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Not what another process has renamed or removed between the opening and the lock.
        ours = os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError as error:
        file.close()
        if error.errno in (errno.EAGAIN, errno.EACCES, errno.ENOENT):
            raise UsageError(taken) from None
        raise
    if not ours:
        file.close()
        raise UsageError(taken)
    return file


def _locked(temporary: Path, path: Path) -> BinaryIO:
    file = open_locked(temporary, f"another export is writing {path}; wait for it or name another file")
    try:
        file.truncate(0)  # what a killed export left
    except OSError:
        with contextlib.suppress(OSError):
            file.close()
        raise
    return file
