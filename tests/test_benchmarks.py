"""What all benchmarks share: --help, --quick, --json, rows with the same fields, the exit code."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from email.message import Message
from io import BytesIO
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any
from urllib.error import HTTPError

import bench_churn
import bench_frames
import bench_growth
import bench_lookups
import bench_members
import bench_peers
import bench_policies
import bench_rules
import bench_scale
import bench_tasks
import benchmark
import ended
import pytest
import record_release
import two_versions
import web_server
from peer_bench import report as peer_report
from policy_bench.lab import Unavailable

from dhtcrawl.rpc.membership.gossip_settings import GossipSettings

SCRIPTS = sorted((Path(__file__).parents[1] / "scripts").glob("bench_*.py"))
ROWS: dict[str, benchmark.Row] = {
    "bench_churn": bench_churn.row("calm: lost", "0 with every seed", 0, 0, "links", 1),
    "bench_frames": bench_frames.row("frames_to_udp", "times the URLs/s", "times", [31.0, 30.0], 20.0, 2),
    "bench_lookups": bench_lookups.row("100 nodes: right", 99.0, 99.87654, "%", 500, ok=True),
    "bench_members": bench_members.rows_of(100, bench_members.MembersCost(146.0, 1.0, 20.0, 1e6))[5],
    "bench_peers": peer_report.rows_of(
        peer_report.Runs([peer_report.Run("s", "wget", 0.0, 1.0, 2.0, 9, 7, 0, 0, 0, 0)])
    )[0],
    "bench_rules": bench_rules.rows_of("s", [bench_rules.Pair("s", 9, 1.0, 1.25, 9, 90)])[-1],
    "bench_scale": bench_scale.row("cpu_10", "CPU a page", [1.0, 3.0], "ms/page"),
    "bench_tasks": bench_tasks.row("cpu, 3 nodes over 1", "at most 2", 2.0, 1.5, "", 5, most=True),
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_benchmark_says_what_it_takes(script: Path) -> None:
    said = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, check=False, timeout=60)
    assert said.returncode == 0, said.stderr
    assert "--quick" in said.stdout
    assert "--json FILE" in said.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_benchmark_ends_in_order_when_it_is_told_to(script: Path) -> None:
    assert script.read_text("utf-8").endswith("    sys.exit(ended.in_order(main))\n")


@pytest.mark.parametrize(("before", "code"), [("SIG_IGN", 7), ("SIG_DFL", 128 + signal.SIGHUP)])
def test_a_benchmark_under_nohup_goes_on_when_the_terminal_is_closed(before: str, code: int) -> None:
    program = f"""
import os, signal, ended
signal.signal(signal.SIGHUP, signal.{before})
def main():
    os.kill(os.getpid(), signal.SIGHUP)
    return 7
raise SystemExit(ended.in_order(main))
"""
    env = os.environ | {"PYTHONPATH": str(SCRIPTS[0].parent)}
    assert subprocess.run([sys.executable, "-c", program], env=env, timeout=60, check=False).returncode == code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_simulation_that_is_told_to_end_does_so_without_a_word(number: signal.Signals) -> None:
    program = f"""
import asyncio, os, ended
async def simulated():
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(3600))
        os.kill(os.getpid(), {number})
def main():
    ended.at_once()
    asyncio.run(simulated())
