"""SIGINT and SIGTERM: the first asks for an orderly end, the second ends the process at once.

SIGHUP comes when a terminal is closed or its line is lost, from the shell and the system, so often twice: it asks for
the orderly end, too, and for no more. Under `nohup` it is ignored, and stays so.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dhtcrawl.cli.main import tell
from dhtcrawl.cli.stderr import STDERR
from dhtcrawl.errors import Exit

ENDING = (signal.SIGINT, signal.SIGTERM)


def hang_ups() -> tuple[signal.Signals, ...]:
    """SIGHUP, unless who started this process has it ignored."""
    return () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)


class _ParentsWord:
    """That an orderly end was asked for by who started this process, and what to do about it once something runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = False
        self._begin: Callable[[], None] | None = None

    def ask(self) -> None:
        with self._lock:
            self._asked = True
            if self._begin is not None:
                self._begin()

    def when_asked(self, begin: Callable[[], None] | None) -> None:
        with self._lock:
            self._begin = begin
            if self._asked and begin is not None:
                begin()


_PARENTS_WORD = _ParentsWord()


def end_in_order() -> None:
    """Ask for the orderly end as the first signal does, from any thread; more than once is the same."""
    _PARENTS_WORD.ask()


@contextmanager
def orderly_end(ask: Callable[[], None], *, at_once: str) -> Iterator[None]:
    """Call `ask` at the first signal; at the second say `at_once` and exit with `Exit.FORCED`.

    Nothing is to be saved then: what is acknowledged is on disk, and the rest is what a crash would lose too.
    Afterwards signals do what they did before.
    """
    asked = signalled = False

    def begin() -> None:
        nonlocal asked
        if not asked:
            asked = True
            ask()

    def begin_from_thread() -> None:
        loop.call_soon_threadsafe(begin)

    def on_signal() -> None:
        nonlocal signalled
        if signalled:
            STDERR.clear()
            tell(at_once)
            os._exit(Exit.FORCED)
        # One Ctrl-C reaches this process and its parent, which then asks, too: that is no second one.
        signalled = True
        begin()

    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (*ENDING, *hang_ups())}
    _PARENTS_WORD.when_asked(begin_from_thread)
    for number in before:
        loop.add_signal_handler(number, on_signal if number in ENDING else begin)
    try:
        yield
    finally:
        _PARENTS_WORD.when_asked(None)
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
