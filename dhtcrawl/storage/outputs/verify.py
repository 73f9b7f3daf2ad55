"""Checks that the files in a crawl's output directory are sound and agree, for `dhtcrawl verify DIR`.

Every archive member is read and its digests recomputed; every index line must point
at a record with its URL and digest; every page must be there once, with all its
fields, its payload in the archive and a line in the index; the summary must count what
the files hold. The check does not read the store, so that it works on copied outputs,
and changes nothing.

Memory: two 64-bit marks a page at any time, in three Python sets about 250 bytes. A mark
is a part of a SHA-1: two different things get the same one with a chance of one in
2**64. Blocks; not for the event loop.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dhtcrawl.errors import ConfigError, StorageError
from dhtcrawl.storage.archive.warcscan import GzipMember, scan
from dhtcrawl.storage.outputs.cdxj import surt
from dhtcrawl.storage.outputs.outputs import (
    ARCHIVE_DIR,
    INDEXES_DIR,
    MISSING_FILE,
    PAGES_DIR,
    REPORTS_DIR,
    SKIPPED_FILE,
    SUMMARY_FILE,
)
from dhtcrawl.storage.outputs.record_files import (
    NUMBER,
    RECORDS_DIR,
    REJECTED_FILE,
    RULES_FILE,
    URL,
    begins_as_records,
    order_of,
    record_files,
)
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.store.outcomes import is_content
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.toml_file import TomlFile

PROBLEMS_KEPT_MAX = 1_000
LINE_BYTES_MAX = 1024 * 1024

# docs/outputs.md lists both.
PAGE_FIELDS = (
    "url",
    "status",
    "depth",
    "referrer",
    "final_url",
    "content_type",
    "charset",
    "title",
    "bytes",
    "payload_digest",
    "fetched_at",
    "node",
    "error",
)
# Fields of a summary that earlier versions did not write.
_SINCE = ("pages_undercopied", "copies", "pages_ok", "errors_by_kind", "plans", "records", "rejected")
SUMMARY_FIELDS = tuple(name for name in Summary._fields if name not in _SINCE)
# What each is summed from.
_IN_PAGES = "the lines of pages/ come to"
_SUMMED = {
    **dict.fromkeys(("pages_ok", "redirects", "bytes"), _IN_PAGES),
    "errors": f"those of pages/ and of {REPORTS_DIR}/{SKIPPED_FILE} come to",
}

_PAGES, _INDEXES = f"{PAGES_DIR}/*.jsonl", f"{INDEXES_DIR}/*.cdxj"
_INDEX_FIELDS = ("url", "status", "digest", "length", "offset", "filename")
_INDEXED = ("response", "revisit")


@dataclass(slots=True)
class VerifyCounters:
    """Counts of what was read."""

    archives: int = 0
    records: int = 0
    responses: int = 0
    payload_bytes: int = 0
    index_lines: int = 0
    pages: int = 0
    skipped: int = 0
    extracted: int = 0  # lines of records/


@dataclass(slots=True)
class VerifyReport:
    """The result of a check; `problems` keeps the first `PROBLEMS_KEPT_MAX` of `problems_total`."""

    counters: VerifyCounters = field(default_factory=VerifyCounters)
    problems: list[str] = field(default_factory=list)
    problems_total: int = 0

    @property
    def ok(self) -> bool:
        return self.problems_total == 0

    def problem(self, place: str, what: str) -> None:
        self.problems_total += 1
        if len(self.problems) < PROBLEMS_KEPT_MAX:
            self.problems.append(f"{place}: {what}")


def verify(out: Path, report: VerifyReport | None = None) -> VerifyReport:
    """Check the outputs under `out`; a `report` that is given grows meanwhile, for those who want to see how far it is.

    Raises:
        StorageError: `out` does not hold a crawl's outputs.
    """
    if not any((out / name).exists() for name in (ARCHIVE_DIR, PAGES_DIR, SUMMARY_FILE)):
        raise StorageError(f"{out} holds no crawl: name the directory that was given to --out")
    report = VerifyReport() if report is None else report
    # The payloads and records that pages and index lines name are marked first, and unmarked
    # as the archive is read; those that stay marked are then looked up again for the report.
    sums: Counter[str] = Counter()
    payloads = _read_pages(out, report, sums)
    unindexed = payloads.copy()
    places = _read_indexes(out, report, unindexed)
    _read_archives(out, report, payloads, places)
    if payloads:
        _name_pages_without_payload(out, report, payloads)
        unindexed -= payloads
    if unindexed:
        _name_pages_without_line(out, report, unindexed)
    if places:
        _name_lines_without_record(out, report, places)
    reasons = _read_reasons(out, SKIPPED_FILE, report)
    rejected = _read_reasons(out, REJECTED_FILE, report)
    sums["errors"] += reasons[SkipReason.FAILED]
    records = _read_records(out, report)
    if records:
        _read_rules(out, report, records)
    _read_summary(out, report, reasons, rejected, _read_missing(out, report), records, sums)
    return report


def _read_pages(out: Path, report: VerifyReport, sums: Counter[str]) -> set[int]:
    """Check each line of pages.jsonl; return the marks of all (URL, payload digest) that the archive must hold.

    `sums` are those of the lines, by the summary's names.
    """
    urls: set[int] = set()
    payloads: set[int] = set()
    for place, page in _objects(out, _PAGES, report):
        report.counters.pages += 1
        missing = [name for name in PAGE_FIELDS if name not in page]
        if missing:
            report.problem(place, f"no field {', '.join(missing)}")
        _count(sums, page.get("status"), page.get("bytes"))
        url, digest = page.get("url"), page.get("payload_digest")
        if not isinstance(url, str) or not url:
            report.problem(place, "url is not a string")
            continue
        mark = _mark(url)
        if mark in urls:
            report.problem(place, f"{url} is there twice")
        urls.add(mark)
        if isinstance(digest, str):
            payloads.add(_mark(url, digest))
        elif digest is not None or page.get("error") is None:
            report.problem(place, f"{url} has neither a payload_digest nor an error")
    return payloads


def _count(sums: Counter[str], status: object, size: object) -> None:
    if isinstance(status, int):
        sums["pages_ok" if is_content(status) else "redirects" if status < 400 else "errors"] += 1
    if isinstance(size, int):
        sums["bytes"] += size


def _read_indexes(out: Path, report: VerifyReport, unindexed: set[int]) -> set[int]:
    """Check each index line; return the marks of the records that must be in the archive.

    The (URL, payload digest) of a line is taken out of `unindexed`.
    """
    places: set[int] = set()
    for path in sorted(out.glob(_INDEXES)):
        before = b""
        for place, line in _lines(out, path, report):
            report.counters.index_lines += 1
            mark = _index_mark(line, unindexed)
            if line <= before:
                report.problem(place, "the same line twice" if line == before else "not sorted")
            elif isinstance(mark, int) and mark in places:
                report.problem(place, "its record is indexed twice")
            if isinstance(mark, str):
                report.problem(place, mark)
            else:
                places.add(mark)
            before = line
    return places


def _index_mark(line: bytes, unindexed: set[int]) -> int | str:
    """The mark of the record that a line points at, or the problem with the line."""
    parts = line.split(b" ", 2)
    entry = _object(parts[2]) if len(parts) == 3 else None
    if entry is None or not all(isinstance(entry.get(name), str) for name in _INDEX_FIELDS):
        return f"not a CDXJ line with {', '.join(_INDEX_FIELDS)}"
    url = entry["url"]
    if parts[0] != surt(url).encode("utf-8", "surrogatepass"):
        return f"its key is not that of {url}"
    unindexed.discard(_mark(url, entry["digest"]))
    timestamp = parts[1].decode("ascii", "replace")
    return _mark(entry["filename"], entry["offset"], entry["length"], url, timestamp, entry["digest"])


def _read_archives(out: Path, report: VerifyReport, payloads: set[int], places: set[int]) -> None:
    for path in sorted(out.glob(f"{ARCHIVE_DIR}/*.warc.gz")):
        report.counters.archives += 1
        name = f"{ARCHIVE_DIR}/{path.name}"
        try:
            with path.open("rb") as stream:
                for member in scan(stream):
                    _check_member(report, name, member)
                    if member.type in _INDEXED:
                        digest = _payload_digest(member)
                        payloads.discard(_mark(member.url, digest))
                        places.discard(_place_mark(path.name, member, digest))
        except OSError as error:
            report.problem(name, f"cannot be read: {error.strerror}")


def _check_member(report: VerifyReport, name: str, member: GzipMember) -> None:
    report.counters.records += 1
    if member.type in _INDEXED:
        report.counters.responses += 1
        report.counters.payload_bytes += member.payload_size
    if member.offset == 0 and member.type != "warcinfo":
        report.problem(f"{name} at 0", "the file does not begin with a warcinfo record")
    for problem in member.problems:
        report.problem(f"{name} at {member.offset}", problem)


def _payload_digest(member: GzipMember) -> str:
    # A revisit has no payload of its own.
    return member.headers.get("warc-payload-digest", "") if member.type == "revisit" else member.payload_digest


def _place_mark(filename: str, member: GzipMember, digest: str) -> int:
    timestamp = "".join(char for char in member.headers.get("warc-date", "") if char.isdigit())
    return _mark(filename, str(member.offset), str(member.length), member.url, timestamp, digest)


def _name_pages_without_payload(out: Path, report: VerifyReport, payloads: set[int]) -> None:
    for place, page in _objects(out, _PAGES, VerifyReport()):
        url, digest = page.get("url"), page.get("payload_digest")
        if isinstance(url, str) and isinstance(digest, str) and _mark(url, digest) in payloads:
            report.problem(place, f"{url} with {digest} is not in the archive")


def _name_pages_without_line(out: Path, report: VerifyReport, unindexed: set[int]) -> None:
    """One problem for all where the last run has not ended: the index is that of the run before."""
    if not _fits(out, report.counters.pages):
        report.problem(f"{INDEXES_DIR}/", f"{len(unindexed)} pages have no line: they came after it was written")
        return
    for place, page in _objects(out, _PAGES, VerifyReport()):
        url, digest = page.get("url"), page.get("payload_digest")
        if isinstance(url, str) and isinstance(digest, str) and _mark(url, digest) in unindexed:
            report.problem(place, f"{url} has no line in {INDEXES_DIR}/")


def _fits(out: Path, pages: int) -> bool:
    """Whether there is a summary, of so many pages."""
    return _summary_of(out).get("pages") == pages


def _summary_of(out: Path) -> dict[str, Any]:
    """The fields of the summary; empty where there is none that can be read."""
    try:
        return _object((out / SUMMARY_FILE).read_bytes()) or {}
    except OSError:
        return {}


def _name_lines_without_record(out: Path, report: VerifyReport, places: set[int]) -> None:
    for path in sorted(out.glob(_INDEXES)):
        for place, line in _lines(out, path, VerifyReport()):
            if _index_mark(line, set()) in places:
                report.problem(place, "no record of that URL, time and digest lies where it points")


def _read_reasons(out: Path, name: str, report: VerifyReport) -> Counter[str]:
    """How often each reason stands in a report whose lines have a URL and a reason."""
    reasons: Counter[str] = Counter()
    for place, row in _objects(out, f"{REPORTS_DIR}/{name}", report):
        report.counters.skipped += name == SKIPPED_FILE
        url, reason = row.get("url"), row.get("reason")
        if not (isinstance(url, str) and url and isinstance(reason, str) and reason):
            report.problem(place, "needs a url and a reason")
        else:
            reasons[reason] += 1
    return reasons


def _read_missing(out: Path, report: VerifyReport) -> int:
    """Report each fetched page whose body is missing as a problem; return how many there are."""
    count = 0
    for place, row in _objects(out, f"{REPORTS_DIR}/{MISSING_FILE}", report):
        count += 1
        where = f"look for {row.get('file')} at node {row.get('node')}"
        report.problem(place, f"{row.get('url')} was fetched, but its body is not here: {where}")
    return count


def _read_records(out: Path, report: VerifyReport) -> Counter[str]:
    """Check that each record of a rule is there once; return how many each rule has.

    What has no records of pages is a person's own, unless the summary counts it.
    """
    counts: Counter[str] = Counter()
    counted = _summary_of(out).get("records")
    for path in record_files(out):
        if not (isinstance(counted, dict) and path.stem in counted) and not _may_have_records(path):
            continue
        before = b""
        for place, row in _objects(out, f"{RECORDS_DIR}/{path.name}", report):
            counts[path.stem] += 1
            report.counters.extracted += 1
            url, number = row.get(URL), row.get(NUMBER)
            if not (isinstance(url, str) and url and isinstance(number, int)):
                report.problem(place, f"needs {URL} and {NUMBER}")
                continue
            order = order_of(url, number)
            if order <= before:
                report.problem(place, "the same record twice" if order == before else "not sorted")
            before = order
    return counts


def _read_rules(out: Path, report: VerifyReport, records: Counter[str]) -> None:
    """Check that the rules of the records are there: `dhtcrawl export` has the columns and their types from them."""
    place = f"{RECORDS_DIR}/{RULES_FILE}"
    try:
        rules = TomlFile("the file", (out / place).read_text("utf-8", "replace")).root.tables("rules")
        names = {rule.read("name", str) for rule in rules}
    except FileNotFoundError:
        report.problem(place, "missing: put the file of rules there, or take the records anew by 'dhtcrawl extract'")
    except OSError as error:
        report.problem(place, f"cannot be read: {error.strerror}")
    except ConfigError as error:
        report.problem(place, f"no rules: {error}")
    else:
        lacking = sorted(records.keys() - names)
        if lacking:
            report.problem(place, f"no rule {', '.join(lacking)}, of which there are records")


def _may_have_records(path: Path) -> bool:
    try:
        return begins_as_records(path)
    except OSError:
        return True  # which is told where it is read


def _read_summary(
    out: Path,
    report: VerifyReport,
    reasons: Counter[str],
    rejected: Counter[str],
    bodies_missing: int,
    extracted: Counter[str],
    sums: Counter[str],
) -> None:
    path = out / SUMMARY_FILE
    try:
        summary = _object(path.read_bytes())
    except FileNotFoundError:
        report.problem(SUMMARY_FILE, "missing: the crawl has not ended; run the same command again")
        return
    except OSError as error:
        report.problem(SUMMARY_FILE, f"cannot be read: {error.strerror}")
        return
    if summary is None:
        report.problem(SUMMARY_FILE, "not a JSON object")
        return
    missing = [name for name in SUMMARY_FIELDS if name not in summary]
    if missing:
        report.problem(SUMMARY_FILE, f"no field {', '.join(missing)}")
    if "pages" in summary and summary["pages"] != report.counters.pages:
        report.problem(SUMMARY_FILE, f"pages is {summary['pages']!r}, but pages/ has {report.counters.pages} lines")
    else:  # or it is that of another run, and no sum fits
        _compare_sums(report, summary, sums)
    if "pages_missing" in summary and summary["pages_missing"] != bodies_missing:
        report.problem(
            SUMMARY_FILE, f"pages_missing is {summary['pages_missing']!r}, but reports/ lists {bodies_missing}"
        )
    # A reason that never occurred may be listed with 0, or left out.
    skipped = summary.get("skipped", {})
    if not isinstance(skipped, dict) or {name: n for name, n in skipped.items() if n != 0} != reasons:
        report.problem(SUMMARY_FILE, f"skipped is {skipped!r}, but the report counts {dict(reasons)!r}")
    records = summary.get("records", {})  # earlier versions have none
    if records != extracted:
        report.problem(SUMMARY_FILE, f"records is {records!r}, but {RECORDS_DIR}/ has {dict(extracted)!r}")
    if summary.get("rejected", rejected) != rejected:
        name = f"{REPORTS_DIR}/{REJECTED_FILE}"
        report.problem(SUMMARY_FILE, f"rejected is {summary['rejected']!r}, but {name} has {dict(rejected)!r}")


def _compare_sums(report: VerifyReport, summary: dict[str, Any], sums: Counter[str]) -> None:
    for name, where in _SUMMED.items():
        if name in summary and summary[name] != sums[name]:
            report.problem(SUMMARY_FILE, f"{name} is {summary[name]!r}, but {where} {sums[name]}")


def _objects(out: Path, pattern: str, report: VerifyReport) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(out.glob(pattern)):
        for place, line in _lines(out, path, report):
            value = _object(line)
            if value is None:
                report.problem(place, "not a JSON object")
            else:
                yield place, value


def _lines(out: Path, path: Path, report: VerifyReport) -> Iterator[tuple[str, bytes]]:
    """Yield each line of a file without its newline, with its place for the report."""
    name = path.relative_to(out).as_posix()
    number = 0
    try:
        with path.open("rb") as stream:
            while line := stream.readline(LINE_BYTES_MAX):
                number += 1
                place = f"{name}:{number}"
                if line.endswith(b"\n"):
                    yield place, line[:-1]
                    continue
                report.problem(place, "cut off" if len(line) < LINE_BYTES_MAX else f"over {LINE_BYTES_MAX} bytes")
                while line and not line.endswith(b"\n"):
                    line = stream.readline(LINE_BYTES_MAX)
    except OSError as error:
        report.problem(name, f"cannot be read: {error.strerror}")


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = _JSON.decode(text.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_no_constant)


def _mark(*parts: str) -> int:
    text = "\n".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha1(text, usedforsecurity=False).digest()[:8])
