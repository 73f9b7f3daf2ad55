"""The core of joining, step by step: no loop, no clock, no network."""

from __future__ import annotations

import dataclasses

import pytest

from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.swarm.membership.join_state import ALONE_S, NO_OWNER_S, JoinPhase, JoinState
from dhtcrawl.swarm.membership.join_steps import (
    AwaitChange,
    Become,
    EndLeases,
    HandOver,
    Hold,
    JoinSettings,
    Meet,
    Own,
    Pause,
    Settle,
    Step,
    Tell,
)
from dhtcrawl.swarm.membership.keeping_up import (
    AT_ONCE,
    NEEDED_PAUSE_MAX_S,
    NEEDED_PAUSE_S,
    OWED_PAUSE_MAX_S,
    PAUSE_S,
)
from dhtcrawl.swarm.membership.neighbourhood import SAID_AGAIN_S, SILENT_S
from dhtcrawl.swarm.membership.repairs import PATIENCE_S
from dhtcrawl.swarm.replica_sets import EVERYTHING
from swarm.fake_peers import node, view_of

REPAIR_S = 600.0
SETTINGS = JoinSettings(own=node(0), replicas=3, repair_s=REPAIR_S, suspicion_s=5.0)

OUTSIDE = view_of([1, 2], [0])  # two own, and this node joins
INSIDE = view_of([0, 1, 2])


def a_newcomer() -> JoinState:
    state = JoinState(SETTINGS, 0.0)
    state.view_changed(OUTSIDE)
    return state


def phase_of(state: JoinState) -> JoinPhase:
    """By a call, as mypy takes a property to stay what it was."""
    return state.phase


def meet(state: JoinState, view: View, now: float = 0.0) -> Meet:
    """Carry one meeting out; whom it was with."""
    step = state.next(view, now)
    assert step is not None
    assert isinstance(step.then, Meet)
    for each in step.then.nodes:
        state.met(each, view, view)
    return step.then


def become_active(state: JoinState) -> None:
    """Join two owners, with everything as it should be."""
    meet(state, OUTSIDE)
    assert state.next(OUTSIDE, 0.0) == Step((Become(MemberState.ACTIVE), Own(True)))
    state.view_changed(INSIDE)
    for n in (1, 2):
        state.told(node(n))
    assert state.next(INSIDE, 0.0) == Step((Settle(INSIDE), Hold(False)))


def an_owner() -> JoinState:
    """Active, and in line with the view."""
    state = a_newcomer()
    become_active(state)
    assert state.next(INSIDE, 0.0) == Step(then=AwaitChange(REPAIR_S))
    assert state.waited(False, INSIDE, 0.0) == ()
    assert state.next(INSIDE, 0.0) == Step((Settle(INSIDE),), HandOver())
    state.handed_over(needed=False, refused=False)
    assert not state.busy
    return state


def test_a_newcomer_meets_then_tells_then_meets_again_and_only_then_fetches() -> None:
    state = a_newcomer()
    assert phase_of(state) is JoinPhase.JOINING
    assert state.next(OUTSIDE, 0.0) == Step(then=Meet([node(1), node(2)], (EVERYTHING,)))
    assert phase_of(state) is JoinPhase.SYNCING
    state.met(node(1), OUTSIDE, OUTSIDE)
    assert state.next(OUTSIDE, 0.0) == Step(then=Meet([node(2)], (EVERYTHING,))), "it did not answer"
    state.met(node(2), OUTSIDE, OUTSIDE)
    assert state.next(OUTSIDE, 0.0) == Step((Become(MemberState.ACTIVE), Own(True)))
    assert not state.active, "no neighbour has been told"
    state.view_changed(INSIDE)
    assert state.next(INSIDE, 0.0) == Step(then=Tell([node(1), node(2)]))
    state.told(node(1))
    assert state.next(INSIDE, 0.0) == Step(then=Tell([node(2)]))
    state.told(node(2))
    newer = view_of([0, 1, 2, 3])
    state.view_changed(newer)
    assert state.next(newer, 0.0) == Step(then=Tell([node(3)]))
    state.told(node(3))
    assert meet(state, newer).nodes == [node(3)], "checked again"
    assert phase_of(state) is JoinPhase.CHECKING
    assert not state.active
    assert state.next(newer, 0.0) == Step((Settle(newer), Hold(False)))
    assert state.active


