"""P3: what choosing near crawlers does to the pages a second of 30 crawlers and 203 sites (Liu et al. 2010).

Each site gives one page at a time. Whose page ended gets its next one, from the crawler that is chosen for it:

    chosen ── two round trips: connection, request ──▶ response at the crawler's link ── in order ──▶ page ended

A crawler's link takes one page after another, at the same rate at each crawler. All links together take `capacity`
times the demand, which is what the sites would give if crawlers were chosen by chance and links took no time. The
paper says nothing of its links; nor had its crawlers any delay between pages of a site, so there is none here but in
the row that says so.

`ours` has one owner, which knows all of what each crawler has to do. With an owner for each crawler, as in a swarm,
each of them lends the pages whose keys are its, and knows only what it lent itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from statistics import median
from typing import Any, TypeAlias

import numpy as np

from policy_bench.latency import Array, Job, jobs
from policy_bench.placing import Ranked, gnp, ours
from policy_bench.report import Experiment, Options, Row, each

PAPER = "P3"
OVER_RANDOM = "times random"
LANDMARKS, DIMENSIONS = 9, 8  # the paper's
PAGE_MB = 0.025
TRIPS = 2
WARM_S, END_S = 4.0, 14.0  # of virtual time; what ends between them counts
AMPLE, SCARCE = 1.5, 1.0  # capacity over demand
GAIN = 1.25
DELAY_S = 1.0
QUICK_END_S = 7.0

# By name: what it is, and the paper's claim.
CHOICES = {
    "Top1": (f"GNP Top1, {LANDMARKS} landmarks, {DIMENSIONS}-D", "242.6 MB/min, 1.22 × random"),
    "Top3": ("GNP Top3, one of them by chance", "270.5 MB/min, 1.36 × random"),
    "least loaded": ("GNP, the least loaded of the Top3", ""),
    "load": ("the least loaded of all, near or far", ""),
    "ours": ("ours", ""),
    "owners": ("ours, an owner for each crawler", ""),
}

# With Top1 a full link holds up its own sites only; by chance among three it is met by many more.
TOP3_BELOW = "below Top1, against the paper: probably because more sites meet each full link"

# What an event is: a site is free, its request has arrived at the crawler's link, its page has ended.
FREE, ARRIVED, ENDED = range(3)

# Who fetches a page of a site, from how much each crawler has to do.
Choose: TypeAlias = Callable[[int, Sequence[int]], int]


def by_chance(rng: Random, crawlers: int) -> Choose:
    """Any."""
    return lambda where, lent: rng.randrange(crawlers)


def by_load(where: int, lent: Sequence[int]) -> int:
    """Who has the least to do, however far: what there is to gain without coordinates."""
    return lent.index(min(lent))


def by_table(table: dict[str, Any], crawlers: int, rng: Random, top: int) -> Choose:
    """The paper's: one of the `top` nearest, by chance."""
    ranked = Ranked(table, crawlers)
    near: dict[int, list[int]] = {}

    def choose(where: int, lent: Sequence[int]) -> int:
        if where not in near:
            near[where] = ranked.idle(where)[:top]
        return rng.choice(near[where])

    return choose


def by_policy(table: dict[str, Any], crawlers: int) -> Choose:
    """The product's policy decides."""
    ranked = Ranked(table, crawlers)
    return lambda where, lent: ranked.rank(where, lent)[0]


def demand(to: Array, delay_s: float = 0.0) -> float:
    """Pages a second of all sites, from crawlers chosen by chance whose links take no time."""
    return float((1 / (TRIPS * to.mean(axis=0) + delay_s)).sum())


def simulate(
    to: Array, choose: Choose, link: float, rng: Random, *, owners: int = 1, delay_s: float = 0.0, end_s: float = END_S
) -> float:
    """Pages a second; a link takes `link` of them."""
    crawlers, sites = to.shape
    trips = (TRIPS * to).tolist()
    free_at = [0.0] * crawlers
    lent = [[0] * crawlers for _ in range(owners)]
    done = 0
    # (when, which of equals first, what, site, owner, crawler)
    events = [(0.0, where, FREE, where, 0, 0) for where in range(sites)]
    for number in count(sites):
        now, _, what, where, owner, who = heappop(events)
        if now >= end_s:
            break
        if what == FREE:
            owner = rng.randrange(owners)
            who = choose(where, lent[owner])
            lent[owner][who] += 1
            after = (now + trips[who][where], number, ARRIVED)
        elif what == ARRIVED:
            free_at[who] = max(now, free_at[who]) + 1 / link
            after = (free_at[who], number, ENDED)
        else:
            lent[owner][who] -= 1
            done += now >= WARM_S
            after = (now + delay_s, number, FREE)
        heappush(events, (*after, where, owner, who))
    return done / (end_s - WARM_S)


