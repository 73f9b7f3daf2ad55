"""Spreads work over processes of its own, which end when this one does, however that is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from multiprocessing import get_context, parent_process
from typing import Final, TypeVar

from dhtcrawl.errors import DhtcrawlError, Exit

T = TypeVar("T")
R = TypeVar("R")
_AHEAD: Final = 3  # pieces for each process that wait for it, or for us


def in_processes(
    work: Callable[[T], R], pieces: Iterator[tuple[int, T]], processes: int, stack: ExitStack
) -> Iterator[tuple[int, R]]:
    """What `work` returns for each numbered piece, in their order, a few pieces ahead of what is taken.

    Both travel between processes, so they must be what pickle takes. `stack` ends the processes.

    Raises:
        DhtcrawlError: a process was killed.
    """
    # Spawned, so that no child has our files and threads.
    pool: Executor = stack.enter_context(ProcessPoolExecutor(processes, get_context("spawn"), _begin))
    stack.callback(pool.shutdown, cancel_futures=True)
    waiting: list[tuple[int, Future[R]]] = []
    try:
        for number, piece in pieces:
            waiting.append((number, pool.submit(work, piece)))
            if len(waiting) >= _AHEAD * processes:
                ready, done = waiting.pop(0)
                yield ready, done.result()
        for ready, done in waiting:
            yield ready, done.result()
    except BrokenProcessPool:
        raise DhtcrawlError(
            "one of the processes was killed, most likely because the memory was full; run the same command with "
            f"--processes {max(1, processes // 2)}, which goes on from there"
        ) from None


def _begin() -> None:
    # Ctrl-C reaches all processes of a terminal: the one that we work for ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Who was killed ends nobody, and we would wait for the next piece for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(Exit.FORCED)
