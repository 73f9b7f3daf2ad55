"""Rows of the benchmark's table, and the plots beside it. Pure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeVar

import benchmark
import ended

from dhtcrawl.storage.store.plan_counters import MadeBy

PAPERS = {
    "P1": "Zhang et al. 2019, BP network and PSO: bp-pso",
    "P2": "Yu et al. 2014, dynamic scheduling: dynamic",
    "P3": "Liu et al. 2010, GNP: gnp",
    "P4": "Tao & Xiang 2015, modified Kademlia: xor, balanced",
    "P5": "Wu et al. 2011, DSpider: dspider",
    "all": "All policies",
}
COLOURS = ("#06b", "#c40", "#0a7", "#a3c", "#860", "#666")

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Row:
    """One experiment, or one figure of it."""

    paper: str  # a key of PAPERS
    what: str
    claim: str  # the paper's; empty where it says nothing
    target: str  # ours; empty: this is for information
    measured: str  # medians over the seeds, where nothing else is said
    met: bool | None  # None: no target
    seeds: int  # 0: nothing in it is random
    note: str = ""  # why it does not reproduce, or what else a reader has to know
    value: float = field(kw_only=True)  # the number of `measured` that matters most, and the one that a target is about
    unit: str = field(kw_only=True)
    samples: int = field(default=0, kw_only=True)  # 0: as many as seeds, or one
    by: str = field(
        default="", kw_only=True
    )  # what was at work: models, and from how many samples; empty: the policies
    # What a random choice, and the least loaded node, bring of the same in the same runs; None: not compared with it.
    random: float | None = field(default=None, kw_only=True)
    least_loaded: float | None = field(default=None, kw_only=True)

    @property
    def verdict(self) -> str:
        """In one or two words."""
        return {True: "met", False: "not met", None: ""}[self.met]


@dataclass(frozen=True, slots=True)
class Options:
    """How an experiment is run."""

    seeds: int | None = None  # None: as many as the target names
    quick: bool = False  # everything small, a few seconds; targets are not judged
    plots: Path | None = None  # a directory for pictures
    matrix: Path | None = None  # measured latencies; None: drawn ones
    jobs: int = 1

    def seeds_or(self, usual: int) -> list[int]:
        """The seeds of an experiment that usually takes so many."""
        return list(range(1, 1 + (self.seeds or (1 if self.quick else usual))))

    def judged(self, met: bool) -> bool | None:
        """A verdict, where there can be one: not about small runs."""
        return None if self.quick else met


class Experiment(NamedTuple):
    """What can be asked for by name."""

    name: str
    paper: str
    text: str
    run: Callable[[Options], list[Row]]


def each(function: Callable[[S], T], items: Sequence[S], jobs: int) -> list[T]:
    """Results in order, made by `jobs` processes. What is given has to be importable."""
    if min(jobs, len(items)) <= 1:
        return [function(item) for item in items]
    with ended.workers(min(jobs, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, items))


def text_table(rows: Iterable[Row]) -> str:
    """For people at a terminal: a block for each row, since a line would be too long."""
    lines, paper = [], ""
    for row in rows:
        if row.paper != paper:
            paper = row.paper
            lines += ["", f"{paper}  {PAPERS[paper]}"]
        seeds = f" ({row.seeds} seeds)" if row.seeds else ""
        lines.append(f"  {row.what}: {row.measured}{seeds}")
        beside = [f"paper {row.claim}" * bool(row.claim), f"target {row.target}" * bool(row.target), row.verdict]
        if any(beside):
            lines.append("      " + " · ".join(filter(None, beside)))
        compared = [f"random {_number(row.random)}", f"least loaded {_number(row.least_loaded)}"]
        known = [text for text in compared if not text.endswith(" ")]
        if row.by or known:
            lines.append("      " + " · ".join([*known, *([f"at work: {row.by}"] if row.by else [])]))
        if row.note:
            lines.append(f"      {row.note}")
    return "\n".join(lines)


def markdown_table(rows: Iterable[Row]) -> str:
    """For the docs: a table for each paper."""
    lines, paper = [], ""
    for row in rows:
        if row.paper != paper:
            paper = row.paper
            heads = ["experiment", "paper", "target", "measured", "random", "least loaded", "at work", "seeds", ""]
            lines += ["", f"### {PAPERS[paper]}", "", "| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
        last = "; ".join(filter(None, [row.verdict, row.note]))
        beside = _number(row.random), _number(row.least_loaded), row.by
        cells = (row.what, row.claim, row.target, row.measured, *beside, str(row.seeds or ""), last)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines).strip() + "\n"


def as_rows(rows: Iterable[Row]) -> list[benchmark.Row]:
    """The same for programs, and with the fields that every benchmark's rows have.

    `text` has what is said of it in words; `random` and `least_loaded` are in the unit of `measured`, or null.
    """
    return [_as_row(row) for row in rows]


def _as_row(row: Row) -> benchmark.Row:
    plain = benchmark.row(
        row.what,
        float(row.value),
        row.unit,
        row.samples or row.seeds or 1,
        by=row.by or PAPERS[row.paper].rpartition(": ")[2],
        claim=row.claim,
        target=row.target or None,
        ok=row.met is not False,
        digits=9,
    )
    beside = {"random": row.random, "least_loaded": row.least_loaded}
    return plain | beside | {"text": row.measured, "paper": row.paper, "note": row.note, "judged": row.met is not None}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def at_work(policy: str, plans: Sequence[MadeBy]) -> str:
    """A policy, and which models made its plans, from how many batches, and how far off they were."""
    said = []
    for model in dict.fromkeys(made.model for made in plans):
        own = [made for made in plans if made.model == model]
        samples = f"{min(made.samples for made in own)} to {max(made.samples for made in own)} batches"
        errors = [made.error for made in own if made.error is not None]
        judged = f", {100 * median(errors):.0f} % off" if errors else ""
        said.append(f"{len(own)} plans by {model} ({samples}{judged})")
    return f"{policy}: {', '.join(said)}" if said else policy


def line_plot(title: str, x_label: str, y_label: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """An SVG with a line for each name; both axes are linear, y from 0."""
    width, height, left, right, top, bottom = 560, 340, 60, 20, 36, 46
    points = [point for line in lines.values() for point in line]
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    most = max(y for _, y in points) * 1.05 or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = left + (width - left - right) * (x - low) / ((high - low) or 1.0)
        return round(across, 1), round(height - bottom - (height - bottom - top) * y / most, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{left}" y="20" font-size="14">{escape(title)}</text>',
        f'<text x="{(left + width) / 2}" y="{height - 8}" font-size="12" text-anchor="middle">{escape(x_label)}</text>',
        f'<text transform="translate(14 {height / 2}) rotate(-90)" font-size="12" text-anchor="middle">'
        f"{escape(y_label)}</text>",
    ]
    for number in range(5):
        value = most * number / 4
        _, y = place(low, value)
        parts.append(f'<path d="M{left} {y}H{width - right}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" font-size="11" text-anchor="end">{value:.3g}</text>')
        x, _ = place(low + (high - low) * number / 4, 0)
        parts.append(
            f'<text x="{x}" y="{height - bottom + 16}" font-size="11" text-anchor="middle">'
            f"{low + (high - low) * number / 4:.3g}</text>"
        )
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join("{},{}".format(*place(x, y)) for x, y in sorted(line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{width - right - 4}" y="{top + 4 + 15 * number}" font-size="12" text-anchor="end" '
            f'fill="{colour}">{escape(name)}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"
