"""Whatever stands in the files of a directory, an export ends with a file or an error that names it."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.errors import StorageError, StorageFull
from dhtcrawl.export.formats import FORMATS
from dhtcrawl.export.places import places

from .made import Made, export, make

URL = "http://a.example/"
ODD: list[Any] = [
    None,
    True,
    -1,
    1 << 70,
    1.5,
    "",
    "x",
    "http://[",
    "http://a.example/\ud800",
    "=1",
    [],
    {},
    "9" * 5000,
]
NAMES = ("url", "status", "content_type", "title", "depth", "payload_digest", "fetched_at", "referrer")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", FORMATS)
def test_an_odd_field_of_a_page_stops_no_export(tmp_path: Path, name: str, form: str) -> None:
    root = make(tmp_path / "c", [Made(URL, b"<a href=x>", fields={name: value}) for value in ODD], indexed=0)
    export(root, form)


@pytest.mark.parametrize("form", FORMATS)
def test_an_odd_index_stops_no_export(tmp_path: Path, form: str) -> None:
    root = make(tmp_path / "c", [Made(URL, b"<a href=x>")])
    entry = json.loads((root / "indexes/index.cdxj").read_text().split(" ", 2)[2])
    lines = [f"a 1 {json.dumps(entry | {name: value})}" for name in entry for value in ODD]
    (root / "indexes/index.cdxj").write_text("\n".join(["", "a", "a 1", "a 1 x", "é 1 {}", *lines, ""]))
    (root / "reports/skipped.jsonl").write_text("\n".join(json.dumps({"url": value, "reason": value}) for value in ODD))
    (root / "summary.json").write_text("[]")
    export(root, form)


@given(st.binary(max_size=400))
def test_an_archive_of_any_bytes_stops_no_export(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    root = make(tmp_path_factory.mktemp("c") / "c", [Made(URL, b"<a href=x>")], indexed=0)
    with (root / "archive/a.warc.gz").open("ab") as file:
        file.write(data)
    for form in FORMATS:
        content, report = export(root, form)
        assert content
        assert (report.written, report.problems) == (1, [])


@pytest.mark.parametrize(("code", "kind"), [(sqlite3.SQLITE_FULL, StorageFull), (sqlite3.SQLITE_IOERR, StorageError)])
def test_without_room_for_the_look_ups_the_remedy_is_named(code: int, kind: type[StorageError]) -> None:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = code
    with pytest.raises(kind, match="TMPDIR") as raised, places():
        raise error
    assert type(raised.value) is kind
