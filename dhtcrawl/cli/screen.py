"""The one line on stderr that shows how far a command is: rewritten on a terminal, now and then when piped."""

from __future__ import annotations

import shutil
import sys

TERMINAL_EVERY_S = 0.25
PIPE_EVERY_S = 10.0


class Screen:
    """stderr; a reader that closes it does not end the command."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._silent = False

    @property
    def every_s(self) -> float:
        return TERMINAL_EVERY_S if self._terminal else PIPE_EVERY_S

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(f"{text}\n")

    def show(self, line: str) -> None:
        """A line in the place of the last one, no wider than the terminal; one more line where it is piped."""
        if not self._terminal:
            self.say(line)
            return
        width = shutil.get_terminal_size().columns - 1
        self._write(f"\r\x1b[K{line[:width]}")

    def clear(self) -> None:
        if self._terminal:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        if self._silent:
            return
        try:
            print(text, end="", file=sys.stderr, flush=True)
        except OSError:
            self._silent = True
