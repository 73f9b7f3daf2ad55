"""What churn costs a crawl: pages lost and fetched twice, records and frames a page; ours beside the paper's protocol.

Both crawl the same made-up webs in the simulator, on the same network with 1 %
of datagrams lost, and the same befalls both, drawn from the same seed
(`scripts/paper.py` says what the paper's protocol is, and what it leaves
open). 40 nodes, 4,000 pages with 8 links each, all to pages, so that a page is
a page whoever counts: links to nowhere and redirects would be fetched URLs
without links. Each regime is crawled once with each seed.

A page that came whole, and comes whole again, is a refetch; a request that a
crash cut short is not, when it is made again. Where disks are lost, the pages that
lay only there have to be fetched again; what is beyond them is judged.
*Records* are links, copies and tombstones that went from one node to another,
*frames* what they went in; answers do not count, nor do the paper's look-ups.

    python scripts/bench_churn.py [--seeds N] [--regime NAME]… [--jobs N] [--quick] [--json FILE]

A seed of a regime takes one to three minutes of CPU; with --quick a few seconds.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import benchmark
import ended
from paper_swarm import simulate_paper

from dhtcrawl.sim.scenario import Scenario
from dhtcrawl.sim.swarm_run import simulate_swarm

# A node that comes back does so before its pages are given up; one that does not costs this much time at the end.
HOLDER_GRACE_S = 120.0
AWAY_S = 60.0
PAPER = f"the paper's protocol in {benchmark.SIMULATED}"
RECORDS_MAX = 14.0  # at 8 links a page: each link once, three copies, three tombstones


class Size(NamedTuple):
    """How large; the pages are slow so that the crawl lasts long enough for what is to befall it."""

    nodes: int
    hosts: int
    pages: int
    page_s: float
    from_s: tuple[float, float]  # when the nodes are killed: drawn from this
    churn_every_s: float


FULL = Size(nodes=40, hosts=20, pages=4000, page_s=0.5, from_s=(20.0, 60.0), churn_every_s=5.0)
# As often for each node.
SMALL = Size(nodes=10, hosts=8, pages=300, page_s=0.5, from_s=(10.0, 25.0), churn_every_s=20.0)


def _fifth(size: Size) -> int:
    return size.nodes // 5


class Regime(NamedTuple):
    """What befalls the nodes."""

    name: str
    text: str
    faults: Callable[[Size], dict[str, Any]]
    refetch_max: float  # % of the pages, beyond those that lay only on lost disks
    paper: bool = True  # it can do this, too


REGIMES = [
    Regime("calm", "no churn", lambda size: {}, 0.0),
    Regime("restart", "20 % killed at once, back with their disks after 60 s",
           lambda size: {"crashes": 1, "crash_at_once": _fifth(size), "away_s": AWAY_S}, 0.1),
    Regime("disks", "20 % killed at once with their disks",
           lambda size: {"disk_losses": 1, "disk_losses_at_once": _fifth(size), "away_s": -1.0}, 0.1),
    Regime("copies", "the same, two copies of each body",
           lambda size: {"disk_losses": 1, "disk_losses_at_once": _fifth(size), "away_s": -1.0, "copies": 2},
           0.1, paper=False),
    Regime("churn", "a crash and a join again and again, back after 60 s",
           lambda size: {"churn_every_s": size.churn_every_s, "away_s": AWAY_S}, 2.5),
]  # fmt: skip


class Figures(NamedTuple):
    """Of one run."""

    lost: int
    pages_missing: int
    refetch: float  # % of the pages
    beyond: float  # the same without as many as lay only on lost disks
    records: float  # a page
    frames: float
    seconds: float  # virtual
    crashes: int
    broken: tuple[str, ...] = ()  # promises


def scenario(regime: Regime, size: Size, seed: int) -> Scenario:
    """A run."""
    faults = regime.faults(size)
    at_once = "churn_every_s" not in faults and faults
    return dataclasses.replace(
        Scenario(),
        nodes=size.nodes,
        hosts=size.hosts,
        pages=size.pages,
        page_s=size.page_s,
        broken=0.0,
        delay_s=0.0,
        concurrency=1,
        loss=0.01,
        holder_grace_s=HOLDER_GRACE_S,
        crash_every_s=0.001,
        faults_from_s=Random(f"{seed} from").uniform(*size.from_s) if at_once else 0.0,
        **faults,
    )


def ours(regime: Regime, size: Size, seed: int) -> Figures:
    """One crawl by dhtcrawl."""
    result = simulate_swarm(scenario(regime, size, seed), seed)
    pages = max(1, result.pages)
    return Figures(
        lost=result.lost,
        pages_missing=result.pages_missing,
        refetch=100 * result.refetched / pages,
        beyond=100 * max(0, result.refetched - result.bodies_lost) / pages,
        records=result.records_per_page,
        frames=result.frames_per_page,
        seconds=result.virtual_seconds,
        crashes=result.crashes,
        broken=tuple(result.violations),
    )


def papers(regime: Regime, size: Size, seed: int) -> Figures:
    """The same crawl by the paper's protocol."""
    result = simulate_paper(scenario(regime, size, seed), seed)
    pages = max(1, result.pages)
    return Figures(
        lost=result.lost,
        pages_missing=result.pages_missing,
        refetch=100 * result.refetched / pages,
        beyond=100 * max(0, result.refetched - result.bodies_lost) / pages,
        records=result.records_moved / pages,
        frames=result.record_frames / pages,
        seconds=result.virtual_seconds,
        crashes=result.crashes,
    )


