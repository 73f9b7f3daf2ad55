"""Loans end in one way each, and never at both ends at once."""

from __future__ import annotations

from harness.memory import entries
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.swarm.assignment.assigned import BROUGHT_MAX, FENCE_S, REPORT_EVERY_S, SILENT_S, Assigned, AssignedHere

A, B = b"a" * 20, b"b" * 20
K1, K2, K3 = (bytes([n]) * 20 for n in (1, 2, 3))
NOW = 100.0


def there(_: bytes) -> int:
    return 1


def test_an_owner_counts_what_each_node_has_of_each_host() -> None:
    lent = Assigned()
    lent.lend(A, 1, "x", [K1, K2], NOW, 60.0)
    lent.lend(A, 1, "y", [K3], NOW, 60.0)
    assert (lent.count(A), lent.count(A, "x"), lent.count(B), len(lent)) == (3, 2, 0, 3)
    assert lent.let_go([K1, b"?"]).keys() == {K1}
    assert (lent.count(A), lent.count(A, "x"), K1 in lent) == (2, 1, False)


def test_only_who_has_a_task_gives_it_back() -> None:
    lent = Assigned()
    lent.lend(A, 1, "x", [K1], NOW, 60.0)
    assert lent.let_go_from(B, [K1]) == {}
    assert lent.let_go_from(A, [K1]).keys() == {K1}


def test_what_a_node_had_that_is_gone_or_was_started_again_comes_back() -> None:
    lent = Assigned()
    lent.lend(A, 1, "x", [K1], NOW, 60.0)
    lent.lend(B, 7, "x", [K2], NOW, 60.0)
    assert lent.given_up({A: 1, B: 7}.get, NOW) == {}
    assert lent.given_up({A: 1, B: 8}.get, NOW).keys() == {K2}
    assert lent.given_up(lambda _: None, NOW).keys() == {K1}
    assert not len(lent)


def test_a_node_that_was_gone_and_is_there_as_it_was_is_told_once() -> None:
    """It was cut off, and has what was taken back from it still. One that was started again has nothing."""
    lent = Assigned()
    lent.lend(A, 1, "x", [K1, K2], NOW, 60.0)
    lent.lend(B, 7, "x", [K3], NOW, 60.0)
    lent.given_up(lambda _: None, NOW)
    assert lent.back(lambda _: None) == []
    assert lent.back({A: 1, B: 8}.get) == [A]
    assert lent.back({A: 1, B: 8}.get) == []


def test_a_silent_worker_loses_what_it_has_and_one_that_reports_keeps_it() -> None:
    lent = Assigned()
    lent.lend(A, 1, "x", [K1], NOW, 60.0)
    lent.lend(B, 1, "x", [K2], NOW, 60.0)
    lent.heard_from(B, NOW + 1)
    assert lent.given_up(there, NOW + SILENT_S).keys() == {K1}
    assert K2 in lent


def test_a_further_loan_does_not_make_a_silent_worker_heard() -> None:
    lent = Assigned()
    lent.lend(A, 1, "x", [K1], NOW, 60.0)
    lent.lend(A, 1, "x", [K2], NOW + SILENT_S - 1, 60.0)
    assert lent.given_up(there, NOW + SILENT_S).keys() == {K1, K2}


def test_a_budget_that_is_used_up_is_told_by_worker_but_not_while_the_host_keeps_all_waiting() -> None:
    lent = Assigned()
    lent.lend(A, 1, "x", [K1], NOW, 20.0)
    lent.lend(B, 1, "y", [K2], NOW, 20.0)
    lent.lend(B, 1, "z", [K3], NOW, 90.0)
    assert lent.overdue(lambda host: 0.0, NOW + 900) == {}, "their workers have not been told"
    lent.begin([K1, K2, K3], NOW)
    assert lent.overdue(lambda host: 0.0, NOW + 19) == {}
    assert lent.overdue(lambda host: 50.0 if host == "y" else 0.0, NOW + 20) == {A: [K1]}
    lent.renew([K1, b"?"], NOW + 20)
    assert lent.overdue(lambda host: 0.0, NOW + 20) == {B: [K2]}


