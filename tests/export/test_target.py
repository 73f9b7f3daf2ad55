"""An exported file is there whole or not at all, and nothing else is left."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dhtcrawl.errors import StorageError, StorageFull, UsageError
from dhtcrawl.export.target import check_target, new_file, standard_output


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write(path: Path, then: Callable[[], object], *, overwrite: bool = False) -> None:
    with new_file(path, overwrite=overwrite) as file:
        file.write(b"new")
        then()


def fail(error: BaseException) -> None:
    raise error


def test_a_file_is_there_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with new_file(path, overwrite=False) as file:
        file.write(b"whole")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert names(tmp_path) == ["out.csv"]


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    os.mkfifo(path)
    with pytest.raises(UsageError, match="no ordinary file; name another one, or --to -"):
        check_target(path, overwrite=True)
    with pytest.raises(UsageError, match="no ordinary file"):
        write(path, lambda: None, overwrite=True)
    assert path.is_fifo()


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (OSError(errno.ENOSPC, "No space left on device"), StorageFull),
        (OSError(errno.EIO, "Input/output error"), StorageError),
        (RuntimeError("a bug"), RuntimeError),
    ],
)
def test_nothing_is_left_and_nothing_changes_when_writing_ends_early(
    tmp_path: Path, error: BaseException, raised: type[BaseException]
) -> None:
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    old.write_bytes(b"old")
    for path in (old, new):
        with pytest.raises(raised):
            write(path, partial(fail, error), overwrite=True)
    assert old.read_bytes() == b"old"
    assert names(tmp_path) == ["old.csv"]


def test_what_a_killed_export_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".out.csv.new").write_bytes(b"of a killed one, and longer")
    with new_file(tmp_path / "out.csv", overwrite=False) as file:
        file.write(b"whole")
    assert (tmp_path / "out.csv").read_bytes() == b"whole"
    assert names(tmp_path) == ["out.csv"]


def test_a_file_that_is_there_stays_unless_it_may_be_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_bytes(b"old")
    with pytest.raises(UsageError, match="is there already; name another file with --to, or add --overwrite"):
        check_target(path, overwrite=False)
    # One that comes while the export is written, too.
    other = tmp_path / "other.csv"
    with pytest.raises(UsageError, match="is there already"):
        write(other, partial(other.write_bytes, b"old"))
    assert other.read_bytes() == b"old"
    write(path, lambda: None, overwrite=True)
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["other.csv", "out.csv"]


def test_two_exports_to_one_name_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with new_file(path, overwrite=False) as file:
        file.write(b"first")
        with pytest.raises(UsageError, match="another export is writing"):
            write(path, lambda: None)
    assert path.read_bytes() == b"first"


def test_a_name_that_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        check_target(tmp_path, overwrite=True)
    with pytest.raises(UsageError, match="there is no directory"):
        check_target(tmp_path / "missing/out.csv", overwrite=False)


@pytest.mark.parametrize("raw", [True, False], ids=["unbuffered", "buffered"])
def test_standard_output_takes_all_or_it_is_an_error(raw: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A raw stream, as with `python -u`, may take a part of what is written and say so in its result only."""

    class Slow(io.RawIOBase):
        taken = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            part = bytes(data[:1000])
            Slow.taken += part
            return len(part)

    out = Slow() if raw else io.BufferedWriter(Slow())
    monkeypatch.setattr("sys.stdout", SimpleNamespace(buffer=out))
    with standard_output() as file:
        file.write(bytes(2_500_000))
    assert len(Slow.taken) == 2_500_000
    assert not out.closed
