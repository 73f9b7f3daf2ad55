"""The archive files of one crawl on one node, committed with the store.

Bytes are appended first, fsynced, and believed only once their length stands
in the same batch as the record that points at them. What a crash leaves behind
that length is cut off at the next start, so that a file never ends in half a
record. Runs on the committer's thread.

Copies of other nodes' records make a series of files of their own (`dhtcrawl.storage.archive.names`):
whoever gathers all nodes leaves those aside that nothing points into.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from datetime import datetime

from dhtcrawl.storage.archive import warc
from dhtcrawl.storage.archive.names import SUFFIX, ArchiveSeries
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.files import AppendFile, Directory
from dhtcrawl.storage.store.records import Place, pack, unpack
from dhtcrawl.storage.store.txn import Txn


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
        self._next = 0
        self._dirty: dict[str, AppendFile] = {}

    def recover(self, txn: Txn) -> None:
        """Cut every file of ours to its committed length, and begin a new one next."""
        committed: dict[str, int] = {}
        start, stop = keys.bounds(keys.ARCHIVE, self._crawl)
        for key, value in txn.scan(start, stop):
            committed[keys.suffix(key).decode()] = unpack(value)
        for name in self._directory.names():
            # Begun, never committed: nothing points into it.
            if self._is_ours(name) and name not in committed:
                self._directory.remove(name)
        for name, length in committed.items():
            if not self._is_ours(name):
                continue
            self._directory.open(name, length).close()
            self._next = max(self._next, int(self._digits(name)) + 1)

    def append(self, item: warc.ArchiveItem) -> tuple[Place, str]:
        """Append an exchange; where its response lies, and its payload digest.

        Raises:
            StorageFull: no space left.
        """
        file = self._current()
        self._dirty[file.name] = file
        written = warc.append_exchange(file, item, self._info_id)
        return Place(self._node, file.name, written.offset, written.length), written.payload_digest

    def append_members(self, data: bytes, length: int) -> Place:
        """Append members of another archive, of which the first, of `length` bytes, is the response; where it lies.

        Raises:
            StorageFull: no space left.
        """
        file = self._current()
        self._dirty[file.name] = file
        return Place(self._node, file.name, file.append(data), length)

    def begin_alone(self) -> AppendFile:
        """A file for something big, which comes bit by bit: to be kept (`keep`) or dropped (`drop`) by whoever asked.

        Raises:
            StorageFull: no space left.
        """
        return self._begin()[0]

    def keep(self, file: AppendFile) -> None:
        """What `begin_alone` made is whole, and counts with this transaction."""
        self._dirty[file.name] = file

    def drop(self, file: AppendFile) -> None:
        """It is not needed after all."""
        file.close()
        self._directory.remove(file.name)

    def read(self, place: Place) -> warc.WarcRecord:
        """The response record at `place`.

        Raises:
            StorageError: it is not there, or damaged.
        """
        data = self._directory.read(place.file, place.offset, place.length)
        return warc.read_record(data, where=f"{place.file} at {place.offset}")

    def prepare(self, txn: Txn) -> None:
        """Make what was appended durable, and say in `txn` how much that is."""
        for name, file in self._dirty.items():
            if self._sync:
                file.sync()
            key = keys.ARCHIVE + self._crawl + name.encode()
            txn.put(key, pack(file.size))
        for file in self._dirty.values():
            if file is not self._file:
                file.close()
        self._dirty.clear()

    def close(self) -> None:
        """Close the files; what was not prepared will be cut off."""
        if self._file is not None:
            self._dirty[self._file.name] = self._file
            self._file = None
        for file in self._dirty.values():
            file.close()
        self._dirty.clear()

    def _current(self) -> AppendFile:
        if self._file is not None and self._file.size < self._bytes_max:
            return self._file
        if self._file is not None and self._file.name not in self._dirty:
            self._file.close()
        self._file = None
        file, self._info_id = self._begin()
        self._dirty[file.name] = file
        self._file = file
        return file

    def _begin(self) -> tuple[AppendFile, str]:
        """A new file with nothing but its warcinfo record, and that record's id."""
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
    start, stop = keys.bounds(keys.ARCHIVE, crawl)
    for key, _ in txn.scan(start, stop):
        directory.remove(keys.suffix(key).decode())
