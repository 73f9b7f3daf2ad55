"""Rows from strangers, what is told how often, and whether it is us who is unwell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.keyspace import INCARNATION_MAX
from dhtcrawl.rpc.discovery.datagram import packed_bytes
from dhtcrawl.rpc.membership.health import SCORE_MAX, LocalHealth, PauseDetector
from dhtcrawl.rpc.membership.hello import EPOCH_MAX, ROW_BYTES_MAX, MemberRecord, merge, parse_record, parse_records
from dhtcrawl.rpc.membership.rumours import Rumours, tellings
from rpc.records import ACTIVE, DEAD, SUSPECTED, members, node, records

values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-1, 2**70), st.text(max_size=4), st.binary(max_size=21), st.floats()
    ),
    lambda inner: st.lists(inner, max_size=12),
    max_leaves=30,
)


@given(records, st.lists(st.one_of(st.integers(0, 9), st.text("e", max_size=3)), max_size=3))
def test_a_record_survives_both_planes_with_what_later_versions_add(record: MemberRecord, added: list[Any]) -> None:
    owns = record.owns if record.state >= SUSPECTED else record.state is ACTIVE
    record = replace(record, owns=owns)
    row = [*record.row(), *added]
    for use_list in (True, False):
        read = parse_record(msgpack.unpackb(msgpack.packb(row), use_list=use_list), "127.0.0.1")
        assert read is not None
        assert replace(read, extra=()) == replace(record, extra=())
        assert read.row() == row


@given(st.one_of(values, st.lists(values, min_size=10, max_size=10)))
def test_a_row_may_be_anything(row: Any) -> None:
    record = parse_record(row, "10.0.0.5", first_hand=True)
    assert record is None or parse_record(record.row(), "10.0.0.5") == record


@given(st.integers(0, 9), values)
def test_every_field_of_a_row_is_checked(index: int, value: Any) -> None:
    row: list[Any] = node("a").row()
    row[index] = value
    record = parse_record(row, "10.0.0.5")
    assert record is None or (1 <= record.port < 65_536 and packed_bytes(record.row()) <= ROW_BYTES_MAX)
    if record is not None and index == 0:
        assert record.id == value
        assert len(record.id) == 20


@pytest.mark.parametrize(
    ("field", "value"),
    [(0, b"short"), (1, "example.org"), (1, "224.0.0.1"), (1, "\ud800"), (2, 0), (2, 65_536), (2, True), (3, -1),
     (3, INCARNATION_MAX + 1), (4, EPOCH_MAX + 1), (5, 5), (6, 1), (7, ["x"] * 17), (7, [""]), (7, "x"), (8, 0), (9, 0),
     (7, ["x" * 32] * 16)],
)  # fmt: skip
def test_a_row_out_of_range_is_none(field: int, value: Any) -> None:
    row: list[Any] = node("a").row()
    row[field] = value
    assert parse_record(row, "10.0.0.5") is None
    assert parse_records([row, node("a").row()], "10.0.0.5", 2) == ([node("a")], 1)


def test_rows_beyond_the_number_allowed_are_not_read() -> None:
    rows = [node(name).row() for name in "abc"]
    assert parse_records(rows, "10.0.0.5", 2) == ([node("a"), node("b")], 1)
    assert parse_records(7, "10.0.0.5", 2) == ([], 1)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_a_node_that_does_not_say_where_it_is_is_where_its_datagrams_come_from(host: str) -> None:
    row = replace(node("a"), host=host).row()
    first_hand = parse_record(row, "10.0.0.5", first_hand=True)
    assert first_hand is not None
    assert first_hand.host == "10.0.0.5"
    assert parse_record(row, "10.0.0.5") is None  # of a third node nobody can say
    assert parse_record(row, None, first_hand=True) is None


def test_a_loopback_address_counts_only_from_this_machine() -> None:
    row = replace(node("a"), host="127.0.0.1").row()
    assert parse_record(row, "127.0.0.1") is not None
    assert parse_record(row, "10.0.0.5") is None
    assert parse_record(row, None) is None
    elsewhere, here = node("a"), replace(node("a"), host="127.0.0.1")
    assert merge(elsewhere, here) == merge(here, elsewhere) == elsewhere


def test_a_record_that_others_would_not_take_is_refused_at_once() -> None:
    assert MemberRecord.newcomer(b"a" * 20, ("::ffff:10.0.0.1", 1), 1).host == "10.0.0.1"
    assert MemberRecord.newcomer(b"a" * 20, ("::", 1), 1).host == "::"
    with pytest.raises(ValueError, match="limits"):
        MemberRecord.newcomer(b"a" * 20, ("example.org", 1), 1)
    with pytest.raises(ValueError, match="limits"):
        MemberRecord.newcomer(b"a" * 20, ("10.0.0.1", 0), 1)


# Rumours


def test_each_change_is_told_three_times_the_logarithm_the_newest_first() -> None:
    assert [tellings(n) for n in (1, 7, 30)] == [3, 9, 15]
    rumours = Rumours()
    for name in "abc":
        rumours.put(node(name))
    one = packed_bytes(node("a").row())
    assert rumours.take(2 * one, 7) == [node("c").row(), node("b").row()]
    assert rumours.take(2 * one + 1, 7) == [node("a").row(), node("c").row()]
    told = [row[0] for _ in range(30) for row in rumours.take(10 * one, 7)]
    assert sorted(told) == sorted([node("a").id] * 8 + [node("b").id] * 8 + [node("c").id] * 7)
    assert len(rumours) == 0


def test_a_newer_change_replaces_the_older_and_is_told_anew() -> None:
    rumours = Rumours()
    rumours.put(node("a"))
    for _ in range(2):
        rumours.take(1000, 1)
    rumours.put(node("a", SUSPECTED))
    assert [rumours.take(1000, 1) for _ in range(4)] == [[node("a", SUSPECTED).row()]] * 3 + [[]]


def test_what_a_newcomer_is_taught_and_deaths_of_strangers_are_no_news() -> None:
    known = members()
    known.learn([node("a")], 0.0, news=False)
    known.learn([node("b", DEAD)], 0.0)
    assert len(known.rumours) == 0
    known.learn([node("a", DEAD)], 0.0)
    assert known.rumours.take(1000, 2) == [node("a", DEAD).row()]


# Ourselves, unwell


def test_health_falls_when_we_are_late_and_recovers_with_answers() -> None:
    health = LocalHealth()
    assert health.factor == 1
    assert not health.timer_fired(0.2)
    assert health.timer_fired(0.3)
    assert health.factor == 2
    health.timer_fired(60.0)
    assert health.score == SCORE_MAX
    for _ in range(9):
        health.was_answered()
    assert health.factor == 1


def test_a_pause_longer_than_the_suspicion_is_noticed_once() -> None:
    pauses = PauseDetector(5.0)
    assert [pauses.was_paused(now) for now in (100.0, 100.5, 105.5, 110.6, 111.1)] == [False, False, False, True, False]
