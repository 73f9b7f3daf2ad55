"""Reads a scenario from a TOML file, and says in one line what is wrong with it, and where.

A value that no run can have is refused here: a share above 1 or a delay below 0 would be simulated as something else,
or end a run in the middle of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from math import nan
from pathlib import Path
from typing import Any, Final

from dhtcrawl.config import pairs
from dhtcrawl.errors import ConfigError, SettingError
from dhtcrawl.policy.registry import check as check_policy
from dhtcrawl.sim.scenario import Manner, Scenario
from dhtcrawl.sim.wires import read_matrix
from dhtcrawl.toml_file import Table, TomlFile

MOST: Final = 10**15  # of any number: none that a simulation comes to the end of
LOSS_MAX: Final = 0.9  # of datagrams; with all of them lost no swarm comes together
COPIES_MAX: Final = 16  # as `crawl.copies`

# From the least to the most that a number may be; what is not named here is 0 or more.
_RANGES: Final[dict[str, tuple[float, float]]] = {
    **dict.fromkeys(("nodes", "hosts", "pages", "concurrency", "open_pages"), (1, MOST)),
    **dict.fromkeys(("crash_at_once", "disk_losses_at_once"), (1, MOST)),
    **dict.fromkeys(("broken", "flaky", "breaks", "duplication"), (0, 1)),
    "loss": (0, LOSS_MAX),
    "copies": (1, COPIES_MAX),
    "depth": (-1, MOST),
    "away_s": (-MOST, MOST),
}
_ABOVE_0: Final = ("crash_every_s", "partition_s", "pause_s", "bytes_per_s", "cpu_times")
_WORDS: Final[dict[str, Iterable[str]]] = {"key": ("url", "host"), "bad_member": ("", *Manner)}


def read_scenario(path: Path) -> Scenario:
    """A scenario from TOML; its keys are the fields of `Scenario`.

    Raises:
        ConfigError: the file cannot be read, or has an unknown key or a value that cannot be.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"scenario {path}: {error}; see docs/simulation.md for its form") from error
    root = TomlFile(f"scenario {path}", text).root
    values: dict[str, Any] = {
        each.name: root.read(each.name, _parser(each.name, type(each.default)), each.default)
        for each in dataclasses.fields(Scenario)
    }
    root.done()
    scenario = Scenario(**values)
    _check_policy(root, scenario)
    return scenario


def require_a_node_of_each_type(scenario: Scenario) -> None:
    """Refuse types that no node can be of: the pages of their hosts would wait for ever.

    Raises:
        ConfigError: there are more types than nodes.
    """
    if 1 < scenario.nodes < scenario.node_types:
        raise ConfigError(
            f"scenario: node_types is {scenario.node_types}, and there are {scenario.nodes} nodes; "
            "use as many types as nodes, or fewer"
        )


def _parser(name: str, kind: type) -> Callable[[object], object]:
    if kind is bool:
        return _switch
    if kind is str:
        return _latency_matrix if name == "latency_matrix" else partial(_word, name)
    return partial(_number, name, kind)


def _switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("use true or false")
    return value


def _word(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("use a text in quotes")
    words = _WORDS.get(name)
    if words is not None and value not in words:
        raise ValueError(f"use one of {', '.join(filter(None, words))}")
    return value


def _latency_matrix(value: object) -> str:
    name = _word("latency_matrix", value)
    if name:
        try:
            read_matrix(Path(name))
        except ConfigError as error:
            raise ValueError(str(error)) from error
    return name


def _number(name: str, kind: type, value: object) -> float:
    least, most = _RANGES.get(name, (0, MOST))
    above = name in _ABOVE_0
    is_number = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    number: float = value if is_number else nan  # type: ignore[assignment]
    if least <= number <= most and not (above and number == 0):
        return number
    right = "above 0" if above else _range_in_words(least, most)
    raise ValueError(f"use a {'whole ' if kind is int else ''}number {right}".rstrip())


def _range_in_words(least: float, most: float) -> str:
    if most == MOST:
        return f"from {least} on" if least > -MOST else ""
    return f"from {least} to {most}"


def _check_policy(root: Table, scenario: Scenario) -> None:
    """Refuse a policy that is not there, and options that are not its own.

    Raises:
        ConfigError: it is such a one.
    """
    try:
        pairs(scenario.policy_option_list)
        check_policy(scenario.policy, scenario.policy_option_list)
    except SettingError as error:
        name = error.key.partition(".")[2]
        raise root.wrong(f"is {getattr(scenario, name)!r}; {error.problem.lstrip(': ')}", name) from error
    except ValueError as error:
        raise root.wrong(f"is {scenario.policy_options!r}; {error}", "policy_options") from error
