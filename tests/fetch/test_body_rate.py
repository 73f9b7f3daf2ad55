"""Which bodies are too slow: those that drip, and no honest one on a slow line or from a slow server."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.fetch.body_rate import BodyRate

KIB = 1024
SLOW_S = 30.0


def cut_at(chunks: Iterable[tuple[float, int]]) -> float:
    """When a body is cut whose chunks come after these pauses, with so many bytes; infinity: it is not."""
    rate, now = BodyRate(KIB, SLOW_S), 100.0
    for pause_s, size in chunks:
        now += pause_s
        if rate.ends_at < now:
            return rate.ends_at - 100.0
        rate.came(size, now)
    return math.inf


def test_a_body_that_drips_is_cut_half_a_minute_after_its_first_byte() -> None:
    assert cut_at([(0.0, 1)] + [(5.0, 1)] * 100) == pytest.approx(SLOW_S, abs=0.1)
    # A byte every 5 ms is still only a fifth of the least rate.
    assert cut_at([(0.005, 1)] * 100_000) == pytest.approx(SLOW_S * 1.25, rel=0.02)


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([(0.2, 1_400)] * 20_000, id="an hour on a modem's line, at 56 kbit/s"),
        pytest.param([(20.0, 300), (0.0, 10 * KIB)], id="a server that computes before its first byte"),
        pytest.param([(0.0, 300), (25.0, 40 * KIB), (25.0, 40 * KIB)], id="one that computes within its page"),
        pytest.param([(6.4, 64 * KIB)] * 500, id="a large file at 10 KB/s, in blocks"),
        pytest.param([(1.0, KIB)] * 10_000, id="just the least rate"),
        pytest.param([(0.0, 10 << 20), (29.0, 30 * KIB), (29.0, 1)], id="bursts"),
    ],
)
def test_who_is_slow_and_honest_is_not_cut(chunks: list[tuple[float, int]]) -> None:
    assert cut_at(chunks) == math.inf


def test_a_burst_buys_no_more_than_half_a_minute_of_dripping() -> None:
    assert cut_at([(0.0, 100 << 20)] + [(5.0, 1)] * 100) == pytest.approx(SLOW_S, abs=0.1)


def test_without_a_least_rate_nothing_is_cut_and_a_disk_of_ours_is_no_fault_of_the_server() -> None:
    free, ours = BodyRate(0, SLOW_S), BodyRate(KIB, SLOW_S)
    for rate in (free, ours):
        rate.came(1, 0.0)
    ours.excuse(60.0)
    assert (free.ends_at, ours.ends_at) == (math.inf, SLOW_S + 60.0)


@given(st.lists(st.tuples(st.floats(0, SLOW_S - 1), st.integers(1, 1 << 20)), max_size=50))
def test_no_body_outstays_its_bytes_and_none_is_cut_that_keeps_the_rate(sent: list[tuple[float, int]]) -> None:
    bytes_sent = sum(size for _, size in sent)
    ends_at = cut_at([*sent, (math.inf, 0)])
    first_s = sent[0][0] if sent else math.inf
    assert ends_at <= first_s + SLOW_S + bytes_sent / KIB + 0.001 or not sent
    # Each chunk makes up for the pause before it, and the first for nothing.
    fast = [(pause_s, max(size, math.ceil(pause_s * KIB) + 1)) for pause_s, size in sent]
    assert cut_at(fast) == math.inf
