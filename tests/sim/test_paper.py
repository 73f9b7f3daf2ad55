"""The paper's protocol as a reference: right where nothing happens, and worse than ours where something does."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import bench_churn
import paper
import pytest
from paper_swarm import PaperResult, PaperSwarm, simulate_paper

from dhtcrawl.rpc.tasks.messages import Ack, Call, Code, DeleteBackup, Records, RefreshTask, StoreTask
from dhtcrawl.rpc.tasks.rows import LinkRow, RecordRow, TombstoneRow
from dhtcrawl.sim.net import DatagramNetwork, Weather
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm_run import simulate_swarm
from dhtcrawl.sim.tally import MessageTally
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb

CALM = Scenario(
    nodes=8, hosts=5, pages=120, delay_s=0, concurrency=1, page_s=0.3, loss=0.01, holder_grace_s=60, crash_every_s=0.001
)
RESTART = dataclasses.replace(CALM, crashes=1, crash_at_once=2, away_s=30, faults_from_s=8)
DISKS = dataclasses.replace(CALM, disk_losses=1, disk_losses_at_once=2, away_s=-1, faults_from_s=8)
CHURN = dataclasses.replace(CALM, churn_every_s=5, away_s=20)


def crawled(what: Scenario, seed: int = 1) -> PaperResult:
    return simulate_paper(what, seed)


# The model


@pytest.mark.parametrize("seed", [1, 2])
def test_without_churn_the_papers_protocol_finds_every_page_once(seed: int) -> None:
    result = crawled(CALM, seed)
    truth = SimWeb(seed, CALM.web()).truth()
    assert (result.found, result.lost, result.pages_missing, result.refetched) == (len(truth), 0, 0, 0)


def test_a_lost_datagram_loses_no_page() -> None:
    result = crawled(dataclasses.replace(CALM, pages=60, loss=0.2))
    assert (result.lost, result.refetched) == (0, 0)


def test_backups_stay_that_nobody_deletes() -> None:
    """Those of links that were found once more after their page was fetched."""
    assert crawled(CALM).backups_left > 100


@pytest.mark.parametrize("what", [RESTART, CHURN], ids=["restart", "churn"])
def test_what_an_absent_node_has_done_is_done_again(what: Scenario) -> None:
    result = crawled(what)
    assert result.crashes >= 2
    assert result.refetched > 0.05 * result.found
    assert result.lost == 0


def test_pages_on_lost_disks_are_missed_where_no_backup_brings_them_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "REPUBLISH_S", 10_000.0)
    result = crawled(dataclasses.replace(DISKS, faults_from_s=12))
    assert result.bodies_lost > 0
    assert 0 < result.pages_missing <= result.bodies_lost


@asynccontextmanager
async def a_swarm(nodes: int, concurrency: int) -> AsyncIterator[PaperSwarm]:
    running = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        network = DatagramNetwork(running, 1, Weather())
        swarm = PaperSwarm(group, SimWeb(1, WebShape(hosts=3, pages=30)), Trace(running.time), network, concurrency)
        for _ in range(nodes):
            swarm.add().begin([])
        await asyncio.sleep(1)
        yield swarm
        for host in swarm.up:
            await host.crash()


async def test_backups_are_with_the_neighbours_until_the_page_is_fetched() -> None:
    url = "http://site-0.test/missing/1.html"
    async with a_swarm(6, 1) as swarm:
        swarm.hosts[0].find(url)
        await asyncio.sleep(0.27)
        owner, *neighbours = swarm.near(url)
        assert [host for host in swarm.hosts if url in host.disk.backups] == sorted(neighbours, key=lambda h: h.number)
        await asyncio.sleep(2)
        assert [host for host in swarm.hosts if url in host.disk.processed] == [owner]
        assert not any(host.disk.backups or host.disk.tasks for host in swarm.hosts)


async def test_a_newcomer_is_an_owner_at_once_and_asks_what_is_its_own() -> None:
    async with a_swarm(1, 0) as swarm:
        (first,) = swarm.hosts
        for url in swarm.web.truth():
            first.find(url)
        await asyncio.sleep(1)
        before = dict(first.disk.tasks)
        newcomer = swarm.add()
        newcomer.begin([first])
        await asyncio.sleep(2)
        theirs = {url: None for url in before if swarm.near(url)[0] is newcomer}
        assert 0 < len(theirs) < len(before)
        assert newcomer.disk.tasks == theirs
        assert first.disk.tasks.keys() == before.keys() - theirs.keys()


def test_the_same_seed_is_the_same_crawl() -> None:
    assert crawled(CHURN) == crawled(CHURN)
    assert crawled(CALM, 1).trace_hash != crawled(CALM, 2).trace_hash


# Beside ours


def test_the_same_seed_brings_the_same_web_and_the_same_faults_to_both() -> None:
    ours, papers = simulate_swarm(RESTART, 3), crawled(RESTART, 3)
    assert ours.violations == []
    assert (papers.pages, papers.crashes) == (ours.pages, ours.crashes)
    assert ours.refetched < papers.refetched
    assert ours.records_per_page < papers.records_moved / papers.pages


# What is counted


LINK = LinkRow(bytes(20), "http://a.test/", 0, "")
RECORD = RecordRow(bytes(20), "http://a.test/", 0, "", 0, False, 0, 0, 0, 0)


def test_only_what_goes_from_one_node_to_another_is_counted() -> None:
    tally = MessageTally()
    message = StoreTask(bytes(16), (LINK, LINK))
    tally.asked(b"one", b"one", message)
    assert tally.records_moved == tally.record_frames == 0
    tally.asked(b"one", b"two", message)
    tally.asked(b"one", b"two", DeleteBackup(bytes(16), (TombstoneRow(bytes(20), 4, 0, 0),)))
    assert dict(tally.records) == {"STORE_TASK": 2, "DELETE_BACKUP": 1}
    assert (tally.records_moved, tally.record_frames) == (3, 2)
    assert tally.bytes["STORE_TASK"] > 2 * len(LINK.url)


def test_answers_count_only_for_the_records_that_were_asked_for() -> None:
    tally = MessageTally()
    tally.asked(b"one", b"two", RefreshTask(bytes(16), bytes(20), b"\xff" * 20))
    tally.asked(b"one", b"two", Call("wave", {}))
    tally.answered(b"one", b"two", Ack.all(Code.ACCEPTED, 2))
    tally.answered(b"one", b"two", Records((), digests=bytes(8)))
    assert (tally.records_moved, tally.record_frames) == (0, 1)
    tally.answered(b"one", b"two", Records((RECORD, RECORD)))
    tally.answered(b"one", b"one", Records((RECORD,)))
    assert tally.records_moved == 2


# The benchmark


def small(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    size = bench_churn.SMALL._replace(nodes=5, hosts=3, pages=40, page_s=0.2, from_s=(4.0, 4.0))
    monkeypatch.setattr(bench_churn, "SMALL", size._replace(**changes))


def test_the_benchmark_puts_both_side_by_side(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small(monkeypatch)
    file = tmp_path / "rows.json"
    argv = ["--quick", "--regime", "calm", "--regime", "restart", "--jobs", "1", "--json", str(file)]
    bench_churn.main(argv)
    rows = {row["name"]: row for row in json.loads(file.read_text())["rows"]}
    assert rows["calm: records"]["measured"] < rows["calm, paper: records"]["measured"]
    assert all(rows[f"{name}: {what}"]["ok"] for name in ("calm", "restart") for what in ("lost", "promises broken"))
    assert all(row["samples"] == 1 for row in rows.values())
    shown = capsys.readouterr().err
    assert all(word in shown for word in ("no churn", "ours", "paper", "refetch %"))


def test_the_benchmark_fails_when_a_promise_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    figures = bench_churn.Figures(0, 0, 0.0, 0.0, 9.0, 5.0, 10.0, 0)
    outcome = bench_churn.Outcome(bench_churn.REGIMES[0], [1], [figures], [])
    assert all(row["ok"] for row in bench_churn.rows([outcome]))
    for worse in (figures._replace(lost=1), figures._replace(broken=("I1: …",)), figures._replace(records=14.5)):
        assert not all(row["ok"] for row in bench_churn.rows([outcome._replace(ours=[worse])]))
