"""kill -9 at any moment: what was acknowledged is there, and store and archive tell the same."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from storage.storekeeper import BYTES_MAX, url_of
from storage.stores import CRAWL, SPEC, Store, archive_in
from storage.warcs import scan_file

from dhtcrawl.storage.store import catalog, keys, tasks
from dhtcrawl.storage.store.engine import LevelEngine
from dhtcrawl.storage.store.files import DiskDirectory
from dhtcrawl.storage.store.records import State, unpack

KILLS = 10
ROOT = Path(__file__).parent.parent.parent


def acknowledged(directory: Path, first: int, count: int) -> list[int]:
    """The numbers that a process printed before it was killed, right after its `count`-th."""
    process = subprocess.Popen(
        [sys.executable, "-m", "storage.storekeeper", str(directory), str(first)],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"},
        text=True,
    )
    with process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(count)]
        process.kill()
        lines += process.stdout.readlines()
    assert process.returncode == -9
    # The last line may be half a number.
    return [int(line) for line in lines if line.endswith("\n")]


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    chance, acked = random.Random(7), list[int]()
    for kill in range(1, KILLS + 1):
        acked += acknowledged(tmp_path, 1000 * kill, chance.randint(1, 60))
        check(tmp_path, acked, incarnation=2 * kill)


def check(directory: Path, acked: list[int], *, incarnation: int) -> None:
    store = Store(LevelEngine(directory / "store"))
    try:
        store.run(catalog.check_format)
        assert store.run(catalog.next_incarnation) == incarnation
        files = DiskDirectory(directory / "archive")
        archive = archive_in(files, bytes_max=BYTES_MAX)
        store.run(archive.recover)
        for number in acked:
            task = store.task(url_of(number))
            assert task.state in (State.FETCHED, State.DONE)
            assert task.place is not None
            assert archive.read(task.place, 1 << 20).payload == b"<p>%d</p>" % number * 100
        committed = {
            keys.suffix(key).decode(): unpack(value)
            for key, value in store.engine.scan(*keys.bounds(keys.ARCHIVE, CRAWL))
        }
        assert {name: (directory / "archive" / name).stat().st_size for name in files.names()} == committed
        members = [member for name in files.names() for member in scan_file(directory / "archive" / name)]
        assert [member.problems for member in members if member.problems] == []
        # The archive holds what the store knows, and each once: a group is one with its bytes.
        urls = sorted(member.url for member in members if member.type == "response")
        start, stop = keys.bounds(keys.PAGE, CRAWL)
        assert urls == sorted(unpack(value)["url"] for _, value in store.engine.scan(start, stop))
        assert store.fsck(files).problems == []
        unsettled = store.run(lambda txn: tasks.unsettled(txn, CRAWL, 10_000))
        assert set(unsettled) <= {SPEC.key_of(url) for url in urls}
    finally:
        store.engine.close()
