"""Records as CSV, as an SQLite database, and as Parquet; each from tables with the types of their rules.

Lists and nested records are columns of their own in Parquet, and JSON in the other two.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from dhtcrawl.errors import ConfigError
from dhtcrawl.export.form import ExportReport
from dhtcrawl.export.pages_csv import safe_cell
from dhtcrawl.export.record_tables import ColumnKind, RecordColumn, RecordTable, typed_row
from dhtcrawl.export.scratch import no_scratch, scratch_error

_SQL_TYPES: Final = {
    ColumnKind.TEXT: "TEXT",
    ColumnKind.INTEGER: "INTEGER",
    ColumnKind.NUMBER: "REAL",
    ColumnKind.DATE: "DATE",
    ColumnKind.INSTANT: "TIMESTAMP",
    ColumnKind.LOCAL_TIME: "TIMESTAMP",
}


class RecordFormat(NamedTuple):
    """A row of the table of formats of records; `write` is given one table, or all where it takes `several`."""

    name: str
    suffix: str
    several: bool
    streams: bool  # may go to standard output
    needs: str  # a package that is not always there; empty: none
    write: Callable[[list[RecordTable], BinaryIO, ExportReport], None]

    def check(self) -> None:
        """Whether it can be written here.

        Raises:
            ConfigError: a package is missing.
        """
        if self.needs and find_spec(self.needs) is None:
            raise ConfigError(
                f"--format {self.name} needs the package {self.needs}; install it: pip install {self.needs}"
            )


def _write_csv(tables: list[RecordTable], file: BinaryIO, report: ExportReport) -> None:
    (table,) = tables
    text = io.TextIOWrapper(file, "utf-8", errors="replace", newline="", write_through=True)
    try:
        rows = csv.writer(text)
        names = [column.name for column in table.columns]
        rows.writerow(names)
        for row in table.rows():
            rows.writerow([safe_cell(_flat(row.get(name))) for name in names])
            report.written += 1
        _tell(table, report)
    finally:
        text.detach()  # the file is not ours to close


def _write_sqlite(tables: list[RecordTable], file: BinaryIO, report: ExportReport) -> None:
    # SQLite opens files by name, ours has none yet.
    with _scratch() as scratch:
        path = scratch / "records.sqlite"
        try:
            with closing(sqlite3.connect(path)) as base:
                base.execute("PRAGMA journal_mode = OFF")
                base.execute("PRAGMA synchronous = OFF")
                for table in tables:
                    _fill(base, table, report)
        except sqlite3.Error as error:
            raise scratch_error(error, f"cannot write the records to {scratch.parent}") from error
        with path.open("rb") as written:
            shutil.copyfileobj(written, file, 1 << 20)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A directory for temporary files, gone in the end."""
    try:
        made = tempfile.TemporaryDirectory()
    except OSError as error:
        raise no_scratch(error) from error
    with made as scratch:
        yield Path(scratch)


def _fill(base: sqlite3.Connection, table: RecordTable, report: ExportReport) -> None:
    columns = table.columns
    declared = ", ".join(f"{_quoted(column.name)} {_sql_type(column)}" for column in columns)
    key = ", ".join(_quoted(column.name) for column in columns[:2])
    base.execute(f"CREATE TABLE {_quoted(table.name)} ({declared}, PRIMARY KEY ({key}))")
    # A line that stands there twice, as no crawl writes it, counts once.
    insert = f"INSERT OR REPLACE INTO {_quoted(table.name)} VALUES ({', '.join('?' * len(columns))})"
    for rows in table.batches():
        base.executemany(insert, ([_flat(row.get(column.name)) for column in columns] for row in rows))
        base.commit()
        report.written += len(rows)
    _tell(table, report)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sql_type(column: RecordColumn) -> str:
    return "TEXT" if column.is_list else _SQL_TYPES.get(column.kind, "TEXT")


def _write_parquet(tables: list[RecordTable], file: BinaryIO, report: ExportReport) -> None:
    import pyarrow
    from pyarrow import parquet

    (table,) = tables
    columns = table.columns
    schema = pyarrow.schema([(column.name, _arrow_type(pyarrow, column)) for column in columns])
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in table.batches():
            writer.write_table(pyarrow.Table.from_pylist([typed_row(columns, row) for row in rows], schema))
            report.written += len(rows)
    _tell(table, report)


def _arrow_type(pyarrow: Any, column: RecordColumn) -> Any:
    if column.kind is ColumnKind.RECORDS:
        one = pyarrow.struct([(each.name, _arrow_type(pyarrow, each)) for each in column.columns])
    else:
        one = {
            ColumnKind.TEXT: pyarrow.string(),
            ColumnKind.JSON: pyarrow.string(),
            ColumnKind.INTEGER: pyarrow.int64(),
            ColumnKind.NUMBER: pyarrow.float64(),
            ColumnKind.DATE: pyarrow.date32(),
            ColumnKind.INSTANT: pyarrow.timestamp("us", tz="UTC"),
            ColumnKind.LOCAL_TIME: pyarrow.timestamp("us"),
        }[column.kind]
    return pyarrow.list_(one) if column.is_list else one


def _flat(value: Any) -> Any:
    """What fits into a cell."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _tell(table: RecordTable, report: ExportReport) -> None:
    if table.unreadable_lines:
        report.problem(
            f"{table.unreadable_lines} lines of the records of {table.name} could not be read; they are left out"
        )


RECORD_FORMATS: Final[dict[str, RecordFormat]] = {
    each.name: each
    for each in (
        RecordFormat("csv", ".csv", several=False, streams=True, needs="", write=_write_csv),
        RecordFormat("sqlite", ".sqlite", several=True, streams=False, needs="", write=_write_sqlite),
        RecordFormat("parquet", ".parquet", several=False, streams=False, needs="pyarrow", write=_write_parquet),
    )
}
