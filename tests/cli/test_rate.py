"""The rate in the progress line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.cli.rate import RATE_OVER_S, Rate, Used, a_second, rough_end


def test_a_page_a_second_is_told_as_such_however_often_the_line_is_drawn() -> None:
    rate = Rate(0.0, 0)
    for quarter in range(1, 200):
        now = quarter / 4
        assert rate.after(now, int(now)) == pytest.approx(1.0, abs=1 / min(now, RATE_OVER_S))


def test_a_crawl_that_stands_still_has_the_rate_0_after_ten_seconds_and_not_before() -> None:
    rate = Rate(0.0, 0)
    rate.after(5.0, 50)
    assert rate.after(14.0, 50) > 0
    assert rate.after(15.0, 50) == 0


def test_what_was_there_before_and_what_a_node_took_along_are_no_pages_a_second() -> None:
    rate = Rate(100.0, 4_000)
    assert rate.after(102.0, 4_010) == 5
    assert rate.after(103.0, 3_000) == 0


def test_a_clock_that_stands_still_gives_no_rate() -> None:
    assert Rate(1.0, 0).after(1.0, 7) == 0


@given(st.lists(st.tuples(st.floats(0.01, 30), st.integers(0, 1_000)), min_size=1))
def test_the_rate_is_that_since_the_last_count_that_is_ten_seconds_old_or_the_last_but_one(
    steps: list[tuple[float, int]],
) -> None:
    now, count, rate, seen = 0.0, 0, Rate(0.0, 0), [(0.0, 0)]
    for step_s, more in steps:
        now, count = now + step_s, count + more
        told = rate.after(now, count)
        old = [at for at in seen if at[0] <= now - RATE_OVER_S]
        before_s, before = old[-1] if old else seen[0]
        assert told == pytest.approx((count - before) / (now - before_s))
        seen.append((now, count))


@pytest.mark.parametrize(
    ("rate", "text"), [(0.0, "0/s"), (0.52, "0.5/s"), (9.94, "9.9/s"), (9.96, "10/s"), (123.4, "123/s")]
)
def test_slow_rates_have_a_decimal(rate: float, text: str) -> None:
    assert a_second(rate) == text


@pytest.mark.parametrize(
    ("queued", "rate", "said"),
    [(0, 2.0, ""), (10, 0.0, ""), (30, 0.5, "roughly 1 min left"), (7, 2.0, "roughly 4 s left")],
)
def test_the_end_is_told_roughly_where_anything_can_be_said(queued: int, rate: float, said: str) -> None:
    assert rough_end(queued, rate, Used(0, 0, 0), Used(0, 0, 0)) == said


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Used(200, 0, 0), "roughly 50 s left"),
        (Used(0, 30, 0), "roughly 20 s left"),
        (Used(0, 0, 3_000), "roughly 1 min 40 s left"),
        (Used(200, 30, 3_000), "roughly 20 s left"),
        (Used(100_000, 100_000, 1e9), "roughly 8 min 20 s left"),  # of what is queued there is less
        (Used(100, 0, 0), ""),
        (Used(0, 5, 0), ""),
    ],
)
def test_the_end_is_that_of_the_limit_which_is_reached_first(limits: Used, said: str) -> None:
    so_far = Used(pages=100, seconds=10, size_bytes=1_000)
    assert rough_end(1_000, 2.0, so_far, limits) == said
