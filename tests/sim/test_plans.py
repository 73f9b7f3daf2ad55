"""Plans in whole swarms: all nodes come to have the same one, it says what they are like, and no death ends it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from dhtcrawl.policy.bp_pso.planner import SAMPLES_MIN
from dhtcrawl.sim.run import simulate
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.swarm.assignment.assigner_state import AssignerState

NODES = 5
Adopted = dict[bytes, list[tuple[int, Mapping[str, Any]]]]


@pytest.fixture
def adopted(monkeypatch: pytest.MonkeyPatch) -> Adopted:
    """The plans that each node was given, in order."""
    found: Adopted = {}
    adopt = AssignerState.adopt

    def note(self: AssignerState, epoch: int, table: Mapping[str, Any]) -> None:
        found.setdefault(self.policy.settings.own, []).append((epoch, table))
        adopt(self, epoch, table)

    monkeypatch.setattr(AssignerState, "adopt", note)
    return found


def slow_web(policy: str, **fields: Any) -> Scenario:
    """A crawl that takes about a minute."""
    return Scenario(nodes=NODES, hosts=6, pages=150, delay_s=0.0, page_s=8.0, concurrency=4, policy=policy, **fields)


@pytest.mark.parametrize(
    ("policy", "names"), [("balanced", {"weights"}), ("bp-pso", {"shares"}), ("gnp", {"nodes", "sites"})]
)
def test_all_nodes_have_the_same_plan_and_it_knows_them_all(policy: str, names: set[str], adopted: Adopted) -> None:
    result = simulate(slow_web(policy), 1)
    assert result.violations == [], result.tail
    assert (result.lost, result.refetches) == (0, 0)
    assert len(adopted) == NODES
    by_epoch = dict(plan for plans in adopted.values() for plan in plans)
    for plans in adopted.values():
        epochs = [epoch for epoch, _ in plans]
        assert epochs == sorted(set(epochs)), "each once, and never an older one"
        assert all(table == by_epoch[epoch] for epoch, table in plans)
    latest = by_epoch[max(by_epoch)]
    assert names <= latest.keys()
    for name in names - {"sites"}:
        assert latest[name].keys() == adopted.keys()
    assert latest.get("sites", {}).keys() >= ({"site-0.test"} if "sites" in names else set())


def test_uneven_nodes_train_a_net_which_makes_the_plans(adopted: Adopted) -> None:
    scenario = Scenario(
        nodes=NODES, hosts=10, pages=500, delay_s=0.0, concurrency=8, broken=0.0, flaky=0.0, uneven=True,
        policy="bp-pso", policy_options="mode=net",
    )  # fmt: skip
    result = simulate(scenario, 1)
    assert result.violations == [], result.tail
    assert (result.lost, result.refetches) == (0, 0)
    plans = [table for _, table in sorted(adopted[min(adopted)], key=lambda plan: plan[0])]
    made = [table["made"] for table in plans]
    assert {each["model"] for each in made} == {"rates", "net"}, "rates until there is enough to learn from"
    by_net = next(each for each in made if each["model"] == "net")
    assert by_net["samples"] >= SAMPLES_MIN
    assert by_net["errors"].keys() == {"rates", "net"}
    clocks = {vector["mhz"] for vector in plans[-1]["machines"].values()}
    assert len(clocks) == NODES, "machines differ, and say so"
    for earlier, later in pairwise(plans):
        whole = [sum(table["shares"].values()) for table in (earlier, later)]
        for node in earlier["machines"].keys() & later["machines"].keys():
            ratio = later["shares"][node] / whole[1] / (earlier["shares"][node] / whole[0])
            assert 0.75 - 1e-6 <= ratio <= 1.25 + 1e-6


def test_the_next_coordinator_counts_on(adopted: Adopted) -> None:
    """Whichever it is: two of five crash, one after the other, and come back."""
    result = simulate(slow_web("balanced", crashes=4, crash_every_s=12.0, away_s=15.0), 4)
    assert result.violations == [], result.tail
    assert result.lost == 0
    assert result.crashes >= 2
    first = max(plans[0][0] for plans in adopted.values())
    assert max(epoch for plans in adopted.values() for epoch, _ in plans) > first


def test_a_policy_without_what_its_planner_needs_goes_on_without_a_plan(
    monkeypatch: pytest.MonkeyPatch, adopted: Adopted, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    result = simulate(slow_web("bp-pso"), 1)
    assert result.violations == [], result.tail
    assert not adopted
    assert any("pip install numpy scipy" in line for line in caplog.messages)
