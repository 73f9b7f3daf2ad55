"""The parts without I/O: datagrams, contacts, timeouts, the table, a look-up."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from harness.memory import entries
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.rpc.contact import Contact, canonical_host, parse_contacts
from dhtcrawl.rpc.discovery.datagram import (
    DATAGRAM_BYTES_MAX,
    RECEIVED_BYTES_MAX,
    DatagramReply,
    DatagramRequest,
    Garbage,
    TooLarge,
    decode,
    encode_reply,
    encode_request,
)
from dhtcrawl.rpc.discovery.lookup import ASKS_MAX, CANDIDATES_MAX, SILENT_MAX, Lookup
from dhtcrawl.rpc.discovery.pending import PendingRpcs, RoutingCounters
from dhtcrawl.rpc.discovery.rtt import ADDRESSES_MAX, INITIAL_S, MAX_S, MIN_S, Estimator, RttBook
from dhtcrawl.rpc.discovery.table import (
    FAILURES_MAX,
    REFRESH_S,
    SHUN_S,
    SHUNNED_MAX,
    STALE_S,
    ContactVerdict,
    RoutingTable,
)
from dhtcrawl.rpc.discovery.values import TTL_S, ValueStore
from dhtcrawl.sim.loop import VirtualClock

OWN = bytes(20)
ID = b"m" * 20
ids = st.binary(min_size=20, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=40) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=20,
)


def contact(number: int, host: str = "10.0.0.1", port: int | None = None) -> Contact:
    """The contact at this XOR distance from `OWN`."""
    return Contact(number.to_bytes(20, "big"), host, port or number % 60_000 + 1)


def closest_of(contacts: Any, key: bytes) -> list[Contact]:
    target = int.from_bytes(key, "big")
    return sorted(contacts, key=lambda c: c.number ^ target)


# Datagrams


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda tail: b"\x00" + ID + tail))
def test_no_bytes_make_the_codec_raise(data: bytes) -> None:
    assert isinstance(decode(data), DatagramRequest | DatagramReply | Garbage)


@given(st.text(max_size=20), st.lists(values, max_size=4))
def test_a_request_is_read_as_it_was_written(name: str, args: list[Any]) -> None:
    assert decode(encode_request(ID, name, args)) == DatagramRequest(ID, name, args)


@given(values)
def test_a_reply_is_read_as_it_was_written(value: Any) -> None:
    assert decode(encode_reply(ID, value)) == DatagramReply(ID, value)


@pytest.mark.parametrize("count", [1, 10, 15, 16, 20, 64])
def test_a_list_is_cut_to_what_fits_and_not_shorter(count: int) -> None:
    contacts = [[bytes([number]) * 20, "2001:db8:85a3:8d3:1319:8a2e:370:7348", 65_535] for number in range(count)]
    for bytes_max in range(100, DATAGRAM_BYTES_MAX + 1):
        datagram = encode_reply(ID, contacts, bytes_max)
        reply = decode(datagram)
        assert isinstance(reply, DatagramReply)
        assert len(datagram) <= bytes_max
        assert reply.value == contacts[: len(reply.value)]
        assert len(reply.value) == len(contacts) or len(datagram) + 64 + 3 > bytes_max


def test_what_fits_into_no_datagram_is_not_written() -> None:
    with pytest.raises(TooLarge):
        encode_request(ID, "store", [bytes(1200)])
    with pytest.raises(TooLarge):
        encode_reply(ID, {"value": bytes(1200)})
    with pytest.raises(ValueError, match="cannot be written"):
        encode_request(ID, "store", [2**70])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01" + ID,
        b"\x02" + ID + b"\x90",
        b"\x00" + ID + b"\xc1",
        b"\x00" + ID + b"\x92\xa4ping",
        b"\x00" + ID + b"\x92\x01\x90",
        b"\x00" + ID + b"\x92\xa1\xff\x90",
        b"\x01" + ID + b"\xc0\xc0",
        b"\x01" + ID + b"\xdd\xff\xff\xff\xff",
        b"\x01" + ID + b"\x91" * 4000,
        b"\x01" + bytes(RECEIVED_BYTES_MAX),
    ],
)
def test_this_is_garbage(data: bytes) -> None:
    assert isinstance(decode(data), Garbage)


# Contacts


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("0.0.0.0", None),
        ("224.0.0.1", None),
        ("255.255.255.255", None),
        ("ff02::1", None),
        ("localhost", None),
        ("1" * 100, None),
    ],
)
def test_only_addresses_that_can_be_written_to_are_taken(text: str, known: str | None) -> None:
    assert canonical_host(text) == known


@given(values)
def test_nothing_that_is_named_makes_reading_contacts_raise(value: Any) -> None:
    contacts, _ = parse_contacts(value)
    assert all(len(found.id) == 20 and 0 < found.port < 65_536 for found in contacts)


def test_what_is_no_contact_is_dropped_and_counted() -> None:
    good: list[Any] = [ID, "10.0.0.1", 1]
    bad: list[Any] = [[b"short", "10.0.0.1", 1], [ID, "10.0.0.1", 0], [ID, "10.0.0.1", True], [ID, 5, 1], [ID], 7, None]
    assert parse_contacts([*bad, good, [*good, "of a later version"]]) == ([Contact(*good)] * 2, len(bad))


# Timeouts


def test_the_timeout_follows_rfc_6298() -> None:
    estimator = Estimator()
    assert estimator.timeout_s == INITIAL_S
    estimator.sample(0.4)
    assert estimator.timeout_s == pytest.approx(0.4 + 4 * 0.2)
    estimator.sample(0.4)
    assert estimator.timeout_s == pytest.approx(0.4 + 4 * 0.15)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_the_timeout_stays_within_its_bounds(samples: list[float]) -> None:
    estimator = Estimator()
    for sample in samples:
        estimator.sample(sample)
        assert MIN_S <= estimator.timeout_s <= MAX_S


async def test_a_round_trip_is_told_by_the_nodes_clock_and_not_by_the_loops() -> None:
    near, now = ("192.0.2.1", 1), [0.0]
    calls = PendingRpcs(lambda datagram, address: None, Random(1), RoutingCounters(), lambda: now[0])
    call = calls.begin(near, "ping", (OWN,), lambda answered, reply: None)
    now[0] = 0.0004
    calls.reply(call.question.message_id, None)
    assert calls.rtt.measured_s(near) == 0.0004


def test_a_new_address_starts_with_what_others_took_and_old_ones_are_forgotten() -> None:
    book = RttBook()
    book.sample(("10.0.0.1", 1), 0.6)
    assert book.timeout_s(("10.0.0.2", 1)) == book.timeout_s(("10.0.0.1", 1)) == pytest.approx(1.8)
    for port in range(ADDRESSES_MAX + 10):
        book.sample(("10.0.0.3", port), 0.1)
    assert book.timeout_s(("10.0.0.1", 1)) < 1


# The table


@given(st.lists(ids, max_size=120, unique=True), ids, st.integers(1, 30), st.integers(1, 8))
def test_the_closest_are_the_closest(node_ids: list[bytes], key: bytes, n: int, k: int) -> None:
    table = RoutingTable(ID, k)
    for port, node_id in enumerate(node_ids, start=1):
        table.confirm(Contact(node_id, "10.0.0.1", port), 0.0)
    assert table.closest(key, n) == closest_of(table, key)[:n]
    assert len(table) == len(list(table))


@given(st.integers(0, 2**32))
def test_whatever_happens_the_table_stays_whole(seed: int) -> None:
    rng, table, now = Random(seed), RoutingTable(OWN, 3), 0.0
    known = [contact(rng.getrandbits(160) or 1, port=number % 12 + 1) for number in range(25)]
    for _ in range(150):
        now += rng.random() * 5
        one = rng.choice(known)
        rng.choice((table.hear, table.confirm, table.answered, table.failed))(one, now)
        contacts = list(table)
        assert len({c.id for c in contacts}) == len({c.address for c in contacts}) == len(contacts) == len(table)
        assert all(table.get(c.id) == c for c in contacts)
        assert all(not table.suspected(c.id) for c in table.closest(one.id))
        table.due(now, 5)


def test_hearing_from_somebody_does_not_let_it_in() -> None:
    table = RoutingTable(OWN)
    assert table.hear(contact(5), 0.0) is ContactVerdict.WANTED
    assert len(table) == 0
    assert table.confirm(contact(5), 0.0) is True
    assert table.hear(contact(5), 1.0) is ContactVerdict.KNOWN
    assert table.hear(contact(5, "10.0.0.2"), 1.0) is ContactVerdict.MOVED
    assert table.hear(Contact(OWN, "10.0.0.3", 1), 1.0) is ContactVerdict.SELF


def test_a_full_bucket_keeps_its_contacts_until_one_is_suspected() -> None:
    table = RoutingTable(OWN, 2)
    old, young, new = contact(0x80), contact(0x81), contact(0x82)
    table.confirm(old, 0.0)
    table.confirm(young, 0.0)
    assert table.hear(new, 1.0) is ContactVerdict.FULL
    assert table.confirm(new, 1.0) is False
    assert table.failed(old, 2.0) is True
    assert table.due(2.0, 9) == [new]  # the spare, for which there is a place now
    assert table.confirm(new, 2.1) is True
    assert set(table) == {young, new}


def test_a_spare_waits_for_its_turn_where_more_are_to_be_pinged_than_may_be_at_once() -> None:
    table = RoutingTable(OWN, 1)
    old, spare = contact(0x80), contact(0x81)
    table.confirm(old, 0.0)
    table.hear(spare, 1.0)
    table.failed(old, 2.0)
    assert table.due(3.0, 1) == [old]
    table.failed(old, 3.0)
    assert table.due(4.0, 1) == [spare]
    assert table.due(4.0, 1) == [], "it is pinged once"


def test_a_suspected_contact_is_named_to_nobody_and_probed_with_growing_pauses() -> None:
    table, now = RoutingTable(OWN), 0.0
    table.confirm(contact(5), now)
    pauses = []
    for _ in range(FAILURES_MAX):
        table.failed(contact(5), now)
        assert table.closest(OWN) == []
        began_at = now
        while table.get(contact(5).id) and not table.due(now, 1):
            now += 0.5
        pauses.append(now - began_at)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60, 0]
    assert len(table) == 0


def test_a_single_datagram_without_an_answer_makes_nobody_suspected_and_nobody_shunned() -> None:
    table = RoutingTable(OWN)
    known, stranger = contact(5), contact(9)
    table.confirm(known, 0.0)
    assert table.failed(known, 1.0, retried=False) is False
    assert table.failed(stranger, 1.0, retried=False) is False
    assert table.closest(OWN) == [known]
    assert not table.shunned(stranger, 1.0)
    table.failed(known, 2.0)
    table.failed(known, 3.0, retried=False)  # a probe of a suspected one: the pauses go on growing
    assert table.due(4.9, 1) == []
    assert table.due(5.0, 1) == [known]


def test_a_table_wants_whom_it_does_not_know_while_there_is_a_place() -> None:
    table = RoutingTable(OWN, 1)
    first, second = contact(0x80), contact(0x81)
    assert table.wants(first.id)
    assert not table.wants(OWN)
    table.confirm(first, 0.0)
    assert not table.wants(first.id)
    assert not table.wants(second.id)
    table.failed(first, 1.0)
    assert table.wants(second.id)


def test_an_answer_ends_suspicion() -> None:
    table = RoutingTable(OWN)
    table.confirm(contact(5), 0.0)
    table.failed(contact(5), 1.0)
    assert table.hear(contact(5), 1.5) is ContactVerdict.SUSPECT
    assert table.answered(contact(5), 2.0)
    assert table.closest(OWN) == [contact(5)]
    assert not table.shunned(contact(5), 2.0)


def test_silence_at_a_bogus_address_says_nothing_about_the_contact() -> None:
    table = RoutingTable(OWN)
    table.confirm(contact(5), 0.0)
    bogus = contact(5, "10.6.6.6")
    assert table.failed(bogus, 1.0) is False
    assert table.closest(OWN) == [contact(5)]
    assert table.shunned(bogus, 1.0)
    assert not table.shunned(bogus, 1.0 + SHUN_S)


def test_a_silent_contact_is_pinged_and_a_heard_one_is_not() -> None:
    table = RoutingTable(OWN)
    table.confirm(contact(5), 0.0)
    table.confirm(contact(9), 0.0)
    table.hear(contact(9), STALE_S - 1)
    assert table.due(STALE_S - 1, 9) == []
    assert table.due(STALE_S, 9) == [contact(5)]


def test_what_the_table_remembers_is_bounded() -> None:
    table, rng = RoutingTable(OWN), Random(1)
    for number in range(20_000):
        somebody = contact(rng.getrandbits(160), port=number % 60_000 + 1)
        table.hear(somebody, 0.0)
        table.failed(somebody, 0.0)
        table.confirm(somebody, 0.0)
    assert len(table) <= 20 * 20
    buckets = 160 * (1 + 20 + 20)  # each with contacts, and spares for them
    assert entries(table) <= buckets + SHUNNED_MAX


def test_far_keys_fall_into_every_bucket_beyond_the_closest_neighbour() -> None:
    table = RoutingTable(OWN)
    table.confirm(contact(1 << 150), 0.0)
    lengths = [int.from_bytes(key, "big").bit_length() for key in table.far_keys(Random(1))]
    assert lengths == list(range(160, 151, -1))
    assert [len(table.stale_keys(now, Random(1))) for now in (REFRESH_S - 1, REFRESH_S)] == [0, 9]
    table.looked_up(contact(1 << 159).id, REFRESH_S)
    assert len(table.stale_keys(REFRESH_S, Random(1))) == 8


def test_buckets_that_a_look_up_of_our_id_has_filled_are_not_far() -> None:
    table = RoutingTable(OWN, 3)
    for bits in (150, 151, 153, 155):
        table.confirm(contact(1 << bits), 0.0)
    closest = [contact(1 << bits) for bits in (150, 151, 153)]
    lengths = [int.from_bytes(key, "big").bit_length() for key in table.far_keys(Random(1), closest)]
    # The furthest one's bucket may hold more than the look-up found; those closer to us cannot.
    assert lengths == list(range(160, 153, -1))
    # Fewer than k: whoever is closest may not have been found.
    assert len(table.far_keys(Random(1), closest[:2])) == 9


# A look-up


def tables(everybody: list[Contact], rng: Random) -> dict[bytes, RoutingTable]:
    """What each of them knows after it met all others in some order."""
    known = {}
    for one in everybody:
        known[one.id] = RoutingTable(one.id)
        for other in rng.sample(everybody, len(everybody)):
            known[one.id].confirm(other, 0.0)
    return known


def run(lookup: Lookup, known: dict[bytes, RoutingTable], rng: Random) -> None:
    """Answer every question, in any order; whoever is not in `known` is silent."""
    waiting: list[Contact] = []
    while not lookup.done:
        waiting += lookup.next()
        assert len(waiting) <= 3
        one = waiting.pop(rng.randrange(len(waiting)))
        if one.id in known:
            lookup.answered(one.id, known[one.id].closest(lookup.target, exclude=OWN))
        else:
            lookup.failed(one.id)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from([1, 5, 20]))
def test_a_look_up_finds_the_closest_live_ones_whoever_is_dead(seed: int, width: int) -> None:
    rng = Random(seed)
    everybody = [contact(rng.getrandbits(160), port=number) for number in range(1, 61)]
    known = tables(everybody, rng)
    for dead in rng.sample(everybody, rng.randrange(20)):
        del known[dead.id]
    live = [one for one in everybody if one.id in known]
    target = rng.randbytes(20)
    lookup = Lookup(target, rng.sample(live, 3), own_id=OWN, width=width)
    run(lookup, known, rng)
    found = lookup.closest()
    assert found == closest_of(found, target)
    assert found[0] == closest_of(live, target)[0]


def test_a_look_up_is_bounded_whatever_is_invented() -> None:
    rng, number = Random(1), 2**150
    lookup = Lookup(OWN, [contact(number)], own_id=ID)
    asked = 0
    while not lookup.done:
        for one in lookup.next():
            asked += 1
            lookup.answered(one.id, [contact(number := number - 1) for _ in range(rng.randrange(1, 64))])
    assert asked == lookup.asked == ASKS_MAX
    assert entries(lookup) <= 4 * CANDIDATES_MAX + ASKS_MAX


def test_whoever_did_not_answer_stays_unreachable_though_others_name_it() -> None:
    dead, alive = contact(1), contact(2)
    lookup = Lookup(OWN, [dead, alive], own_id=ID)
    assert lookup.next() == [dead, alive]
    lookup.failed(dead.id)
    lookup.answered(alive.id, [dead])
    assert lookup.next() == []
    assert lookup.done
    assert lookup.closest() == [alive]


def test_another_address_of_the_same_id_is_tried_after_the_first_was_silent() -> None:
    bogus, true, liar = contact(1, "10.6.6.6"), contact(1), contact(2)
    lookup = Lookup(OWN, [bogus, liar], own_id=ID)
    lookup.next()
    lookup.answered(liar.id, [true])
    lookup.failed(bogus.id)
    assert lookup.next() == [true]
    lookup.answered(true.id, [])
    assert lookup.closest() == [true, liar]


def test_shunned_contacts_are_asked_only_when_nobody_else_is_left() -> None:
    shunned, good = contact(1), contact(2)
    lookup = Lookup(OWN, [shunned, good], own_id=ID, shunned=lambda c: c == shunned)
    assert lookup.next() == [good]
    alone = Lookup(OWN, [shunned], own_id=ID, shunned=lambda c: c == shunned)
    assert alone.next() == [shunned]


def test_a_narrow_look_up_knows_of_whom_it_did_not_ask() -> None:
    near, far, named, shunned = contact(1), contact(9), contact(5), contact(3)
    lookup = Lookup(OWN, [near, far], own_id=ID, width=1, shunned=lambda c: c == shunned)
    assert lookup.next() == [near]
    lookup.answered(near.id, [named, shunned])
    assert lookup.done
    assert lookup.heard(3) == [named, far]
    assert lookup.heard(2) == [named]


def test_the_closest_outside_a_crowd_of_one_network_have_to_answer_if_the_crowd_does_not_name_them() -> None:
    crowd = [contact(number, "10.9.9.1", port=number) for number in (4, 5, 6, 7)]
    owner, honest = contact(1, "10.1.0.1"), contact(50, "10.2.0.1")
    lookup = Lookup(OWN, [*crowd, honest], own_id=ID, width=1)
    assert lookup.next() == [crowd[0]]
    lookup.answered(crowd[0].id, crowd)
    assert not lookup.done
    assert lookup.next() == [honest]
    lookup.answered(honest.id, [owner])
    assert lookup.next() == [owner]
    lookup.answered(owner.id, crowd)
    assert lookup.done
    assert lookup.closest() == [owner]


def test_where_the_closest_names_those_outside_its_network_nobody_else_is_asked() -> None:
    crowd = [contact(number, "10.9.9.1", port=number) for number in (4, 5, 6, 7)]
    others = [contact(number, f"10.{number}.0.1") for number in (50, 51, 52)]
    lookup = Lookup(OWN, [*crowd, *others], own_id=ID, width=1)
    assert lookup.next() == [crowd[0]]
    lookup.answered(crowd[0].id, [*crowd, *others[:2]])
    assert lookup.done
    assert lookup.asked == 1


def test_a_network_in_which_several_are_silent_and_nobody_answers_is_left_out_once_others_have_answered() -> None:
    crowd = [contact(number, "10.9.9.1", port=number) for number in range(1, 30)]
    liar, owner = contact(2000, "10.1.0.1"), contact(50, "10.2.0.1")
    lookup = Lookup(OWN, [liar], own_id=ID, width=1)
    assert lookup.next() == [liar]
    lookup.answered(liar.id, [*crowd, owner])
    silent = 0
    while not lookup.done:
        for each in lookup.next():
            if each == owner:
                lookup.answered(owner.id, crowd)
            else:
                silent += 1
                lookup.failed(each.id)
    assert silent == SILENT_MAX
    assert lookup.closest() == [owner]
    # Where nobody has answered at all, the same network is asked to its end.
    alone = Lookup(OWN, crowd, own_id=ID, width=1)
    for _ in crowd:
        (asked,) = alone.next()
        alone.failed(asked.id)
    assert alone.done


def test_with_nobody_to_ask_a_look_up_is_over() -> None:
    lookup = Lookup(OWN, [Contact(OWN, "10.0.0.1", 1)], own_id=OWN)
    assert lookup.done
    assert lookup.next() == lookup.closest() == []


def test_the_owner_alone_takes_fewer_questions_than_its_neighbourhood() -> None:
    rng = Random(3)
    everybody = [contact(rng.getrandbits(160), port=number) for number in range(1, 201)]
    known, asked = tables(everybody, rng), {}
    for width in (1, 20):
        lookup = Lookup(OWN, everybody[:3], own_id=ID, width=width)
        run(lookup, known, rng)
        asked[width] = lookup.asked
        assert lookup.closest()[0] == closest_of(everybody, OWN)[0]
    assert asked[1] * 2 < asked[20]


# Values


async def test_stored_values_are_bounded_and_end_after_a_week() -> None:
    clock = VirtualClock(asyncio.get_running_loop())
    store = ValueStore(clock, values_max=3)
    for number in range(5):
        store[bytes([number])] = number
    assert list(store) == [(b"\x02", 2), (b"\x03", 3), (b"\x04", 4)]
    await asyncio.sleep(3600)
    store[b"\x02"] = 2  # stored again: young again
    assert list(store.iter_older_than(3600)) == [(b"\x03", 3), (b"\x04", 4)]
    await asyncio.sleep(TTL_S - 3600)
    assert list(store) == [(b"\x02", 2)]
    assert store.get(b"\x03", "gone") == "gone"
