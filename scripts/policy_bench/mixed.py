"""Twelve nodes that are not alike: how long a crawl takes under each policy, beside chance and beside one who knows.

Whole swarms in the simulator (`uneven` in docs/simulation.md), in two worlds:

    uneven   processors differ 4 times, lines 10 times, a fifth of the pairs of a node and a host do not connect
    far      processors differ 8 times; those pairs say nothing, so that an attempt takes as long as a connection
             may; nodes and hosts lie apart, and a node has few requests under way, so that a far host costs it time

*Random* gives each task to any node, *least-loaded* to the one that has the fewest of
its owner. The *oracle* knows what a page of each host costs each machine: it
gives a task to the node where it ends first, by all that it has given so far.
It plays by the rules of the swarm otherwise. In the first world random is about
as fast as the oracle, since a task that is late goes on to the next node; a
policy can show what it is good for only in the second.

A node that cannot connect gives a task to the next one, under `xor` to seven at
most; what nobody brought is counted here.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from statistics import median
from typing import Any, ClassVar, NamedTuple
from unittest import mock

import numpy as np
from scipy.optimize import linprog

from dhtcrawl.policy import registry
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import (
    BATCH_MAX,
    AssignmentTerms,
    Candidate,
    Policy,
    PolicyTask,
    Settings,
    failed_last,
)
from dhtcrawl.sim.machines import SimMachine, machine
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm_run import simulate_swarm
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.storage.store.plan_counters import MadeBy, count_plan
from dhtcrawl.url import host_of
from policy_bench.report import Experiment, Options, Row, at_work, each

SEEDS = 8
OF_ORACLE_MAX = 1.3
RANDOM_MIN = 1.3  # random over the oracle, or the world shows nothing
POLICIES = ("random", "least-loaded", "xor", "balanced", "bp-pso", "gnp", "dynamic", "dspider", "oracle")
NO_POLICIES = ("random", "least-loaded", "oracle")  # what the others are compared with
NEVER_S = 1e6  # what a page of a host costs a node that does not reach it
BUDGET_S = 600.0  # the oracle knows how long everything takes

Costs = dict[str, dict[bytes, float]]  # host → node → seconds of a page


class World(NamedTuple):
    """What is crawled, and by whom."""

    name: str
    text: str
    whole: Scenario
    quick: Scenario


def _scenario(**fields: Any) -> Scenario:
    return Scenario(delay_s=0.0, broken=0.0, flaky=0.0, uneven=True, **fields)


UNEVEN = World(
    "uneven",
    "12 uneven nodes",
    _scenario(nodes=12, hosts=24, pages=2_400),
    _scenario(nodes=4, hosts=4, pages=60),
)
FAR: dict[str, Any] = {"concurrency": 4, "cpu_times": 8.0, "spread_s": 0.2, "silent": True}
UNEVEN_FAR = World(
    "uneven-far",
    "12 uneven nodes, far apart",
    _scenario(nodes=12, hosts=24, pages=600, **FAR),
    _scenario(nodes=4, hosts=4, pages=60, **FAR),
)
WORLDS = {world.name: world for world in (UNEVEN, UNEVEN_FAR)}


class Job(NamedTuple):
    """One crawl that is to be simulated."""

    world: str
    policy: str
    seed: int
    quick: bool


class Run(NamedTuple):
    """One crawl under one policy."""

    policy: str
    seed: int
    seconds: float
    pages: int
    missing: int  # pages of the web that were not brought
    refetches: int
    bound_s: float  # no schedule is faster
    plans: tuple[MadeBy, ...] = ()  # of those that say what made them


class Anybody(Policy):
    """Chance."""

    name = "random"

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return failed_last(rendezvous(task.key, [each.node for each in candidates], {}), task.failed)


class LeastLoaded(Policy):
    """Whoever has the fewest tasks of the owner; chance decides between equals."""

    name = "least-loaded"

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        nodes = rendezvous(task.key, [each.node for each in candidates], {})
        lent = {each.node: each.lent for each in candidates}
        return failed_last(sorted(nodes, key=lambda node: lent[node]), task.failed)


class Oracle(Policy):
    """A task is fetched where it ends first, by all that its owner gave to each node so far.

    Owners have like shares of all tasks, so what is even for each of them is even for all.
    """

    name = "oracle"
    costs_s: ClassVar[Costs] = {}

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._given_s: defaultdict[bytes, float] = defaultdict(float)  # by node
        self._of_task: dict[bytes, tuple[bytes, float]] = {}

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        before, before_s = self._of_task.pop(task.key, (b"", 0.0))
        self._given_s[before] -= before_s
        costs_s = self.costs_s.get(task.host, {})
        nodes = rendezvous(task.key, [each.node for each in candidates], {})
        nodes.sort(key=lambda node: self._given_s[node] + costs_s.get(node, NEVER_S))
        ranked = failed_last(nodes, task.failed)
        if ranked:
            cost_s = costs_s.get(ranked[0], NEVER_S)
            self._of_task[task.key] = ranked[0], cost_s
            self._given_s[ranked[0]] += cost_s
        return ranked

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        return AssignmentTerms(BATCH_MAX, BUDGET_S)


def costs_s(scenario: Scenario, own: SimMachine, host: str, sizes: Sequence[int]) -> float:
    """What a page of a host costs a machine that is always busy: its processor, its line or its requests are the limit.

    `sizes` are those of the host's pages, in bytes.
    """
    if host in own.blocked:
        return NEVER_S
    away_s = scenario.page_s + own.away_s.get(host, 0.0)
    return max(own.cpu_s, float(np.mean(sizes)) / own.bytes_per_s, away_s / scenario.concurrency)


def bound_s(scenario: Scenario, machines: Sequence[SimMachine], pages: dict[str, list[int]]) -> float:
    """The least time in which the machines bring all pages, by a linear programme: no schedule is faster.

    `pages` are the sizes of the pages of each host, in bytes.
    """
    hosts = list(pages)
    count = len(machines) * len(hosts)
    # Unknown: pages of (machine, host), and the time. A machine's processor, line and requests are busy no longer.
    limits = np.zeros((3 * len(machines), count + 1))
    limits[:, -1] = -1.0
    sums = np.zeros((len(hosts), count + 1))
    bounds: list[tuple[float, float | None]] = []
    for number, own in enumerate(machines):
        for place, host in enumerate(hosts):
            column = number * len(hosts) + place
            limits[3 * number, column] = own.cpu_s
            limits[3 * number + 1, column] = float(np.mean(pages[host])) / own.bytes_per_s
            # Half of the mean, at the least, is what the web takes for its quickest answer.
            limits[3 * number + 2, column] = (scenario.page_s / 2 + own.away_s.get(host, 0.0)) / scenario.concurrency
            sums[place, column] = 1.0
            bounds.append((0.0, 0.0 if host in own.blocked else None))
    found = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=limits,
        b_ub=np.zeros(3 * len(machines)),
        A_eq=sums,
        b_eq=[len(pages[host]) for host in hosts],
        bounds=[*bounds, (0.0, None)],
    )
    return float(found.fun)


def crawl(job: Job) -> Run:
    """One policy on one seed's swarm and web."""
    world = WORLDS[job.world]
    scenario = dataclasses.replace(world.quick if job.quick else world.whole, policy=job.policy)
    web = SimWeb(job.seed, scenario.web())
    sizes: dict[str, list[int]] = {}
    for url in web.truth():
        sizes.setdefault(host_of(url), []).append(len(web.respond(url, 2).body))
    numbers = range(scenario.nodes)
    machines = [machine(job.seed, number, scenario.nodes, web.hosts, scenario.unevenness()) for number in numbers]
    ids = [Random(f"{job.seed} node {number} id").randbytes(20) for number in numbers]
    Oracle.costs_s = {
        host: {node: costs_s(scenario, own, host, some) for node, own in zip(ids, machines, strict=True)}
        for host, some in sizes.items()
    }
    ours = {"random": "Anybody", "least-loaded": "LeastLoaded", "oracle": "Oracle"}
    plans: list[MadeBy] = []

    def note(counters: dict[str, float], made: MadeBy) -> None:
        plans.append(made)
        count_plan(counters, made)

    with (
        mock.patch.dict(registry.OURS, {name: f"{__name__}:{what}" for name, what in ours.items()}),
        mock.patch("dhtcrawl.swarm.assignment.plans.count_plan", note),
    ):
        result = simulate_swarm(scenario, job.seed)
    missing = sum("was not fetched" in text for text in result.violations)
    bound = bound_s(scenario, machines, sizes)
    seconds = result.crawl_seconds
    return Run(job.policy, job.seed, seconds, result.pages, missing, result.refetches, bound, tuple(plans))