def one(task: tuple[bool, str, Size, int]) -> Figures:
    """A run, by what a process can be sent."""
    is_ours, name, size, seed = task
    (regime,) = [regime for regime in REGIMES if regime.name == name]
    return (ours if is_ours else papers)(regime, size, seed)


class Outcome(NamedTuple):
    """A regime with all its seeds."""

    regime: Regime
    seeds: list[int]
    ours: list[Figures]
    papers: list[Figures]


def measure(regimes: Iterable[Regime], size: Size, seeds: list[int], jobs: int) -> list[Outcome]:
    """Crawl; what breaks is told as it comes."""
    outcomes = []
    with ended.workers(jobs) as pool:
        for regime in regimes:
            kinds = (True, False) if regime.paper else (True,)
            found: dict[bool, list[Figures]] = {True: [], False: []}
            for kind in kinds:
                tasks = [(kind, regime.name, size, seed) for seed in seeds]
                for seed, figures in zip(seeds, pool.map(one, tasks), strict=True):
                    found[kind].append(figures)
                    _tell(regime, seed, figures, kind)
            outcomes.append(Outcome(regime, seeds, found[True], found[False]))
    return outcomes


def _tell(regime: Regime, seed: int, figures: Figures, is_ours: bool) -> None:
    who = "ours" if is_ours else "paper"
    text = f"{regime.name} {who}, seed {seed}: refetched {figures.refetch:.2f} %, lost {figures.lost}, "
    text += f"{figures.crashes} crashes, {figures.seconds:.0f} s"
    print(text + "".join(f"\n    {problem}" for problem in figures.broken[:5]), file=sys.stderr, flush=True)


