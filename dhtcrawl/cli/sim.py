"""`dhtcrawl sim`: one node, or a swarm, on a virtual clock and a seeded web."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from dhtcrawl.errors import Exit
from dhtcrawl.sim.run import Result, Scenario, read_scenario, simulate


@click.command("sim")
@click.option("--nodes", type=click.IntRange(1), help="Nodes in the swarm.")
@click.option("--seed", type=int, default=1, show_default=True, help="What everything random comes from.")
@click.option(
    "--seeds", type=click.IntRange(1), default=1, show_default=True, help="Run this many seeds, from --seed on."
)
@click.option("--scenario", "scenario_file", metavar="FILE", help="What to simulate, in TOML.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each seed.")
def command(nodes: int | None, seed: int, seeds: int, scenario_file: str | None, as_json: bool) -> int:
    """Simulate a crawl: hours in seconds, the same for the same seed.

    Exit status 0 only if every invariant held for every seed.
    """
    scenario = read_scenario(Path(scenario_file)) if scenario_file is not None else Scenario()
    if nodes is not None:
        scenario = dataclasses.replace(scenario, nodes=nodes)
    sound = True
    for each in range(seed, seed + seeds):
        result = simulate(scenario, each)
        sound = sound and not result.violations
        click.echo(result.to_json() if as_json else _in_words(result))
    return Exit.COMPLETE if sound else Exit.FAILURE


def _in_words(result: Result) -> str:
    lines = [
        f"seed {result.seed}: {result.pages} pages in {result.virtual_seconds:.0f} virtual seconds, "
        f"{result.crashes} crashes, lost {result.lost}, fetched twice {result.refetches}, "
        f"trace {result.trace_hash[:16]}"
    ]
    if result.violations:
        lines += [f"  BROKEN  {violation}" for violation in result.violations[:20]]
        lines += [f"  again   dhtcrawl sim --seed {result.seed}", *(f"  before  {line}" for line in result.tail)]
    return "\n".join(lines)