def rates(job: Job) -> dict[str, float]:
    """Pages a second by "capacity who", and those of single sites, as ratios."""
    to = job.world().to
    crawlers = len(to)
    paper = gnp(job.world(), LANDMARKS, DIMENSIONS, np.random.default_rng(job.seed))[0]
    mine = ours(job.world(), np.random.default_rng(job.seed))[0]
    end_s = QUICK_END_S if job.quick else END_S

    def run(choose: Choose, capacity: float, owners: int = 1, delay_s: float = 0.0) -> float:
        link = capacity * demand(to, delay_s) / crawlers
        return simulate(to, choose, link, Random(job.seed), owners=owners, delay_s=delay_s, end_s=end_s)

    found: dict[str, float] = {}
    for capacity in (AMPLE, SCARCE):
        found |= {
            f"{capacity} random": run(by_chance(Random(job.seed), crawlers), capacity),
            f"{capacity} Top1": run(by_table(paper, crawlers, Random(job.seed), 1), capacity),
            f"{capacity} Top3": run(by_table(paper, crawlers, Random(job.seed), 3), capacity),
            f"{capacity} least loaded": run(by_policy(paper, crawlers), capacity),
            f"{capacity} load": run(by_load, capacity),
            f"{capacity} ours": run(by_policy(mine, crawlers), capacity),
            f"{capacity} owners": run(by_policy(mine, crawlers), capacity, crawlers),
        }
    found["delay random"] = run(by_chance(Random(job.seed), crawlers), AMPLE, 1, DELAY_S)
    found["delay ours"] = run(by_policy(mine, crawlers), AMPLE, 1, DELAY_S)
    return found | {"single": single(to, mine, AMPLE * demand(to) / crawlers)}


def single(to: Array, table: dict[str, Any], link: float) -> float:
    """A site that is alone: its pages a second from the crawler nearest to it over those by chance; median of sites.

    Nobody waits for a link, so it takes no simulation. The policy sees nodes without anything to do.
    """
    ranked = Ranked(table, len(to))
    near = np.array([to[ranked.idle(where)[0], where] for where in range(to.shape[1])])
    return float(np.median((TRIPS * to.mean(axis=0) + 1 / link) / (TRIPS * near + 1 / link)))


def run_throughput(options: Options) -> list[Row]:
    """The paper's second table."""
    worlds = jobs(options)
    crawlers, sites = worlds[0].world().to.shape
    where = f"{crawlers} crawlers, {sites} sites"
    asked = 60 * PAGE_MB * median(demand(job.world().to) for job in worlds)
    runs = each(rates, worlds, options.jobs)
    row = partial(Row, PAPER, claim="", target="", met=None, seeds=len(runs))
    rows = []
    for capacity in (AMPLE, SCARCE):
        size = f"{where}, capacity {capacity}× demand"
        base = 60 * PAGE_MB * median(run[f"{capacity} random"] for run in runs)
        claim = "198.8 MB/min" if capacity == AMPLE else ""
        rows.append(row(f"{size}: random", claim=claim, measured=f"{base:.0f} MB/min of {asked:.0f} demanded",
                        value=base, unit="MB/min"))  # fmt: skip
        rows += [_chosen(options, runs, capacity, size, name) for name in CHOICES]
    delayed = f"{where}, capacity {AMPLE}× demand, {DELAY_S:g} s between pages of a site: ours"
    gains, singles = _gains(runs, "delay ours", "delay random"), [run["single"] for run in runs]
    rows.append(row(delayed, measured=_times(gains), value=median(gains), unit=OVER_RANDOM))
    alone = _times(singles)
    note = f"median over {sites} sites; one page at a time, from the nearest"
    return [*rows, row("a site alone: ours", claim="5.3 × random", measured=alone, note=note,
                      value=median(singles), unit=OVER_RANDOM)]  # fmt: skip


def _chosen(options: Options, runs: Sequence[Mapping[str, float]], capacity: float, size: str, name: str) -> Row:
    """One way to choose, at one capacity. The paper's figures stand beside the ample one: it does not say its own."""
    gains = _gains(runs, f"{capacity} {name}", f"{capacity} random")
    what, claim = CHOICES[name]
    target, met = "", None
    if name == "ours" and capacity == AMPLE:
        target, met = f"at least {GAIN} × random", options.judged(median(gains) >= GAIN)
    elif name == "ours":
        target, met = "never below random", options.judged(min(gains) >= 1)
    claim = claim if capacity == AMPLE else ""
    below = median(gains) < median(_gains(runs, f"{capacity} Top1", f"{capacity} random"))
    note = TOP3_BELOW if name == "Top3" and below else ""
    return Row(PAPER, f"{size}: {what}", claim, target, _times(gains), met, len(runs), note,
               value=median(gains), unit=OVER_RANDOM)  # fmt: skip


def _gains(runs: Sequence[Mapping[str, float]], name: str, base: str) -> list[float]:
    return [run[name] / run[base] for run in runs]


def _times(gains: Sequence[float]) -> str:
    return f"{median(gains):.2f} × random (worst {min(gains):.2f})"


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment("throughput", PAPER, "pages a second of crawlers near and far", run_throughput),
)
