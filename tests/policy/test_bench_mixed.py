"""What the policies are compared with on machines that are not alike, and the benchmark's command."""

from __future__ import annotations

import json
from pathlib import Path

import bench_policies
import pytest
from policy_bench import mixed
from policy_bench.mixed import NEVER_S, UNEVEN, UNEVEN_FAR, Job, Oracle, Run, bound_s, costs_s, crawl, makespans, rows
from policy_bench.report import Experiment, Options, Row, markdown_table, text_table

from dhtcrawl.policy.seam import Candidate, PolicyTask, Settings
from dhtcrawl.sim.machines import (
    CPU_S,
    CPU_TIMES,
    LINE_BYTES_PER_S,
    LINE_TIMES,
    TRIPS,
    SimMachine,
    Unevenness,
    address_of,
    machine,
    way_s,
)
from dhtcrawl.sim.scenario import Scenario

FAST, SLOW = SimMachine(1.0, 1e9), SimMachine(3.0, 1e9)
BUSY = Scenario(page_s=0.0)


def test_machines_that_are_busy_as_long_as_each_other_end_first() -> None:
    assert bound_s(BUSY, [FAST, SLOW], {"a.test": [100] * 400}) == pytest.approx(300)


def test_a_host_that_one_cannot_reach_is_the_others_and_that_one_does_more_of_the_rest() -> None:
    blocked = SimMachine(1.0, 1e9, {"a.test": None})
    pages = {"a.test": [100] * 100, "b.test": [100] * 100}
    assert bound_s(BUSY, [blocked, SimMachine(1.0, 1e9)], pages) == pytest.approx(100)
    assert costs_s(BUSY, blocked, "a.test", [100]) == NEVER_S


def test_a_narrow_line_counts_as_a_slow_processor_does() -> None:
    narrow = SimMachine(1.0, 25.0)  # four seconds for 100 bytes
    assert bound_s(BUSY, [FAST, narrow], {"a.test": [100] * 100}) == pytest.approx(80)
    assert costs_s(BUSY, narrow, "a.test", [100]) == pytest.approx(4.0)


def test_a_far_host_counts_as_far_as_few_requests_are_under_way() -> None:
    far = SimMachine(1.0, 1e9, away_s={"a.test": 6.0})
    for concurrency, cost_s in ((2, 3.0), (12, 1.0)):
        some = Scenario(page_s=0.0, concurrency=concurrency)
        assert costs_s(some, far, "a.test", [100]) == pytest.approx(cost_s)
        assert bound_s(some, [far], {"a.test": [100] * 100}) == pytest.approx(100 * cost_s)


def test_the_oracle_gives_a_task_to_the_node_where_it_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow, blocked = b"fast", b"slow", b"blocked"
    monkeypatch.setattr(Oracle, "costs_s", {"a.test": {fast: 1.0, slow: 2.5, blocked: NEVER_S}})
    oracle = Oracle(Settings(own=b""))
    candidates = [Candidate(node) for node in (blocked, slow, fast)]
    tasks = [PolicyTask(bytes([number]) * 20, "a.test") for number in range(7)]
    given = [oracle.rank(task, candidates, 0.0)[0] for task in tasks]
    assert given == [fast, fast, slow, fast, fast, slow, fast]
    # What is ranked again counts once.
    assert oracle.rank(tasks[-1], candidates, 0.0)[0] == fast


def test_machines_span_their_ranges_and_every_host_is_reached() -> None:
    hosts = [f"{number}.test" for number in range(40)]
    swarm = [machine(3, number, 12, hosts) for number in range(12)]
    cpus, lines = sorted(m.cpu_s for m in swarm), sorted(m.bytes_per_s for m in swarm)
    assert (cpus[0], cpus[-1]) == pytest.approx((CPU_S, CPU_S * CPU_TIMES))
    assert (lines[0], lines[-1]) == pytest.approx((LINE_BYTES_PER_S / LINE_TIMES, LINE_BYTES_PER_S))
    blocked = sum(len(m.blocked) for m in swarm)
    assert 0.1 < blocked / (12 * 40) < 0.3
    assert all(any(host not in m.blocked for m in swarm) for host in hosts)
    assert machine(3, 5, 12, hosts) == machine(3, 5, 12, hosts)


def test_machines_that_are_far_from_a_host_take_longer_to_ask_it() -> None:
    hosts = [f"{number}.test" for number in range(40)]
    own = machine(3, 5, 12, hosts, Unevenness(cpu_times=8.0, spread_s=0.2, silent=True))
    assert own.silent
    assert own.away_s["7.test"] == pytest.approx(2 * TRIPS * way_s(3, address_of(5), "7.test", 0.2))
    assert 0.0 < min(own.away_s.values()) < max(own.away_s.values()) < 2 * TRIPS * 0.2 * 2**0.5
    assert way_s(3, "7.test", address_of(5), 0.2) == way_s(3, address_of(5), "7.test", 0.2)
    assert not machine(3, 5, 12, hosts).away_s


