"""The records of a rule as a table: columns with the types that the rules declare, and the rows.

A number is whole where all of its column are, a date has a time where one has: that is seen by reading the rows once
before they are written. Memory does not grow with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from dhtcrawl.errors import UsageError
from dhtcrawl.extract.rules_file import Field, Rule, read
from dhtcrawl.extract.values import DateType, JsonType, NumberType
from dhtcrawl.storage.outputs.record_files import (
    FETCHED_AT,
    INTEGER_MAX,
    NUMBER,
    RECORDS_DIR,
    RULES_FILE,
    URL,
    file_of_rule,
    record_files,
)
from dhtcrawl.storage.store.engine import storage_error

Row = dict[str, Any]
# Of rows that are written together: one may have 192 KiB, and takes several times that in memory.
BATCH_ROWS: Final = 5_000
BATCH_BYTES: Final = 4 << 20
_DATE_CHARS: Final = len("2026-01-31")


class ColumnKind(StrEnum):
    """What the values of a column are."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    DATE = "date"
    INSTANT = "instant"  # with the offset from UTC
    LOCAL_TIME = "local-time"  # without
    RECORDS = "records"
    JSON = "json"  # anything, as a text


class RecordColumn(NamedTuple):
    """A column; `columns` are those of nested records."""

    name: str
    kind: ColumnKind
    is_list: bool
    columns: tuple[RecordColumn, ...] = ()


OF_EVERY_TABLE: Final = (
    RecordColumn(URL, ColumnKind.TEXT, False),
    RecordColumn(NUMBER, ColumnKind.INTEGER, False),
    RecordColumn(FETCHED_AT, ColumnKind.INSTANT, False),
)


class RecordTable:
    """The records of a rule, below the directory of a crawl."""

    def __init__(self, rule: Rule, path: Path) -> None:
        self.name = rule.name
        self.unreadable_lines = 0  # of the last time that the rows were read
        self._path = path
        self._fields = [_Seen(field) for field in rule.fields]
        for row in self.rows():
            for field in self._fields:
                field.see(row.get(field.name))

    @property
    def columns(self) -> tuple[RecordColumn, ...]:
        """Where and when, then the fields of the rule."""
        return (*OF_EVERY_TABLE, *(field.column() for field in self._fields))

    def rows(self) -> Iterator[Row]:
        """The records as their file has them.

        Raises:
            StorageError: it cannot be read.
        """
        return (row for row, _ in self._sized_rows())

    def batches(self) -> Iterator[list[Row]]:
        """The same, some at a time: at most `BATCH_ROWS`, and fewer where their lines make up `BATCH_BYTES`.

        Raises:
            StorageError: as `rows`.
        """
        batch: list[Row] = []
        size = 0
        for row, line_bytes in self._sized_rows():
            batch.append(row)
            size += line_bytes
            if len(batch) == BATCH_ROWS or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _sized_rows(self) -> Iterator[tuple[Row, int]]:
        """The rows, each with the length of its line."""
        self.unreadable_lines = 0
        try:
            with self._path.open("rb") as file:
                for line in file:
                    row = _row(line)
                    if row is None:
                        self.unreadable_lines += 1
                    else:
                        yield row, len(line)
        except FileNotFoundError:
            return  # a rule that found nothing has no file
        except OSError as error:
            raise storage_error(error, f"cannot read {self._path}") from error


def tables(root: Path, only: str | None = None) -> list[RecordTable]:
    """The tables below a crawl's directory, or the one of a rule.

    Raises:
        UsageError: there are no records, or there is no such rule.
        ConfigError: the rules cannot be read, as a later version wrote them.
        StorageError: a file cannot be read.
    """
    path = root / RECORDS_DIR / RULES_FILE
    try:
        rules = read(str(path), path.read_text("utf-8", "replace")).rules
    except FileNotFoundError:
        if record_files(root):
            raise UsageError(
                f"{path} is missing, which says what is in the records: put the file of rules there, or take the "
                f"records anew by 'dhtcrawl extract --rules FILE {root}'"
            ) from None
        raise UsageError(
            f"{root} has no {RECORDS_DIR}/: it was crawled without --rules; see 'dhtcrawl extract --help'"
        ) from None
    except OSError as error:
        raise storage_error(error, f"cannot read {path}") from error
    chosen = [rule for rule in rules if only is None or rule.name == only]
    if not chosen:
        raise UsageError(f"--rule {only}: there is {', '.join(rule.name for rule in rules[:10])}")
    return [RecordTable(rule, root / RECORDS_DIR / file_of_rule(rule.name)) for rule in chosen]


