"""The world of nodes and sites that `dynamic` is measured in, in cases small enough to check by eye."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from statistics import mean

import pytest
from policy_bench import sites
from policy_bench.report import Options
from policy_bench.sites_hours import Refusals, Run, Switches, at_home, by_the_best
from policy_bench.sites_schedules import SCHEDULES, AtRandom, Completion, FixedOwner, Oracle, alone
from policy_bench.sites_world import TIMEOUT_S, World, draw, simulate

from dhtcrawl.keyspace import url_key
from dhtcrawl.policy.dynamic import Dynamic
from dhtcrawl.policy.seam import Candidate, Outcome, PolicyTask, Settings, TaskResult

A, B, C = (bytes([number]) * 20 for number in (1, 2, 3))


class Certain(World):
    """Blocked pairs never work, the others always do."""

    def fails(self, node: bytes, site: str) -> float:
        return float((node, site) in self.blocked)


class Steady(Random):
    """Chance that always is in the middle."""

    def random(self) -> float:
        return 0.5


def world(seconds: dict[tuple[bytes, str], float], *blocked: tuple[bytes, str], pages: int = 10) -> Certain:
    """Some pairs, and the time each takes for a page."""
    return Certain(
        list(dict.fromkeys(node for node, _ in seconds)),
        dict.fromkeys((site for _, site in seconds), pages),
        seconds,
        dict.fromkeys(blocked),
    )


def task(site: str, failed: tuple[bytes, ...] = ()) -> PolicyTask:
    """A page of it."""
    return PolicyTask(url_key(f"http://{site}/"), site, failed)


def test_a_page_takes_what_its_pair_takes_and_a_blocked_one_a_time_out() -> None:
    small = world({(A, "x"): 4.0, (B, "x"): 4.0}, (B, "x"))
    assert small.attempt(A, "x", Steady()) == (True, 4.0)
    assert small.attempt(B, "x", Steady()) == (False, TIMEOUT_S)
    assert (small.rate(A, "x"), small.rate(B, "x")) == (0.25, 0.0)


def test_a_fifth_of_the_pairs_is_blocked_and_every_site_works_from_somewhere() -> None:
    worlds = [draw(seed) for seed in range(1, 6)]
    assert mean(len(each.blocked) / len(each.seconds) for each in worlds) == pytest.approx(0.2, abs=0.03)
    for each in worlds:
        assert all(any((node, site) not in each.blocked for node in each.nodes) for site in each.pages)
    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_a_site_is_asked_for_one_page_at_a_time() -> None:
    small = world({(A, "x"): 1.0, (B, "x"): 1.0}, pages=100)
    # Two nodes bring no more than one does: 100 pages of 1 s, give or take 30 % each.
    assert simulate(small, alone(Oracle(small)), 1).makespan_s == pytest.approx(100, abs=6)


def test_a_node_has_so_many_requests_at_a_time() -> None:
    small = world({(A, "x"): 1.0, (A, "y"): 1.0}, pages=100)
    assert simulate(small, alone(Oracle(small)), 1, slots=2).makespan_s == pytest.approx(100, abs=6)
    assert simulate(small, alone(Oracle(small)), 1, slots=1).makespan_s == pytest.approx(200, abs=12)


def test_a_page_that_all_nodes_failed_is_a_persons_and_none_is_lost() -> None:
    small = world({(node, site): 1.0 for node in (A, B, C) for site in "xy"}, *((node, "x") for node in (A, B, C)))
    run = simulate(small, alone(AtRandom(1)), 1)
    assert (run.pages, run.manual, run.attempts) == (10, 10, 10 + 3 * 10)


def test_a_fixed_owner_tries_again_and_hands_off_only_where_it_may() -> None:
    nodes = [A, B, C]
    free = [Candidate(node) for node in nodes]
    keeps, hands_off = FixedOwner(nodes, hands_off=False), FixedOwner(nodes, hands_off=True)
    first = keeps.rank(task("x"), free, 0.0)
    assert keeps.rank(task("x", (first[0],)), free, 0.0) == first
    second = hands_off.rank(task("x", (first[0],)), free, 0.0)
    assert len(second) == 1
    assert second != first
    busy = [each for each in free if each.node != first[0]]
    assert keeps.rank(task("x"), busy, 0.0) == hands_off.rank(task("x"), busy, 0.0) == [], "it waits for its owner"


def test_completion_only_never_tries_again_what_was_bad_while_somebody_is_better() -> None:
    policy, free = Completion(), [Candidate(A), Candidate(B)]
    policy.heard(Outcome(A, "x", TaskResult.UNREACHABLE, 10.0), 0.0)
    for _ in range(500):
        policy.heard(Outcome(B, "x", TaskResult.PAGE, 9.0), 0.0)
    assert policy.rank(task("x"), free, 0.0) == [B, A]
    ours = Dynamic(Settings(bytes(20)))
    ours.heard(Outcome(A, "x", TaskResult.UNREACHABLE, 10.0), 0.0)
    for _ in range(500):
        ours.heard(Outcome(B, "x", TaskResult.PAGE, 9.0), 0.0)
    assert ours.score(A, "x") > 0.85 * ours.score(B, "x"), "which dynamic does before long"


def test_the_oracle_asks_the_fastest_that_is_not_blocked() -> None:
    small = world({(A, "x"): 1.0, (B, "x"): 2.0, (C, "x"): 3.0}, (A, "x"))
    assert Oracle(small).rank(task("x"), [Candidate(node) for node in (C, B, A)], 0.0) == [B, C, A]


def test_each_owner_hears_of_its_own_tasks_only() -> None:
    small = draw(1, 3, 2)
    by_page = SCHEDULES["dynamic, an owner a page"](small, 1)
    by_site = SCHEDULES["dynamic, an owner a site"](small, 1)
    tasks = [PolicyTask(url_key(f"http://x/{number}"), "x") for number in range(50)]
    assert len({id(by_page(each)) for each in tasks}) == 3
    assert len({id(by_site(each)) for each in tasks}) == 1


def test_a_site_refuses_a_node_a_quarter_of_the_time_the_same_in_every_run() -> None:
    small = draw(1, 4, 5)
    refusals, again = (Refusals(small, 1, 500_000) for _ in range(2))
    times = [(pair, float(at)) for pair in small.seconds for at in range(0, 500_000, 500)]
    refused = [refusals.now(*pair, at) for pair, at in times]
    assert mean(refused) == pytest.approx(0.25, abs=0.03)
    assert refused == [again.now(*pair, at) for pair, at in times]


class Never(Refusals):
    """Sites that refuse nobody."""

    def now(self, node: bytes, site: str, now: float) -> bool:
        return False


def hours(on: Switches, only: World, off_budget_s: float = 600.0) -> Run:
    """An hour in which nobody is refused for a while."""
    run = Run(only, on, 1, 1.0, off_budget_s)
    run.refusals = Never(only, 1, 0.0)
    return run


def test_a_batch_is_twenty_pages_and_two_seconds() -> None:
    run = hours(Switches(), world({(A, "x"): 1.0}))
    found = run.play()
    # 20 pages of 1 s and 2 s of handing over: an hour has 3600 / 22 of them.
    assert found.batches == pytest.approx(3600 / 22, abs=4)
    assert found.pages.total() == pytest.approx(20 * 3600 / 22, rel=0.03)


def test_a_batch_ends_when_its_time_is_over() -> None:
    found = hours(Switches(), world({(A, "x"): 1.0}), off_budget_s=9.5).play()
    assert found.pages.total() / found.batches == pytest.approx(10, abs=0.5)


def test_sixty_seconds_without_a_page_end_a_batch_where_recall_is_on() -> None:
    small = world({(A, "x"): 1.0}, (A, "x"))
    off, on = hours(Switches(), small).play(), hours(Switches(recall=True), small).play()
    assert (off.recalled, off.batches) == (0, 18), "20 time-outs of 10 s, and 2 s"
    assert (on.recalled, on.batches) == (58, 59), "6 time-outs of 10 s, and 2 s"
    assert not off.pages
    assert not on.pages


def test_batches_grow_where_modification_is_on_and_everything_works() -> None:
    small = world({(A, "x"): 1.0})
    assert hours(Switches(modification=True), small).play().batches < hours(Switches(), small).play().batches * 0.5


def test_scheduling_finds_the_node_that_works() -> None:
    small = world({(node, "x"): 1.0 for node in (A, B, C)}, (A, "x"), (B, "x"))
    brought = {on: hours(Switches(scheduling=on), small).play().pages.total() for on in (False, True)}
    assert brought[True] > 2 * brought[False]


def test_at_home_is_where_a_node_is_better_than_the_others() -> None:
    # The site y is faster for both; x is where A is better.
    small = world({(A, "x"): 2.0, (B, "x"): 8.0, (A, "y"): 1.0, (B, "y"): 1.0})
    pages = Counter({(0, A, "x"): 3, (0, A, "y"): 1, (1, A, "y"): 9, (0, B, "y"): 5})
    assert at_home(small, pages, [0]) == {A: 0.75, B: 1.0}
    assert at_home(small, pages, [1]) == {A: 0.0}, "B brought nothing"
    assert by_the_best(small, Counter({(0, A, "x"): 3, (0, B, "x"): 1}), [0]) == 0.75


def test_the_quick_runs_have_every_row_and_no_verdict(tmp_path: Path) -> None:
    options = Options(quick=True, plots=tmp_path)
    rows = [row for experiment in sites.EXPERIMENTS for row in experiment.run(options)]
    assert {(row.paper, row.met, row.seeds) for row in rows} == {("P2", None, 1)}
    assert [row.target for row in rows if row.target] == [
        "1.3 times as fast",
        "1.4 times as fast",
        "at most 1.3 times as long",
        "none, none",
        "each ≥ 0",
        "each ≥ 0",
    ]
    assert sum(row.claim == "scheduling > modification > recall" for row in rows) == 2
    assert "each node specialises on the sites it completes best" in {row.claim for row in rows}
    assert {path.name for path in tmp_path.iterdir()} == {"sites-specialise.svg"}
