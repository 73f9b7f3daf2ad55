"""Reads what a crawl wrote into a report: pages.jsonl, skipped.jsonl and summary.json, and the sizes of its archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import resources
from pathlib import Path

from dhtcrawl.export.lines import Fields, WholeLines, is_page, is_skip, object_of, read_summary
from dhtcrawl.export.report.page import Subject, page
from dhtcrawl.export.report.tally import Tally
from dhtcrawl.storage.outputs.outputs import ARCHIVE_DIR, PAGES_DIR, PAGES_FILE, REPORTS_DIR, SKIPPED_FILE, SUMMARY_FILE
from dhtcrawl.storage.store.engine import storage_error

_ARCHIVES = "*.warc.gz"
_PAGES = f"{PAGES_DIR}/{PAGES_FILE}"
_SKIPPED = f"{REPORTS_DIR}/{SKIPPED_FILE}"


class Report:
    """A report on the crawl below `root`.

    `pages` counts while it is read, and so does `unreadable`, by file: lines that are none.
    """

    def __init__(self, root: Path) -> None:
        self.unreadable = Counter[str]()
        self._root = root
        self._tally = Tally()
        self._summary: Fields | None = {}

    @property
    def pages(self) -> int:
        return self._tally.pages.count

    def read(self) -> None:
        """Count all lines.

        Raises:
            StorageError: they cannot be read.
        """
        try:
            # Before the lines: those that come after it are not its.
            self._summary = read_summary(self._root)
            if self._summary is None:
                self.unreadable[SUMMARY_FILE] += 1
            with ExitStack() as stack:
                for fields in self._objects(_PAGES, is_page, stack):
                    self._tally.page(fields)
                for fields in self._objects(_SKIPPED, is_skip, stack):
                    self._tally.skip(fields)
        except OSError as error:
            raise storage_error(error, f"cannot read {error.filename or self._root}") from error
        self._leave_out_an_old_summary()

    def page(self, name: str, made: str) -> bytes:
        """The report as HTML, of a crawl in a directory called `name`; `made` says when and by whom.

        Raises:
            StorageError: the archive's directory cannot be read.
        """
        try:
            archives = [path.stat().st_size for path in sorted((self._root / ARCHIVE_DIR).glob(_ARCHIVES))]
        except OSError as error:
            raise storage_error(error, f"cannot read {self._root}") from error
        style = resources.files("dhtcrawl.export.report").joinpath("report.css").read_text("utf-8")
        subject = Subject(
            name=name,
            tally=self._tally,
            summary=self._summary,
            archives=archives,
            unreadable=self.unreadable,
            made=made,
        )
        return page(subject, style)

    def _objects(self, name: str, is_one: Callable[[Fields], bool], stack: ExitStack) -> Iterator[Fields]:
        """The objects of a file's lines that are such; the others are counted."""
        for line in WholeLines(self._root / name, stack):
            fields = object_of(line)
            if fields is not None and is_one(fields):
                yield fields
            else:
                self.unreadable[name] += 1

    def _leave_out_an_old_summary(self) -> None:
        """The crawl has gone on since: pages come while a run is at work, a summary last."""
        told = None if self._summary is None else self._summary.get("pages")
        if isinstance(told, int) and self.pages + self.unreadable[_PAGES] > told:
            self._summary = {}
