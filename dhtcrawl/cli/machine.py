"""What this machine is made of, as a policy may want to know: cores, clock, memory, and how fast the disk is.

`psutil` says the first three; without it (it comes with `dhtcrawl[policies]`)
nothing is known. The disk is tried. All of it happens once, on a thread of its
own, which the first question starts: no caller waits for it, and no loop stands still.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

TRIED_BYTES = 8 << 20
PIECE_BYTES = 1 << 20
CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")


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


def cgroup_cores(limit: Path = CGROUP_LIMIT) -> float:
    """How many cores the process's group may use; infinity where there is no limit."""
    try:
        quota, period = limit.read_text("ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError):
        return float("inf")
