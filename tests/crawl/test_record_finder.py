"""What a page record keeps of the records of its page is what the files of records have of it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

from extract.made_rules import URL, found

from dhtcrawl.crawl.record_finder import STORED_CHARS_MAX, stored
from dhtcrawl.extract.records import Extracted
from dhtcrawl.storage.outputs.record_files import REJECTED_FILE, RecordFiles
from dhtcrawl.storage.store.files import MemoryDirectory

PRICE = {"name": "price", "selector": "p", "type": "number", "required": True}
ON_REQUEST = "<article><p>" + "价格面议" * 50 + "</p></article>"


def written(extracted: Extracted) -> tuple[list[Any], list[Any]]:
    """The lines of records and rejects of one page, as a crawl writes them."""
    records, reports = MemoryDirectory(), MemoryDirectory()
    text = stored(extracted)
    assert len(text) <= STORED_CHARS_MAX
    with ExitStack() as stack:
        files = RecordFiles(None, stack, {"r"})
        files.add(URL, "2026-01-31T12:00:00.000Z", text)
        files.write("", records, reports)
    lines = records.read("r.jsonl", 0, 1 << 20) if "r.jsonl" in records.names() else b""
    rejected = reports.read(REJECTED_FILE, 0, 1 << 20)
    return [json.loads(line) for line in lines.splitlines()], [json.loads(line) for line in rejected.splitlines()]


def test_of_a_page_that_has_only_rejects_and_too_many_of_them_the_first_are_listed() -> None:
    extracted = found(ON_REQUEST * 200, PRICE, record="article")
    records, rejects = written(extracted)
    assert records == []
    assert [(row["rule"], row["record"], row["reason"]) for row in rejects[:2]] == [
        ("r", 0, "too-large"),
        ("r", 1, "not-a-number"),
    ]
