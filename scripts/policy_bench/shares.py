"""P4, what each node has to do: tasks a node under `xor` and `balanced`, and what moves when one leaves. Pure.

Nodes have random ids, tasks random keys; who owns and what `balanced` ranks is
the product's own. A node's load is its tasks over its weight, and what is told
is the fullest node's load over the mean. Even a fair lottery leaves some node
with more than others. It is held beside, for as many tasks and the same
weights: no policy that draws lots does better, but by chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from statistics import median
from typing import NamedTuple

from dhtcrawl.keyspace import KEY_BYTES, distance
from dhtcrawl.policy.balanced import Balanced
from dhtcrawl.policy.seam import Candidate, Policy, PolicyTask, Settings
from policy_bench.report import Experiment, Options, Row, each

JUDGED = 50  # nodes: the size that the target names
SEEDS = 3
# The more tasks, the less is chance: most where the target is.
TASKS = {5: 50_000, 50: 100_000, 200: 50_000}
WEIGHTS = (1.0, 2.0, 3.0, 4.0)
LEAVERS, LEAVE_TASKS = 3, 5_000
FULLEST_MAX = 1.10

Assign = Callable[[bytes], bytes]  # a key's node
Weights = Mapping[bytes, float]


class Case(NamedTuple):
    """A swarm to be measured."""

    nodes: int
    mixed: bool  # whether nodes have weights from 1 to 4; else all have 1
    tasks: int
    leave_tasks: int
    seed: int


class Figures(NamedTuple):
    """Of one case: the fullest over the mean, and moved tasks over those that the leaver had."""

    fullest: dict[str, float]  # by "xor", "balanced" and "lottery"
    moved: dict[str, float]  # by "xor" and "balanced"


def swarm(nodes: int, *, mixed: bool, chance: Random) -> dict[bytes, float]:
    """Random ids, and each one's weight."""
    return {chance.randbytes(KEY_BYTES): WEIGHTS[number % len(WEIGHTS)] if mixed else 1.0 for number in range(nodes)}


def owner_of(nodes: Sequence[bytes], key: bytes) -> bytes:
    """Who owns a key in the paper, and with us: the closest."""
    return min(nodes, key=lambda node: distance(key, node))


def first_of(policy: Policy, nodes: Sequence[bytes]) -> Assign:
    """Whom a policy ranks first of nodes with nothing to do."""
    candidates = [Candidate(node) for node in nodes]
    return lambda key: policy.rank(PolicyTask(key, ""), candidates, 0.0)[0]


def ways(weights: Weights, nodes: Sequence[bytes]) -> dict[str, Assign]:
    """The two, among `nodes`; `balanced` has the plan with these weights."""
    balanced = Balanced(Settings(b""))
    balanced.adopt({"weights": dict(weights)})
    return {"xor": partial(owner_of, nodes), "balanced": first_of(balanced, nodes)}


def fullest(counts: Mapping[bytes, int], weights: Weights) -> float:
    """The greatest load over the mean: tasks a unit of weight."""
    mean = sum(counts.values()) / sum(weights.values())
    return max(counts.get(node, 0) / weight for node, weight in weights.items()) / mean


def measure(case: Case) -> Figures:
    """All of one swarm."""
    chance = Random(f"{case}")
    weights = swarm(case.nodes, mixed=case.mixed, chance=chance)
    nodes = list(weights)
    keys = [chance.randbytes(KEY_BYTES) for _ in range(case.tasks)]
    leavers = chance.sample(nodes, min(LEAVERS, case.nodes))
    had = {name: [*map(assign, keys)] for name, assign in ways(weights, nodes).items()}
    lots = chance.choices(nodes, list(weights.values()), k=case.tasks)
    loads = {name: fullest(Counter(of), weights) for name, of in [*had.items(), ("lottery", lots)]}
    return Figures(loads, moved(weights, keys[: case.leave_tasks], had, leavers))


def moved(
    weights: Weights, keys: Sequence[bytes], had: Mapping[str, Sequence[bytes]], leavers: Sequence[bytes]
) -> dict[str, float]:
    """How many tasks have another node after a leave, over those that the leaver had; one leave at a time."""
    changed, left = Counter[str](), Counter[str]()
    for leaver in leavers:
        for name, assign in ways(weights, [node for node in weights if node != leaver]).items():
            before = had[name][: len(keys)]
            changed[name] += sum(node != assign(key) for node, key in zip(before, keys, strict=True))
            left[name] += before.count(leaver)
    return {name: changed[name] / max(1, left[name]) for name in had}


def run(options: Options) -> list[Row]:
    """The rows."""
    seeds = options.seeds_or(SEEDS)
    cases = [
        Case(nodes, mixed, 200 if options.quick else tasks, 50 if options.quick else LEAVE_TASKS, seed)
        for nodes, tasks in TASKS.items()
        for mixed in (False, True)
        for seed in seeds
    ]
    found = dict(zip(cases, each(measure, cases, options.jobs), strict=True))
    rows = []
    for nodes in TASKS:
        for mixed in (False, True):
            of_case = {case: figures for case, figures in found.items() if case[:2] == (nodes, mixed)}
            rows += rows_of(of_case, options)
    return rows


def rows_of(found: Mapping[Case, Figures], options: Options) -> list[Row]:
    """A swarm's two rows: how full, and how much a leave moves."""
    case, figures = next(iter(found)), list(found.values())
    where = f"{case.nodes} nodes, weights {'1 to 4' if case.mixed else '1'}"
    loads = {name: [each.fullest[name] for each in figures] for name in ("xor", "balanced", "lottery")}
    moves = {name: [each.moved[name] for each in figures] for name in ("xor", "balanced")}
    judged = case.nodes == JUDGED
    full = Row(
        "P4",
        f"fullest node over the mean, {where}",
        "",
        f"balanced ≤ {FULLEST_MAX:.2f}" if judged else "",
        f"xor {spread(loads['xor'])}, balanced {spread(loads['balanced'])}, a fair lottery {spread(loads['lottery'])}",
        options.judged(median(loads["balanced"]) <= FULLEST_MAX) if judged else None,
        len(figures),
        f"{case.tasks:,} tasks; `xor` knows no weights" if case.mixed else f"{case.tasks:,} tasks",
        value=median(loads["balanced"]),
        unit="times",
    )
    return [
        full,
        Row(
            "P4",
            f"tasks that one leave moves over those the leaver had, {where}",
            "",
            "",
            f"xor {spread(moves['xor'])}, balanced {spread(moves['balanced'])}",
            None,
            len(figures),
            "tasks that wait for a node: what one has stays there",
            value=median(moves["balanced"]),
            unit="times",
        ),
    ]


def spread(values: Sequence[float]) -> str:
    """The median, and the worst where there are several."""
    worst = f" (worst {max(values):.2f})" if len(values) > 1 else ""
    return f"{median(values):.2f}{worst}"


EXPERIMENTS = (Experiment("p4-shares", "P4", "tasks a node under xor and balanced, and what a leave moves", run),)
