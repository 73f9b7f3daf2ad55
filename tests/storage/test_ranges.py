"""Pages and digests of a node's records: complete, in order, bounded, and equal exactly where records are."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL, PLACE, Store

from dhtcrawl.errors import StorageError
from dhtcrawl.keyspace import KEY_BYTES, host_key, url_key
from dhtcrawl.storage.store import keys, ranges, replicas
from dhtcrawl.storage.store.ranges import FIRST, LAST, Digests
from dhtcrawl.storage.store.records import Place, State, Task, pack, unpack
from dhtcrawl.storage.store.replicas import TaskReplica

URLS = [f"http://a.example/{n}" for n in range(40)]
BITS = 4


def copy(url: str, *, host_mode: bool = False) -> TaskReplica:
    key = host_key("a.example") + url_key(url) if host_mode else url_key(url)
    return TaskReplica(key, Task(url, 1, 0, "http://a.example/"))


def holding(*some: TaskReplica) -> Store:
    store = Store()
    store.run(
        lambda txn: replicas.merge_in(
            txn, CRAWL, some, store.orders, mine=everything, held=nothing, depth_matters=False
        )
    )
    return store


def everything(_: bytes) -> bool:
    return True


def nothing(_: bytes) -> bool:
    return False


def digests(store: Store, first: bytes = FIRST, last: bytes = LAST, bits: int = BITS) -> Digests:
    found = Digests()
    while found.cursor is not None:
        store.run(lambda txn: ranges.add_digests(txn, CRAWL, first, last, bits, found, everything))
    return found


def number(value: int) -> bytes:
    return value.to_bytes(KEY_BYTES, "big")


@given(
    limit=st.integers(1, 50),
    bytes_max=st.integers(300, 5_000),
    first=st.sampled_from([FIRST, b"\x30" * KEY_BYTES]),
    last=st.sampled_from([LAST, b"\xb0" * KEY_BYTES]),
    unwanted=st.frozensets(st.sampled_from(URLS)),
)
def test_pages_hold_every_wanted_record_of_the_range_once_in_order(
    limit: int, bytes_max: int, first: bytes, last: bytes, unwanted: frozenset[str]
) -> None:
    store = holding(*map(copy, URLS))
    wanted = {url_key(url) for url in URLS if url not in unwanted}
    found: list[bytes] = []
    cursor: bytes | None = b""
    while cursor is not None:
        after = cursor
        some, cursor = store.run(
            lambda txn: ranges.page(txn, CRAWL, first, last, after, limit, bytes_max, wanted.__contains__)  # noqa: B023
        )
        assert len(some) <= limit
        assert sum(len(task.pack()) for _, task in some) <= bytes_max
        found += [key for key, _ in some]
    assert found == sorted(key for key in wanted if first <= key <= last)


def test_a_record_that_does_not_fit_ends_the_page_before_it() -> None:
    store = holding(copy(URLS[0]))
    page = store.run(lambda txn: ranges.page(txn, CRAWL, FIRST, LAST, b"", 9, 50, everything))
    assert page == ([], b"")


def test_a_call_looks_at_a_bounded_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "RECORDS_A_CALL", 7)
    store = holding(*map(copy, URLS))
    page = store.run(lambda txn: ranges.page(txn, CRAWL, FIRST, LAST, b"", 99, 1 << 20, nothing))
    assert page == ([], sorted(map(url_key, URLS))[6])
    found = Digests()
    store.run(lambda txn: ranges.add_digests(txn, CRAWL, FIRST, LAST, 0, found, everything))
    assert found.parts[0].count == 7
    assert digests(store, bits=0).parts[0].count == len(URLS)


@given(st.permutations(URLS[:6]), st.permutations(URLS[:6]))
def test_digests_do_not_depend_on_when_and_how_tasks_were_found(one: list[str], other: list[str]) -> None:
    a = holding(*map(copy, one))
    b = holding(*(TaskReplica(key, task._replace(referrer="http://x.example/")) for key, task in map(copy, other)))
    assert digests(a).pack(BITS) == digests(b).pack(BITS)


@pytest.mark.parametrize(
    "change",
    [
        {"gen": 1},
        {"attempt": 1},
        {"depth": 0},
        {"seed": True},
        {"state": State.DONE, "place": PLACE},
        {"state": State.DONE, "place": Place("cd" * 20, *PLACE[1:])},
        {"state": State.DEAD, "reason": "failed"},
        {"state": State.DEAD, "reason": "robots"},
    ],
    ids=str,
)
def test_a_record_that_differs_changes_the_digest_of_its_part_and_no_other(change: dict[str, object]) -> None:
    some = list(map(copy, URLS))
    key, task = some[3]
    changed = TaskReplica(key, task._replace(**change))  # type: ignore[arg-type]
    ours, theirs = digests(holding(*some)), digests(holding(*some[:3], changed, *some[4:]))
    differing = [n for n in range(1 << BITS) if ours.parts.get(n) != theirs.parts.get(n)]
    assert differing == [key[0] >> 8 - BITS]


def test_a_record_with_the_retired_number_has_the_digest_of_a_pending_one() -> None:
    key, task = copy(URLS[0])
    fields = list(unpack(task.pack()))
    old = holding()
    old.run(lambda txn: txn.put(keys.TASK + CRAWL + key, pack([*fields[:4], 1, *fields[5:]])))
    assert digests(old).pack(BITS) == digests(holding(TaskReplica(key, task))).pack(BITS)


def test_records_that_are_not_wanted_are_in_no_digest() -> None:
    """The other node does not keep them: no comparison would ever end."""
    wanted = [copy(url) for url in URLS[::2]]
    ours, found = holding(*map(copy, URLS)), Digests()
    while found.cursor is not None:
        ours.run(
            lambda txn: ranges.add_digests(
                txn, CRAWL, FIRST, LAST, BITS, found, {key for key, _ in wanted}.__contains__
            )
        )
    assert found == digests(holding(*wanted))


def test_parts_know_how_many_records_they_have_and_which_are_first_and_last() -> None:
    found = digests(holding(*map(copy, URLS)))
    for part_number, part in found.parts.items():
        inside = sorted(key for key in map(url_key, URLS) if key[0] >> 8 - BITS == part_number)
        assert (part.count, part.lowest, part.highest) == (len(inside), inside[0], inside[-1])
    assert len(found.pack(BITS)) == ranges.DIGEST_BYTES << BITS


@given(st.integers(0, 2**160 - 1), st.integers(0, 2**160 - 1), st.integers(0, 8), st.data())
def test_every_key_lies_within_the_bounds_of_its_part_and_parts_follow_one_another(
    one: int, other: int, bits: int, data: st.DataObject
) -> None:
    low, high = min(one, other), max(one, other)
    if low == high:
        return
    key = data.draw(st.integers(low, high) | st.sampled_from([low, high]))
    part = ranges.part_numbers(number(low), number(high), bits)(number(key))
    assert 0 <= part < 1 << bits
    first, last = ranges.part_bounds(number(low), number(high), bits, part)
    assert first <= key <= last
    bounds = [ranges.part_bounds(number(low), number(high), bits, n) for n in range(1 << bits)]
    assert bounds[0][0] == low
    assert bounds[-1][1] == high
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(bounds))


def test_the_tasks_of_one_host_are_told_apart_by_the_rest_of_their_keys() -> None:
    host = host_key("a.example")
    found = digests(holding(*(copy(url, host_mode=True) for url in URLS)), host, host)
    assert sum(part.count for part in found.parts.values()) == len(URLS)
    assert set(found.parts) == {url_key(url)[0] >> 8 - BITS for url in URLS}
    low, high = ranges.part_bounds(host, host, BITS, 3)
    assert (low >> 160 - BITS, high >> 160 - BITS) == (3, 3)


def test_a_damaged_record_is_told_of() -> None:
    store = holding(copy(URLS[0]))
    store.put(keys.key(keys.TASK, CRAWL, url_key(URLS[0])), pack([1, 2]))
    with pytest.raises(StorageError, match="dhtcrawl fsck"):
        digests(store)


def test_a_record_is_the_same_where_key_and_content_are() -> None:
    here, other = copy(URLS[0]), copy(URLS[1])
    store = holding(here)
    nearer = TaskReplica(here.key, here.task._replace(depth=0))
    hashes = [(each.key, ranges.record_hash(each)) for each in (here, other, nearer)]
    assert store.run(lambda txn: ranges.same(txn, CRAWL, hashes)) == [True, False, False]
    assert ranges.record_hash(TaskReplica(other.key, here.task)) != ranges.record_hash(here)


def test_the_digest_of_each_part_stands_at_its_place() -> None:
    digests_of_one = digests(holding(copy(URLS[0])))
    (number_of_it, part), *_ = digests_of_one.parts.items()
    packed = digests_of_one.pack(BITS)
    size = ranges.DIGEST_BYTES
    found = [int.from_bytes(packed[at : at + size], "big") for at in range(0, len(packed), size)]
    assert found == [part.digest if number == number_of_it else 0 for number in range(1 << BITS)]
    assert part.digest == ranges.record_hash(copy(URLS[0]))
