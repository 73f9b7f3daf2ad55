"""What every engine promises, in memory and on disk; then what only LevelDB can do wrong."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import plyvel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.errors import StorageError, StorageFull
from dhtcrawl.storage.store import engine as store_engine
from dhtcrawl.storage.store.engine import LARGE_BYTES, LevelEngine, storage_error
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.txn import Engine

Reopen = Callable[[Engine], Engine]

# Few keys, so that they meet; at the edges of byte order; and the empty one.
KEYS = st.sampled_from([b"", b"\0", b"a", b"a\0", b"aa", b"b", b"\xff", b"\xff\xff"])
BATCHES = st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=6)
# None: close and open again.
STEPS = st.lists(BATCHES | st.none(), max_size=8)


LEVELS: dict[str, dict[str, Any]] = {
    "level": {},
    "level that lets go after two bytes": {"scanned_bytes_max": 2},
    "level that counts as large": {"large_bytes": 0},
}


@pytest.fixture(params=[*LEVELS, "memory"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    opened: Engine = MemoryEngine()
    if request.param != "memory":
        opened = LevelEngine(tmp_path / "store", **LEVELS[request.param])
    yield opened
    opened.close()


def content(engine: Engine, start: bytes = b"", stop: bytes = b"\xff\xff\xff") -> list[tuple[bytes, bytes]]:
    return list(engine.scan(start, stop))


def agree(engine: Engine, steps: list[dict[bytes, bytes | None] | None], reopen: Reopen) -> None:
    """Do the steps, and hold the engine against a dictionary after each."""
    model: dict[bytes, bytes] = {}
    try:
        for number, step in enumerate(steps):
            if step is None:
                engine.close()
                engine = reopen(engine)
            else:
                engine.write(step, sync=number % 2 == 0)
                for key, value in step.items():
                    if value is None:
                        model.pop(key, None)
                    else:
                        model[key] = value
            assert content(engine) == sorted(model.items())
            some = [b"missing", b"aa", b"", b"\0", b"a", b"aa"]
            assert engine.get_many(some) == [engine.get(key) for key in some] == [model.get(key) for key in some]
    finally:
        engine.close()


@given(steps=STEPS)
def test_memory_holds_what_a_dictionary_would(steps: list[dict[bytes, bytes | None] | None]) -> None:
    agree(MemoryEngine(), steps, lambda engine: engine)


@pytest.mark.parametrize("large_bytes", [LARGE_BYTES, 0])
@given(steps=STEPS)
@settings(max_examples=30)
def test_leveldb_holds_what_a_dictionary_would(steps: list[dict[bytes, bytes | None] | None], large_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        opened = partial(LevelEngine, Path(directory), large_bytes=large_bytes)
        agree(opened(), steps, lambda _: opened())


def test_a_scan_includes_its_start_and_not_its_stop(engine: Engine) -> None:
    engine.write(dict.fromkeys((b"a", b"b", b"b\x00", b"c"), b""), sync=False)
    assert content(engine, b"a", b"b") == [(b"a", b"")]
    assert content(engine, b"b", b"c") == [(b"b", b""), (b"b\0", b"")]
    assert content(engine, b"b", b"b") == content(engine, b"c", b"b") == []


def test_an_empty_value_is_there(engine: Engine) -> None:
    engine.write({b"k": b""}, sync=False)
    assert engine.get(b"k") == b""
    engine.write({b"k": None, b"never": None}, sync=False)
    assert engine.get(b"k") is None
    assert content(engine) == []


def test_a_scan_goes_on_with_what_it_began_with(engine: Engine) -> None:
    engine.write({bytes([i]): b"old" for i in range(10)}, sync=False)
    scan = engine.scan(b"\0", b"\xff")
    seen = [next(scan)]
    engine.write({b"\5": b"new", b"\6": None, b"\7\0": b"new", bytes([200]): b"new"}, sync=False)
    engine.write({b"\x08": None}, sync=False)
    seen += scan
    assert seen == [(bytes([i]), b"old") for i in range(10)]
    assert [key for key, value in content(engine) if value == b"new"] == [b"\5", b"\7\0", bytes([200])]
    assert len(content(engine)) == 10


def test_scans_may_run_side_by_side_and_be_left_early(engine: Engine) -> None:
    engine.write({bytes([i]): b"" for i in range(10)}, sync=False)
    one, two = engine.scan(b"\0", b"\xff"), engine.scan(b"\5", b"\xff")
    assert [next(one)[0], next(two)[0], next(one)[0], next(one)[0]] == [b"\0", b"\5", b"\1", b"\2"]
    assert [next(two)[0], next(one)[0], next(two)[0]] == [b"\6", b"\3", b"\7"]
    del one
    assert next(two)[0] == b"\x08"


@pytest.mark.parametrize("large_bytes", [LARGE_BYTES, 0])
def test_look_ups_go_on_while_a_scan_lets_go(tmp_path: Path, large_bytes: int) -> None:
    with closing(LevelEngine(tmp_path, scanned_bytes_max=1, large_bytes=large_bytes)) as engine:
        engine.write({b"a": b"1", b"b": b"2", b"c": b"3"}, sync=False)
        seen = [(key, engine.get_many([b"c", key, b"missing"])) for key, _ in engine.scan(b"", b"d")]
        assert seen == [(b"a", [b"3", b"1", None]), (b"b", [b"3", b"2", None]), (b"c", [b"3", b"3", None])]


# Only LevelDB


def mapped_tables() -> int:
    """How many of LevelDB's tables this process has mapped."""
    return sum(".ldb" in line for line in Path("/proc/self/maps").read_text().splitlines())


