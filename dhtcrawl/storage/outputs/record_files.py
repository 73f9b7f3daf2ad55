"""Writes the records that rules found on the pages of a crawl, and what they rejected.

    records/RULE.jsonl        the records of a rule, sorted by page
    records/rules.toml        the rules
    reports/rejected.jsonl    what is no record, or has not all fields

What a page has stands in its page record (`crawl.record_finder` put it there), so that there is one line a record,
whichever nodes have fetched the page, and however often.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from dhtcrawl.storage.outputs.sorting import Sorter
from dhtcrawl.storage.store.files import Directory

RECORDS_DIR: Final = "records"
RULES_FILE: Final = "rules.toml"  # in it; beside the records
REJECTED_FILE: Final = "rejected.jsonl"  # only in a crawl with rules
# Of a record's line, besides its fields, whose names begin with a letter.
URL, NUMBER, FETCHED_AT = "_url", "_record", "_fetched_at"

# It names a file, and page records come from other nodes, too.
_RULE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

_REASON: Final = re.compile(r"[a-z-]{1,40}")
UNREADABLE: Final = "unreadable"
NUMBER_MAX: Final = 1_000_000
INTEGER_MAX: Final = 2**63 - 1
DEPTH_MAX: Final = 12  # of lists and nested records

_SUFFIX: Final = ".jsonl"
_BEGIN: Final = f'{{"{URL}":'.encode()  # of each line of a file of records
_BLOCK_BYTES: Final = 1 << 20

_decode = json.JSONDecoder().decode
_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def file_of_rule(rule: str) -> str:
    """The name of the file with the records of a rule."""
    return f"{rule}{_SUFFIX}"


def record_files(out: Path) -> list[Path]:
    """The files of records below a crawl's directory, and what else is called so there."""
    return sorted((out / RECORDS_DIR).glob(f"*{_SUFFIX}"))


