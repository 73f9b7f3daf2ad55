"""Twelve nodes that are not alike: how long a crawl takes under each policy, beside chance and beside one who knows.

Whole swarms in the simulator (`uneven` in docs/simulation.md): processors differ
4 times, lines 10 times, a fifth of the pairs of a node and a host do not
connect. *Random* gives each task to anybody. The *oracle* knows what a page
costs each machine and which hosts it reaches: a linear programme says how many
pages of which host each should bring so that all end together, and it ranks by
that from the first task on. It plays by the rules of the swarm otherwise.

A node that cannot connect gives a task to the next one, under `xor` to seven at
most; what nobody brought is counted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from statistics import median
from typing import ClassVar, NamedTuple
from unittest import mock

import numpy as np
from scipy.optimize import linprog

from dhtcrawl.policy import registry
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import Candidate, Policy, PolicyTask, Settings, failed_last
from dhtcrawl.sim.machines import SimMachine, machine
from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm_run import simulate_swarm
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.url import host_of
from policy_bench.report import Experiment, Options, Row, each

NODES, HOSTS, PAGES = 12, 24, 2_400
QUICK_NODES, QUICK_HOSTS, QUICK_PAGES = 4, 4, 60
SEEDS = 3
OF_ORACLE_MAX = 1.3
POLICIES = ("random", "xor", "balanced", "bp-pso", "gnp", "dynamic", "dspider", "oracle")

Shares = dict[str, dict[bytes, float]]  # host → node → pages


class Run(NamedTuple):
    """One crawl under one policy."""

    policy: str
    seed: int
    seconds: float
    pages: int
    missing: int  # pages of the web that were not brought
    refetches: int
    bound_s: float  # no schedule is faster


class Anybody(Policy):
    """Chance."""

    name = "random"

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return failed_last(rendezvous(task.key, [each.node for each in candidates], {}), task.failed)


class Oracle(Policy):
    """Each node's share of each host is known; who has had the least of it is next."""

    name = "oracle"
    shares: ClassVar[Shares] = {}

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._given: Counter[tuple[str, bytes]] = Counter()

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        shares = self.shares.get(task.host, {})
        nodes = rendezvous(task.key, [each.node for each in candidates], {})
        nodes.sort(key=lambda node: (self._given[task.host, node] + 0.5) / max(shares.get(node, 1.0), 1e-6))
        ranked = failed_last(nodes, task.failed)
        if ranked:
            self._given[task.host, ranked[0]] += 1
        return ranked


def best_shares(machines: Sequence[SimMachine], pages: dict[str, list[int]]) -> tuple[dict[str, list[float]], float]:
    """How many pages of each host each machine brings when all end as soon as they can, and when that is.

    `pages` are the sizes of the pages of each host, in bytes.
    """
    hosts = list(pages)
    count = len(machines) * len(hosts)
    # Unknown: pages of (machine, host), and the time; each machine's processor and line are busy no longer than that.
    limits = np.zeros((2 * len(machines), count + 1))
    limits[:, -1] = -1.0
    sums = np.zeros((len(hosts), count + 1))
    bounds: list[tuple[float, float | None]] = []
    for number, own in enumerate(machines):
        for place, host in enumerate(hosts):
            column = number * len(hosts) + place
            limits[2 * number, column] = own.cpu_s
            limits[2 * number + 1, column] = float(np.mean(pages[host])) / own.bytes_per_s
            sums[place, column] = 1.0
            bounds.append((0.0, 0.0 if host in own.blocked else None))
    found = linprog(
        np.append(np.zeros(count), 1.0),
        A_ub=limits,
        b_ub=np.zeros(2 * len(machines)),
        A_eq=sums,
        b_eq=[len(pages[host]) for host in hosts],
        bounds=[*bounds, (0.0, None)],
    )
    table = found.x[:-1].reshape(len(machines), len(hosts))
    return {host: [float(share) for share in table[:, place]] for place, host in enumerate(hosts)}, float(found.fun)


def crawl(job: tuple[str, int, bool]) -> Run:
    """One policy on one seed's swarm and web."""
    policy, seed, quick = job
    nodes, hosts, pages = (QUICK_NODES, QUICK_HOSTS, QUICK_PAGES) if quick else (NODES, HOSTS, PAGES)
    scenario = Scenario(
        nodes=nodes, hosts=hosts, pages=pages, delay_s=0.0, broken=0.0, flaky=0.0, policy=policy, uneven=True
    )
    web = SimWeb(seed, scenario.web())
    sizes: dict[str, list[int]] = {}
    for url in web.truth():
        sizes.setdefault(host_of(url), []).append(len(web.respond(url, 2).body))
    machines = [machine(seed, number, nodes, web.hosts) for number in range(nodes)]
    shares, bound_s = best_shares(machines, sizes)
    ids = [Random(f"{seed} node {number} id").randbytes(20) for number in range(nodes)]
    Oracle.shares = {host: dict(zip(ids, row, strict=True)) for host, row in shares.items()}
    with mock.patch.dict(registry.OURS, random=f"{__name__}:Anybody", oracle=f"{__name__}:Oracle"):
        result = simulate_swarm(scenario, seed)
    missing = sum("was not fetched" in text for text in result.violations)
    return Run(policy, seed, result.crawl_seconds, result.pages, missing, result.refetches, bound_s)


def makespans(options: Options) -> list[Row]:
    """The table."""
    seeds = options.seeds_or(SEEDS)
    runs = each(crawl, [(policy, seed, options.quick) for policy in POLICIES for seed in seeds], options.jobs)
    by_policy = {policy: [run for run in runs if run.policy == policy] for policy in POLICIES}
    oracle = {run.seed: run for run in by_policy["oracle"]}
    rows = []
    over: dict[str, float] = {}
    for policy, some in by_policy.items():
        over[policy] = median(run.seconds / oracle[run.seed].seconds for run in some)
        missing = max(run.missing for run in some)
        brought = (
            f"up to {missing} of {some[0].pages + some[0].missing} pages not brought"
            if missing
            else "every page brought"
        )
        rows.append(
            Row(
                "all",
                f"12 uneven nodes: {policy}",
                "",
                "every page once",
                f"{median(run.seconds for run in some):.0f} s, {over[policy]:.2f} times the oracle; {brought}, "
                f"{sum(run.refetches for run in some)} twice",
                options.judged(not missing and not any(run.refetches for run in some)),
                len(seeds),
                value=median(run.seconds for run in some),
                unit="s",
            )
        )
    real = {policy: value for policy, value in over.items() if policy not in ("random", "oracle", "xor")}
    best = min(real, key=lambda policy: real[policy])
    bound = median(run.seconds / run.bound_s for run in by_policy["oracle"])
    rows.append(
        Row(
            "all",
            "12 uneven nodes: the best policy over the oracle",
            "",
            f"≤ {OF_ORACLE_MAX}",
            f"{real[best]:.2f} ({best})",
            options.judged(real[best] <= OF_ORACLE_MAX),
            len(seeds),
            f"the oracle itself takes {bound:.2f} times what the linear programme says that no schedule can beat: "
            "pages have to be found first, and the end has to be noticed",
            value=real[best],
            unit="times the oracle's time",
        )
    )
    return rows


EXPERIMENTS = (Experiment("uneven", "all", "twelve machines that are not alike, under every policy", makespans),)
