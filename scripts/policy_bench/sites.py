"""Yu et al. 2014: who does best at a site gets its tasks. What that brings, and what batches and recalls add."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

from dhtcrawl.policy.dynamic import BUDGET_MAX_S
from dhtcrawl.policy.seam import BUDGET_S
from policy_bench.report import Experiment, Options, Row, each, line_plot
from policy_bench.sites_hours import BUCKET_S, HOURS, Hours, Run, Switches, at_home, by_the_best, of_main_site
from policy_bench.sites_schedules import SCHEDULES
from policy_bench.sites_world import SLOTS, draw, simulate
from policy_bench.sites_world import Run as Pages

SEEDS = 8
OVER_RANDOM_MIN, OVER_OWNER_MIN, OF_ORACLE_MAX = 1.3, 1.4, 1.3
FULL, QUICK = (12, 60), (4, 6)
FEW_SLOTS = 3  # 36 for 60 sites
ON = {
    "all off": Switches(),
    "scheduling": Switches(scheduling=True),
    "modification": Switches(modification=True),
    "recall": Switches(recall=True),
    "all on": Switches(True, True, True),
    "without scheduling": Switches(modification=True, recall=True),
    "without modification": Switches(scheduling=True, recall=True),
    "without recall": Switches(scheduling=True, modification=True),
}
PARTS = ("scheduling", "modification", "recall")
LATER = 6  # buckets of ten minutes: what comes after the first hour

Case = tuple[int, str, int, tuple[int, int]]  # seed, schedule, slots, nodes and sites


def _one(case: Case) -> tuple[Pages, int]:
    """What came of a schedule, and how many pages there were."""
    seed, schedule, slots, size = case
    world = draw(seed, *size)
    return simulate(world, SCHEDULES[schedule](world, seed), seed, slots), sum(world.pages.values())


def makespan(options: Options) -> list[Row]:
    """How long until the last page is there, by who decides."""
    seeds, size = options.seeds_or(SEEDS), QUICK if options.quick else FULL
    scarce = ("random", "dynamic", "oracle")
    cases: list[Case] = [(seed, name, SLOTS, size) for name in SCHEDULES for seed in seeds]
    cases += [(seed, name, FEW_SLOTS, size) for name in scarce for seed in seeds]
    found = dict(zip(cases, each(_one, cases, options.jobs), strict=True))

    def times(name: str, slots: int = SLOTS) -> list[float]:
        return [found[seed, name, slots, size][0].makespan_s for seed in seeds]

    def ratios(name: str, beside: str) -> list[float]:
        return [a / b for a, b in zip(times(name), times(beside), strict=True)]

    over_random, over_owner = ratios("random", "dynamic"), ratios("owner with hand-off", "dynamic")
    of_oracle = ratios("dynamic", "oracle")
    runs = [found[seed, "dynamic", SLOTS, size] for seed in seeds]
    lost = sum(pages - run.pages - run.manual for run, pages in runs)
    manual = sum(run.manual for run, _ in runs)
    others = sum(run.manual for (_, name, slots, _), (run, _) in found.items() if name == "random" and slots == SLOTS)
    count, each_of = len(seeds), f"{size[0]} nodes and {size[1]} sites"
    minutes = ", ".join(
        f"{name} {median(times(name)) / 60:.1f}" for name in SCHEDULES if not name.startswith("dynamic,")
    )
    apart = [name for name in SCHEDULES if name.startswith("dynamic,")]
    apart_minutes = ", ".join(f"{name.removeprefix('dynamic, ')} {median(times(name)) / 60:.1f}" for name in apart)
    worst = min(over_random), min(over_owner), max(of_oracle)
    return [
        Row("P2", f"minutes for {each_of}, 20 % of pairs blocked", "", "", minutes, None, count,
            value=median(times("dynamic")) / 60, unit="min"),
        Row("P2", "dynamic beside random", "", f"{OVER_RANDOM_MIN:g} times as fast", _times(over_random, worst[0]),
            options.judged(median(over_random) >= OVER_RANDOM_MIN), count, value=median(over_random), unit="times"),
        Row("P2", "dynamic beside a fixed owner with hand-off", "", f"{OVER_OWNER_MIN:g} times as fast",
            _times(over_owner, worst[1]), options.judged(median(over_owner) >= OVER_OWNER_MIN), count,
            value=median(over_owner), unit="times"),
        Row("P2", "dynamic beside the oracle", "", f"at most {OF_ORACLE_MAX:g} times as long",
            _times(of_oracle, worst[2]),
            options.judged(median(of_oracle) <= OF_ORACLE_MAX), count, value=median(of_oracle), unit="times"),
        Row("P2", "pages lost, and left to a person after five nodes failed", "", "none, none",
            f"{lost} lost, {manual} left to a person (random: {others})",
            options.judged(lost == 0 and manual == 0), count, "all seeds together",
            value=lost + manual, unit="pages"),
        Row("P2", "minutes where each owner learns for itself", "", "",
            apart_minutes, None, count,
            "the paper's scheduler hears of everything; an owner of pages hears of a twelfth" * (not options.quick),
            value=min(median(times(name)) for name in apart) / 60, unit="min, the fastest"),
        Row("P2", "minutes where slots are scarce and not sites", "", "",
            ", ".join(f"{name} {median(times(name, FEW_SLOTS)) / 60:.1f}" for name in scarce), None, count,
            f"{FEW_SLOTS} requests a node: fewer nodes are free when a site is, so that there is less to choose",
            value=median(times("dynamic", FEW_SLOTS)) / 60, unit="min"),
    ]  # fmt: skip


def _times(ratios: Sequence[float], worst: float) -> str:
    return f"{median(ratios):.2f} (worst {worst:.2f})"


def _hours(case: tuple[int, str, float, float]) -> Hours:
    seed, on, hours, off_budget_s = case
    return Run(draw(seed, 4, 5), ON[on], seed, hours, off_budget_s).play()


def five_hours(options: Options) -> list[Row]:
    """4 nodes, 5 sites: who specialises, and what each part of the method brings."""
    seeds, hours = options.seeds_or(SEEDS), 0.5 if options.quick else float(HOURS)
    runs = {
        (name, budget_s): each(_hours, [(seed, name, hours, budget_s) for seed in seeds], options.jobs)
        for budget_s in (BUDGET_MAX_S, BUDGET_S)
        for name in ON
    }
    long, short = (
        _gains({n: r for (n, b), r in runs.items() if b == budget_s}) for budget_s in (BUDGET_MAX_S, BUDGET_S)
    )
    if options.plots is not None:
        _plot(options.plots, seeds, {name: runs[name, BUDGET_MAX_S] for name in ("all on", "all off")}, hours)
    count = len(seeds)
    claim = "scheduling > modification > recall"
    return [
        Row("P2", f"how nodes specialise in {hours:g} h", "each node specialises on the sites it completes best",
            "", _specialised(seeds, runs["all on", BUDGET_MAX_S], hours), None, count,
            f"everything off: {_specialised(seeds, runs['all off', BUDGET_MAX_S], hours)}. "
            "Nodes differ by up to 4 times, so the fastest are best at several sites, and slow ones at none; "
            "and sites refuse nodes for ten minutes now and then, so that their work has to move",
            value=_at_home_late(seeds, runs["all on", BUDGET_MAX_S], hours), unit="% from the best site"),
        Row("P2", f"pages in {hours:g} h, with {BUDGET_MAX_S:g} s a batch where they are not adapted", claim,
            "each ≥ 0", _effects(long), options.judged(_all_help(long)), count,
            f"the order found: {_order(long)}; 'all off' brings {_pages(runs['all off', BUDGET_MAX_S]):.0f}",
            value=100 * long["all on"], unit="% more pages"),
        Row("P2", f"the same with {BUDGET_S:g} s, the product's", claim,
            "each ≥ 0", _effects(short), options.judged(_all_help(short)), count,
            f"the order found: {_order(short)}; 'all off' brings {_pages(runs['all off', BUDGET_S]):.0f}",
            value=100 * short["all on"], unit="% more pages"),
    ]  # fmt: skip


def _pages(runs: Sequence[Hours]) -> float:
    return median(run.pages.total() for run in runs)


def _gains(runs: dict[str, list[Hours]]) -> dict[str, float]:
    """How many more pages than with everything off; and by `without` a part, how many more with it, too. By seeds."""

    def more(name: str, beside: str) -> float:
        pairs = zip(runs[name], runs[beside], strict=True)
        return median(run.pages.total() / other.pages.total() - 1 for run, other in pairs)

    alone = {name: more(name, "all off") for name in (*PARTS, "all on")}
    return alone | {f"without {part}": more("all on", f"without {part}") for part in PARTS}


def _effects(gains: dict[str, float]) -> str:
    alone = ", ".join(f"{name} {gains[name]:+.0%}" for name in PARTS)
    besides = ", ".join(f"{name} {gains[f'without {name}']:+.0%}" for name in PARTS)
    return f"alone {alone}; all {gains['all on']:+.0%}; to the other two adds {besides}"


def _all_help(gains: dict[str, float]) -> bool:
    return all(gain >= 0 for gain in gains.values())


def _order(gains: dict[str, float]) -> str:
    """The parts by their gain alone, most first."""
    return " > ".join(sorted(PARTS, key=lambda name: -gains[name]))


def _at_home_late(seeds: Sequence[int], runs: Sequence[Hours], hours: float) -> float:
    """The share of a node's pages from the site where it does best, after the first hour: the median of nodes, in %."""
    last = int(hours * 3600 / BUCKET_S)
    late = range(min(LATER, last - 1), last)
    shares = [
        share
        for seed, run in zip(seeds, runs, strict=True)
        for share in at_home(draw(seed, 4, 5), run.pages, late).values()
    ]
    return 100 * median(shares)


