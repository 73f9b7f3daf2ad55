"""What this machine is made of, as a policy may want to know: cores, clock, memory, and how fast the disk is.

`psutil` says the first three; without it (it comes with `dhtcrawl[policies]`)
nothing is known. The disk is tried. All of it happens once, on a thread of its
own, which the first question starts: no caller waits for it, and no loop stands still.
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

log = logging.getLogger(__name__)

TRIED_BYTES = 8 << 20
PIECE_BYTES = 1 << 20
OWN_CGROUP = Path("/proc/self/cgroup")
CGROUPS = Path("/sys/fs/cgroup")


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
        """Write and sync a few megabytes: bytes a second, or 0 where that cannot be done."""
        piece = os.urandom(PIECE_BYTES)
        try:
            with tempfile.TemporaryFile(dir=self._directory) as file:
                began = self._clock()
                for _ in range(TRIED_BYTES // PIECE_BYTES):
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
                return TRIED_BYTES / max(self._clock() - began, 1e-6)
        except OSError as error:
            log.info("the disk cannot be tried: %s", error)
            return 0.0


def resources() -> dict[str, float]:
    """cores, mhz and memory_bytes of what this process may use; empty where nothing can be known."""
    try:
        import psutil
    except ImportError:
        return {}
    frequency = psutil.cpu_freq()
    mhz = (frequency.current or frequency.max) if frequency is not None else 0.0
    cores = min(float(len(os.sched_getaffinity(0))), cgroup_cores())
    # A machine that does not tell its clock: the same for all such, so that it says nothing.
    return {"cores": cores, "mhz": float(mhz) or 1.0, "memory_bytes": float(psutil.virtual_memory().available)}


def usable_cores() -> int:
    """How many whole cores this process may use, at least 1: fewer than the machine has under `taskset` or a limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min(cores, cgroup_cores())))


def cgroup_cores(own: Path = OWN_CGROUP, root: Path = CGROUPS) -> float:
    """How many cores the process's group and those above it may use; infinity where there is no limit.

    A container sees its own group as `root`, whatever the path in `own` says.
    """
    try:
        lines = own.read_text("utf-8", "replace").splitlines()
    except OSError:
        return math.inf
    limits = [math.inf]
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "cpu" if controllers else root
        group = top / path.lstrip("/")
        for directory in (group, *group.parents):
            limits.append(_old_limit(directory) if controllers else _limit(directory))
            if directory == top:
                break
    return min(limits)


def _limit(group: Path) -> float:
    """Linux's Documentation/admin-guide/cgroup-v2.rst: `$MAX $PERIOD`, or `max`."""
    try:
        quota, period = (group / "cpu.max").read_text("ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf


def _old_limit(group: Path) -> float:
    """The first version's two files; a quota of -1 is none."""
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text("ascii"))
        period = int((group / "cpu.cfs_period_us").read_text("ascii"))
    except (OSError, ValueError):
        return math.inf
    return quota / period if quota > 0 and period > 0 else math.inf
