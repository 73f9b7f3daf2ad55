"""Swarms on the virtual clock: whatever befalls them, no promise is broken; and the judge is judged too."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dhtcrawl.crawl.refill import Refill
from dhtcrawl.errors import BootstrapUnreachable
from dhtcrawl.loop_state import faults
from dhtcrawl.node.crawl_ports import SwarmReplication
from dhtcrawl.node.swarm_node import SwarmNode
from dhtcrawl.sim.committer import CrashingCommitter
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm_run import simulate_swarm
from dhtcrawl.storage.store import outcomes, replicas
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.lifecycle import in_flight
from dhtcrawl.swarm.lifecycle.waves import Judgement, Waves, WaveVerdict
from dhtcrawl.swarm.records.replicate import Replicator
from sim import breakages

CALM = Scenario(nodes=5, hosts=5, pages=60, delay_s=0, concurrency=4, crash_every_s=1.5, holder_grace_s=20)


def scenario(**changes: Any) -> Scenario:
    return dataclasses.replace(CALM, **changes)


# Whatever befalls them

FAULTS = {
    "nothing": scenario(),
    "a newcomer": scenario(joins=1),
    "many newcomers": scenario(joins=5, crash_every_s=0.3),
    "crashes": scenario(crashes=2),
    "a crash, and back before anybody knew": scenario(crashes=1, away_s=1),
    "gone for good": scenario(crashes=2, away_s=-1, crash_every_s=3),
    "a disk": scenario(disk_losses=1),
    "all disks that had some records": scenario(disk_losses=1, disk_losses_at_once=4, away_s=-1, faults_from_s=4),
    "everybody": scenario(crashes=1, crash_at_once=5),
    "a farewell": scenario(leaves=1),
    "loss": scenario(loss=0.01, crashes=1),
    "a slow disk": scenario(commit_s=0.3, crashes=2),
    "host keys": scenario(key="host", crashes=2),
    "a depth limit": scenario(depth=2, crashes=1, joins=1),
    "some that nobody reaches": scenario(nodes=6, hidden=2, policy="balanced", crashes=2, leaves=1, partitions=1),
    "queries in charsets": scenario(searches=True, depth=3, crashes=2, leaves=1),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_swarm_keeps_its_promises_whatever_befalls_it(what: str) -> None:
    result = simulate_swarm(FAULTS[what], 1)
    assert result.violations == [], result.tail
    assert result.lost == 0


# Seeds that found something


def test_the_first_node_of_a_swarm_does_not_begin_another_one_after_a_crash() -> None:
    """It remembered nobody in its first ten seconds, and fetched by itself what others had."""
    assert simulate_swarm(scenario(crashes=1, crash_at_once=5, away_s=3), 3).violations == []


def test_of_several_newcomers_each_is_told_what_it_will_own_if_it_is_the_first() -> None:
    """Copies went to those who would own once all have joined, and one of the others joined first."""
    assert simulate_swarm(scenario(crashes=2, joins=3, crash_every_s=1), 5).violations == []


def test_a_newcomer_asks_again_when_an_owner_vanishes_while_it_joins() -> None:
    """It had asked each neighbour once, for fewer keys than it then had to keep."""
    assert simulate_swarm(scenario(commit_s=0.3, crashes=2), 1).violations == []


def test_a_node_that_reaches_nobody_at_first_is_waited_for_in_its_next_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed 654 of the random scenarios: the simulator waited for a life that was over."""
    real = SwarmNode.run
    lives: list[bytes] = []

    async def in_vain(self: SwarmNode) -> None:
        lives.append(self.id)
        if len(set(lives)) == 2 and lives.count(self.id) == 1:
            await asyncio.sleep(0.5)
            raise BootstrapUnreachable("none answers")
        await real(self)

    monkeypatch.setattr(SwarmNode, "run", in_vain)
    assert simulate_swarm(CALM, 1).violations == []
    assert [lives.count(node) for node in dict.fromkeys(lives)] == [1, 2, 1, 1, 1]


# The same every time


def test_a_larger_swarm_with_loss_and_a_crash_is_the_same_twice() -> None:
    """The small sister of forty_nodes.toml."""
    what = scenario(nodes=10, hosts=8, pages=100, loss=0.01, crashes=1, crash_every_s=3, concurrency=16)
    results = [simulate_swarm(what, 1) for _ in range(2)]
    assert [result.violations for result in results] == [[], []]
    assert results[0].crashes == 1
    assert results[0].trace_hash == results[1].trace_hash


def test_a_swarm_runs_twice_the_same_whatever_the_hash_seed(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(
        "pages = 60\ndelay_s = 0.0\nconcurrency = 4\nloss = 0.01\nholder_grace_s = 20.0\n"
        "crashes = 1\njoins = 1\ndisk_losses = 1\nleaves = 1\ncrash_every_s = 1.5\n"
    )
    command = [
        sys.executable,
        "-m",
        "dhtcrawl",
        "sim",
        "--nodes",
        "5",
        "--seed",
        "7",
        "--json",
        "--scenario",
        str(file),
    ]
    hashes = set()
    for hash_seed in ("0", "12345"):
        done = subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=False
        )
        hashes.add(json.loads(done.stdout)["trace_hash"])
    assert len(hashes) == 1


