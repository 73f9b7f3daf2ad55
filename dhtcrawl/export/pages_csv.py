"""The pages as CSV (RFC 4180), a row a page, for spreadsheets.

A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, which
may send what stands in other cells to whoever wrote a page's title. Such a cell gets an
apostrophe in front, as one would type it. A tab or a line break there counts, too:
programs drop it and look at what follows.
"""

from __future__ import annotations

import csv
import io
from typing import BinaryIO

from dhtcrawl.export.collection import Collection
from dhtcrawl.export.form import ExportFormat, ExportReport

# docs/outputs.md lists them.
COLUMNS = (
    "url",
    "status",
    "content_type",
    "title",
    "depth",
    "referrer",
    "fetched_at",
    "bytes",
    "payload_digest",
    "archive_file",
    "archive_offset",
    "archive_length",
)
_OF_THE_PAGE = COLUMNS[:9]
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def write(collection: Collection, file: BinaryIO, report: ExportReport) -> None:
    """Write a row for each page; archive columns are empty where its body is not here."""
    text = io.TextIOWrapper(file, "utf-8", errors="replace", newline="", write_through=True)
    try:
        rows = csv.writer(text)
        rows.writerow(COLUMNS)
        for page in collection.pages():
            rows.writerow(
                [*(safe_cell(page.fields.get(name)) for name in _OF_THE_PAGE), *(page.member or ("", "", ""))]
            )
            report.written += 1
    finally:
        text.detach()  # the file is not ours to close


def safe_cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula."""
    if value is None or isinstance(value, int | float):
        return value
    text = str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


CSV = ExportFormat("csv", ".csv", "pages", streams=True, suffix_matters=False, write=write)
