"""What a simulation is asked, and what it answers."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from dhtcrawl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated; times in seconds."""

    nodes: int = 1
    hosts: int = 5
    pages: int = 200
    delay_s: float = 1.0
    key: str = "url"
    depth: int = -1
    concurrency: int = 16
    commit_s: float = 0.004  # what an fsync takes
    crashes: int = 0
    crash_every_s: float = 30.0  # between faults of any kind, on average
    # Of a swarm only
    crash_at_once: int = 1
    away_s: float = 5.0  # from a crash to the next start; below 0: never
    disk_losses: int = 0
    joins: int = 0
    leaves: int = 0
    holder_grace_s: float = 600.0
    latency_s: float = 0.08  # one way between two nodes, at most
    loss: float = 0.0  # of datagrams


@dataclass(slots=True)
class Result:
    """What came of it; `violations` is empty when every invariant held."""

    nodes: int
    seed: int
    pages: int
    lost: int
    refetches: int
    violations: list[str]
    rpcs_per_page: float
    virtual_seconds: float
    trace_hash: str
    crashes: int = 0
    tail: list[str] = field(default_factory=list)  # the last events of a run that broke something

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(dataclasses.asdict(self))


def read_scenario(path: Path) -> Scenario:
    """A scenario from TOML; its keys are the fields of `Scenario`.

    Raises:
        ConfigError: the file cannot be read, or has an unknown key.
    """
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"scenario {path}: {error}; see docs/simulation.md for its form") from error
    known = {f.name: type(f.default) for f in dataclasses.fields(Scenario)}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"scenario {path}: {name} is unknown; use one of {', '.join(known)}")
        if not isinstance(value, known[name]) and not (known[name] is float and isinstance(value, int)):
            raise ConfigError(f"scenario {path}: {name} is {value!r}; use a {known[name].__name__}")
    return dataclasses.replace(Scenario(), **values)