def test_who_may_have_been_taken_for_dead_while_it_told_that_it_is_active_meets_all_again() -> None:
    """Seed 7779: a node that nobody heard for 13 s fetched what others had fetched meanwhile."""
    state = a_newcomer()
    meet(state, OUTSIDE)
    state.next(OUTSIDE, 0.0)
    state.view_changed(INSIDE)
    for n in (1, 2):
        state.told(node(n))
    assert meet(state, INSIDE, 5.1).nodes == [node(1), node(2)]
    assert not state.active
    assert state.next(INSIDE, 15.0) == Step((Settle(INSIDE), Hold(False))), "within twice the time"


@pytest.mark.parametrize("takes_s", [6.0, 60.0, 600.0])
def test_who_takes_long_to_meet_all_fetches_in_the_end(takes_s: float) -> None:
    state, now = a_newcomer(), 0.0
    meet(state, OUTSIDE)
    state.next(OUTSIDE, now)
    state.view_changed(INSIDE)
    for n in (1, 2):
        state.told(node(n))
    while not state.active:
        now += takes_s
        step = state.next(INSIDE, now)
        for each in (1, 2):
            state.met(node(each), INSIDE, INSIDE)
        assert step is not None
        assert now < 10 * takes_s


def test_no_more_than_a_few_are_met_at_once() -> None:
    state, crowd = JoinState(SETTINGS, 0.0), view_of([1], range(2, 16))
    state.view_changed(crowd)
    met: list[bytes] = []
    while len(meeting := meet(state, crowd).nodes) == AT_ONCE:
        met += meeting
    assert len({*met, *meeting}) == len(met) + len(meeting) > AT_ONCE


@pytest.mark.parametrize(
    ("view", "alone", "waits_s"),
    [
        (view_of([], [0]), False, NO_OWNER_S),
        (view_of([], [0]), True, 0.0),  # told to begin a swarm
        (view_of([], [0, 1, 2]), False, NO_OWNER_S),
        (view_of([], [0, 1, 2]), True, NO_OWNER_S),  # the others may know somebody
    ],
)
def test_where_nobody_is_active_the_lowest_id_begins_after_a_while(view: View, alone: bool, waits_s: float) -> None:
    state = JoinState(SETTINGS, 0.0)
    if alone:
        state.begin_alone()
    state.view_changed(view)
    if waits_s:
        assert state.next(view, 0.0) == Step(then=Pause(PAUSE_S))
        assert state.next(view, waits_s - 0.01) == Step(then=Pause(PAUSE_S))
    state.next(view, waits_s)
    assert phase_of(state) in (JoinPhase.SYNCING, JoinPhase.TELLING)


def test_where_nobody_is_active_a_higher_id_waits_for_the_lowest() -> None:
    state = JoinState(JoinSettings(own=node(1), replicas=3, repair_s=REPAIR_S, suspicion_s=5.0), 0.0)
    view = view_of([], [0, 1])
    state.view_changed(view)
    assert state.next(view, 1000.0) == Step(then=Pause(PAUSE_S))
    owned = view_of([0], [1])
    state.view_changed(owned)
    assert state.next(owned, 1000.0) == Step(then=Meet([node(0)], (EVERYTHING,)))


def test_who_was_told_nothing_by_an_owner_begins_again() -> None:
    state, nobody = a_newcomer(), view_of([], [0])
    assert isinstance(state.next(OUTSIDE, 0.0), Step)
    state.view_changed(nobody)
    assert state.next(nobody, 0.0) == Step(then=Pause(PAUSE_S))
    assert phase_of(state) is JoinPhase.JOINING


def test_whoever_was_met_while_an_owner_was_there_that_has_vanished_is_met_again() -> None:
    state, three = a_newcomer(), view_of([1, 2, 3], [0])
    state.next(OUTSIDE, 0.0)
    state.met(node(1), OUTSIDE, OUTSIDE)
    state.view_changed(three)  # after 1 was met: it knows what 3 sends it
    state.met(node(2), three, three)
    assert state.next(three, 0.0) == Step(then=Meet([node(3)], (EVERYTHING,)))
    state.view_changed(OUTSIDE)
    assert state.next(OUTSIDE, 0.0) == Step(then=Meet([node(1), node(2)], (EVERYTHING,)))


