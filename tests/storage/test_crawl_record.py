"""A crawl's record: copies merge in any order, and what comes from a peer is a record or an error, never a surprise."""

from __future__ import annotations

import dataclasses
import hashlib
import zlib
from collections import ChainMap
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.config import CrawlSettings
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.storage.store import bequests, crawl_record
from dhtcrawl.storage.store.crawl_record import (
    BEQUESTS_MAX,
    COMPLETE,
    FAILED,
    INFLATED_BYTES_MAX,
    LATER_BYTES_MAX,
    LATER_MAX,
    OWN_BYTES,
    PAUSED,
    RUNNING,
    STATES,
    STEP_MAX,
    STOPPED,
    STOPPING,
    VERSION_MAX,
    CrawlRecord,
    NotARecord,
    changed,
    fits_the_wire,
    from_wire,
    has_room,
    heir_of,
    left_to,
    lowered,
    merge_crawls,
    new_record,
    read_fields,
    to_wire,
    with_settings,
    write_fields,
)
from dhtcrawl.storage.store.setting_changes import SettingChanges

NONCE = bytes(range(16))
SPEC = make_spec(["http://a.example/", "http://b.example/x"], CrawlSettings(depth=3, exclude=("x", "é"), delay_s=0.5))
RECORD = CrawlRecord(SPEC.crawl_id(NONCE), SPEC, NONCE)


def left(leaver: str, heir: str, number: int = 1) -> dict[str, bytes]:
    """What a node that left has signed, as the record has it."""
    made = bequests.made(SimKey(bytes.fromhex(leaver)), RECORD.crawl_id, bytes.fromhex(heir), number)
    return {made.name: made.packed()}


def all_left(*said: tuple[str, str]) -> dict[str, bytes]:
    return dict(ChainMap(*(left(*each) for each in said)))


HEX_IDS = st.sampled_from([digit * 40 for digit in "0123456789abcdef"])

COUNTS, TIMES = st.sampled_from([0, 1, 127, 128, 2**63 - 1]), st.sampled_from([0.0, 0.5, 60.0])
DEPTHS = st.sampled_from([None, -1, 0, 3, 2**63 - 1])
RECORDS = st.builds(
    CrawlRecord,
    st.just(RECORD.crawl_id),
    st.just(SPEC),
    st.just(NONCE),
    st.lists(st.sampled_from([f"http://{host}.example/" for host in "abcdef"]), max_size=4),
    st.sampled_from(["", COMPLETE, FAILED, STOPPED, "page limit", "time limit"]),
    st.sampled_from(STATES),
    st.sampled_from(["", "time limit", STOPPED]),
    st.integers(0, 3),
    st.lists(HEX_IDS, max_size=4),
    st.dictionaries(HEX_IDS, HEX_IDS, max_size=3),
    st.fixed_dictionaries({}, optional={"pages": st.integers(0, 9), "seconds": st.floats(0, 9)}),
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from([b"\x01", b"\x02"]), max_size=4),
    st.one_of(
        st.none(),
        st.builds(
            SettingChanges, st.sampled_from([1, 2, 127, 128, 65_536]), TIMES, COUNTS, COUNTS, TIMES, DEPTHS, st.none()
        ),
    ),
    bequests=st.lists(st.builds(left, HEX_IDS, HEX_IDS, st.integers(0, 3)), max_size=3).map(
        lambda said: dict(ChainMap(*said))
    ),
)


# Merging


