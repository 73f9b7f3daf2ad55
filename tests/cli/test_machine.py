"""What a node says of its machine."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dhtcrawl.cli import machine
from dhtcrawl.cli.machine import (
    TRIED_BYTES,
    Machine,
    cgroup_bytes,
    cgroup_cores,
    cgroup_disk_bytes_per_s,
    resources,
    usable_cores,
)
from dhtcrawl.cli.trials import SPENT_S_MAX, TRIES_MAX, Trials

NAMES = ("cores", "mhz", "memory_bytes", "disk_bytes_per_s")


@pytest.fixture(autouse=True)
def no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests look themselves."""
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)


def ticking(step_s: float) -> Callable[[], float]:
    """A clock that goes on by so much with each look."""
    now = [0.0]

    def look() -> float:
        now[0] += step_s
        return now[0]

    return look


def test_all_is_said_once_the_disk_was_tried(tmp_path: Path) -> None:
    own = Machine(tmp_path, clock=ticking(0.5))
    assert own() == {}
    own.look()
    assert tuple(own()) == NAMES
    assert all(value > 0 for value in own().values())
    assert own()["disk_bytes_per_s"] == TRIED_BYTES / 0.5
    assert list(tmp_path.iterdir()) == [], "what was written is gone"


def test_a_system_that_does_not_tell_its_clock_is_as_fast_as_all_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    psutil = pytest.importorskip("psutil")

    def untold() -> None:
        raise NotImplementedError("can't find current frequency file")  # as in some virtual machines

    for told in (untold, lambda: None):
        monkeypatch.setattr(psutil, "cpu_freq", told)
        own = Machine(tmp_path, clock=ticking(0.5))
        own.look()
        assert own()["mhz"] == 1.0


def test_a_disk_that_takes_nothing_leaves_it_unknown(tmp_path: Path) -> None:
    own = Machine(tmp_path / "missing")
    own.look()
    assert own() == {}


def test_without_psutil_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert resources() == {}
    own = Machine(tmp_path)
    own.look()
    assert own() == {}


def written(tmp_path: Path, groups: str, limits: dict[str, str]) -> Path:
    """The file of a process's groups, beside `fs`, where the limits of these stand."""
    own = tmp_path / "own"
    own.write_text(groups + "\n")
    for name, text in limits.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return own


@pytest.mark.parametrize(
    ("groups", "limits", "cores"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 1.5),
        ("0::/", {"cpu.max": "max 100000"}, float("inf")),
        ("0::/", {"cpu.max": "nonsense"}, float("inf")),
        ("0::/a.slice/b.service", {"a.slice/cpu.max": "200000 100000", "a.slice/b.service/cpu.max": "max 100000"}, 2),
        ("0::/not/in/this/container", {"cpu.max": "50000 100000"}, 0.5),
        ("0::/../../x", {"cpu.max": "50000 100000"}, 0.5),
        (
            "4:memory:/m\n3:cpu,cpuacct:/c\n0::/",
            {"cpu/c/cpu.cfs_quota_us": "300000", "cpu/c/cpu.cfs_period_us": "100000", "cpu/cpu.cfs_quota_us": "-1"},
            3,
        ),
        # Both versions are mounted; the second has a controller that the first does not.
        ("3:memory:/m\n0::/c", {"unified/c/cpu.max": "40000 100000", "c/cpu.max": "10000 100000"}, 0.4),
        ("3:cpu,cpuacct:/c", {"cpu,cpuacct/c/cpu.cfs_quota_us": "5", "cpu,cpuacct/c/cpu.cfs_period_us": "10"}, 0.5),
    ],
)
def test_the_limits_of_its_group_and_of_those_above_count(
    groups: str, limits: dict[str, str], cores: float, tmp_path: Path
) -> None:
    own = written(tmp_path, groups, limits)
    assert cgroup_cores(own, tmp_path / "fs") == cores
    assert cgroup_cores(tmp_path / "none") == float("inf")


