"""SIGINT and SIGTERM: the first asks for an orderly end, the second ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dhtcrawl.cli.main import tell
from dhtcrawl.cli.stderr import STDERR
from dhtcrawl.errors import Exit


@contextmanager
def orderly_end(ask: Callable[[], None], *, at_once: str) -> Iterator[None]:
    """Call `ask` at the first signal; at the second say `at_once` and exit with `Exit.FORCED`.

    Nothing is to be saved then: what is acknowledged is on disk, and the rest is what a crash would lose too.
    """
    asked = False

    def on_signal() -> None:
        nonlocal asked
        if asked:
            STDERR.clear()
            tell(at_once)
            os._exit(Exit.FORCED)
        asked = True
        ask()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
