"""Some seventy scenarios out of the thousand of `make sim`: whatever mix of faults, no promise is broken."""

from __future__ import annotations

import dataclasses
from itertools import cycle

import pytest

from dhtcrawl.policy.registry import OURS
from dhtcrawl.sim.chance import draw
from dhtcrawl.sim.run import simulate
from dhtcrawl.sim.scenario import Scenario

FAULTS = ("crashes", "disk_losses", "disk_errors", "pauses", "partitions", "one_way", "joins", "leaves", "slow_nodes")
# Those that once broke a promise, and some of the tenth that takes the least time.
ONCE_BROKEN = (230, 449, 513, 685, 751, 939, 992)
ONCE_BROKEN_UNDER = [(48, "balanced"), (212, "balanced"), (20, "dynamic"), (7, "dynamic")]
# fmt: off
QUICK = (
    4, 26, 38, 40, 52, 87, 90, 144, 154, 205, 212, 253, 256, 277, 295, 296, 326, 364, 378, 400, 431,
    436, 443, 463, 464, 488, 499, 500, 520, 537, 547, 550, 574, 583, 591, 664, 666, 674, 677, 681,
    695, 739, 744, 768, 793, 799, 806, 822, 826, 856, 921, 923, 944, 962, 970, 990,
)
# fmt: on
SEEDS = ONCE_BROKEN + QUICK
POLICIES = [name for name in OURS if name != Scenario().policy]


@pytest.mark.shared_out
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_scenario_breaks_no_promise(seed: int) -> None:
    check(draw(seed), seed)


@pytest.mark.shared_out
@pytest.mark.parametrize(("seed", "policy"), [*ONCE_BROKEN_UNDER, *zip(QUICK[::6], cycle(POLICIES))])
def test_a_random_scenario_breaks_no_promise_under_another_policy(seed: int, policy: str) -> None:
    check(dataclasses.replace(draw(seed), policy=policy), seed)


def check(scenario: Scenario, seed: int) -> None:
    """It runs to its end, and no promise is broken."""
    result = simulate(scenario, seed)
    assert result.violations == [], result.tail
    assert result.lost == 0


def test_each_kind_of_fault_is_drawn_in_about_half_of_the_scenarios() -> None:
    drawn = [dataclasses.asdict(draw(seed)) for seed in range(1000)]
    for fault in FAULTS:
        assert 400 < sum(scenario[fault] > 0 for scenario in drawn) < 600, fault
    mixes = {tuple(fault for fault in FAULTS if scenario[fault]) for scenario in drawn}
    assert len(mixes) > 300


def test_nobody_is_away_paused_or_cut_off_for_as_long_as_bodies_are_waited_for() -> None:
    for seed in range(1000):
        scenario: Scenario = draw(seed)
        assert max(scenario.away_s, 4 * scenario.pause_s, 4 * scenario.partition_s) < scenario.holder_grace_s