def of_many_tables(path: Path, **settings: Any) -> LevelEngine:
    """A store of 4,000 keys of 1,000 bytes each that do not compress, in some dozens of tables."""
    engine = LevelEngine(path, write_buffer_bytes=1 << 16)
    bits = random.Random(1)
    for first in range(0, 4000, 50):
        engine.write({b"%05d" % i: bits.randbytes(1000) for i in range(first, first + 50)}, sync=False)
    engine.close()
    return LevelEngine(path, write_buffer_bytes=1 << 16, **settings)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_long_scan_keeps_few_tables_mapped(tmp_path: Path) -> None:
    engine = of_many_tables(tmp_path / "plain")
    before, everything = mapped_tables(), content(engine)
    kept = mapped_tables() - before
    engine.close()
    engine = of_many_tables(tmp_path / "thrifty", scanned_bytes_max=200_000)
    before, most, found = mapped_tables(), 0, []
    for row in engine.scan(b"", b"\xff"):
        found.append(row)
        most = max(most, mapped_tables() - before) if len(found) % 50 == 0 else most
    assert found == everything
    assert 0 < most < kept / 2
    engine.close()


def test_a_scan_whose_store_was_removed_finds_no_empty_one_in_its_place(tmp_path: Path) -> None:
    engine = LevelEngine(tmp_path / "store", scanned_bytes_max=1)
    engine.write({b"a": b"", b"b": b""}, sync=False)
    scan = engine.scan(b"", b"c")
    assert next(scan) == (b"a", b"")
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(StorageError, match="cannot open the store"):
        next(scan)
    engine.close()


def rounds_before_a_merge(path: Path, rounds_max: int, **settings: Any) -> int:
    """How often all of some keys can be looked up until LevelDB begins to merge tables for it, at most `rounds_max`."""
    below = [b"%05d" % i for i in range(0, 2000, 2)]
    with closing(plyvel.DB(str(path), create_if_missing=True)) as database:
        for key in below:
            database.put(key, b"below")
        database.compact_range()
        # These become a table that overlaps the other when the store is opened.
        for i in (1, 1001, 1999):
            database.put(b"%05d" % i, b"above")
    with closing(LevelEngine(path, **settings)) as engine:
        for number in range(rounds_max):
            for first in range(0, len(below), 10):
                assert engine.get_many(below[first : first + 10]) == [b"below"] * 10
            said = (path / "LOG").read_text()
            if "Moved" in said or "Compacting" in said:
                return number
    return rounds_max


