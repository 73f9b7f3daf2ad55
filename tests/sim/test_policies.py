"""Whole swarms under each policy, and under policies that are broken: the pages are those of the web, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dhtcrawl.crawl.origins import Origins
from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.policy.choice import Choice
from dhtcrawl.policy.guard import FAULTS_MAX
from dhtcrawl.policy.seam import AssignmentTerms, Candidate, Planner, Policy, PolicyTask
from dhtcrawl.policy.xor import Xor
from dhtcrawl.sim import machines
from dhtcrawl.sim.oracle import Oracle
from dhtcrawl.sim.run import simulate
from dhtcrawl.sim.scenario import Scenario, ScenarioResult
from dhtcrawl.sim.swarm import SimHost
from dhtcrawl.swarm.assignment import assigner_state, policies
from dhtcrawl.swarm.assignment.candidates import Candidates

NODES = 4
FEW = 40  # pages, where their number does not matter


def crawl(policy: str, pages: int = 80) -> ScenarioResult:
    return simulate(Scenario(nodes=NODES, hosts=4, pages=pages, delay_s=0.0, concurrency=4, policy=policy), 3)


def whole(result: ScenarioResult) -> None:
    assert result.violations == [], result.tail
    assert (result.lost, result.refetches) == (0, 0)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter[str]]:
    """How often each node asked for something, by host."""
    found: dict[str, Counter[str]] = {}
    fetches = Oracle.fetches

    def count(self: Oracle, host: SimHost, url: str) -> None:
        found.setdefault(url.split("/")[2], Counter())[host.name] += not url.endswith("/robots.txt")
        fetches(self, host, url)

    monkeypatch.setattr(Oracle, "fetches", count)
    return found


@pytest.mark.parametrize("policy", ["balanced", "dynamic"])
def test_the_work_is_shared(policy: str, asked: dict[str, Counter[str]]) -> None:
    whole(crawl(policy))
    of_each = sum(asked.values(), Counter[str]())
    if policy == "balanced":
        assert len(of_each) == NODES
        assert max(of_each.values()) < 2 * sum(of_each.values()) / NODES
    else:
        assert len(of_each) > NODES / 2  # who was slower once may get nothing of so few


def test_a_page_that_another_node_fetches_costs_its_record_there_and_its_end_here() -> None:
    """Its owner and backups are not told that it is fetched before it is done: they would tell one another, too."""
    own, assigned = crawl("xor"), crawl("balanced")
    assert assigned.records_per_page < own.records_per_page + 2.0


def test_what_is_in_flight_is_known_to_the_second_owner_after_it_as_well() -> None:
    """Slow pages, nodes that crash and come back: whoever has one in flight may be no neighbour of who owns it next."""
    slow = Scenario(
        nodes=8, hosts=8, pages=80, delay_s=0.0, page_s=2.0, slow_hosts=8, uneven=True, concurrency=8, commit_s=0.005,
        latency_s=0.15, crashes=6, away_s=4.0, crash_every_s=3.0, faults_from_s=8.0,
    )  # fmt: skip
    whole(simulate(slow, 1013))


def test_with_dspider_a_host_is_one_nodes(asked: dict[str, Counter[str]]) -> None:
    whole(crawl("dspider"))
    for host, nodes in asked.items():
        assert max(nodes.values()) >= 0.9 * sum(nodes.values()), (host, nodes)
    assert len({max(nodes, key=lambda node: nodes[node]) for nodes in asked.values()}) > 1


@pytest.mark.parametrize("policy", ["xor", "balanced", "dynamic", "dspider"])
def test_a_host_that_only_one_node_of_many_reaches_is_brought_by_it(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machines, "BLOCKED", 1.0)
    nodes = 8
    result = simulate(
        Scenario(nodes=nodes, hosts=nodes, pages=80, delay_s=0.0, policy=policy, uneven=True, broken=0.0, flaky=0.0),
        3,
    )
    whole(result)


ENGINES = Scenario(
    nodes=6, hosts=4, pages=80, key="search", delay_s=0.0, concurrency=4, node_types=2, engine_delay_s=0.3, crashes=2,
    away_s=3.0, crash_every_s=3.0,
)  # fmt: skip


@pytest.mark.parametrize("policy", ["xor", "dynamic"])
def test_engines_are_asked_by_nodes_of_their_types_and_at_their_delays(
    policy: str, asked: dict[str, Counter[str]]
) -> None:
    result = simulate(replace(ENGINES, policy=policy), 3)
    assert (result.violations, result.lost, result.faults) == ([], 0, {"crash": 2}), result.tail
    assert len(asked) >= ENGINES.hosts
    for host, nodes in asked.items():
        assert len({int(name.split()[-1]) % ENGINES.node_types for name in nodes}) == 1, (host, nodes)


def test_who_is_of_another_type_or_asks_an_engine_too_soon_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigner_state, "Candidates", lambda policy, types: Candidates(policy, {}))
    monkeypatch.setattr(Origins, "delay_s", lambda self, host: 0.1)
    found = simulate(ENGINES, 3).violations
    assert {"types", "I9"} <= {each.partition(":")[0] for each in found}


class _Broken(Policy):
    name = "broken"


class Throws(_Broken):
    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        raise KeyError("weights")


class Nonsense(_Broken):
    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return [b"nobody", *(each.node for each in candidates)]


class ThrowsTerms(Xor):
    """Ranks as it should, so that its rankings say nothing of it."""

    name = "broken"

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        raise TypeError("no terms")


class CannotBeMade(_Broken):
    def __init__(self, settings: Any) -> None:
        raise OSError("no such file: weights.json")

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return []


@pytest.mark.parametrize(
    ("broken", "said", "counted"),
    [
        (Throws, "not asked any more (rank: KeyError", True),
        (Nonsense, "not asked any more (rank: it ranked a node that was no candidate", True),
        (ThrowsTerms, "not asked any more (terms: TypeError: no terms)", True),
        (CannotBeMade, "no such file: weights.json", False),
    ],
)
def test_under_a_broken_policy_the_crawl_goes_on_and_log_and_counters_say_so(
    broken: type[Policy],
    said: str,
    counted: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(policies, "load", lambda name, allowed: broken)
    told, figures = set[int | float](), CrawlCounters.figures

    def noted(self: CrawlCounters) -> dict[str, int | float]:
        found = figures(self)
        told.add(found["policy_faults"])
        return found

    monkeypatch.setattr(CrawlCounters, "figures", noted)
    whole(crawl("dynamic", FEW))
    assert any(said in line for line in caplog.messages), caplog.messages
    assert (max(told) >= FAULTS_MAX) is counted


class CannotBeMadePlanner(Planner):
    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        raise OSError("no such file: plans.json")


class WantsNonsense(Planner):
    wants = (1, 2)  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("planning", "said"), [(CannotBeMadePlanner, "no such file: plans.json"), (WantsNonsense, "it wants (1, 2)")]
)
def test_under_a_policy_with_a_broken_planner_the_crawl_goes_on_without_plans(
    planning: type[Planner], said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Planned(Xor):
        planner = planning

    monkeypatch.setattr(policies, "load", lambda name, allowed: Planned)
    whole(crawl("balanced", FEW))
    assert any(said in line for line in caplog.messages), caplog.messages


def test_under_a_policy_that_hangs_the_crawl_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def too_long(self: policies.Policies, work: Callable[[], Choice]) -> Choice | None:
        return None

    monkeypatch.setattr(policies.Policies, "decide", too_long)
    whole(crawl("dynamic", FEW))
    assert any("did not answer" in line for line in caplog.messages)


def test_what_a_policy_ranks_nobody_for_waits_and_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Counter[bytes]()

    class Reluctant(_Broken):
        def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
            asked[task.key] += 1
            return [each.node for each in candidates] if asked[task.key] > 5 else []

    monkeypatch.setattr(policies, "load", lambda name, allowed: Reluctant)
    whole(crawl("dynamic", FEW))
    assert min(asked.values()) > 5


@pytest.mark.shared_out
@pytest.mark.parametrize("policy", ["xor", "balanced", "dynamic", "dspider"])
@pytest.mark.parametrize(
    "change", [{"joins": 4, "page_s": 7.0}, {"leaves": 3, "page_s": 14.0}], ids=["joins", "leaves"]
)
def test_who_comes_or_goes_makes_nobody_fetch_a_page_again(policy: str, change: dict[str, Any]) -> None:
    """Slow pages, so that much is in flight, at nodes that do not own it, when owners change."""
    scenario = Scenario(nodes=10, hosts=8, pages=100, delay_s=0.0, concurrency=8, broken=0.0, policy=policy, **change)
    result = simulate(scenario, 1)
    assert result.faults, "or the test shows nothing"
    whole(result)