def makespans(world: str, options: Options) -> list[Row]:
    """The table of one world."""
    seeds = options.seeds_or(SEEDS)
    jobs = [Job(world, policy, seed, options.quick) for policy in POLICIES for seed in seeds]
    return rows(WORLDS[world], each(crawl, jobs, options.jobs), options)


def rows(world: World, runs: Sequence[Run], options: Options) -> list[Row]:
    """A row for each policy, and what the world and the best of them come to."""
    by_policy = {policy: {run.seed: run for run in runs if run.policy == policy} for policy in POLICIES}
    chance, known = by_policy["random"], by_policy["oracle"]
    over = {policy: _median_ratio(some, known) for policy, some in by_policy.items()}
    table = [_row_of(world, policy, some, by_policy, options) for policy, some in by_policy.items()]
    table.append(_best_row(world, over, known, options))
    if world is UNEVEN_FAR:
        table.append(
            Row(
                "all",
                f"{world.text}: a random choice over the oracle",
                "",
                f"≥ {RANDOM_MIN}",
                f"{over['random']:.2f}",
                options.judged(over["random"] >= RANDOM_MIN),
                len(chance),
                value=over["random"],
                unit="times the oracle's time",
            )
        )
    return table


def _median_ratio(some: Mapping[int, Run], others: Mapping[int, Run]) -> float:
    return median(run.seconds / others[seed].seconds for seed, run in some.items())


