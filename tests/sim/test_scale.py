"""What a page costs in swarms of several sizes is measured by a script; here with very small ones."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import bench_scale
import pytest


def test_two_small_swarms_are_measured_and_drawn(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "scale.svg"
    assert bench_scale.main(["--nodes", "2,4", "--pages", "4", "--json", "-", "--plot", str(plot)]) == 0
    said = capfd.readouterr()
    rows = {row["name"]: row for row in json.loads(said.out)["rows"]}
    for name in ("cpu_2", "cpu_4", "task_bytes_4", "join_cpu_4", "cpu_ratio", "task_bytes_ratio"):
        assert rows[name]["measured"] > 0, name
    assert "4 nodes" in said.err
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")


def test_a_page_that_costs_more_in_a_larger_swarm_is_told() -> None:
    def sample(nodes: int, cpu_s: float) -> bench_scale.Sample:
        idle = bench_scale.Spent(0.0, 10.0, 0, 0, 0, 0, 0)
        crawl = bench_scale.Spent(cpu_s, 10.0, 1000, 1000, 10, 10, 1)
        return bench_scale.Sample(nodes, 100, idle, crawl, idle, 1)

    for cpu_s, ok in ((1.2, True), (1.4, False)):
        rows = bench_scale.rows_of({100: [sample(100, 1.0)], 1000: [sample(1000, cpu_s)]})
        assert [row["ok"] for row in rows if row["name"] == "cpu_ratio"] == [ok]
