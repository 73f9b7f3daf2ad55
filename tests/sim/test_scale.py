"""What a page costs in swarms of several sizes is measured by a script; here with very small ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import bench_scale
import pytest

from dhtcrawl.rpc import transport
from dhtcrawl.rpc.connectionless import Connectionless
from dhtcrawl.rpc.messages import Ack, StoreTask
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm_run import simulate_swarm
from dhtcrawl.swarm import audit

CROWD = Scenario(nodes=14, hosts=6, pages=100, delay_s=0.0, loss=0.02, crash_every_s=1.5)


def test_two_small_swarms_are_measured_and_drawn(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "scale.svg"
    assert bench_scale.main(["--nodes", "2,4", "--pages", "4", "--json", "-", "--plot", str(plot)]) == 0
    said = capfd.readouterr()
    rows = {row["name"]: row for row in json.loads(said.out)["rows"]}
    for name in ("cpu_2", "cpu_4", "rpc_bytes_4", "join_cpu_4", "cpu_ratio", "rpc_bytes_ratio"):
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


@pytest.mark.parametrize(
    "faults",
    [
        CROWD,
        replace(CROWD, crashes=3),
        replace(CROWD, joins=4),
        replace(CROWD, leaves=2),
        replace(CROWD, partitions=1, pauses=2),
    ],
    ids=["nothing", "crashes", "newcomers", "leavers", "a partition, and pauses"],
)
def test_a_swarm_of_more_members_than_connections_keeps_its_promises(
    faults: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = transport.TransportLimits(connections_max=8)
    monkeypatch.setattr(transport, "TransportLimits", lambda: few)
    monkeypatch.setattr(audit, "CALLS_AT_ONCE", 2)
    answered: list[Ack] = []
    ask = Connectionless.ask

    async def count(self: Connectionless, member: object, message: StoreTask) -> object:
        reply = await ask(self, member, message)  # type: ignore[arg-type]
        if isinstance(reply, Ack):
            answered.append(reply)
        return reply

    monkeypatch.setattr(Connectionless, "ask", count)
    result = simulate_swarm(faults, 5)
    assert result.violations == [], result.tail
    assert result.lost == 0
    assert len(answered) > result.pages, "and most of the links in datagrams"
