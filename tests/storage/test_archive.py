"""The archive and the store are one: whatever a crash tears, both tell the same afterwards."""

from __future__ import annotations

import errno
import io
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage.stores import CRAWL, NODE, Store, archive_in, exchanges

from dhtcrawl.errors import StorageError, StorageFull
from dhtcrawl.storage.archive import archive as module
from dhtcrawl.storage.archive.names import first_number
from dhtcrawl.storage.archive.warcscan import GzipMember, scan
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.files import Directory, DiskDirectory, MemoryDirectory
from dhtcrawl.storage.store.records import Place, unpack
from dhtcrawl.storage.store.txn import Txn

FIRST = f"{CRAWL.hex()[:12]}-{NODE[:12]}-00000.warc.gz"
SECOND = FIRST.replace("00000", "00001")


class Crash(BaseException):
    """The process is gone."""


@dataclass
class Rig:
    """A store and a directory that outlive their archive."""

    directory: Directory
    bytes_max: int = 1 << 30
    store: Store = field(default_factory=Store)
    places: list[tuple[Place, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.items = exchanges()
        self.start()

    def start(self) -> None:
        """As a process does that finds what another has left."""
        self.archive = archive_in(self.directory, bytes_max=self.bytes_max)
        self.store.run(self.archive.recover)
        self.store.participants = [self.archive]

    def add(self, count: int = 1, *, crash: str = "") -> None:
        """One group of exchanges; or one that does not get further than `crash`."""
        written: list[tuple[Place, str]] = []

        def function(txn: Txn) -> None:
            for item in (next(self.items) for _ in range(count)):
                place, digest = self.archive.append(item)
                txn.put(b"acked" + item.response_id.encode(), b"")
                written.append((place, digest))
            if crash == "append":
                raise Crash

        if crash == "prepare":
            txn = Txn(self.store.engine, {})
            function(txn)
            self.archive.prepare(txn)
        elif crash == "append":
            with pytest.raises(Crash):
                self.store.run(function)
        else:
            self.store.run(function)
            self.places += written

    def committed(self) -> dict[str, int]:
        pairs = self.store.engine.scan(*keys.bounds(keys.ARCHIVE, CRAWL))
        return {keys.suffix(key).decode(): unpack(value) for key, value in pairs}

    def sizes(self) -> dict[str, int]:
        return {name: len(self.directory.read(name, 0, 1 << 30)) for name in self.directory.names()}

    def members(self, name: str) -> list[GzipMember]:
        return list(scan(io.BytesIO(self.directory.read(name, 0, 1 << 30))))

    def is_whole(self) -> None:
        """Files end where the store says; every committed exchange reads back; no member is bad."""
        assert self.sizes() == self.committed()
        for place, digest in self.places:
            assert self.archive.read(place, 100).headers["warc-payload-digest"] == digest
        found = 0
        for name in self.directory.names():
            members = self.members(name)
            assert [problem for member in members for problem in member.problems] == []
            assert [member.type for member in members] == ["warcinfo", *["response", "request"] * (len(members) // 2)]
            info = members[0].headers
            assert info["warc-filename"] == name
            assert {member.headers["warc-warcinfo-id"] for member in members[1:]} <= {info["warc-record-id"]}
            found += len(members) // 2
        assert found == len(self.places)


@pytest.fixture(params=["disk", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    return DiskDirectory(tmp_path / "archive") if request.param == "disk" else MemoryDirectory()


def test_what_is_appended_reads_back(directory: Directory) -> None:
    rig = Rig(directory)
    rig.add(3)
    rig.is_whole()
    assert directory.names() == [FIRST]
    assert rig.archive.read(rig.places[1][0], 100).payload == b"<p>2</p>"
    assert rig.archive.read(rig.places[1][0], 4).payload == b"<p>2"


def test_files_are_numbered_from_the_first_on_and_from_behind_those_that_are_there() -> None:
    directory, store, names = MemoryDirectory(), Store(), list[str]()

    def add(txn: Txn) -> None:
        names.append(archive.append(next(exchanges()))[0].file.rpartition("-")[2])
        txn.put(b"acked", b"")

    for first in (0, 70_000, 5):
        archive = archive_in(directory, first=first)
        store.run(archive.recover)
        store.participants = [archive]
        store.run(add)
    assert names == ["00000.warc.gz", "70000.warc.gz", "70001.warc.gz"]


def test_a_node_that_begins_later_has_a_later_first_number_of_at_most_nine_digits() -> None:
    numbers = [first_number(datetime(year, 1, 1, tzinfo=UTC)) for year in (1970, 2026, 2027, 2050, 2100)]
    assert numbers == [0, 189_388_800, 220_924_800, 900_000_000, 900_000_000]
    assert first_number(datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)) == numbers[1] + 1


@pytest.mark.parametrize("crash", ["append", "prepare"])
@pytest.mark.parametrize("before", [0, 1])
def test_what_was_not_committed_is_cut_off(directory: Directory, crash: str, before: int) -> None:
    rig = Rig(directory)
    for _ in range(before):
        rig.add()
    rig.add(2, crash=crash)
    assert sum(rig.sizes().values()) > sum(rig.committed().values())
    rig.start()
    rig.is_whole()
    rig.add()
    rig.is_whole()
    assert directory.names() == ([FIRST, SECOND] if before else [FIRST])


def test_a_torn_tail_is_cut_off(directory: Directory) -> None:
    rig = Rig(directory)
    rig.add()
    directory.open(FIRST, None).append(b"\x1f\x8b\x08 half a member")
    rig.start()
    rig.is_whole()


def test_a_run_goes_on_in_a_file_of_its_own(directory: Directory) -> None:
    rig = Rig(directory)
    for _ in range(3):
        rig.add()
        rig.archive.close()
        rig.start()
    rig.is_whole()
    assert len(directory.names()) == 3


def test_a_file_that_is_gone_is_an_error_and_stays_gone(directory: Directory) -> None:
    rig = Rig(directory)
    rig.add()
    directory.remove(FIRST)
    with pytest.raises(StorageError, match=rf"{FIRST} (is gone|has 0 bytes), but \d+ bytes were committed"):
        rig.start()
    assert directory.names() == []


def test_a_file_that_is_too_short_is_an_error_and_is_left_alone(directory: Directory) -> None:
    rig = Rig(directory)
    rig.add()
    size = rig.sizes()[FIRST]
    directory.open(FIRST, size - 1).close()
    with pytest.raises(StorageError, match=f"has {size - 1} bytes, but {size} bytes were committed"):
        rig.start()
    assert rig.sizes() == {FIRST: size - 1}


def test_a_full_file_is_followed_by_the_next(directory: Directory) -> None:
    rig = Rig(directory, bytes_max=1)
    rig.add(2)  # two files in one group
    rig.add()
    rig.add()
    rig.is_whole()
    assert len(directory.names()) == 4
    rig = Rig(MemoryDirectory(), bytes_max=2000)
    for _ in range(10):
        rig.add()
    rig.is_whole()
    sizes = list(rig.sizes().values())
    assert len(sizes) > 2
    assert all(2000 <= size < 4000 for size in sizes[:-1])


STEPS = st.lists(
    st.tuples(st.sampled_from(["", "", "append", "prepare"]), st.integers(1, 3), st.integers(0, 30)), max_size=8
)


@given(steps=STEPS, bytes_max=st.sampled_from([1, 1500, 1 << 30]))
@settings(max_examples=40)
def test_any_sequence_of_commits_and_crashes_leaves_both_in_step(
    steps: list[tuple[str, int, int]], bytes_max: int
) -> None:
    rig, names = Rig(MemoryDirectory(), bytes_max), dict[str, int]()
    for crash, count, torn in steps:
        rig.add(count, crash=crash)
        if crash:
            for name in rig.directory.names()[-1:]:
                rig.directory.open(name, None).append(bytes(torn))
            rig.start()
        rig.is_whole()
        # What is committed never shrinks, and no name is used again.
        assert all(rig.committed()[name] >= size for name, size in names.items())
        names = rig.committed()
    rig.start()
    rig.is_whole()


def test_files_of_others_are_left_alone(directory: Directory) -> None:
    others = [
        FIRST.replace(NODE[:12], "f" * 12),
        FIRST.replace(CRAWL.hex()[:12], "f" * 12),
        FIRST + ".bak",
        FIRST.replace("00000", "notes"),
        FIRST.replace("00000.warc.gz", "00000.txt"),
        "notes.txt",
    ]
    for name in others:
        directory.open(name, 0).append(b"mine")
    directory.open(SECOND, 0).append(b"begun, never committed")
    rig = Rig(directory)
    assert rig.sizes() == dict.fromkeys(others, 4)


def test_forgetting_a_crawl_removes_its_files_and_no_others(directory: Directory) -> None:
    rig, other = Rig(directory, bytes_max=1), bytes(16)
    rig.add(2)
    theirs = archive_in(directory, crawl=other)
    rig.store.participants = [theirs]
    theirs.append(next(rig.items))
    rig.store.run(lambda txn: txn.put(b"k", b""))
    assert len(directory.names()) == 3
    rig.store.run(lambda txn: module.forget(directory, txn, CRAWL))
    assert directory.names() == [FIRST.replace(CRAWL.hex()[:12], "0" * 12)]


def test_a_body_that_is_not_there_is_a_storage_error(directory: Directory) -> None:
    rig = Rig(directory)
    rig.add()
    place = rig.places[0][0]
    for wrong in (
        place._replace(file="gone.warc.gz"),
        place._replace(offset=place.offset + 1),
        place._replace(length=place.length - 1),
        place._replace(offset=1 << 40),
    ):
        with pytest.raises(StorageError):
            rig.archive.read(wrong, 100)


def test_of_a_large_body_no_more_is_read_than_is_asked_for() -> None:
    class Counting(MemoryDirectory):
        bytes_read = 0

        def read(self, name: str, offset: int, length: int) -> bytes:
            data = super().read(name, offset, length)
            self.bytes_read += len(data)
            return data

    rig, body = Rig(directory := Counting()), Random(1).randbytes(8 << 20)
    place, _ = rig.archive.append(next(exchanges())._replace(body=body, body_size=len(body)))
    assert rig.archive.read(place, 10).payload == body[:10]
    assert directory.bytes_read < 4 << 20


# Only on a disk


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


class Filling:
    """An `os.write` for a disk with `room` bytes left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 1 << 30
        self._write = os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(fd, data[: self.room])
        self.room -= written
        return written


@pytest.mark.parametrize("spooled", [False, True])
@pytest.mark.parametrize(
    ("bytes_max", "groups"),
    [
        pytest.param(1 << 30, [], id="in the first file"),
        pytest.param(1 << 30, [1], id="in a later group"),
        pytest.param(1, [1], id="while a committed file is followed by the next"),
        pytest.param(1, [2], id="while a file of the same run is followed by the next"),
    ],
)
@pytest.mark.parametrize("room", [0, 5, 250, 400, 700])
def test_a_disk_that_fills_up_anywhere_loses_only_what_was_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_max: int, groups: list[int], room: int, spooled: bool
) -> None:
    files = open_files()
    rig = Rig(DiskDirectory(tmp_path), bytes_max=bytes_max)
    rig.items = exchanges(spooled=spooled)
    for count in groups:
        rig.add(count)
    filling = Filling(monkeypatch)
    filling.room = room
    with pytest.raises(StorageFull):
        rig.add(9)
    rig.archive.close()
    assert open_files() == files
    filling.room = 1 << 30
    rig.start()
    rig.is_whole()
    rig.add(2)
    rig.is_whole()
    rig.archive.close()
    assert open_files() == files


@pytest.mark.parametrize("sync", [False, True])
def test_what_the_store_points_at_is_synced_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.fstat(fd).st_size))
    archive, txn = archive_in(DiskDirectory(tmp_path), bytes_max=1, sync=sync), Txn(Store().engine, {})
    for item in (next(exchanges()) for _ in range(2)):
        archive.append(item)
    archive.prepare(txn)
    committed = [unpack(value) for _, value in txn.scan(*keys.bounds(keys.ARCHIVE, CRAWL))]
    assert len(committed) == 2
    assert synced == (committed if sync else [])
    archive.prepare(txn)
    assert len(synced) == (2 if sync else 0)
    archive.close()


def test_a_sync_that_fails_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, failing = open_files(), iter([None, OSError(errno.EIO, os.strerror(errno.EIO))])

    def fdatasync(_: int) -> None:
        if (error := next(failing)) is not None:
            raise error

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    archive = archive_in(DiskDirectory(tmp_path), bytes_max=1, sync=True)
    for item in (next(exchanges()) for _ in range(3)):
        archive.append(item)
    with pytest.raises(StorageError, match="Input/output error"):
        archive.prepare(Txn(Store().engine, {}))
    archive.close()
    archive.close()
    assert open_files() == files
