"""What one command takes: CPU of all its processes, time, memory. Linux only."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

POLL_S = 0.1


class CommandFailed(Exception):
    """A command did not end as it should have; its last words are the message."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a command took from its start to its end."""

    cpu_s: float  # user and system time of the process and of all descendants that were waited for
    wall_s: float
    peak_bytes: int  # resident, of the largest of its processes


def two_cores() -> tuple[int, int] | None:
    """One core for the server and us, another for the crawlers; None where there are not two."""
    cores = sorted(os.sched_getaffinity(0))
    return (cores[0], cores[-1]) if len(cores) > 1 else None


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    core: int | None = None,
    codes: Collection[int] = (0,),
    limit_s: float = 900.0,
) -> Spent:
    """Run a command on one core, or wherever it likes, and wait for it; whoever interrupts us ends it too.

    Raises:
        CommandFailed: its exit code is none of `codes`, or it took longer than `limit_s`.
    """
    log = cwd / "output.log"
    pin = None if core is None else partial(os.sched_setaffinity, 0, {core})
    with log.open("wb") as output:
        began = time.perf_counter()
        # A session of its own, so that all of it can be ended.
        process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True, preexec_fn=pin,
        )  # fmt: skip
        alarm = threading.Timer(limit_s, partial(_end, process.pid))
        alarm.start()
        watch = _Memory(process.pid)
        watch.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
            wall_s = time.perf_counter() - began
        except BaseException:
            _end(process.pid)
            process.wait()
            raise
        finally:
            alarm.cancel()
            watch.stop()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in codes:
        said = log.read_text("utf-8", "replace")[-2000:]
        raise CommandFailed(f"{' '.join(argv)} ended with {process.returncode}:\n{said}")
    return Spent(usage.ru_utime + usage.ru_stime, wall_s, watch.peak_bytes)


def _end(session: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


class _Memory(threading.Thread):
    """Asks again and again how large the processes were.

    `ru_maxrss` would not do: it counts what the process was before it became the command, a copy of us.
    """

    def __init__(self, root: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._root = root
        self._ended = threading.Event()

    def run(self) -> None:
        while True:
            for pid in descendants(self._root):
                self.peak_bytes = max(self.peak_bytes, _high_water_bytes(pid))
            if self._ended.wait(POLL_S):
                return

    def stop(self) -> None:
        """End, and wait for it."""
        self._ended.set()
        self.join()


def descendants(root: int) -> list[int]:
    """The process and all that it and they have started, those whose parent has gone left out."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children[parent].append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found += children[pid]
    return found


def _high_water_bytes(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0