def test_what_is_under_way_ends_when_the_node_is_declared_dead() -> None:
    state = a_newcomer()
    state.next(OUTSIDE, 0.0)
    assert state.wants(node(1), OUTSIDE)
    assert not state.wants(node(5), OUTSIDE), "it is not there"
    assert state.rejoin(1.0) == (Own(False), Hold(True), Settle(None))
    assert not state.wants(node(1), OUTSIDE)
    assert state.changed
    assert state.next(OUTSIDE, 1.0) == Step(then=Meet([node(1), node(2)], (EVERYTHING,)))
    assert state.wants(node(1), OUTSIDE)
    assert not state.changed


def test_a_member_that_never_answers_holds_up_a_newcomer_for_two_minutes_and_not_for_good() -> None:
    state = a_newcomer()
    assert state.next(OUTSIDE, 0.0) == Step(then=Meet([node(1), node(2)], (EVERYTHING,)))
    state.met(node(1), OUTSIDE, OUTSIDE)
    assert not state.no_answer(node(2), 30.0)
    assert not state.no_answer(node(2), 29.0 + SILENT_S)
    assert state.wants(node(2), OUTSIDE)
    assert state.no_answer(node(2), 30.0 + SILENT_S)
    assert not state.wants(node(2), OUTSIDE)
    assert state.next(OUTSIDE, 150.0) == Step((Become(MemberState.ACTIVE), Own(True)))
    state.view_changed(INSIDE)
    state.told(node(1))
    assert meet(state, INSIDE, 150.0).nodes == [node(1)], "that took so long that it may have been taken for dead"
    assert state.next(INSIDE, 150.0) == Step((Settle(INSIDE), Hold(False)))
    # It is asked again in the next round, and gone on without at once where it is as silent as before.
    state.waited(False, INSIDE, 200.0)
    assert state.wants(node(2), INSIDE)
    state.no_answer(node(2), 230.0)
    assert not state.wants(node(2), INSIDE)


def test_who_answers_now_and_then_is_waited_for() -> None:
    state = a_newcomer()
    state.next(OUTSIDE, 0.0)
    state.no_answer(node(2), 0.0)
    state.met(node(2), OUTSIDE, OUTSIDE)
    assert not state.no_answer(node(2), SILENT_S)


def test_where_no_owner_has_answered_a_newcomer_begins_anew_and_owns_nothing() -> None:
    state = a_newcomer()
    state.next(OUTSIDE, 0.0)
    for n in (1, 2):
        state.no_answer(node(n), 0.0)
        assert state.no_answer(node(n), SILENT_S)
    assert state.next(OUTSIDE, SILENT_S) == Step(then=Pause(PAUSE_S))
    assert state.next(OUTSIDE, SILENT_S) == Step(then=Meet([node(1), node(2)], (EVERYTHING,)))


def test_that_no_owner_answers_is_said_now_and_then_and_not_with_each_of_the_rounds_of_a_second() -> None:
    state, said = a_newcomer(), list[float]()
    state.next(OUTSIDE, 0.0)
    for turn in range(8_000):
        now = PAUSE_S * turn
        said += [now for n in (1, 2) if state.no_answer(node(n), now)]
        if not state.wants(node(1), OUTSIDE):
            assert state.next(OUTSIDE, now) == Step(then=Pause(PAUSE_S))
            assert state.next(OUTSIDE, now) == Step(then=Meet([node(1), node(2)], (EVERYTHING,)))
    said = said[::2]  # of each of the two
    assert said == pytest.approx([SILENT_S, SILENT_S + SAID_AGAIN_S, SILENT_S + 2 * SAID_AGAIN_S])
    state.met(node(1), OUTSIDE, OUTSIDE)
    state.no_answer(node(1), 2_000.0)
    assert state.no_answer(node(1), 2_000.0 + SILENT_S), "it had answered"


def test_who_is_declared_dead_and_sees_nobody_waits_longer_before_it_goes_on_alone() -> None:
    state, nobody = an_owner(), view_of([], [0])
    state.view_changed(nobody)
    state.rejoin(100.0)
    assert not state.active
    assert state.next(nobody, 100.0 + ALONE_S - 0.1) == Step(then=Pause(PAUSE_S))
    assert state.next(nobody, 100.0 + ALONE_S) == Step((Become(MemberState.ACTIVE), Own(True)))