@given(a=RECORDS, b=RECORDS, c=RECORDS, most=st.sampled_from([2, 4096]))
def test_copies_merge_in_any_order_and_any_number_of_times(
    a: CrawlRecord, b: CrawlRecord, c: CrawlRecord, most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        # Where a list is full, too.
        patch.setattr(crawl_record, "ALIASES_MAX", most)
        patch.setattr(crawl_record, "PARTICIPANTS_MAX", most)
        patch.setattr(crawl_record, "BEQUESTS_MAX", most)
        patch.setattr(crawl_record, "LATER_MAX", most)
        ab = merge_crawls(a, b)
        assert ab == merge_crawls(b, a)
        assert merge_crawls(ab, c) == merge_crawls(a, merge_crawls(b, c))
        assert merge_crawls(ab, b) == ab == merge_crawls(ab, ab)
        assert a.digest == merge_crawls(a, a).digest
        assert (a.digest == b.digest) == (merge_crawls(a, a) == merge_crawls(b, b))
        assert len(ab.aliases) <= most
        assert len(ab.adopted) <= most
        assert len(ab.bequests) <= most


@given(a=RECORDS, b=RECORDS)
def test_state_and_end_come_from_one_copy_and_the_rest_from_both(a: CrawlRecord, b: CrawlRecord) -> None:
    merged = merge_crawls(a, b)
    told = [(r.version, r.state, r.cause, r.ended) for r in (merged, a, b)]
    assert told[0] in told[1:]
    assert merged.version == max(a.version, b.version)
    assert merged.aliases == sorted({*a.aliases, *b.aliases})
    assert merged.participants == sorted({*a.participants, *b.participants})


def test_the_later_change_wins_whoever_made_it() -> None:
    paused = changed(RECORD, PAUSED)
    resumed = changed(paused, RUNNING)
    assert merge_crawls(paused, resumed) == resumed
    over = changed(resumed, RUNNING, ended=COMPLETE)
    reopened = changed(over, RUNNING)
    assert merge_crawls(over, reopened).ended == ""
    assert reopened.version == 4


@pytest.mark.parametrize(
    "other",
    [
        changed(RECORD, PAUSED),
        changed(RECORD, STOPPING, cause=STOPPED),
        changed(RECORD, RUNNING, ended="page limit"),
        changed(RECORD, RUNNING, ended=FAILED),
    ],
)
def test_of_two_changes_at_once_the_end_wins_and_complete_above_all(other: CrawlRecord) -> None:
    over = changed(RECORD, RUNNING, ended=COMPLETE)
    assert merge_crawls(over, other) == over
    assert merge_crawls(other, RECORD) == other


def test_two_coordinators_that_end_a_crawl_have_ended_it_once() -> None:
    here, there = changed(RECORD, RUNNING, ended=COMPLETE), changed(RECORD, RUNNING, ended=COMPLETE)
    assert merge_crawls(here, there) == here
    assert merge_crawls(here, there).version == 1


def test_a_change_that_changes_nothing_is_none() -> None:
    assert changed(RECORD, RUNNING) is RECORD
    assert changed(changed(RECORD, PAUSED), PAUSED).version == 1


# The wire


@given(record=RECORDS)
def test_a_record_survives_the_wire(record: CrawlRecord) -> None:
    assert from_wire(to_wire(record)) == record
    assert from_wire(to_wire(record), known=RECORD) == record


@given(since=RECORDS, news=RECORDS, theirs=RECORDS, among=st.data())
def test_who_knows_a_record_as_it_was_and_hears_what_is_new_knows_all_of_it(
    since: CrawlRecord, news: CrawlRecord, theirs: CrawlRecord, among: st.DataObject
) -> None:
    now, there = merge_crawls(since, news), merge_crawls(since, theirs)
    some = st.sampled_from([bytes.fromhex(node) for node in now.participants] or [bytes(20)])
    ids = sorted(among.draw(st.sets(some | st.binary(min_size=20, max_size=20), max_size=12)))
    heard = from_wire(to_wire(now, since, ids), there, ids)
    assert merge_crawls(there, heard) == merge_crawls(there, now)
    assert not {*heard.participants} & {*since.participants}
    with pytest.raises(NotARecord):
        from_wire(to_wire(now, since))  # who does not know the crawl hears no spec


def test_what_is_new_is_told_in_the_order_of_ids() -> None:
    ids = [f"{n:040x}" for n in range(50)]
    gone = replace(RECORD, bequests=all_left(*((each, "f" * 40) for each in reversed(ids))))
    assert [name[:40] for name in msgpack.unpackb(zlib.decompress(to_wire(gone, RECORD)))["bequests"]] == ids


def test_a_change_costs_little_however_many_took_part() -> None:
    many = replace(RECORD, participants=[f"{n:040x}" for n in range(1_000)])
    assert len(to_wire(changed(many, "stopping"), many)) < 200


def test_a_thousand_new_participants_that_all_see_are_told_in_bits() -> None:
    ids = sorted(hashlib.sha256(bytes([n // 256, n % 256])).digest()[:20] for n in range(1_000))
    some = replace(RECORD, participants=[node.hex() for node in ids[::3]])
    assert len(to_wire(some, RECORD, ids)) < 300
    assert len(to_wire(some, RECORD)) > 5_000


@pytest.mark.parametrize(
    ("places", "nodes"), [(b"\x01", 0), (b"\x00\xff", 8), (b"\x20", 5), (b"\xff" * 100, 5), ("1", 5), (None, 5), (1, 5)]
)
def test_places_among_other_nodes_than_ours_are_refused(places: object, nodes: int) -> None:
    fields = {"crawl": RECORD.crawl_id, "version": 0, "state": RUNNING, "places": places}
    with pytest.raises(NotARecord, match="places"):
        from_wire(zlib.compress(msgpack.packb(fields)), RECORD, [bytes([n]) * 20 for n in range(nodes)])


@pytest.mark.parametrize(
    "crawl",
    [
        CrawlSettings(),
        CrawlSettings(delay_s=0, max_pages=10, time_limit_s=1e9, size_limit_bytes=2**62),
        CrawlSettings(delay_s=0.00001, include=("a|b", "ü"), key="host", allow_private=True, user_agent="x/1 (+y)"),
    ],
)
def test_every_crawl_that_can_be_typed_can_be_told(crawl: CrawlSettings) -> None:
    spec = make_spec(["http://a.example/?q=é&r=%20"], crawl)
    record = CrawlRecord(spec.crawl_id(NONCE), spec, NONCE)
    assert from_wire(to_wire(record)).spec.canonical() == spec.canonical()


def test_tens_of_thousands_of_seeds_fit_and_a_hundred_thousand_do_not() -> None:
    def of(seeds: int) -> CrawlRecord:
        spec = CrawlSpec(tuple(f"https://www.example{n}.org/some/path/{n}" for n in range(seeds)), CrawlSettings())
        return CrawlRecord(spec.crawl_id(NONCE), spec, NONCE)

    assert has_room(of(40_000), OWN_BYTES)
    assert not fits_the_wire(of(100_000))


def wire(**fields: Any) -> bytes:
    """A record's bytes with some fields as given; None leaves one out."""
    told = {**msgpack.unpackb(zlib.decompress(to_wire(RECORD))), **fields}
    return zlib.compress(msgpack.packb({name: value for name, value in told.items() if value is not None}))


def spec_of(change: Callable[[dict[str, Any]], Any]) -> bytes:
    """A record whose crawl id is right for a spec that is not."""
    fields = msgpack.unpackb(SPEC.canonical())
    changed_fields = change(fields)
    spec = msgpack.packb(fields if changed_fields is None else changed_fields)
    return wire(spec=spec, crawl=hashlib.sha256(spec + NONCE).digest()[:16])


NO_RECORDS = {
    "nothing": b"",
    "no bytes": "record",
    "not deflated": b"\x00" * 50,
    "cut off": to_wire(RECORD)[:-3],
    "more behind it": to_wire(RECORD) + b"x",
    "a bomb": zlib.compress(bytes(INFLATED_BYTES_MAX + 1)),
    "no map": zlib.compress(msgpack.packb([1])),
    "no names": zlib.compress(msgpack.packb({b"crawl": 1})),
    "no crawl": wire(crawl=None),
    "a crawl id too short": wire(crawl=bytes(15)),
    "another crawl's id": wire(crawl=bytes(16)),
    "no nonce": wire(nonce=None),
    "another nonce": wire(nonce=bytes(16)),
    "a long nonce": wire(nonce=NONCE + SPEC.canonical()[:1]),
    "no spec": wire(spec=None),
    "a spec that is text": wire(spec="a"),
    "no version": wire(version=None),
    "a truth as version": wire(version=True),
    "a version too high": wire(version=2**60),
    "a negative version": wire(version=-1),
    "a state of its own": wire(state="on fire"),
    "a state that is a list": wire(state=[]),
    "an end that is no word": wire(ended="Complete\n"),
    "a cause that is a number": wire(cause=1),
    "aliases that are none": wire(aliases=["http://a.example"]),
    "an alias that is a number": wire(aliases=[1]),
    "aliases that are a map": wire(aliases={}),
    "too many aliases": wire(aliases=["http://a.example/"] * 5000),
    "participants that are no ids": wire(participants=["x" * 40]),
    "participants that are bytes": wire(participants=bytes(20)),
    "adoptions by nobody": wire(adopted={"a" * 40: 1}),
    "a list of adoptions": wire(adopted=["a" * 40]),
    "a bequest to nobody": wire(bequests={"a" * 40: bytes(104)}),
    "a bequest by letters that are no id": wire(bequests={f"{'A' * 40} {'b' * 40}": bytes(104)}),
    "a bequest that is too short": wire(bequests={f"{'a' * 40} {'b' * 40}": bytes(103)}),
    "a bequest in words": wire(bequests={f"{'a' * 40} {'b' * 40}": "b" * 104}),
    "a list of bequests": wire(bequests=["a" * 40]),
    "too many bequests": wire(bequests={f"{n:040x} {'b' * 40}": bytes(104) for n in range(BEQUESTS_MAX + 1)}),
    "a spec that is no map": spec_of(lambda _: [1]),
    "no seeds": spec_of(lambda fields: fields.pop("seeds") and None),
    "an empty list of seeds": spec_of(lambda fields: fields.update(seeds=[])),
    "a seed that is not canonical": spec_of(lambda fields: fields.update(seeds=["http://a.example"])),
    "a seed that is no web address": spec_of(lambda fields: fields.update(seeds=["file:///etc/passwd"])),
    "a seed twice": spec_of(lambda fields: fields.update(seeds=["http://a.example/"] * 2)),
    "seeds that are numbers": spec_of(lambda fields: fields.update(seeds=[1])),
    "another canon": spec_of(lambda fields: fields.update(canon_version=99)),
    "a long setting": spec_of(lambda fields: fields.update({"x" * 9999: 1, "user_agent": "\n" * 9999})),
    "a setting of a later version": spec_of(lambda fields: fields.update(zeal=11)),
    "a setting left out": spec_of(lambda fields: fields.pop("depth") and None),
    "a depth that is text": spec_of(lambda fields: fields.update(depth="3")),
    "a depth that is no number": spec_of(lambda fields: fields.update(depth=[3])),
    "a truth that is a word": spec_of(lambda fields: fields.update(allow_private="yes")),
    "an endless delay": spec_of(lambda fields: fields.update(delay_s=float("inf"))),
    "a delay that is not a number": spec_of(lambda fields: fields.update(delay_s=float("nan"))),
    "a delay below nothing": spec_of(lambda fields: fields.update(delay_s=-1.0)),
    "a scope of its own": spec_of(lambda fields: fields.update(scope="galaxy")),
    "an expression that is none": spec_of(lambda fields: fields.update(include=["("])),
    "an expression that is not linear": spec_of(lambda fields: fields.update(exclude=["(?!a)b"])),
    "an expression that would be large": spec_of(lambda fields: fields.update(exclude=["(?:a?b?c?d?e?){1000}"])),
    "more expressions than may be": spec_of(lambda fields: fields.update(exclude=["a"] * 1000)),
    "expressions in expressions": spec_of(lambda fields: fields.update(include=[["a"]])),
    "a header in the user agent": spec_of(lambda fields: fields.update(user_agent="a\r\nCookie: b")),
    "a robots.txt token that no node may ask for": spec_of(lambda fields: fields.update(user_agent="b" * 257)),
    "fields in another order": spec_of(lambda fields: dict(reversed(fields.items()))),
}


@pytest.mark.parametrize("name", NO_RECORDS)
def test_what_is_no_record_is_refused(name: str) -> None:
    with pytest.raises(NotARecord) as caught:
        from_wire(NO_RECORDS[name])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_fields_and_words_of_a_later_version_do_no_harm() -> None:
    told = from_wire(wire(ended="moon phase", cause="moon phase"))
    assert told == replace(RECORD, ended="moon phase", cause="moon phase")


def test_a_record_of_a_later_version_passes_through_an_older_node_whole() -> None:
    newer = {"places_of_bodies": {"a": [1, b"x"]}, "of_a_later_version": [1]}
    ours = merge_crawls(replace(RECORD, version=3), from_wire(wire(**newer)))
    assert ours.digest != replace(RECORD, version=3).digest
    stored = read_fields(RECORD.crawl_id, msgpack.unpackb(msgpack.packb(write_fields(ours))))
    assert stored == ours
    for sent in (to_wire(stored), to_wire(stored, since=RECORD)):
        fields = msgpack.unpackb(zlib.decompress(sent))
        assert {name: fields[name] for name in newer} == newer
    assert newer.keys().isdisjoint(msgpack.unpackb(zlib.decompress(to_wire(stored, since=stored))))


def test_what_an_earlier_version_kept_unread_is_read_and_checked_once_its_field_is_known() -> None:
    ours = replace(RECORD, version=3, state=PAUSED, adopted={"a" * 40: "b" * 40})

    def stored(**later: Any) -> CrawlRecord:
        packed = {name: msgpack.packb(value) for name, value in later.items()}
        return read_fields(RECORD.crawl_id, {**write_fields(ours), "later": packed})

    assert stored(adopted={"c" * 40: "d" * 40}, unknown=1) == replace(
        ours, adopted={"a" * 40: "b" * 40, "c" * 40: "d" * 40}, later={"unknown": msgpack.packb(1)}
    )
    assert stored(adopted=7, unknown=1) == replace(ours, later={"unknown": msgpack.packb(1)})
    assert stored(places=b"x", spec=b"x") == ours


def test_no_field_that_is_known_goes_out_as_it_was_when_it_was_not() -> None:
    record = replace(RECORD, version=3, later={"version": msgpack.packb(1), "unknown": msgpack.packb(1)})
    assert from_wire(to_wire(record)) == replace(record, later={"unknown": msgpack.packb(1)})


# Versions of peers


def with_versions(version: int, changes: int, **fields: Any) -> CrawlRecord:
    return replace(RECORD, version=version, changes=SettingChanges(changes, 1.0, 0, 0, 0.0), **fields)


def test_versions_of_a_peer_are_taken_a_step_at_a_time_and_the_rest_as_it_is() -> None:
    known = with_versions(5, 3)
    told = with_versions(5 + STEP_MAX, 3 + STEP_MAX, state=STOPPING, cause=STOPPED)
    assert lowered(told, known) is told
    assert lowered(with_versions(VERSION_MAX, VERSION_MAX, state=STOPPING, cause=STOPPED), known) == told
    assert lowered(with_versions(VERSION_MAX, VERSION_MAX), None) == with_versions(STEP_MAX, STEP_MAX)
    assert lowered(replace(RECORD, version=VERSION_MAX), None) == replace(RECORD, version=STEP_MAX)
    older = with_versions(1, 1)
    assert lowered(older, known) is older


VERSIONS = st.one_of(st.integers(0, 3), st.integers(0, 5_000), st.integers(0, VERSION_MAX))


@given(st.lists(st.tuples(VERSIONS, VERSIONS.map(lambda version: max(1, version)))))
def test_whatever_versions_are_told_the_next_change_is_read_by_all_and_holds(told: list[tuple[int, int]]) -> None:
    known = RECORD
    for version, changes in told:
        known = merge_crawls(known, lowered(with_versions(version, changes), known))
    wish = known.settings.delay_s + 1
    ours = with_settings(changed(known, STOPPING, cause=STOPPED), replace(known.settings, delay_s=wish))
    heard = merge_crawls(known, lowered(from_wire(to_wire(ours)), known))
    assert (heard.state, heard.settings.delay_s) == (STOPPING, wish)


@given(st.integers(0, 9_000), st.integers(1, 9_000))
def test_a_record_that_was_changed_often_is_known_as_it_is_after_a_few_times(version: int, changes: int) -> None:
    honest, known = with_versions(version, changes), RECORD
    for _ in range(9):
        known = merge_crawls(known, lowered(honest, known))
    assert known == honest


@pytest.mark.parametrize("stored", [VERSION_MAX, VERSION_MAX + 1])
def test_a_version_that_an_earlier_version_stored_for_a_peer_leaves_room_for_the_next(stored: int) -> None:
    record = with_versions(stored, VERSION_MAX)
    read = read_fields(RECORD.crawl_id, msgpack.unpackb(msgpack.packb(write_fields(record))))
    ours = with_settings(changed(read, STOPPING, cause=STOPPED), replace(read.settings, delay_s=9.0))
    assert from_wire(to_wire(ours)).settings.delay_s == 9.0


# Changes of settings


def test_the_later_change_of_the_limits_holds_whatever_the_state_and_the_spec_stays() -> None:
    ended = replace(RECORD, version=7, ended="page limit")
    first = with_settings(RECORD, replace(SPEC.settings, max_pages=10))
    second = with_settings(first, replace(SPEC.settings, delay_s=0.0))
    for a, b in ((ended, second), (second, ended), (merge_crawls(first, ended), merge_crawls(second, first))):
        merged = merge_crawls(a, b)
        assert (merged.version, merged.ended, merged.spec) == (7, "page limit", SPEC)
        assert merged.settings == replace(SPEC.settings, max_pages=0, delay_s=0.0)
    assert with_settings(second, second.settings) is second
    assert RECORD.settings is SPEC.settings


@given(a=RECORDS, b=RECORDS)
def test_a_node_that_does_not_know_of_changes_has_the_same_digest_and_hands_them_on(
    a: CrawlRecord, b: CrawlRecord
) -> None:
    def older(record: CrawlRecord) -> CrawlRecord:
        unread = {} if record.changes is None else {"changes": record.changes.packed}
        return replace(record, changes=None, later=record.later | unread)

    ours, theirs = merge_crawls(a, b), merge_crawls(older(a), older(b))
    assert theirs.digest == ours.digest
    stored = {**write_fields(replace(theirs, later={})), "later": theirs.later}
    assert read_fields(RECORD.crawl_id, stored) == ours


@pytest.mark.parametrize(
    "value",
    [
        7, [], [1, 0.0, 0, 0], [0, 0.0, 0, 0, 0.0], [1, 0, 0, 0, 0.0], [1, -0.5, 0, 0, 0.0], [1, 0.0, 2**63, 0, 0.0],
        [1, 0.0, True, 0, 0.0], [1, float("nan"), 0, 0, 0.0], [1, 0.0, 0, 0, float("inf")], [2**60, 0.0, 0, 0, 0.0],
        [1, 0.0, 0, 0, 0.0, -2], [1, 0.0, 0, 0, 0.0, 2**63], [1, 0.0, 0, 0, 0.0, 2.0], [1, 0.0, 0, 0, 0.0, True],
        [1, 0.0, 0, 0, 0.0, 2, 2], [1, 0.0, 0, 0, 0.0, None, None],
    ],
)  # fmt: skip
def test_changes_that_nobody_could_have_made_are_refused(value: object) -> None:
    with pytest.raises(NotARecord, match="changes"):
        from_wire(wire(changes=value))


# Fields of later versions


def test_of_fields_of_later_versions_so_many_are_kept_and_none_that_is_long() -> None:
    many = from_wire(wire(**{f"f{number:03}": number for number in range(LATER_MAX + 1)}, a=bytes(LATER_BYTES_MAX)))
    assert list(many.later) == [f"f{number:03}" for number in range(LATER_MAX - 1)]


def test_a_field_of_a_later_version_has_a_short_name_or_is_not_kept() -> None:
    names = {"a" * 32: True, "a" * 33: False, "b" * 24_000: False, "Ä": False, "a b": False, "": False}
    assert list(from_wire(wire(**dict.fromkeys(names, 1))).later) == [name for name, kept in names.items() if kept]


def test_a_known_crawl_needs_no_spec_and_another_one_does() -> None:
    assert from_wire(wire(spec=None, nonce=None, version=5), known=RECORD) == replace(RECORD, version=5)
    other = dataclasses.replace(RECORD, crawl_id=bytes(16))
    with pytest.raises(NotARecord, match="spec"):
        from_wire(wire(spec=None), known=other)


@settings(max_examples=200)
@given(
    st.binary(max_size=40)
    | st.binary(max_size=40).map(zlib.compress)
    | st.dictionaries(
        st.sampled_from(
            [
                "crawl",
                "spec",
                "nonce",
                "version",
                "state",
                "aliases",
                "participants",
                "adopted",
                "totals",
                "ended",
                "bequests",
            ]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary() | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=5,
        ),
    ).map(lambda fields: wire(**fields))
)
def test_no_bytes_of_a_peer_raise_anything_else(data: bytes) -> None:
    try:
        from_wire(data)
    except NotARecord:
        return


@settings(max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from([*msgpack.unpackb(SPEC.canonical()), "zeal"]),
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text() | st.binary()
        | st.lists(st.text(max_size=3) | st.integers(0, 9), max_size=3),
    )
)  # fmt: skip
def test_no_spec_of_a_peer_raises_anything_else_or_is_another_than_its_bytes(fields: dict[str, Any]) -> None:
    data = spec_of(lambda known: {**known, **fields})
    try:
        record = from_wire(data)
    except NotARecord:
        return
    assert record.spec.crawl_id(NONCE) == record.crawl_id


@given(RECORDS, RECORDS)
def test_of_what_a_node_has_bequeathed_the_last_counts_and_more_than_what_nobody_signed(
    a: CrawlRecord, b: CrawlRecord
) -> None:
    merged = merge_crawls(a, b)
    said = [each for record in (a, b) for each in bequests.bequests_of(record.bequests)]
    for leaver in (digit * 40 for digit in "0123456789abcdef"):
        of_it = [each for each in said if each.node_id.hex() == leaver]
        last = max(of_it, key=attrgetter("number", "heir"), default=None)
        heir = merged.adopted.get(leaver) if last is None else last.heir.hex()
        assert merged.heirs.get(leaver) == (None if heir == leaver else heir)


def test_a_bequest_to_itself_says_that_nobody_has_the_pages() -> None:
    a, b = "a" * 40, "b" * 40
    given = replace(RECORD, adopted={a: b}, bequests=left(a, b, 1))
    kept = merge_crawls(given, replace(RECORD, bequests=left(a, a, 2)))
    assert (heir_of(given, a, {b}.__contains__), heir_of(kept, a, {b}.__contains__)) == (b, None)
    assert left_to(given, b) == left_to(kept, b) == (a,), "what it has of before may be gathered there"
    again = merge_crawls(kept, replace(RECORD, bequests=left(a, b, 3)))
    assert heir_of(again, a, {b}.__contains__) == b


def test_of_several_that_took_the_pages_the_last_is_the_heir_and_all_may_have_them() -> None:
    a, b, c = "a" * 40, "b" * 40, "c" * 40
    known = replace(RECORD, bequests=left(a, c, 1) | left(a, b, 2))
    assert known.heirs == {a: b}
    assert left_to(known, b) == left_to(known, c) == (a,)


def test_heirs_that_nobody_signed_are_told_of_crawls_without_an_author_only() -> None:
    """Such a crawl was begun before authors were known; the store may have them of others, too."""
    ours = new_record(SPEC, NONCE, SimKey(bytes(20)))
    unsigned = {"a" * 40: "b" * 40}
    for record, told in ((RECORD, unsigned), (ours, {})):
        known = replace(record, adopted=unsigned)
        assert from_wire(to_wire(known)).adopted == told
        assert (known.digest == record.digest) == (told == {})
        assert msgpack.unpackb(zlib.decompress(to_wire(known, record)))["adopted"] == told
        assert read_fields(record.crawl_id, write_fields(known)).heirs == unsigned


def test_a_bequest_of_another_crawl_node_heir_or_number_is_not_signed() -> None:
    key, other = SimKey(bytes(20)), SimKey(bytes([1] * 20))
    made = bequests.made(key, RECORD.crawl_id, other.node_id, 7)
    assert bequests.read(made.name, made.packed()) == made
    assert bequests.is_signed(made, RECORD.crawl_id, other)
    assert not bequests.is_signed(made, bytes(16), other)
    for forged in (
        made._replace(node_id=other.node_id),
        made._replace(node_id=other.node_id, public=other.public),
        made._replace(heir=key.node_id),
        made._replace(number=8),
        made._replace(public=other.public),
        made._replace(signature=other.sign(b"")),
    ):
        assert not bequests.is_signed(forged, RECORD.crawl_id, other)


def test_pages_that_were_left_are_left_on_with_ones_own() -> None:
    a, b, c, d = ("a" * 40, "b" * 40, "c" * 40, "d" * 40)
    known = replace(RECORD, bequests=all_left((a, b), (b, c), (c, b), (d, a)))
    assert left_to(known, c) == (a, b, d)
    assert left_to(known, b) == (a, c, d)
    assert left_to(known, a) == (d,)
    assert left_to(known, d) == ()
