"""What every policy keeps, whoever wrote it: `check` runs all of it on one. For policies that others write, too.

make   makes a policy as an owner would; called often, each time for a new one
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from random import Random
from typing import Any

from dhtcrawl.keyspace import url_key
from dhtcrawl.policy.seam import Candidate, Outcome, Policy, PolicyTask, Settings, TaskResult

OWN = bytes(20)
TASKS = 2_000
# What a policy may be told by a planner that is broken, of another version, or an enemy.
RUBBISH: Sequence[dict[str, Any]] = (
    {},
    {"weights": None, "shares": [], "nodes": 3, "sites": "x", "finite": "yes"},
    {"weights": {"x": 1, 4: 2}, "shares": {None: 1}, "nodes": {b"": []}, "sites": {"a": [None]}},
    {"weights": {OWN: float("nan")}, "shares": {OWN: -1}, "nodes": {OWN: [float("nan")]}, "sites": {}},
    {"weights": {OWN: float("inf")}, "shares": {OWN: True}, "finite": True, "nodes": {OWN: [1.0]}},
    {"nodes": {OWN: [1.0, 2.0]}, "sites": {"site-1.test": [1.0]}},
)

Make = Callable[[], Policy]


def node(number: int) -> bytes:
    """An id; they lie as ids do."""
    return Random(number).randbytes(20)


def nodes(count: int) -> list[Candidate]:
    """Some candidates with nothing to do."""
    return [Candidate(node(number)) for number in range(count)]


def task(number: int, failed: tuple[bytes, ...] = ()) -> PolicyTask:
    """One of many, of 40 hosts."""
    return PolicyTask(url_key(f"http://site-{number % 40}.test/{number}"), f"site-{number % 40}.test", failed)


def history(policy: Policy, seed: int, count: int = 300) -> None:
    """Things that happened to a policy: all results, known and unknown nodes."""
    rng = Random(seed)
    for index in range(count):
        result = rng.choices(list(TaskResult), (8, 1, 1, 1))[0]
        who = node(rng.randrange(12))
        policy.heard(
            Outcome(who, f"site-{rng.randrange(40)}.test", result, rng.expovariate(1.0), bytes=1000), index * 0.1
        )


def first(policy: Policy, candidates: Sequence[Candidate], count: int = TASKS) -> list[bytes]:
    """Who would get each of so many tasks."""
    return [policy.rank(task(number), candidates, 100.0)[0] for number in range(count)]


def check(make: Make, but: Sequence[Callable[[Make], None]] = ()) -> None:
    """All of the contract, without the parts that a policy says it does not keep."""
    for each in (deterministic, total, stable, fair_to_change, forgiving, failed_nodes_last):
        if each not in but:
            each(make)


def deterministic(make: Make) -> None:
    """The same calls bring the same ranks."""
    told = []
    for _ in range(2):
        policy = make()
        history(policy, 1)
        told.append([policy.rank(task(number), nodes(10), number * 0.5) for number in range(200)])
    assert told[0] == told[1]


def total(make: Make) -> None:
    """Every candidate is ranked, once; nobody else is."""
    for count in (1, 2, 10, 100):
        policy = make()
        history(policy, 2)
        for number in range(20):
            ranked = policy.rank(task(number), nodes(count), 100.0)
            assert sorted(ranked) == sorted(each.node for each in nodes(count))
    assert make().rank(task(1), [], 100.0) == []


def stable(make: Make) -> None:
    """The order in which candidates are given means nothing."""
    told = []
    for seed in range(3):
        policy = make()
        history(policy, 3)
        rng, ranks = Random(seed), []
        for number in range(100):
            given = nodes(10)
            rng.shuffle(given)
            ranks.append(policy.rank(task(number), given, 100.0))
        told.append(ranks)
    assert told[0] == told[1] == told[2]


def fair_to_change(make: Make) -> None:
    """Who leaves takes only its own tasks away; who comes takes no more than its share, and a bit.

    Not for a policy whose ranking of a task depends on the tasks before it.
    """
    few, all_ = first(make(), nodes(10)), first(make(), nodes(11))
    new = node(10)
    moved = sum(before != after for before, after in zip(few, all_, strict=True))
    to_new = all_.count(new)
    assert moved <= 1.2 * to_new + 0.01 * TASKS


def forgiving(make: Make) -> None:
    """No plan or a senseless one, no history, unknown nodes, times that go backwards: it ranks all the same."""
    for now, table in zip(cycle((0.0, 1e9, -5.0)), RUBBISH, strict=False):
        policy = make()
        policy.adopt(table)
        policy.heard(Outcome(node(50), "nowhere.test", TaskResult.RECALLED, 0.0), now)
        for number in range(20):
            assert sorted(policy.rank(task(number), nodes(5), -now)) == sorted(each.node for each in nodes(5))
        terms = policy.terms(node(1), "site-1.test")
        assert terms.batch >= 1
        assert terms.budget_s > 0
        assert terms.connect_timeout_s is None or terms.connect_timeout_s > 0


def failed_nodes_last(make: Make) -> None:
    """Who had a task and brought nothing is asked last, who failed first before those who failed later."""
    policy = make()
    history(policy, 4)
    failed = (node(3), node(7), node(99))
    for number in range(50):
        assert policy.rank(task(number, failed), nodes(10), 100.0)[-2:] == [node(3), node(7)]


def settings() -> Settings:
    """What a policy is made with in these tests."""
    return Settings(OWN)