@pytest.mark.parametrize("phase", [JoinPhase.WAITING, JoinPhase.SYNCING, JoinPhase.TELLING, JoinPhase.ACTIVE])
def test_who_leaves_owns_nothing_and_does_nothing_more(phase: JoinPhase) -> None:
    state, nobody = a_newcomer(), view_of([], [0])
    if phase is JoinPhase.WAITING:
        state.next(nobody, 0.0)
    elif phase is JoinPhase.ACTIVE:
        state = an_owner()
    else:
        meet(state, OUTSIDE)
        if phase is JoinPhase.TELLING:
            state.next(OUTSIDE, 0.0)
    assert phase_of(state) is phase
    assert state.leave() == (Hold(True), Own(False), Become(MemberState.JOINING))
    assert state.next(OUTSIDE, 0.0) is None
    assert state.rejoin(0.0) == (), "it goes, whoever takes it for dead"
    assert not state.active
    assert state.busy
    assert not state.wants(node(1), OUTSIDE)


def test_a_view_with_the_same_members_and_owners_changes_nothing() -> None:
    state = an_owner()
    assert state.view_changed(view_of([0, 1, 2])) == ()
    assert not state.changed
    assert not state.busy


def test_strangers_stop_what_is_fetched_until_they_are_met() -> None:
    state, met = an_owner(), view_of([0, 1, 2, 3])
    assert state.view_changed(met) == (Settle(None), EndLeases()), "whatever is under way"
    assert state.busy
    assert state.waited(False, met, 0.0) == (Settle(None),)
    assert state.next(met, 0.0) == Step(then=Meet([node(3)], (EVERYTHING,)))
    assert phase_of(state) is JoinPhase.STRANGERS
    assert state.next(met, 0.0) == Step((Settle(met),), HandOver())


def test_an_owner_that_was_seen_to_join_is_no_stranger_to_a_newcomer() -> None:
    state = a_newcomer()
    assert state.view_changed(view_of([1, 2, 3], [0])) == ()
    three = view_of([1, 2, 3], [0])
    meet(state, three)
    assert state.next(three, 0.0) == Step((Become(MemberState.ACTIVE), Own(True)))
    inside = view_of([0, 1, 2, 3])
    state.view_changed(inside)
    for n in (1, 2, 3):
        state.told(node(n))
    state.next(inside, 0.0)
    state.next(inside, 0.0)
    assert state.waited(False, inside, 0.0) == ()


def test_what_a_vanished_owner_kept_is_compared_before_it_is_fetched() -> None:
    state, left = an_owner(), view_of([0, 1])
    assert state.view_changed(left) == ()
    state.waited(False, left, 0.0)
    assert state.next(left, 0.0) == Step(then=Meet([node(1)], [EVERYTHING]))
    assert phase_of(state) is JoinPhase.COMPARING
    assert state.next(left, 0.0) == Step((Settle(left),), HandOver())


def test_a_view_that_changes_while_ranges_are_compared_is_looked_at_anew() -> None:
    state, left, alone = an_owner(), view_of([0, 1]), view_of([0])
    state.view_changed(left)
    state.waited(False, left, 0.0)
    state.next(left, 0.0)
    state.view_changed(alone)
    assert state.next(alone, 0.0) == Step(then=AwaitChange(REPAIR_S))
    assert state.changed, "so it does not wait"
    state.waited(False, alone, 0.0)
    assert state.next(alone, 0.0) == Step((Settle(alone),), HandOver())


def test_without_any_change_everything_is_compared_from_time_to_time() -> None:
    state = an_owner()
    state.waited(True, INSIDE, REPAIR_S - 1.0)
    assert state.next(INSIDE, REPAIR_S - 1.0) == Step((Settle(INSIDE),), HandOver())
    state.handed_over(needed=False, refused=False)
    state.waited(True, INSIDE, REPAIR_S)
    assert state.next(INSIDE, REPAIR_S) == Step(then=Meet([node(1), node(2)], (EVERYTHING,)))
    assert state.next(INSIDE, REPAIR_S + 5.0) == Step((Settle(INSIDE),), HandOver())
    state.handed_over(needed=False, refused=False)
    state.waited(True, INSIDE, REPAIR_S + 6.0)
    assert state.next(INSIDE, REPAIR_S + 6.0) == Step((Settle(INSIDE),), HandOver()), "done for now"


def test_an_owner_that_joins_again_is_given_time_before_further_copies_are_made() -> None:
    state, joining = an_owner(), view_of([0, 1], [2])
    state.view_changed(joining)
    state.waited(False, joining, 0.0)
    while (step := state.next(joining, 0.0)) is not None and isinstance(step.then, Meet):
        pass
    assert step == Step((Settle(joining),), HandOver())
    state.handed_over(needed=False, refused=False)
    assert state.next(joining, 0.0) == Step(then=AwaitChange(PATIENCE_S))
    state.waited(True, joining, PATIENCE_S)
    step = state.next(joining, PATIENCE_S)
    assert step is not None
    assert isinstance(step.then, Meet)


