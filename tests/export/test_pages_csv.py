"""A row a page, which a spreadsheet opens and never runs."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from dhtcrawl.export.pages_csv import COLUMNS

from .made import Made, export, make, redirect


def rows(root: Path) -> list[dict[str, str]]:
    text = export(root, "csv")[0].decode("utf-8")
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def test_a_page_is_a_row_with_the_place_of_its_body(tmp_path: Path) -> None:
    root = make(tmp_path, [Made("http://a.example/", b"<p>hi"), redirect("http://a.example/b", "/")])
    first, second = rows(root)
    assert list(first) == list(COLUMNS)
    assert first | {"payload_digest": "", "archive_offset": "", "archive_length": ""} == dict.fromkeys(COLUMNS, "") | {
        "url": "http://a.example/",
        "status": "200",
        "content_type": "text/html",
        "title": "T",
        "depth": "0",
        "fetched_at": "2026-01-31T12:00:05.999Z",
        "bytes": "5",
        "archive_file": "a.warc.gz",
    }
    assert int(second["archive_offset"]) > int(first["archive_offset"]) + int(first["archive_length"])
    assert (second["status"], second["title"]) == ("301", "")


def test_a_page_without_a_body_is_a_row_without_a_place(tmp_path: Path) -> None:
    root = make(tmp_path, [Made("http://a.example/")])
    (root / "archive/a.warc.gz").unlink()
    (row,) = rows(root)
    assert [row[name] for name in COLUMNS if name.startswith("archive")] == ["", "", ""]


@pytest.mark.parametrize("title", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1+1", "\r=1", "\n=1"])
def test_a_cell_that_a_spreadsheet_would_run_is_text(tmp_path: Path, title: str) -> None:
    root = make(tmp_path, [Made("http://a.example/", fields={"title": title, "content_type": title})])
    (row,) = rows(root)
    assert row["title"] == row["content_type"] == f"'{title}"


@pytest.mark.parametrize("title", ['a "quoted", one', "two\nlines", "日本語 €", "half \ud800 a pair", "1=1", ""])
def test_any_other_title_is_as_it_was(tmp_path: Path, title: str) -> None:
    root = make(tmp_path, [Made("http://a.example/", fields={"title": title})])
    (row,) = rows(root)
    assert row["title"] == title.encode("utf-8", "replace").decode()