def test_look_ups_in_a_large_store_make_leveldb_merge_nothing(tmp_path: Path) -> None:
    # That they do in a small one shows that this test would see it; LevelDB does it on a thread of its own.
    assert rounds_before_a_merge(tmp_path / "small", 5_000) < 5_000
    assert rounds_before_a_merge(tmp_path / "large", 20, large_bytes=0) == 20


def test_a_store_counts_as_large_once_its_tables_are(tmp_path: Path) -> None:
    with closing(LevelEngine(tmp_path, write_buffer_bytes=1 << 16, large_bytes=1 << 18)) as engine:
        assert not engine.large
        for i in range(1000):
            engine.write({b"%05d" % i: random.Random(i).randbytes(1000)}, sync=False)
        assert engine.large
    with closing(LevelEngine(tmp_path, large_bytes=1 << 18)) as engine:
        assert engine.large


def test_a_large_store_whose_look_ups_pass_what_was_removed_is_read_by_gets_until_it_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(LevelEngine(tmp_path, large_bytes=0)) as engine:
        names = [b"%05d" % i for i in range(100)]
        engine.write(dict.fromkeys(names, b"there"), sync=False)
        engine.write(dict.fromkeys(names[10:90]), sync=False)
        wanted = [*names[5:15], *names[85:], names[0]]
        right = [b"there" if name < names[10] or name >= names[90] else None for name in wanted]
        assert engine.get_many(wanted) == right
        assert engine.large
        monkeypatch.setattr(store_engine, "SLOW_S", -1.0)  # as if each look-up took long
        monkeypatch.setattr(store_engine, "USUAL_S", 0.0)
        assert engine.get_many(wanted) == right
        assert not engine.large
        assert engine.get_many(wanted) == right
        for number in range(300):
            engine.write({b"other": b"%d" % number}, sync=False)
        assert engine.large
        assert engine.get_many(wanted) == right


def test_a_batch_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    engine = LevelEngine(tmp_path)
    broken: dict[bytes, bytes | None] = {b"a": b"1", b"b": 2, b"c": b"3"}  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        engine.write(broken, sync=True)
    assert content(engine) == []
    engine.close()


def test_a_torn_log_loses_the_last_batch_as_a_whole(tmp_path: Path) -> None:
    engine = LevelEngine(tmp_path)
    for number in range(3):
        engine.write({b"%d-%d" % (number, i): os.urandom(50) for i in range(20)}, sync=True)
    engine.close()
    (log,) = tmp_path.glob("*.log")
    os.truncate(log, log.stat().st_size - 100)
    engine = LevelEngine(tmp_path)
    assert sorted({key[:1] for key, _ in content(engine)}) == [b"0", b"1"]
    assert len(content(engine)) == 40
    engine.close()