@pytest.mark.parametrize(
    ("groups", "limits", "most"),
    [
        ("0::/a/b", {"a/memory.max": "1073741824", "a/b/memory.max": "max"}, 2**30),
        ("0::/a/b", {"a/memory.max": "1073741824", "a/b/memory.max": "536870912"}, 2**29),
        ("0::/", {}, float("inf")),
        ("3:cpu:/c\n4:memory:/m\n0::/", {"memory/m/memory.limit_in_bytes": "1000000", "memory.max": "max"}, 1e6),
    ],
)
def test_its_memory_is_what_its_groups_may_use(
    groups: str, limits: dict[str, str], most: float, tmp_path: Path
) -> None:
    own = written(tmp_path, groups, limits)
    assert cgroup_bytes(own, tmp_path / "fs") == most


@pytest.mark.parametrize(
    ("groups", "limits", "most"),
    [
        ("0::/a/b", {"a/io.max": "8:0 rbps=max wbps=max\n8:16 wbps=2000000 wiops=9"}, 2e6),
        ("0::/a/b", {"a/io.max": "8:16 wbps=2000000", "a/b/io.max": "8:16 rbps=7 wbps=900000"}, 9e5),
        ("0::/a", {"a/io.max": "8:0 wbps=2000000\n\n8:16 wbps=nonsense"}, float("inf")),
        ("0::/", {}, float("inf")),
        ("4:blkio:/m\n0::/", {"blkio/m/blkio.throttle.write_bps_device": "8:16 300000\n8:0 5"}, 3e5),
        ("4:blkio:/m\n0::/a", {"unified/a/io.max": "8:16 wbps=400000"}, 4e5),
    ],
)
def test_what_its_groups_may_write_to_the_disk_counts(
    groups: str, limits: dict[str, str], most: float, tmp_path: Path
) -> None:
    own = written(tmp_path, groups, limits)
    assert cgroup_disk_bytes_per_s(os.makedev(8, 16), own, tmp_path / "fs") == most


def test_a_partition_has_the_limits_of_its_disk(tmp_path: Path) -> None:
    disk = tmp_path / "devices" / "sdb"
    (disk / "sdb1").mkdir(parents=True)
    (disk / "dev").write_text("8:16\n")
    (disk / "sdb1" / "partition").write_text("1\n")
    for number, target in (("8:16", disk), ("8:17", disk / "sdb1")):
        (tmp_path / number).symlink_to(target)
    assert [machine.disk_of(8, minor, tmp_path) for minor in (16, 17, 32)] == ["8:16", "8:16", "8:32"]


def test_a_disk_is_no_faster_than_its_group_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cgroup_disk_bytes_per_s", lambda device: 1e5)
    own = Machine(tmp_path, clock=ticking(0.5))
    own.look()
    assert own()["disk_bytes_per_s"] == 1e5


def test_tries_end_when_the_latest_agree_and_are_bounded() -> None:
    trials = Trials()
    for took_s in (0.1, 0.02, 0.021, 0.02):
        assert not trials.over
        trials.tried(1.0, took_s)
    assert trials.over
    assert trials.rate == 1 / 0.02
    swinging = Trials()
    tries = 0
    while not swinging.over:
        swinging.tried(1.0, (0.01, 0.1)[tries % 2])
        tries += 1
    assert tries == TRIES_MAX
    slow = Trials()
    slow.tried(1.0, SPENT_S_MAX)
    assert slow.over


@pytest.mark.parametrize(("allowed", "limit", "cores"), [(8, 2.5, 2), (3, 8.0, 3), (4, 0.5, 1), (2, float("inf"), 2)])
def test_auto_is_one_node_for_each_whole_core(
    allowed: int, limit: float, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(allowed)), raising=False)
    monkeypatch.setattr(machine, "cgroup_cores", lambda: limit)
    assert usable_cores() == cores
