"""One time out of many samples."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.policy.gnp.rtt import ESTIMATORS, lower_half, median, swa

samples = st.lists(st.floats(0.001, 10.0), min_size=1, max_size=30)


def test_what_each_of_them_says() -> None:
    measured = [0.100, 0.101, 0.102, 0.101, 0.300, 0.900, 0.110]
    assert median(measured) == 0.102
    assert lower_half(measured) == 0.101
    # Bins of 5.1 ms: the first four, then 0.110, then 0.300, the lower of those with one.
    assert swa(measured) == pytest.approx((0.100 + 0.101 + 0.102 + 0.101 + 0.110 + 0.300) / 6)


@given(samples)
def test_an_estimate_lies_among_the_samples(measured: list[float]) -> None:
    for estimate in ESTIMATORS.values():
        assert min(measured) - 1e-12 <= estimate(measured) <= max(measured) + 1e-12


@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_the_samples_means_nothing(measured: list[float], rng: Random) -> None:
    mixed = rng.sample(measured, len(measured))
    for estimate in ESTIMATORS.values():
        assert estimate(mixed) == pytest.approx(estimate(measured))


def test_the_lower_half_is_what_noise_moves_least() -> None:
    rng = Random(1)
    off = dict.fromkeys(ESTIMATORS, 0.0)
    for _ in range(200):
        base = rng.uniform(0.02, 0.3)
        measured = [base * rng.uniform(1.0, 1.1) + (rng.random() < 0.4) * rng.expovariate(5.0) for _ in range(9)]
        for name, estimate in ESTIMATORS.items():
            off[name] += abs(estimate(measured) / base - 1)
    assert off["lower-half"] < off["median"]
    assert off["lower-half"] < off["swa"]
