"""Zhang et al. 2019 on real processes: five nodes that are not alike, and one whose resources change one at a time.

Experiment (b), `p1-real`: nodes with lines of the paper's 2 to 14 Mb/s and
unequal shares of a processor crawl a site of 200 kB pages whole: under `bp-pso`
with each model, under `balanced`, and under an equal split, which is a policy of our
own here: each task is one node's by lot, and stays with it. They take turns on the
same machine. 2,400 pages, so that there are enough batches for a net to plan by.

Experiment (a), `p1-slopes`: one node crawls the same site with one resource
little, then much, and enough of all others. More of it counts as *faster* where
every crawl with much of it took less time than any with little, and the medians
are 5 % apart.

What nodes say of themselves, `p1-vectors`: five processes with limits of their own
look at their machine as a node does, and are to find their limits.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from dhtcrawl.storage.store.plan_counters import made_by
from policy_bench.lab import Crawled, Lab, Machine, Unavailable, crawl, site, where_possible
from policy_bench.report import Experiment, Options, Row, at_work

# The paper's range of lines; processors so that the fastest line is not the fastest node by itself.
MACHINES = tuple(
    Machine(cpu=cpu, line_bps=line) for cpu, line in ((0.5, 2e6), (0.5, 4e6), (0.3, 14e6), (1, 6e6), (1, 9e6))
)
PAGES, QUICK_PAGES, PAGE_BYTES = 2_400, 60, 200_000
CONCURRENCY = 8
ROUNDS, SLOPE_ROUNDS = 5, 3
NET_MAX, NET_OF_RATES_MAX, AUTO_MAX = 0.55, 1.05, 1.0
STEP_MAX = 0.25  # of a share, from one plan to the next
# name → policy and options
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "equal": ("equal", ()),
    "rates": ("bp-pso", ("mode=rates",)),
    "net": ("bp-pso", ("mode=net",)),
    "auto": ("bp-pso", ("mode=auto",)),
    "balanced": ("balanced", ()),
}
PAPER_CLAIM = "0.575: 134 s against 233 s"
EQUAL = '''
"""An equal split: each task is one node's by lot, until it is done."""
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import AssignmentTerms, Policy


class Equal(Policy):
    name = "equal"
    pinned = True

    def rank(self, task, candidates, now):
        return rendezvous(task.key, [each.node for each in candidates], {})

    def terms(self, node, host):
        return AssignmentTerms(batch=100_000, budget_s=100_000.0)
'''
IDLE = '''
"""The node that has the least to do, of all."""
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import Policy, failed_last


class Idle(Policy):
    name = "idle"

    def rank(self, task, candidates, now):
        lent = {each.node: each.lent for each in candidates}
        lots = rendezvous(task.key, list(lent), {})
        return failed_last(sorted(lots, key=lambda node: lent[node]), task.failed)
