"""What another node sends is written only when it is sound: nothing that it says can break a collection."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import SPEC, page
from storage.swarm_stores import NODES, Collection, Page, Part
from storage.test_gather import outputs

from dhtcrawl.keyspace import url_key
from dhtcrawl.storage.collect.foreign import BadRow
from dhtcrawl.storage.collect.gather import GATHERED
from dhtcrawl.storage.outputs.stored_records import STORED_CHARS_MAX
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import Place, State, Task, pack

A, B = "http://a.example/a", "http://a.example/b"
FILE = f"000102030405-{NODES[0][:12]}-00000.warc.gz"


def task_row(fields: dict[str, Any] | None = None) -> tuple[bytes, bytes]:
    task = Task(A, 1, 1, "")._replace(**(fields or {}))
    return SPEC.key_of(A), task.pack()


def page_row(changed: dict[Any, Any] | None = None) -> tuple[bytes, bytes]:
    known = {**page(A).fields, "referrer": None, "place": (NODES[0], FILE, 0, 10), **(changed or {})}
    return SPEC.key_of(A), pack({name: value for name, value in known.items() if value != "absent"})


def extra_row(changed: dict[Any, Any] | None = None) -> tuple[bytes, bytes]:
    return FILE.encode() + bytes(8), page_row(changed)[1]


def skipped_row(url: Any, reason: Any, *referrer: Any) -> tuple[bytes, bytes]:
    return url_key(A), pack((url, reason, *referrer))


NO_PAIRS: list[Any] = [None, 5, b"ab", (b"a",), (b"a", b"b", b"c"), ("a", b""), (b"a", None), {}]
NONSENSE: list[tuple[bytes, Any]] = [
    *((b"t", task_row(fields)) for fields in (
        {"url": B}, {"url": "http://a.example"}, {"url": 5}, {"url": "mailto:a"}, {"depth": -1}, {"depth": "1"},
        {"order": 1 << 63 << 1 | -1}, {"referrer": None}, {"gen": 1.5}, {"hops": True}, {"seed": 1}, {"reason": b""},
        {"state": State.DONE}, {"state": State.FETCHED, "place": Place("n", "f", -1, 1)}, {"detail": "x" * 200_000},
        {"place": (b"n", "f", 0, 1)}, {"place": Place("n", "f", 0, 1 << 63)},
    )),
    *((b"p", page_row(fields)) for fields in (
        {"url": B}, {"url": None}, {"status": "200"}, {"status": True}, {"depth": -1}, {"bytes": None},
        {"depth_limit": "1"}, {"depth_limit": -2},
        {"payload_digest": 5}, {"payload_digest": "absent"}, {"fetched_at": "yesterday"}, {"mime": 1},
        {"fetched_at": "2026-02-30T12:00:00.000Z"}, {"fetched_at": "2026-01-01T12:00:00.000+24:00"},
        {"title": b"bytes"}, {"title": ["a"]}, {"title": 1.5}, {"referrer": 5}, {"place": None}, {"place": "absent"},
        {"place": (NODES[1], FILE, 0, 10)}, {"place": (NODES[0], "../../etc/passwd", 0, 10)},
        {"place": (NODES[0], FILE.replace("000102", "ffffff"), 0, 10)}, {"place": (NODES[0], FILE, -1, 10)},
        {"place": (NODES[0], FILE, 0, 10, 0)}, {"place": (NODES[0], FILE, 0, "10")}, {5: 5},
        {str(number): 1 for number in range(100)}, {"title": "x" * 200_000}, {"records": "x" * 400_000},
        {"mime": "absent"}, {"referrer": "absent"},
    )),
    *((b"x", extra_row(fields)) for fields in (
        {"place": (NODES[0], FILE, 1, 10)}, {"url": 1}, {"fetched_at": None}, {"mime": "absent"},
    )),
    *((b"s", (url_key(url), pack((url, "depth")))) for url in ("", "nowhere", "mailto:a", "http://a.example")),
    *((b"s", skipped_row(*pair)) for pair in ((A, ""), (A, 5), (B, "depth"), (5, "depth"), (A, "depth", None))),
    *((kind, (SPEC.key_of(A), value)) for kind in (b"t", b"p", b"x", b"s") for value in (
        b"", b"\0", b"\1", b"\1\xc1", b"\2\x90", b"\1\x90", b"\1\x80", b"\1" + b"\x91" * 5000 + b"\0", b"\1\xa1\xff",
        pack("text"), pack(5), pack({"url": A}), pack([A] * 12), bytes(2 << 20),
    )),
    (b"l", (b"short", b"")), (b"l", (bytes(20), b"odd")), (b"l", (bytes(23), b"")), (b"f", (b"", b"")),
    *((kind, (bytes(20), b"")) for kind in (b"w", b"n", b"c", b"q", b"h", b"", b"\0")),
    *((b"t", row) for row in NO_PAIRS),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "row"), NONSENSE, ids=lambda value: repr(value)[:60])
def test_a_row_that_is_none_is_refused_and_nothing_breaks(collection: Collection, kind: bytes, row: Any) -> None:
    with pytest.raises(BadRow, match=r"^sent [^\n]{1,200}$"):
        collection.take([(NODES[0], kind, [row])])
    assert collection.content() == []


@given(
    kind=st.sampled_from(GATHERED),
    key=st.just(SPEC.key_of(A)) | st.binary(max_size=45),
    value=st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: b"\1" + rest),
)
def test_arbitrary_bytes_are_refused_or_leave_a_store_that_can_be_read(kind: bytes, key: bytes, value: bytes) -> None:
    collection = Collection()
    try:
        collection.take([(NODES[0], kind, [(key, value)])])
    except BadRow:
        return
    collection.finish()
    outputs(collection)
    assert all("unreadable" not in problem for problem in collection.problems())


@pytest.mark.parametrize(
    "row", [task_row(), task_row({"state": State.DONE, "place": Place("n", "f", 0, 1)}), page_row()]
)
def test_the_rows_that_nonsense_is_made_of_are_good(collection: Collection, row: tuple[bytes, bytes]) -> None:
    kind = b"p" if row == page_row() else b"t"
    collection.take([(NODES[0], kind, [row])])
    collection.take([(NODES[0], b"x", [extra_row()]), (NODES[0], b"s", [skipped_row(A, "depth")])])
    collection.take([(NODES[0], b"s", [skipped_row(A, "depth", B)])])
    assert len(collection.content()) >= 3


def test_a_page_with_as_many_records_as_its_node_stores_is_taken(collection: Collection) -> None:
    collection.take([(NODES[0], b"p", [page_row({"title": "x" * 500, "records": "x" * STORED_CHARS_MAX})])])
    assert len(collection.content()) == 1


def test_a_later_versions_row_names_the_remedy(collection: Collection) -> None:
    with pytest.raises(BadRow, match="upgrade dhtcrawl here"):
        collection.take([(NODES[0], b"t", [(SPEC.key_of(A), b"\2")])])


def test_a_node_cannot_take_anothers_place(collection: Collection) -> None:
    first = Part(NODES[0])
    first.accept(A)
    first.fetch(A)
    first.robots()
    for _, kind, rows in first.pages([keys.PAGE, keys.EXTRA]):
        stolen: Page = (NODES[1], kind, rows)
        collection.take([stolen])
    assert collection.content() == []


def test_a_bad_row_takes_the_good_ones_of_its_page_along(collection: Collection) -> None:
    rows: list[Any] = [task_row(), None]
    with pytest.raises(BadRow):
        collection.take([(NODES[0], b"t", rows)])
    assert collection.content() == []
