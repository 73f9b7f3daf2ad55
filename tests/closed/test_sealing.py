"""Sealed datagrams: what opens, what does not, and that what does not changes nothing."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.closed.replay import WINDOW, ReplayWindow
from dhtcrawl.closed.sealing import SEAL_BYTES, SESSIONS_MAX, OpenedDatagram, Sealer
from dhtcrawl.closed.secret import Ring

SECRET, OTHER = bytes(range(32)), bytes(range(1, 33))
RING = Ring.of((SECRET,))
A, B, C = (bytes([n]) * 20 for n in (1, 2, 3))


def sealer(node: bytes, ring: Ring = RING, session: int = 0) -> Sealer:
    return Sealer(ring, node, bytes([session]) * 16)


def acquainted(ring: Ring = RING) -> tuple[Sealer, Sealer]:
    """A, and B, to which A's session is proven."""
    a, b = sealer(A, ring), sealer(B, ring)
    b.prove(opened(b, a.seal(b"pong", B)))
    return a, b


def opened(at: Sealer, sealed: bytes) -> OpenedDatagram:
    found = at.open(sealed)
    assert found is not None
    return found


def are_seen(at: Sealer, *sealed: bytes) -> bool:
    """Whether these datagrams are all known to have come, as far as their counters tell."""
    return all((found.seen, found.proven) == (True, False) for found in (opened(at, data) for data in sealed))


@given(st.binary(max_size=1170), st.booleans())
def test_a_member_opens_what_another_sealed(data: bytes, known: bool) -> None:
    a, b = sealer(A), sealer(B)
    sealed = a.seal(data, B if known else None)
    assert len(sealed) == len(data) + SEAL_BYTES
    assert b.open(sealed) == OpenedDatagram(A, bytes(16), 1, RING.used.name, False, data)


def test_nothing_of_a_datagram_shows() -> None:
    assert b"a.example" not in sealer(A).seal(b"http://a.example/ " * 20, B)
    assert sealer(A, session=1).seal(b"the same", B)[46:] != sealer(A, session=2).seal(b"the same", B)[46:]


