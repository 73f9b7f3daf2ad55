"""What an export format is, and what its writer tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from dhtcrawl.export.collection import Collection

PROBLEMS_KEPT_MAX = 10


@dataclass(slots=True)
class ProblemReport:
    """What could not be read; `problems` keeps the first `PROBLEMS_KEPT_MAX` of `problems_total`."""

    problems: list[str] = field(default_factory=list)
    problems_total: int = 0

    def problem(self, what: str) -> None:
        self.problems_total += 1
        if len(self.problems) < PROBLEMS_KEPT_MAX:
            self.problems.append(what)


@dataclass(slots=True)
class ExportReport(ProblemReport):
    """What was written, and what could not be."""

    written: int = 0  # of what the format is made of: pages, rows, links


class ExportFormat(NamedTuple):
    """A row of the table of formats.

    `write` puts a collection into a seekable file, or into any stream if the
    format `streams`. It raises `StorageError` where the collection cannot be
    read, and `OSError` where the file cannot be written.
    """

    name: str
    suffix: str  # of a file's name
    counts: str  # what `ExportReport.written` counts
    streams: bool  # may go to standard output
    suffix_matters: bool  # readers know it by the suffix
    write: Callable[[Collection, BinaryIO, ExportReport], None]
