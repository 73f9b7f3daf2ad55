"""How far a command is, on stderr: one line that is rewritten on a terminal, a line now and then when piped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dhtcrawl.cli.stderr import STDERR
from dhtcrawl.cli.words import fitting

TERMINAL_EVERY_S = 0.25
PIPE_EVERY_S = 10.0
PIPE_COLUMNS = 1_000


class Screen:
    """What a command shows of its progress; nothing with `-q`."""

    @property
    def every_s(self) -> float:
        """How often the line is to be shown, in seconds."""
        return TERMINAL_EVERY_S if STDERR.is_terminal else PIPE_EVERY_S

    @property
    def columns(self) -> int:
        """How long a line may be."""
        return STDERR.columns - 1 if STDERR.is_terminal else PIPE_COLUMNS

    def say(self, text: str) -> None:
        """A line that stays."""
        STDERR.note(text)

    def show(self, line: str) -> None:
        """A line in the place of the last one, no wider than the terminal; one more line where it is piped."""
        STDERR.show(line)

    def clear(self) -> None:
        """Take the line away."""
        STDERR.clear()


@contextmanager
def shown(line: Callable[[], str]) -> Iterator[None]:
    """While a command works without an event loop, show again and again how far it is, in the words of `line`.

    `line` is called in another thread.
    """
    screen, ended = Screen(), threading.Event()

    def show() -> None:
        while not ended.wait(screen.every_s):
            screen.show(fitting(line(), screen.columns))

    thread = threading.Thread(target=show, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        screen.clear()
