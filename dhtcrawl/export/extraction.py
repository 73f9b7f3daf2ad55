"""The records of the pages that a crawl has archived, by rules that it did not have, or has not any more.

The pages are read once more, in pieces of some dozens, by as many processes as are asked for. What a piece brought is
noted in a journal beside the records (`extraction_journal`) before the next one counts, so that what was interrupted
goes on where it was. The records are put in place when all pages have been read, at once for each file, as at the end
of a crawl.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from dhtcrawl.config import Config
from dhtcrawl.crawl.analysis import page_html
from dhtcrawl.crawl.record_finder import found_on
from dhtcrawl.crawl.recovery import parse_head
from dhtcrawl.errors import StorageError
from dhtcrawl.export.collection import Collection, read_response
from dhtcrawl.export.extraction_journal import UNFINISHED, BroughtPage, Journal, alone_in
from dhtcrawl.export.form import ProblemReport
from dhtcrawl.export.places import ResponsePlace
from dhtcrawl.export.workers import in_processes
from dhtcrawl.extract.rules_file import RuleFile, read
from dhtcrawl.storage.outputs.outputs import (
    ARCHIVE_DIR,
    INDEX_FILE,
    INDEXES_DIR,
    PAGES_DIR,
    PAGES_FILE,
    REPORTS_DIR,
    SUMMARY_FILE,
)
from dhtcrawl.storage.outputs.record_files import RECORDS_DIR, RecordFiles
from dhtcrawl.storage.store.files import DiskDirectory

PIECE_PAGES: Final = 64


class _ToRead(NamedTuple):
    """What a process needs to know of a page."""

    url: str
    status: int
    fetched_at: str
    member: ResponsePlace


@dataclass(slots=True)
class ExtractReport(ProblemReport):
    """What became of the pages; a problem is a page that could not be read."""

    pages: int = 0  # that rules were for
    without_body: int = 0  # the same, but what the site answered is not in the archive
    unreadable_lines: int = 0  # of pages.jsonl
    records: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)

    @property
    def is_whole(self) -> bool:
        """Whether all pages could be read."""
        return not (self.problems_total or self.without_body or self.unreadable_lines)


def extract_records(
    collection: Collection, rules: str, processes: int, progress: Callable[[int], None]
) -> ExtractReport:
    """Write the records of a collection's pages by the text of a file of rules, which was checked.

    `progress` is told how many pages were read so far. With one process this one reads them.

    Raises:
        UsageError: another extraction is at work in the same directory.
        DhtcrawlError: a process was killed; the same call goes on from there.
        StorageError: the records cannot be written, or no page can be read: those that are there stay.
    """
    report = ExtractReport()
    records_dir, reports_dir = (
        DiskDirectory(collection.root / RECORDS_DIR),
        DiskDirectory(collection.root / REPORTS_DIR),
    )
    with ExitStack() as stack:
        stack.enter_context(alone_in(collection.root))
        parsed = read("--rules", rules)
        files = RecordFiles(collection.root, stack, {rule.name for rule in parsed.rules})
        journal = collection.root / RECORDS_DIR / f"{UNFINISHED}{_mark(collection, rules)}"
        noted = stack.enter_context(closing(Journal(journal)))
        pieces = enumerate(_pieces(_pages_for(collection, parsed, report)))
        for brought in noted.with_new(_read_all(collection.root, rules, noted.missing(pieces), processes, stack)):
            for page in brought:
                if page.problem:
                    report.problem(page.problem)
                elif page.found:
                    files.add(page.url, page.fetched_at, page.found)
            report.pages += len(brought)
            progress(report.pages)
        report.unreadable_lines = collection.unreadable_lines
        if not report.is_whole and report.pages == report.problems_total:
            journal.unlink(missing_ok=True)
            raise _nothing_read(collection.root, report)
        files.write(rules, records_dir, reports_dir)
        report.records, report.rejected = files.records, files.rejected
        _count_in_summary(collection, report)
        for path in (collection.root / RECORDS_DIR).glob(f"{UNFINISHED}*"):
            path.unlink(missing_ok=True)
    return report


def _nothing_read(root: Path, report: ExtractReport) -> StorageError:
    if report.problems:
        why = report.problems[0]
    elif report.without_body:
        why = f"the bodies of {report.without_body} are not in {root / ARCHIVE_DIR}"
    else:
        why = f"{report.unreadable_lines} lines of {root / PAGES_DIR / PAGES_FILE} are none"
    return StorageError(
        f"no page that the rules are for can be read in {root}: {why}; restore its files, or gather the crawl again "
        "(records that are there stay)"
    )


def _mark(collection: Collection, rules: str) -> str:
    """What tells one extraction from another: where pages or places of bodies have changed, a piece has other pages."""
    told: list[object] = [rules, sorted(collection.archives.items())]
    for path in (collection.root / PAGES_DIR / PAGES_FILE, collection.root / INDEXES_DIR / INDEX_FILE):
        if path.exists():
            status = path.stat()
            told.append((status.st_size, status.st_mtime_ns))
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def _pages_for(collection: Collection, rules: RuleFile, report: ExtractReport) -> Iterator[_ToRead]:
    """The pages that may have records; those without a body are counted."""
    for page in collection.pages():
        if page.is_html and rules.rules_of(page.url):
            if page.member is None:
                report.without_body += 1
            else:
                yield _ToRead(page.url, page.status, str(page.fields["fetched_at"]), page.member)


def _pieces(pages: Iterator[_ToRead]) -> Iterator[list[_ToRead]]:
    while piece := list(islice(pages, PIECE_PAGES)):
        yield piece


def _read_all(
    root: Path, rules: str, pieces: Iterator[tuple[int, list[_ToRead]]], processes: int, stack: ExitStack
) -> Iterator[tuple[int, list[BroughtPage]]]:
    """What the pieces bring, in any order, with no more of them in memory than the processes need."""
    first = list(islice(pieces, 2))
    if processes == 1 or len(first) < 2:  # a single piece is read before a process has begun
        for number, piece in chain(first, pieces):
            yield number, _read_piece(root, rules, piece)
        return
    yield from in_processes(partial(_read_piece, root, rules), chain(first, pieces), processes, stack)


def _read_piece(root: Path, rules: str, piece: list[_ToRead]) -> list[BroughtPage]:
    """In a process of its own, as a rule."""
    read_rules = _rules_of(rules)
    return [_brought(root, read_rules, page) for page in piece]


@lru_cache(maxsize=1)
def _rules_of(rules: str) -> RuleFile:
    return read("--rules", rules)


def _brought(root: Path, rules: RuleFile, page: _ToRead) -> BroughtPage:
    html_bytes_max = Config().fetch.html_bytes_max
    try:
        # By one byte more it is seen that something is cut off.
        record = read_response(root, page.member, html_bytes_max + 1)
    except StorageError as error:
        return BroughtPage(page.url, page.fetched_at, "", str(error))
    html = page_html(page.status, parse_head(record.head), record.payload, html_bytes_max=html_bytes_max)
    return BroughtPage(
        page.url,
        page.fetched_at,
        "" if html is None else found_on(rules.rules_of(page.url), page.url, *html).stored,
        "",
    )


def _count_in_summary(collection: Collection, report: ExtractReport) -> None:
    """Say in summary.json, if there is one, what the directory has now."""
    summary: dict[str, Any] = collection.summary()
    if summary:
        counted = {"records": dict(sorted(report.records.items())), "rejected": dict(sorted(report.rejected.items()))}
        text = json.dumps({**summary, **counted}, indent=2, ensure_ascii=False)
        DiskDirectory(collection.root).replace(SUMMARY_FILE, [text.encode("utf-8", "replace") + b"\n"])