def _specialised(seeds: Sequence[int], runs: Sequence[Hours], hours: float) -> str:
    """Medians over all nodes, or sites, of all seeds: in the first ten minutes, and after the first hour."""
    last = int(hours * 3600 / BUCKET_S)
    pairs = [(draw(seed, 4, 5), run.pages) for seed, run in zip(seeds, runs, strict=True)]
    said = []
    for buckets in (range(1), range(min(LATER, last - 1), last)):
        home = [share for world, pages in pairs for share in at_home(world, pages, buckets).values()]
        main = [share for world, pages in pairs for bucket in buckets
                for share in of_main_site(world, pages, bucket).values()]  # fmt: skip
        best = [by_the_best(world, pages, buckets) for world, pages in pairs]
        said.append([f"{median(of):.0%}" for of in (home, main, best)])
    home_, main_, best_ = (" → ".join(pair) for pair in zip(*said, strict=True))
    return (
        f"of a node's pages from the site where it does best {home_}, from its main site {main_}; "
        f"of a site's pages by its best node {best_} (first ten minutes → after an hour)"
    )


def _plot(plots: Path, seeds: Sequence[int], by_name: dict[str, list[Hours]], hours: float) -> None:
    """How much each node specialises, and how much goes to the node best at it: means over the seeds."""
    worlds, buckets = [draw(seed, 4, 5) for seed in seeds], range(int(hours * 3600 / BUCKET_S))
    lines = {}
    for name, runs in by_name.items():
        pairs = [(world, run.pages) for world, run in zip(worlds, runs, strict=True)]
        lines[f"of a node's pages, from its main site: {name}"] = [
            ((bucket + 1) * BUCKET_S / 3600,
             mean(share for world, pages in pairs for share in of_main_site(world, pages, bucket).values()))
            for bucket in buckets
        ]  # fmt: skip
        lines[f"of a site's pages, by its best node: {name}"] = [
            ((bucket + 1) * BUCKET_S / 3600, mean(by_the_best(world, pages, [bucket]) for world, pages in pairs))
            for bucket in buckets
        ]
    (plots / "sites-specialise.svg").write_text(line_plot("How nodes specialise", "hours", "share of pages", lines))


EXPERIMENTS = (
    Experiment("sites-makespan", "P2", "random, owners, completion only, dynamic, oracle", makespan),
    Experiment("sites-hours", "P2", "five hours: what specialises, and what each part brings", five_hours),
)
