"""What a page record keeps of the records of its page is what the files of records have of it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

from extract.made_rules import URL, found
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.record_finder import finder_of, kept, stored
from dhtcrawl.extract.records import Extracted, Record, Reject
from dhtcrawl.extract.values import RejectReason
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.outputs.record_files import REJECTED_FILE, RecordFiles
from dhtcrawl.storage.outputs.stored_records import STORED_CHARS_MAX
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
    left = 200 - (len(rejects) - 1)
    assert (rejects[0]["found"], rejects[0]["kept"]) == (f"0 records and {left} rejects are left out", True)


def test_rejects_are_left_out_before_records() -> None:
    records, rejects = written(found(ON_REQUEST * 200 + "<article><p>12</article>", PRICE, record="article"))
    assert [(row["_record"], row["price"]) for row in records] == [(201, 12)]
    assert 100 < len(rejects) < 200


def test_rejects_of_the_page_as_a_whole_are_listed_before_those_of_its_records() -> None:
    many = [Reject("r", number, "t", RejectReason.NOT_A_NUMBER, "价" * 200, True) for number in range(1, 500)]
    work = Reject("r", 0, "", RejectReason.TOO_MUCH_WORK, "", False)
    _, rejects = written(Extracted([], [*many, work], []))
    assert [row["reason"] for row in rejects[:3]] == ["too-large", "too-much-work", "not-a-number"]


RECORDS = [Record("a" if number < 9 else "r", number, {"t": "x" * 9_990}) for number in range(1, 40)]
REJECTS = [Reject("r", number, "t", RejectReason.TOO_LONG, "y" * 200, True) for number in range(1, 5)]


def test_as_many_records_are_stored_as_fit_and_the_rule_is_named_of_which_the_first_is_left_out() -> None:
    left = kept(Extracted(RECORDS, REJECTS, []))
    told = Reject("r", 0, "", RejectReason.TOO_LARGE, "20 records and 0 rejects are left out", False)
    assert (left.records, left.rejects) == (RECORDS[:19], [*REJECTS, told])
    assert len(RECORDS) * 10_000 > STORED_CHARS_MAX > 19 * 10_000
    assert json.loads(stored(left)) == json.loads(stored(Extracted(RECORDS, REJECTS, [])))


TEXTS = st.text("xü😀\ud800", max_size=9).map(lambda text: text * 2_000)


@given(st.lists(TEXTS, max_size=40), st.lists(TEXTS, max_size=40))
def test_what_is_stored_fits_and_what_is_left_out_is_counted(texts: list[str], shown: list[str]) -> None:
    records = [Record("r", number, {"t": text}) for number, text in enumerate(texts, 1)]
    rejects = [Reject("r", number, "t", RejectReason.TOO_LONG, text, True) for number, text in enumerate(shown, 1)]
    extracted = Extracted(records, rejects, [])
    left = kept(extracted)
    assert len(stored(extracted)) <= STORED_CHARS_MAX
    assert left.records == records[: len(left.records)]
    if left is not extracted:
        *first, told = left.rejects
        assert first == rejects[: len(first)]
        lost, untold = len(records) - len(left.records), len(rejects) - len(first)
        assert told.found == f"{lost} records and {untold} rejects are left out"
        assert lost + untold > 0


def test_a_crawl_without_rules_pays_nothing_for_them() -> None:
    """Nothing looks at its pages, and what reads rules is imported by no command and no node."""
    assert finder_of(CrawlSpec(("http://a.example/",), CrawlSettings())) is None
    program = (
        "import sys, dhtcrawl.cli.main, dhtcrawl.cli.crawl, dhtcrawl.cli.join\n"
        "import dhtcrawl.node.single, dhtcrawl.node.swarm_node\n"
        "print([name for name in sys.modules if name.startswith(('turbohtml', 'dhtcrawl.extract'))])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"
