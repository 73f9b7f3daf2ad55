"""What `dynamic` learns, how much it lets a node have, and which types of nodes it asks."""

from __future__ import annotations

from typing import Any

import pytest

from dhtcrawl.policy.contract import OWN, node, nodes, task
from dhtcrawl.policy.dynamic import Dynamic
from dhtcrawl.policy.guard import Guard
from dhtcrawl.policy.node_types import Types, types_in
from dhtcrawl.policy.seam import Candidate, Outcome, Planner, Settings, TaskResult
from dhtcrawl.policy.xor import Xor


def test_tasks_go_to_nodes_of_the_type_only() -> None:
    policy = Dynamic(Settings(OWN, {"type": "meta"}))
    assert policy.planner is Types
    assert policy.rank(task(1), nodes(4), 0.0) == [], "until it is known which those are"
    reports: dict[bytes, dict[str, Any]] = {
        node(0): {"labels": {"type": "meta"}},
        node(1): {"labels": {"type": "blog"}},
        node(2): {"labels": {}},
    }
    policy.adopt(Types().plan({**reports, node(3): {"labels": {"type": "meta"}}}, {}, 0.0))
    assert sorted(policy.rank(task(1), nodes(4), 0.0)) == sorted([node(0), node(3)])


def test_types_are_told_beside_the_plan_of_another_planner() -> None:
    class Other(Planner):
        wants = ("rate", "labels")

        def plan(self, nodes: Any, before: Any, now: float) -> dict[str, Any]:
            return {"weights": len(nodes)}

    planner = Types(beside=Other())
    assert planner.wants == ("labels", "rate")
    table = planner.plan({node(0): {"labels": {"type": "meta"}}, node(1): {}}, {}, 0.0)
    assert table == {"weights": 2, "types": {node(0): "meta"}}
    assert types_in(table) == {node(0): "meta"}
    assert types_in({"types": 3}) == types_in({}) == {}


def test_who_has_not_reported_to_a_new_coordinator_is_of_the_type_that_it_was_of() -> None:
    class Other(Planner):
        def plan(self, nodes: Any, before: Any, now: float) -> dict[str, Any]:
            return {}

    before = {"weights": 2, "types": {node(0): "meta", node(1): "meta", node(2): "meta", node(3): "meta"}}
    reports: dict[bytes, dict[str, Any]] = {node(0): {}, node(1): {"labels": {}}, node(2): {"labels": {"type": "blog"}}}
    table = Types(beside=Other()).plan(reports, before, 0.0)
    assert table["types"] == {node(0): "meta", node(2): "blog"}
    assert table["weights"] == 2, "no plan beside the types leaves the last one"


def test_where_one_type_may_ask_a_host_owners_do_not_try_first() -> None:
    assert Guard(Xor(Settings(OWN))).owner_first
    assert not Guard(Xor(Settings(OWN, types={"a.example": "meta"}))).owner_first


def test_without_a_type_labels_mean_nothing_and_nothing_is_planned() -> None:
    for policy in (Dynamic(Settings(OWN)), Dynamic(Settings(OWN, {"type": ""}))):
        assert policy.planner is None
        policy.adopt({"types": {node(0): "meta"}})
        assert len(policy.rank(task(1), nodes(4), 0.0)) == 4


def test_labels_may_be_anything() -> None:
    plan = Types().plan({node(0): {"labels": 3}, node(1): {}, node(2): {"labels": {"type": 7}}}, {}, 0.0)
    assert plan == {"types": {}}
    policy = Dynamic(Settings(OWN, {"type": "meta"}))
    policy.adopt({"types": 4})
    assert policy.rank(task(1), nodes(2), 0.0) == []


A, B = node(0), node(1)


def heard(policy: Dynamic, of: bytes, result: TaskResult, seconds: float, *times: float) -> None:
    for now in times:
        policy.heard(Outcome(of, "a.test", result, seconds, held_s=seconds), now)


def rank(policy: Dynamic, now: float, *candidates: Candidate) -> list[bytes]:
    return policy.rank(task(1)._replace(host="a.test"), candidates, now)


def test_a_batch_doubles_until_one_is_not_done_well_and_grows_by_five_from_then_on() -> None:
    policy = Dynamic(Settings(OWN))
    sizes = []
    for good in (True, True, False, True, True):
        batch = policy.terms(A, "a.test").batch
        sizes.append(batch)
        heard(policy, A, TaskResult.PAGE if good else TaskResult.FAILED, 1.0, *map(float, range(batch)))
    assert sizes == [5, 10, 20, 10, 15]


def test_what_is_recalled_at_once_is_five_failures_and_says_nothing_of_how_long_an_attempt_takes() -> None:
    one, many = Dynamic(Settings(OWN)), Dynamic(Settings(OWN))
    for policy, count in ((one, 1), (many, 50)):
        heard(policy, A, TaskResult.PAGE, 1.0, *map(float, range(20)))
        heard(policy, A, TaskResult.RECALLED, 90.0, *[100.0] * count)
    assert one.score(A, "a.test") == many.score(A, "a.test")
    failing = Dynamic(Settings(OWN))
    heard(failing, A, TaskResult.PAGE, 1.0, *map(float, range(20)))
    heard(failing, A, TaskResult.FAILED, 1.0, *map(float, range(20, 25)))
    assert failing.score(A, "a.test") == pytest.approx(one.score(A, "a.test"), rel=0.1), "but for what is known of it"
    assert many.seconds(A, "a.test") == 1.0
    assert many.pace_s(A) == one.pace_s(A) < 20.0
    assert many.terms(A, "a.test").batch == one.terms(A, "a.test").batch == 10, "half of twenty"


