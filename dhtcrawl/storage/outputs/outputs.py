"""Writes the outputs that people read, as a function of the store's records.

pages.jsonl, index.cdxj and skipped.jsonl are written whole at the end of every run
and replace the old ones atomically, so that no line stands in them twice, whatever
crashed before. While a crawl runs, `LivePages` adds lines for people who watch.
Runs on the committer's thread, in bounded memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.archive.archive import lengths
from dhtcrawl.storage.outputs import cdxj
from dhtcrawl.storage.outputs.found_by import FoundBy
from dhtcrawl.storage.outputs.record_files import (
    RECORDS_DIR,
    REJECTED_FILE,
    RULES_FILE,
    RecordFiles,
    count_there,
)
from dhtcrawl.storage.outputs.sorting import Sorter
from dhtcrawl.storage.outputs.stored_records import stored_records
from dhtcrawl.storage.store import keys, outcomes
from dhtcrawl.storage.store.files import AppendFile, Directory, DiskDirectory, MemoryDirectory
from dhtcrawl.storage.store.records import (
    DEPTH_LIMIT,
    Place,
    SkippedLink,
    SkipReason,
    State,
    shown_task,
    unpack,
    unpack_task,
)
from dhtcrawl.storage.store.tasks import link_keys_of
from dhtcrawl.storage.store.txn import Txn

ARCHIVE_DIR, PAGES_DIR, INDEXES_DIR, REPORTS_DIR = "archive", "pages", "indexes", "reports"
PAGES_FILE, INDEX_FILE, SKIPPED_FILE, SUMMARY_FILE = "pages.jsonl", "index.cdxj", "skipped.jsonl", "summary.json"
NODES_NAMED_MAX = 4_096  # as many as a swarm has; members could name any number
MISSING_FILE = "missing.jsonl"  # only if a body is missing
# All that is written besides the archive, under a crawl's directory.
OUTPUT_FILES = (
    f"{PAGES_DIR}/{PAGES_FILE}",
    f"{INDEXES_DIR}/{INDEX_FILE}",
    f"{REPORTS_DIR}/{SKIPPED_FILE}",
    f"{REPORTS_DIR}/{MISSING_FILE}",
    f"{REPORTS_DIR}/{REJECTED_FILE}",
    f"{RECORDS_DIR}/{RULES_FILE}",
    SUMMARY_FILE,
)
KNOWN_KEYS_MAX = 50_000  # that the audit of links remembers; some 5 MB
# Fields of a page record for the index, for gathering and for sending links again, not for pages.jsonl.
_HIDDEN = frozenset(("place", "mime", "copy", "query_charset", "records", DEPTH_LIMIT))
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class OutputDirs(NamedTuple):
    """The directories of a crawl's outputs.

    With `gathered` only the archive is written: the command that runs this node gathers the rest from all nodes.
    """

    root: Directory
    archive: Directory
    indexes: Directory
    pages: Directory
    reports: Directory
    records: Callable[[], Directory]  # made where there are some
    scratch: Path | None  # for sorting more lines than fit into memory
    gathered: bool = False

    @classmethod
    def on_disk(cls, out: Path, *, gathered: bool = False) -> OutputDirs:
        """The directories below `out`, created if they are missing.

        Raises:
            StorageError: one cannot be created.
        """
        return cls(
            DiskDirectory(out),
            DiskDirectory(out / ARCHIVE_DIR),
            DiskDirectory(out / INDEXES_DIR),
            DiskDirectory(out / PAGES_DIR),
            DiskDirectory(out / REPORTS_DIR),
            partial(DiskDirectory, out / RECORDS_DIR),
            out,
            gathered,
        )

    @classmethod
    def in_memory(cls) -> OutputDirs:
        """Directories in memory, for tests and the simulator."""
        root, archive, indexes, pages, reports, records = (MemoryDirectory() for _ in range(6))
        return cls(root, archive, indexes, pages, reports, lambda: records, None)


@dataclass(slots=True)
class OutputCounters:
    """Counts of what the outputs hold, taken while they were written."""

    pages: int = 0
    pages_ok: int = 0  # those that are neither a redirect nor an error
    redirects: int = 0
    errors: int = 0
    bytes: int = 0
    urls_seen: int = 0
    pending: int = 0
    unsettled: int = 0
    brought: int = 0  # tasks that are fetched or done; equals `pages` unless the store is damaged
    lost: int = 0
    pages_missing: int = 0  # fetched pages whose body is not in the archive
    missing_at: set[str] = field(default_factory=set)  # the nodes that have, or had, these bodies
    skipped: Counter[str] = field(default_factory=Counter)
    errors_by_kind: Counter[str] = field(default_factory=Counter)  # by `outcomes.ERROR_KINDS`
    records: Counter[str] = field(default_factory=Counter)  # by rule
    rejected: Counter[str] = field(default_factory=Counter)  # by reason

    def error(self, kind: str) -> None:
        """Count an error."""
        self.errors += 1
        self.errors_by_kind[kind] += 1

    def missing(self, place: Place | None) -> None:
        """Count a body that is not here."""
        self.pages_missing += 1
        if place is not None and len(self.missing_at) < NODES_NAMED_MAX:
            self.missing_at.add(place.node)


def page_line(fields: dict[str, Any]) -> bytes:
    """One line of pages.jsonl."""
    return _json_line({name: value for name, value in fields.items() if name not in _HIDDEN})


class LivePages:
    """Appends to pages.jsonl while a crawl runs; the file is written anew at the end of the run.

    Where the outputs are gathered from here, nothing is shown.
    """

    def __init__(self, dirs: OutputDirs) -> None:
        self.shown = not dirs.gathered
        self._directory = dirs.pages
        self._file: AppendFile | None = None

    def append(self, pages: Iterable[dict[str, Any]]) -> None:
        """Add lines for people to watch; not synced."""
        if self._file is None:
            self._file = self._directory.open(PAGES_FILE, None)
        self._file.append(b"".join(map(page_line, pages)))

    def close(self) -> None:
        """Close the file; called before it is replaced."""
        if self._file is not None:
            self._file.close()
            self._file = None


def write_outputs(
    txn: Txn,
    crawl: bytes,
    dirs: OutputDirs,
    *,
    spec: CrawlSpec,
    pending_reason: str,
    ours: Callable[[bytes], bool] | None = None,
    rules: Container[str] | None = None,
) -> OutputCounters:
    """Write pages.jsonl, index.cdxj and skipped.jsonl, and audit the crawl.

    With `ours` they are one node's part of a swarm's crawl: tasks that are not
    `ours` are left to the outputs of other nodes, and nothing is audited.

    Fetched pages whose body is not here are counted, and listed in
    missing.jsonl, which exists only then.

    `rules` are the names of those that the crawl has (`RecordFiles`).

    `pending_reason` is why pending tasks were not fetched, "" if the next run
    fetches them.

    Raises:
        StorageError: an output cannot be written; the old one stays.
    """
    totals = OutputCounters()
    archive = _committed(txn, crawl, dirs)
    found_by = FoundBy(txn, crawl, spec) if spec.searches else None
    with ExitStack() as files:
        pages, index = Sorter(dirs.scratch, files), Sorter(dirs.scratch, files)
        records = RecordFiles(dirs.scratch, files, rules)
        for fields in _records(txn, crawl, keys.PAGE):
            _count_page(totals, fields, archive)
            if found_by is not None:
                fields["searches"] = found_by.of(fields["url"])
            pages.add(_bytes(f"{fields['fetched_at']} {fields['url']}"), page_line(fields))
            _add_to_index(index, fields)
            found = stored_records(fields) if spec.rules else None
            if found is not None:
                records.add(fields["url"], fields["fetched_at"], found)
        for fields in _records(txn, crawl, keys.EXTRA):
            _add_to_index(index, fields)
        dirs.pages.replace(PAGES_FILE, pages.lines())
        dirs.indexes.replace(INDEX_FILE, index.lines())
        if spec.rules:
            records.write(spec.rules, dirs.records(), dirs.reports)
            totals.records, totals.rejected = records.records, records.rejected
        elif REJECTED_FILE in dirs.reports.names():  # `extract` was here: its records stay
            totals.records, totals.rejected = count_there(dirs.records(), dirs.reports)
    known: set[bytes] = set()
    skipped = _skipped_lines(txn, crawl, totals, spec, pending_reason, ours, known)
    _replace_sorted(dirs.reports, SKIPPED_FILE, skipped, dirs.scratch)
    if ours is not None:
        return totals
    totals.lost = count_lost(txn, crawl, spec.keys.width, known)
    if totals.pages_missing or totals.brought != totals.pages:
        _replace_sorted(dirs.reports, MISSING_FILE, _missing_lines(txn, crawl, totals, archive), dirs.scratch)
    else:
        dirs.reports.remove(MISSING_FILE)
    return totals


def count_lost(
    txn: Txn, crawl: bytes, key_bytes: int, known: set[bytes] | None = None, known_max: int = KNOWN_KEYS_MAX
) -> int:
    """Count the in-scope links of fetched pages that have no record at all: `lost` is counted, not assumed.

    `known` are keys of records that were just read; up to `known_max` are kept there.
    """
    lost: set[bytes] = set()
    known = set() if known is None else known
    for _, value in txn.rows(keys.LINKS, crawl):
        keys_here = link_keys_of(value, key_bytes)
        if known.issuperset(keys_here):
            continue  # most pages, without a set of their keys
        doubtful = list(set(keys_here) - known)
        found = txn.get_many([keys.TASK + crawl + key for key in doubtful])
        for key, record in zip(doubtful, found, strict=True):
            if record is None:
                lost.add(key)
            elif len(known) < known_max:
                known.add(key)
    return len(lost)


def _committed(txn: Txn, crawl: bytes, dirs: OutputDirs) -> dict[str, int]:
    present = set(dirs.archive.names())
    return {name: length for name, length in lengths(txn, crawl).items() if name in present}


def _records(txn: Txn, crawl: bytes, kind: bytes) -> Iterator[Any]:
    for _, value in txn.rows(kind, crawl):
        yield unpack(value)


def _count_page(totals: OutputCounters, fields: dict[str, Any], archive: dict[str, int]) -> None:
    totals.pages += 1
    totals.bytes += fields["bytes"]
    status = fields["status"]
    totals.pages_ok += outcomes.is_content(status)
    totals.redirects += 300 <= status < 400
    if status >= 400:
        totals.error(outcomes.kind_of_status(status))
    place = Place(*fields["place"])
    if not _is_there(archive, place):
        totals.missing(place)


def _is_there(archive: dict[str, int], place: Place) -> bool:
    return place.offset + place.length <= archive.get(place.file, 0)


def _missing_lines(
    txn: Txn, crawl: bytes, totals: OutputCounters, archive: dict[str, int]
) -> Iterator[tuple[str, bytes]]:
    """Lines for the pages whose body is not here; pages without a page record are first counted here."""
    for fields in _records(txn, crawl, keys.PAGE):
        place = Place(*fields["place"])
        if not _is_there(archive, place):
            yield _missing(fields["url"], place)
    for key, value in txn.rows(keys.TASK, crawl):
        task = unpack_task(value)
        arrived = task.state in (State.FETCHED, State.DONE)
        if arrived and txn.get(keys.PAGE + crawl + key) is None:
            totals.missing(task.place)
            yield _missing(task.url, task.place)


def _missing(url: str, place: Place | None) -> tuple[str, bytes]:
    fields = {"url": url, "node": place.node if place else None, "file": place.file if place else None}
    return url, _json_line(fields)


def _add_to_index(index: Sorter, fields: dict[str, Any]) -> None:
    _, file, offset, length = fields["place"]
    line = cdxj.line(
        url=fields["url"],
        date=fields["fetched_at"],
        content_type=fields["mime"],
        status=fields["status"],
        digest=fields["payload_digest"],
        length=length,
        offset=offset,
        filename=file,
    ).encode("utf-8", "replace")
    index.add(line, line)


def _skipped_lines(
    txn: Txn,
    crawl: bytes,
    totals: OutputCounters,
    spec: CrawlSpec,
    pending_reason: str,
    ours: Callable[[bytes], bool] | None,
    known: set[bytes],
) -> Iterator[tuple[str, bytes]]:
    """The lines of skipped.jsonl. Puts the keys of all records into `known`, or none where these are too many."""
    yield from _skipped_tasks(txn, crawl, totals, pending_reason, ours, known)
    has_all = ours is None and totals.urls_seen <= KNOWN_KEYS_MAX
    for fields in _records(txn, crawl, keys.SKIPPED):
        link = SkippedLink(*fields)
        if link.reason != SkipReason.NOT_A_URL:
            key = spec.key_of(link.url)
            # Another page may have led to it after all, at a smaller depth or without nofollow.
            if key in known or not (has_all or txn.get(keys.TASK + crawl + key) is None):
                continue
        yield _skipped(totals, link)


def _skipped_tasks(
    txn: Txn,
    crawl: bytes,
    totals: OutputCounters,
    pending_reason: str,
    ours: Callable[[bytes], bool] | None,
    known: set[bytes],
) -> Iterator[tuple[str, bytes]]:
    for key, value in txn.rows(keys.TASK, crawl):
        if ours is not None and not ours(key):
            continue
        if totals.urls_seen < KNOWN_KEYS_MAX:
            known.add(key)
        else:
            known.clear()
        task = shown_task(value)
        totals.urls_seen += 1
        if task.state == State.DEAD:
            if task.reason == SkipReason.FAILED:
                totals.error(outcomes.kind_of_detail(task.detail))
            yield _skipped(totals, SkippedLink(task.url, task.reason, task.referrer), task.detail)
        elif task.state == State.PENDING:
            totals.pending += 1
            if pending_reason:
                yield _skipped(totals, SkippedLink(task.url, pending_reason, task.referrer))
        else:
            totals.brought += 1
            totals.unsettled += task.state == State.FETCHED


def _skipped(totals: OutputCounters, link: SkippedLink, detail: str = "") -> tuple[str, bytes]:
    totals.skipped[link.reason] += 1
    fields = {"url": link.url, "reason": link.reason, "referrer": link.referrer or None}
    return link.url, _json_line(fields | ({"detail": detail} if detail else {}))


def _json_line(fields: dict[str, Any]) -> bytes:
    return _json(fields).encode("utf-8", "replace") + b"\n"


def _bytes(text: str) -> bytes:
    """A sort key; in UTF-8 texts have the order of their code points."""
    return text.encode("utf-8", "surrogatepass")


def _replace_sorted(directory: Directory, name: str, lines: Iterable[tuple[str, bytes]], scratch: Path | None) -> None:
    with ExitStack() as files:
        sorter = Sorter(scratch, files)
        for key, line in lines:
            sorter.add(_bytes(key), line)
        directory.replace(name, sorter.lines())
