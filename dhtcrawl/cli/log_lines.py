"""A log record as one line: text for people, JSON for programs.

Messages hold what peers and sites sent: URLs, error texts, names. Whatever
that was, a record is one line of bounded length that moves no cursor, and a
password within a URL does not get into it. Only the traceback of a text line
takes further lines, which are indented, so that none looks like a record.
"""

from __future__ import annotations

import json
import logging
import math
import re
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

MESSAGE_CHARS_MAX = 4096
FIELD_CHARS_MAX = 2048
TRACEBACK_CHARS_MAX = 65_536
_CUT = "…"

# What a caller may name by `extra` besides the message, in the order in which it is written.
FIELDS: Final = ("node", "crawl", "url", "host", "peer", "attempt", "status", "bytes", "seconds", "wait_s")
_USERINFO = re.compile(r"(://)[^\s/?#]*@")


def one_line(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """Text without line breaks, control characters and passwords of URLs, cut at `chars_max` characters."""
    cut = text if len(text) <= chars_max else text[: chars_max - 1] + _CUT
    if "@" in cut:
        cut = _USERINFO.sub(r"\1", cut)
    return cut if cut.isprintable() else "".join(map(_escaped, cut))


def _escaped(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii")


def json_line(at: float, level: str, logger: str, message: str, fields: Mapping[str, object], trace: str = "") -> str:
    """A record as a line of JSON; `at` is in seconds since 1970."""
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    row: dict[str, object] = {"ts": moment, "level": level, "logger": logger, "message": one_line(message)}
    row |= {name: _json_value(value) for name, value in fields.items()}
    if trace:
        row["traceback"] = trace
    return json.dumps(row)


def _json_value(value: object) -> object:
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return one_line(str(value), FIELD_CHARS_MAX)


class JsonLines(logging.Formatter):
    """Formats records as `json_line` does; `node` stands in each whose caller named no other."""

    def __init__(self) -> None:
        super().__init__()
        self.node = ""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {"node": self.node} if self.node else {}
        fields |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        trace = "\n".join(_traceback(record))
        return json_line(record.created, record.levelname.lower(), record.name, record.getMessage(), fields, trace)


class TextLines(logging.Formatter):
    """Formats records as time, level, logger and message, which begins with `label`."""

    def __init__(self, label: str = "") -> None:
        super().__init__()
        self._label = label

    def format(self, record: logging.LogRecord) -> str:
        head = f"{self.formatTime(record)} {record.levelname} {record.name}: "
        head += self._label + one_line(record.getMessage())
        return "\n".join([head, *(f"  {row}" for row in _traceback(record))])


def _traceback(record: logging.LogRecord) -> list[str]:
    """The lines of a record's traceback, if it has one."""
    if record.exc_info and record.exc_info[0] is not None:
        text = "".join(traceback.format_exception(*record.exc_info))
    else:
        text = str(getattr(record, "traceback", ""))  # of another process
    return [one_line(row) for row in text[-TRACEBACK_CHARS_MAX:].splitlines()]
