"""What lies between hosts: how long a way takes, and who cannot reach whom. Datagrams and streams share it.

    wires = Wires(seed=1, delay_s=(0.01, 0.08))
    wires.partition(["10.0.0.1"], ["10.0.0.2", "10.0.0.3"], one_way="out")   # of what the first sends nothing arrives
    wires.delay("10.0.0.1", "10.0.0.2")                                     # seconds, one way

A way is drawn once for each pair of hosts, from a range or from a matrix of
measured round trips, or follows from where they lie. A slow host adds to every way that begins or ends there.
To a host that is hidden, as behind a NAT, only answers get through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from pathlib import Path
from random import Random
from typing import Literal

from dhtcrawl.errors import ConfigError
from dhtcrawl.sim.loop import current_host

Matrix = Sequence[Sequence[float]]
OneWay = Literal["", "out", "in"]
Place = tuple[str, int]


class Wires:
    """Between all hosts of a simulation."""

    def __init__(
        self,
        seed: object,
        delay_s: tuple[float, float],
        matrix: Matrix | None = None,
        way_of: Callable[[str, str], float] | None = None,
    ) -> None:
        """`delay_s`: one way, from and to; `matrix`: round trips in seconds, which count instead.

        `way_of` counts instead of both: one way between two hosts in seconds.
        """
        self._seed = seed
        self._range = delay_s
        self._matrix = matrix
        self._way_of = way_of
        self._delays: dict[tuple[str, str], float] = {}
        self._side: dict[str, int] = {}  # of a partition; hosts that are not named are on side 0
        self._one_way: OneWay = ""
        self._slow: dict[str, float] = {}
        self._contexts: dict[str, Context] = {}
        self._asked: dict[str, set[tuple[Place, Place]]] = {}  # by hidden host: from where it sent to where

    def context(self, host: str) -> Context:
        """What runs in it runs on this host."""
        if host not in self._contexts:
            context = self._contexts[host] = Context()
            context.run(current_host.set, host)
        return self._contexts[host]

    def delay(self, source: str, target: str) -> float:
        """One way between two hosts, in seconds."""
        pair = (min(source, target), max(source, target))
        if pair not in self._delays:
            self._delays[pair] = self._draw(*pair)
        if not self._slow:
            return self._delays[pair]
        return self._delays[pair] + self._slow.get(source, 0.0) + self._slow.get(target, 0.0)

    def slow_down(self, host: str, by_s: float) -> None:
        self._slow[host] = by_s

    def partition(self, *sides: Iterable[str], one_way: OneWay = "") -> None:
        """Hosts of different sides do not reach each other; those that are not named are on one side.

        With `one_way` only what the first side sends ("out"), or what is sent to it ("in"), is lost.
        """
        self._side = {host: number for number, side in enumerate(sides, start=1) for host in side}
        self._one_way = one_way

    def heal(self) -> None:
        self._side = {}

    def cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from one host to the other."""
        if not self._side:
            return False
        ours, theirs = self._side.get(source, 0), self._side.get(target, 0)
        return ours != theirs and (not self._one_way or (ours if self._one_way == "out" else theirs) == 1)

    def hide(self, host: str) -> None:
        """From here on nothing reaches a host but answers to what it has sent."""
        self._asked[host] = set()

    def is_hidden(self, host: str) -> bool:
        """Whether no connection to a host can be made."""
        return host in self._asked

    def sends(self, source: Place, target: Place) -> None:
        """A datagram leaves: answers to it get through."""
        if source[0] in self._asked:
            self._asked[source[0]].add((source, target))

    def lets_in(self, source: Place, target: Place) -> bool:
        """Whether a datagram that has arrived at a host gets to its socket."""
        asked = self._asked.get(target[0])
        return asked is None or (target, source) in asked

    def _draw(self, one: str, other: str) -> float:
        if self._way_of is not None:
            return self._way_of(one, other)
        if self._matrix is None:
            return Random(f"{self._seed} delay {(one, other)}").uniform(*self._range)
        return self._matrix[self._row(one)][self._row(other)] / 2

    def _row(self, host: str) -> int:
        assert self._matrix is not None
        return Random(f"{self._seed} row {host}").randrange(len(self._matrix))


def read_matrix(path: Path) -> Matrix:
    """Round trips in seconds from a text file: a square of milliseconds, a line a row, between spaces, tabs or commas.

    Raises:
        ConfigError: it cannot be read, or is something else.
    """
    try:
        lines = path.read_text("utf-8").replace(",", " ").splitlines()
        rows = [[float(cell) / 1000 for cell in line.split()] for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"latency matrix {path}: {error}; use a square of milliseconds, a line a row") from error
    if not rows or any(len(row) != len(rows) for row in rows):
        raise ConfigError(f"latency matrix {path}: {len(rows)} rows are not a square; use as many numbers in each line")
    if not all(0 <= cell < 60 for row in rows for cell in row):  # nan is not, either
        raise ConfigError(f"latency matrix {path}: a round trip is below 0 or above 60 s; use milliseconds")
    return rows
