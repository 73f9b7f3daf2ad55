"""What the node processes of `crawl --nodes` log, told by the process that started them.

Each node writes JSON lines to a file of its own, `OUT.node/logs/1.log` and so on,
which outlives the crawl; later runs add to it, and one in which nothing stands is
removed. The files are read here now and then, and their records are given to
this process's loggers as if they were its own, with the node's id before the
text. A file and no pipe: a terminal that stands still then holds up no node. Of a
node that logs much, some lines are given, and then how many were left out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dhtcrawl.cli.log_lines import FIELDS
from dhtcrawl.cli.stderr import MESSAGES

log = logging.getLogger(__name__)

READ_EVERY_S: Final = 0.25
READ_BYTES_MAX: Final = 1 << 20  # at a time, of each file
LINE_BYTES_MAX: Final = 1 << 18
BURST: Final = 20  # lines of a node that are given at once; then so many a second:
LINES_A_SECOND: Final = 2.0
LINES_A_SECOND_VERBOSE: Final = 200.0  # where the user asked for more than warnings
_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class NodeLogs:
    """Reads the log files of some nodes."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._files: list[_LogFile] = []
        self._now = now

    def follow(self, path: Path, since: int = 0) -> None:
        """Read this file, too, from the byte `since` on."""
        self._files.append(_LogFile(path, since))

    def relay(self, *, last: bool = False) -> bool:
        """Give what came since the last time to the loggers; whether there is more.

        The `last` time, what was left out is told, too.
        """
        more = [file.relay(self._now(), last=last) for file in self._files]
        return any(more)

    async def run(self) -> None:
        """Relay now and then, until cancelled."""
        while True:
            if not self.relay():
                await asyncio.sleep(READ_EVERY_S)
            else:
                await asyncio.sleep(0)


@asynccontextmanager
async def relayed_logs() -> AsyncIterator[NodeLogs]:
    """Relay the logs of nodes that are gone when this ends."""
    logs = NodeLogs()
    running = asyncio.create_task(logs.run())
    try:
        yield logs
    finally:
        running.cancel()
        while logs.relay():
            pass
        logs.relay(last=True)


@contextmanager
def kept_log(path: Path) -> Iterator[int]:
    """A node's log is there to add to, and was so long in bytes; it is removed if nothing stands in it in the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    try:
        yield path.stat().st_size
    finally:
        with suppress(OSError):  # it is gone, as somebody removed it; or another node's log is in the directory
            if not path.stat().st_size:
                path.unlink()
                path.parent.rmdir()


def last_message(path: Path, since: int = 0) -> str | None:
    """The last line that a node had for its user; if there is none, the last that it logged; None: it said nothing.

    What stands before the byte `since` is of earlier runs. None, too, where the file is gone.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(since, os.fstat(file.fileno()).st_size - READ_BYTES_MAX))
            rows = [_row(line) for line in file.read().splitlines()[-1000:]]
    except OSError:
        return None
    said = [row for row in rows if row.get("logger") == MESSAGES] or rows
    return str(said[-1].get("message")) if said else None


class _LogFile:
    """One file, read up to some place."""

    def __init__(self, path: Path, since: int) -> None:
        self._path = path
        self._offset = since
        self._rest = b""  # the beginning of a line
        self._budget = _LineBudget()
        self._left_out = 0

    def relay(self, now: float, *, last: bool) -> bool:
        """Whether there is more to read at once."""
        more = self._read(now)
        if self._left_out and (last or self._budget.take(now)):
            log.warning("%d more lines of a node are in %s", self._left_out, self._path)
            self._left_out = 0
        return more

    def _read(self, now: float) -> bool:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(READ_BYTES_MAX)
        except OSError:
            return False  # it is told where the node itself is found to be gone
        self._offset += len(data)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= LINE_BYTES_MAX else b""
        for line in lines:
            record = _record(_row(line))
            if record is None:
                continue
            # Once a line was left out, their number comes before the next one.
            if self._left_out or not self._budget.take(now):
                self._left_out += 1
            else:
                logging.getLogger(record.name).handle(record)
        return len(data) == READ_BYTES_MAX


class _LineBudget:
    """How many lines of one node may be given: `BURST` at once, and so many a second."""

    def __init__(self) -> None:
        verbose = log.isEnabledFor(logging.INFO)
        self._a_second = LINES_A_SECOND_VERBOSE if verbose else LINES_A_SECOND
        self._most = LINES_A_SECOND_VERBOSE if verbose else float(BURST)
        self._left = self._most
        self._at = -math.inf

    def take(self, now: float) -> bool:
        """Whether one more may be given."""
        self._left = min(self._most, self._left + (now - self._at) * self._a_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _row(line: bytes) -> dict[str, Any]:
    """A line as the fields of a record; one that is no JSON, such as an interpreter's last words, is a warning."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    return row if isinstance(row, dict) else {"level": "warning", "message": line.decode("utf-8", "replace")}


def _record(row: dict[str, Any]) -> logging.LogRecord | None:
    """What a node logged, as a record of ours; None where it is not wanted here."""
    name, level = str(row.get("logger", __name__)), _LEVELS.get(str(row.get("level")), logging.WARNING)
    if name == MESSAGES or not row.get("message"):
        return None  # what a node has for its user, its parent tells in its own words
    node = str(row.get("node", ""))
    text = f"node {node[:12]}: {row['message']}" if node else str(row["message"])
    logger = logging.getLogger(name)
    if not logger.isEnabledFor(level):
        return None
    record = logger.makeRecord(name, level, __file__, 0, "%s", (text,), None)
    record.created, record.msecs = _moment(row.get("ts"), record)
    for field in (*FIELDS, "traceback"):
        if field in row:
            setattr(record, field, row[field])
    return record


def _moment(said: object, record: logging.LogRecord) -> tuple[float, float]:
    """When the node logged it, in seconds since 1970, and the milliseconds of that; now where it does not say so."""
    try:
        at = datetime.fromisoformat(str(said)).timestamp()
    except (ValueError, OverflowError):
        return record.created, record.msecs
    return at, at % 1 * 1000
