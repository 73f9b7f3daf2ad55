"""How fast a node is, by what it did while it had something to do."""

from __future__ import annotations

import pytest

from dhtcrawl.policy.bp_pso.planner import SAMPLES_MIN
from dhtcrawl.swarm.assignment.pace import BATCH_MAX_S, BATCHES_MAX, BATCHES_S, PAGES_MIN, Pace


def run(pace: Pace, seconds: int, pages_a_s: int, *, at: int = 0, before: int = 0, busy: bool = True) -> int:
    """Look once a second; how many pages there are in the end."""
    for second in range(at, at + seconds + 1):
        pages = before + pages_a_s * (second - at)
        pace.look(pages, 1_000 * pages, busy, float(second))
    return before + pages_a_s * seconds


def test_nothing_is_known_before_the_first_batch() -> None:
    pace = Pace()
    run(pace, int(BATCHES_S[0]) - 1, 5)
    assert (pace.rate, len(pace.batches)) == (0.0, 0)


def test_time_with_nothing_to_do_is_left_out() -> None:
    pace = Pace()
    pages = run(pace, 20, 5)
    run(pace, 600, 0, at=20, before=pages, busy=False)
    run(pace, 10, 5, at=620, before=pages)
    assert pace.rate == pytest.approx(5.0)


def test_the_rate_is_that_of_the_latest_batches() -> None:
    pace = Pace()
    pages = run(pace, 1000, 1)
    assert pace.rate == pytest.approx(1.0)
    run(pace, 2 * int(sum(BATCHES_S)), 9, at=1000, before=pages)
    assert pace.rate == pytest.approx(9.0)
    assert len(pace.batches) == BATCHES_MAX


def test_a_count_that_goes_back_is_no_work() -> None:
    """After a restart, until the store was read."""
    pace = Pace()
    run(pace, 5, 0, before=100)
    run(pace, 10, 0, at=5)
    assert pace.rate == 0.0


def test_batches_are_of_different_lengths_so_that_a_net_can_learn_what_more_pages_cost() -> None:
    pace = Pace()
    run(pace, 2 * int(sum(BATCHES_S)), 3)
    assert [seconds for _, seconds in pace.batches] == [*BATCHES_S, *BATCHES_S]
    assert [pages for pages, _ in pace.batches] == [3 * seconds for seconds in (*BATCHES_S, *BATCHES_S)]


def test_what_came_at_most_is_known() -> None:
    pace = Pace()
    pages = run(pace, 100, 9)
    run(pace, 100, 1, at=100, before=pages)
    assert pace.bytes_per_s == pytest.approx(9_000)


def test_one_burst_says_nothing_of_the_line() -> None:
    pace = Pace()
    pages = run(pace, 2 * int(sum(BATCHES_S)), 2)
    pages = run(pace, int(BATCHES_S[0]), 90, at=150, before=pages)
    run(pace, 100, 2, at=155, before=pages)
    assert pace.bytes_per_s == pytest.approx(2_000, rel=0.05)


def test_a_batch_of_few_pages_goes_on_until_it_has_some_or_takes_too_long() -> None:
    slow = Pace()
    for second in range(61):
        slow.look(second // 5, 0, True, float(second))  # a page in five seconds
    assert list(slow.batches) == [(PAGES_MIN, 20.0)] * 3
    stuck = Pace()
    run(stuck, 100, 0)
    assert list(stuck.batches) == [(0, BATCH_MAX_S)] * 2


def test_five_nodes_have_enough_for_a_net_within_a_minute() -> None:
    pace = Pace()
    run(pace, 45, 2)
    assert 5 * len(pace.batches) >= SAMPLES_MIN
