"""Who is absent, since when, and how many pages lie there: what keeps a crawl from its end, and for how long (I11)."""

from __future__ import annotations

from dhtcrawl.swarm.bodies.absences import SEEK_EVERY_S, Absences, Awaited

A, B, C = "a", "b", "c"
GRACE_S = 60.0


class Known(Absences):
    """The absences of a crawl of whose nodes the test says which are gone."""

    def __init__(self, *earlier: str) -> None:
        self.gone: list[str] = []
        super().__init__(lambda: self.gone, GRACE_S, earlier)

    def become(self, *gone: str, ours: bool = False, now: float = 0.0) -> bool:
        """Nodes come and go; whether other nodes are given up than before."""
        self.gone = list(gone)
        self.view_changed(ours=ours)
        return self.review(gone, now)


def test_pages_are_missing_until_it_is_known_that_there_are_none() -> None:
    absences = Known()
    assert absences.pages == 0
    absences.become(A, B)
    assert absences.pages == 1, "nobody has counted"
    absences.missing[A] = 3
    assert absences.pages == 4
    absences.missing[B] = 0
    assert absences.pages == 3
    absences.become(B)
    assert (absences.pages, absences.missing) == (0, {B: 0})


def test_where_others_keys_may_be_ours_all_is_counted_anew() -> None:
    absences = Known()
    absences.become(A)
    absences.missing[A] = 0
    absences.become(A)
    assert absences.pages == 0
    absences.become(A, ours=True)
    assert absences.pages == 1


def test_pages_that_were_not_known_of_are_counted_with_the_next_scan() -> None:
    absences = Known()
    absences.become(A)
    absences.missing[A] = 2
    absences.lie_at([A, C])
    assert (absences.missing, list(absences.more_at)) == ({}, [A, C])


def test_a_node_is_given_up_after_its_grace_and_not_if_it_was_back_meanwhile() -> None:
    absences = Known()
    assert not absences.become(A, B, now=100.0)
    assert not absences.become(B, now=130.0)
    assert not absences.become(A, B, now=140.0)
    assert not absences.review([A, B], 100.0 + GRACE_S - 0.1)
    assert absences.review([A, B], 100.0 + GRACE_S)
    assert (absences.given_up, absences.awaited()) == (frozenset([B]), [A])
    assert not absences.review([A, B], 100.0 + GRACE_S)
    assert absences.review([A, B], 140.0 + GRACE_S)
    assert absences.given_up == {A, B}
    assert absences.become(B, now=500.0)
    assert absences.given_up == {B}


def test_those_that_are_waited_for_are_told_with_the_one_first_that_is_given_up_next() -> None:
    absences = Known()
    absences.become(A, now=10.0)
    absences.become(A, B, C, now=20.0)
    absences.missing.update({A: 1, B: 2, C: 0})
    assert absences.holders(30.0) == [Awaited(A, 1, 20.0, 40.0), Awaited(B, 2, 10.0, 50.0)], "nothing of ours lies at C"
    absences.review([A, B, C], 10.0 + GRACE_S)
    assert absences.holders(75.0) == [Awaited(B, 2, 55.0, 5.0)]
    assert absences.holders(90.0) == [Awaited(B, 2, 70.0, 0.0)], "it has not been looked at since"


def test_a_node_that_is_back_is_met_once_unless_it_is_gone_again() -> None:
    absences = Known()
    absences.become(A, B)
    assert absences.back == {}
    absences.become(B)
    assert list(absences.back) == [A]
    absences.become(A, B)
    assert absences.back == {}
    absences.become()
    assert sorted(absences.back) == [A, B]


def test_who_comes_to_own_a_page_meets_all_that_were_ever_away_and_those_of_an_earlier_run_once() -> None:
    absences = Known(C)
    absences.become(A)
    absences.become()
    absences.back.clear()
    absences.become()
    assert absences.back == {}
    absences.become(ours=True)
    assert sorted(absences.back) == [A, C]
    absences.back.clear()
    absences.become(ours=True)
    assert list(absences.back) == [A]
    absences.become(A, ours=True)
    assert absences.back == {}, "it is not there"


def test_pages_are_counted_once_and_copies_of_them_sought_now_and_then_while_their_node_is_given_up() -> None:
    absences = Known()
    absences.become(A, now=0.0)
    assert absences.is_due(A, 0.0)
    absences.missing[A] = 2
    absences.looked(A, 0.0)
    assert not absences.is_due(A, GRACE_S - 1)
    absences.review([A], GRACE_S)
    assert absences.is_due(A, GRACE_S), "now copies are sought"
    absences.looked(A, GRACE_S)
    assert not absences.is_due(A, GRACE_S + SEEK_EVERY_S - 1)
    assert absences.is_due(A, GRACE_S + SEEK_EVERY_S)
    absences.become(A, B, now=GRACE_S)
    absences.review([A, B], 2 * GRACE_S)
    assert absences.is_due(A, GRACE_S + 1.0), "whoever has copies may be another now"
    absences.missing[A] = 0
    assert not absences.is_due(A, 10 * GRACE_S)
