"""A member of a simulated swarm is bad: nothing is lost but what it owned, and hosts are asked as politely as ever."""

from __future__ import annotations

import pytest

from dhtcrawl.sim.bad_member import BadMember
from dhtcrawl.sim.chance import WITH_A_BAD_MEMBER_MIN, draw_with_bad_member
from dhtcrawl.sim.scenario import Manner, Scenario, ScenarioResult
from dhtcrawl.sim.swarm_run import simulate_swarm


def run(manner: str) -> ScenarioResult:
    scenario = Scenario(nodes=5, hosts=3, pages=24, delay_s=0.05, bad_member=manner)
    return simulate_swarm(scenario, 25)


@pytest.mark.parametrize("manner", Manner)
def test_only_what_a_bad_member_owned_is_lost(manner: Manner) -> None:
    result = run(manner)
    assert (result.lost, result.violations) == (0, [])
    assert result.pages > 0


def test_what_a_bad_member_loses_is_found_where_it_was_not_to_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BadMember, "may_be_lost", lambda self, url: False)
    result = run(Manner.FORGETS)
    assert result.lost == len(result.violations) > 0
    assert result.violations[0].startswith("I3: ")


def test_each_manner_is_drawn_for_ten_nodes_or_more_and_no_disk_is_lost() -> None:
    drawn = [draw_with_bad_member(seed) for seed in range(100)]
    assert {scenario.bad_member for scenario in drawn} == set(Manner)
    assert min(scenario.nodes for scenario in drawn) == WITH_A_BAD_MEMBER_MIN
    assert not any(scenario.disk_losses for scenario in drawn)
