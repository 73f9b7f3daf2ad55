"""`dhtcrawl sim`: one node, or a swarm, on a virtual clock and a seeded web."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from math import isnan
from pathlib import Path
from shlex import quote
from typing import Any

import click

from dhtcrawl.cli.options import require_readable
from dhtcrawl.errors import Exit, UsageError
from dhtcrawl.export.workers import in_processes
from dhtcrawl.sim.chance import draw, draw_with_bad_member
from dhtcrawl.sim.run import simulate
from dhtcrawl.sim.scenario import Scenario, ScenarioResult
from dhtcrawl.sim.scenario_file import read_scenario, require_a_node_of_each_type

BROKEN_SHOWN = 20
# What simulated nodes log is for nobody: it says neither which of them it was nor when. Without any handler Python
# would print their warnings between the results.
_UNHEARD = logging.NullHandler()


@click.command("sim")
@click.option("--nodes", type=click.IntRange(1), help="Nodes in the swarm.")
@click.option("--seed", type=int, default=1, show_default=True, help="What everything random comes from.")
@click.option(
    "--seeds", type=click.IntRange(1), default=1, show_default=True, help="Run this many seeds, from --seed on."
)
@click.option("--scenario", "scenario_file", metavar="FILE", help="What to simulate, in TOML.")
@click.option("--random", "at_random", is_flag=True, help="Draw the scenario from the seed, too.")
@click.option(
    "--bad-member", is_flag=True, help="With --random: one node of ten or more answers wrongly, drops or invents."
)
@click.option(
    "--duration", type=click.FloatRange(0, min_open=True), help="End after so many virtual seconds, done or not."
)
@click.option(
    "--jobs", type=click.IntRange(1), help="Seeds that run at the same time.  [default: one for each processor]"
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each seed.")
def command(
    nodes: int | None,
    seed: int,
    seeds: int,
    scenario_file: str | None,
    at_random: bool,
    bad_member: bool,
    duration: float | None,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Simulate a crawl: hours in seconds, the same for the same seed.

    Exit status 0 only if every invariant held for every seed.
    """
    if at_random and scenario_file is not None:
        raise UsageError("--random draws the scenario that --scenario names; use one of them")
    if bad_member and not at_random:
        raise UsageError("--bad-member is drawn with the rest; use it with --random, or bad_member in a --scenario")
    if duration is not None and isnan(duration):  # which is below no bound
        raise UsageError("--duration is nan; use a number of seconds above 0")
    if scenario_file is not None:
        require_readable("--scenario", scenario_file)
    changes: dict[str, Any] = {
        name: value for name, value in (("nodes", nodes), ("duration_s", duration)) if value is not None
    }
    given = read_scenario(Path(scenario_file)) if scenario_file is not None else Scenario()
    require_a_node_of_each_type(dataclasses.replace(given, **changes))
    drawn = draw_with_bad_member if bad_member else draw
    run = partial(_run, drawn if at_random else partial(_given, given), changes)
    named = {"--scenario": scenario_file and quote(scenario_file), "--nodes": nodes, "--duration": duration}
    again = "--random " * at_random + "--bad-member " * bad_member
    again += "".join(f"{option} {value} " for option, value in named.items() if value is not None)
    sums = _Sums()
    for result in _results(run, range(seed, seed + seeds), jobs or os.cpu_count() or 1):
        sums.add(result)
        click.echo(result.to_json() if as_json else _in_words(result, again))
    if seeds > 1:
        click.echo(sums.in_words(), err=as_json)
    return Exit.COMPLETE if not sums.broken else Exit.FAILURE


def _given(scenario: Scenario, seed: int) -> Scenario:
    return scenario


def _run(choose: Callable[[int], Scenario], changes: dict[str, Any], seed: int) -> ScenarioResult:
    logging.getLogger("dhtcrawl").addHandler(_UNHEARD)
    return simulate(dataclasses.replace(choose(seed), **changes), seed)


def _results(run: Callable[[int], ScenarioResult], seeds: range, jobs: int) -> Iterator[ScenarioResult]:
    if jobs == 1 or len(seeds) == 1:
        yield from map(run, seeds)
        return
    with ExitStack() as stack:
        remedy = "run the same command with --jobs {}"
        for _, result in in_processes(run, enumerate(seeds), min(jobs, len(seeds)), stack, remedy=remedy):
            yield result


class _Sums:
    """Over all seeds."""

    def __init__(self) -> None:
        self.broken: list[int] = []
        self._seeds = self._pages = self._lost = self._refetches = 0
        self._virtual_s = 0.0
        self._mixes: set[tuple[str, ...]] = set()
        self._faults = 0

    def add(self, result: ScenarioResult) -> None:
        self._seeds += 1
        self._pages += result.pages
        self._lost += result.lost
        self._refetches += result.refetches
        self._virtual_s += result.virtual_seconds
        self._mixes.add(tuple(sorted(result.faults)))
        self._faults += sum(result.faults.values())
        if result.violations:
            self.broken.append(result.seed)

    def in_words(self) -> str:
        lines = [
            f"{self._seeds} seeds, {self._virtual_s / 3600:.1f} virtual hours, {self._pages} pages, "
            f"{self._faults} faults in {len(self._mixes)} combinations: "
            f"lost {self._lost}, fetched twice {self._refetches}, broken {len(self.broken)}"
        ]
        if self.broken:
            more = f" and {len(self.broken) - BROKEN_SHOWN} more" if len(self.broken) > BROKEN_SHOWN else ""
            lines.append(f"  broken with seed {', '.join(map(str, self.broken[:BROKEN_SHOWN]))}{more}")
        return "\n".join(lines)


def _in_words(result: ScenarioResult, again: str) -> str:
    befell = ", ".join(f"{name} {count}" for name, count in sorted(result.faults.items())) or "no faults"
    lines = [
        f"seed {result.seed}: {result.nodes} nodes, {result.pages} pages in {result.virtual_seconds:.0f} virtual "
        f"seconds{', not to the end' if result.stopped else ''}; {befell}; "
        f"lost {result.lost}, fetched twice {result.refetches}, trace {result.trace_hash[:16]}"
    ]
    if result.violations:
        lines += [f"  BROKEN  {violation}" for violation in result.violations[:BROKEN_SHOWN]]
        lines += [
            f"  again   dhtcrawl sim {again}--seed {result.seed}",
            *(f"  trace   {line}" for line in result.tail),
        ]
    return "\n".join(lines)
