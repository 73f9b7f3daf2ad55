"""A node's archive files of a crawl, committed with the store.

Bytes are appended and fsynced first; they count once the file's new length is
committed in the same batch as the record that points at them. The next start cuts
off what a crash left behind that length, so that a file never ends in half a
record. Runs on the committer's thread.

Copies of other nodes' bodies are a series of files of their own (`dhtcrawl.storage.archive.names`),
so that gathering can leave out those that no page points into.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import datetime

from dhtcrawl.storage.archive import warc
from dhtcrawl.storage.archive.item import ArchiveItem
from dhtcrawl.storage.archive.names import SUFFIX, ArchiveSeries
from dhtcrawl.storage.archive.warcread import WarcRecord, read_beginning
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.files import AppendFile, Directory
from dhtcrawl.storage.store.records import Place, pack, unpack
from dhtcrawl.storage.store.txn import Txn

_READ_BYTES = 1 << 20  # at once, of a record


class Archive:
    """Appends exchanges; a `Participant` of the committer."""

    def __init__(
        self,
        directory: Directory,
        files: ArchiveSeries,
        *,
        bytes_max: int,
        sync: bool,
        wall: Callable[[], datetime],
        info: Mapping[str, str],
    ) -> None:
        self._directory = directory
        self._crawl = files.crawl
        self._node = files.node
        self._bytes_max = bytes_max
        self._sync = sync
        self._wall = wall
        self._info = dict(info)
        self._prefix = files.prefix
        self._file: AppendFile | None = None
        self._info_id = ""
        self._next = files.first
        self._dirty: dict[str, AppendFile] = {}

    def recover(self, txn: Txn) -> None:
        """Cut every file of this series to its committed length; the next append begins a new file.

        Raises:
            StorageError: a file is shorter than its committed length, or cannot be opened.
        """
        committed = lengths(txn, self._crawl)
        for name in self._directory.names():
            # Begun but never committed: no record points into it.
            if self._is_ours(name) and name not in committed:
                self._directory.remove(name)
        for name, length in committed.items():
            if not self._is_ours(name):
                continue
            self._directory.open(name, length).close()
            self._next = max(self._next, int(self._digits(name)) + 1)

    def append(self, item: ArchiveItem) -> tuple[Place, str]:
        """Append an exchange; return the place of its response and its payload digest.

        Raises:
            StorageError: the disk failed; StorageFull where no space is left.
        """
        file = self._current()
        written = warc.append_exchange(file, item, self._info_id)
        return Place(self._node, file.name, written.offset, written.length), written.payload_digest

    def append_members(self, data: bytes, length: int) -> Place:
        """Append members of another archive; return the place of the first, a response of `length` bytes.

        Raises:
            StorageError: the disk failed; StorageFull where no space is left.
        """
        file = self._current()
        return Place(self._node, file.name, file.append(data), length)

    def begin_alone(self) -> AppendFile:
        """Begin a file of its own for a big body that comes bit by bit; the caller ends with `keep` or `drop`.

        Raises:
            StorageError: the disk failed; StorageFull where no space is left.
        """
        return self._begin()[0]

    def keep(self, file: AppendFile) -> None:
        """Commit a whole file of `begin_alone` with this transaction."""
        self._dirty[file.name] = file

    def drop(self, file: AppendFile) -> None:
        file.close()
        self._directory.remove(file.name)

    def read(self, place: Place, payload_bytes_max: int) -> WarcRecord:
        """Read the response record at `place`, with at most so many bytes of its payload.

        Raises:
            StorageError: the record is not there, or damaged.
        """
        begins = range(place.offset, place.offset + place.length, _READ_BYTES)
        pieces = (
            self._directory.read(place.file, at, min(_READ_BYTES, place.offset + place.length - at)) for at in begins
        )
        return read_beginning(pieces, payload_bytes_max, where=f"{place.file} at {place.offset}")

    def prepare(self, txn: Txn) -> None:
        """Make what was appended durable, and write the new lengths into `txn`."""
        for name, file in self._dirty.items():
            if self._sync:
                file.sync()
            key = keys.ARCHIVE + self._crawl + name.encode()
            txn.put(key, pack(file.size))
        for file in self._dirty.values():
            if file is not self._file:
                file.close()
        self._dirty.clear()

    def rest(self) -> None:
        """Let go of the file that is appended to, once that is durable; the next append begins another one."""
        if self._file is not None and self._file.name not in self._dirty:
            self._file.close()
        self._file = None

    def close(self) -> None:
        """Close the files; bytes that were not prepared are cut off at the next start."""
        if self._file is not None:
            self._dirty[self._file.name] = self._file
            self._file = None
        for file in self._dirty.values():
            file.close()
        self._dirty.clear()

    def _current(self) -> AppendFile:
        """The file to append to, which is prepared with this transaction."""
        if self._file is None or self._file.size >= self._bytes_max:
            self.rest()
            self._file, self._info_id = self._begin()
        self._dirty[self._file.name] = self._file
        return self._file

    def _begin(self) -> tuple[AppendFile, str]:
        """Create a file with nothing but its warcinfo record; return it with that record's id."""
        name = f"{self._prefix}{self._next:05d}{SUFFIX}"
        self._next += 1
        file = self._directory.open(name, 0)
        info_id = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, name)}"
        try:
            warc.warcinfo(file, filename=name, date=self._wall(), record_id=info_id, fields=self._info)
        except BaseException:
            file.close()
            raise
        return file, info_id

    def _is_ours(self, name: str) -> bool:
        return name.startswith(self._prefix) and name.endswith(SUFFIX) and self._digits(name).isdecimal()

    def _digits(self, name: str) -> str:
        return name[len(self._prefix) : -len(SUFFIX)]


def forget(directory: Directory, txn: Txn, crawl: bytes) -> None:
    """Remove a crawl's archive files."""
    for name in lengths(txn, crawl):
        directory.remove(name)


def lengths(txn: Txn, crawl: bytes) -> dict[str, int]:
    """The archive files of a crawl by name, with the length that is committed of each."""
    return {name.decode(): unpack(value) for name, value in txn.rows(keys.ARCHIVE, crawl)}