def begins_as_records(path: Path) -> bool:
    """Whether a file has records of pages; else it is a person's own.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_BEGIN)) == _BEGIN


class RecordFiles:
    """Collects the records of pages, in any order, and writes them."""

    def __init__(self, scratch: Path | None, files: ExitStack, rules: Container[str] | None) -> None:
        """`scratch` is the directory for what does not fit into memory; `files` closes what is opened.

        `rules` are the names of the crawl's rules: page records of other nodes may have others, which are unreadable.
        None: nobody here can read the rules, and each name counts.
        """
        self._rules = rules
        self.records: Counter[str] = Counter()  # by rule
        self.rejected: Counter[str] = Counter()  # by reason
        self._records = Sorter(scratch, files)
        self._rejects = Sorter(scratch, files)

    def add(self, url: str, fetched_at: str, found: str) -> None:
        """Take what was found on a page, as its page record has it.

        Raises:
            StorageError: the disk failed, or is full.
        """
        try:
            records, rejects = _read(url, fetched_at, found)
            self._refuse_others(records, rejects)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            # What is none is told as such, and its page is not lost for it.
            records, rejects = [], [_reject(url, "", 0, "", UNREADABLE, "", False)]
        for rule, number, line in records:
            self._records.add(_key(rule, url, number), _bytes(f"{rule}\n{line}\n"))
            self.records[rule] += 1
        for rule, number, reason, line in rejects:
            self._rejects.add(_key(url, rule, number), _bytes(line + "\n"))
            self.rejected[reason] += 1

    def _refuse_others(self, *lines: list[tuple[Any, ...]]) -> None:
        for rule, *_ in (line for some in lines for line in some):
            if self._rules is not None and rule not in self._rules:
                raise ValueError(rule)

    def write(self, rules: str, records: Directory, reports: Directory) -> None:
        """Replace the files, by the text of the rules; those of rules that found nothing are removed.

        A file without records of pages is a person's own, and stays.

        Raises:
            StorageError: a file cannot be written; the old one stays.
        """
        records.replace(RULES_FILE, [rules.encode("utf-8", "replace")])
        names = set()
        for rule, lines in groupby(self._records.lines(), _rule_of):
            name = file_of_rule(rule.decode())
            names.add(name)
            records.replace(name, _without_rule(lines))
        for name in records.names():
            if name.endswith(_SUFFIX) and name not in names and _has_records(records, name):
                records.remove(name)
        reports.replace(REJECTED_FILE, self._rejects.lines())


def count_there(records: Directory, reports: Directory) -> tuple[Counter[str], Counter[str]]:
    """How many records by rule, and rejects by reason, are in the files that `RecordFiles` has left.

    Files without records of pages are a person's own, and do not count.

    Raises:
        StorageError: a file cannot be read.
    """
    by_rule: Counter[str] = Counter()
    for name in records.names():
        if name.endswith(_SUFFIX) and _has_records(records, name):
            by_rule[name.removesuffix(_SUFFIX)] += sum(1 for _ in _lines_of(records, name))
    by_reason: Counter[str] = Counter()
    for line in _lines_of(reports, REJECTED_FILE):
        try:
            by_reason[str(_decode(line.decode("utf-8", "replace"))["reason"])] += 1
        except (ValueError, KeyError, TypeError, RecursionError):
            by_reason[UNREADABLE] += 1
    return +by_rule, by_reason


def _has_records(records: Directory, name: str) -> bool:
    return records.read(name, 0, len(_BEGIN)) == _BEGIN


def _lines_of(directory: Directory, name: str) -> Iterator[bytes]:
    at, rest = 0, b""
    while block := directory.read(name, at, _BLOCK_BYTES):
        at += len(block)
        *lines, rest = (rest + block).split(b"\n")
        yield from lines


def order_of(url: str, number: int) -> bytes:
    """What the lines of a file of records are sorted by."""
    return _bytes(f"{url}\0{number:08}")


def _read(url: str, at: str, found: str) -> tuple[list[tuple[str, int, str]], list[tuple[str, int, str, str]]]:
    """The records and rejects of a page as lines, with what they are sorted and counted by; all of them or none.

    Raises:
        ValueError: they cannot be what a page has; so do KeyError, TypeError, RecursionError and OverflowError.
    """
    fields = _decode(found)
    records: dict[tuple[str, int], str] = {}
    for rule, number, values in fields["records"]:
        _check(rule, number, at_least=1)
        if (rule, number) in records:
            raise ValueError("twice")
        ours = {URL: url, NUMBER: number, FETCHED_AT: at}
        records[rule, number] = _json({**ours, **{name: _sound(value, 0) for name, value in values.items()}, **ours})
    rejects = []
    for rule, number, field, reason, shown, kept in fields["rejects"]:
        _check(rule, number, at_least=0)
        if not (isinstance(field, str) and isinstance(shown, str) and isinstance(kept, bool)):
            raise ValueError(rule)
        if not (isinstance(reason, str) and _REASON.fullmatch(reason)):
            raise ValueError(rule)
        rejects.append(_reject(url, rule, number, field, reason, shown, kept))
    return [(*place, line) for place, line in records.items()], rejects


def _reject(
    url: str, rule: str, number: int, field: str, reason: str, shown: str, kept: bool
) -> tuple[str, int, str, str]:
    """A line of rejects, behind what it is sorted and counted by."""
    line = {
        "url": url,
        "rule": rule,
        "record": number,
        "field": field,
        "reason": reason,
        "found": shown,
        "kept": kept,
    }
    return rule, number, reason, _json(line)


def _check(rule: str, number: object, *, at_least: int) -> None:
    """Whether a record can have such a rule and number.

    Raises:
        ValueError: it cannot.
    """
    if not _RULE.fullmatch(rule) or type(number) is not int or not at_least <= number <= NUMBER_MAX:
        raise ValueError(rule)


def _sound(value: Any, depth: int) -> Any:
    """A value that extraction can have found.

    Raises:
        ValueError: it cannot.
    """
    if isinstance(value, list) and depth <= DEPTH_MAX:
        return [_sound(each, depth + 1) for each in value]
    if isinstance(value, dict) and depth <= DEPTH_MAX:
        return {name: _sound(each, depth + 1) for name, each in value.items()}
    plain = value is None or isinstance(value, str | bool) or (isinstance(value, float) and math.isfinite(value))
    if plain or (type(value) is int and abs(value) <= INTEGER_MAX):
        return value
    raise ValueError("no value")


def _key(first: str, second: str, number: int) -> bytes:
    return _bytes(f"{first}\0{second}\0{number:08}")


def _rule_of(line: bytes) -> bytes:
    return line[: line.index(b"\n")]


def _without_rule(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line[line.index(b"\n") + 1 :]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