'''

# The same with limits of memory and disk.
CAPPED = tuple(
    replace(each, memory_bytes=memory << 20, disk_bytes_per_s=disk)
    for each, memory, disk in zip(MACHINES, (128, 192, 256, 384, 512), (4e6, 6e6, 8e6, 12e6, 16e6), strict=True)
)
VECTOR_OFF_MAX = 0.15  # of the limit
LOOK = """
import json, sys
from pathlib import Path
from dhtcrawl.cli.machine import Machine
own = Machine(Path(sys.argv[1]))
own.look()
print(json.dumps(own()))
"""

# Its line is not the limit: what else there is little of then shows.
ONE = Machine(line_bps=300e6, cores=(0,))
SLOPE_PAGES, MANY_PAGES = 100, 300
DIFFERENT = 1.05  # medians that are closer are the same
# What there is little of, and much of, of each resource; the paper's direction.
SLOPES: dict[str, tuple[Machine, Machine, str]] = {
    "cores, 1 and 2": (ONE, replace(ONE, cores=(0, 1)), "slower"),
    "processor, 10 and 50 % of a core": (replace(ONE, cpu=0.1), replace(ONE, cpu=0.5), "faster"),
    "memory, 96 MB and 1 GB": (replace(ONE, memory_bytes=96 << 20), replace(ONE, memory_bytes=1 << 30), "faster"),
    "line, 2 and 300 Mb/s": (replace(ONE, line_bps=2e6), ONE, "faster"),
    "disk, 0.2 and 18 MB/s": (replace(ONE, disk_bytes_per_s=0.2e6), replace(ONE, disk_bytes_per_s=18e6), "faster"),
}


def policies(home: Path) -> Path:
    """A directory with a package that brings the policies `equal` and `idle`, to compare with."""
    info = home / "compared-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: compared\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[dhtcrawl.policies]\nequal = equal_split:Equal\nidle = idle_first:Idle\n")
    (home / "equal_split.py").write_text(EQUAL)
    (home / "idle_first.py").write_text(IDLE)
    return home


@contextmanager
def workshop() -> Iterator[Path]:
    """A directory for nodes, gone when all was well or nothing could be measured."""
    home = Path(tempfile.mkdtemp(prefix="dhtcrawl-bench-"))
    try:
        yield home
    except Unavailable:
        shutil.rmtree(home)
        raise
    except BaseException:
        print(f"  it broke off; what the nodes said is in {home}", file=sys.stderr, flush=True)
        raise
    shutil.rmtree(home)


def crawled(
    machines: Sequence[Machine],
    home: Path,
    pages: int,
    policy: str,
    packages: Path | None = None,
    options: Sequence[str] = (),
) -> Crawled:
    """A site crawled whole by new nodes on these machines."""
    with Lab(machines, packages) as lab, site(lab, home, pages, PAGE_BYTES) as made_up:
        found = crawl(lab, home, [made_up.url], policy, "--concurrency", str(CONCURRENCY), options=options)
    if sum(found.pages) != pages:
        raise SystemExit(f"bench: {sum(found.pages)} pages instead of {pages}")
    said = " ".join([policy, *options])
    print(f"  {said}: {found.seconds:.1f} s, {found.pages}", file=sys.stderr, flush=True)
    return found


def five_nodes(options: Options) -> list[Row]:
    """Experiment (b)."""
    pages = QUICK_PAGES if options.quick else PAGES
    rounds = len(options.seeds_or(ROUNDS))
    taken: dict[str, list[Crawled]] = {name: [] for name in RUNS}
    with workshop() as home:
        packages = policies(home / "packages")
        for number in range(rounds):
            for name, found in taken.items():
                policy, own = RUNS[name]
                found.append(crawled(MACHINES, home / f"{number}-{name}", pages, policy, packages, own))
    return rows(taken, options)


def rows(taken: Mapping[str, Sequence[Crawled]], options: Options) -> list[Row]:
    """What they took over the equal split, the net and auto over other models, and how far shares changed."""
    # The model that is better over all rounds: the better run of each round would mostly be the luckier one.
    better = min(_seconds(taken["rates"]), _seconds(taken["net"]), key=median)
    return [
        *(_over_equal(name, taken, options) for name in taken if name != "equal"),
        _over("net over rates", "net", taken["net"], _seconds(taken["rates"]), NET_OF_RATES_MAX, options),
        _over("auto over the better of both", "auto", taken["auto"], better, AUTO_MAX, options),
        _steps_row([run for name in ("rates", "net", "auto") for run in taken[name]], options),
    ]


def _seconds(runs: Sequence[Crawled]) -> list[float]:
    return [run.seconds for run in runs]


def _over_equal(name: str, taken: Mapping[str, Sequence[Crawled]], options: Options) -> Row:
    limit = NET_MAX if name == "net" else None
    row = _over(f"{name} over an equal split", name, taken[name], _seconds(taken["equal"]), limit, options)
    middle = taken[name][len(taken[name]) // 2]
    note = f"{sum(middle.pages)} pages as {'/'.join(map(str, middle.pages))}; {len(taken[name])} rounds"
    return replace(row, claim=PAPER_CLAIM if name == "net" else "", note=note)


def _over(
    what: str, name: str, runs: Sequence[Crawled], others: Sequence[float], limit: float | None, options: Options
) -> Row:
    """Round by round: what some runs took over what others took."""
    ratios = [run.seconds / other for run, other in zip(runs, others, strict=True)]
    took = f"{median(_seconds(runs)):.0f} s against {median(others):.0f} s"
    return Row(
        "P1",
        f"five real nodes with limited processors and lines: {what}",
        "",
        "" if limit is None else f"≤ {limit}",
        f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}; {took})",
        None if limit is None else options.judged(median(ratios) <= limit),
        0,
        value=median(ratios),
        unit="times",
        samples=len(ratios),
        by=at_work(name, [made for run in runs for plan in run.plans if (made := made_by({"made": plan})) is not None]),
    )


def step_of(plans: Sequence[Mapping[str, Any]]) -> float:
    """By what part of itself a node's share changed at most from one plan to the next; 0 where there are not two."""
    steps = [
        abs(later["shares"][node] / share - 1)
        for earlier, later in pairwise(plans)
        if earlier["shares"].keys() == later["shares"].keys()
        for node, share in earlier["shares"].items()
    ]
    return max(steps, default=0.0)


def _steps_row(runs: Sequence[Crawled], options: Options) -> Row:
    steps = [step_of(run.plans) for run in runs]
    return Row(
        "P1",
        "five real nodes: the largest change of a share from one plan to the next, of itself",
        "",
        f"≤ {STEP_MAX}",
        f"{max(steps):.2f} of {sum(len(run.plans) for run in runs)} plans",
        # The API rounds shares to the fourth place.
        options.judged(max(steps) <= STEP_MAX + 0.01),
        0,
        value=max(steps),
        unit="of the share",
        samples=len(steps),
    )


def slopes(options: Options) -> list[Row]:
    """Experiment (a)."""
    pages = QUICK_PAGES if options.quick else SLOPE_PAGES
    rounds = len(options.seeds_or(SLOPE_ROUNDS))
    runs = {name: ((little, pages), (much, pages), claim) for name, (little, much, claim) in SLOPES.items()}
    runs[f"tasks, {SLOPE_PAGES} and {MANY_PAGES}"] = (
        (ONE, pages),
        (ONE, pages if options.quick else MANY_PAGES),
        "slower",
    )
    found: list[Row] = []
    with workshop() as home:
        for name, (*ends, claim) in runs.items():
            print(f"  {name}", file=sys.stderr, flush=True)
            took: tuple[list[float], list[float]] = ([], [])
            for number in range(rounds):
                for end, (machine, count) in enumerate(ends):
                    place = home / f"{len(found)}-{number}-{end}"
                    took[end].append(crawled([machine], place, count, "xor").seconds)
            found.append(slope(name, *took, claim, options))
    return found


def slope(name: str, little: Sequence[float], much: Sequence[float], claim: str, options: Options) -> Row:
    """What more of one resource does."""
    effect, apart = "no difference", median(little) / median(much)
    if max(much) < min(little) and apart > DIFFERENT:
        effect = "faster"
    elif min(much) > max(little) and 1 / apart > DIFFERENT:
        effect = "slower"
    measured = f"{effect}: {median(little):.1f} → {median(much):.1f} s"
    return Row(
        "P1", f"one real node, more {name}", claim, f"{claim} in all of {len(little)} rounds", measured,
        options.judged(effect == claim), 0, value=median(much) / median(little), unit="times", samples=len(little),
    )  # fmt: skip


def vectors(options: Options) -> list[Row]:
    """What five limited processes find of their limits."""
    found = []
    with workshop() as home, Lab(CAPPED) as lab:
        for number in range(len(CAPPED)):
            argv = [*lab.wrapper(f"node{number}"), sys.executable, "-c", LOOK, str(home)]
            told = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)
            found.append(json.loads(told.stdout))
    return vector_rows(found, options)


def vector_rows(found: Sequence[Mapping[str, float]], options: Options) -> list[Row]:
    """What was found beside the limits"""
    limits = {
        "cores": ([each.cpu for each in CAPPED], 1.0, "cores"),
        "memory_bytes": ([float(each.memory_bytes) for each in CAPPED], 1e6, "MB"),
        "disk_bytes_per_s": ([each.disk_bytes_per_s for each in CAPPED], 1e6, "MB/s"),
    }
    rows = []
    for name, (wanted, scale, unit) in limits.items():
        told = [each.get(name, 0.0) for each in found]
        off = max(abs(has / limit - 1) for has, limit in zip(told, wanted, strict=True))
        shown = " / ".join(f"{has / scale:.3g}" for has in told)
        rows.append(
            Row(
                "P1",
                f"five processes with limits of their own: {name} that a node reports",
                "",
                f"within {VECTOR_OFF_MAX:.0%} of {' / '.join(f'{limit / scale:.3g}' for limit in wanted)} {unit}",
                f"{shown} {unit}",
                options.judged(off <= VECTOR_OFF_MAX),
                0,
                value=off,
                unit="of the limit",
                samples=len(told),
                by="cgroups of this machine, and what the disk took",
            )
        )
    return rows


EXPERIMENTS = (
    Experiment("p1-vectors", "P1", "what limited nodes say of their machines", where_possible(vectors)),
    Experiment("p1-real", "P1", "experiment (b) with real nodes on limited machines", where_possible(five_nodes)),
    Experiment("p1-slopes", "P1", "experiment (a): one resource at a time, on a real node", where_possible(slopes)),
)