def typed(column: RecordColumn, value: Any) -> Any:
    """A value of a row as Python has it; None for what is not of its column."""
    if column.is_list:
        return [_typed_one(column, each) for each in value] if isinstance(value, list) else None
    return _typed_one(column, value)


def _typed_one(column: RecordColumn, value: Any) -> Any:
    if column.kind is ColumnKind.JSON:
        return None if value is None else json.dumps(value, ensure_ascii=False)
    if column.kind is ColumnKind.RECORDS:
        return typed_row(column.columns, value) if isinstance(value, dict) else None
    if column.kind is ColumnKind.NUMBER:
        is_whole = isinstance(value, int)
        return float(value) if _is_number(value) and not (is_whole and abs(value) > INTEGER_MAX) else None
    if column.kind is ColumnKind.INTEGER:
        return value if _is_number(value) and abs(value) <= INTEGER_MAX else None
    if not isinstance(value, str):
        return None
    try:
        if column.kind is ColumnKind.DATE:
            return date.fromisoformat(value)
        return value if column.kind is ColumnKind.TEXT else datetime.fromisoformat(value)
    except ValueError:
        return None


def typed_row(columns: Iterable[RecordColumn], row: Row) -> Row:
    """A row with its values as Python has them."""
    return {column.name: typed(column, row.get(column.name)) for column in columns}


@dataclass(slots=True)
class _Zones:
    """What the dates of a column are like."""

    days: int = 0
    local: int = 0
    zoned: int = 0


class _Seen:
    """A field, and what its values were so far."""

    def __init__(self, field: Field) -> None:
        self.name = field.name
        self._field = field
        self._fields = [_Seen(each) for each in field.fields]
        self._fractions = False
        self._zones = _Zones()

    def see(self, value: Any) -> None:
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                for field in self._fields:
                    field.see(each.get(field.name))
            elif isinstance(each, float):
                self._fractions = True
            elif isinstance(each, str) and isinstance(self._field.type, DateType):
                self._see_date(each)

    def column(self) -> RecordColumn:
        nested = tuple(field.column() for field in self._fields)
        return RecordColumn(self.name, self._kind(), self._field.is_list, nested)

    def _see_date(self, text: str) -> None:
        if len(text) == _DATE_CHARS:
            self._zones.days += 1
        elif text.endswith("Z") or "+" in text or "-" in text[_DATE_CHARS:]:
            self._zones.zoned += 1
        else:
            self._zones.local += 1

    def _kind(self) -> ColumnKind:
        if self._fields:
            return ColumnKind.RECORDS
        if isinstance(self._field.type, NumberType):
            return ColumnKind.NUMBER if self._fractions else ColumnKind.INTEGER
        if isinstance(self._field.type, DateType):
            zones = self._zones
            if not (zones.local or zones.zoned):
                return ColumnKind.DATE
            if not (zones.days or zones.local):
                return ColumnKind.INSTANT
            # Instants and local times have no order among each other: they stay as they are written.
            return ColumnKind.TEXT if zones.zoned else ColumnKind.LOCAL_TIME
        return ColumnKind.JSON if isinstance(self._field.type, JsonType) else ColumnKind.TEXT


def _row(line: bytes) -> Row | None:
    try:
        row = _decode(line.decode("utf-8-sig"))
        if b"\\u" in line:
            json.dumps(row, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get(URL), str) and type(row.get(NUMBER)) is int else None


def _integer(digits: str) -> int:
    """An integer that a table can hold.

    Raises:
        ValueError: it is too large.
    """
    number = int(digits)
    if abs(number) > INTEGER_MAX:
        raise ValueError(digits[:40])
    return number


_decode: Final = json.JSONDecoder(parse_int=_integer).decode


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
