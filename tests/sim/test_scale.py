"""What a page costs in swarms of several sizes is measured by a script; here with very small ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import bench_scale
import pytest
import scale_settled
import scale_swarms

from dhtcrawl.rpc.peers.connectionless import Connectionless
from dhtcrawl.rpc.tasks import transport
from dhtcrawl.rpc.tasks.messages import Ack, StoreTask
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm_run import simulate_swarm
from dhtcrawl.swarm.lifecycle import audit

CROWD = Scenario(nodes=14, hosts=6, pages=60, delay_s=0.0, loss=0.02, crash_every_s=1.5)


def test_two_small_swarms_are_measured_and_drawn(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "scale.svg"
    assert bench_scale.main(["--nodes", "2,4", "--pages", "4", "--json", "-", "--plot", str(plot)]) == 0
    said = capfd.readouterr()
    rows = {row["name"]: row for row in json.loads(said.out)["rows"]}
    for name in (
        "cpu_2",
        "cpu_4",
        "rpc_bytes_4",
        "join_cpu_4",
        "cpu_ratio",
        "cpu_ratio_alone",
        "cpu_beside",
        "rpc_bytes_ratio",
    ):
        assert rows[name]["measured"] > 0, name
    assert "4 nodes" in said.err
    assert ElementTree.parse(plot).getroot().tag.endswith("svg")


def test_a_page_that_costs_more_in_a_larger_swarm_is_told() -> None:
    def sample(nodes: int, cpu_s: float) -> scale_swarms.Sample:
        idle = scale_swarms.Spent(0.0, 10.0, 0, 0, 0, 0, 0)
        crawl = scale_swarms.Spent(cpu_s, 10.0, 1000, 1000, 10, 10, 1)
        return scale_swarms.Sample(nodes, 100, idle, crawl, idle, 1)

    for cpu_s, ok in ((1.2, True), (1.4, False)):
        rows = bench_scale.rows_of({100: [sample(100, 1.0)], 1000: [sample(1000, cpu_s)]})
        assert [row["ok"] for row in rows if row["name"] == "cpu_ratio"] == [ok]
        rows = bench_scale.rows_of({100: [sample(100, 0.5)], 1000: [sample(1000, cpu_s)]}, [sample(1000, 1.0)])
        found = {row["name"]: (row["measured"], row["ok"]) for row in rows if row["name"].startswith("cpu_ratio")}
        assert found == {"cpu_ratio": (cpu_s, ok), "cpu_ratio_alone": (2 * cpu_s, True)}


def test_swarms_side_by_side_take_what_each_takes_alone_but_for_the_cpu() -> None:
    alone = [scale_swarms.run(3, 6, seed) for seed in (1, 2)]
    both = scale_swarms.run(3, 6, 1, 2)
    assert both.nodes == 6
    assert both.pages == sum(sample.pages for sample in alone)
    for phase in ("join", "crawl"):
        for name in ("task_bytes", "datagrams", "messages", "connections"):
            together, apart = (sum(getattr(getattr(one, phase), name) for one in runs) for runs in ([both], alone))
            # Whoever is ready waits for the end of its turn.
            assert together == pytest.approx(apart, rel=0.01), (phase, name)


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
    assert sum(len(ack.codes) for ack in answered) > result.pages, "and most of the links in datagrams"


def test_nodes_that_know_each_other_from_the_start_crawl_all_and_are_judged_by_their_speed(tmp_path: Path) -> None:
    assert bench_scale.main(["--settled", "1,5", "--pages", "4"]) == 0
    paced = scale_settled.run(5, 4, 1)
    assert paced.sample.pages == 20
    assert paced.sample.join.task_bytes == 0, "nobody had to be asked who is there"
    assert (
        bench_scale.main(["--settled", "1,5", "--pages", "4", "--policies", "balanced", "--json", str(tmp_path / "r")])
        == 0
    )
    names = {row["name"] for row in json.loads((tmp_path / "r").read_text())["rows"]}
    assert {"balanced, 1 nodes: speed", "balanced, 5 nodes: E"} <= names, "each row says which policy made it"
    assert 0 < paced.whole_rate < 5 * scale_settled.FLIGHT / (0.5 * scale_settled.LATENCY_S)
    alone = replace(paced, middle_rate=paced.middle_rate / 5)
    for slower, ok in ((1.0, True), (1.25, False)):
        large = replace(paced, middle_rate=40 * paced.middle_rate / slower)
        rows = {row["name"]: row for row in scale_settled.rows_of({1: [alone], 100: [paced], 200: [large]})}
        judged = rows["200 nodes: E"]
        assert (judged["ok"], judged["target"]) == (ok, scale_settled.EFFICIENCY_MIN), judged
        assert rows["RPC, ratio"]["measured"] == 1.0