def test_a_node_is_idle_while_it_brings_no_page_of_a_host_whatever_it_brings_of_others() -> None:
    lent = Assigned()
    lent.lend(A, 1, "x", [K1], NOW, 600.0, idle_s=60.0)
    lent.lend(A, 1, "y", [K2], NOW, 600.0, idle_s=60.0)
    lent.lend(B, 1, "x", [K3], NOW, 600.0)
    lent.begin([K1, K2, K3], NOW)
    lent.brought(A, "x", NOW + 30)
    assert lent.overdue(lambda host: 0.0, NOW + 60) == {A: [K2]}
    assert [lent.idle_s(key, NOW + 60) for key in (K1, K2, K3, b"?")] == [30.0, 60.0, 60.0, 0.0]
    assert lent.overdue(lambda host: 100.0, NOW + 90) == {}, "a host that keeps all waiting is no node's fault"
    assert lent.overdue(lambda host: 0.0, NOW + 90) == {A: [K1, K2]}


def test_a_page_from_before_a_task_was_given_does_not_make_its_node_idle_sooner() -> None:
    lent = Assigned()
    lent.lend(A, 1, "x", [K1], NOW, 600.0, idle_s=60.0)
    lent.brought(A, "x", NOW + 1)
    lent.lend(A, 1, "x", [K2], NOW + 50, 600.0, idle_s=60.0)
    lent.let_go([K1])
    assert lent.idle_s(K2, NOW + 100) == 50.0
    lent.let_go([K2])
    lent.brought(A, "x", NOW + 120)
    assert entries(lent) == entries(Assigned()), "of pairs that have nothing, nothing is kept"


def test_a_worker_speaks_for_what_it_has_been_told_of_as_long_as_it_is_there() -> None:
    lent = Assigned()
    lent.lend(A, 1, "x", [K1, K2], NOW, 20.0)
    assert lent.begun(there) == 0
    lent.begin([K1], NOW)
    assert lent.begun(there) == 1
    assert lent.begun(lambda _: 2) == lent.begun(lambda _: None) == 0


def test_a_task_that_is_lent_twice_by_the_same_owner_is_lent_once() -> None:
    borrowed = AssignedHere()
    borrowed.borrow(A, 1, [K1, K1], NOW)
    borrowed.borrow(A, 1, [K1], NOW, [K1])
    assert (len(borrowed), borrowed.of(A), borrowed.is_patient(K1)) == (1, [K1], True)
    assert borrowed.void(lambda _: A, there, NOW + FENCE_S) == [K1], "its fence stands"
    assert (borrowed.give_back(K1), borrowed.owners()) == (None, [])


def test_who_owns_what_is_looked_at_when_the_view_has_changed() -> None:
    borrowed = AssignedHere()
    borrowed.borrow(A, 1, [K1], NOW)
    assert borrowed.void(None, there, NOW) == []
    assert borrowed.void(lambda _: B, there, NOW) == [K1]


def test_a_worker_forgets_what_its_owner_owns_no_longer() -> None:
    borrowed = AssignedHere()
    borrowed.borrow(A, 1, [K1, K2], NOW)
    owners = {K1: A, K2: B}
    assert borrowed.void(owners.get, there, NOW) == [K2]
    assert (K1 in borrowed, K2 in borrowed, borrowed.owners()) == (True, False, [A])


def test_a_worker_that_is_not_heard_starts_nothing_more() -> None:
    borrowed = AssignedHere()
    borrowed.borrow(A, 1, [K1], NOW)
    borrowed.heard_by(A, 1, NOW + 10)
    assert borrowed.void(lambda _: A, there, NOW + FENCE_S + 9) == []
    assert borrowed.void(lambda _: A, there, NOW + FENCE_S + 10) == [K1]


