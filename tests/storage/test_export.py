"""What a node hands out: every record once, in bounded pages, and nothing of the archive that is not committed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL, SPEC, Store
from storage.swarm_stores import NODES, Part

from dhtcrawl.storage.collect.export import (
    EXPORTED,
    CannotExport,
    Row,
    export_chunk,
    export_files,
    export_rows,
)
from dhtcrawl.storage.collect.limits import CHUNK_BYTES_MAX, ROWS_MAX
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import pack

A, B, C = (f"http://a.example/{name}" for name in "abc")
OTHER = bytes(16)
FILE = f"000102030405-{NODES[0][:12]}-00000.warc.gz"


def read(store: Store, kind: bytes, cursor: bytes = b"", bytes_max: int = 1 << 18) -> tuple[list[Row], bytes | None]:
    return store.run(lambda txn: export_rows(txn, CRAWL, kind, cursor, bytes_max))


def read_all(store: Store, kind: bytes, bytes_max: int) -> list[list[Row]]:
    pages, cursor = [], b""
    while True:
        rows, after = read(store, kind, cursor, bytes_max)
        pages.append(rows)
        if after is None:
            return pages
        assert after > cursor
        cursor = after


@pytest.fixture
def node() -> Part:
    node = Part(NODES[0])
    node.accept(A, B, C)
    node.fetch(A, links=[B, C], skipped=[("http://b.example/", "out-of-scope")])
    node.robots()
    node.fetch(B)
    node.settle(B)
    return node


@pytest.mark.parametrize(("kind", "count"), [("t", 3), ("p", 2), ("l", 2), ("x", 1), ("s", 1), ("w", 1), ("f", 1)])
def test_every_kind_is_handed_out_as_it_is_stored(node: Part, kind: str, count: int) -> None:
    stored = list(node.store.engine.scan(*keys.bounds(kind.encode(), CRAWL)))
    rows, after = read(node.store, kind.encode())
    assert [(kind.encode() + CRAWL + suffix, value) for suffix, value in rows] == stored
    assert (len(rows), after) == (count, None)


def test_counters_are_a_row_and_what_is_a_nodes_own_stays(node: Part) -> None:
    node.store.put(keys.key(keys.COUNTERS, CRAWL), pack({"fetches": 3}))
    assert read(node.store, keys.COUNTERS) == ([(b"", pack({"fetches": 3}))], None)
    for kind in set(keys.KINDS) - set(EXPORTED) | {b"", b"\0", b"tp"}:
        with pytest.raises(CannotExport, match="not handed out"):
            read(node.store, kind)


def test_another_crawls_rows_do_not_appear(node: Part) -> None:
    node.store.put(keys.TASK + OTHER + SPEC.key_of(A), b"")
    node.store.put(keys.TASK + b"\xff" * 16 + SPEC.key_of(A), b"")
    assert len(read(node.store, keys.TASK)[0]) == 3


def test_a_page_has_a_bounded_number_of_rows() -> None:
    store = Store()
    for number in range(ROWS_MAX + 2):
        store.put(keys.FETCHED + CRAWL + number.to_bytes(20, "big"), b"")
    assert [len(rows) for rows in read_all(store, keys.FETCHED, 1 << 20)] == [ROWS_MAX, 2]


def test_a_page_is_bounded_in_bytes_but_never_empty() -> None:
    store = Store()
    for number in range(5):
        store.put(keys.PAGE + CRAWL + number.to_bytes(20, "big"), bytes(30))
    assert [len(rows) for rows in read_all(store, keys.PAGE, 100)] == [2, 2, 1]
    assert [len(rows) for rows in read_all(store, keys.PAGE, 1)] == [1] * 5


@pytest.mark.parametrize("width", [20, 40])
@given(counts=st.lists(st.integers(0, 9), max_size=6), bytes_max=st.integers(1, 150))
def test_long_link_keys_go_out_in_parts_that_make_the_whole(width: int, counts: list[int], bytes_max: int) -> None:
    store, stored = Store(), {}
    for number, count in enumerate(counts):
        key = bytes([number]) * width
        stored[key] = b"".join(bytes([number + 1, other]) + bytes(width - 2) for other in range(count))
        store.put(keys.LINKS + CRAWL + key, stored[key])
    pages = read_all(store, keys.LINKS, bytes_max)
    assert all(sum(len(value) for _, value in rows) <= bytes_max for rows in pages)
    whole: dict[bytes, bytes] = {}
    for suffix, value in (row for rows in pages for row in rows):
        key, part = suffix[:width], suffix[width:]
        assert not part or int.from_bytes(part, "big") == len(whole.get(key, b""))
        whole[key] = whole.get(key, b"") + value
    assert whole == stored


def test_links_that_fit_into_a_page_of_their_own_are_in_one_piece() -> None:
    store = Store()
    for number in range(3):
        store.put(keys.LINKS + CRAWL + bytes([number]) * 20, bytes(80))
    assert [[len(suffix) for suffix, _ in rows] for rows in read_all(store, keys.LINKS, 80)] == [[20], [20], [20]]


@given(cursor=st.binary(max_size=60), kind=st.sampled_from(EXPORTED))
def test_any_cursor_reads_something_or_nothing(cursor: bytes, kind: bytes) -> None:
    store = Store()
    store.put(kind + CRAWL + b"k" * 20, b"v" * 20)
    rows, after = read(store, kind, cursor)
    assert after is None or after > cursor
    assert all(suffix >= cursor or cursor.startswith(suffix) for suffix, _ in rows)


# Archive files


def chunk(node: Part, name: str, offset: int, limit: int) -> bytes:
    return node.store.run(lambda txn: export_chunk(txn, CRAWL, node.directory, name, offset, limit))


def test_a_file_is_read_up_to_what_is_committed_and_not_beyond(node: Part) -> None:
    ((name, length),) = node.store.run(lambda txn: export_files(txn, CRAWL))
    assert name == FILE
    whole = bytes(node.directory.files[name])
    assert len(whole) == length
    node.directory.files[name] += b"half a record"
    assert chunk(node, name, 0, 1 << 20) == whole
    assert chunk(node, name, length - 2, 10) == whole[-2:]
    assert chunk(node, name, 3, 4) == whole[3:7]
    assert [chunk(node, name, offset, 10) for offset in (length, length + 5, -1)] == [b"", b"", b""]
    assert chunk(node, name, 0, -5) == b""


def test_a_chunk_is_bounded(node: Part) -> None:
    node.directory.files[FILE] = bytearray(CHUNK_BYTES_MAX + 10)
    node.store.put(keys.ARCHIVE + CRAWL + FILE.encode(), pack(CHUNK_BYTES_MAX + 10))
    assert len(chunk(node, FILE, 0, 1 << 40)) == CHUNK_BYTES_MAX
    assert len(chunk(node, FILE, CHUNK_BYTES_MAX, 1 << 40)) == 10


@pytest.mark.parametrize("name", ["../store/CURRENT", "", "\udc80", "b.warc.gz", FILE + "\0"])
def test_only_files_of_the_crawl_are_read(node: Part, name: str) -> None:
    node.directory.files[name] = bytearray(b"secret")
    with pytest.raises(CannotExport, match="no such file"):
        chunk(node, name, 0, 10)


def test_a_file_that_was_taken_away_is_told_of_and_stops_nothing(node: Part) -> None:
    length = len(node.directory.files[FILE])
    del node.directory.files[FILE][-1:]
    with pytest.raises(CannotExport, match="shorter"):
        chunk(node, FILE, 0, length)
    node.directory.remove(FILE)
    with pytest.raises(CannotExport, match="cannot read"):
        chunk(node, FILE, 0, length)
