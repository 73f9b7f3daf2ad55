"""Task records are a lattice (design invariant I2), and stored values read back or are refused."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import reduce
from typing import Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dhtcrawl.errors import StorageError, StoreTooNew
from dhtcrawl.storage.store.records import (
    OTHERS_MAX,
    Additions,
    Place,
    State,
    Task,
    depth_of,
    fetched_again,
    lower_order,
    merge,
    pack,
    unpack,
    unpack_task,
    url_of,
)

URL = "http://a.example/"

# So few values each that copies agree in most fields, and differ in the last that decides.
SMALL = st.integers(0, 2)
PLACES = st.builds(Place, st.sampled_from(["n1", "n2"]), st.sampled_from(["a-2", "b-1", "b-c2"]), SMALL, st.just(10))
COPIES = st.builds(
    Task,
    url=st.just(URL),
    depth=SMALL,
    order=SMALL,
    referrer=st.sampled_from(["", "http://b.example/"]),
    state=st.sampled_from([*State, State.DONE, State.DONE]),
    gen=st.integers(0, 1),
    attempt=SMALL,
    hops=st.integers(0, 1),
    seed=st.booleans(),
    reason=st.sampled_from(["", "failed", "robots"]),
    detail=st.sampled_from(["", "timeout"]),
    place=st.none() | PLACES,
    added=st.builds(
        Additions,
        others=st.lists(st.sampled_from(["n1", "n2", "n3"]), max_size=3).map(sorted).map(tuple),
        later=st.sampled_from([b"", b"a", b"b"]),
    ),
)


FIELDS = Task._fields


@st.composite
def copies_of_one(draw: st.DrawFn) -> list[Task]:
    """Three copies that differ in a field or two each: ties are where an order can hide."""
    first = draw(COPIES)
    others = draw(st.lists(COPIES, min_size=2, max_size=2))
    changed = st.sets(st.sampled_from(FIELDS), max_size=2)
    return [first, *(first._replace(**{name: getattr(other, name) for name in draw(changed)}) for other in others)]


THREE = st.lists(COPIES, min_size=3, max_size=3) | copies_of_one()


@given(copies=THREE)
@example(copies=[Task(URL, 0, 0, "", State.DONE, detail=detail) for detail in ("", "timeout", "")])
def test_which_copy_comes_first_does_not_matter(copies: list[Task]) -> None:
    a, b, _ = copies
    assert merge(a, b) == merge(b, a)


@given(copies=THREE)
def test_which_copies_meet_first_does_not_matter(copies: list[Task]) -> None:
    a, b, c = copies
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(copies=THREE)
def test_meeting_again_changes_nothing(copies: list[Task]) -> None:
    a, b, _ = copies
    assert merge(a, a) == a
    assert merge(merge(a, b), b) == merge(a, merge(a, b)) == merge(a, b)


@given(copies=THREE)
def test_who_knows_more_still_does_after_both_met_a_third(copies: list[Task]) -> None:
    a, b, c = copies
    more = merge(a, b)
    assert merge(merge(a, c), merge(more, c)) == merge(more, c)


@given(copies=THREE, data=st.data())
def test_any_order_and_any_number_of_meetings_ends_the_same(copies: list[Task], data: st.DataObject) -> None:
    met = data.draw(st.permutations(copies + data.draw(st.lists(st.sampled_from(copies), max_size=3))))
    assert reduce(merge, met) == reduce(merge, copies)


@given(copies=THREE)
def test_a_merge_never_goes_back(copies: list[Task]) -> None:
    a, b, _ = copies
    merged = merge(a, b)
    assert merged.gen == max(a.gen, b.gen)
    assert merged.depth == min(a.depth, b.depth)
    assert merged.seed == (a.seed or b.seed)
    for copy in (a, b):
        if copy.gen == merged.gen and copy.state >= State.DEAD:
            assert merged.state >= copy.state
    assert merged.place in (a.place, b.place)


@given(copies=THREE)
def test_how_often_each_node_fetched_the_page_is_never_forgotten(copies: list[Task]) -> None:
    a, b, _ = copies
    known = Counter(a.fetchers) | Counter(b.fetchers)
    assert Counter(merge(a, b).fetchers) == known
    again = a.with_others(fetched_again(a, "n2"))
    assert Counter(again.fetchers) == Counter([*a.fetchers, "n2"])


def test_a_record_of_a_page_that_was_fetched_once_is_stored_as_ever() -> None:
    assert len(unpack(TASK.pack())) == 12
    twice = TASK.with_others(("n1", "n2"))
    assert unpack_task(twice.pack()) == twice
    assert unpack_task(twice.pack_with(7)) == twice._replace(order=7)


def test_no_more_than_so_many_fetchers_are_kept() -> None:
    many = TASK.with_others(tuple(f"n{n:03}" for n in range(OTHERS_MAX)))
    assert fetched_again(many, "n000a") == (*many.others[:1], "n000a", *many.others[1:-1])
    more = TASK.with_others(("n0000", "n999"))
    assert merge(many, more) == merge(more, many)
    assert merge(many, more).others == ("n000", "n0000", *many.others[1:-1])


TASK = Task(URL, 1, 1, "")


@pytest.mark.parametrize(
    ("a", "b", "winner"),
    [
        ({"state": State.DONE, "gen": 0}, {"state": State.PENDING, "gen": 1}, "b"),
        ({"state": State.DONE, "attempt": 0}, {"state": State.DEAD, "attempt": 9}, "a"),
        ({"state": State.DEAD, "attempt": 0}, {"state": State.FETCHED, "attempt": 9}, "a"),
        ({"state": State.FETCHED, "attempt": 0}, {"state": State.PENDING, "attempt": 1}, "b"),
        ({"state": State.FETCHED, "attempt": 1}, {"state": State.PENDING, "attempt": 1}, "a"),
        ({"state": State.DONE, "attempt": 0}, {"state": State.DONE, "attempt": 1}, "a"),
        (
            {"state": State.DONE, "place": Place("n2", "f", 0, 1)},
            {"state": State.DONE, "place": Place("n1", "f", 9, 1)},
            "b",
        ),
    ],
)
def test_the_winner_is_the_higher_gen_then_what_is_settled_then_the_attempt(
    a: dict[str, Any], b: dict[str, Any], winner: str
) -> None:
    one, two = TASK._replace(**a), TASK._replace(**b)
    assert merge(one, two).with_others(()) == (one if winner == "a" else two)


@pytest.mark.parametrize(
    "other", [{"attempt": 1}, {"attempt": 0}, {"attempt": 2}, {"state": State.DEAD, "reason": "failed"}]
)
def test_a_stored_record_with_the_retired_number_is_a_pending_one(other: dict[str, Any]) -> None:
    pending = TASK._replace(gen=2, attempt=1)
    fields = list(unpack(pending.pack()))
    fields[4] = 1  # what was LEASED
    old = unpack_task(pack(fields))
    assert old == pending
    assert unpack(old.pack())[4] == State.PENDING
    assert merge(old, pending._replace(**other)) == merge(pending, pending._replace(**other))
    assert 1 not in set(map(int, State))


def test_a_done_copy_keeps_the_shorter_way_of_one_that_is_not() -> None:
    done = TASK._replace(state=State.DONE, depth=5, order=1, referrer="far", hops=2)
    found = TASK._replace(depth=2, order=9, referrer="near", seed=True)
    assert merge(done, found) == done._replace(depth=2, order=9, referrer="near", hops=0, seed=True)


# Stored values

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
TASKS = st.builds(
    Task,
    url=TEXT,
    depth=st.integers(0, 1 << 40),
    order=st.integers(0, (1 << 64) - 1),
    referrer=TEXT,
    state=st.sampled_from(State),
    gen=st.integers(0, 1 << 40),
    attempt=st.integers(0, 1 << 40),
    hops=st.integers(0, 100),
    seed=st.booleans(),
    reason=TEXT,
    detail=TEXT,
    place=st.none() | st.builds(Place, TEXT, TEXT, st.integers(0, 1 << 60), st.integers(0, 1 << 60)),
    added=st.builds(Additions, others=st.lists(TEXT, max_size=2).map(tuple), later=st.binary(max_size=3)),
)


@given(task=TASKS)
def test_a_task_reads_back_as_it_was(task: Task) -> None:
    assert unpack_task(task.pack()) == task


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | TEXT | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.binary(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(value=VALUES)
def test_any_other_record_reads_back_as_it_was(value: object) -> None:
    assert unpack(pack(value)) == value


def test_fields_behind_those_of_this_version_are_left_out() -> None:
    known = msgpack.unpackb(TASK.pack()[1:])
    assert unpack_task(pack([*known, [], b"later", "new"])) == TASK._replace(added=Additions(later=b"later"))


@pytest.mark.parametrize("version", [2, 255])
def test_a_record_of_a_newer_format_is_refused(version: int) -> None:
    value = bytes([version]) + TASK.pack()[1:]
    for read in (unpack, unpack_task):
        with pytest.raises(StoreTooNew, match=f"format {version}, this version reads 1; upgrade dhtcrawl"):
            read(value)


@given(value=st.binary(max_size=40) | st.binary(max_size=40).map(lambda tail: b"\1" + tail))
def test_damage_is_a_storage_error_that_names_the_remedy(value: bytes) -> None:
    for read in (unpack, unpack_task):
        try:
            read(value)
        except StoreTooNew:
            assert value[:1] > b"\1"
        except StorageError as error:
            assert "damaged record" in str(error)  # noqa: PT017 - most bytes are some value
            assert "dhtcrawl fsck" in str(error)  # noqa: PT017


@given(task=TASKS, at=st.integers(0, 200), byte=st.integers(0, 255))
def test_a_flipped_byte_is_no_other_error_either(task: Task, at: int, byte: int) -> None:
    value = bytearray(task.pack())
    value[at % len(value)] = byte
    for damaged in (bytes(value), bytes(value[: at % len(value)])):
        with suppress(StorageError):
            unpack_task(damaged)


@given(
    url=st.text("a/é", max_size=300),
    depth=st.sampled_from([0, 1, 127, 128, 255, 65_536]),
    others=st.sampled_from([(), ("ab" * 20,)]),
    later=st.sampled_from([b"", b"x"]),
)
def test_the_depth_alone_is_that_of_the_whole_record(
    url: str, depth: int, others: tuple[str, ...], later: bytes
) -> None:
    task = Task(url, depth, 1 << 41, "http://a.example/", added=Additions(others, later))
    assert depth_of(task.pack()) == depth
    assert url_of(task.pack()) == url


@pytest.mark.parametrize("value", [b"", b"\1", b"\1\x9c\xd9\xff", b"\1\x9c\xd9\x01u", b"\1\x93\x01\x02\x03"])
def test_the_depth_of_a_damaged_record_is_an_error(value: bytes) -> None:
    with pytest.raises(StorageError):
        depth_of(value)


LONG = "http://a.example/" + "x" * 40
ORDERS = st.sampled_from([0, 1, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, (1 << 64) - 1])


@given(task=COPIES, order=ORDERS, other=ORDERS)
def test_of_two_that_differ_in_their_number_the_lower_is_what_they_merge_to(task: Task, order: int, other: int) -> None:
    a, b = (task._replace(url=LONG, order=number) for number in (order, other))
    assert lower_order(a.pack(), b.pack()) == merge(a, b).pack()


@given(a=COPIES, b=COPIES, url=st.sampled_from([URL, LONG]))
def test_two_that_differ_in_more_are_left_to_merging(a: Task, b: Task, url: str) -> None:
    a, b = a._replace(url=url), b._replace(url=url)
    lower = lower_order(a.pack(), b.pack())
    assert lower is None or (a._replace(order=b.order) == b and lower == merge(a, b).pack())


@given(task=COPIES, at=st.integers(0, 200), byte=st.integers(0, 255))
def test_a_damaged_record_is_the_same_as_no_other(task: Task, at: int, byte: int) -> None:
    value = task._replace(url=LONG).pack()
    damaged = bytearray(value)
    damaged[at % len(value)] = byte
    for other in (bytes(damaged), bytes(damaged[: at % len(value)]), b""):
        lower = lower_order(value, other)
        assert lower is None or unpack_task(lower) == merge(unpack_task(value), unpack_task(other))