def test_a_killed_process_leaves_what_it_wrote(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from dhtcrawl.storage.store.engine import LevelEngine\n"
        "LevelEngine(Path(sys.argv[1])).write({b'k': b'v'}, sync=True); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60, check=False).returncode == -9
    engine = LevelEngine(tmp_path)
    assert engine.get(b"k") == b"v"
    engine.close()


def damaged(path: Path, **settings: Any) -> LevelEngine:
    """A store of 3,000 keys with 200 bytes of one table overwritten."""
    engine = LevelEngine(path)
    bits = random.Random(1)
    engine.write({b"%05d" % i: bits.randbytes(20) + b"x" * 100 for i in range(3000)}, sync=False)
    engine.close()
    database = plyvel.DB(str(path))
    database.compact_range()
    database.close()
    (table,) = path.glob("*.ldb")
    data = table.read_bytes()
    table.write_bytes(data[:1000] + bytes(200) + data[1200:])
    return LevelEngine(path, **settings)


@pytest.mark.parametrize("large_bytes", [LARGE_BYTES, 0])
def test_a_damaged_block_is_an_error_and_never_a_missing_key(tmp_path: Path, large_bytes: int) -> None:
    engine = damaged(tmp_path, large_bytes=large_bytes)
    found = sum(readable(engine, b"%05d" % i) for i in range(3000))
    assert 2900 < found < 3000
    with pytest.raises(StorageError, match="cannot read the store: it is damaged"):
        content(engine)
    engine.close()


@pytest.mark.parametrize("large_bytes", [LARGE_BYTES, 0])
def test_a_table_that_was_cut_off_is_damage_and_not_an_invalid_argument(tmp_path: Path, large_bytes: int) -> None:
    engine = LevelEngine(tmp_path)
    engine.write({b"%05d" % i: random.Random(i).randbytes(50) for i in range(3000)}, sync=False)
    engine.close()
    LevelEngine(tmp_path).close()  # what is in the log becomes a table
    for table in tmp_path.glob("*.ldb"):
        os.truncate(table, 1000)
    engine = LevelEngine(tmp_path, large_bytes=large_bytes)
    for read in (content, lambda each: each.get_many([b"00001"])):
        with pytest.raises(StorageError, match=r"it is damaged .*; restore it, or start with another directory"):
            read(engine)
    engine.close()


def readable(engine: Engine, key: bytes) -> bool:
    try:
        assert engine.get_many([key]) != [None], "silently gone"
    except StorageError:
        return False
    return True


def test_a_second_opener_is_told_so(tmp_path: Path) -> None:
    engine = LevelEngine(tmp_path)
    with pytest.raises(StorageError, match="another dhtcrawl process is using it"):
        LevelEngine(tmp_path)
    engine.close()


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (plyvel.IOError(b"IO error: lock /s/LOCK: already held by process"), "another dhtcrawl process"),
        (plyvel.IOError(b"IO error: lock /s/LOCK: Resource temporarily unavailable"), "another dhtcrawl process"),
        (plyvel.IOError(b"IO error: /s/LOCK: Permission denied"), "permission denied"),
        (plyvel.IOError(b"IO error: /s/000012.log: No space left on device"), "no space left"),
        (plyvel.CorruptionError(b"Corruption: corrupted compressed block contents"), "it is damaged"),
        (plyvel.CorruptionError(b"Corruption: 3 missing files; e.g.: /home/block/s/000005.ldb"), "it is damaged"),
        (plyvel.IOError(b"IO error: /s/000005.ldb: Invalid argument"), r"it is damaged .*000005\.ldb.*; restore it"),
        (plyvel.IOError(b"IO error: /a.ldb: Invalid argument/LOCK: Input/output error"), "what: IO error: /a.ldb"),
        (plyvel.IOError(b"IO error: /srv/locker/s: Input/output error"), "what: IO error: /srv/locker/s"),
        (OSError(errno.EIO, "Input/output error", "/srv/corruption/clock"), "what: .*Input/output error"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "no space left"),
        (PermissionError(errno.EACCES, "Permission denied", "/lock"), "permission denied"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "/block/file"), "a file is in the way"),
        (OSError(errno.EROFS, "Read-only file system", "/data"), "name a directory in another"),
        (plyvel.IOError(b"IO error: /s/000012.log: Disk quota exceeded"), "no space left"),
        (plyvel.IOError(b"IO error: /s/LOCK: Read-only file system"), "name a directory in another"),
        (plyvel.IOError(b"IO error: /s/000012.ldb: Too many open files"), "raise 'ulimit -n'"),
        (OSError(errno.EMFILE, "Too many open files", "/s"), "raise 'ulimit -n'"),
        (plyvel.IOError(b"IO error: /Disk quota exceeded/LOCK: Input/output error"), "what: IO error: /Disk quota"),
    ],
)
def test_an_error_says_what_happened_and_never_guesses_from_a_path(error: Exception, remedy: str) -> None:
    ours = storage_error(error, "what")
    assert ours.args[0].startswith("what: ")
    with pytest.raises(StorageError, match=remedy):
        raise ours
    assert isinstance(ours, StorageFull) == (remedy == "no space left")
    assert "\n" not in str(ours)
    assert "b'" not in str(ours)


