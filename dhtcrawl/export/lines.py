"""Lines of what a crawl wrote, read as they are: what is half written, or was changed by others, is no surprise."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dhtcrawl.storage.outputs.outputs import SUMMARY_FILE

LINE_BYTES_MAX = 1024 * 1024
_BLOCK_BYTES = 256 * 1024
_SUMMARY_BYTES_MAX = 16 << 20  # a row a node
_URL = re.compile(r"https?://[^/\s]+/\S*")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", re.ASCII)

Fields = dict[str, Any]


class WholeLines:
    """The whole lines of a file, as far as it went when it was opened; none of a file that is not there."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._size = 0
        try:
            self._fd = stack.enter_context(path.open("rb", buffering=0)).fileno()
        except FileNotFoundError:
            return
        self._size = os.fstat(self._fd).st_size

    def __iter__(self) -> Iterator[bytes]:
        """The lines without their newlines; one longer than `LINE_BYTES_MAX` is empty. Readers are independent."""
        at, rest, too_long = 0, b"", False
        while at < self._size and (block := os.pread(self._fd, min(_BLOCK_BYTES, self._size - at), at)):
            at += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield b"" if too_long else line
                too_long = False
            if len(rest) > LINE_BYTES_MAX:
                rest, too_long = b"", True


def summary_of(root: Path) -> Fields:
    """The fields of summary.json below `root`; empty where there is none that can be read."""
    try:
        return read_summary(root) or {}
    except OSError:
        return {}


def read_summary(root: Path) -> Fields | None:
    """The fields of summary.json below `root`; empty where there is none, None where it is damaged.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with (root / SUMMARY_FILE).open("rb") as file:
            return object_of(file.read(_SUMMARY_BYTES_MAX))
    except FileNotFoundError:
        return {}


def is_page(fields: Fields) -> bool:
    """Whether an object has what tells a page: the rest of its fields may be anything."""
    return _is_like(_URL, fields.get("url")) and _is_like(_INSTANT, fields.get("fetched_at"))


def is_skip(fields: Fields) -> bool:
    """Whether an object has what tells a URL that was not fetched, which may be no URL, and why."""
    return isinstance(fields.get("url"), str) and isinstance(fields.get("reason"), str)


def object_of(text: bytes) -> Fields | None:
    """The object that a line is, or None where it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_like(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
