"""What this machine is made of, as a policy may want to know: cores, clock, memory, and how fast the disk is.

`psutil` says the first three; without it nothing is known. The disk is tried until the tries agree. All of it happens
once, on a thread of its own, which the first question starts: no caller waits for it, and no loop stands still.

A node may use less than its machine has. What the control groups of its process allow counts, and of those above them,
of both versions, also where both are mounted (`/sys/fs/cgroup/unified`).
"""

from __future__ import annotations

import logging
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from dhtcrawl.cli.trials import Trials

log = logging.getLogger(__name__)

TRIED_BYTES = 8 << 20
PIECE_BYTES = 1 << 20
OWN_CGROUP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")
DEVICES = Path("/sys/dev/block")


class Machine:
    """Measures the machine of this process; `directory` is where it writes."""

    def __init__(self, directory: Path, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._directory = directory
        self._clock = clock
        self._asked = False
        self._found: dict[str, float] = {}

    def __call__(self) -> dict[str, float]:
        """cores, mhz, memory_bytes and disk_bytes_per_s; empty until all of them are known."""
        if not self._asked:
            self._asked = True
            threading.Thread(target=self.look, name="machine", daemon=True).start()
        return self._found

    def look(self) -> None:
        known, disk_bytes_per_s = resources(), self._try_disk()
        if known and disk_bytes_per_s:
            self._found = {**known, "disk_bytes_per_s": disk_bytes_per_s}

    def _try_disk(self) -> float:
        """Write and sync a few megabytes, until the tries agree: bytes a second, or 0 where that cannot be done."""
        piece = os.urandom(PIECE_BYTES)
        try:
            trials = Trials()
            while not trials.over:
                # A new file each time: one that is there is overwritten faster than it was written.
                with tempfile.TemporaryFile(dir=self._directory) as file:
                    began = self._clock()
                    for _ in range(TRIED_BYTES // PIECE_BYTES):
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                    trials.tried(TRIED_BYTES, self._clock() - began)
            # What is written waits in memory first, where a group's limit does not hold it up.
            return min(trials.rate, cgroup_disk_bytes_per_s(self._directory.stat().st_dev))
        except OSError as error:
            log.info("the disk cannot be tried: %s", error)
            return 0.0


def resources() -> dict[str, float]:
    """cores, mhz and memory_bytes of what this process may use; empty where nothing can be known."""
    try:
        import psutil
    except ImportError:
        return {}
    try:
        frequency = psutil.cpu_freq()
    except (NotImplementedError, OSError, ValueError):  # what it does where the system tells less than it should
        frequency = None
    mhz = (frequency.current or frequency.max) if frequency is not None else 0.0
    cores = min(float(len(os.sched_getaffinity(0))), cgroup_cores())
    # A machine that does not tell its clock: the same for all such, so that it says nothing.
    memory_bytes = min(float(psutil.virtual_memory().available), cgroup_bytes())
    return {"cores": cores, "mhz": float(mhz) or 1.0, "memory_bytes": memory_bytes}


def usable_cores() -> int:
    """How many whole cores this process may use, at least 1: fewer than the machine has under `taskset` or a limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(cores, cgroup_cores())))


def cgroup_cores(own: Path = OWN_CGROUP, root: Path = CGROUPS) -> float:
    """How many cores the process's group and those above it may use; infinity where there is no limit."""
    return min([math.inf, *(_old_cores(group) if old else _cores(group) for group, old in _groups("cpu", own, root))])


def cgroup_bytes(own: Path = OWN_CGROUP, root: Path = CGROUPS) -> float:
    """How much memory the process's group and those above it may use; infinity where there is no limit."""
    groups = _groups("memory", own, root)
    return min(
        [math.inf, *(_bytes(group / ("memory.limit_in_bytes" if old else "memory.max")) for group, old in groups)]
    )


def cgroup_disk_bytes_per_s(device: int, own: Path = OWN_CGROUP, root: Path = CGROUPS) -> float:
    """How much the process's group and those above it may write to a disk; infinity where there is no limit.

    `device` is a number as `stat` has it, of the disk or of a partition.
    """
    disk = disk_of(os.major(device), os.minor(device))
    groups = [*_groups("blkio", own, root), *((group, False) for group, old in _groups("io", own, root) if not old)]
    return min([math.inf, *(_old_writes(group, disk) if old else _writes(group, disk) for group, old in groups)])


def disk_of(major: int, minor: int, devices: Path = DEVICES) -> str:
    """`major:minor` of the whole disk, which is what limits are set for."""
    place = devices / f"{major}:{minor}"
    whole = _lines(place.resolve().parent / "dev") if (place / "partition").exists() else []
    return whole[0][0] if whole else f"{major}:{minor}"


def _groups(controller: str, own: Path, root: Path) -> list[tuple[Path, bool]]:
    """The directories of the process's groups and of those above them, each with whether it is of the first version.

    A container sees its own group as `root`, whatever the path in `own` says.
    """
    try:
        lines = own.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        top = _mounted(root, controller if controllers else "", controllers)
        group = top / path.lstrip("/")
        for directory in (group, *group.parents):
            found.append((directory, bool(controllers)))
            if directory == top:
                break
    return found


def _mounted(root: Path, controller: str, controllers: str) -> Path:
    """Where a hierarchy is mounted: of the first version by its controller or all of them, of the second at the root.

    Where both are there, the second has a directory of its own.
    """
    if not controller:
        unified = root / "unified"
        return unified if unified.is_dir() else root
    alone = root / controller
    return alone if alone.is_dir() else root / controllers


def _writes(group: Path, disk: str) -> float:
    """Linux's Documentation/admin-guide/cgroup-v2.rst: `8:16 rbps=2097152 wbps=max …` for each disk."""
    for words in _lines(group / "io.max"):
        limits = dict(word.partition("=")[::2] for word in words[1:])
        if words[0] == disk and limits.get("wbps", "max").isdecimal():
            return float(limits["wbps"])
    return math.inf


def _old_writes(group: Path, disk: str) -> float:
    """The first version's: `8:16 1048576` for each disk."""
    for words in _lines(group / "blkio.throttle.write_bps_device"):
        if words[0] == disk and len(words) == 2 and words[1].isdecimal():
            return float(words[1])
    return math.inf


def _lines(file: Path) -> list[list[str]]:
    """The words of each line that has some; none where it cannot be read."""
    try:
        return [words for line in file.read_text("ascii").splitlines() if (words := line.split())]
    except (OSError, ValueError):
        return []


def _bytes(file: Path) -> float:
    """A number of bytes, or `max`; the first version's word for none is a number that no machine has."""
    try:
        return float(int(file.read_text("ascii")))
    except (OSError, ValueError):
        return math.inf


def _cores(group: Path) -> float:
    """Linux's Documentation/admin-guide/cgroup-v2.rst: `$MAX $PERIOD`, or `max`."""
    try:
        quota, period = (group / "cpu.max").read_text("ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf


def _old_cores(group: Path) -> float:
    """The first version's two files; a quota of -1 is none."""
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text("ascii"))
        period = int((group / "cpu.cfs_period_us").read_text("ascii"))
    except (OSError, ValueError):
        return math.inf
    return quota / period if quota > 0 and period > 0 else math.inf
