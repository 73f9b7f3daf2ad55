"""Ends a script in order when a signal tells it to: its blocks are left, and nothing that it started stays behind."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

_TOLD_BY: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def in_order(main: Callable[[], int]) -> int:
    """`main`, in the main thread of a process that does nothing else; its exit code.

    A signal that ends the process has `main` leave its blocks, as any error would; those that come while it does so
    change nothing. A process that it started and that no block has ended, as it was only being started, is killed then.
    A signal that is ignored, as SIGHUP is under `nohup`, still is.

    Raises:
        SystemExit: a signal came; with 128 and its number, as a shell has it.
    """
    for each in heeded():
        signal.signal(each, _leave)
    try:
        return main()
    finally:
        for each in _TOLD_BY:
            signal.signal(each, signal.SIG_IGN)
        _kill(_children())


def heeded() -> list[signal.Signals]:
    """The signals by which this process may be told to end."""
    return [each for each in _TOLD_BY if signal.getsignal(each) is not signal.SIG_IGN]


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes for a block; where it is left by an error or a signal, nobody waits for what they are at."""
    before = _children()
    with ProcessPoolExecutor(count, initializer=at_once) as pool:
        try:
            yield pool
        except BaseException:
            threading.excepthook = _say_nothing  # a thread of the executor is surprised
            _kill(set(_children()).difference(before))
            raise


def _say_nothing(_failed: threading.ExceptHookArgs) -> None:
    """Of what is over."""


def at_once() -> None:
    """From now on a signal ends this process without a word: it has nothing to clear away.

    Of a worker, which begins with our handlers, the executor would go on after what they raise; of a simulation, each
    task would have its say.
    """
    for each in heeded():
        signal.signal(each, signal.SIG_DFL)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    for each in _TOLD_BY:
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _kill(processes: Iterable[int]) -> None:
    for pid in processes:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _children() -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():  # proc(5), field 4
                found.append(int(stat.parent.name))
    return found
