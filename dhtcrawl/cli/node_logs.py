"""What the node processes of `crawl --nodes` log, told by the process that started them.

Each node writes JSON lines to a file of its own, which outlives a crawl that was
interrupted. The files are read here now and then, and their records are given to
this process's loggers as if they were its own, with the node's id before the
text. A file and no pipe: a terminal that stands still then holds up no node.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from dhtcrawl.cli.log_lines import FIELDS
from dhtcrawl.cli.stderr import MESSAGES

log = logging.getLogger(__name__)

READ_EVERY_S: Final = 0.25
READ_BYTES_MAX: Final = 1 << 20  # at a time, of each file
LINE_BYTES_MAX: Final = 1 << 18
_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class NodeLogs:
    """Reads the log files of some nodes."""

    def __init__(self) -> None:
        self._files: list[_LogFile] = []

    def follow(self, path: Path) -> None:
        """Read this file, too, from its beginning."""
        self._files.append(_LogFile(path))

    def relay(self) -> bool:
        """Give what came since the last time to the loggers; whether there is more."""
        more = [file.relay() for file in self._files]
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


def last_message(path: Path) -> str | None:
    """The last line that a node had for its user; if there is none, the last that it logged; None: it said nothing."""
    rows = [_row(line) for line in path.read_bytes().splitlines()[-1000:]]
    said = [row for row in rows if row.get("logger") == MESSAGES] or rows
    return str(said[-1].get("message")) if said else None


class _LogFile:
    """One file, read up to some place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""  # the beginning of a line

    def relay(self) -> bool:
        """Whether there is more to read at once."""
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
            _give(_row(line))
        return len(data) == READ_BYTES_MAX


def _row(line: bytes) -> dict[str, Any]:
    """A line as the fields of a record; one that is no JSON, such as an interpreter's last words, is a warning."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    return row if isinstance(row, dict) else {"level": "warning", "message": line.decode("utf-8", "replace")}


def _give(row: dict[str, Any]) -> None:
    name, level = str(row.get("logger", __name__)), _LEVELS.get(str(row.get("level")), logging.WARNING)
    if name == MESSAGES or not row.get("message"):
        return  # what a node has for its user, its parent tells in its own words
    node = str(row.get("node", ""))
    text = f"node {node[:12]}: {row['message']}" if node else str(row["message"])
    logger = logging.getLogger(name)
    if not logger.isEnabledFor(level):
        return
    record = logger.makeRecord(name, level, __file__, 0, "%s", (text,), None)
    record.created, record.msecs = _moment(row.get("ts"), record)
    for field in (*FIELDS, "traceback"):
        if field in row:
            setattr(record, field, row[field])
    logger.handle(record)


def _moment(said: object, record: logging.LogRecord) -> tuple[float, float]:
    """When the node logged it, in seconds since 1970, and the milliseconds of that; now where it does not say so."""
    try:
        at = datetime.fromisoformat(str(said)).timestamp()
    except (ValueError, OverflowError):
        return record.created, record.msecs
    return at, at % 1 * 1000