ended.in_order(main)
"""
    env = os.environ | {"PYTHONPATH": str(SCRIPTS[0].parent)}
    done = subprocess.run([sys.executable, "-c", program], env=env, timeout=60, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (-number, b"")


def test_nobody_waits_for_the_workers_of_a_benchmark_that_is_told_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    worker = 0

    def measure() -> None:
        nonlocal worker
        with ended.workers(1) as pool:
            worker = pool.submit(os.getpid).result()
            assert pool.submit(signal.getsignal, signal.SIGINT).result() is signal.SIG_DFL, "Ctrl-C ends it silently"
            given = [pool.submit(signal.pause) for _ in range(9)]
            while not given[1].running():  # one is at work, and others are on their way to it
                pass
            for each in given[3:]:
                each.cancel()  # as the executor's own map does
            raise SystemExit(143)

    with pytest.raises(SystemExit):
        measure()
    assert not Path(f"/proc/{worker}").exists()
    assert said == [], "what its executor thinks of that is no news"


def assert_shape(row: dict[str, Any]) -> None:
    assert set(benchmark.FIELDS) <= row.keys()
    assert type(row["measured"]) in (int, float)
    assert type(row["samples"]) is int
    assert row["samples"] >= 1
    assert type(row["ok"]) is bool
    assert row["by"]
    assert all(type(row[name]) is str for name in ("name", "claim", "unit", "by"))
    assert row["ok"] or row["target"] is not None, "a row without a target is information"


@pytest.mark.parametrize("name", ROWS)
def test_the_rows_of_every_benchmark_have_the_same_fields(name: str) -> None:
    assert_shape(json.loads(benchmark.json_text([ROWS[name]]))["rows"][0])


def test_what_rules_cost_is_also_said_in_pages_of_wget() -> None:
    def ratio(site: str, wget_ms: float) -> benchmark.Row:
        pair = bench_rules.Pair(site, 9, 1.0, 1.5, 9, 90, wget_ms)
        return next(row for row in bench_rules.rows_of(site, [pair]) if row["unit"] == "ratio")

    slow, fast = ratio("cppreference", 0.5), ratio("cppreference", 0.4)
    assert (slow["measured"], slow["target"], slow["ok"]) == (1.0, 1.19, True)
    assert (fast["measured"], fast["ok"]) == (1.25, False)
    assert ratio("postgresql", 0.1)["target"] is None


def test_the_rows_about_policies_have_them_too() -> None:
    from policy_bench.report import Row, as_rows

    rows = [
        Row("P3", "within 30 %", "0.9", "≥ 0.8", "0.85 (worst 0.81)", True, 5, value=0.85, unit="share"),
        Row(
            "P1",
            "time",
            "",
            "at most 1,200 ms",
            "of 9 1,305.5 ms",
            False,
            0,
            "slow",
            value=1305.5,
            unit="ms",
            samples=9,
        ),
        Row("P5", "it specialises", "", "", "12 of 15 sites", None, 0, value=80, unit="%", by="net", random=40.0),
    ]
    told = as_rows(rows)
    for row in told:
        assert_shape(row)
    assert [(row["measured"], row["unit"], row["samples"], row["ok"]) for row in told] == [
        (0.85, "share", 5, True), (1305.5, "ms", 9, False), (80.0, "%", 1, True),
    ]  # fmt: skip
    assert [(row["by"], row["random"], row["least_loaded"]) for row in told[1:]] == [
        ("bp-pso", None, None), ("net", 40.0, None),
    ]  # fmt: skip
    assert [(row["by"], row["text"]) for row in told[:2]] == [("gnp", rows[0].measured), ("bp-pso", rows[1].measured)]


def test_a_benchmark_ends_with_0_only_when_every_row_with_a_target_is_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = benchmark.row("good", 1.23456, "s", [1.0, 1.5], target=2.0)
    bad = benchmark.row("bad", 3.0, "s", 7, target=2.0, ok=False, claim="at most 2")
    assert good["values"] == [1.0, 1.5]
    assert (good["measured"], good["samples"], bad["samples"]) == (1.235, 2, 7)
    assert benchmark.finish([good], None) == 0
    assert benchmark.finish([good, bad], str(tmp_path / "rows.json")) == 1
    assert json.loads((tmp_path / "rows.json").read_text()) == {"rows": [good, bad]}
    assert capsys.readouterr().out == ""
    assert benchmark.finish([good], "-") == 0
    assert json.loads(capsys.readouterr().out) == {"rows": [good]}
    lines = benchmark.table([good, bad]).splitlines()
    assert lines[1].split() == ["good", "1.235", "s", "2", "ok"]
    assert lines[2].split() == ["bad", "3.0", "s", "2", "NOT", "OK", "at", "most", "2"]


@pytest.mark.parametrize("name", ["missing/rows.json", "", "below-a-file/rows.json"])
def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "below-a-file").touch()
    file = str(tmp_path / name)
    for main, option in (
        (bench_scale.main, "--json"), (bench_scale.main, "--plot"), (bench_scale.main, "--csv"),
        (bench_policies.main, "--json"), (bench_policies.main, "--markdown"), (bench_growth.main, "--plot"),
        (bench_peers.main, "--plot"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main([option, file])
        assert ended.value.code == 2
        assert f"argument {option}: {file} cannot be written; name another file" in capsys.readouterr().err


def test_a_directory_that_cannot_be_made_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        bench_policies.main(["--plots", str(tmp_path / "file")])
    assert ended.value.code == 2
    assert "argument --plots" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["0", "-1", "ten", "", "1.5", "²"])
def test_a_number_that_is_none_is_told_before_anything_is_measured(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for main, option in (
        (bench_scale.main, "--rounds"), (bench_scale.main, "--seeds"), (bench_scale.main, "--real"),
        (bench_scale.main, "--settled"), (bench_scale.main, "--nodes"), (bench_churn.main, "--seeds"),
        (bench_churn.main, "--jobs"), (bench_growth.main, "--known"), (bench_growth.main, "--rounds"),
        (bench_policies.main, "--jobs"), (bench_peers.main, "--pages"),
    ):  # fmt: skip
        with pytest.raises(SystemExit) as ended:
            main([f"{option}={given}"])
        assert ended.value.code == 2
        assert f"argument {option}: {given!r} is no number that can be used here" in capsys.readouterr().err


def test_a_command_is_found_from_wherever_it_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dhtcrawl").write_text("#!/bin/sh\n")
    (tmp_path / "dhtcrawl").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert benchmark.command("./dhtcrawl") == str(tmp_path / "dhtcrawl")
    assert benchmark.command("sh") == shutil.which("sh")


@pytest.mark.parametrize("options", [["./old/dhtcrawl"], ["sh", "--ours", "missing"]])
def test_a_version_that_is_not_there_is_told(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["two_versions.py", *options])
    with pytest.raises(SystemExit) as ended_with:
        two_versions.main()
    assert ended_with.value.code == 2
    assert f"{options[-1]} is no command that can be run; name it by its path" in capsys.readouterr().err


def test_a_site_is_served_from_a_directory_of_where_the_benchmark_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(web_server, "NGINX", "nginx")
    monkeypatch.setattr(web_server.WebServer, "__init__", lambda *_: None)
    web_server.Nginx(tmp_path / "home", Path("site"))
    assert f"root {tmp_path / 'site'};" in (tmp_path / "home" / "nginx.conf").read_text()


def test_a_share_of_a_core_that_the_machine_does_not_give_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(trial: object, home: Path) -> None:
        raise Unavailable("cgroups cannot be made here: Permission denied")

    monkeypatch.setattr(bench_scale, "run_real", run)
    with pytest.raises(SystemExit, match=r"^bench: --share 0.05: cgroups cannot be made here: Permission denied$"):
        bench_scale.main(["--real", "1", "--share", "0.05"])


@pytest.mark.parametrize("script", [bench_peers, bench_rules], ids=lambda script: script.__name__)
def test_a_web_server_that_is_missing_is_told(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_server, "NGINX", None)
    monkeypatch.setattr(sys, "argv", [script.__name__])
    with pytest.raises(SystemExit, match=r"^bench: nginx is missing: apt-get install nginx-light$"):
        script.main()


def test_what_a_node_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise HTTPError(
            "http://127.0.0.1/", 400, "Bad Request", Message(), BytesIO(b"crawl.policy is 'x'; use one of xor")
        )

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    node = object.__new__(bench_tasks.Node)
    node.admin = "127.0.0.1:8469"
    with pytest.raises(SystemExit, match=r"^bench: a node refuses crawls: crawl.policy is 'x'; use one of xor$"):
        node.ask("POST", "crawls", {})


@pytest.mark.parametrize("text", [None, "", "[]", '{"rows": []}', '{"runs": [{"site": "x"}]}'])
def test_a_file_without_earlier_runs_is_told(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit, match=r"^bench: --add .*rows.json: holds no runs of this benchmark \("):
        bench_peers.main(["--rounds", "0", "--add", str(file)])


def test_what_a_release_left_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["record_release.py", str(tmp_path)])
    with pytest.raises(SystemExit) as ended_with:
        record_release.main()
    assert ended_with.value.code == 2
    assert f"{tmp_path} cannot be made (File exists); name another directory" in capsys.readouterr().err


def test_sizes_are_numbers_with_commas() -> None:
    assert benchmark.counts("1,2, 16") == [1, 2, 16]
    with pytest.raises(argparse.ArgumentTypeError, match="'' is no number"):
        benchmark.counts("1,")


def test_what_was_measured_is_on_stdout_where_the_disk_is_full_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    good = benchmark.row("good", 1.5, "s", 7)
    assert benchmark.finish([good], benchmark.output("/dev/full")) == 1
    said = capsys.readouterr()
    assert json.loads(said.out) == {"rows": [good]}
    assert said.err == "bench: /dev/full cannot be written (No space left on device); stdout has it\n"


def test_a_median_stands_for_several_samples() -> None:
    row = bench_scale.row("cpu_10", "CPU a page", [1.0, 3.0, 8.0], "ms/page", target=2.0)
    assert (row["measured"], row["samples"], row["ok"]) == (median([1.0, 3.0, 8.0]), 3, False)


def test_what_knowing_all_members_costs_grows_as_the_decision_says() -> None:
    settings = GossipSettings()
    # 2 · 2,048 · 146 bytes every 20 · (1 + 6) s; 8 datagrams of 6 rows a second, each change told 34 times.
    assert bench_members.exchange_bytes(2_048, 146.0, settings) == pytest.approx(4_271.5, abs=0.1)
    assert bench_members.changes_max(2_048, 146.0, settings) == pytest.approx(8 * 6 / 34)
    assert bench_members.lifetime_s(2_048, 146.0, settings) == pytest.approx(4 * 2_048 * 34 / (8 * 6))


def test_a_nodes_membership_is_measured() -> None:
    cost = bench_members.measure(20, seed=1)
    assert 130 < cost.row_bytes < 160
    assert min(cost) > 0
