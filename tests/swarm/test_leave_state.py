"""The core of leaving, with whatever the others answer: no loop, no clock, no network."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.swarm.membership.join_steps import Pause
from dhtcrawl.swarm.membership.keeping_up import NEEDED_PAUSE_S
from dhtcrawl.swarm.membership.leave_state import (
    HEIRS_TRIED,
    LOOK_S,
    Bequeath,
    Disown,
    EndRuns,
    Estate,
    KeepPages,
    LeavePhase,
    LeaveSettings,
    LeaveState,
    LeaveStep,
    Notice,
    PushRecords,
    SayGoodbye,
    Situation,
    StartNothing,
    StopAdopting,
)
from swarm.fake_peers import node, view_of

DRAIN_S = 2.0
SETTINGS = LeaveSettings(node(0), replicas=3, drain_s=DRAIN_S)
ANYWAY_S = 0.5  # what giving something takes

members = st.sets(st.integers(0, 6))
estates = st.lists(st.integers(0, 5).map(lambda n: Estate(bytes([n]), False, n % 2 == 0)), max_size=4, unique=True)


class Leaving:
    """A node that leaves while anything may happen around it, as `data` draws it; what it did, and when."""

    def __init__(self, data: st.DataObject, hasten_at: float | None = None) -> None:
        self.state = LeaveState(SETTINGS)
        self.estates = data.draw(estates)
        self.did: list[LeaveStep] = []
        self.at: list[float] = []
        self.taken: list[Bequeath] = []
        self.may_have: dict[Bequeath, None] = {}  # who took an estate, or did not answer
        self.refused: list[Estate] = []
        self.late: list[tuple[Bequeath, bool | None]] = []  # what was given while updating, and what came of it
        self.gone: set[Bequeath] = set()  # updates of heirs that were no members
        self.unfinished_at_the_end_of_draining = False
        now, hastened = 0.0, False
        while True:
            if hasten_at is not None and now >= hasten_at and not hastened:
                hastened = True
                self.state.hasten()
            seen = self._seen(data)
            step = self.state.next(seen, now)
            if step is None:
                return
            if isinstance(step, StopAdopting):
                self.unfinished_at_the_end_of_draining = not self.state.drained
            if isinstance(step, Bequeath) and step.heir not in seen.view:
                self.gone.add(step)
            self.did.append(step)
            self.at.append(now)
            now += self._carry_out(step, data)
            assert len(self.did) < 1_000, "it ends"

    def _seen(self, data: st.DataObject) -> Situation:
        owning, joining = data.draw(members), data.draw(members)
        return Situation(view_of(owning, joining - owning), data.draw(st.booleans()), data.draw(st.booleans()))

    def _carry_out(self, step: LeaveStep, data: st.DataObject) -> float:
        match step:
            case Pause(seconds):
                return seconds
            case StopAdopting():
                self.state.bequeath(self.estates)
            case Bequeath():
                taken = data.draw(st.sampled_from([True, False, None]))
                self._note(step, taken)
                self.state.given(step, taken)
            case PushRecords():
                self.state.pushed(left_over=data.draw(st.booleans()))
            case _:
                return 0.0
        return ANYWAY_S

    def _note(self, step: Bequeath, taken: bool | None) -> None:
        if self.state.phase is LeavePhase.UPDATING:
            self.late.append((step, taken))
        elif taken is False:
            self.refused.append(step.estate)
        else:
            self.may_have.pop(step, None)  # who was asked last is the last
            self.may_have[step] = None
            self.taken += [step] if taken else []

    @property
    def offers(self) -> list[Bequeath]:
        """What was offered before it disowned."""
        return [step for step in self.did[: self.first(Disown)] if isinstance(step, Bequeath)]

    def first(self, kind: type[Any]) -> int:
        return next((n for n, step in enumerate(self.did) if isinstance(step, kind)), len(self.did))

    def paused_s(self) -> float:
        return sum(step.seconds for step in self.did if isinstance(step, Pause))


@given(st.data())
def test_leaving_ends_whatever_the_others_do_and_each_phase_waits_no_longer_than_it_may(data: st.DataObject) -> None:
    leaving = Leaving(data)
    assert leaving.did[0] == StartNothing()
    assert [step for step in leaving.did if isinstance(step, SayGoodbye)] == [leaving.did[-1]]
    bequeathing = leaving.did[leaving.first(StopAdopting) : leaving.first(Disown)]
    assert sum(step.seconds for step in bequeathing if isinstance(step, Pause)) <= DRAIN_S + NEEDED_PAUSE_S
    assert leaving.at[leaving.first(StopAdopting)] <= 2 * (DRAIN_S + LOOK_S) + 1e-6, "draining, and staying"
    pushes = [at for step, at in zip(leaving.did, leaving.at, strict=True) if isinstance(step, PushRecords)]
    if pushes:
        assert pushes[-1] - pushes[0] <= DRAIN_S + NEEDED_PAUSE_S


@given(st.data(), st.one_of(st.none(), st.floats(0.0, 3.0)))
def test_that_nobody_has_an_estate_is_said_once_where_all_that_were_asked_refused_and_of_no_other(
    data: st.DataObject, hasten_at: float | None
) -> None:
    leaving = Leaving(data, hasten_at)
    kept = [step.estate for step in leaving.did if isinstance(step, KeepPages)]
    may_have = {gift.estate for gift in leaving.may_have}
    assert sorted(kept, key=str) == sorted({*leaving.refused} - may_have, key=str)


@given(st.data())
def test_what_is_bequeathed_last_is_what_was_taken_for_sure(data: st.DataObject) -> None:
    leaving = Leaving(data)
    for gift in leaving.taken:
        updated = [step for step, _ in leaving.late if step.again]
        asked = [step for step in (*leaving.offers, *updated) if step.estate == gift.estate]
        assert asked[-1].heir == gift.heir


@given(st.data())
def test_nothing_is_bequeathed_twice_and_who_refused_is_asked_once_a_round(data: st.DataObject) -> None:
    leaving = Leaving(data)
    first = leaving.offers
    assert max(Counter(step.estate for step in leaving.taken).values(), default=1) == 1
    for estate, times in Counter(step.estate for step in first).items():
        asked = [step.heir for step in first if step.estate == estate]
        rounds = 1 + sum(
            isinstance(step, Pause) for step in leaving.did[leaving.first(StopAdopting) : leaving.first(Disown)]
        )
        assert times <= rounds * (HEIRS_TRIED + 1)
        assert max(Counter(asked).values()) <= rounds, "nobody is asked twice in a round"
        assert node(0) not in asked
        assert all(step.heir == asked[-1] for step in leaving.taken if step.estate == estate), (
            "who took it was the last"
        )
    again = [step for step, _ in leaving.late if step.again]
    late = leaving.unfinished_at_the_end_of_draining
    due = [replace(step, again=True) for step in leaving.may_have]
    assert again == [step for step in due if late or step.estate.depth_matters or step in leaving.gone]
    assert leaving.did.count(EndRuns()) <= late


@given(st.data())
def test_what_its_heir_does_not_take_once_more_is_offered_to_others_and_once_to_each(data: st.DataObject) -> None:
    leaving = Leaving(data)
    updates = {step.estate: taken for step, taken in leaving.late if step.again}
    for estate, taken in updates.items():
        offered = [(step.heir, took) for step, took in leaving.late if step.estate == estate and not step.again]
        heirs = [heir for heir, _ in offered]
        assert len(heirs) == len(set(heirs)) <= HEIRS_TRIED + 1
        assert not (offered and taken), "it has everything"
        assert not any(took for _, took in offered[:-1]), "who took it was the last"
    assert {step.estate for step, _ in leaving.late} == updates.keys()


@given(st.data())
def test_records_go_after_the_node_has_stopped_adopting_and_owning_and_before_goodbye(data: st.DataObject) -> None:
    leaving = Leaving(data)
    order = [leaving.first(kind) for kind in (StartNothing, StopAdopting, Disown, PushRecords)]
    assert order == sorted(order)
    assert sum(isinstance(step, Disown) for step in leaving.did) == 1
    for number, step in enumerate(leaving.did):
        if isinstance(step, Bequeath):
            updates = number > leaving.first(Disown)
            assert updates >= step.again
            assert not (updates and PushRecords() in leaving.did[number:])


@given(st.data(), st.floats(0, 5 * DRAIN_S))
def test_after_a_second_request_nothing_is_waited_for_and_no_further_estate_offered(
    data: st.DataObject, hasten_at: float
) -> None:
    leaving = Leaving(data, hasten_at)
    later = [step for step, at in zip(leaving.did, leaving.at, strict=True) if at >= hasten_at]
    assert not [step for step in later if isinstance(step, Pause)]
    assert not [step for step in later if isinstance(step, Bequeath) and not step.again]
    assert all(step.wait_s == 0 for step in later if isinstance(step, StopAdopting))
    assert isinstance(leaving.did[-1], SayGoodbye)


@given(st.data())
def test_draining_in_time_is_told_from_draining_in_vain(data: st.DataObject) -> None:
    leaving = Leaving(data)
    if leaving.unfinished_at_the_end_of_draining:
        assert leaving.at[leaving.first(StopAdopting)] >= DRAIN_S


def test_those_that_did_not_answer_and_started_anew_are_asked_once_they_are_active() -> None:
    """Or the last node that owned would be gone before them, with its pages."""
    state, estate = LeaveState(SETTINGS), Estate(b"1", copies=False, depth_matters=False)
    seen, now, did, back_at = view_of([0, 1, 2]), 0.0, list[LeaveStep](), DRAIN_S * 0.9
    while (step := state.next(Situation(seen, False, True), now)) is not None:
        did.append(step)
        match step:
            case Pause(seconds):
                now += seconds
                seen = view_of([0, 1, 2]) if now > back_at else seen
            case StopAdopting():
                state.bequeath([estate])
            case Bequeath():
                seen = seen if now > back_at else view_of([0], [1, 2])
                state.given(step, True if now > back_at else None)
            case PushRecords():
                state.pushed(left_over=False)
    assert [step.heir for step in did if isinstance(step, Bequeath)] == [node(1), node(2), node(1)]
    assert not any(isinstance(step, KeepPages | Notice) for step in did)
