"""Whole crawls on the virtual clock, judged from outside; and the judge is judged too."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dhtcrawl.crawl import analysis
from dhtcrawl.fetch.politeness import HostClock
from dhtcrawl.sim import swarm_run
from dhtcrawl.sim.run import simulate
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.trace import Trace
from dhtcrawl.storage.store import outcomes, tasks
from sim import breakages

CRASHING = Scenario(hosts=3, pages=120, delay_s=0.5, crashes=3, crash_every_s=12, commit_s=0.3)


@pytest.mark.parametrize("seed", range(1, 13))
def test_a_crawl_that_crashes_ends_with_every_page_and_no_promise_broken(seed: int) -> None:
    result = simulate(CRASHING, seed)
    assert result.violations == [], result.tail


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(hosts=1, pages=1),
        Scenario(hosts=1, pages=60, delay_s=0),
        Scenario(hosts=4, pages=80, key="host", crashes=2, crash_every_s=10),
        Scenario(hosts=3, pages=90, depth=2, crashes=2, crash_every_s=6),
        Scenario(hosts=3, pages=90, depth=3, delay_s=0, crashes=2, crash_every_s=3, commit_s=0.3),
        Scenario(hosts=2, pages=40, delay_s=0, searches=True, crashes=2, crash_every_s=2, commit_s=0.3),
    ],
    ids=["one page", "no delay", "host keys", "depth limit", "no delay, slow disk", "queries in charsets"],
)
def test_other_kinds_of_crawl_keep_the_promises_too(scenario: Scenario) -> None:
    for seed in (1, 2, 3):
        assert simulate(scenario, seed).violations == []


def test_a_crawl_that_is_refused_everywhere_is_to_end_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Scenario(hosts=3, pages=9, refuses=True)
    assert simulate(refused, 1).violations == []
    monkeypatch.setattr(outcomes, "is_content", lambda status: True)
    assert simulate(refused, 1).violations == ["I10: ended with COMPLETE, complete True"]


def test_a_limited_depth_finds_the_same_pages_whatever_crashes() -> None:
    limited = Scenario(hosts=3, pages=90, depth=2)
    crashing = Scenario(hosts=3, pages=90, depth=2, crashes=3, crash_every_s=5)
    assert simulate(limited, 4).pages == simulate(crashing, 4).pages


def test_the_same_seed_gives_the_same_trace_whatever_the_hash_seed(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text("hosts = 3\npages = 80\ncrashes = 2\ncrash_every_s = 10\n")
    command = [sys.executable, "-m", "dhtcrawl", "sim", "--seed", "7", "--json", "--scenario", str(scenario)]
    hashes = set()
    for hash_seed in ("0", "1", "12345"):
        done = subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
        )
        hashes.add(json.loads(done.stdout)["trace_hash"])
    assert len(hashes) == 1


WARNING = """
import logging
from dhtcrawl.cli.main import cli, main
cli.get_command(None, "sim")
import dhtcrawl.cli.sim as sim
simulate = sim.simulate

def warned(*given):
    logging.getLogger("dhtcrawl.crawl").warning("a simulated node is in trouble")
    return simulate(*given)

sim.simulate = warned
main()
"""


def test_what_simulated_nodes_log_does_not_stand_between_the_results(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text("hosts = 1\npages = 1\n")
    command = [sys.executable, "-c", WARNING, "sim", "--scenario", str(scenario)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


INTERRUPTED = """
import signal
from dhtcrawl.cli.main import cli, main
cli.get_command(None, "sim")
from dhtcrawl.sim.web import SimClient
exchange, times = SimClient.exchange, iter(range(99))

async def interrupted(self, request):
    if next(times) == 9:
        signal.raise_signal(signal.{name})
    return await exchange(self, request)

