"""Records of pages become a file a rule, each record once, whatever other nodes have put into page records."""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.storage.outputs.record_files import REJECTED_FILE, RULES_FILE, RecordFiles
from dhtcrawl.storage.store.files import MemoryDirectory

AT = "2026-01-31T12:00:00.000Z"
UNREADABLE = {
    "url": "http://a/", "rule": "", "record": 0, "field": "", "reason": "unreadable", "found": "", "kept": False,
}  # fmt: skip


def written(
    pages: list[tuple[str, str]], records: MemoryDirectory | None = None, rules: frozenset[str] | None = None
) -> tuple[dict[str, Any], Any]:
    """The rows of each file of records, and those of the rejects."""
    records, reports = records or MemoryDirectory(), MemoryDirectory()
    with ExitStack() as stack:
        files = RecordFiles(None, stack, rules)
        for url, found in pages:
            files.add(url, AT, found)
        files.write("rules", records, reports)
    assert records.read(RULES_FILE, 0, 100) == b"rules"
    names = [name for name in records.names() if name != RULES_FILE]
    assert sum(files.records.values()) == sum(len(rows(records, name)) for name in names)
    return {name: rows(records, name) for name in names}, rows(reports, REJECTED_FILE)


def rows(directory: MemoryDirectory, name: str) -> list[Any]:
    return [json.loads(line) for line in directory.read(name, 0, 1 << 20).splitlines()]


def page(*records: Any, rejects: Any = ()) -> str:
    return json.dumps({"records": records, "rejects": rejects})


def test_each_rule_has_a_file_sorted_by_page_and_number() -> None:
    found, rejected = written(
        [
            ("http://b/", page(["x", 2, {"f": 2}], ["x", 1, {"f": 1}])),
            ("http://a/", page(["y", 1, {"g": "ü\n"}], rejects=[["x", 0, "", "no-tree", "", False]])),
            ("http://a/10", page(["x", 1, {"f": None}])),
        ]
    )
    assert found == {
        "x.jsonl": [
            {"_url": "http://a/10", "_record": 1, "_fetched_at": AT, "f": None},
            {"_url": "http://b/", "_record": 1, "_fetched_at": AT, "f": 1},
            {"_url": "http://b/", "_record": 2, "_fetched_at": AT, "f": 2},
        ],
        "y.jsonl": [{"_url": "http://a/", "_record": 1, "_fetched_at": AT, "g": "ü\n"}],
    }
    assert rejected == [
        {"url": "http://a/", "rule": "x", "record": 0, "field": "", "reason": "no-tree", "found": "", "kept": False}
    ]


def test_a_rule_that_finds_nothing_any_more_has_no_file() -> None:
    records = MemoryDirectory()
    written([("http://a/", page(["x", 1, {}]))], records)
    assert written([("http://a/", page())], records) == ({}, [])


@pytest.mark.parametrize("content", [b"", b'{"name": "Li"}\n', b"no JSON"])
def test_a_file_that_has_no_records_of_pages_is_left_alone(content: bytes) -> None:
    """Whoever crawls into a directory with files of their own keeps these."""
    records = MemoryDirectory()
    records.replace("customers.jsonl", [content])
    with ExitStack() as stack:
        RecordFiles(None, stack, None).write("rules", records, MemoryDirectory())
    assert records.read("customers.jsonl", 0, 100) == content


def test_a_rule_of_another_node_names_no_file_elsewhere() -> None:
    for name in ("../../up", "a/b", "", ".x", "x\n", "x" * 65):
        assert written([("http://a/", page([name, 1, {}]))]) == ({}, [UNREADABLE])


@pytest.mark.parametrize("other", [page(["other", 1, {}]), page(rejects=[["other", 0, "", "missing", "", False]])])
def test_a_rule_that_the_crawl_does_not_have_has_no_file_and_no_rejects(other: str) -> None:
    ours = ("http://b/", page(["ours", 1, {}]))
    found, rejected = written([("http://a/", other), ours], rules=frozenset(("ours",)))
    assert (list(found), rejected) == (["ours.jsonl"], [UNREADABLE])
    assert "ours.jsonl" in written([("http://a/", other), ours], rules=None)[0], "which nobody here can read"


@pytest.mark.parametrize(
    "found",
    [
        "[" * 5_000,
        '{"records": [["r", 1, {"t": ' + "[" * 2_000 + "]" * 2_000 + '}]], "rejects": []}',
        page(["r", 1, {"n": 10**30}]),
        page(["r", 10**30, {}]),
        page(["r", -5, {}]),
        page(["r", True, {}]),
        page(["r", 1, {}], ["r", 1, {}]),
        '{"records": [["r", 1, {"n": NaN}]], "rejects": []}',
        '{"records": [["r", 1, {"n": 1e999}]], "rejects": []}',
        page(rejects=[["r", 1, "f", 5, "x", True]]),
        page(rejects=[["r", 1, "f", "x" * 100, "x", True]]),
        page(rejects=[["r", 1, 7, "missing", "x", True]]),
    ],
)
def test_what_no_extraction_finds_is_listed_as_unreadable_and_nothing_of_the_page_is_taken(found: str) -> None:
    assert written([("http://a/", found)]) == ({}, [UNREADABLE])
    with ExitStack() as stack:
        files = RecordFiles(None, stack, None)
        files.add("http://a/", AT, found)
        assert (dict(files.records), dict(files.rejected)) == ({}, {"unreadable": 1})


def test_all_that_json_has_can_be_a_value() -> None:
    value = {"a": [True, None, 1.5, {"b": "c"}]}
    records, _ = written([("http://a/", page(["r", 1, {"properties": value}]))])
    assert records["r.jsonl"][0]["properties"] == value


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda each: st.lists(each) | st.dictionaries(st.text(), each))
)
def test_what_is_none_takes_no_page_with_it(value: Any) -> None:
    for found in (json.dumps(value), page(value), page(rejects=value), str(value)):
        records, rejected = written([("http://a/", found), ("http://b/", page(["x", 1, {"f": 1}]))])
        assert [row["_url"] for row in records["x.jsonl"]][-1:] == ["http://b/"]
        assert rejected is not None