def test_another_seed_is_another_swarm() -> None:
    small = scenario(nodes=2, hosts=2, pages=10)
    assert simulate_swarm(small, 1).trace_hash != simulate_swarm(small, 2).trace_hash


def test_messages_of_both_planes_are_counted() -> None:
    assert simulate_swarm(scenario(nodes=2, hosts=2, pages=10), 1).rpcs_per_page > 1


# What the judge is for: each of these breaks a promise, and must be caught.


def _told(what: Scenario, *seeds: int) -> set[str]:
    """The promises that are said to be broken."""
    return {problem.split(":")[0] for seed in seeds for problem in simulate_swarm(what, seed).violations}


def test_an_ack_before_the_backups_have_it_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Replicator.__init__

    def hasty(self: Replicator, *args: Any, acks: int, **kwargs: Any) -> None:
        real(self, *args, acks=0, **kwargs)

    monkeypatch.setattr(Replicator, "__init__", hasty)
    assert "I1" in _told(CALM, 1)


def test_a_newcomer_that_takes_what_others_have_in_flight_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "hold_for", lambda runs, node, rows: None)
    assert any("I8" in _told(scenario(joins=3, crash_every_s=0.5), seed) for seed in (2, 8, 10, 11, 12))


def test_a_newcomer_that_owns_before_it_knows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    breakages.only_greets(monkeypatch)
    # Of four nodes all keep everything, so nobody has to hand over what a newcomer did not ask for.
    assert "I4" in _told(scenario(nodes=3, joins=1, pages=120, crash_every_s=5), 2)


def test_tombstones_that_stay_at_home_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SwarmReplication.keep

    def only_open(
        self: SwarmReplication, copies: Sequence[TaskReplica], then: Callable[[], None], *, over: bool = False
    ) -> None:
        if over:
            then()
        else:
            real(self, copies, then)

    monkeypatch.setattr(SwarmReplication, "keep", only_open)
    assert "I4" in _told(CALM, 1)


def test_an_end_after_one_wave_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Waves.judge

    def hasty(self: Waves, *args: Any, **kwargs: Any) -> Judgement:
        return dataclasses.replace(real(self, *args, **kwargs), verdict=WaveVerdict.COMPLETE)

    monkeypatch.setattr(Waves, "judge", hasty)
    assert "I10" in _told(CALM, 1)


def test_a_crawl_that_is_refused_everywhere_is_to_end_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = scenario(nodes=3, hosts=3, pages=9, refuses=True)
    assert _told(refused, 1, 2) == set()
    monkeypatch.setattr(outcomes, "is_content", lambda status: True)
    assert "I10" in _told(refused, 1)


def test_an_owner_by_its_own_word_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    breakages.takes_every_link(monkeypatch)
    assert any("I7" in _told(scenario(joins=3, crash_every_s=0.5, open_pages=4), seed) for seed in (14, 20, 21, 23))


def test_a_record_dropped_before_it_is_acked_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    breakages.drops_what_it_gave_nobody(monkeypatch)
    assert _told(scenario(nodes=6, leaves=1), 1) & {"I4", "I5"}


def test_a_copy_that_overwrites_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "merge", lambda ours, came: came)
    assert "I2" in _told(scenario(crashes=2, away_s=2, open_pages=4), 3)


def test_a_body_that_nobody_has_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    breakages.misses_no_body(monkeypatch)
    assert "I11" in _told(scenario(disk_losses=1), 2)


def test_a_node_that_goes_on_without_its_disk_is_caught_and_the_simulation_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CrashingCommitter, "fail", lambda self: None)
    assert "I13" in _told(scenario(disk_errors=1), 1)


def test_a_node_that_fetches_before_it_has_joined_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    breakages.fetches_before_it_tells(monkeypatch)
    assert "I12" in _told(scenario(joins=1), 1)


def test_a_swarm_that_waits_for_ever_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SwarmReplication, "send", lambda self, links: [])
    assert "I13" in _told(CALM, 1)


def test_a_transaction_that_reads_what_the_loop_has_changed_since_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks the crawl's ownership as it is then, in place of the snapshot that it was given."""
    monkeypatch.setattr(SwarmOwnership, "snapshot", lambda self: self)
    found = simulate_swarm(CALM, 1).violations
    assert any("SwarmOwnership" in problem and "in a transaction" in problem for problem in found)
    assert faults, "noted, whoever takes the error for another"
    faults.clear()


def test_a_node_that_fails_is_told_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("out of cheese")

    monkeypatch.setattr(Refill, "wanted", fails)
    (problem,) = simulate_swarm(CALM, 1).violations
    assert "out of cheese" in problem


def test_nodes_that_are_more_than_a_second_away_from_each_other_crawl_to_the_end() -> None:
    assert simulate_swarm(Scenario(nodes=3, slow_nodes=3), 1).violations == []
