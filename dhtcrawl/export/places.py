"""Where each response of a collection lies, and what came of each URL: look-ups in bounded memory.

The tables are a temporary SQLite database: in memory up to `_CACHE_KIB`, and beyond
that in a file without a name, which is gone with the process, however it ends. Keys are
marks, the first 64 bits of a SHA-1: of a million different things two have the same
one with a chance of one in thirty million.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from dhtcrawl.export.scratch import scratch_error

_CACHE_KIB = 32 * 1024
_OUTCOMES_KEPT_MAX = 50_000  # most links of a site lead to the same pages
_TABLES = """
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA temp_store = FILE;
    CREATE TABLE places (mark INTEGER PRIMARY KEY, file INTEGER, offset INTEGER, length INTEGER);
    CREATE TABLE outcomes (mark INTEGER PRIMARY KEY, outcome);
    CREATE TABLE lines (line BLOB);
"""


class ResponsePlace(NamedTuple):
    """A response's gzip member: its archive file, and its bytes in there."""

    file: str
    offset: int
    length: int


class Places:
    """The tables of one export. Raises `StorageError` where there is no room for their file."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._files: dict[str, int] = {}
        self._names: list[str] = []
        self.outcome = lru_cache(_OUTCOMES_KEPT_MAX)(self._outcome)

    def put(self, mark: int, member: ResponsePlace) -> None:
        """Note where a response lies; the first one with a mark counts."""
        number = self._files.setdefault(member.file, len(self._files))
        if number == len(self._names):
            self._names.append(member.file)
        self._database.execute(
            "INSERT OR IGNORE INTO places VALUES (?, ?, ?, ?)", (mark, number, member.offset, member.length)
        )

    def get(self, mark: int) -> ResponsePlace | None:
        """Where the response lies, or None."""
        found = self._database.execute("SELECT file, offset, length FROM places WHERE mark = ?", (mark,)).fetchone()
        return None if found is None else ResponsePlace(self._names[found[0]], found[1], found[2])

    def put_outcomes(self, outcomes: Iterable[tuple[str, int | str]]) -> None:
        """Note what came of URLs; the first outcome of a URL counts."""
        rows = ((mark_of(url), outcome) for url, outcome in outcomes)
        self._database.executemany("INSERT OR IGNORE INTO outcomes VALUES (?, ?)", rows)

    def _outcome(self, url: str) -> int | str | None:
        found = self._database.execute("SELECT outcome FROM outcomes WHERE mark = ?", (mark_of(url),)).fetchone()
        return None if found is None else found[0]

    def put_line(self, line: bytes) -> None:
        """Keep an index line."""
        self._database.execute("INSERT INTO lines VALUES (?)", (line,))

    def lines(self) -> Iterator[bytes]:
        """The lines that were kept, in byte order."""
        return (line for (line,) in self._database.execute("SELECT line FROM lines ORDER BY line"))


@contextmanager
def places() -> Iterator[Places]:
    """Empty tables, gone in the end.

    Raises:
        StorageError: their file cannot be written.
    """
    database = sqlite3.connect("", isolation_level=None)
    try:
        database.executescript(_TABLES)
        database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        database.execute("BEGIN")  # one transaction: nothing is ever rolled back or read by others
        yield Places(database)
    except sqlite3.Error as error:
        what = "cannot keep what is looked up while exporting in the directory for temporary files"
        raise scratch_error(error, what) from error
    finally:
        database.close()


def mark_of(*parts: str) -> int:
    """The first 64 bits of a digest of `parts`, signed as SQLite has them."""
    text = "\n".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha1(text, usedforsecurity=False).digest()[:8], signed=True)
