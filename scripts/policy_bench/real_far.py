"""Liu et al. 2010 on real processes: nodes and sites that are far from each other (`p3-real`, `p3-polite`).

Nodes and sites lie in three regions of a plane. From one region to another a
packet takes about 120 ms, within one about 20 (`policy_bench.far`). A node has two
pages under way at a time, so that what it does in a second depends on how far it
goes for them. The same sites are crawled whole by new
nodes under `gnp`, under `gnp` with the paper's choices, and with a node drawn by
lot for each task, or the one that has the least to do wherever it is; they take
turns on the same machine.

At the default delay (`p3-polite`) a site is asked for one page at a time, and
nothing is faster than its nearest node all the way: `bound_s`.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from math import dist
from pathlib import Path
from random import Random
from statistics import median

from policy_bench.far import MTU, router, tun
from policy_bench.lab import Crawled, Hosts, Unavailable, crawl, importing, run, site, where_possible
from policy_bench.real_uneven import policies, workshop
from policy_bench.report import Experiment, Options, Row

NODES, SITES = 9, 3
PAGES, QUICK_PAGES, PAGE_BYTES = 500, 20, 22_000
REGION_S, SPREAD_S = 0.120, 0.010  # one way: between centres, and from a centre
LEAST_S = 0.001
NODE_OPTIONS = ("--concurrency", "2", "--log-level", "info")
ROUNDS = 3
RATIO_MIN = 1.25
POLITE_S, POLITE_PAGES, POLITE_ROUNDS = 1.0, 150, 3
BOUND_MIN = 0.9
PLACED_MAX_S = 5.0
PLACED = re.compile(
    r"^(?P<second>\S+ \S+),(?P<ms>\d{3}) INFO .*: plan \d+ of crawl \w+: (?P<sites>\d+) sites", re.MULTILINE
)
# A page and its head are 17 segments, of which a server sends ten before it hears of the first (RFC 6928), also after a
# pause (RFC 9293 with RFC 5681, 4.1): its last byte comes a second round trip after the request.
TRIPS = 2
OURS, IDLE = "least loaded of three", "least loaded of all"
# Under which names they run: the policy, and its options.
CHOICES: dict[str, tuple[str, list[str]]] = {
    "by lot": ("equal", []),
    IDLE: ("idle", []),
    OURS: ("gnp", []),
    "Top3": ("gnp", ["choice=top3"]),
    "Top1": ("gnp", ["choice=top1"]),
}
CLAIMS = {"Top3": "1.36", "Top1": "1.22"}


def places(count: int, rng: Random) -> list[tuple[float, float]]:
    """Points of hosts, as many in each of the three regions; distances are seconds."""
    centres = [(0.0, 0.0), (REGION_S, 0.0), (REGION_S / 2, REGION_S * 0.866)]
    return [
        (centres[number % 3][0] + rng.gauss(0, SPREAD_S), centres[number % 3][1] + rng.gauss(0, SPREAD_S))
        for number in range(count)
    ]


class FarHosts(Hosts):
    """Hosts, and what a packet takes from one to another."""

    def __init__(self, names: Sequence[str], delays: Sequence[Sequence[float]], packages: Path) -> None:
        super().__init__(names)
        self._delays = delays
        self._packages = packages
        self._router_process: subprocess.Popen[bytes] | None = None

    def wrapper(self, name: str) -> list[str]:
        """As there; what is in `packages` can be imported."""
        return [*super().wrapper(name), *importing(self._packages)]

    def _make(self) -> None:
        for name in ("router", *self.names):
            run(["ip", "netns", "add", self._namespace(name)])
        descriptors: list[int] = []
        try:
            try:
                with self.on("router"):
                    for number in range(len(self.names)):
                        descriptors.append(tun(f"far{number}"))
            except OSError as error:
                raise Unavailable(f"/dev/net/tun cannot be used here: {error.strerror}") from error
            for number, name in enumerate(self.names):
                there = self._namespace(name)
                here = ["ip", "-netns", self._namespace("router"), "link", "set", f"far{number}"]
                run([*here, "netns", there, "name", "eth0"])
                run(["ip", "-netns", there, "link", "set", "lo", "up"])
                run(["ip", "-netns", there, "address", "add", f"{self.address(name)}/24", "dev", "eth0"])
                run(["ip", "-netns", there, "link", "set", "eth0", "mtu", str(MTU), "up"])
            self._router_process = router(descriptors, self._delays)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _remove(self) -> None:
        if self._router_process is not None:
            self._router_process.kill()
            self._router_process.wait()
        super()._remove()


NAMES = [*(f"node{number}" for number in range(NODES)), *(f"site{number}" for number in range(SITES))]


def ways_s(seed: int) -> list[list[float]]:
    """What a packet takes from each host to each other, in seconds; the nodes first, then the sites."""
    points = places(len(NAMES), Random(seed))
    return [[max(LEAST_S, dist(one, other)) for other in points] for one in points]


def bound_s(seed: int, pages: int, delay_s: float) -> float:
    """What no schedule can beat: robots.txt and the pages in turn, each by the nearest node on an open connection.

    A delay lies before each page, and none before robots.txt or after the last.
    """
    ways = ways_s(seed)
    nearest = [min(ways[node][NODES + site] for node in range(NODES)) for site in range(SITES)]
    return max(2 * way + pages * (delay_s + TRIPS * 2 * way) for way in nearest)


def crawled(choice: str, home: Path, seed: int, pages: int, packages: Path, delay_s: float = 0.0) -> Crawled:
    """The sites crawled whole by new nodes."""
    policy, options = CHOICES[choice]
    with FarHosts(NAMES, ways_s(seed), packages) as hosts, contextlib.ExitStack() as stack:
        names = [f"site{number}" for number in range(SITES)]
        sites = [stack.enter_context(site(hosts, home, pages, PAGE_BYTES, name)) for name in names]
        urls = [each.url for each in sites]
        found = crawl(hosts, home, urls, policy, *NODE_OPTIONS, options=options, delay_s=delay_s)
        first_at = min(each.totals().first_at for each in sites)
    if sum(found.pages) != SITES * pages:
        raise SystemExit(f"bench: {sum(found.pages)} pages instead of {SITES * pages}")
    found = found._replace(placed_s=placed_s(found.said, first_at))
    placed = "" if found.placed_s is None else f", places after {found.placed_s[0]:.1f} and {found.placed_s[1]:.1f} s"
    print(f"  {choice}: {found.seconds:.1f} s, {found.pages}{placed}", file=sys.stderr, flush=True)
    return found


def placed_s(said: Sequence[str], first_at: float) -> tuple[float, float] | None:
    """Seconds from `first_at`, by the wall clock, until one node and until all have places of all sites."""
    times: list[float] = []
    for text in said:
        found = [match for match in PLACED.finditer(text) if int(match["sites"]) >= SITES]
        if not found:
            return None
        times.append(time.mktime(time.strptime(found[0]["second"], "%Y-%m-%d %H:%M:%S")) + int(found[0]["ms"]) / 1000)
    return min(times) - first_at, max(times) - first_at


def far_sites(options: Options) -> list[Row]:
    """Pages a second over those with a node drawn by lot, round by round; a round has its own places."""
    pages = QUICK_PAGES if options.quick else PAGES
    seeds = options.seeds_or(ROUNDS)
    taken: dict[str, list[Crawled]] = {choice: [] for choice in CHOICES}
    with workshop() as home:
        packages = policies(home / "packages")
        for seed in seeds:
            for choice, found in taken.items():
                found.append(crawled(choice, home / f"{seed} {choice}".replace(" ", "-"), seed, pages, packages))
    return rows(taken, options)


def polite_sites(options: Options) -> list[Row]:
    """The same at the default delay, by a node by lot, the least loaded of all, and under `gnp`."""
    pages = QUICK_PAGES if options.quick else POLITE_PAGES
    seeds = options.seeds_or(POLITE_ROUNDS)
    taken: dict[str, list[Crawled]] = {choice: [] for choice in ("by lot", IDLE, OURS)}
    with workshop() as home:
        packages = policies(home / "packages")
        for seed in seeds:
            for choice, found in taken.items():
                place = home / f"{seed} {choice}".replace(" ", "-")
                found.append(crawled(choice, place, seed, pages, packages, POLITE_S))
    return polite_rows(taken, [bound_s(seed, pages, POLITE_S) for seed in seeds], options)


def polite_rows(taken: dict[str, list[Crawled]], bounds: Sequence[float], options: Options) -> list[Row]:
    """The table: what the bound takes over what each took."""
    found = []
    for choice, runs in taken.items():
        ratios = [bound / each.seconds for each, bound in zip(runs, bounds, strict=True)]
        ours = choice == OURS
        target, met = (f"≥ {BOUND_MIN}", options.judged(median(ratios) >= BOUND_MIN)) if ours else ("", None)
        found.append(
            Row("P3", f"the same at a delay of {POLITE_S:g} s, pages a second over the bound, {choice}", "", target,
                f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", met, len(runs),
                f"{median(each.seconds for each in runs):.0f} s; the bound is {median(bounds):.0f} s",
                value=median(ratios), unit="times"))  # fmt: skip
    return [*found, over_idle(taken, options), placed(taken[OURS], options)]


def rows(taken: dict[str, list[Crawled]], options: Options) -> list[Row]:
    """The table."""
    lots = [each.seconds for each in taken["by lot"]]
    found = []
    for choice in list(CHOICES)[1:]:
        ratios = [base / each.seconds for each, base in zip(taken[choice], lots, strict=True)]
        ours = choice == OURS
        measured = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        what = f"{NODES} real nodes in three regions, {SITES} sites: pages a second over random, {choice}"
        target, met = (f"≥ {RATIO_MIN}", options.judged(median(ratios) >= RATIO_MIN)) if ours else ("", None)
        took_s = median(each.seconds for each in taken[choice])
        note = f"{took_s:.0f} s against {median(lots):.0f} s"
        found.append(Row("P3", what, CLAIMS.get(choice, ""), target, measured, met, len(lots), note,
                         value=median(ratios), unit="times"))  # fmt: skip
    return [*found, over_idle(taken, options), placed(taken[OURS], options)]


def placed(runs: Sequence[Crawled], options: Options) -> Row:
    """How soon the sites have places; where they never had, as late as the crawl's end."""
    published = [each.seconds if each.placed_s is None else each.placed_s[0] for each in runs]
    known = [each.seconds if each.placed_s is None else each.placed_s[1] for each in runs]
    measured = f"{median(published):.1f} s (at most {max(published):.1f}); at all nodes {median(known):.1f} s"
    what = f"{NODES} real nodes in three regions: from the first page until all {SITES} sites have a place"
    met = options.judged(median(published) <= PLACED_MAX_S)
    return Row("P3", what, "", f"≤ {PLACED_MAX_S:g} s", measured, met, len(runs), value=median(published), unit="s")


def over_idle(taken: dict[str, list[Crawled]], options: Options) -> Row:
    """What coordinates bring: pages a second of ours over those of the least loaded of all."""
    ratios = [base.seconds / each.seconds for each, base in zip(taken[OURS], taken[IDLE], strict=True)]
    measured = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    what = "the same, pages a second over the least loaded of all, which knows no places"
    met = options.judged(median(ratios) >= 1.0)
    return Row("P3", what, "", "≥ 1", measured, met, len(ratios), value=median(ratios), unit="times")


EXPERIMENTS = (
    Experiment("p3-real", "P3", "real nodes and sites that are far from each other", where_possible(far_sites)),
    Experiment("p3-polite", "P3", "the same at the default delay, beside its bound", where_possible(polite_sites)),
)
