"""Sorts the lines of an output in bounded memory: what does not fit waits in a file, as runs that are sorted.

(External merge sort: Knuth, The Art of Computer Programming 3, section 5.4.) Runs on the
committer's thread.
"""

from __future__ import annotations

import heapq
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgpack

from dhtcrawl.storage.store.engine import storage_error

SORTED_BYTES_MAX = 4 << 20  # of one sorter's lines in memory
_LINE_BYTES = 160  # of a line in memory besides its content: a tuple, the heads of two texts, a place in a list
_BLOCK_BYTES = 32 << 10  # of a run, read at once
_HEAD_BYTES = 4


class Sorter:
    """Takes lines with their sort keys in any order, and gives the lines in the order of key and line, once."""

    def __init__(self, scratch: Path | None, files: ExitStack) -> None:
        """`scratch` is the directory for a file that `files` closes; None: everything stays in memory."""
        self._scratch = scratch
        self._files = files
        self._batch: list[tuple[bytes, bytes]] = []
        self._bytes = 0
        self._file: Any = None
        self._runs: list[tuple[int, int]] = []  # where they begin and end in the file

    def add(self, key: bytes, line: bytes) -> None:
        """Take a line.

        Raises:
            StorageFull: no space is left for what does not fit into memory.
            StorageError: the disk failed.
        """
        self._batch.append((key, line))
        self._bytes += _LINE_BYTES + len(key) + (len(line) if line is not key else 0)
        if self._bytes > SORTED_BYTES_MAX and self._scratch is not None:
            self._spill(self._scratch)

    def lines(self) -> Iterator[bytes]:
        """The lines in order.

        Raises:
            StorageError: the disk failed.
        """
        self._batch.sort()
        if not self._runs:
            for _, line in self._batch:
                yield line
            return
        for _, line in heapq.merge(self._batch, *(self._read(*run) for run in self._runs)):
            yield line

    def _spill(self, scratch: Path) -> None:
        """Write the lines in memory to the file, as a run."""
        self._batch.sort()
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115
                self._files.callback(_close, self._file)
            begin = self._file.tell()
            for block in _blocks(self._batch):
                self._file.write(len(block).to_bytes(_HEAD_BYTES, "big"))
                self._file.write(block)
            self._file.flush()
            self._runs.append((begin, self._file.tell()))
        except OSError as error:
            raise storage_error(error, f"cannot sort in {scratch}") from error
        self._batch, self._bytes = [], 0

    def _read(self, at: int, end: int) -> Iterator[tuple[bytes, bytes]]:
        while at < end:
            try:
                length = int.from_bytes(os.pread(self._file.fileno(), _HEAD_BYTES, at), "big")
                block = os.pread(self._file.fileno(), length, at + _HEAD_BYTES)
            except OSError as error:
                raise storage_error(error, f"cannot sort in {self._scratch}") from error
            at += _HEAD_BYTES + length
            yield from msgpack.unpackb(block, use_list=False)


def _close(file: Any) -> None:
    # What a full disk did not take is written once more, and its error would hide the one that says so.
    with suppress(OSError):
        file.close()


def _blocks(batch: list[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """The lines in pieces of some `_BLOCK_BYTES`."""
    block: list[tuple[bytes, bytes]] = []
    size = 0
    for item in batch:
        block.append(item)
        size += len(item[0]) + len(item[1])
        if size >= _BLOCK_BYTES:
            yield msgpack.packb(block)
            block, size = [], 0
    if block:
        yield msgpack.packb(block)
