"""Reads what a crawl wrote into a report: pages.jsonl, skipped.jsonl and summary.json, and the sizes of its archive."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from importlib import resources
from pathlib import Path

from dhtcrawl.export.lines import SUMMARY_BYTES_MAX, Fields, WholeLines, is_page, is_skip, object_of
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
            self._summary = self._read_summary()
            with ExitStack() as stack:
                for line in WholeLines(self._root / _PAGES, stack):
                    fields = object_of(line)
                    if fields is not None and is_page(fields):
                        self._tally.page(fields)
                    else:
                        self.unreadable[_PAGES] += 1
                for line in WholeLines(self._root / _SKIPPED, stack):
                    fields = object_of(line)
                    if fields is not None and is_skip(fields):
                        self._tally.skip(fields)
                    else:
                        self.unreadable[_SKIPPED] += 1
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

    def _read_summary(self) -> Fields | None:
        """The fields of summary.json; empty where there is none, None where it is none that can be read."""
        try:
            with (self._root / SUMMARY_FILE).open("rb") as file:
                summary = object_of(file.read(SUMMARY_BYTES_MAX))
        except FileNotFoundError:
            return {}
        if summary is None:
            self.unreadable[SUMMARY_FILE] += 1
        return summary

    def _leave_out_an_old_summary(self) -> None:
        """The crawl has gone on since: pages come while a run is at work, a summary last."""
        told = None if self._summary is None else self._summary.get("pages")
        if isinstance(told, int) and self.pages + self.unreadable[_PAGES] > told:
            self._summary = {}
