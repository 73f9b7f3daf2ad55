"""What the coordinator makes of what the nodes report."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import dist
from typing import Any

import msgpack
import numpy as np
import pytest

from dhtcrawl.policy.balanced import WEIGHT_MAX, Rates
from dhtcrawl.policy.bp_pso.planner import MODES, SAMPLES_MIN, VECTOR, Split
from dhtcrawl.policy.contract import node, settings
from dhtcrawl.policy.gnp.landmarks import well_apart
from dhtcrawl.policy.gnp.planner import SIGHTS_MIN, Atlas
from dhtcrawl.policy.gnp.policy import FORGIVEN_S, TOLD_S, Gnp
from dhtcrawl.policy.gnp.space import ROUNDS, Array
from dhtcrawl.policy.seam import BATCH, PLAN_TABLE_BYTES_MAX, Candidate, Outcome, Planner, PolicyTask, TaskResult

# What a node of another version, or a hostile one, may report.
RUBBISH: list[dict[str, Any]] = [
    {},
    {"vector": None, "batches": 3, "rate": "fast", "open": -1, "rtts": [], "probes": None},
    {"vector": {"cores": float("nan")}, "batches": [None, (1,), ("a", "b"), (0, 1), (1, -1)], "rate": float("inf")},
    {"rtts": {"x": 1, node(0): -1, node(1): True, node(2): float("nan")}, "probes": {1: 2, "a.test": "b"}},
]


def machine(speed: float, batches: int = 0) -> dict[str, Any]:
    """A node that takes 1 / speed seconds a page, and has said so as often."""
    vector = dict(zip(VECTOR, (4.0, 2000.0 * speed, 4e9, 1e6 * speed, 5e7), strict=True))
    return {
        "vector": vector,
        "batches": [(n, n / speed) for n in range(5, 5 + 7 * batches, 7)],
        "rate": speed,
        "open": 100,
    }


@pytest.mark.parametrize("mode", MODES)
def test_who_is_faster_gets_more(mode: str) -> None:
    nodes = {node(n): machine(1.0 + n, SAMPLES_MIN) for n in range(3)}
    shares = Split({"mode": mode}).plan(nodes, {}, 0.0)["shares"]
    assert sum(shares.values()) == pytest.approx(300)
    if mode in ("auto", "rates", "net", "exact"):
        assert [shares[node(n)] for n in range(3)] == pytest.approx([50, 100, 150], abs=8)


def curved(speed: float, batches: int = 16) -> dict[str, Any]:
    """A node that takes longer for a page the more of them it has: √n, as rates cannot tell."""
    report = machine(speed)
    pages = [5 + 11 * (number % 7) + number % 3 for number in range(batches)]
    return report | {"batches": [(n, n**1.5 / speed) for n in pages]}


def test_a_net_makes_the_plan_where_it_is_better_on_batches_that_it_has_not_seen() -> None:
    nodes = {node(n): curved(1.0 + n) for n in range(3)}
    made = Split().plan(nodes, {}, 0.0)["made"]
    assert (made["model"], made["samples"], made["plans"]) == ("net", 48, {"net": 1})
    assert made["error"] == made["errors"]["net"] < 0.06
    assert made["errors"]["rates"] > 0.2
    even = {node(n): machine(1.0 + n, 20) for n in range(3)}
    made = Split().plan(even, {}, 0.0)["made"]
    assert (made["model"], made["error"]) == ("rates", 0.0), "what rates tell exactly, a net cannot tell better"


@pytest.mark.parametrize(("mode", "model"), [("rates", "rates"), ("net", "net"), ("pso", "net"), ("paper", "paper")])
def test_a_mode_is_kept_to_whichever_model_is_better(mode: str, model: str) -> None:
    for nodes in ({node(n): curved(1.0 + n) for n in range(3)}, {node(n): machine(1.0 + n, 20) for n in range(3)}):
        made = Split({"mode": mode}).plan(nodes, {}, 0.0)["made"]
        assert made["model"] == model
        assert made["errors"].keys() == {"rates", model}
        assert made["error"] == made["errors"][model]


@pytest.mark.parametrize("mode", MODES)
def test_rates_serve_in_every_mode_where_a_net_cannot_and_the_plan_says_so(mode: str) -> None:
    few = {node(n): machine(1.0 + n, 3) for n in range(3)}
    made = Split({"mode": mode}).plan(few, {}, 0.0)["made"]
    assert made == {"model": "rates", "samples": 9, "errors": {}, "plans": {"rates": 1}}, "there is nothing to judge by"
    unknown = {node(n): curved(1.0 + n) | {"vector": {}} for n in range(3)}
    made = Split({"mode": mode}).plan(unknown, {}, 0.0)["made"]
    assert (made["model"], made["errors"].keys()) == ("rates", {"rates"})


@pytest.mark.parametrize("mode", ["rates", "paper"])
def test_a_mode_without_our_net_plans_where_scipy_is_missing(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("scipy", "scipy.optimize"):
        monkeypatch.setitem(sys.modules, module, None)
    made = Split({"mode": mode}).plan({node(n): curved(1.0 + n) for n in range(3)}, {}, 0.0)["made"]
    assert made["model"] == mode


def test_plans_are_counted_by_what_made_them() -> None:
    slow = {node(n): machine(1.0 + n) for n in range(3)}
    first = Split().plan(slow, {}, 0.0)
    second = Split().plan({node(n): curved(3.0 - n) for n in range(3)}, first, 0.0)
    assert second["made"]["plans"] == {"rates": 1, "net": 1}
    rubbish = first | {"made": {"plans": {"net": -3, "rates": "many", "oracle": 7}}}
    assert Split().plan(slow, {"made": 3}, 0.0)["made"]["plans"] == {"rates": 1}
    assert Split().plan({node(n): curved(3.0 - n) for n in range(3)}, rubbish, 0.0)["made"]["plans"] == {"net": 1}


@pytest.mark.parametrize("mode", ["auto", "rates", "net"])
def test_no_share_swings_while_its_machine_is_the_same(mode: str) -> None:
    """Whatever the batches say: a node that was said to be the fastest is said to be the slowest, and back."""
    table: dict[str, Any] = {}
    for turn in range(4):
        speeds = [(1.0, 2.0, 30.0), (30.0, 2.0, 1.0)][turn % 2]
        nodes = {node(n): curved(speed) | {"vector": machine(1.0 + n)["vector"]} for n, speed in enumerate(speeds)}
        last, table = table, Split({"mode": mode}).plan(nodes, table, 0.0)
        assert sum(table["shares"].values()) == pytest.approx(300)
        for who, share in last.get("shares", {}).items():
            assert 0.75 - 1e-6 <= table["shares"][who] / share <= 1.25 + 1e-6
    assert sum(table["made"]["plans"].values()) == 4


def test_a_machine_that_changed_has_what_is_predicted_at_once() -> None:
    nodes = {node(n): machine(1.0) for n in range(3)}
    first = Split().plan(nodes, {}, 0.0)
    faster = machine(8.0)
    same = Split().plan(nodes | {node(0): faster | {"vector": nodes[node(0)]["vector"]}}, first, 0.0)
    assert same["shares"][node(0)] == pytest.approx(125)
    other = Split().plan(nodes | {node(0): faster}, first, 0.0)
    assert other["shares"] == {node(0): 240, node(1): 30, node(2): 30}
    came = Split().plan(nodes | {node(3): faster}, first, 0.0)
    assert came["shares"][node(3)] == pytest.approx(8 / 11 * 400, abs=2)


def test_before_there_is_anything_to_learn_from_the_rates_serve() -> None:
    nodes = {node(n): machine(1.0 + n) for n in range(3)}
    assert Split().plan(nodes, {}, 0.0)["shares"] == {node(0): 50, node(1): 100, node(2): 150}
    unknown = nodes | {node(3): {}}
    assert Split().plan(unknown, {}, 0.0)["shares"][node(3)] == pytest.approx(43, abs=1), "as the slowest"
    assert Split().plan({node(0): {}}, {}, 0.0) == {}


def test_a_plan_that_is_hardly_better_is_not_published() -> None:
    nodes = {node(n): machine(1.0 + n) for n in range(3)}
    first = Split().plan(nodes, {}, 0.0)
    slightly = nodes | {node(0): machine(1.05)}
    assert Split().plan(slightly, first, 1.0) == first
    much = nodes | {node(0): machine(3.0)}
    assert Split().plan(much, first, 1.0) != first
    gone = {who: report for who, report in nodes.items() if who != node(2)}
    assert node(2) not in Split().plan(gone, first, 1.0)["shares"], "who is gone changes the plan whatever it brings"


def test_a_model_that_was_asked_for_makes_a_plan_as_soon_as_it_can() -> None:
    """However little better: else a plan of the first minute by rates stays, and the net that was asked for is idle."""
    few = {node(n): machine(1.0 + n, 3) for n in range(3)}
    enough = {node(n): machine(1.0 + n, 20) for n in range(3)}
    for mode, model in (("net", "net"), ("pso", "net"), ("paper", "paper")):
        first = Split({"mode": mode}).plan(few, {}, 0.0)
        second = Split({"mode": mode}).plan(enough, first, 1.0)
        assert second["made"]["plans"] == {"rates": 1, model: 1}
        for who, share in first["shares"].items():
            assert mode == "paper" or 0.75 - 1e-6 <= second["shares"][who] / share <= 1.25 + 1e-6
    assert Split({"mode": "net"}).plan(enough, second := Split({"mode": "net"}).plan(enough, first, 1.0), 2.0) == second
    for mode in ("auto", "rates"):
        first = Split({"mode": mode}).plan(few, {}, 0.0)
        assert Split({"mode": mode}).plan(enough, first, 1.0) == first, "the other model would change nothing"


def test_a_finite_job_has_quotas() -> None:
    nodes = {node(n): machine(1.0) | {"finite": True} for n in range(2)}
    assert Split().plan(nodes, {}, 0.0)["finite"]
    nodes[node(0)]["finite"] = False
    assert not Split().plan(nodes, {}, 0.0)["finite"]


def test_weights_are_rates_within_bounds() -> None:
    nodes: dict[bytes, dict[str, Any]] = {
        node(0): {"rate": 2.0},
        node(1): {"rate": 4.0},
        node(2): {"rate": 1e6},
        node(3): {},
    }
    weights = Rates().plan(nodes, {}, 0.0)["weights"]
    assert weights == {node(0): 0.5, node(1): 1.0, node(2): WEIGHT_MAX, node(3): 1.0}
    assert Rates().plan({node(0): {}}, {}, 0.0) == {}


def test_weights_stay_while_the_last_ones_serve() -> None:
    first = Rates().plan({node(0): {"rate": 2.0}, node(1): {"rate": 4.0}}, {}, 0.0)
    slightly = {node(0): {"rate": 2.1}, node(1): {"rate": 4.0}}
    assert Rates().plan(slightly, first, 1.0) == first
    assert Rates().plan({**slightly, node(0): {"rate": 3.0}}, first, 1.0) != first
    assert Rates().plan({**slightly, node(2): {}}, first, 1.0)["weights"].keys() == {node(0), node(1), node(2)}
    assert Rates().plan(slightly, {"weights": {node(0): "x", node(1): 1}}, 1.0)["weights"][node(1)] == 1.0


def test_a_site_is_given_to_those_who_are_near_it() -> None:
    rng = np.random.default_rng(1)
    places = rng.uniform(0, 0.2, (20, 2))
    site = np.array([0.05, 0.15])
    away = np.sqrt(((places - site) ** 2).sum(axis=1))
    nodes = {
        node(i): {
            "rtts": {node(j): float(np.sqrt(((places[i] - places[j]) ** 2).sum())) + 1e-4 for j in range(20) if j != i},
            "probes": {"a.test": float(away[i])} if i % 3 == 0 else {},
        }
        for i in range(20)
    }
    table = Atlas().plan(nodes, {}, 0.0)
    assert len(table["nodes"]) == 20
    policy = Gnp(settings())
    policy.adopt(table)
    ranked = policy.rank(PolicyTask(bytes(20), "a.test"), [Candidate(node(i)) for i in range(20)], 0.0)
    real = sorted(range(20), key=lambda i: float(away[i]))
    assert len({node(i) for i in real[:5]} & set(ranked[:3])) >= 2
    # Somebody measures a little less: the same three are nearest, and nothing is published.
    nodes[node(0)]["probes"] = {"a.test": float(away[0]) * 0.999}
    assert Atlas().plan(nodes, table, 1.0) == table
    nodes[node(1)]["probes"] = {"b.test": 0.1}
    for number in (2, 4, 5):
        nodes[node(number)]["probes"] = {"b.test": 0.1}
    assert Atlas().plan(nodes, table, 1.0)["sites"].keys() == {"a.test", "b.test"}


def test_sites_get_their_own_places_however_often_they_were_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dhtcrawl.policy.gnp.planner.TOGETHER", 2)
    rng = np.random.default_rng(1)
    places, hosts = rng.uniform(0, 0.2, (16, 2)), [f"{letter}.test" for letter in "abcdefg"]
    # Each site lies beside another node, and is measured by every node, every second one, or every third.
    steps = {host: 1 + number % 3 for number, host in enumerate(hosts)}
    nodes = {
        node(i): {
            "rtts": {node(j): float(np.hypot(*(places[i] - places[j]))) for j in range(16) if j != i},
            "probes": {
                host: float(np.hypot(*(places[i] - places[at]))) + 1e-3
                for at, host in enumerate(hosts)
                if i % steps[host] == 0
            },
        }
        for i in range(16)
    }
    table = Atlas().plan(nodes, {}, 0.0)
    assert table["sites"].keys() == set(hosts)
    for at, host in enumerate(hosts):
        off = np.array(table["sites"][host]) - np.array(table["nodes"][node(at)])
        assert np.sqrt(off @ off) < 0.02


def test_a_site_that_few_have_seen_has_no_place() -> None:
    rtts = {node(j): 0.1 for j in range(5)}
    nodes = {node(i): {"rtts": rtts, "probes": {"a.test": 0.1} if i < SIGHTS_MIN - 1 else {}} for i in range(5)}
    assert Atlas().plan(nodes, {}, 0.0)["sites"] == {}
    assert Atlas().plan({node(0): {}}, {}, 0.0) == {}


def test_places_of_hundreds_of_nodes_take_no_more_samples_than_those_of_a_hundred(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    samples: list[int] = []

    def counted(pairs: Array, rtts: Array, count: int, rng: object, *, rounds: int = ROUNDS) -> Array:
        samples.append(len(pairs) * rounds)
        return np.zeros((count, 2))

    monkeypatch.setattr("dhtcrawl.policy.gnp.space.vivaldi", counted)
    for count in (90, 300):
        rtts = {node(number): 0.1 for number in range(count)}
        Atlas().plan({who: {"rtts": rtts} for who in rtts}, {}, 0.0)
    assert samples[0] == 90 * 89 * ROUNDS
    assert samples[1] < 1.1 * samples[0]


def test_all_of_many_nodes_have_a_place_where_each_reports_the_same_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dhtcrawl.policy.gnp.planner.PAIRS_MAX", 300)
    ids = sorted(node(number) for number in range(40))
    table = Atlas().plan({who: {"rtts": dict.fromkeys(ids[:20], 0.1)} for who in ids}, {}, 0.0)
    assert table["nodes"].keys() == set(ids)


def test_a_table_can_be_sent_however_many_sites_there_are() -> None:
    rtts, probes = {node(j): 0.1 for j in range(4)}, {f"{number}.test": 0.1 for number in range(5_000)}
    nodes = {node(i): {"rtts": rtts, "probes": probes} for i in range(4)}
    table = Atlas().plan(nodes, {}, 0.0)
    assert 0.9 * PLAN_TABLE_BYTES_MAX < len(msgpack.packb(table)) <= PLAN_TABLE_BYTES_MAX
    assert len(table["sites"]) > 4_000


@pytest.mark.parametrize("planner", [Rates, Split, Atlas])
def test_a_planner_is_not_thrown_by_what_it_is_told(planner: type[Planner]) -> None:
    good = {node(n): machine(1.0 + n, 10) | {"rtts": {node(0): 0.1}} for n in range(5)}
    bad = {node(10 + n): report for n, report in enumerate(RUBBISH)}
    for before in (
        {},
        {"shares": 3},
        {"shares": {node(0): "x"}},
        {"nodes": [], "sites": {"a": 1}},
        {"weights": {1: 2}},
    ):
        planner().plan(bad, before, 0.0)
        table = planner().plan(good | bad, before, 0.0)
        assert table == planner().plan(dict(reversed((good | bad).items())), before, 0.0), (
            "in whatever order it is told"
        )


@pytest.mark.parametrize("wild", [(1e-300, 1e14), (1e14, 1e-300), (1.0, 1e-310), (0.5, 1.0)])
def test_batches_that_no_node_can_have_finished_teach_nothing(wild: tuple[float, float]) -> None:
    nodes = {node(n): machine(1.0 + n, 12) for n in range(3)}
    without = Split().plan(nodes | {node(1): nodes[node(1)] | {"batches": []}}, {}, 0.0)
    assert Split().plan(nodes | {node(1): nodes[node(1)] | {"batches": [wild] * 9}}, {}, 0.0) == without


@pytest.mark.parametrize("planner", [Rates, Split, Atlas])
def test_no_nodes_no_plan(planner: type[Planner]) -> None:
    assert planner().plan({}, {}, 0.0) == {}


def square(places: dict[int, tuple[float, float]]) -> dict[bytes, dict[str, Any]]:
    """What nodes at these places report, all of one another."""
    return {
        node(one): {"rtts": {node(other): dist(at, there) for other, there in places.items() if other != one}}
        for one, at in places.items()
    }


def test_landmarks_lie_well_apart_and_place_the_others() -> None:
    corners = {0: (0.0, 0.0), 1: (1.0, 0.0), 2: (0.0, 1.0), 3: (1.0, 1.0)}
    places = corners | {n: (0.4 + 0.01 * n, 0.5) for n in range(4, 14)}
    reports = square(places)
    plan = Atlas({"space": "landmarks"}).plan(reports, {}, 0.0)
    assert plan["nodes"].keys() == reports.keys()
    off = [
        abs(dist(plan["nodes"][node(a)], plan["nodes"][node(b)]) - dist(places[a], places[b]))
        for a in places
        for b in places
        if a < b
    ]
    assert max(off) < 0.05
    pairs = [(a, b) for a in range(14) for b in range(14) if a != b]
    table = np.full((14, 14), np.inf)
    for a, b in pairs:
        table[a, b] = dist(places[a], places[b])
    assert set(well_apart(table)[:4]) == set(corners)


def test_where_too_few_know_each_other_there_are_no_landmarks() -> None:
    reports = {node(n): {"rtts": {node(n + 1): 0.1, node((n + 2) % 6): 0.1}} for n in range(5)} | {node(5): {}}
    assert Atlas({"space": "landmarks"}).plan(reports, {}, 0.0)["nodes"].keys() == reports.keys()


@pytest.mark.parametrize(("choice", "first", "others"), [("top1", 1, ()), ("least-loaded", 3, (1, 2))])
def test_gnp_chooses_as_it_is_told(choice: str, first: int, others: tuple[int, ...]) -> None:
    policy = Gnp(replace(settings(), options={"choice": choice}))
    policy.adopt({"nodes": {node(n): [float(n)] for n in range(1, 6)}, "sites": {"a.test": [0.0]}})
    lent = {1: 9, 2: 5, 3: 0, 4: 0, 5: 0}
    ranked = policy.rank(PolicyTask(bytes(20), "a.test"), [Candidate(node(n), lent[n]) for n in range(1, 6)], 0.0)
    assert ranked[0] == node(first)
    assert set(ranked[1:]) == {node(n) for n in others}, "what it has no room for waits for it as published"
    after = policy.rank(PolicyTask(bytes(20), "a.test", (node(1),)), [Candidate(node(n)) for n in range(1, 6)], 0.0)
    assert (set(after[:3]), after[3:]) == ({node(2), node(3), node(4)}, [node(5), node(1)])


@pytest.mark.parametrize("choice", ["top1", "top3"])
def test_the_papers_choices_are_kept_to_where_the_node_is_busy(choice: str) -> None:
    policy = Gnp(replace(settings(), options={"choice": choice}))
    policy.adopt({"nodes": {node(n): [n / 10] for n in range(1, 6)}, "sites": {"a.test": [0.0]}})
    tasks = [PolicyTask(bytes([number]) * 20, "a.test") for number in range(60)]
    there = [Candidate(node(n), 9, 9) for n in range(1, 4)] + [Candidate(node(n)) for n in range(4, 6)]
    ranks = [policy.rank(task, there, now) for now in (0.0, 100.0) for task in tasks]
    assert {len(each) for each in ranks} == {1}
    assert {each[0] for each in ranks} == {node(n) for n in ((1,) if choice == "top1" else (1, 2, 3))}


def at_a_site(delay_s: float = 0.0) -> Gnp:
    """Nodes 1 to 5 are at 0.1 to 0.5 s from it."""
    policy = Gnp(replace(settings(), delay_s=delay_s))
    policy.adopt({"nodes": {node(n): [n / 10] for n in range(1, 6)}, "sites": {"a.test": [0.0]}})
    return policy


def ranked(policy: Gnp, now: float, recalled: tuple[bytes, ...] = ()) -> list[int]:
    """The numbers of the nodes in the order of a ranking."""
    numbers = {node(n): n for n in range(1, 6)}
    task = PolicyTask(bytes(20), "a.test", recalled=recalled)
    return [numbers[each] for each in policy.rank(task, [Candidate(each) for each in numbers], now)]


def brought(policy: Gnp, number: int, held_s: float, now: float) -> None:
    """A node has brought a page in 0.1 s, and has had its task for so long."""
    policy.heard(Outcome(node(number), "a.test", TaskResult.PAGE, 0.1, held_s=held_s), now)


def test_what_the_three_nearest_have_no_room_for_waits_until_it_would_come_sooner_from_farther_away() -> None:
    policy = at_a_site()
    assert set(ranked(policy, 0.0)) == {1, 2, 3}
    for number in (1, 2):
        brought(policy, number, 2.0, 10.0)
    assert set(ranked(policy, 10.0)) == {1, 2, 3}, "one of the three keeps nobody waiting"
    brought(policy, 3, 1.2, 10.0)
    # At node 3 a task waits 1.1 s. Node 4 is 0.3 s farther than node 1 and node 5 0.4 s, of three round trips each.
    assert ranked(policy, 10.0)[3:] == [4]
    brought(policy, 3, 2.0, 20.0)
    assert ranked(policy, 20.0)[3:] == [4, 5]
    brought(policy, 4, 2.0, 20.0)
    assert ranked(policy, 20.0)[3:] == [5], "node 4 is as busy as they are"


def test_nodes_that_have_tasks_and_bring_nothing_keep_them_waiting() -> None:
    policy, task = at_a_site(), PolicyTask(bytes(20), "a.test")
    there = [Candidate(node(n), int(n < 4), int(n < 4)) for n in range(1, 6)]
    assert len(policy.rank(task, there, 0.0)) == len(policy.rank(task, there, TOLD_S + 0.8)) == 3
    assert policy.rank(task, there, TOLD_S + 1.0)[3:] == [node(4)]
    assert policy.rank(task, there, TOLD_S + 1.3)[3:] == [node(4), node(5)]
    assert len(policy.rank(task, [Candidate(each.node) for each in there], TOLD_S + 1.3)) == 3, "they have room"


@pytest.mark.parametrize("delay_s", [0.0, 1.0])
def test_a_node_that_had_no_time_for_a_site_is_passed_over_until_it_brings_a_page(delay_s: float) -> None:
    policy = at_a_site(delay_s)
    policy.heard(Outcome(node(1), "a.test", TaskResult.RECALLED, 60.0), 60.0)
    first = [2] if delay_s else [2, 3, 4]
    assert sorted(ranked(policy, 60.0)) == first
    assert sorted(ranked(policy, 60.0 + FORGIVEN_S)) == sorted([1, *first[:-1]])
    policy.heard(Outcome(node(1), "a.test", TaskResult.PAGE, 0.1), 61.0)
    assert 1 in ranked(policy, 61.0)


def test_what_was_recalled_may_go_to_any_node() -> None:
    for delay_s in (0.0, 1.0):
        assert sorted(ranked(at_a_site(delay_s), 0.0, (node(1),))) == [1, 2, 3, 4, 5]


def test_where_hosts_have_a_delay_only_the_nearest_node_is_asked_and_has_few_tasks_at_a_time() -> None:
    policy = at_a_site(1.0)
    assert ranked(policy, 0.0) == [1]
    assert policy.terms(node(1), "a.test").batch < BATCH / 5


def test_a_node_that_has_not_reported_yet_is_placed_by_the_others() -> None:
    places = {n: (0.1 * (n % 3), 0.05 * (n // 3)) for n in range(9)}
    reports = square(places)
    reports[node(4)] = {}
    found = Atlas().plan(reports, {}, 0.0)["nodes"]
    assert all(abs(dist(found[node(4)], found[node(n)]) - dist(places[4], places[n])) < 0.02 for n in places if n != 4)


def test_a_plan_is_new_when_the_nearest_of_the_three_is_another() -> None:
    def reports(first: float, second: float) -> dict[bytes, dict[str, Any]]:
        """Nodes on a line, the first three beside the site."""
        places = {0: (0.0, 0.0), 1: (0.04, 0.0), 2: (0.09, 0.0), 3: (0.3, 0.0), 4: (0.4, 0.0)}
        sights = {0: first, 1: second, 2: 0.09 - first, 3: 0.3 - first, 4: 0.4 - first}
        return {
            each: report | {"probes": {"a.test": sights[number]}}
            for number, (each, report) in enumerate(square(places).items())
        }

    before = Atlas().plan(reports(0.005, 0.035), {}, 0.0)
    assert Atlas().plan(reports(0.006, 0.034), before, 1.0) == before
    assert Atlas().plan(reports(0.035, 0.005), before, 1.0) != before


def test_where_hosts_have_a_delay_the_nearest_node_has_a_batch_more_than_the_others() -> None:
    policy = Gnp(replace(settings(), delay_s=1.0))
    policy.adopt({"nodes": {node(n): [float(n)] for n in range(1, 6)}, "sites": {"a.test": [0.0]}})
    for lent, first in ((BATCH - 1, 1), (BATCH, 2)):
        candidates = [Candidate(node(n), lent if n == 1 else 0) for n in range(1, 6)]
        assert policy.rank(PolicyTask(bytes(20), "a.test"), candidates, 0.0)[0] == node(first)