def test_a_node_is_idle_after_ten_pages_time_of_20_to_60_s_and_after_twice_that_once_it_was_recalled() -> None:
    policy = Dynamic(Settings(OWN))
    assert policy.terms(A, "a.test").idle_s == 60.0
    for seconds, idle_s in ((0.1, 20.0), (4.0, 40.0), (30.0, 60.0)):
        policy = Dynamic(Settings(OWN))
        heard(policy, A, TaskResult.PAGE, seconds, 1.0)
        heard(policy, A, TaskResult.UNREACHABLE, 10.0, 2.0)
        assert policy.terms(A, "a.test").idle_s == idle_s, "what fails says nothing of how long a page takes"
    heard(policy, A, TaskResult.PAGE, 0.1, 3.0)
    assert policy.terms(A, "a.test").idle_s == 60.0, "of thirty seconds and a tenth of one"
    policy = Dynamic(Settings(OWN))
    heard(policy, A, TaskResult.PAGE, 0.1, 3.0)
    for now, idle_s in ((33.0, 40.0), (83.0, 60.0), (150.0, 60.0)):
        heard(policy, A, TaskResult.RECALLED, 30.0, now)
        assert policy.terms(A, "a.test").idle_s == idle_s
    heard(policy, A, TaskResult.PAGE, 0.1, 200.0)
    assert policy.terms(A, "a.test").idle_s == 20.0
    assert (policy.recalls_max, policy.recall_idle_s) == (5, 60.0), "the paper's"


def test_a_task_goes_where_it_is_done_first_and_not_to_the_best_with_a_long_line() -> None:
    policy = Dynamic(Settings(OWN))
    for number in range(1, 21):
        heard(policy, A, TaskResult.PAGE, 1.0, float(number))
        heard(policy, B, TaskResult.PAGE, 3.0, *[float(number)] * (number % 3 == 0))
    assert rank(policy, 21.0, Candidate(A), Candidate(B)) == [A, B]
    assert rank(policy, 21.0, Candidate(A, 2, 2), Candidate(B, 1, 0)) == [A, B], "three seconds, or three at least"
    assert rank(policy, 21.0, Candidate(A, 4, 4), Candidate(B, 1, 0)) == [B, A]
    assert rank(policy, 21.0, Candidate(A, 90, 0), Candidate(B, 1, 0)) == [A, B], "these wait for their hosts"


def test_a_node_has_no_more_at_work_than_it_does_in_a_moment() -> None:
    policy = Dynamic(Settings(OWN))
    assert policy.terms(A, "a.test").at_work_max == 1, "until it is known how fast it is"
    heard(policy, A, TaskResult.PAGE, 0.5, *(0.5 * number for number in range(40)))
    heard(policy, B, TaskResult.PAGE, 30.0, *(30.0 * number for number in range(40)))
    assert policy.terms(A, "a.test").at_work_max == 10
    assert policy.terms(B, "a.test").at_work_max == 1
    waits = Dynamic(Settings(OWN))
    for turn in range(5):
        heard(waits, A, TaskResult.PAGE, 20.0, *[21.0 * (turn + 1)] * 2**turn)
    assert waits.terms(A, "a.test").at_work_max >= 16, "as many are under way as the pace needs, however slow a page is"


def test_time_in_which_a_node_had_nothing_says_nothing_of_how_fast_it_is() -> None:
    policy = Dynamic(Settings(OWN))
    heard(policy, A, TaskResult.PAGE, 1.0, *map(float, range(10)))
    rank(policy, 500.0, Candidate(A, 0))
    heard(policy, A, TaskResult.PAGE, 1.0, 501.0)
    assert policy.terms(A, "a.test").at_work_max == 5


def test_the_papers_own_never_tries_again_what_was_bad_and_counts_each_task_of_a_recalled_batch() -> None:
    paper, mended = (Dynamic(Settings(OWN, {"mode": mode})) for mode in ("paper", "mended"))
    for policy in (paper, mended):
        heard(policy, A, TaskResult.UNREACHABLE, 10.0, 0.0)
        heard(policy, B, TaskResult.PAGE, 9.0, *map(float, range(1, 500)))
    assert paper.score(A, "a.test") == 0.0
    assert mended.score(A, "a.test") > 0.85 * mended.score(B, "a.test")
    terms = paper.terms(node(2), "a.test")
    assert (terms.batch, terms.idle_s) == (20, 60.0)
    before = paper.score(B, "a.test")
    heard(paper, B, TaskResult.RECALLED, 60.0, *[600.0] * 20)
    assert paper.score(B, "a.test") < 0.2 * before
    assert rank(paper, 601.0, Candidate(B, 50, 50), Candidate(A)) == [B, A], "how much a node has means nothing"
