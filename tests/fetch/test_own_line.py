"""When it is this machine's own line that is taken for down."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.fetch.own_line import ANSWERED_MIN, NEW_MIN, OwnLine

WAIT_S = 600.0


def line_of() -> OwnLine:
    line = OwnLine(WAIT_S, worked=True, alone=False)
    line.reached("h", 0.0)
    return line


def fail(line: OwnLine, hosts: int, *, answered: bool, at: float = 1.0, word: str = "h") -> None:
    for number in range(hosts):
        line.lost(f"{word}{number}", at, answered=answered)


def test_it_is_down_once_enough_hosts_in_a_row_are_not_reached() -> None:
    for answered, enough in ((True, ANSWERED_MIN), (False, NEW_MIN)):
        line = line_of()
        fail(line, enough - 1, answered=answered)
        fail(line, enough - 1, answered=answered)
        assert not line.is_down(1.0), "the same hosts once more"
        fail(line, enough, answered=answered)
        assert line.is_down(1.0)


def test_one_host_that_is_reached_shows_that_it_is_up() -> None:
    line = line_of()
    fail(line, ANSWERED_MIN, answered=True)
    assert not line.reached("h", 0.5), "before the first that failed began"
    assert line.is_down(2.0)
    assert line.reached("h", 2.0)
    assert not line.is_down(2.0)
    fail(line, ANSWERED_MIN - 1, answered=True, at=3.0)
    assert not line.is_down(3.0)


def test_what_began_before_another_host_was_reached_says_nothing() -> None:
    line = line_of()
    line.reached("h", 5.0)
    fail(line, ANSWERED_MIN, answered=True, at=4.0)
    assert not line.is_down(14.0)


def test_where_no_host_was_ever_reached_hosts_are_given_up_as_ever() -> None:
    line = OwnLine(WAIT_S, worked=False, alone=False)
    fail(line, NEW_MIN, answered=False)
    assert not line.is_down(1.0)
    assert not line.is_unproven


def test_a_crawl_that_goes_on_has_had_a_line() -> None:
    line = OwnLine(WAIT_S, worked=True, alone=True)
    assert line.is_unproven
    fail(line, ANSWERED_MIN - 1, answered=True)
    assert not line.is_down(1.0), "few hosts may be dead"
    fail(line, ANSWERED_MIN, answered=True)
    assert line.is_down(1.0)
    line.reached("h", 2.0)
    assert not line.is_unproven


def test_a_node_by_itself_waits_where_all_that_have_answered_are_gone() -> None:
    line = OwnLine(WAIT_S, worked=False, alone=True)
    line.reached("h0", 0.0)
    fail(line, 1, answered=True)
    assert line.is_down(1.0)
    line.reached("h1", 2.0)
    fail(line, 1, answered=True, at=3.0)
    assert not line.is_down(3.0), "one of two is left"
    fail(line, 2, answered=True, at=4.0)
    assert line.is_down(4.0)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.booleans())))
def test_it_is_never_taken_for_down_longer_than_is_set_nor_while_hosts_are_reached(
    steps: list[tuple[bool, int, bool]],
) -> None:
    line, now, began = line_of(), 0.0, 0.0
    for is_reached, host, answered in steps:
        now += 100.0
        if is_reached:
            line.reached("h", now)
            began = now + 100.0
            assert not line.is_down(now)
        else:
            line.lost(f"h{host}", now, answered=answered)
            assert not line.is_down(max(now, began + 100.0) + WAIT_S)
