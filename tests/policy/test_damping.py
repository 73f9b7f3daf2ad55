"""From one plan to the next no share jumps, unless its node did."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.policy.bp_pso.damping import STEP, damped, is_other
from dhtcrawl.policy.contract import node

SHARES = st.dictionaries(st.integers(0, 9).map(node), st.floats(1e-3, 1e3), min_size=1)


@given(before=SHARES, wanted=SHARES, free=st.sets(st.integers(0, 9).map(node)))
def test_the_bound_of_each_share_holds_whatever_is_wanted(
    before: dict[bytes, float], wanted: dict[bytes, float], free: set[bytes]
) -> None:
    found, total = damped(before, wanted, free), sum(wanted.values())
    assert found.keys() == wanted.keys()
    assert sum(found.values()) == pytest.approx(1)
    bound = [each for each in wanted if each in before and each not in free]
    for each in wanted.keys() - set(bound):
        assert found[each] == pytest.approx(wanted[each] / total), "who is free has what is wanted"
    rest, was = sum(found[each] for each in bound), sum(before[each] for each in bound)
    for each in bound:
        ratio = (found[each] / rest) / (before[each] / was)
        assert 1 - STEP - 1e-6 <= ratio <= 1 + STEP + 1e-6


@settings(max_examples=30)
@given(before=SHARES, wanted=SHARES)
def test_what_is_wanted_is_reached_in_some_steps(before: dict[bytes, float], wanted: dict[bytes, float]) -> None:
    total = sum(wanted.values())
    shares = {each: before[each] for each in before if each in wanted} or wanted
    for _ in range(200):
        shares = damped(shares, wanted, ())
    assert shares == pytest.approx({each: share / total for each, share in wanted.items()}, rel=1e-3)


def test_a_share_that_is_near_what_is_wanted_has_it_at_once() -> None:
    before = {node(0): 1.0, node(1): 1.0, node(2): 2.0}
    assert damped(before, {node(0): 1.1, node(1): 0.9, node(2): 2.0}, ()) == pytest.approx(
        {node(0): 0.275, node(1): 0.225, node(2): 0.5}
    )


@pytest.mark.parametrize(
    ("vector", "earlier", "other"),
    [
        ({"cores": 2.0, "mhz": 2000.0}, {"cores": 2.0, "mhz": 2400.0}, False),
        ({"cores": 2.0, "mhz": 2000.0}, {"cores": 1.0, "mhz": 2000.0}, True),
        ({"cores": 1.0}, {"cores": 2.0}, True),
        ({"cores": 2.0}, {}, False),  # it was there before, and not known
        ({}, {"cores": 2.0}, False),
    ],
)
def test_a_machine_is_another_when_a_trait_differs_by_more_than_a_quarter(
    vector: dict[str, float], earlier: dict[str, float], other: bool
) -> None:
    assert is_other(vector, earlier) is other