def test_a_loan_of_an_earlier_life_is_none() -> None:
    borrowed = AssignedHere()
    borrowed.borrow(A, 1, [K1], NOW)
    borrowed.borrow(A, 2, [K2], NOW)
    borrowed.heard_by(A, 1, NOW + 10)
    assert borrowed.void(lambda _: A, lambda _: 2, NOW) == [K1]
    assert borrowed.of(A) == [K2]


def test_a_task_that_another_owner_lends_us_is_lent_by_that_one() -> None:
    borrowed = AssignedHere()
    borrowed.borrow(A, 1, [K1], NOW)
    borrowed.borrow(B, 1, [K1], NOW)
    assert (borrowed.owners(), len(borrowed)) == ([B], 1)
    assert borrowed.give_back(K1) == B
    assert (borrowed.give_back(K1), borrowed.owners(), len(borrowed)) == (None, [], 0)


@given(
    answers_s=st.lists(st.floats(0.0, 20.0), max_size=30),
    report_s=st.lists(st.floats(0.0, 40.0), max_size=30),
    drift=st.floats(0.9, 1.1),
)
def test_an_owner_never_takes_back_before_its_worker_has_stopped(
    answers_s: list[float], report_s: list[float], drift: float
) -> None:
    """Whatever is lost or late: each report is taken when it arrives, and its answer is heard up to 20 s later."""
    lent, borrowed = Assigned(), AssignedHere()
    lent.lend(A, 1, "x", [K1], NOW, 60.0)
    now = NOW + (answers_s[0] if answers_s else 0.0)
    borrowed.borrow(B, 1, [K1], now)
    for wait_s, answer_s in zip(report_s, answers_s, strict=False):
        now += wait_s
        lent.heard_from(A, now)
        borrowed.heard_by(B, 1, now + answer_s)
    # A worker's clock runs fast or slow by a tenth; both look once a second.
    looks = range(int(now), int(now) + 400)
    stopped_at = next(at for at in looks if borrowed.void(lambda _: B, there, now + (at - now) * drift))
    taken_at = next(at for at in looks if lent.given_up(there, at))
    assert stopped_at < taken_at


def test_a_report_comes_often_enough_to_be_missed_a_few_times() -> None:
    assert 4 * REPORT_EVERY_S < FENCE_S


def test_an_owner_awaits_a_page_that_it_had_fetched_here_as_long_as_it_owns_it_and_runs_on() -> None:
    borrowed = AssignedHere()
    borrowed.borrow(A, 1, [K1, K2], NOW)
    assert borrowed.bring(K1) == A
    assert borrowed.bring(K1) is None
    assert borrowed.bring(K3) is None, "nobody assigned it"
    assert [borrowed.was_brought(key) for key in (K1, K2, K3)] == [True, False, False]
    assert (K1 in borrowed, borrowed.of(A)) == (False, [K2])
    assert borrowed.void(None, there, NOW) == []
    assert borrowed.was_brought(K1)
    assert borrowed.void({K1: B, K2: A}.get, there, NOW) == []
    assert not borrowed.was_brought(K1), "another owns it now"
    borrowed.bring(K2)
    assert borrowed.void(None, lambda _: 2, NOW) == []
    assert not borrowed.was_brought(K2), "its owner has forgotten that it assigned it"


def test_a_page_that_is_assigned_here_anew_is_not_brought_yet() -> None:
    borrowed = AssignedHere()
    borrowed.borrow(A, 1, [K1], NOW)
    borrowed.bring(K1)
    borrowed.borrow(A, 1, [K1], NOW)
    assert not borrowed.was_brought(K1)


def test_of_the_pages_that_were_brought_the_latest_are_remembered() -> None:
    borrowed = AssignedHere()
    keys = [number.to_bytes(20, "big") for number in range(BROUGHT_MAX + 1)]
    borrowed.borrow(A, 1, keys, NOW)
    for key in keys:
        borrowed.bring(key)
    assert [borrowed.was_brought(key) for key in (keys[0], keys[1], keys[-1])] == [False, True, True]
