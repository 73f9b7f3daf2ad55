"""What every append file promises, on disk and in memory; then what only a disk can do wrong."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.errors import StorageError, StorageFull
from dhtcrawl.storage.store.files import Directory, DiskDirectory, MemoryDirectory, write_private


@pytest.fixture(params=["disk", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    return DiskDirectory(tmp_path / "files") if request.param == "disk" else MemoryDirectory()


def content(directory: Directory, name: str = "a") -> bytes:
    return directory.read(name, 0, 1000)


def test_what_is_appended_begins_where_append_says(directory: Directory) -> None:
    file = directory.open("a", 0)
    assert (file.name, file.size) == ("a", 0)
    assert [file.append(b"one"), file.append(b""), file.append(b"two")] == [0, 3, 3]
    file.sync()
    assert file.size == 6
    assert directory.read("a", 3, 3) == b"two"
    file.close()


def test_a_read_is_shorter_only_at_the_end_of_the_file(directory: Directory) -> None:
    directory.open("a", 0).append(b"12345")
    assert directory.read("a", 1, 3) == b"234"
    assert directory.read("a", 4, 3) == b"5"
    assert directory.read("a", 9, 3) == b""


def test_a_torn_tail_is_cut_off_when_the_file_is_opened(directory: Directory) -> None:
    file = directory.open("a", 0)
    file.append(b"committed")
    file.append(b"torn")
    file.close()
    file = directory.open("a", 9)
    assert (file.size, content(directory)) == (9, b"committed")
    assert file.append(b"!") == 9
    assert content(directory) == b"committed!"


def test_a_file_shorter_than_what_was_committed_is_refused_and_left_alone(directory: Directory) -> None:
    directory.open("a", 0).append(b"12345")
    with pytest.raises(StorageError, match="has 5 bytes, but 6 bytes were committed"):
        directory.open("a", 6)
    assert content(directory) == b"12345"


def test_a_missing_file_of_which_something_was_committed_is_refused(directory: Directory) -> None:
    with pytest.raises(StorageError, match=r"(is gone|has 0 bytes), but 1 bytes were committed"):
        directory.open("a", 1)


def test_truncate_takes_back_what_was_appended_since(directory: Directory) -> None:
    file = directory.open("a", 0)
    file.append(b"kept")
    file.append(b"taken back")
    file.truncate(4)
    assert (file.size, content(directory)) == (4, b"kept")
    file.truncate(4)
    assert file.append(b"!") == 4
    assert content(directory) == b"kept!"


def test_names_are_sorted_and_removing_twice_is_fine(directory: Directory) -> None:
    for name in ("b", "a", "c"):
        directory.open(name, 0).close()
    directory.remove("c")
    directory.remove("c")
    assert directory.names() == ["a", "b"]


def test_reading_what_is_not_there_is_an_error_that_names_it(directory: Directory) -> None:
    with pytest.raises(StorageError, match="nothing-here"):
        directory.read("nothing-here", 0, 1)


STEPS = st.lists(st.one_of(st.binary(max_size=8), st.floats(0, 1), st.none()), max_size=20)


@given(steps=STEPS)
def test_disk_and_memory_hold_the_same_after_any_steps(
    steps: list[bytes | float | None], tmp_path_factory: pytest.TempPathFactory
) -> None:
    # bytes: append; a fraction: truncate to it; None: close and open again.
    directories: list[Directory] = [DiskDirectory(tmp_path_factory.mktemp("files")), MemoryDirectory()]
    ends = []
    for directory in directories:
        file = directory.open("a", 0)
        for step in steps:
            if isinstance(step, bytes):
                file.append(step)
            elif step is not None:
                file.truncate(int(file.size * step))
            else:
                size = file.size
                file.close()
                file = directory.open("a", size)
        ends.append((file.size, content(directory)))
        file.close()
    assert ends[0] == ends[1]


# Only on a disk


class Filling:
    """An `os.write` for a disk with `room` bytes left."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._write = os.write

    def __call__(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(fd, data[: self.room])
        self.room -= written
        return written


def test_a_full_disk_leaves_neither_a_torn_tail_nor_a_wrong_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = DiskDirectory(tmp_path).open("a", 0)
    filling = Filling(room=6)
    monkeypatch.setattr(os, "write", filling)
    file.append(b"1234")
    with pytest.raises(StorageFull, match="no space left on the disk"):
        file.append(b"5678")
    assert file.size == 4
    assert (tmp_path / "a").read_bytes() == b"1234"
    filling.room = 100
    assert file.append(b"ab") == 4
    assert (tmp_path / "a").read_bytes() == b"1234ab"


def test_a_tail_that_cannot_even_be_cut_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int, length: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = DiskDirectory(tmp_path).open("a", 0)
    filling = Filling(room=6)
    monkeypatch.setattr(os, "write", filling)
    monkeypatch.setattr(os, "ftruncate", broken)
    file.append(b"1234")
    with pytest.raises(StorageFull):
        file.append(b"5678")
    assert file.size == 4
    filling.room = 100
    assert file.append(b"abc") == 4
    assert (tmp_path / "a").read_bytes() == b"1234abc"


def test_a_short_write_is_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:2]))
    file = DiskDirectory(tmp_path).open("a", 0)
    file.append(b"12345")
    assert (tmp_path / "a").read_bytes() == b"12345"


def test_a_failing_disk_is_another_error_than_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(fd: int, data: bytes = b"") -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    file = DiskDirectory(tmp_path).open("a", 0)
    monkeypatch.setattr(os, "write", broken)
    monkeypatch.setattr(os, "fdatasync", broken)
    for call in (lambda: file.append(b"1"), file.sync):
        with pytest.raises(StorageError) as caught:
            call()
        assert not isinstance(caught.value, StorageFull)
    assert file.size == 0


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot create .*file/files"):
        DiskDirectory(tmp_path / "file" / "files")


def test_all_files_have_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    """A group that shares its outputs can do with the archive what it can do with the rest."""
    before = os.umask(0o002)
    try:
        DiskDirectory(tmp_path).open("appended", 0).close()
        DiskDirectory(tmp_path).replace("replaced", [b"x"])
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o664}


@pytest.mark.parametrize("durable", [True, False])
def test_a_private_file_takes_nothing_of_what_was_there(tmp_path: Path, durable: bool) -> None:
    path, begun = tmp_path / "key", tmp_path / ".key.new"
    for each in (path, begun):
        each.write_bytes(b"before")
        each.chmod(0o666)
    write_private(path, b"now", durable=durable)
    assert path.read_bytes() == b"now"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["key"]


def test_a_private_file_that_cannot_be_written_whole_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "key"
    path.write_bytes(b"before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_private(path, b"now")
    assert path.read_bytes() == b"before"