def pauses(*, needed: bool, refused: bool, times: int) -> list[float]:
    """How long a node waits after each of several times that it handed over."""
    state, found = an_owner(), []
    for _ in range(times):
        state.waited(False, INSIDE, 0.0)
        assert state.next(INSIDE, 0.0) == Step((Settle(INSIDE),), HandOver())
        state.handed_over(needed=needed, refused=refused)
        step = state.next(INSIDE, 0.0)
        assert step is not None
        assert isinstance(step.then, AwaitChange)
        found.append(step.then.seconds)
        if refused:
            assert phase_of(state) is JoinPhase.OWING
            assert state.busy
            state.waited(True, INSIDE, 0.0)
            assert state.changed
            assert phase_of(state) is JoinPhase.ACTIVE
    return found


def test_what_is_refused_is_offered_again_ever_more_rarely() -> None:
    found = pauses(needed=False, refused=True, times=9)
    assert found[:3] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]
    assert found[-1] == OWED_PAUSE_MAX_S


def test_what_is_needed_here_still_is_offered_again_ever_more_rarely_and_nobody_waits_for_it() -> None:
    found = pauses(needed=True, refused=False, times=9)
    assert found[:3] == [NEEDED_PAUSE_S, 2 * NEEDED_PAUSE_S, 4 * NEEDED_PAUSE_S]
    assert found[-1] == NEEDED_PAUSE_MAX_S


def test_a_change_ends_handing_over_and_is_looked_at_at_once() -> None:
    state, left = an_owner(), view_of([0, 1])
    state.waited(False, INSIDE, 0.0)
    state.next(INSIDE, 0.0)
    state.view_changed(left)
    state.interrupted()
    assert state.next(left, 0.0) == Step(then=AwaitChange(REPAIR_S))
    assert state.changed
    assert state.busy


@pytest.mark.parametrize("taken", [True, False])
def test_a_declaration_while_records_are_handed_over_counts_whatever_came_of_them(taken: bool) -> None:
    state = an_owner()
    state.waited(False, INSIDE, 0.0)
    state.next(INSIDE, 0.0)
    state.rejoin(0.0)
    if taken:
        state.handed_over(needed=False, refused=True)
    else:
        state.interrupted()
    assert phase_of(state) is JoinPhase.JOINING


def hidden_in(active: list[int]) -> View:
    """These own, and this node is one that nobody reaches."""
    return View([*view_of(active).members, Member(node(0), ("10.0.0.1", 1), MemberState.OUTBOUND)])


def test_a_node_that_nobody_reaches_meets_owners_copies_nothing_and_fetches_without_owning() -> None:
    state = JoinState(dataclasses.replace(SETTINGS, outbound=True), 0.0)
    alone = hidden_in([])
    state.begin_alone()
    state.view_changed(alone)
    assert state.next(alone, 100.0) == Step(then=Pause(PAUSE_S)), "it begins no swarm"
    view = hidden_in([1, 2])
    state.view_changed(view)
    met = meet(state, view)
    assert (met.nodes, met.within) == ([node(1), node(2)], ())
    assert state.next(view, 100.0) == Step((Settle(view), Hold(False)))
    assert state.active
    assert state.next(view, 100.0) == Step(then=AwaitChange(REPAIR_S))
    wider = hidden_in([1, 2, 3])
    state.view_changed(wider)
    assert state.waited(False, wider, 100.0) == (Settle(None),)
    met = meet(state, wider)
    assert (met.nodes, met.within) == ([node(3)], ()), "what it knows of crawls, and no records"
    assert state.next(wider, 100.0) == Step((Settle(wider),), HandOver()), "what was lent to it goes to its owners"
    assert state.rejoin(101.0) == (Own(False), Hold(True), Settle(None))


def test_who_never_owns_does_not_keep_the_others_from_beginning() -> None:
    state = JoinState(JoinSettings(own=node(1), replicas=3, repair_s=REPAIR_S, suspicion_s=5.0), 0.0)
    joining = View([*view_of([], [1]).members, Member(node(0), ("10.0.0.1", 1), MemberState.OUTBOUND)])
    state.view_changed(joining)
    state.next(joining, NO_OWNER_S)
    assert phase_of(state) is not JoinPhase.WAITING
