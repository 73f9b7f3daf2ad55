"""What others say of a node counts as far as the node has signed it, and nobody else raises its numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgpack
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.identity import NodeIdentity
from dhtcrawl.keyspace import INCARNATION_MAX
from dhtcrawl.rpc.membership.hello import EPOCH_MAX, MemberRecord, NodeState, parse_record
from dhtcrawl.rpc.membership.members import Members
from dhtcrawl.rpc.membership.row_proofs import FORGED_A_MESSAGE_MAX, RowProofs
from dhtcrawl.sim.keys import SimKey
from rpc.records import ACTIVE, DEAD, JOINING, LEFT, ME, SUSPECTED, members, node, records, seen, signed

S = node("s").id


def wired(record: MemberRecord, sender_host: str = "10.0.0.5", *, first_hand: bool = False) -> MemberRecord:
    """The record as it arrives."""
    row = msgpack.unpackb(msgpack.packb(record.row()), use_list=False)
    read = parse_record(row, sender_host, first_hand=first_hand)
    assert read is not None
    return read


def heard(known: Members, *told: MemberRecord, now: float = 1.0, **options: Any) -> int:
    return known.learn(told, now, sender=S, sees=99, **options).changed


@given(records.filter(lambda record: record.host != "127.0.0.1"), st.sampled_from(NodeState))
def test_what_a_node_has_signed_holds_on_the_way_and_in_the_states_that_others_give_it(
    record: MemberRecord, state: NodeState
) -> None:
    said = wired(signed(replace(record.turned(record.state), extra=())))
    proofs = RowProofs(SimKey(ME.id))
    if record.state in (JOINING, ACTIVE):
        for turned in (said, said.turned(SUSPECTED), said.turned(DEAD)):
            assert proofs.holds(wired(turned), None)
            assert proofs.holds(turned, said)
        assert not proofs.holds(said.turned(LEFT), said), "it has not said so"
    assert proofs.unsigned == (record.state in (JOINING, ACTIVE))


@pytest.mark.parametrize(
    "change",
    [
        {"host": "10.6.6.6"}, {"port": 77}, {"incarnation": 2}, {"epoch": 2}, {"state": JOINING}, {"state": LEFT},
        {"features": ("other",)}, {"version_max": 99}, {"id": b"b" * 20}, {"extra": ()},
        {"extra": (bytes(96),)}, {"extra": (bytes(97),)}, {"extra": (b"x",)}, {"extra": (7,)},
        {"extra": (*node("a").extra, "more")}, {"extra": node("b").extra}, {"extra": (*node("a").extra[0:0], None)},
    ],
)  # fmt: skip
def test_who_changes_a_word_of_it_is_not_believed(change: dict[str, Any]) -> None:
    forged = replace(node("a"), **change)
    for known in (members(), members(node("a"))):
        before = seen(known), known.records(0.0)
        assert heard(known, forged) == 0
        assert (seen(known), known.records(0.0)) == before
        # What says less than is known is not even checked.
        assert known.rows.forged == (forged if known.rows.unsigned else None)
        assert known.rows.unsigned == 1 or len(known) == 2


def test_real_keys_sign_and_check_the_same() -> None:
    one, two = (NodeIdentity(Ed25519PrivateKey.generate()) for _ in range(2))
    mine = RowProofs(one).signed(MemberRecord.newcomer(one.node_id, ("10.0.0.1", 1), 3))
    proofs = RowProofs(two)
    assert proofs.holds(wired(mine), None)
    assert not proofs.holds(replace(mine, id=two.node_id), None)
    assert not proofs.holds(replace(mine, epoch=1), None)
    assert not proofs.holds(proofs.signed(mine), None), "a key of another"


def test_a_node_that_does_not_know_its_host_signs_the_rest_and_is_known_where_it_was_heard() -> None:
    unplaced = signed(MemberRecord.newcomer(b"a" * 20, ("::", 1), 3))
    read = wired(unplaced, "10.0.0.7", first_hand=True)
    known = members()
    assert heard(known, wired(read)) == 1
    record = known.get(read.id)
    assert record is not None
    assert record.host == "10.0.0.7"
    assert heard(known, replace(read, port=2)) == 0


def test_a_later_versions_fields_are_signed_too_and_passed_on() -> None:
    later = signed(replace(node("a"), extra=(*node("a").extra, "soon", 7)))
    known = members()
    assert heard(known, later) == 1
    assert known.get(later.id) == later
    assert heard(members(), replace(later, extra=(*later.extra[:-1], 8))) == 0


def test_our_own_row_is_signed_anew_whenever_it_changes() -> None:
    known, other = members(), members()
    for state in (ACTIVE, JOINING, ACTIVE, LEFT):
        known.set_state(state)
        assert other.rows.holds(wired(known.me), None)
    assert other.rows.unsigned == 0


@pytest.mark.parametrize("incarnation", [4, INCARNATION_MAX])
@pytest.mark.parametrize("epoch", [0, EPOCH_MAX])
def test_nobody_else_raises_our_numbers(incarnation: int, epoch: int) -> None:
    known = members(node("s"))
    for state in NodeState:
        assert heard(known, replace(ME.turned(state), incarnation=incarnation, epoch=epoch)) == 0
    assert known.me == ME
    # A copy of our data, or a second node with them: it has our key, and we give way.
    assert heard(known, signed(replace(ME, incarnation=9, epoch=1))) == 1
    assert known.me.life == (9, 2)


def test_a_node_hears_that_another_has_its_key_and_is_not_told_so_by_others() -> None:
    elsewhere = replace(ME, port=2)
    for unlike in (
        ME.turned(SUSPECTED),
        elsewhere,  # not signed
        signed(elsewhere).turned(DEAD),  # we were there before
        signed(replace(elsewhere, incarnation=2)),
        wired(signed(replace(ME, host="::", port=2)), "10.0.0.7", first_hand=True),  # it did not say where it is
    ):
        known = members(node("s"))
        heard(known, unlike)
        assert known.rows.double is None
    for twin in (signed(elsewhere), signed(elsewhere).turned(SUSPECTED), signed(replace(elsewhere, epoch=7))):
        known = members(node("s"))
        heard(known, twin)
        assert known.rows.double == twin
    known = members(node("s"))
    before = known.me
    assert known.move(("10.0.0.77", 1))
    heard(known, before)
    assert known.rows.double is None, "that was us"


def test_of_a_message_with_forged_rows_the_first_few_are_looked_at() -> None:
    known = members()
    told = [replace(node(name), port=77) for name in "abcdefgh"] + [node("z")]
    assert heard(known, *told) == 0
    assert known.rows.unsigned == FORGED_A_MESSAGE_MAX
    assert heard(known, *told[:2], node("z")) == 1


def test_a_row_in_another_state_is_not_checked_again() -> None:
    class Counting(SimKey):
        checked = 0

        def verify(self, node_id: bytes, public: bytes, signature: bytes, said: bytes) -> bool:
            self.checked += 1
            return super().verify(node_id, public, signature, said)

    key = Counting(ME.id)
    proofs, a = RowProofs(key), node("a")
    assert proofs.holds(a, None)
    for state in (SUSPECTED, DEAD):
        assert proofs.holds(a.turned(state), a)
    assert proofs.holds(signed(replace(a, epoch=2)), a)
    assert key.checked == 2


def test_the_invented_dead_take_no_place_of_those_that_were_there() -> None:
    known = members(node("t"), gone_max=2)
    known.set_state(ACTIVE)
    known.learn([node("t", DEAD)], 1.0)
    assert heard(known, *(node(name, DEAD) for name in "abcdef")) == 1
    assert known.get(node("t").id) == node("t", DEAD)
