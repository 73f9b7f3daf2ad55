"""What runs of crawlers come to: rows, the table for the documentation, a plot. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from statistics import median

import benchmark

STARTUP = "start-up"
US = "dhtcrawl"
HEAD = (
    "crawler", "writes", "CPU-s per 1,000 pages", "start-up taken off", "times ours", "pages/s", "memory, MiB", "pages",
    "runs",
)  # fmt: skip
COLOURS = ("#06b", "#888")


@dataclass(frozen=True, slots=True)
class Run:
    """One crawl of one site by one crawler."""

    site: str
    crawler: str
    turn: float  # when its round began: runs of one round are compared with each other
    cpu_s: float
    wall_s: float
    peak_bytes: int
    pages: int
    pages_again: int  # asked for once more
    others: int  # requests for what is no page
    missing: int  # pages that our crawl of this site had, and this one had not
    extra: int  # the other way round


@dataclass(frozen=True, slots=True)
class Target:
    """Ours may cost at most `most` times what `than` does on a site."""

    site: str
    of: str
    than: str
    most: float
    warm: bool = False  # start-up taken off
    goal: bool = False  # reported, and no failure
    ms_more: float = 0.0  # or so many milliseconds a page more, whatever the ratio

    @property
    def name(self) -> str:
        """Of its row."""
        return f"{self.site}: {self.of} / {self.than}"


TARGETS = (
    Target("cppreference", US, "wget", 1.5),
    Target("cppreference", US, "wget-warc", 0.4),
    Target("cppreference", US, "scrapy", 1 / 25),
    Target("cppreference", US, "crawlee", 1 / 15, goal=True),
    Target("cppreference", US, "spider", 1 / 3, goal=True),
    Target("generated", US, "spider", 1.0, goal=True),
    Target("cppreference", "dhtcrawl-5-balanced", US, 1.35, warm=True, ms_more=0.25),
    Target("cppreference", "dhtcrawl-5-xor", US, 1.35, warm=True, ms_more=0.25),
)


class Runs:
    """Runs by site and crawler, in the order in which they came."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._by: defaultdict[tuple[str, str], list[Run]] = defaultdict(list)
        for run in runs:
            self._by[run.site, run.crawler].append(run)

    @property
    def sites(self) -> list[str]:
        """Those whose pages count."""
        return list(dict.fromkeys(site for site, _ in self._by if site != STARTUP))

    def crawlers(self, site: str) -> list[str]:
        """Who crawled a site."""
        return [crawler for at, crawler in self._by if at == site]

    def of(self, site: str, crawler: str) -> list[Run]:
        """In order; none is an empty list."""
        return self._by.get((site, crawler), [])

    def startup_s(self, crawler: str) -> float:
        """CPU-seconds of a crawl of one page; 0 where that was not measured."""
        return median([run.cpu_s for run in self.of(STARTUP, crawler)] or [0.0])

    def cpu(self, site: str, crawler: str, *, warm: bool = False) -> list[float]:
        """CPU-seconds for 1,000 pages, which are milliseconds a page, of each run; with `warm`, start-up taken off."""
        off = self.startup_s(crawler) if warm else 0.0
        return [1000 * (run.cpu_s - off) / max(run.pages, 1) for run in self.of(site, crawler)]

    def ratios(self, site: str, of: str, than: str, *, warm: bool = False) -> list[float]:
        """What a page costs `of`, in multiples of what it costs `than` in the same round."""
        both = [
            dict(zip((r.turn for r in self.of(site, c)), self.cpu(site, c, warm=warm), strict=True)) for c in (of, than)
        ]
        return [both[0][turn] / both[1][turn] for turn in both[0] if both[1].get(turn)]


def rows_of(runs: Runs, targets: Sequence[Target] = TARGETS) -> list[benchmark.Row]:
    """A row for each crawler, site and measure; then one for each target whose two crawlers have run."""
    rows: list[benchmark.Row] = []
    measures: list[tuple[str, str, Callable[[Run], float]]] = [
        ("wall", "s", lambda run: run.wall_s),
        ("pages_per_second", "pages/s", lambda run: run.pages / run.wall_s),
        ("peak_memory", "MiB", lambda run: run.peak_bytes / 2**20),
        ("pages_again", "pages", lambda run: run.pages_again),
        ("other_requests", "requests", lambda run: run.others),
    ]
    for site in runs.sites:
        for crawler in runs.crawlers(site):
            some = runs.of(site, crawler)
            name = f"{site}: {crawler}"
            for warm in (False, True):
                values = runs.cpu(site, crawler, warm=warm)
                claim = "start-up taken off" if warm else "CPU of all its processes"
                ending = "cpu_warm" if warm else "cpu"
                rows.append(_row(f"{name} {ending}", crawler, values, "s/1,000", claim))
            rows += [_row(f"{name} {what}", crawler, [of(run) for run in some], unit) for what, unit, of in measures]
            rows.append(same_pages(name, some))
    rows += [
        _row(f"{STARTUP}: {c} cpu", c, [r.cpu_s for r in runs.of(STARTUP, c)], "s") for c in runs.crawlers(STARTUP)
    ]
    return rows + [row for target in targets for row in judged(runs, target)]


