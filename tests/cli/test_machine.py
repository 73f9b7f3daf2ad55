"""What a node says of its machine."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dhtcrawl.cli.machine import TRIED_BYTES, Machine, cgroup_cores, resources

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
    pytest.importorskip("psutil")
    own = Machine(tmp_path, clock=ticking(0.5))
    assert own() == {}
    own.look()
    assert tuple(own()) == NAMES
    assert all(value > 0 for value in own().values())
    assert own()["disk_bytes_per_s"] == TRIED_BYTES / 0.5
    assert list(tmp_path.iterdir()) == [], "what was written is gone"


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


@pytest.mark.parametrize(
    ("text", "cores"), [("150000 100000", 1.5), ("max 100000", float("inf")), ("nonsense", float("inf"))]
)
def test_a_groups_limit_counts(text: str, cores: float, tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    limit.write_text(text)
    assert cgroup_cores(limit) == cores
    assert cgroup_cores(tmp_path / "none") == float("inf")