def _row_of(
    world: World, policy: str, some: Mapping[int, Run], by_policy: Mapping[str, Mapping[int, Run]], options: Options
) -> Row:
    missing = max(run.missing for run in some.values())
    twice = sum(run.refetches for run in some.values())
    first = next(iter(some.values()))
    brought = f"up to {missing} of {first.pages + first.missing} pages not brought" if missing else "every page brought"
    over = {name: _median_ratio(some, by_policy[name]) for name in NO_POLICIES}
    beside = ", ".join(f"{over[name]:.2f} of {name}" for name in NO_POLICIES if name != policy)
    seconds = median(run.seconds for run in some.values())
    return Row(
        "all",
        f"{world.text}: {policy}",
        "",
        "every page once",
        f"{seconds:.0f} s, {beside}; {brought}, {twice} twice",
        options.judged(not missing and not twice),
        len(some),
        value=seconds,
        unit="s",
        by=at_work(policy, [made for run in some.values() for made in run.plans]),
        random=median(run.seconds for run in by_policy["random"].values()),
        least_loaded=median(run.seconds for run in by_policy["least-loaded"].values()),
    )


def _best_row(world: World, over: Mapping[str, float], known: Mapping[int, Run], options: Options) -> Row:
    real = {policy: value for policy, value in over.items() if policy not in (*NO_POLICIES, "xor")}
    best = min(real, key=lambda policy: real[policy])
    bound = median(run.seconds / run.bound_s for run in known.values())
    return Row(
        "all",
        f"{world.text}: the best policy over the oracle",
        "",
        f"≤ {OF_ORACLE_MAX}",
        f"{real[best]:.2f} ({best})",
        options.judged(real[best] <= OF_ORACLE_MAX),
        len(known),
        f"the oracle itself takes {bound:.2f} times what the linear programme says that no schedule can beat: "
        "pages have to be found first, and the end has to be noticed",
        value=real[best],
        unit="times the oracle's time",
    )


EXPERIMENTS = (
    Experiment(
        UNEVEN.name, "all", "twelve machines that are not alike, under every policy", partial(makespans, UNEVEN.name)
    ),
    Experiment(
        UNEVEN_FAR.name,
        "all",
        "the same, more uneven, and far from each other and from sites",
        partial(makespans, UNEVEN_FAR.name),
    ),
)