def same_pages(name: str, some: Sequence[Run]) -> benchmark.Row:
    """That each run had the pages that ours had."""
    missing, extra = max(run.missing for run in some), max(run.extra for run in some)
    ours = some[0].pages + some[0].missing - some[0].extra
    claim = "the pages that ours had" + (f"; at most {missing} missing, {extra} more" if missing or extra else "")
    return benchmark.row(
        f"{name} pages", median(run.pages for run in some), "pages", [run.pages for run in some],
        by=some[0].crawler, claim=claim, target=ours, ok=not missing and not extra,
    )  # fmt: skip


def judged(runs: Runs, target: Target) -> list[benchmark.Row]:
    """The row of a target, or none."""
    ratios = runs.ratios(target.site, target.of, target.than, warm=target.warm)
    if not ratios:
        return []
    cost = [median(runs.cpu(target.site, crawler, warm=target.warm)) for crawler in (target.of, target.than)]
    met = median(ratios) <= target.most or 0 < target.ms_more >= cost[0] - cost[1]
    words = [f"{'a goal' if target.goal else 'at most'}: {target.most:.3g}"]
    words += [f"or {target.ms_more:g} ms more ({cost[0] - cost[1]:+.2f})"] if target.ms_more else []
    words += ["start-up taken off"] if target.warm else []
    return [
        benchmark.row(
            target.name, median(ratios), "times", ratios, claim=", ".join(words),
            target=None if target.goal else round(target.most, 3), ok=met or target.goal,
        )
    ]  # fmt: skip


def _row(name: str, by: str, values: Sequence[float], unit: str, claim: str = "") -> benchmark.Row:
    return benchmark.row(name, median(values), unit, values, by=by, claim=claim)


def markdown(runs: Runs, writes: Mapping[str, str]) -> str:
    """A table for each site, for people and for the documentation."""
    parts: list[str] = []
    for site in runs.sites:
        parts += [
            f"\n{site}\n",
            f"| {' | '.join(HEAD)} |",
            f"|{'---|' * len(HEAD)}",
        ]
        parts += [_line(runs, site, crawler, writes) for crawler in runs.crawlers(site)]
    return "\n".join(parts)


def _line(runs: Runs, site: str, crawler: str, writes: Mapping[str, str]) -> str:
    some = runs.of(site, crawler)
    ratios = runs.ratios(site, crawler, US)
    worst = max(some, key=lambda run: run.missing + run.extra)
    pages = f"{median(run.pages for run in some):,.0f}"
    pages += f" (−{worst.missing} +{worst.extra})" if worst.missing or worst.extra else ""
    cells = [
        crawler,
        writes.get(crawler, ""),
        spread(runs.cpu(site, crawler)),
        f"{median(runs.cpu(site, crawler, warm=True)):.3g}" if runs.startup_s(crawler) else "",
        f"{median(ratios):.3g}" if ratios else "",
        f"{median(run.pages / run.wall_s for run in some):,.0f}",
        f"{median(run.peak_bytes for run in some) / 2**20:.0f}",
        pages,
        str(len(some)),
    ]
    return f"| {' | '.join(cells)} |"


def spread(values: Sequence[float]) -> str:
    """A median, and the least and the most where there are several."""
    middle = f"{median(values):.3g}"
    return middle if len(values) < 2 else f"{middle} ({min(values):.3g} to {max(values):.3g})"


def plot(runs: Runs) -> str:
    """CPU a page of each crawler on each site, as bars on a logarithmic scale with the spread, as SVG."""
    lines = [(site, crawler) for site in runs.sites for crawler in (None, *_by_cost(runs, site))]
    width, left, right, row_height = 640, 170, 60, 18
    height = row_height * len(lines) + 40
    costs = [cost for site, crawler in lines if crawler for cost in runs.cpu(site, crawler)]
    least, most = 10 ** math.floor(math.log10(min(costs))), 10 ** math.ceil(math.log10(max(costs)))

    def x(cost: float) -> float:
        return left + (width - left - right) * math.log(max(cost, least) / least) / (math.log(most / least) or 1.0)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">']
    parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    for power in range(round(math.log10(least)), round(math.log10(most)) + 1):
        at = x(10**power)
        parts.append(f'<path d="M{at:.1f} 10V{height - 28}" stroke="#ccc"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - 14}" font-size="11" text-anchor="middle">{10.0**power:g}</text>')
    parts.append(f'<text x="{width - 5}" y="{height - 2}" font-size="11" text-anchor="end">CPU, ms a page</text>')
    for number, (site, crawler) in enumerate(lines):
        y = 10 + row_height * number
        if crawler is None:
            parts.append(f'<text x="5" y="{y + 13}" font-size="12" font-weight="bold">{escape(site)}</text>')
            continue
        values = runs.cpu(site, crawler)
        middle, colour = x(median(values)), COLOURS[0 if crawler.startswith(US) else 1]
        parts.append(f'<text x="{left - 6}" y="{y + 13}" font-size="11" text-anchor="end">{escape(crawler)}</text>')
        parts.append(f'<rect x="{left}" y="{y + 3}" width="{middle - left:.1f}" height="12" fill="{colour}"/>')
        parts.append(f'<path d="M{x(min(values)):.1f} {y + 9}H{x(max(values)):.1f}" stroke="black"/>')
        parts.append(f'<text x="{x(max(values)) + 4:.1f}" y="{y + 13}" font-size="11">{median(values):.3g}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _by_cost(runs: Runs, site: str) -> list[str]:
    return sorted(runs.crawlers(site), key=lambda crawler: median(runs.cpu(site, crawler)))
