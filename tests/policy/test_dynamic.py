"""Node types of `dynamic`: tasks go to nodes of the crawl's type, as their labels say."""

from __future__ import annotations

from typing import Any

from dhtcrawl.policy.contract import OWN, node, nodes, task
from dhtcrawl.policy.dynamic import Dynamic
from dhtcrawl.policy.guard import Guard
from dhtcrawl.policy.node_types import Types, types_in
from dhtcrawl.policy.seam import Planner, Settings
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


def test_where_one_type_may_ask_a_host_owners_do_not_try_first() -> None:
    assert Guard(Xor(Settings(OWN))).owner_first
    assert not Guard(Xor(Settings(OWN, types={"a.example": "meta"}))).owner_first


def test_without_a_type_labels_mean_nothing_and_nothing_is_planned() -> None:
    policy = Dynamic(Settings(OWN))
    assert policy.planner is None
    policy.adopt({"types": {node(0): "meta"}})
    assert len(policy.rank(task(1), nodes(4), 0.0)) == 4


def test_labels_may_be_anything() -> None:
    plan = Types().plan({node(0): {"labels": 3}, node(1): {}, node(2): {"labels": {"type": 7}}}, {}, 0.0)
    assert plan == {"types": {}}
    policy = Dynamic(Settings(OWN, {"type": "meta"}))
    policy.adopt({"types": 4})
    assert policy.rank(task(1), nodes(2), 0.0) == []
