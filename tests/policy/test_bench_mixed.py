"""What the policies are compared with on machines that are not alike, and the benchmark's command."""

from __future__ import annotations

import json
from pathlib import Path

import bench_policies
import pytest
from policy_bench import mixed
from policy_bench.mixed import best_shares, crawl, makespans
from policy_bench.report import Experiment, Options, Row, markdown_table, text_table

from dhtcrawl.sim.machines import CPU_S, CPU_TIMES, LINE_BYTES_PER_S, LINE_TIMES, SimMachine, machine

FAST, SLOW = SimMachine(1.0, 1e9), SimMachine(3.0, 1e9)


def test_machines_that_are_busy_as_long_as_each_other_end_first() -> None:
    shares, seconds = best_shares([FAST, SLOW], {"a.test": [100] * 400})
    assert shares["a.test"] == pytest.approx([300, 100])
    assert seconds == pytest.approx(300)


def test_a_host_that_one_cannot_reach_is_the_others_and_that_one_does_more_of_the_rest() -> None:
    blocked = SimMachine(1.0, 1e9, {"a.test": None})
    shares, seconds = best_shares([blocked, SimMachine(1.0, 1e9)], {"a.test": [100] * 100, "b.test": [100] * 100})
    assert shares["a.test"] == pytest.approx([0, 100])
    assert shares["b.test"] == pytest.approx([100, 0])
    assert seconds == pytest.approx(100)


def test_a_narrow_line_counts_as_a_slow_processor_does() -> None:
    narrow = SimMachine(1.0, 25.0)  # four seconds for 100 bytes
    shares, _ = best_shares([FAST, narrow], {"a.test": [100] * 100})
    assert shares["a.test"] == pytest.approx([80, 20])


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


def test_one_page_after_another_uses_line_and_processor() -> None:
    own = SimMachine(2.0, 100.0)
    assert [own.has_at(0.0, 100), own.has_at(0.0, 100), own.has_at(0.5, 100)] == [3.0, 5.0, 7.0]


def test_a_crawl_brings_every_page_and_the_oracle_is_no_slower_than_chance() -> None:
    known, chance = crawl(("oracle", 1, True)), crawl(("random", 1, True))
    assert (known.missing, chance.missing, known.refetches, chance.refetches) == (0, 0, 0, 0)
    assert known.bound_s < known.seconds < chance.seconds


def test_a_small_run_has_a_row_for_each_policy_and_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(job: tuple[str, int, bool]) -> mixed.Run:
        return mixed.Run(job[0], job[1], 20.0 if job[0] == "xor" else 10.0, 50, 3 if job[0] == "xor" else 0, 0, 8.0)

    monkeypatch.setattr(mixed, "crawl", run)
    rows = makespans(Options(quick=True))
    assert [row.what.rpartition(": ")[2] for row in rows[:-1]] == list(mixed.POLICIES)
    assert all(row.met is None for row in rows)
    assert "3 of 53 pages not brought" in rows[1].measured
    rows = makespans(Options(seeds=1))
    assert rows[-1].met is True
    assert [row.met for row in rows[:3]] == [True, False, True]


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
