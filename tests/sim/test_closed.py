"""A closed swarm in the simulator: the datagrams are sealed, and no promise is broken by what befalls it."""

from __future__ import annotations

from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm_run import simulate_swarm


def test_sealed_datagrams_keep_every_promise() -> None:
    scenario = Scenario(
        nodes=4, hosts=4, pages=60, delay_s=0.2, crashes=2, crash_every_s=8.0, away_s=4.0, joins=1, leaves=1,
        partitions=1, partition_s=8.0, loss=0.02, duplication=0.02, late_s=0.2, closed=True,
    )  # fmt: skip
    result = simulate_swarm(scenario, 25)
    assert result.violations == []
    assert result.pages > 0
