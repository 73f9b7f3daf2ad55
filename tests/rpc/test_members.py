"""Membership without a network: what is newer, who is suspected and for how long, what is remembered and told."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dhtcrawl.keyspace import INCARNATION_MAX
from dhtcrawl.rpc.membership.gossip_settings import GossipSettings
from dhtcrawl.rpc.membership.hello import EPOCH_MAX, OUTBOUND, MemberRecord, NodeState, merge, parse_record
from dhtcrawl.rpc.membership.member_parts import AskingOrder
from dhtcrawl.rpc.membership.members import HEARSAY_MAX, Learned, Members
from dhtcrawl.rpc.membership.view import MemberState
from rpc.records import ACTIVE, DEAD, JOINING, LEFT, ME, SUSPECTED, members, node, own, records, seen


@given(records, records, records)
def test_merging_is_idempotent_commutative_and_associative(a: MemberRecord, b: MemberRecord, c: MemberRecord) -> None:
    b, c = replace(b, id=a.id), replace(c, id=a.id)
    assert merge(a, a) == a
    assert merge(a, b) == merge(b, a)
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(st.lists(records, max_size=6), st.randoms(use_true_random=False))
def test_gossip_may_come_in_any_order_and_any_number_of_times(heard: list[MemberRecord], rng: Random) -> None:
    # Who refutes that it is dead ends what else was concluded on its side of a cut, so that then the order counts.
    assume(not any(_refutes(later, earlier) for later in heard for earlier in heard))
    once, again = members(*heard), members()
    shuffled = heard * 2
    rng.shuffle(shuffled)
    for record in shuffled:
        again.learn([record], 0.0)
    assert again.records(0.0) == once.records(0.0)
    assert again.view().members == once.view().members
    assert again.fingerprint() == once.fingerprint()


def _refutes(later: MemberRecord, earlier: MemberRecord) -> bool:
    same_life = (later.id, later.incarnation) == (earlier.id, earlier.incarnation)
    return same_life and earlier.state is NodeState.DEAD and later.owns and not later.state.is_gone


def test_the_worse_claim_wins_within_an_epoch_and_the_node_itself_outbids_it() -> None:
    in_order = [
        node("a", JOINING), node("a", ACTIVE), node("a", SUSPECTED), node("a", LEFT), node("a", DEAD),
        node("a", JOINING, epoch=2), node("a", DEAD, epoch=2), node("a", JOINING, epoch=0, incarnation=2),
    ]  # fmt: skip
    for earlier, later in pairwise(in_order):
        assert merge(earlier, later) == merge(later, earlier) == later


@pytest.mark.parametrize("flag", ["refuted", "declared_dead", "reunited"])
def test_what_one_record_of_several_brings_is_brought_by_all_together(flag: str) -> None:
    one, other = Learned(1, **{flag: True}), Learned(2)
    assert one.plus(other) == other.plus(one) == Learned(3, **{flag: True})


def test_who_is_there_and_who_was_is_known() -> None:
    known = members(node("a", ACTIVE), node("b", LEFT))
    assert [known.knows(each.id) for each in (node("a"), node("b"), node("c"))] == [True, True, False]
    assert [each.id in known for each in (node("a"), node("b"), node("c"))] == [True, False, False]


# Ourselves


def test_a_node_raises_its_epoch_with_each_state() -> None:
    known = members()
    for state, epoch in ((ACTIVE, 1), (JOINING, 2), (ACTIVE, 3), (LEFT, 4)):
        assert known.set_state(state)
        assert (known.me.state, known.me.epoch, known.me.incarnation) == (state, epoch, 3)
        assert known.me.owns is (state is ACTIVE) or state is LEFT
    assert not known.set_state(ACTIVE)
    assert len(known) == 0
    assert known.view().members == ()


def test_a_node_that_moves_says_so_with_a_higher_epoch_and_stays_what_it_was() -> None:
    known, other = members(), Members(own(MemberRecord.newcomer(b"z" * 20, ("10.0.0.2", 1), 1)), Random(1))
    known.set_state(ACTIVE)
    other.learn([known.me], 0.0)
    assert not known.move(known.me.address)
    assert known.move(("10.0.0.99", 7))
    assert (known.me.state, known.me.owns, known.me.epoch, known.me.address) == (ACTIVE, True, 2, ("10.0.0.99", 7))
    assert [m.address for m in known.view().members] == [("10.0.0.99", 7)]
    assert other.learn([known.me], 0.0).changed == 1
    known.set_state(LEFT)
    assert not known.move(("10.0.0.98", 7))


def test_a_suspicion_about_us_is_refuted_with_a_higher_epoch() -> None:
    known = members()
    known.set_state(ACTIVE)
    suspicion = known.me.turned(SUSPECTED)
    assert known.learn([suspicion], 0.0)[:3] == (1, True, False)
    assert (known.me.state, known.me.epoch) == (ACTIVE, 2)
    assert merge(known.me, suspicion) == known.me
    assert known.learn([suspicion], 0.0)[:3] == (0, False, False)
    assert known.rumours.take(1000, 1) == [known.me.row()]
    assert known.health.score == 1  # perhaps it is us


@pytest.mark.parametrize("before", [JOINING, ACTIVE])
@pytest.mark.parametrize("claim", [DEAD, LEFT])
def test_who_was_declared_dead_is_joining_again_and_says_so(before: NodeState, claim: NodeState) -> None:
    known = members()
    known.set_state(before)
    declared = replace(known.me.turned(claim), epoch=7)
    assert known.learn([declared], 0.0)[:3] == (1, False, True)
    assert (known.me.state, known.me.epoch, known.me.owns) == (JOINING, 8, False)
    assert merge(known.me, declared) == known.me
    assert known.learn([declared], 0.0)[:3] == (0, False, False)
    assert seen(known) == {"m": MemberState.JOINING}


def test_what_is_said_of_us_as_we_were_needs_no_answer() -> None:
    known = members()
    known.set_state(ACTIVE)
    for record in (replace(known.me, epoch=0, state=DEAD), replace(known.me, incarnation=2, epoch=9, state=DEAD)):
        assert known.learn([record], 0.0)[:3] == (0, False, False)
    assert known.learn([replace(known.me, host="10.6.6.6")], 0.0)[:3] == (0, False, False)
    assert (known.me.epoch, known.me.host) == (1, "10.0.0.1")


def test_an_incarnation_of_ours_that_is_yet_to_come_is_outbid() -> None:
    known = members()
    known.set_state(ACTIVE)
    assert known.learn([replace(known.me, incarnation=9, epoch=4)], 0.0)[:3] == (1, False, True)
    assert (known.me.life, known.me.state) == ((9, 5), JOINING)


def test_after_the_last_epoch_comes_the_next_incarnation_and_after_the_last_of_all_none() -> None:
    known = Members(own(replace(ME, epoch=EPOCH_MAX)), Random(1))
    assert known.learn([known.me.turned(SUSPECTED)], 0.0)[:3] == (1, True, False)
    assert known.me.life == (4, 0)
    last = Members(own(replace(ME, incarnation=INCARNATION_MAX, epoch=EPOCH_MAX)), Random(1))
    assert last.learn([last.me.turned(DEAD)], 0.0).changed == 0
    assert last.set_state(ACTIVE)
    assert parse_record(last.me.row(), "10.0.0.5") == last.me


def test_who_left_does_not_argue() -> None:
    known = members()
    known.set_state(LEFT)
    left = known.me
    assert known.learn([replace(left, state=DEAD, epoch=9)], 0.0)[:3] == (0, False, False)
    known.rejoin()
    assert known.me == left


def test_who_sees_less_than_half_of_whom_we_see_cannot_bury_us() -> None:
    known = members(*(node(name) for name in "abcde"))
    known.set_state(ACTIVE)
    declared = known.me.turned(DEAD)
    assert known.sees() == 5
    assert known.sees(node("a").id) == 4
    assert known.learn([declared], 0.0, sender=node("a").id, sees=1)[:3] == (1, True, False)
    assert (known.me.state, known.health.score) == (ACTIVE, 0)
    assert known.learn([known.me.turned(DEAD)], 0.0, sender=node("a").id, sees=2)[:3] == (1, False, True)


def test_who_sees_less_than_half_of_whom_we_see_can_only_make_suspects_of_others() -> None:
    known = members(*(node(name) for name in "abcde"))
    known.learn([node("b", DEAD), node("x", DEAD), node("c", LEFT)], 0.0, sender=node("a").id, sees=1)
    assert known.get(node("b").id) == node("b", SUSPECTED)
    assert known.get(node("x").id) is None
    assert known.get(node("c").id) == node("c", LEFT)
    known.learn([node("b", DEAD)], 0.0, sender=node("a").id, sees=3)
    assert known.get(node("b").id) == node("b", DEAD)


def test_who_has_just_heard_that_it_was_cut_off_does_not_believe_those_that_were_cut_off_with_it() -> None:
    known = members(node("a"), suspicion_s=5)
    assert known.learn([known.me.turned(DEAD)], 1.0, sender=node("z").id, sees=9).declared_dead
    known.learn([node("x", DEAD)], 5.9, sender=node("a").id, sees=1)
    assert known.get(node("x").id) is None
    known.learn([node("x")], 5.9, sender=node("z").id, sees=9)
    assert known.get(node("x").id) == node("x")
    known.learn([node("x", DEAD)], 6.0, sender=node("a").id, sees=1)
    assert known.get(node("x").id) == node("x", DEAD), "it is long ago"


def test_who_was_declared_dead_forgets_whom_it_took_for_dead_and_gives_suspects_their_time_again() -> None:
    known = members(node("a"), node("b"), node("c"), node("d"), suspicion_s=5)
    known.learn([node("a", DEAD), node("b", LEFT)], 0.0)
    known.suspect(node("c"), 0.0)
    for now in range(5):
        known.tick(float(now))
    known.learn([known.me.turned(DEAD)], 4.0)
    assert known.get(node("a").id) is None
    assert known.get(node("b").id) == node("b", LEFT)
    assert node("a", DEAD).row() not in known.rumours.take(1000, 9)
    assert [len(known.tick(float(now))) for now in range(5, 10)] == [0, 0, 0, 0, 1]


# Others


def test_a_suspected_member_is_dead_after_the_timeout_unless_it_refutes() -> None:
    known = members(node("a"), node("b"), suspicion_s=5)
    for now in (0.0, 0.5, 1.0):
        known.tick(now)
    for name in "ab":
        assert known.suspect(node(name), 1.0)
        assert not known.suspect(node(name), 1.0)
    assert seen(known)["a"] is MemberState.SUSPECTED
    known.learn([node("b", epoch=2)], 3.0)
    dead = [record.id for now in range(4, 12) for record in known.tick(now / 2) if now / 2 < 6.0]
    assert dead == []
    assert [record.id for record in known.tick(6.0)] == [node("a").id]
    assert seen(known) == {"m": MemberState.JOINING, "b": MemberState.ACTIVE}
    assert not known.suspect(node("a"), 6.0)


def test_a_member_that_refuted_meanwhile_is_not_suspected_for_its_silence_before() -> None:
    known = members(node("a", epoch=2))
    assert not known.suspect(node("a", epoch=1), 0.0)
    assert seen(known)["a"] is MemberState.ACTIVE


def test_while_we_do_not_run_nobodys_time_runs_out() -> None:
    known = members(node("a"), suspicion_s=5, tick_s_max=1)
    known.tick(0.0)
    known.suspect(node("a"), 0.0)
    assert known.tick(60.0) == []  # one second of it counts
    assert [known.tick(60.0 + second) for second in (1, 2, 3)] == [[], [], []]
    assert len(known.tick(64.0)) == 1


def test_a_node_that_is_unwell_waits_longer_for_the_others() -> None:
    known = members(node("a"), suspicion_s=5)
    known.suspect(node("a"), 0.0)
    known.health.was_alone()
    assert [len(known.tick(second)) for second in range(11)] == [0] * 10 + [1]


def test_old_gossip_does_not_bring_back_who_is_gone_and_a_restart_does() -> None:
    known = members(node("a"), node("b"))
    known.learn([node("a", DEAD), node("b", LEFT, epoch=2)], 0.0)
    known.learn([node("a"), node("a", SUSPECTED), node("b")], 1.0)
    assert seen(known).keys() == {"m"}
    known.learn([node("a", JOINING, epoch=0, incarnation=2), node("b", JOINING, epoch=3)], 2.0)
    assert seen(known) == dict.fromkeys("mab", MemberState.JOINING)


def test_those_gone_are_told_of_for_an_hour_remembered_for_a_day_and_never_more_than_the_bound() -> None:
    known = members(node("a"), gone_max=3)
    known.learn([node("a", DEAD)], 0.0)
    assert node("a", DEAD) in known.records(3600.0)
    assert node("a", DEAD) not in known.records(3601.0)
    known.tick(86_400.0)
    assert known.get(node("a").id) == node("a", DEAD)
    known.tick(86_401.0)
    assert known.get(node("a").id) is None
    known.learn([node(name, DEAD) for name in "abcde"], 90_000.0)
    assert [known.get(node(name).id) is None for name in "abcde"] == [True, True, False, False, False]


def test_of_those_gone_only_the_dead_are_asked() -> None:
    known = members(node("a", LEFT), node("b", DEAD))
    assert known.dead() == [node("b", DEAD)]
    assert members(node("a", LEFT)).dead() == []


def test_who_is_lost_is_asked_soon_by_few_and_seldom_by_each_of_many() -> None:
    settings = GossipSettings()
    assert settings.lost_every_s(members=2, lost=2) == 1.0
    assert settings.lost_every_s(members=2, lost=4) == 0.5
    assert settings.lost_every_s(members=30, lost=40) == settings.lost_every_s(members=1000, lost=40) == 0.75
    assert settings.lost_every_s(members=400, lost=600) == 0.05, "but one in a period"


@pytest.mark.parametrize(
    ("there", "dead", "asks"),
    [("", "a", True), ("", "z", False), ("z", "ab", True), ("a", "yz", False), ("b", "ayz", True), ("yz", "ab", False)],
)  # we are m
def test_the_smaller_side_asks_and_of_two_of_one_size_the_one_without_the_lowest_id(
    there: str, dead: str, asks: bool
) -> None:
    known = members(*map(node, there + dead))
    for name in dead:
        known.met(node(name).id)
    known.learn([node(name, DEAD) for name in dead], 0.0)
    assert {record.id for record in known.dead(lost=True)} == ({node(name).id for name in dead} if asks else set())


def test_the_dead_in_whose_place_another_node_is_were_not_cut_off() -> None:
    known = members(node("a"), node("b"))
    for name in "ab":
        known.met(node(name).id)
    known.learn([node("a", DEAD), node("b", DEAD)], 0.0)
    assert (known.dead_count, len(known.dead(lost=True))) == (2, 2)
    known.learn([node("x", port=node("a").port)], 1.0)  # its disk is lost, and it has another key
    assert (known.dead_count, known.dead(lost=True)) == (1, [])
    known.learn([node("x", DEAD, port=node("a").port)], 2.0)
    assert known.dead_count == 3, "nobody is there now"
    assert known.move(node("b").address)
    assert known.dead_count == 2


def test_who_never_answered_or_left_or_cannot_be_reached_is_not_lost() -> None:
    hidden = replace(node("h", DEAD), features=(OUTBOUND,))
    known = members(node("a"), node("b"), replace(hidden, state=JOINING))
    known.met(node("b").id)
    known.met(hidden.id)
    known.learn([node("a", DEAD), node("b", LEFT), hidden], 0.0)
    assert known.dead_count == 1
    assert known.dead(lost=True) == []


@pytest.mark.parametrize(
    ("there", "dead", "asks"),
    [("yz", "ab", False), ("yzDEF", "ab", False), ("DEF", "ab", True), ("DEF", "a", True), ("DEF", "z", False)],
)  # we are m; those with capital letters, which come before, cannot be reached
def test_who_cannot_be_reached_counts_on_no_side_of_a_cut(there: str, dead: str, asks: bool) -> None:
    known = members(*(replace(node(name), features=(OUTBOUND,)) if name < "a" else node(name) for name in there + dead))
    for name in dead:
        known.met(node(name).id)
    known.learn([node(name, DEAD) for name in dead], 0.0)
    assert bool(known.dead(lost=True)) is asks
    back = known.learn([node(dead[0], ACTIVE, epoch=2)], 10.0, sender=node(dead[0]).id, sees=len(dead))
    assert back.reunited, "the others do not hide that it was a cut"


@pytest.mark.parametrize(
    ("dead", "there", "back", "reunited"),
    [
        ("ab", "c", node("a", ACTIVE, epoch=2), True),
        ("a", "bcdefg", node("a", ACTIVE, epoch=2), True),
        ("a", "bcdefgh", node("a", ACTIVE, epoch=2), False),
        ("ab", "c", node("a", JOINING, epoch=2), False),
        ("ab", "c", node("a", ACTIVE, incarnation=2), False),
        ("ab", "c", node("d", ACTIVE), False),
    ],
)
def test_it_is_known_that_two_sides_have_met_where_many_were_dead_and_one_has_owned_all_the_time(
    dead: str, there: str, back: MemberRecord, reunited: bool
) -> None:
    known = members(*map(node, dead + there))
    known.learn([node(name, DEAD) for name in dead], 0.0)
    learned = known.learn([node(there[0], epoch=5), back], 10.0, sender=back.id, sees=len(dead))
    assert (learned.changed, learned.reunited) == (2, reunited)
    assert not known.learn([node(dead[-1], ACTIVE, epoch=2)], 10.0).reunited or not reunited, "it is told once"


def test_of_the_dead_that_never_answered_no_more_count_than_may_be_there_by_others_word() -> None:
    known = members(node("a"), node("b"))
    known.met(node("a").id)
    known.set_state(ACTIVE)
    invented = [node(chr(0x21 + n), DEAD) for n in range(60)]
    assert known.learn(invented, 0.0, sender=node("a").id, sees=2).changed == 60
    assert known.dead_count == HEARSAY_MAX
    known.learn([node("a", DEAD), node("b", DEAD)], 0.0)
    assert known.dead_count == 1 + HEARSAY_MAX, "of these two one has answered"


def test_members_beyond_the_bound_are_refused_and_counted_until_there_is_a_place() -> None:
    known = members(node("a"), node("b"), node("c"), members_max=3)
    assert seen(known).keys() == {"m", "a", "b"}
    assert known.rows.full == 1
    known.learn([node("a", DEAD), node("c")], 0.0)
    assert seen(known).keys() == {"m", "b", "c"}
    known.learn([node("a", epoch=2)], 0.0)
    assert known.get(node("a").id) == node("a", DEAD)


def test_who_comes_and_goes_does_not_pile_up() -> None:
    known = members(node("b"))
    for epoch in range(0, 2000, 2):
        known.learn([node("a", epoch=epoch), node("a", DEAD, epoch=epoch)], 0.0)
    assert len(known.rumours) == 2
    order = AskingOrder(Random(1))
    order.comes(b"b")
    for _ in range(1000):
        order.comes(b"a")
        order.goes(b"a")
    assert len(order) <= 3


# The view


def test_the_view_is_the_same_object_until_something_in_it_changes() -> None:
    known = members(node("a"))
    view = known.view()
    known.learn([node("a"), node("a", epoch=0, state=DEAD)], 0.0)
    known.learn([node("a", epoch=2), node("b", DEAD), known.me.turned(SUSPECTED)], 0.0)  # news, but not for owners
    known.tick(1.0)
    assert known.view() is view
    known.suspect(node("a", epoch=2), 0.0)
    assert known.view() is not view
    for change in (node("a", incarnation=2), node("a", epoch=3, incarnation=2, port=10), node("a", DEAD, 9, 9)):
        view = known.view()
        known.learn([change], 0.0)
        assert known.view() is not view


def test_a_suspected_member_owns_what_it_owned_and_a_joining_one_nothing() -> None:
    known = members(node("a"), node("b", JOINING), node("c", SUSPECTED), node("d", SUSPECTED, owns=False))
    known.suspect(node("b", JOINING), 0.0)
    assert seen(known) == {
        "a": MemberState.ACTIVE,
        "b": MemberState.JOINING,
        "c": MemberState.SUSPECTED,
        "d": MemberState.JOINING,
        "m": MemberState.JOINING,
    }
    assert len(known.view()) == 2


def test_the_fingerprint_says_who_is_there_in_which_life_and_whether_it_owns() -> None:
    prints = [
        members(*records).fingerprint()
        for records in (
            [node("a")], [node("a", SUSPECTED)], [node("a", epoch=9)], [node("a"), node("b", DEAD)],
            [node("a", JOINING)], [node("a", incarnation=2)], [node("a"), node("b")], [],
        )
    ]  # fmt: skip
    assert len(prints[0]) == 8
    assert set(prints[:4]) == {prints[0]}
    assert len(set(prints[3:])) == 5


def test_two_nodes_that_see_the_same_have_the_same_fingerprint() -> None:
    one, two = Members(own(node("a")), Random(1)), Members(own(node("b")), Random(2))
    one.learn([node("b"), node("c")], 0.0)
    two.learn([node("c"), node("a")], 0.0)
    assert one.fingerprint() == two.fingerprint()


def test_a_newcomer_that_said_so_itself_is_active_before_gossip_says_so() -> None:
    newcomer = node("a", JOINING, epoch=0)
    known = members(newcomer)
    assert not known.mark_active(newcomer.id, 2, 0.0)
    assert not known.mark_active(b"x" * 20, 1, 0.0)
    assert known.mark_active(newcomer.id, 1, 0.0)
    assert seen(known)["a"] is MemberState.ACTIVE
    assert newcomer.row() in [record.row() for record in known.records(0.0)]  # others hear it from the newcomer
    known.learn([node("a", JOINING, epoch=1)], 1.0)  # it refuted something
    assert seen(known)["a"] is MemberState.ACTIVE
    known.suspect(node("a", JOINING, epoch=1), 1.0)
    assert seen(known)["a"] is MemberState.SUSPECTED
    known.learn([node("a", epoch=2)], 2.0)
    known.tick(1000.0)
    assert seen(known)["a"] is MemberState.ACTIVE
    known.learn([node("a", JOINING, epoch=3)], 1001.0)
    assert seen(known)["a"] is MemberState.JOINING


@pytest.mark.parametrize("end", ["restart", "death", "silence"])
def test_a_newcomer_that_was_marked_active_and_never_was_is_joining_again(end: str) -> None:
    known = members(node("a", JOINING))
    known.mark_active(node("a").id, 1, 0.0)
    if end == "restart":
        known.learn([node("a", JOINING, incarnation=2)], 1.0)
    elif end == "death":
        known.learn([node("a", DEAD), node("a", JOINING, epoch=3)], 1.0)
    else:
        known.tick(121.0)
    assert seen(known)["a"] is MemberState.JOINING


# Whom to ask


def test_every_member_is_asked_once_a_round() -> None:
    known = members(*(node(name) for name in "abcdefgh"))
    for _ in range(3):
        asked = [known.next_target() for _ in range(8)]
        assert sorted(target.id for target in asked if target) == [node(name).id for name in "abcdefgh"]


def test_members_that_are_being_asked_or_are_gone_are_passed_over() -> None:
    known = members(node("a"), node("b"), node("c", DEAD))
    assert {known.next_target({node("a").id}) for _ in range(9)} == {node("b")}
    assert known.next_target({node("a").id, node("b").id}) is None
    assert members().next_target() is None


def test_help_comes_from_others_that_answer() -> None:
    known = members(node("a"), node("b", SUSPECTED), node("c"), node("d"))
    for _ in range(9):
        assert {record.id for record in known.some(3, exclude=node("a").id)} == {node("c").id, node("d").id}


def test_all_orders_of_a_life_end_the_same() -> None:
    life = [
        node("a", JOINING, 0),
        node("a", ACTIVE, 1),
        node("a", SUSPECTED, 1),
        node("a", ACTIVE, 2),
        node("a", DEAD, 2),
    ]
    for order in permutations(life):
        assert members(*order).get(life[0].id) == node("a", DEAD, 2)


def test_who_cannot_be_reached_owns_nothing_whatever_it_says_and_is_among_no_random_ones() -> None:
    hidden = replace(node("h", ACTIVE), features=(OUTBOUND,))
    known = members(node("a"), hidden)
    assert [member.state for member in known.view().members if member.id == hidden.id] == [MemberState.OUTBOUND]
    assert known.view().outbound == (hidden.id,)
    assert hidden.id not in known.view().owner_ids
    assert hidden.id not in known.view().eligible
    assert not known.mark_active(hidden.id, hidden.incarnation, 0.0)
    assert [record.id for record in known.some(5)] == [node("a").id]
    turns = {record.id for _ in range(8) if (record := known.next_target()) is not None}
    assert turns == {node("a").id, hidden.id}, "it is looked after like the others"
    known.learn([hidden.turned(DEAD)], 0.0)
    assert known.dead() == [], "it comes back by itself"
    reached = replace(node("h", ACTIVE, incarnation=2), features=())
    known.learn([reached], 0.0)
    assert len(known.some(5)) == 2, "it was started again, and takes connections now"
    known.learn([replace(hidden, incarnation=3)], 0.0)
    assert len(known.some(5)) == 1
