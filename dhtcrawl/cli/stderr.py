"""The process's stderr: log lines, messages, and the one line that shows how far a command is.

All of it goes through `STDERR`, so that no line is written into another: on a
terminal the progress line is cleared, what is to stay is written, and the
progress line is written again, in one piece. A reader that closes stderr does
not end the command; from then on nothing is written.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

from dhtcrawl.cli.log_lines import JsonLines, TextLines, json_line, one_line

MESSAGES = "dhtcrawl"  # in JSON, the logger of lines that are for the user and no log records
COLUMNS_THERE_ARE = 80  # where nothing says how many
_TO_LINE_START = "\r\x1b[K"  # and erase the line (ECMA-48, EL)


class Stderr:
    """What a process writes to stderr, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.reset()

    def reset(self) -> None:
        """Plain text, nothing left out, no log records: what a command begins with."""
        self.quiet = False
        self._label = ""
        self._json: JsonLines | None = None
        self._shown = ""  # the progress line that stands there
        self._closed_by_reader = False
        root = logging.getLogger()
        for handler in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
            root.removeHandler(handler)
            root.setLevel(logging.WARNING)

    @property
    def is_terminal(self) -> bool:
        """Whether the progress line can be rewritten: not where every line is to be JSON."""
        if self._json is not None or sys.stderr is None or os.environ.get("TERM") == "dumb":
            return False
        return sys.stderr.isatty()

    @property
    def columns(self) -> int:
        """How wide a terminal it is, by `COLUMNS` or by itself: stdout may be a file, or another terminal."""
        try:
            columns = int(os.environ.get("COLUMNS", "0")) or os.get_terminal_size(sys.stderr.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        return columns if columns > 0 else COLUMNS_THERE_ARE

    def set_up(self, level: str, form: str, *, quiet: bool, label: str = "") -> None:
        """Log records from `level` on as `text` or `json`; with `quiet` there is no progress and no note.

        `label` stands before what each line says, where several processes write to one stderr.
        """
        self.reset()
        self.quiet = quiet
        self._label = f"{label}: " if label else ""
        if form == "json":
            self._json = JsonLines()
        root = logging.getLogger()
        root.addHandler(_Handler(self, self._json or TextLines(self._label)))
        root.setLevel(level.upper())
        # aiohttp and asyncio say little that is not ours to say, unless asked.
        logging.getLogger("asyncio").setLevel(logging.INFO if level == "debug" else logging.CRITICAL)

    def name_node(self, node: str) -> None:
        """Name the node, in hex, in JSON lines from here on."""
        if self._json is not None:
            self._json.node = node

    def message(self, text: str, level: str) -> None:
        """A line to the user, in any case; `level` is what it is in JSON."""
        text = one_line(self._label + " ".join(text.split()))
        self.line(f"dhtcrawl: {text}" if self._json is None else self._as_json(level, text))

    def note(self, text: str) -> None:
        """A line about the progress, which stays."""
        if not self.quiet:
            self.line(one_line(text) if self._json is None else self._as_json("info", text))

    def show(self, text: str) -> None:
        """How far the command is, in the place of the last such line where that can be rewritten."""
        if self.quiet:
            return
        if not self.is_terminal:
            self.note(text)
            return
        with self._lock:
            self._shown = one_line(text)[: self.columns - 1]
            self._write(f"{_TO_LINE_START}{self._shown}")

    def clear(self) -> None:
        """Take the progress line away."""
        with self._lock:
            if self._shown:
                self._shown = ""
                self._write(_TO_LINE_START)

    def line(self, text: str) -> None:
        """A line as it is; the progress line stands below it afterwards."""
        with self._lock:
            self._write(f"{_TO_LINE_START}{text}\n{self._shown}" if self._shown else f"{text}\n")

    def _as_json(self, level: str, text: str) -> str:
        node = self._json.node if self._json is not None else ""
        return json_line(time.time(), level, MESSAGES, text, {"node": node} if node else {})

    def _write(self, text: str) -> None:
        if self._closed_by_reader or sys.stderr is None:
            return
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (BrokenPipeError, ValueError):
            # ValueError: the stream is closed within this process, which ends.
            self._closed_by_reader = True
        except OSError:
            pass  # a full disk, for instance: there may be room for the next line


class _Handler(logging.Handler):
    """Gives log records to `Stderr`."""

    def __init__(self, stderr: Stderr, formatter: logging.Formatter) -> None:
        super().__init__()
        self._stderr = stderr
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception as error:  # a wrong call of a logger must not end what it tells of
            text = f"a log line of {record.name} cannot be formatted: {type(error).__name__}"
        self._stderr.line(text)


STDERR = Stderr()
