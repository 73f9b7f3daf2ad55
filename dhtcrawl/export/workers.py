"""Spreads work over processes of its own, which end when this one does, however that is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Final, TypeVar

from dhtcrawl.errors import DhtcrawlError, Exit

T = TypeVar("T")
R = TypeVar("R")
_AHEAD: Final = 3  # pieces for each process that wait for it, or for us


def in_processes(
    work: Callable[[T], R],
    pieces: Iterator[tuple[int, T]],
    processes: int,
    stack: ExitStack,
    *,
    remedy: str = "run the same command with --processes {}, which goes on from there",
) -> Iterator[tuple[int, R]]:
    """What `work` returns for each numbered piece, in their order, a few pieces ahead of what is taken.

    Both travel between processes, so they must be what pickle takes. `stack` ends the processes, whatever they are at
    where it is left by an exception. `remedy` is for people, with a number of processes.

    Raises:
        DhtcrawlError: a process was killed.
    """
    # Spawned, so that no child has our files and threads.
    context = get_context("spawn")
    goes_on, ours = context.Pipe(duplex=False)
    stack.callback(ours.close)
    stack.callback(goes_on.close)
    pool: Executor = stack.enter_context(ProcessPoolExecutor(processes, context, _begin, (goes_on,)))
    stack.callback(pool.shutdown, cancel_futures=True)
    stack.push(partial(_close_at_once, ours))
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
            "one of the processes was killed, most likely because the memory was full; "
            + remedy.format(max(1, processes // 2))
        ) from None


def _close_at_once(ours: Connection, kind: type[BaseException] | None, *rest: object) -> None:
    # Without an exception all has been done, and the pool lets them end by themselves.
    if kind is not None:
        ours.close()


def _begin(goes_on: Connection) -> None:
    # Ctrl-C reaches all processes of a terminal: the one that we work for ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(goes_on,), daemon=True).start()


def _end_with_parent(goes_on: Connection) -> None:
    """Who was killed ends nobody, and we would wait for the next piece for ever: the pipe ends with who has its end."""
    goes_on.poll(None)
    os._exit(Exit.FORCED)