SimClient.exchange = interrupted
main()
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_in_a_simulation_ends_it_in_one_line(name: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED.format(name=name), "sim", "--nodes", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (11, "dhtcrawl: interrupted")


def test_another_seed_gives_another_trace() -> None:
    small = Scenario(hosts=2, pages=30)
    assert simulate(small, 1).trace_hash != simulate(small, 2).trace_hash


def test_one_node_by_itself_is_stopped_when_the_duration_is_over() -> None:
    whole = simulate(Scenario(hosts=2, pages=30), 1)
    stopped = simulate(Scenario(hosts=2, pages=30, duration_s=4.0), 1)
    assert (stopped.stopped, stopped.virtual_seconds, stopped.pages, stopped.violations) == (True, 4.0, 0, [])
    assert (whole.stopped, whole.virtual_seconds > 4.0, whole.pages > 0) == (False, True, True)
    crashing = simulate(dataclasses.replace(CRASHING, crashes=99, crash_every_s=3.0, duration_s=20.0), 1)
    assert (crashing.stopped, crashing.virtual_seconds, crashing.violations) == (True, 20.0, [])
    assert 0 < crashing.crashes < 99


# What the judge is for: each of these breaks one promise, and must be caught.


def _broken(seeds: range = range(1, 9)) -> Iterator[str]:
    for seed in seeds:
        yield from simulate(CRASHING, seed).violations


def test_a_link_dropped_now_and_then_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = tasks.accept, count()

    def forgetful(txn: Any, crawl: bytes, links: Any, *args: Any, **kwargs: Any) -> tasks.Accepted:
        kept = [link for link in links if link.depth == 0 or next(calls) % 20]
        return real(txn, crawl, kept, *args, **kwargs)

    monkeypatch.setattr(tasks, "accept", forgetful)
    assert any(problem.startswith("I3") for problem in _broken())


def test_a_host_asked_too_soon_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = HostClock.ready_at
    monkeypatch.setattr(HostClock, "ready_at", lambda self, delay_s, parallel=1: real(self, delay_s * 0.9, parallel))
    assert any(problem.startswith("I9") for problem in _broken(range(1, 2)))


def test_a_torn_tail_that_is_believed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    breakages.believes_torn_tails(monkeypatch)
    assert any(problem.startswith("I8") for problem in _broken())


def test_a_restart_that_forgets_half_done_pages_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "unsettled", lambda *args, **kwargs: [])
    assert any(problem.startswith("I3") or problem.startswith("I10") for problem in _broken(range(1, 25)))


def test_queries_in_utf_8_whatever_the_page_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis, "in_charset", lambda links, charset: links)
    assert simulate(Scenario(hosts=1, pages=40, delay_s=0, searches=True), 1).violations


def test_done_before_its_links_are_acked_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    from dhtcrawl.crawl.outbox import Outbox

    real = Outbox.take

    # Links are sent late, and pages are called done without waiting for them.
    calls = count()
    monkeypatch.setattr(Outbox, "take", lambda self, limit: real(self, limit) if next(calls) % 5 == 4 else [])
    monkeypatch.setattr(Outbox, "waits", lambda self, page: False)
    assert any(problem.startswith("I3") for problem in _broken(range(1, 4)))


def test_a_shorter_way_that_is_ignored_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = tasks.accept

    def first_come(txn: Any, crawl: bytes, links: Any, orders: Any, **options: Any) -> tasks.Accepted:
        unseen = [link for link in links if tasks.get_task(txn, crawl, link.key) is None]
        return real(txn, crawl, unseen, orders, **options)

    monkeypatch.setattr(tasks, "accept", first_come)
    shallow = Scenario(hosts=3, pages=90, depth=3, delay_s=0)
    problems = [problem for seed in range(1, 9) for problem in simulate(shallow, seed).violations]
    assert any(problem.startswith(("I2", "I3")) for problem in problems)


@pytest.mark.parametrize("interrupted", [True, False])
def test_a_node_that_fails_is_told_of_but_not_when_all_are_interrupted(
    interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def node() -> None:
        try:
            await asyncio.sleep(1.0)
        finally:
            raise RuntimeError("not now")

    class Failing(swarm_run.SwarmRun):
        async def _live(self, group: asyncio.TaskGroup, trace: Trace) -> None:
            group.create_task(node())
            await asyncio.sleep(0.5)
            task = asyncio.current_task()
            assert task is not None
            if interrupted:
                task.cancel()
            await asyncio.sleep(10.0)

    monkeypatch.setattr(swarm_run, "SwarmRun", Failing)
    if interrupted:
        with pytest.raises(asyncio.CancelledError):
            swarm_run.simulate_swarm(Scenario(nodes=2), 1)
    else:
        assert swarm_run.simulate_swarm(Scenario(nodes=2), 1).violations == ["failed: RuntimeError('not now')"]
