"""What an extraction has read so far, in a file beside the records, so that an interrupted one goes on where it was.

    records/unfinished-MARK    a line a piece: its number, and what each of its pages has
    records/.extracting        held by the one that is at work in the directory; gone when it ends

`MARK` stands for the rules, the pages and where their bodies are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from dhtcrawl.export.target import open_locked
from dhtcrawl.storage.outputs.record_files import RECORDS_DIR
from dhtcrawl.storage.store.engine import storage_error
from dhtcrawl.storage.store.files import DiskFile

T = TypeVar("T")
UNFINISHED: Final = "unfinished-"
_HELD: Final = ".extracting"


class BroughtPage(NamedTuple):
    """What one page has."""

    url: str
    fetched_at: str
    found: str  # as in a page record; empty: there is no HTML
    problem: str  # why its response could not be read


Piece = tuple[int, list[BroughtPage]]  # its number, and what its pages have


@contextmanager
def alone_in(root: Path) -> Iterator[None]:
    """Hold the records below a crawl's directory, whose `records/` is there: two extractions would mix theirs.

    Raises:
        UsageError: another process holds them.
        StorageError: the file that says so cannot be written.
    """
    held = root / RECORDS_DIR / _HELD
    try:
        file = open_locked(held, f"another extract is at work in {root}; wait for it or stop it first")
    except OSError as error:
        raise storage_error(error, f"cannot write {held}") from error
    with file:
        try:
            yield
        finally:
            held.unlink(missing_ok=True)


class Journal:
    """What pieces have brought, in a file that only grows."""

    def __init__(self, path: Path) -> None:
        """Open the file, which is made where it is missing; the caller closes it.

        Raises:
            StorageError: it cannot be opened.
        """
        self._path = path
        self._known: set[int] = set()
        self._file = DiskFile(path, None)

    def close(self) -> None:
        self._file.close()

    def missing(self, pieces: Iterable[tuple[int, list[T]]]) -> Iterator[tuple[int, list[T]]]:
        """The pieces that have to be read, as far as `with_new` has learnt which are noted."""
        return (piece for piece in pieces if piece[0] not in self._known)

    def with_new(self, read: Iterable[Piece]) -> Iterator[list[BroughtPage]]:
        """What was noted, then what is read; each piece once. It is noted where all of its pages could be read.

        Raises:
            StorageFull: no space is left; what was noted before stays.
            StorageError: the disk failed.
        """
        yield from self._noted()
        for number, brought in read:
            if not any(page.problem for page in brought):  # which the user may mend before going on
                self._file.append(json.dumps([number, brought]).encode() + b"\n")
            yield brought

    def _noted(self) -> Iterator[list[BroughtPage]]:
        """What the lines say; the file ends before the first one that says nothing, as a kill or a crash leaves it."""
        whole = 0
        try:
            with self._path.open("rb") as file:
                for line in file:
                    piece = _piece(line)
                    if piece is None:
                        break
                    whole += len(line)
                    if piece[0] not in self._known:
                        self._known.add(piece[0])
                        yield piece[1]
        except OSError as error:
            raise storage_error(error, f"cannot read {self._path}") from error
        self._file.truncate(whole)


def _piece(line: bytes) -> Piece | None:
    """The piece of a whole line; None if it has none."""
    try:
        number, pages = json.loads(line) if line.endswith(b"\n") else (None, ())
        brought = [BroughtPage(*page) for page in pages]
    except (ValueError, TypeError, RecursionError):
        return None
    if type(number) is not int or not all(isinstance(each, str) for page in brought for each in page):
        return None
    return number, brought