def rows(outcomes: list[Outcome]) -> list[benchmark.Row]:
    """What is judged: the worst of all seeds where nothing may be lost, the median else."""
    report = []
    for regime, _, mine, theirs in outcomes:
        samples = len(mine)
        report += [
            row(f"{regime.name}: lost", "0 with every seed", 0, max(each.lost for each in mine), "links", samples),
            row(f"{regime.name}: pages missing", "0 with every seed", 0, max(f.pages_missing for f in mine), "pages",
                samples),
            row(f"{regime.name}: promises broken", "none", 0, sum(len(each.broken) for each in mine), "", samples),
            row(f"{regime.name}: refetched, what only lost disks had aside", f"at most {regime.refetch_max:g} %",
                regime.refetch_max, median(each.beyond for each in mine), "%", samples),
            row(f"{regime.name}: records", f"at most {RECORDS_MAX:g}" if regime.name == "calm" else "",
                RECORDS_MAX if regime.name == "calm" else None, median(f.records for f in mine), "/page", samples),
            row(f"{regime.name}: frames", "", None, median(each.frames for each in mine), "/page", samples),
        ]  # fmt: skip
        if theirs:
            figures = (
                ("lost", float(max(each.lost for each in theirs)), "pages"),
                ("refetched", median(each.refetch for each in theirs), "%"),
                ("records", median(each.records for each in theirs), "/page"),
                ("frames", median(each.frames for each in theirs), "/page"),
            )
            for what, measured, unit in figures:
                report.append(row(f"{regime.name}, paper: {what}", "", None, measured, unit, samples, PAPER))
    return report


def row(
    name: str, claim: str, target: float | None, measured: float, unit: str, samples: int, by: str = benchmark.SIMULATED
) -> benchmark.Row:
    """One row of the report; a target is the most that is allowed."""
    ok = target is None or measured <= target
    return benchmark.row(
        name, float(f"{measured:.4g}"), unit, samples, by=by, claim=claim, target=target, ok=ok, digits=9
    )


COLUMNS = ("lost", "missing", "refetch %", "beyond %", "records", "frames")


def table(outcomes: list[Outcome]) -> str:
    """For people: medians, of what may not be the worst."""
    head = f"{'':52}{'seeds':>6}   {'':5}" + "".join(f"{column:>11}" for column in COLUMNS) + f"{'broken':>8}"
    lines = [head]
    for regime, seeds, mine, theirs in outcomes:
        for who, runs in (("ours", mine), ("paper", theirs)):
            if not runs:
                continue
            cells = f"{max(f.lost for f in runs):>11}{max(f.pages_missing for f in runs):>11}"
            cells += f"{median(f.refetch for f in runs):>11.2f}{median(f.beyond for f in runs):>11.2f}"
            cells += f"{median(f.records for f in runs):>11.1f}{median(f.frames for f in runs):>11.1f}"
            broken = f"{sum(map(bool, (f.broken for f in runs))):>8}" if who == "ours" else ""
            lines.append(f"{regime.text if who == 'ours' else '':52}{len(seeds):>6}   {who:5}{cells}{broken}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Measure, print, write; 0 only when every row with a target is ok."""
    parser = argparse.ArgumentParser(description="What churn costs a crawl, beside the paper's protocol.")
    parser.add_argument("--small", action="store_true", dest="quick", help=argparse.SUPPRESS)
    parser.add_argument("--seeds", type=benchmark.count, metavar="N", default=1, help="runs of each regime (1)")
    parser.add_argument("--first-seed", type=int, metavar="N", default=1, help="of these (1)")
    parser.add_argument("--regime", action="append", choices=[each.name for each in REGIMES], help="only this one")
    parser.add_argument("--jobs", type=benchmark.count, metavar="N", default=os.cpu_count(), help="runs at once")
    benchmark.add_options(parser, "10 nodes, 300 pages; under a minute")
    args = parser.parse_args(argv)
    seeds = list(range(args.first_seed, args.first_seed + args.seeds))
    regimes = [regime for regime in REGIMES if not args.regime or regime.name in args.regime]
    outcomes = measure(regimes, SMALL if args.quick else FULL, seeds, args.jobs)
    print(f"\n{table(outcomes)}\nmedians over the seeds; lost and missing: the worst", file=sys.stderr)
    report = rows(outcomes)
    for item in report:
        if not item["ok"]:
            print(f"NOT OK  {item['name']}: {item['measured']:g} {item['unit']} ({item['claim']})", file=sys.stderr)
    return benchmark.finish(report, args.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
