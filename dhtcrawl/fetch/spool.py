"""Where the bytes of a large body wait: an unnamed file, written off the loop.

A body begins in memory and moves to a file once it is larger than
`spool_bytes`. From then on it is written a block of that size at a time, so
that memory holds one block whatever the body's size. The file has no name:
when the process dies, the space is free again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import tempfile
from concurrent.futures import Executor
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from dhtcrawl.errors import StorageError, StorageFull
from dhtcrawl.fetch.http import Body


class Spool:
    """Collects one body. Either `finish` or `abandon` is called, once."""

    def __init__(self, directory: Path, block_bytes: int, executor: Executor) -> None:
        self.size = 0
        self._directory = directory
        self._block_bytes = block_bytes
        self._executor = executor
        # Not a list of chunks: a server that drips single bytes would fill
        # memory with some forty for each.
        self._pending = bytearray()
        self._file: BinaryIO | None = None
        self._abandoned = False
        self._lock = Lock()

    def add(self, chunk: bytes) -> bool:
        """Take a chunk; True says that `flush` is due before the next."""
        self._pending += chunk
        self.size += len(chunk)
        return len(self._pending) > self._block_bytes

    async def flush(self) -> None:
        """Write what is pending, on another thread.

        Raises:
            StorageFull: no space is left for it.
            StorageError: the disk failed.
        """
        block, self._pending = self._pending, bytearray()
        await asyncio.get_running_loop().run_in_executor(self._executor, self._write, block)

    async def finish(self) -> Body:
        """The body; its owner closes it."""
        if self._file is None:
            return Body(bytes(self._pending))
        if self._pending:
            await self.flush()
        return Body(file=self._file, size=self.size)

    def abandon(self) -> None:
        """Give the file back without waiting, also while a write is under way."""
        self._abandoned = True
        self._pending.clear()
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()
        else:
            # After a shutdown of the executor the garbage collector closes it.
            with contextlib.suppress(RuntimeError):
                self._executor.submit(self._close_after_write)

    def _write(self, block: bytearray) -> None:
        with self._lock:
            if self._abandoned:
                return
            try:
                self._append(block)
            except OSError as error:
                raise _storage_error(error, self._directory) from error

    def _close_after_write(self) -> None:
        with self._lock:
            self._close()

    def _append(self, block: bytearray) -> None:
        if self._file is None:
            # Unbuffered: a full disk shows here and not at a later read.
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._directory)  # noqa: SIM115 - the body owns it
        view = memoryview(block)
        while view:
            view = view[self._file.write(view) :]

    def _close(self) -> None:
        if self._file is not None:
            # Nothing was promised about the content of an abandoned file.
            with contextlib.suppress(OSError):
                self._file.close()


def _storage_error(error: OSError, directory: Path) -> StorageError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(
            f"cannot spool a page to {directory}: no space left on the disk; free some and run the same command again"
        )
    return StorageError(f"cannot spool a page to {directory}: {error.strerror or error}; check the directory")
