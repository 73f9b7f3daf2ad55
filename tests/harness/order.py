"""In which order the workers of a parallel run take files and tests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

# Minutes of real time, however many processors there are.
LONGEST = "tests/e2e/test_swarm_chaos.py"
PROCESSES, SIMULATIONS = "tests/e2e/", "tests/sim/"


def in_order(units: Sequence[str]) -> list[str]:
    """Files and tests, those that take long first: with the quick ones at the end all workers end together.

    Real processes wait most of the time and simulations compute all of it, so the two take turns.
    """
    longest = [unit for unit in units if unit.startswith(LONGEST)]
    processes = [unit for unit in units if unit.startswith(PROCESSES) and unit not in longest]
    simulations = [unit for unit in units if unit.startswith(SIMULATIONS)]
    turns = [unit for pair in zip_longest(processes, simulations) for unit in pair if unit is not None]
    first = longest + turns
    return first + [unit for unit in units if unit not in set(first)]
