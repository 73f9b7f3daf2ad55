"""Rows of the wire become records and back; what cannot be true is dropped, and nothing raises."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL, PLACE, SPEC, Store

from dhtcrawl.keyspace import TaskKeys, host_key, search_key, unknown_keys, url_key
from dhtcrawl.rpc.tasks import rows
from dhtcrawl.rpc.tasks.frame import Malformed
from dhtcrawl.rpc.tasks.messages import StoreBackup, encode
from dhtcrawl.storage.store import keys, replicas
from dhtcrawl.storage.store.ranges import record_hash, same
from dhtcrawl.storage.store.records import NO_ADDITIONS, OTHERS_MAX, Additions, Place, State, Task, unpack_task
from dhtcrawl.storage.store.replicas import End, TaskReplica
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.records import wire

URL = "http://a.example:8080/p/%C3%BC?q=[1]|\"'"
BY_URL, BY_HOST = TaskKeys("url"), TaskKeys("host")
KEY = SPEC.key_of(URL)
TASK = Task(URL, 3, 17, "http://a.example/", hops=1, seed=True)
RECORD = wire.record_of(TaskReplica(KEY, TASK))
THERE = rows.PlaceRow(*PLACE)
OURS: Any = {"mine": lambda _: True, "held": lambda _: False}

COPIES = [
    TaskReplica(KEY, TASK),
    TaskReplica(KEY, Task(URL, 0, 1, "", State.PENDING, gen=2, attempt=3)),
    TaskReplica(KEY, Task(URL, 0, 1, "", State.FETCHED, place=PLACE)),
    TaskReplica(KEY, Task(URL, 0, 1, "", State.DONE, attempt=1, place=PLACE)),
    TaskReplica(
        KEY, Task(URL, 0, 1, "", State.DONE, gen=1, place=PLACE, added=Additions(("ab" * 20, "cd" * 20, "cd" * 20)))
    ),
    TaskReplica(KEY, Task(URL, 0, 1, "", State.DONE, gen=2, place=PLACE, added=Additions(("ab" * 20,), b"later"))),
    TaskReplica(KEY, Task(URL, 0, 1, "", State.DEAD, reason="private-address", detail="10.0.0.1: ü")),
]


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: f"{copy.task.state.name}-{copy.task.gen}")
def test_a_record_arrives_as_it_was_sent(copy: TaskReplica) -> None:
    row = wire.record_of(copy)
    encode(1, StoreBackup(CRAWL, (row,)))
    back = wire.copy_of(row, BY_URL)
    assert back == copy
    assert back is not None
    assert type(back.task.state) is State
    assert type(back.task.place) is type(copy.task.place)


@pytest.mark.parametrize("copy", COPIES[3:], ids=lambda copy: copy.task.state.name)
def test_a_tombstone_arrives_as_it_was_sent(copy: TaskReplica) -> None:
    key, task = copy
    expected = End(key, task.state, task.gen, task.attempt, task.reason, task.detail, task.place, task.added)
    assert wire.end_of(wire.tombstone_of(copy), BY_URL) == expected


@given(
    st.lists(
        st.sampled_from(
            [
                *map(wire.record_of, COPIES),
                wire.record_of(TaskReplica(KEY, TASK._replace(added=Additions(later=b"later")))),
                RECORD._replace(url="http://a.example/", key=url_key("http://a.example/")),
                RECORD._replace(key=host_key("a.example:8080") + KEY),
                RECORD._replace(key=KEY[::-1]),
                RECORD._replace(url="javascript:x"),
                RECORD._replace(referrer="\u00fc"),
                RECORD._replace(state=9),
                RECORD._replace(gen=wire.COUNT_MAX + 1),
                RECORD._replace(attempt=wire.COUNT_MAX + 1),
                RECORD._replace(reason="no-need"),
                RECORD._replace(detail="no need"),
                RECORD._replace(place=THERE),
                RECORD._replace(extra=b"\xff"),
            ]
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from((BY_URL, BY_HOST, unknown_keys(20), unknown_keys(40))),
)
def test_records_are_checked_together_as_each_would_be_alone(found: list[rows.RecordRow], keys: TaskKeys) -> None:
    for some in (found, found[:1] * 2):
        copies = wire.copies_in(some, keys)
        assert copies == [wire.copy_of(row, keys) for row in some]
        for copy in copies:
            assert copy is None or (type(copy), type(copy.task)) == (TaskReplica, Task)
            assert copy is None or type(copy.task.state) is State


DONE = rows.TombstoneRow(KEY, int(State.DONE), 0, 1, "", "", THERE)


@given(
    st.lists(
        st.sampled_from(
            [
                DONE,
                DONE._replace(key=KEY[::-1], gen=2, attempt=0),
                DONE._replace(key=KEY + KEY),
                DONE._replace(state=int(State.FETCHED)),
                DONE._replace(state=int(State.DEAD), reason="failed", place=None),
                DONE._replace(gen=wire.COUNT_MAX + 1),
                DONE._replace(attempt=wire.COUNT_MAX + 1),
                DONE._replace(reason="no-need"),
                DONE._replace(detail="a word"),
                DONE._replace(place=None),
                DONE._replace(place=THERE._replace(file="../x")),
                DONE._replace(place=THERE._replace(node="x")),
                DONE._replace(place=THERE._replace(offset=2**63 - 1, length=1)),
                DONE._replace(extra=b"\0later"),
                DONE._replace(extra=b"\xff"),
            ]
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from((BY_URL, BY_HOST, unknown_keys(20), unknown_keys(40))),
)
def test_tombstones_are_checked_together_as_each_would_be_alone(found: list[rows.TombstoneRow], keys: TaskKeys) -> None:
    for some in (found, found[:1] * 2):
        ends = wire.ends_in(some, keys)
        assert ends == [wire.end_of(row, keys) for row in some]
        for end in ends:
            assert end is None or (type(end), type(end.state)) == (End, State)
            assert end is None or end.place is None or type(end.place) is Place


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                (
                    URL,
                    "http://a.example/",
                    "https://b.example/x",
                    "http://a/",
                    "http:///",
                    "http://A.example/",
                    "http://a.example",
                    "http://a.example/x\nhttp://a.example/y",
                    "http://a.example\n/x",
                    "http://a.example/x\n",
                    "\nhttp://a.example/x",
                    "http://a.example/#x",
                    "http://a.example/\u00fc",
                    "http://\u00fc.example/",
                    "http://a.example:80/",
                    "http://a b/",
                    "",
                )
            ),
            st.sampled_from(("", "http://a.example/", "\u00fc")),
            st.sampled_from((b"", b"", b"later", bytes(rows.EXTRA_BYTES_MAX))),
            st.sampled_from((True, True, True, False)),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from((BY_URL, BY_HOST)),
    st.sampled_from((20, 40)),
)
def test_links_are_checked_together_as_each_would_be_alone(
    drawn: list[tuple[str, str, bytes, bool]], keys: TaskKeys, sent: int
) -> None:
    some = []
    for url, referrer, extra, right in drawn:
        host = url.partition("//")[2].partition("/")[0]
        key = (host_key(host) if sent == 40 else b"") + url_key(url if right else url + "x")
        some.append(rows.LinkRow(key, url, 2, referrer, 1, False, extra))
    assert wire.links_of(some, keys) == [wire.link_of(row, keys) for row in some]
    for row in some:
        assert wire.links_of([row, row], keys) == [wire.link_of(row, keys)] * 2


def test_a_link_without_a_url_is_not_taken_wherever_it_stands_in_its_frame() -> None:
    good, none = (rows.LinkRow(url_key(url), url, 2, "", 1, False, b"") for url in (URL, ""))
    assert wire.links_of([none, good, none], BY_URL) == [None, wire.link_of(good, BY_URL), None]
    assert wire.links_of([none], BY_HOST) == [None]


def test_a_page_of_results_lies_where_its_search_does_and_any_other_by_its_url() -> None:
    place = search_key("engine", "site.example")
    keys = TaskKeys("search", lambda url, host: place if url == URL else None)
    other = "http://a.example/other"
    for key, url, right in (
        (place + url_key(URL), URL, True),
        (url_key(URL) * 2, URL, False),
        (url_key(other) * 2, other, True),
        (place + url_key(other), other, False),
        (host_key("a.example") + url_key(other), other, False),
        (url_key(other), other, False),
    ):
        row = rows.LinkRow(key, url, 2, "", 1, False, b"")
        assert (wire.link_of(row, keys) is not None) == right
        assert wire.links_of([row, row], keys) == [wire.link_of(row, keys)] * 2


def test_an_answer_tells_only_of_the_records_that_it_answers() -> None:
    (sent, told), lying = COPIES[:2], RECORD._replace(key=url_key("http://a.example/"), url="http://a.example/")
    assert wire.further_of([wire.record_of(told), lying], [sent]) == [told]
    assert wire.further_of([RECORD._replace(url="http://a.example/")], [sent]) == []
    assert wire.copies_of([lying], unknown_keys(20)) != []
    assert wire.copies_of([lying], unknown_keys(40)) == []


LONGEST = bytes(wire.TAIL_BYTES_MAX)


def test_the_size_of_a_row_is_no_more_than_is_reckoned_with() -> None:
    """With the largest numbers, names and additions that a row may have."""
    link = Link(KEY * 2, URL, 1 << 31, "http://a.example/", 1 << 31, True, Additions(later=LONGEST))
    assert len(msgpack.packb(wire.row_of_link(link))) <= wire.link_bytes(link)
    place = Place("ab" * 20, "f" * 128, 1 << 62, 1 << 62)
    others = tuple(f"{number:040x}" for number in range(OTHERS_MAX))
    for copy in COPIES:
        task = copy.task._replace(
            depth=1 << 31,
            order=1 << 62,
            gen=wire.COUNT_MAX,
            attempt=wire.COUNT_MAX,
            hops=1 << 31,
            place=copy.task.place and place,
            added=Additions(others, LONGEST),
        )
        longest = TaskReplica(KEY * 2, task)
        assert len(msgpack.packb(wire.record_of(longest))) <= wire.record_bytes(longest)


PLAIN_VALUE = "9c b1 687474703a2f2f612e6578616d706c652f 01 02 a0 04 03 04 01 c3 a0 a0 94 a2 6e31 a3 612d31 05 06"
ONE, TWO = "ab" * 20, "cd" * 20


@pytest.mark.parametrize(
    ("added", "count", "stored", "extra", "digest"),
    [
        (NO_ADDITIONS, 12, "", "", 8245392332801073911),
        (Additions((ONE,)), 13, f"91 d928 {ONE.encode().hex()}", f"01 {ONE}", 8222737882730664115),
        (Additions(later=b"later"), 14, "90 c405 6c61746572", "00 6c61746572", 2901826980731386241),
        (
            Additions((ONE, TWO), b"later"),
            14,
            f"92 d928 {ONE.encode().hex()} d928 {TWO.encode().hex()} c405 6c61746572",
            f"02 {ONE} {TWO} 6c61746572",
            11722257582857403335,
        ),
    ],
    ids=["none", "others", "later", "both"],
)
def test_additions_are_the_same_bytes_as_ever(
    added: Additions, count: int, stored: str, extra: str, digest: int
) -> None:
    """Earlier versions wrote these, and a swarm of several versions compares the hashes."""
    task = Task("http://a.example/", 1, 2, "", State.DONE, 3, 4, 1, True, place=Place("n1", "a-1", 5, 6), added=added)
    value = bytes.fromhex(f"01 {PLAIN_VALUE.replace('9c', f'{0x90 + count:02x}', 1)} {stored}")
    assert task.pack() == value
    assert unpack_task(value) == task
    copy = TaskReplica(SPEC.key_of(task.url), task)
    assert wire.record_of(copy).extra == wire.tombstone_of(copy).extra == bytes.fromhex(extra)
    assert record_hash(copy) == digest
    store = Store()
    store.put(keys.TASK + CRAWL + copy.key, value)
    assert store.run(lambda txn: same(txn, CRAWL, [(copy.key, digest)])) == [True]


def test_a_record_with_the_retired_number_arrives_as_a_pending_one() -> None:
    assert wire.copy_of(RECORD._replace(state=1), BY_URL) == TaskReplica(KEY, TASK)
    assert wire.copy_of(RECORD._replace(state=1, place=THERE), BY_URL) is None


ID = bytes.fromhex("ab" * 20)
TOO_LONG = LONGEST + b"\0"


@pytest.mark.parametrize(
    "extra", [b"\x01", b"\x02" + ID, bytes([OTHERS_MAX + 1]) + ID * (OTHERS_MAX + 1), b"\0" + TOO_LONG]
)
def test_an_addition_of_another_form_is_none(extra: bytes) -> None:
    assert wire.copy_of(RECORD._replace(extra=extra), BY_URL) is None


@pytest.mark.parametrize(
    "extra",
    [
        b"\0of a later version",
        b"\x01" + ID + b"of a later version",
        bytes([OTHERS_MAX]) + ID * OTHERS_MAX + LONGEST,
    ],
)
def test_what_a_later_version_adds_to_a_record_passes_through_an_older_node(extra: bytes) -> None:
    store = Store()
    store.accept(Link(KEY, URL, 5, ""))
    newer = wire.copies_of([RECORD._replace(extra=extra)], BY_URL)
    store.run(lambda txn: replicas.merge_in(txn, CRAWL, newer, store.orders, depth_matters=True, **OURS))
    sent = wire.record_of(TaskReplica(KEY, store.task(URL)))
    encode(1, StoreBackup(CRAWL, (sent,)))
    assert sent.extra == extra
    assert record_hash(TaskReplica(KEY, store.task(URL))) != record_hash(TaskReplica(KEY, TASK))
    # So does a tombstone's; and a record without it, of an older node, does not take it away.
    over = wire.end_of(rows.TombstoneRow(KEY, int(State.DEAD), 0, 1, "failed", "", None, extra), BY_URL)
    assert over is not None
    store.run(lambda txn: replicas.bury(txn, CRAWL, [over], **OURS))
    store.run(lambda txn: replicas.bury(txn, CRAWL, [over._replace(gen=1, added=NO_ADDITIONS)], **OURS))
    store.run(lambda txn: replicas.reopen(txn, CRAWL, [KEY], when=lambda task: task.gen == 1, **OURS))
    again = store.task(URL)
    assert again.gen == 2
    assert wire.record_of(TaskReplica(KEY, again)).extra == extra


def test_a_page_that_is_opened_again_is_one_that_backups_take_however_often_it_was_fetched() -> None:
    store = Store()
    fetched = TASK._replace(
        state=State.DONE, place=PLACE, added=Additions(tuple(f"{number:040x}" for number in range(OTHERS_MAX)))
    )
    store.put(keys.TASK + CRAWL + KEY, fetched.pack())
    store.run(lambda txn: replicas.reopen(txn, CRAWL, [KEY], when=lambda _: True, **OURS))
    again = TaskReplica(KEY, store.task(URL))
    assert again.task.gen == 1
    assert wire.copy_of(wire.record_of(again), BY_URL) == again


def test_what_a_later_version_adds_to_a_link_stays_with_its_task() -> None:
    link = Link(KEY, URL, 2, "http://a.example/", 1, True, Additions(later=b"later"))
    assert wire.link_of(wire.row_of_link(link), BY_URL) == link
    assert wire.link_of(wire.row_of_link(link._replace(added=Additions(later=TOO_LONG))), BY_URL) is None
    store = Store()
    store.accept(link, link._replace(depth=1, added=NO_ADDITIONS))
    assert wire.record_of(TaskReplica(KEY, store.task(URL))).extra == b"\0later"
    store.accept(link._replace(depth=0, added=Additions(later=b"more")))
    assert store.task(URL).added == Additions(later=b"more")


def test_a_key_with_its_host_is_that_of_both() -> None:
    key = host_key("a.example:8080") + url_key(URL)
    assert wire.copy_of(RECORD._replace(key=key), BY_HOST) == TaskReplica(key, TASK)
    assert wire.copy_of(RECORD._replace(key=host_key("a.example") + url_key(URL)), BY_HOST) is None
    assert wire.copy_of(RECORD._replace(key=key), BY_URL) is None
    assert wire.copy_of(RECORD, BY_HOST) is None


def with_url(url: str) -> dict[str, Any]:
    return {"url": url, "key": url_key(url)}


@pytest.mark.parametrize(
    "lie",
    [
        {"key": url_key("http://a.example/other")},
        *map(
            with_url,
            [
                "a.example/",
                "ftp://a.example/",
                "javascript:alert(1)//",
                "http://a.example",
                "http:///path",
                "http://",
                "http://A.example/",
                "http://a.example:80/",
                "http://a.example:0x50/",
                "http://me:secret@a.example/",
                "http://a.example/#fragment",
                "http://a.example\\@b.example/",
                "http://0x7f.1/",
                "http://a.example/with space",
                "http://a.example/with\nline",
                "http://a.example/ü",
                "http://ü.example/",
                "http://a..example:99999/",
            ],
        ),
        {"referrer": "http://ü.example/"},
        {"state": 5},
        {"state": 15},
        {"gen": wire.COUNT_MAX + 1},
        {"attempt": 2**31 - 1},
        {"state": 0, "reason": "failed"},
        {"state": 0, "place": THERE},
        {"state": 2},
        {"state": 4},
        {"state": 4, "place": THERE, "reason": "failed"},
        {"state": 3},
        {"state": 3, "reason": "failed", "place": THERE},
        {"state": 3, "reason": "Failed!"},
        {"state": 3, "reason": "failed", "detail": "\ud800"},
        {"state": 4, "place": THERE._replace(node="nobody")},
        {"state": 4, "place": THERE._replace(node="AB" * 20)},
        {"state": 4, "place": THERE._replace(file="../../etc/passwd")},
        {"state": 4, "place": THERE._replace(file=".hidden")},
        {"state": 4, "place": THERE._replace(file="")},
        {"state": 4, "place": THERE._replace(offset=2**63 - 1)},
    ],
    ids=str,
)
def test_a_record_that_cannot_be_true_is_dropped(lie: dict[str, Any]) -> None:
    lying = RECORD._replace(**lie)
    assert wire.copy_of(lying, BY_URL) is None
    assert not wire.valid_record(BY_URL, lying)
    assert wire.copies_of([RECORD, lying, RECORD], BY_URL) == [TaskReplica(KEY, TASK)] * 2


@pytest.mark.parametrize("state", [0, 1, 2, 5])
def test_a_tombstone_of_what_is_not_over_is_dropped(state: int) -> None:
    place = THERE if state == 2 else None
    assert wire.end_of(rows.TombstoneRow(KEY, state, 0, 0, "", "", place), BY_URL) is None


def test_a_long_detail_is_cut_to_what_the_protocol_allows() -> None:
    long = TaskReplica(KEY, Task(URL, 0, 1, "", State.DEAD, reason="failed", detail="x" * 5_000))
    encode(1, StoreBackup(CRAWL, (wire.record_of(long),)))


TEXTS = st.text(max_size=30) | st.sampled_from([URL, "http://a.example/", "failed", "ab" * 20, "a.warc.gz"])
NUMBERS = st.integers(0, 5) | st.integers(0, 2**31 - 1)
RECORDS = st.builds(
    rows.RecordRow,
    key=st.sampled_from([KEY, host_key("a.example:8080") + url_key(URL)]) | st.binary(min_size=20, max_size=20),
    url=TEXTS.filter(bool) | st.just(URL),
    depth=NUMBERS,
    referrer=TEXTS,
    hops=NUMBERS,
    seed=st.booleans(),
    order=st.integers(0, 2**63 - 1),
    state=st.integers(0, 15) | st.integers(0, 4),
    gen=NUMBERS,
    attempt=NUMBERS,
    reason=st.just("") | TEXTS,
    detail=st.just("") | TEXTS,
    place=st.none() | st.builds(rows.PlaceRow, TEXTS, TEXTS, st.integers(0, 2**63 - 1), NUMBERS),
    extra=st.binary(max_size=5),
)


@given(st.lists(RECORDS, max_size=5), st.sampled_from([BY_URL, BY_HOST]))
def test_whatever_a_peer_sends_the_store_takes_what_is_left_of_it(some: list[rows.RecordRow], keys: TaskKeys) -> None:
    store = Store()
    taken = wire.copies_of(some, keys)
    merged = store.run(lambda txn: replicas.merge_in(txn, CRAWL, taken, store.orders, depth_matters=True, **OURS))
    # What was believed can be sent on.
    for further in [*taken, *merged.further]:
        encode(1, StoreBackup(CRAWL, (wire.record_of(further),)))


@given(RECORDS)
def test_a_tombstone_or_link_of_a_peer_never_raises(row: rows.RecordRow) -> None:
    end = wire.end_of(rows.TombstoneRow(row.key, *row[7:]), BY_URL)
    assert end is None or (end.state >= State.DEAD and isinstance(end.place, Place | None))
    wire.link_of(rows.LinkRow(row.key, row.url, row.depth, row.referrer, row.hops, row.seed), BY_URL)


def test_the_protocol_refuses_what_the_store_could_not_even_look_at() -> None:
    with pytest.raises(Malformed):
        StoreBackup(CRAWL, (RECORD._replace(state=16),))
