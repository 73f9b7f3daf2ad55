"""Who is given a task: the best-ranked node that has room, after those that had it for nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dhtcrawl.keyspace import url_key
from dhtcrawl.policy.choice import choose, learn_and_choose
from dhtcrawl.policy.seam import (
    BATCH,
    TASKS_A_NODE_MAX,
    AssignmentTerms,
    Candidate,
    Outcome,
    Policy,
    PolicyTask,
    Settings,
    TaskResult,
)
from dhtcrawl.policy.xor import Xor

A, B, C = (bytes([number]) * 20 for number in (1, 2, 3))
KEY = bytes(20)


class InOrder(Policy):
    """Ranks nodes as they come."""

    name = "in-order"

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return [each.node for each in candidates]


class Pinned(InOrder):
    """Waits for the first."""

    pinned = True

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        return AssignmentTerms(batch=1)


def chosen(policy: Policy, *tasks: PolicyTask, lent: dict[tuple[bytes, str], int] | None = None) -> list[bytes]:
    """The node of each task that has one, by node."""
    choice = choose(policy, tasks, lambda task: [A, B, C], lent or {}, 0.0)
    return [node for node, hosts in choice.keys.items() for keys in hosts.values() for _ in keys]


def test_what_one_had_no_time_for_goes_to_the_next_of_the_ranking_and_then_in_turns() -> None:
    policy = InOrder(Settings(A))
    for recalled, node in (((), A), ((A,), B), ((B, A), C), ((A, B, C), A), ((B, C, A), B)):
        assert chosen(policy, PolicyTask(KEY, "a", (), recalled)) == [node]
        assert chosen(Pinned(Settings(A)), PolicyTask(KEY, "a", (), recalled)) == [A], "it waits for the first"


def test_who_had_no_time_comes_before_who_failed_and_after_who_has_no_room_now() -> None:
    policy = InOrder(Settings(A))
    assert chosen(policy, PolicyTask(KEY, "a", (A, C), (B,))) == [B]
    assert chosen(policy, PolicyTask(KEY, "a", (), (A,)), lent={(B, "a"): BATCH, (C, "a"): BATCH}) == [A]


def test_under_xor_the_owner_has_room_for_all_that_nobody_brought() -> None:
    tasks = [PolicyTask(number.to_bytes(20, "big"), "a", (A, B, C)) for number in range(2 * BATCH)]
    assert chosen(Xor(Settings(A)), *tasks) == [A] * len(tasks)


class Narrow(InOrder):
    """Lets a node have two tasks of hosts without a delay."""

    def __init__(self) -> None:
        super().__init__(Settings(A))
        self.asked: list[str] = []
        self.at_work: list[int] = []

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        self.asked.append(task.host)
        self.at_work.append(candidates[0].at_work)
        return super().rank(task, candidates, now)

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        return AssignmentTerms(at_work_max=2)


def some(host: str, count: int) -> list[PolicyTask]:
    return [PolicyTask(url_key(f"http://{host}/{number}"), host) for number in range(count)]


NODES = [A, B, C]


def test_of_all_hosts_without_a_delay_a_node_has_no_more_than_its_terms_allow() -> None:
    policy = Narrow()
    tasks = [*some("a", 2), *some("b", 6), *some("polite", 5)]
    choice = choose(policy, tasks, lambda _: NODES, {(A, "c"): 1, (B, "polite"): 40}, 0.0, {"polite"})
    got = {node: {host: len(keys) for host, keys in hosts.items()} for node, hosts in choice.keys.items()}
    assert got == {A: {"a": 1, "polite": 5}, B: {"a": 1, "b": 1}, C: {"b": 2}}
    assert choice.waiting == 3
    assert policy.at_work[0] == 1, "what waits for a polite host is no work"


def test_where_no_node_has_room_for_a_host_its_other_tasks_are_not_ranked() -> None:
    policy = Narrow()
    choice = choose(policy, [*some("a", 20), *some("b", 20)], lambda _: NODES, {}, 0.0)
    assert choice.waiting == 34
    assert (policy.asked.count("a"), policy.asked.count("b")) == (7, 0), "nor are those of other hosts"


def test_that_one_task_finds_no_node_says_nothing_of_others_for_which_other_nodes_are_ranked() -> None:
    class OneEach(Narrow):
        def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
            return [candidates[task.depth].node]

    tasks = [each._replace(depth=depth) for depth, each in zip((0, 0, 0, 1), some("a", 4), strict=True)]
    choice = choose(OneEach(), tasks, lambda _: NODES, {}, 0.0)
    assert (len(choice.keys[A]["a"]), len(choice.keys[B]["a"]), choice.waiting) == (2, 1, 1)


def test_a_node_has_no_more_than_its_batch_of_a_host_nor_of_all_hosts_than_any_may_have() -> None:
    policy = InOrder(Settings(A))
    choice = choose(policy, some("a", BATCH + 3), lambda _: NODES, {(A, "a"): 1}, 0.0)
    assert {node: len(hosts["a"]) for node, hosts in choice.keys.items()} == {A: BATCH - 1, B: 4}
    polite = {f"h{number}" for number in range(TASKS_A_NODE_MAX)}
    many = [task for host in sorted(polite) for task in some(host, 1)]
    choice = choose(policy, many, lambda _: NODES, {(A, "other"): 1}, 0.0, polite)
    assert {node: len(hosts) for node, hosts in choice.keys.items()} == {A: TASKS_A_NODE_MAX - 1, B: 1}


class Told(InOrder):
    """Notes what it is told, in order."""

    def __init__(self) -> None:
        super().__init__(Settings(A))
        self.told: list[object] = []

    def adopt(self, table: Mapping[str, Any]) -> None:
        self.told.append(table)

    def heard(self, outcome: Outcome, now: float) -> None:
        self.told.append((outcome, now))

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        self.told.append("rank")
        return super().rank(task, candidates, now)


def test_before_it_ranks_a_policy_hears_of_a_new_plan_and_of_what_came_of_earlier_tasks() -> None:
    policy, page = Told(), Outcome(B, "a", TaskResult.PAGE, 1.0)
    learn_and_choose(policy, {"weights": {}}, [(page, 3.0), (page, 4.0)], some("a", 1), lambda _: NODES, {}, 5.0)
    assert policy.told == [{"weights": {}}, (page, 3.0), (page, 4.0), "rank"]
    learn_and_choose(policy, None, [], some("a", 1), lambda _: NODES, {}, 6.0)
    assert policy.told[4:] == ["rank"], "without a new plan that of before holds"


def test_that_a_task_waits_for_its_first_node_keeps_no_other_back_that_has_another_first() -> None:
    class PinnedInTurn(Pinned):
        def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
            nodes = super().rank(task, candidates, now)
            return nodes[task.depth :] + nodes[: task.depth]

    tasks = [each._replace(depth=depth) for depth, each in zip((0, 0, 1), some("a", 3), strict=True)]
    choice = choose(PinnedInTurn(Settings(A)), tasks, lambda _: NODES, {}, 0.0)
    assert ({node: len(hosts["a"]) for node, hosts in choice.keys.items()}, choice.waiting) == ({A: 1, B: 1}, 1)


def test_where_all_nodes_have_their_batch_of_a_host_its_other_tasks_are_not_ranked_and_those_of_others_are() -> None:
    class OneOfAHost(Narrow):
        def terms(self, node: bytes, host: str) -> AssignmentTerms:
            return AssignmentTerms(batch=1)

    policy = OneOfAHost()
    choice = choose(policy, [*some("a", 20), *some("b", 20)], lambda _: NODES, {}, 0.0, {"a"})
    assert choice.waiting == 34
    assert (policy.asked.count("a"), policy.asked.count("b")) == (4, 4)
