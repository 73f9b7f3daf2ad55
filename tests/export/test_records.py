"""Records as CSV, SQLite and Parquet, with the types that their rules declare.

What reads Parquet takes two seconds to import, so it is imported where it reads: not by each process of a run.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import sqlite3
import tempfile
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from dhtcrawl.cli.main import run
from dhtcrawl.errors import Exit, UsageError
from dhtcrawl.export.form import ExportReport
from dhtcrawl.export.record_formats import RECORD_FORMATS
from dhtcrawl.export.record_tables import tables

RULES = """
[[rules]]
name = "things"
site = "a.example"
fields = [
  { name = "title", selector = "h1" },
  { name = "price", selector = "p", type = "number" },
  { name = "stock", selector = "b", type = "number" },
  { name = "listed", selector = "i", type = "date" },
  { name = "seen", selector = "u", type = "date" },
  { name = "mixed", selector = "s", type = "date" },
  { name = "tags", selector = "li", list = true },
  { name = "offers", selector = "tr", type = "records", list = true, fields = [
    { name = "seller", selector = "td" },
    { name = "price", selector = "td", type = "number" },
  ] },
]
[[rules]]
name = "none"
site = "a.example"
fields = [{ name = "f", selector = "p" }]
"""
AT = "2026-01-31T12:00:00.123Z"
FIRST: dict[str, Any] = {
    "_url": "http://a.example/1",
    "_record": 1,
    "_fetched_at": AT,
    "title": "=1+1",
    "price": 1.5,
    "stock": 2**60,
    "listed": "2026-01-31",
    "seen": "2026-01-31T10:00:00+02:00",
    "mixed": "2026-01-31",
    "tags": ["x", "ü"],
    "offers": [{"seller": "Li", "price": 2}, {"seller": None, "price": 2.5}],
}
SECOND: dict[str, Any] = {
    **dict.fromkeys(FIRST),
    "_url": "http://a.example/2",
    "_record": 1,
    "_fetched_at": AT,
    "price": -3,
    "mixed": "2026-01-31T10:00:00Z",
    "tags": [],
    "offers": [],
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    records = tmp_path / "out" / "records"
    records.mkdir(parents=True)
    (records / "rules.toml").write_text(RULES)
    (records / "things.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (FIRST, SECOND)))
    return tmp_path / "out"


def exported(out: Path, name: str, *options: str) -> Path:
    file = out.with_name(f"file.{name}")
    assert run(["export", str(out), "--format", name, "--to", str(file), *options]) == 0
    return file


def test_parquet_has_the_types_of_the_rules_and_lists_and_records_as_such(out: Path) -> None:
    from pyarrow import parquet

    table = parquet.read_table(exported(out, "parquet", "--rule", "things"))
    assert {field.name: str(field.type) for field in table.schema} == {
        "_url": "string",
        "_record": "int64",
        "_fetched_at": "timestamp[us, tz=UTC]",
        "title": "string",
        "price": "double",
        "stock": "int64",
        "listed": "date32[day]",
        "seen": "timestamp[us, tz=UTC]",
        "mixed": "string",
        "tags": "list<element: string>",
        "offers": "list<element: struct<seller: string, price: double>>",
    }
    first, second = table.to_pylist()
    assert first == FIRST | {
        "_fetched_at": datetime(2026, 1, 31, 12, 0, 0, 123_000, UTC),
        "listed": date(2026, 1, 31),
        "seen": datetime(2026, 1, 31, 8, 0, 0, 0, UTC),
    }
    assert second == SECOND | {"_fetched_at": first["_fetched_at"]}


def test_a_number_with_decimals_may_be_beyond_64_bits(out: Path) -> None:
    from pyarrow import parquet

    with (out / "records" / "things.jsonl").open("a") as file:
        file.write(json.dumps({**SECOND, "_url": "http://a.example/3", "price": 1.5e19}) + "\n")
    table = parquet.read_table(exported(out, "parquet", "--rule", "things"))
    assert table["price"].to_pylist() == [1.5, -3.0, 1.5e19]


def test_records_with_long_texts_are_written_a_few_at_a_time(out: Path) -> None:
    """Five thousand pages of text at once took a gigabyte."""
    from pyarrow import parquet

    rows = [{**SECOND, "_record": number, "title": "x" * (190 << 10)} for number in range(1, 41)]
    (out / "records" / "things.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    written = parquet.ParquetFile(exported(out, "parquet", "--rule", "things"))
    assert [written.metadata.row_group(number).num_rows for number in range(written.num_row_groups)] == [22, 18]
    assert written.read(["_record"])["_record"].to_pylist() == list(range(1, 41))


def test_duckdb_and_pandas_read_the_types_that_the_rules_declare(out: Path) -> None:
    import duckdb
    import pandas

    file = exported(out, "parquet", "--rule", "things")
    described = duckdb.execute(f"DESCRIBE SELECT * FROM '{file}'").fetchall()
    assert {name: kind for name, kind, *_ in described} == {
        "_url": "VARCHAR",
        "_record": "BIGINT",
        "_fetched_at": "TIMESTAMP WITH TIME ZONE",
        "title": "VARCHAR",
        "price": "DOUBLE",
        "stock": "BIGINT",
        "listed": "DATE",
        "seen": "TIMESTAMP WITH TIME ZONE",
        "mixed": "VARCHAR",
        "tags": "VARCHAR[]",
        "offers": "STRUCT(seller VARCHAR, price DOUBLE)[]",
    }
    asked = f"SELECT title, price, stock, listed, epoch(seen), tags, offers FROM '{file}' ORDER BY _url"
    first, second = duckdb.execute(asked).fetchall()
    seen = datetime.fromisoformat(FIRST["seen"]).timestamp()
    assert first == ("=1+1", 1.5, 2**60, date(2026, 1, 31), seen, FIRST["tags"], FIRST["offers"])
    assert second == (None, -3.0, None, None, None, [], [])
    frame = pandas.read_parquet(file, dtype_backend="pyarrow").sort_values("_url")
    kinds = {name: str(frame.dtypes[name].pyarrow_dtype) for name in ("price", "stock", "listed", "seen")}
    assert kinds == {"price": "double", "stock": "int64", "listed": "date32[day]", "seen": "timestamp[us, tz=UTC]"}
    assert frame["stock"].tolist()[0] == 2**60
    with sqlite3.connect(exported(out, "sqlite")) as base:
        rows = pandas.read_sql("SELECT * FROM things ORDER BY _url", base, parse_dates=["listed", "_fetched_at"])
    assert [str(rows.dtypes[name]).partition("[")[0] for name in ("price", "listed")] == ["float64", "datetime64"]
    assert (rows["price"].tolist(), rows["title"].tolist()[0]) == ([1.5, -3.0], "=1+1")


def test_what_pages_say_of_themselves_is_json_in_tables(out: Path) -> None:
    (out / "records" / "rules.toml").write_text("""[[rules]]\nname = "said"\nsite = "*"\nsource = "json-ld"\n""")
    (out / "records" / "things.jsonl").unlink()
    properties = {"name": "ü", "offers": [{"price": 1.5, "new": True}, None]}
    row = {"_url": "http://a.example/1", "_record": 1, "_fetched_at": AT}
    row |= {"source": "json-ld", "types": ["Product"], "properties": properties}
    (out / "records" / "said.jsonl").write_text(json.dumps(row) + "\n")
    from pyarrow import parquet

    table = parquet.read_table(exported(out, "parquet", "--rule", "said"))
    assert [str(table.schema.field(name).type) for name in ("types", "properties")] == [
        "list<element: string>",
        "string",
    ]
    (read,) = table.to_pylist()
    assert (read["types"], json.loads(read["properties"])) == (["Product"], properties)
    with sqlite3.connect(exported(out, "sqlite")) as base:
        ((types, text),) = base.execute("SELECT types, properties FROM said")
    assert (json.loads(types), json.loads(text)) == (["Product"], properties)


def test_sqlite_has_a_table_a_rule_with_lists_as_json(out: Path) -> None:
    with sqlite3.connect(exported(out, "sqlite")) as base:
        base.row_factory = sqlite3.Row
        rows = [dict(row) for row in base.execute("SELECT * FROM things ORDER BY _url")]
        types = {row["name"]: row["type"] for row in base.execute("PRAGMA table_info(things)")}
        assert list(base.execute("SELECT * FROM none")) == []
    in_json = ("tags", "offers")
    assert [{**row, **{name: json.loads(row[name]) for name in in_json}} for row in rows] == [FIRST, SECOND]
    assert (types["price"], types["stock"], types["listed"], types["seen"]) == ("REAL", "INTEGER", "DATE", "TIMESTAMP")


def test_csv_has_no_formulas_and_only_the_records_of_one_rule(out: Path) -> None:
    text = exported(out, "csv", "--rule", "things").read_text("utf-8")
    header, first, second = csv.reader(io.StringIO(text))
    assert tuple(header) == tuple(FIRST)
    assert first[3:6] == ["'=1+1", "1.5", str(2**60)]
    assert json.loads(first[-1]) == FIRST["offers"]
    assert second[3:6] == ["", "-3", ""]


@pytest.mark.parametrize("name", RECORD_FORMATS)
def test_lines_that_are_no_records_are_left_out_and_told(name: str, out: Path) -> None:
    with (out / "records" / "things.jsonl").open("ab") as file:
        file.write(b'{"_url": 1}\n[]\n\xff\n{"_url": "http://a.example/3", "_record": 1, "title": 5, "tags": 1}\n{')
    report = ExportReport()
    buffer = io.BytesIO()
    RECORD_FORMATS[name].write(tables(out, "things"), buffer, report)
    assert report.written == 3
    assert report.problems == ["4 lines of the records of things could not be read; they are left out"]
    assert buffer.getvalue()


@pytest.mark.parametrize("name", RECORD_FORMATS)
@pytest.mark.parametrize("odd", ["1180591620717411303424", '"\\ud800"', '["\\udfff"]', "9" * 5_000])
def test_a_line_with_what_no_crawl_writes_and_no_format_holds_is_left_out_and_told(
    odd: str, name: str, out: Path
) -> None:
    with (out / "records" / "things.jsonl").open("a") as file:
        file.write(f'{{"_url": "http://a.example/3", "_record": 1, "stock": {odd}}}\n')
        file.write('{"_url": "http://a.example/4", "_record": 1, "title": "\\ud83d\\ude00"}\n')
    report = ExportReport()
    RECORD_FORMATS[name].write(tables(out, "things"), io.BytesIO(), report)
    assert report.written == 3
    assert report.problems == ["1 lines of the records of things could not be read; they are left out"]


def test_a_full_directory_for_temporary_files_is_named(
    out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connect = sqlite3.connect

    def full(path: Path) -> sqlite3.Connection:
        base = connect(path)
        base.execute("PRAGMA max_page_count = 1")
        return base

    monkeypatch.setattr(sqlite3, "connect", full)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert run(["export", str(out), "--format", "sqlite"]) == Exit.DISK_FULL
    assert capsys.readouterr().err == (
        f"dhtcrawl: cannot write the records to {tmp_path}: no space left; "
        "free some space there, or name another directory for temporary files by TMPDIR\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_machine_without_room_for_temporary_files_is_told(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert run(["export", str(out), "--format", "sqlite"]) == Exit.DISK_FULL
    assert "no directory for temporary files can be written (No usable" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--format", "parquet"], "--format parquet takes the records of one rule; add --rule NAME: things, none"),
        (["--format", "parquet", "--rule", "other"], "--rule other: there is things, none"),
        (["--format", "links", "--rule", "things"], "--rule: a links file has pages, no records; leave it out"),
        (["--format", "sqlite", "--to", "-"], "a sqlite file is not written from front to back"),
        (["--format", "sqlite", "--to", "missing/x"], "there is no directory missing"),
    ],
)
def test_what_cannot_be_exported_is_told(
    options: list[str], says: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["export", str(out), *options]) == 2
    assert says in capsys.readouterr().err


def test_a_directory_without_records_says_how_to_have_some(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="was crawled without --rules; see 'dhtcrawl extract --help'"):
        tables(tmp_path)
