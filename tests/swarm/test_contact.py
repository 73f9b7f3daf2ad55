"""Whether a node has contact with the swarm that it knows."""

from __future__ import annotations

from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.swarm.membership.contact import LostContact, SwarmContact
from swarm.fake_peers import node

OWN, A, B = node(0), node(1), node(2)


def view(**states: MemberState) -> View:
    ids = {"own": OWN, "a": A, "b": B}
    return View([Member(ids[name], ("10.0.0.1", 1), state) for name, state in states.items()])


def test_a_node_that_knows_nobody_has_lost_no_contact() -> None:
    assert SwarmContact(OWN).look(view(own=MemberState.ACTIVE), [], 0.0) is None
    assert SwarmContact(OWN).look(view(own=MemberState.ACTIVE), [OWN], 0.0) is None


def test_contact_is_there_while_any_other_answers_also_one_that_joins() -> None:
    contact = SwarmContact(OWN)
    for state in (MemberState.ACTIVE, MemberState.JOINING):
        assert contact.look(view(own=MemberState.ACTIVE, a=state, b=MemberState.SUSPECTED), [A, B], 0.0) is None


def test_it_is_lost_from_when_the_last_other_is_suspected_until_one_answers() -> None:
    contact, suspected = SwarmContact(OWN), view(own=MemberState.ACTIVE, a=MemberState.SUSPECTED)
    assert contact.look(suspected, [A, B], 5.0) == LostContact(2, 0.0)
    assert contact.look(view(own=MemberState.ACTIVE), [A, B], 9.0) == LostContact(2, 4.0), "they are taken for dead"
    assert contact.look(view(own=MemberState.ACTIVE, b=MemberState.ACTIVE), [A], 10.0) is None
    assert contact.look(suspected, [A], 12.0) == LostContact(1, 0.0), "a new loss"
