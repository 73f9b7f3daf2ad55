"""Zhang et al. 2019 on real processes: five nodes that are not alike, and one whose resources change one at a time.

Experiment (b), `p1-real`: nodes with lines of the paper's 2 to 14 Mb/s and
unequal shares of a processor crawl a site of 200 kB pages whole: under `bp-pso`,
under `balanced`, and under an equal split, which is a policy of our own here: each
task is one node's by lot, and stays with it. They take turns on the same machine.

Experiment (a), `p1-slopes`: one node crawls the same site with one resource
little, then much, and enough of all others. More of it counts as *faster* where
every crawl with much of it took less time than any with little, and the medians
are 5 % apart.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from policy_bench.lab import Crawled, Lab, Machine, Unavailable, crawl, site, where_possible
from policy_bench.report import Experiment, Options, Row

# The paper's range of lines; processors so that the fastest line is not the fastest node by itself.
MACHINES = tuple(
    Machine(cpu=cpu, line_bps=line) for cpu, line in ((0.5, 2e6), (0.5, 4e6), (0.3, 14e6), (1, 6e6), (1, 9e6))
)
PAGES, QUICK_PAGES, PAGE_BYTES = 1_000, 60, 200_000
CONCURRENCY = 8
ROUNDS, SLOPE_ROUNDS = 3, 3
RATIO_MAX = 0.60
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

ONE = Machine(line_bps=30e6, cores=(0,))
SLOPE_PAGES, MANY_PAGES = 100, 300
DIFFERENT = 1.05  # medians that are closer are the same
# What there is little of, and much of, of each resource; the paper's direction.
SLOPES: dict[str, tuple[Machine, Machine, str]] = {
    "cores, 1 and 2": (ONE, replace(ONE, cores=(0, 1)), "slower"),
    "processor, 10 and 50 % of a core": (replace(ONE, cpu=0.1), replace(ONE, cpu=0.5), "faster"),
    "memory, 96 MB and 1 GB": (replace(ONE, memory_bytes=96 << 20), replace(ONE, memory_bytes=1 << 30), "faster"),
    "line, 2 and 30 Mb/s": (replace(ONE, line_bps=2e6), ONE, "faster"),
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


def crawled(machines: Sequence[Machine], home: Path, pages: int, policy: str, packages: Path | None = None) -> Crawled:
    """A site crawled whole by new nodes on these machines."""
    with Lab(machines, packages) as lab, site(lab, home, pages, PAGE_BYTES) as made_up:
        found = crawl(lab, home, [made_up.url], policy, "--concurrency", str(CONCURRENCY))
    if sum(found.pages) != pages:
        raise SystemExit(f"bench: {sum(found.pages)} pages instead of {pages}")
    print(f"  {policy}: {found.seconds:.1f} s, {found.pages}", file=sys.stderr, flush=True)
    return found


def five_nodes(options: Options) -> list[Row]:
    """Experiment (b)."""
    pages = QUICK_PAGES if options.quick else PAGES
    rounds = len(options.seeds_or(ROUNDS))
    taken: dict[str, list[Crawled]] = {"equal": [], "bp-pso": [], "balanced": []}
    with workshop() as home:
        packages = policies(home / "packages")
        for number in range(rounds):
            for policy, found in taken.items():
                found.append(crawled(MACHINES, home / f"{number}-{policy}", pages, policy, packages))
    return rows(taken, options)


def rows(taken: dict[str, list[Crawled]], options: Options) -> list[Row]:
    """What they took over the equal split, round by round."""
    equal = [each.seconds for each in taken["equal"]]
    found = []
    for policy in ("bp-pso", "balanced"):
        ratios = [each.seconds / base for each, base in zip(taken[policy], equal, strict=True)]
        middle, ours = taken[policy][len(ratios) // 2], policy == "bp-pso"
        what = f"five real nodes with limited processors and lines: {policy} over an equal split"
        target, met = (f"≤ {RATIO_MAX}", options.judged(median(ratios) <= RATIO_MAX)) if ours else ("", None)
        took = f"{median(each.seconds for each in taken[policy]):.0f} s against {median(equal):.0f} s"
        measured = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}; {took})"
        note = f"{sum(middle.pages)} pages as {'/'.join(map(str, middle.pages))}; {len(ratios)} rounds"
        found.append(Row("P1", what, PAPER_CLAIM if ours else "", target, measured, met, 0, note,
                         value=median(ratios), unit="times", samples=len(ratios)))  # fmt: skip
    return found


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


EXPERIMENTS = (
    Experiment("p1-real", "P1", "experiment (b) with real nodes on limited machines", where_possible(five_nodes)),
    Experiment("p1-slopes", "P1", "experiment (a): one resource at a time, on a real node", where_possible(slopes)),
)