def test_one_page_after_another_uses_line_and_processor() -> None:
    own = SimMachine(2.0, 100.0)
    assert [own.has_at(0.0, 100), own.has_at(0.0, 100), own.has_at(0.5, 100)] == [3.0, 5.0, 7.0]


@pytest.mark.parametrize("world", [UNEVEN.name, UNEVEN_FAR.name])
def test_a_crawl_brings_every_page_and_the_oracle_is_no_slower_than_chance(world: str) -> None:
    known, chance = crawl(Job(world, "oracle", 1, True)), crawl(Job(world, "random", 1, True))
    assert (known.missing, chance.missing, known.refetches, chance.refetches) == (0, 0, 0, 0)
    assert known.bound_s < known.seconds < chance.seconds


def run_of(job: Job) -> Run:
    seconds = {"xor": 20.0, "random": 15.0}.get(job.policy, 10.0)
    return Run(job.policy, job.seed, seconds, 50, 3 if job.policy == "xor" else 0, 0, 8.0)


def test_a_small_run_has_a_row_for_each_policy_and_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixed, "crawl", run_of)
    found = makespans(UNEVEN.name, Options(quick=True))
    assert [row.what.rpartition(": ")[2] for row in found[:-1]] == list(mixed.POLICIES)
    assert all(row.met is None for row in found)
    assert "3 of 53 pages not brought" in found[mixed.POLICIES.index("xor")].measured
    found = makespans(UNEVEN.name, Options(seeds=1))
    assert found[-1].met is True
    assert [row.met for row in found[:4]] == [True, True, False, True]


def test_each_row_stands_beside_chance_the_least_loaded_and_the_oracle() -> None:
    runs = [run_of(Job(UNEVEN_FAR.name, policy, seed, False)) for policy in mixed.POLICIES for seed in (1, 2)]
    found = {row.what.rpartition(": ")[2]: row for row in rows(UNEVEN_FAR, runs, Options())}
    assert "0.67 of random, 1.00 of least-loaded, 1.00 of oracle" in found["bp-pso"].measured
    assert (found["bp-pso"].random, found["bp-pso"].least_loaded) == (15.0, 10.0)
    shown = markdown_table([found["bp-pso"]])
    assert "| random | least loaded | at work |" in shown
    assert "| 15 | 10 | bp-pso |" in shown
    assert "random 15 · least loaded 10 · at work: bp-pso" in text_table([found["bp-pso"]])
    assert found["a random choice over the oracle"].value == pytest.approx(1.5)
    assert found["a random choice over the oracle"].met is True


def test_the_command_runs_what_is_asked_for_and_fails_when_a_target_is_not_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = Row("P1", "good", "8", "≤ 9", "7", True, 3, value=7.0, unit="")
    bad = Row("P2", "bad", "", "≥ 1", "0", False, 0, "it | is", value=0.0, unit="")

    def run(name: str, row: Row) -> Experiment:
        return Experiment(name, row.paper, name, lambda options: [row])

    monkeypatch.setattr(bench_policies, "EXPERIMENTS", (run("one", good), run("two", bad)))
    assert bench_policies.main(["--experiment", "one", "--json", str(tmp_path / "rows.json")]) == 0
    assert [row["name"] for row in json.loads((tmp_path / "rows.json").read_text())["rows"]] == ["good"]
    assert bench_policies.main(["--markdown", str(tmp_path / "rows.md")]) == 1
    assert (tmp_path / "rows.md").read_text() == markdown_table([good, bad])
    assert "it \\| is" in markdown_table([good, bad])
    shown = capsys.readouterr().out
    assert text_table([good, bad]) in shown
    assert "paper 8 · target ≤ 9 · met" in shown


def test_what_has_been_measured_is_written_when_the_rest_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Row("P1", "done", "", "", "1", None, 0, value=1.0, unit="")

    def interrupted(options: Options) -> list[Row]:
        raise KeyboardInterrupt

    done = Experiment("one", "P1", "one", lambda options: [row])
    monkeypatch.setattr(bench_policies, "EXPERIMENTS", (done, Experiment("two", "P1", "two", interrupted)))
    rows = tmp_path / "rows.json"
    with pytest.raises(KeyboardInterrupt):
        bench_policies.main(["--json", str(rows), "--markdown", str(tmp_path / "rows.md")])
    assert [each["name"] for each in json.loads(rows.read_text())["rows"]] == ["done"]
    assert (tmp_path / "rows.md").read_text() == markdown_table([row])
