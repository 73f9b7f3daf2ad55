"""A member of a simulated swarm is bad: nothing is lost but what it owned, and hosts are asked as politely as ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dhtcrawl.config import load
from dhtcrawl.keyspace import TaskKeys
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.messages import Reply, Request
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.sim.bad_member import BadMember, invented_records
from dhtcrawl.sim.chance import WITH_A_BAD_MEMBER_MIN, draw_with_bad_member
from dhtcrawl.sim.net import Weather
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.scenario import Manner, Scenario, ScenarioResult
from dhtcrawl.sim.swarm import SimConditions, SimHost, SimSwarm
from dhtcrawl.sim.swarm_run import SwarmRun, simulate_swarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.outputs.outputs import PAGES_FILE, OutputDirs
from dhtcrawl.storage.store import bequests
from dhtcrawl.storage.store.records import State
from dhtcrawl.swarm.records.wire import copies_in


def run(manner: str) -> ScenarioResult:
    scenario = Scenario(nodes=5, hosts=3, pages=24, delay_s=0.05, bad_member=manner)
    return simulate_swarm(scenario, 25)


@pytest.mark.parametrize("manner", Manner)
def test_only_what_a_bad_member_owned_is_lost(manner: Manner) -> None:
    result = run(manner)
    assert (result.lost, result.violations) == (0, [])
    assert result.pages > 0


def test_what_a_bad_member_loses_is_found_where_it_was_not_to_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BadMember, "may_be_lost", lambda self, url: False)
    result = run(Manner.FORGETS)
    assert result.lost == len(result.violations) > 0
    assert result.violations[0].startswith("I3: ")


@pytest.mark.parametrize("waits", [True, False])
def test_what_only_pages_lead_to_that_still_wait_is_held_up_and_else_it_is_lost(waits: bool) -> None:
    scenario = Scenario(nodes=5, hosts=3, pages=24, bad_member=Manner.DROPS)
    web, config = SimWeb(1, scenario.web()), load()
    spec = make_spec(web.seeds(), scenario.settings(config.crawl))
    lacking = web.truth()  # nothing came: the seeds wait, or are nowhere, and only they lead to the rest
    assert len(lacking) > len(spec.seeds)
    dirs = OutputDirs.in_memory()
    dirs.pages.open(PAGES_FILE, 0).append(b"")
    judged: Any = SwarmRun(scenario, 1, config, web, spec)
    ledger = SimpleNamespace(waiting=set(spec.seeds) if waits else set(), unsent=set())
    judged.judge_lacking(dirs, ledger, SimpleNamespace(may_be_lost=lambda url: False))
    assert (judged.result.held_up, judged.result.lost) == ((len(lacking), 0) if waits else (0, len(lacking)))
    assert len(judged.result.violations) == judged.result.lost


@pytest.mark.parametrize("state", [State.PENDING, State.FETCHED, State.DEAD])
def test_what_a_bad_member_invents_is_not_left_out_as_invalid(state: State) -> None:
    """Or a simulation with it would show nothing of what such records do."""
    url = "http://site-1.test/invented/7"
    rows = [(TaskKeys().of(url, "site-1.test"), url, 1, "http://site-1.test/")]
    [invented] = copies_in(invented_records(rows, state, bytes(20)), TaskKeys())
    assert invented is not None
    assert invented.task.state is state


# A node is gone for good, and one leaves: the bad member says that it has their pages.
WITH_HEIRS = Scenario(
    nodes=6, hosts=3, pages=50, delay_s=0.05, crashes=1, away_s=-1, leaves=1, crash_every_s=2, holder_grace_s=20
)


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_nothing_is_lost_for_a_member_that_says_to_be_the_heir_of_all(seed: int) -> None:
    result = simulate_swarm(replace(WITH_HEIRS, bad_member=Manner.INVENTS), seed)
    assert (result.lost, result.violations) == (0, [])
    assert result.pages > 0


def test_heirs_by_their_own_word_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bequests, "is_signed", lambda *_: True)
    result = simulate_swarm(replace(WITH_HEIRS, bad_member=Manner.INVENTS), 4)
    assert result.lost == len(result.violations) > 0


async def test_a_member_that_answers_pings_and_nothing_else_holds_up_no_newcomer_for_good() -> None:
    config, web = load(), SimWeb(1, WebShape(hosts=3, pages=24))
    mute: list[str] = []

    def handler_of(host: SimHost, handler: Handler) -> Handler:
        def answer(hello: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
            if host.name not in mute or hello.node_id == host.id:
                return handler(hello, message)
            return asyncio.get_running_loop().create_future()

        return answer

    async with asyncio.TaskGroup() as group:
        trace = Trace(asyncio.get_running_loop().time)
        swarm = SimSwarm(group, 1, config, web, trace, SimConditions(weather=Weather(), handler_of=handler_of))
        hosts = [swarm.add() for _ in range(4)]
        for number, host in enumerate(hosts[:3]):
            await host.start(hosts[:number])
        mute.append(hosts[2].name)
        async with asyncio.timeout(400.0):
            newcomer = await hosts[3].start(hosts[:1])
        assert newcomer.join.state.active
        assert hosts[2].id in newcomer.gossip.view, "it is a member all the while"
        for host in hosts:
            await host.crash()


def test_each_manner_is_drawn_for_ten_nodes_or_more_and_no_disk_is_lost() -> None:
    drawn = [draw_with_bad_member(seed) for seed in range(100)]
    assert {scenario.bad_member for scenario in drawn} == set(Manner)
    assert min(scenario.nodes for scenario in drawn) == WITH_A_BAD_MEMBER_MIN
    assert not any(scenario.disk_losses for scenario in drawn)