@pytest.mark.parametrize("to", [B, None])
@pytest.mark.parametrize("proven", [False, True])
def test_a_flipped_bit_at_any_place_does_not_open_and_changes_nothing(to: bytes | None, proven: bool) -> None:
    a, b = acquainted() if proven else (sealer(A), sealer(B))
    sealed = a.seal(b"a datagram", to)
    for bit in range(8 * len(sealed)):
        flipped = bytearray(sealed)
        flipped[bit // 8] ^= 1 << bit % 8
        assert b.open(bytes(flipped)) is None
    assert opened(b, sealed).proven is proven


@given(st.data())
def test_what_is_cut_or_longer_does_not_open(data: st.DataObject) -> None:
    sealed = sealer(A).seal(b"a datagram", B)
    b = sealer(B)
    assert b.open(sealed[: data.draw(st.integers(0, len(sealed) - 1))]) is None
    assert b.open(sealed + data.draw(st.binary(min_size=1, max_size=8))) is None


@given(st.binary(max_size=1300))
def test_nonsense_does_not_open(data: bytes) -> None:
    _, b = acquainted()
    assert b.open(data) is None
    assert b.open(bytes((0x10, RING.used.key_id)) + data) is None


def test_what_is_for_another_node_does_not_open() -> None:
    assert sealer(C).open(sealer(A).seal(b"for B", B)) is None
    assert sealer(C).open(sealer(A).seal(b"for whoever it is", None)) is not None


def test_our_own_datagram_sent_back_to_us_does_not_open() -> None:
    a = sealer(A)
    assert a.open(a.seal(b"mine", None)) is None
    assert a.open(a.seal(b"mine", A)) is None


def test_another_secret_does_not_open() -> None:
    assert sealer(B, Ring.of((OTHER,))).open(sealer(A).seal(b"closed", B)) is None


def test_a_secret_with_the_same_key_id_is_told_apart() -> None:
    rng = random.Random(25)
    while Ring.of((twin := rng.randbytes(32),)).used.key_id != RING.used.key_id:
        pass
    stranger = Ring.of((twin,))
    assert sealer(B, stranger).open(sealer(A).seal(b"closed", B)) is None
    assert opened(sealer(B, Ring.of((twin, SECRET))), sealer(A).seal(b"ours", B)).secret == RING.used.name


def test_a_replay_is_seen() -> None:
    a, b = acquainted()
    first, second = a.seal(b"first", B), a.seal(b"second", B)
    assert opened(b, first).proven
    assert are_seen(b, first)
    assert opened(b, second).datagram == b"second"
    assert are_seen(b, first, second)


@given(st.permutations(range(20)))
def test_datagrams_open_in_any_order_and_each_is_new_once(order: list[int]) -> None:
    a, b = acquainted()
    sealed = [a.seal(bytes([n]), B) for n in range(20)]
    assert [opened(b, sealed[n]).datagram for n in order] == [bytes([n]) for n in order]
    assert are_seen(b, *sealed)


def test_what_came_before_the_proof_or_before_a_start_of_ours_stays_a_recording() -> None:
    a, b = sealer(A), sealer(B)
    recorded = [a.seal(b"recorded", B) for _ in range(3)]
    assert not opened(b, recorded[0]).proven
    b.prove(opened(b, a.seal(b"pong", B)))
    assert are_seen(b, *recorded)
    again = sealer(B, session=1)  # B was started again, and knows nothing
    assert not opened(again, recorded[0]).proven
    again.prove(opened(again, a.seal(b"pong", B)))
    assert are_seen(again, *recorded)


def test_what_another_seals_in_its_name_far_ahead_is_seen_by_what_it_answers_afterwards() -> None:
    a, b = acquainted()
    recorded, forger = a.seal(b"recorded", B), sealer(A)
    for _ in range(2 * WINDOW):
        far = forger.seal(b"ahead", B)
    b.seal(b"a question", A)
    before = b.sealed
    assert opened(b, far).proven
    assert are_seen(b, far)
    late, answer = a.seal(b"a question of its own", B), a.seal(b"an answer", B)
    for data in (recorded, late, answer):
        found = opened(b, data)
        assert (found.proven, found.seen, b.is_overtaken(found, before)) == (False, True, False)
    b.seal(b"another question", A)
    assert b.is_overtaken(opened(b, answer), b.sealed)
    b.prove(opened(b, answer))
    assert are_seen(b, recorded, late, answer)
    assert opened(b, a.seal(b"now", B)).proven


def test_what_another_seals_under_the_next_thousand_counters_is_seen_in_the_same_way() -> None:
    a, b = acquainted()
    recorded, forger = a.seal(b"recorded", B), sealer(A)
    forger.seal(b"the pong's", B)
    for _ in range(WINDOW):
        assert opened(b, forger.seal(b"next", B)).proven
    b.seal(b"a question", A)
    answer = a.seal(b"an answer", B)
    assert b.is_overtaken(opened(b, answer), b.sealed)
    b.prove(opened(b, answer))
    assert are_seen(b, recorded, answer)
    assert opened(b, a.seal(b"now", B)).proven


def test_an_answer_shows_nothing_where_anything_has_come_since_it_was_asked_for() -> None:
    a, b = acquainted()
    forger = sealer(A)
    for _ in range(2 * WINDOW):
        far = forger.seal(b"ahead", B)
    assert opened(b, far).proven
    b.seal(b"a question", A)
    question, answer = b.sealed, a.seal(b"an answer", B)
    for _ in range(2 * WINDOW - 3):
        later = a.seal(b"sealed behind the answer", B)
    assert opened(b, later).proven  # and comes before it
    assert not b.is_overtaken(opened(b, answer), question)


def test_a_node_that_was_started_again_is_unproven_until_it_answers() -> None:
    a, b = acquainted()
    restarted = sealer(A, session=7)
    assert not opened(b, restarted.seal(b"hello", B)).proven
    assert opened(b, a.seal(b"still there", B)).proven
    b.prove(opened(b, restarted.seal(b"pong", B)))
    assert opened(b, restarted.seal(b"now", B)).proven
    assert not opened(b, a.seal(b"a recording, or a copy of the node", B)).proven


def test_of_many_sessions_the_one_not_heard_for_longest_is_forgotten() -> None:
    b = sealer(B)
    senders = [n.to_bytes(20, "big") for n in range(100, 100 + SESSIONS_MAX)]
    nodes = [sealer(node) for node in senders]
    for node in nodes:
        b.prove(opened(b, node.seal(b"pong", B)))
    assert opened(b, nodes[0].seal(b"here", B)).proven
    b.prove(opened(b, sealer(A).seal(b"pong", B)))
    assert len(b.secrets_used()) == SESSIONS_MAX
    assert opened(b, nodes[0].seal(b"here", B)).proven
    assert not opened(b, nodes[1].seal(b"forgotten", B)).proven


def test_a_banned_node_is_not_heard_from_then_on() -> None:
    a, b = acquainted()
    b.use(Ring.of((SECRET,), {A}))
    assert b.open(a.seal(b"still here", B)) is None
    assert b.open(sealer(A, session=3).seal(b"started again", B)) is None
    assert opened(b, sealer(C).seal(b"another", B)).sender == C


def test_a_rotation_loses_no_session_and_lets_no_replay_in() -> None:
    a, b = acquainted(Ring.of((SECRET,)))
    old, new = Ring.of((SECRET,)).used.name, Ring.of((OTHER,)).used.name
    recorded = a.seal(b"under the old one", B)
    for ring in (Ring.of((SECRET, OTHER)), Ring.of((OTHER, SECRET))):
        a.use(ring)
        b.use(ring)
        assert opened(b, a.seal(b"now", B)).proven
    assert b.secrets_used() == {A: new}
    assert opened(b, recorded).secret == old
    assert are_seen(b, recorded)
    late = sealer(A)
    b.use(Ring.of((OTHER,)))
    assert b.open(late.seal(b"dropped", B)) is None
    assert b.open(recorded) is None


@given(st.lists(st.integers(0, 3 * WINDOW), max_size=60))
def test_the_window_is_as_a_set_of_all_that_came(counters: list[int]) -> None:
    window, seen, top = ReplayWindow(10), set(range(11)), 10
    for counter in counters:
        assert window.is_new(counter) == (counter not in seen and counter > top - WINDOW)
        if window.is_new(counter):
            window.note(counter)
            seen.add(counter)
            top = max(top, counter)