def test_a_hole_in_the_log_is_damage_and_not_its_end(tmp_path: Path) -> None:
    engine = LevelEngine(tmp_path / "store")
    for number in range(2000):
        engine.write({number.to_bytes(4, "big"): b"v" * 50}, sync=False)
    engine.close()
    (log,) = (tmp_path / "store").glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 200] = b"\xff" * 200
    log.write_bytes(data)
    with pytest.raises(StorageError, match="damaged"):
        LevelEngine(tmp_path / "store")


def test_tables_are_not_taken_for_leftovers_where_the_file_that_leads_to_them_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    for _ in range(2):  # what is in the log becomes a table when the store is opened
        engine = LevelEngine(path)
        engine.write({b"key": b"value"}, sync=False)
        engine.close()
    (path / "CURRENT").rename(tmp_path / "CURRENT")
    before = sorted(file.name for file in path.iterdir())
    with pytest.raises(StorageError, match=r"it is damaged .*CURRENT is gone"):
        LevelEngine(path)
    assert sorted(file.name for file in path.iterdir()) == before
    (tmp_path / "CURRENT").rename(path / "CURRENT")
    engine = LevelEngine(path)
    assert engine.get(b"key") == b"value"
    engine.close()


@pytest.mark.parametrize("opened_before", [1, 2])
def test_a_store_whose_log_was_removed_is_damaged_and_does_not_lack_the_last_writes_without_a_word(
    tmp_path: Path, opened_before: int
) -> None:
    path = tmp_path / "store"
    for number in range(opened_before):
        engine = LevelEngine(path)
        engine.write({b"key%d" % number: b"value"}, sync=False)
        engine.close()
    (log,) = path.glob("*.log")
    log.rename(tmp_path / log.name)
    for new in (True, False):
        with pytest.raises(StorageError, match=r"it is damaged .*its log, \*\.log, is gone.*; restore it"):
            LevelEngine(path, new=new)
    (tmp_path / log.name).rename(log)
    engine = LevelEngine(path)
    assert engine.get(b"key%d" % (opened_before - 1)) == b"value"
    engine.close()


def test_a_store_whose_making_was_killed_before_its_first_log_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "store"
    LevelEngine(path).close()
    (manifest,) = path.glob("MANIFEST-*")
    for log in path.glob("*.log"):
        log.unlink()
    # As LevelDB leaves it then: a first manifest, which says that there is nothing yet.
    manifest.rename(path / "MANIFEST-000001")
    (path / "CURRENT").write_text("MANIFEST-000001\n")
    LevelEngine(path).close()


def test_a_log_that_breaks_off_is_read_up_to_there(tmp_path: Path) -> None:
    engine = LevelEngine(tmp_path / "store")
    for number in range(100):
        engine.write({number.to_bytes(4, "big"): b"v" * 50}, sync=False)
    engine.close()
    (log,) = (tmp_path / "store").glob("*.log")
    log.write_bytes(log.read_bytes()[:-20])
    engine = LevelEngine(tmp_path / "store")
    assert len(list(engine.scan(b"", b"\xff"))) == 99
    engine.close()


def test_a_store_whose_tables_are_compressed_is_read_and_none_is_compressed_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "store"
    value = b"compressible " * 500
    with closing(plyvel.DB(str(path), create_if_missing=True, compression="snappy")) as before:
        before.put(b"before", value)
        before.compact_range()
    assert not in_tables(path, value)
    engine = LevelEngine(path)
    assert engine.get(b"before") == value
    engine.write({b"after": value[::-1]}, sync=False)
    engine.close()
    # What is in the log becomes a table when the store is opened.
    LevelEngine(path).close()
    assert in_tables(path, value[::-1])


def in_tables(path: Path, value: bytes) -> bool:
    """Whether a table has the value as it is."""
    return any(value in table.read_bytes() for table in path.glob("*.ldb"))
