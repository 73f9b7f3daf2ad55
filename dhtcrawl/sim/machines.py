"""Machines that are not alike: what a page costs each of them, and which hosts one cannot reach.

The slowest processor takes `CPU_TIMES` as long as the fastest, the narrowest
line `LINE_TIMES` as long as the widest, in even steps of a ratio, and which
machine has which is drawn; so every swarm of a size has the same sum of each. A
fifth of the pairs of a machine and a host do not connect, but every host is
reached by some machine.

With `spread_s` machines and hosts also lie at places of a square, drawn evenly;
what goes from one to the other takes as long as they are apart, and a fetch
`TRIPS` such ways there and back. With `silent` what does not connect says
nothing, as behind a filter, so that it takes all the time that a connection may.

One page after another uses the processor, and one byte after another the line,
however many requests are under way: that many of them bring more holds only
until either is busy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import dist
from random import Random

CPU_S, CPU_TIMES = 0.5, 4.0  # for a page, at the fastest
LINE_BYTES_PER_S, LINE_TIMES = 8_000.0, 10.0  # of the widest
BLOCKED = 0.2
TRIPS = 3  # the connection's, TLS's, and those of the request and its answer
MHZ, MEMORY, DISK = 3_000.0, 4e9, 2e8  # of the fastest; memory and disk are the same everywhere, and never full


@dataclass(frozen=True, slots=True)
class Unevenness:
    """How far the machines of a swarm differ."""

    cpu_times: float = CPU_TIMES  # the slowest processor's time over the fastest's
    spread_s: float = 0.0  # one way along a side of the square; 0: no fetch takes longer for being far
    silent: bool = False  # what does not connect says nothing


@dataclass(slots=True)
class SimMachine:
    """One of them. Times are seconds on the caller's clock."""

    cpu_s: float
    bytes_per_s: float
    blocked: dict[str, None] = field(default_factory=dict)  # hosts
    silent: bool = False  # those say nothing
    away_s: dict[str, float] = field(default_factory=dict)  # of a fetch, for how far a host is; none: 0
    _line_free_at: float = 0.0
    _cpu_free_at: float = 0.0

    def traits(self) -> dict[str, float]:
        """What its node tells planners of it, as `dhtcrawl.cli.machine` does: what it costs a page is in its clock."""
        return {"cores": 1.0, "mhz": MHZ * CPU_S / self.cpu_s, "memory_bytes": MEMORY, "disk_bytes_per_s": DISK}

    def has_at(self, now: float, size: int) -> float:
        """When a body of `size` bytes has come and is dealt with, that is asked of it now."""
        self._line_free_at = max(now, self._line_free_at) + size / self.bytes_per_s
        self._cpu_free_at = max(self._line_free_at, self._cpu_free_at) + self.cpu_s
        return self._cpu_free_at


def machine(
    seed: int, number: int, machines: int, hosts: list[str], unevenness: Unevenness | None = None
) -> SimMachine:
    """The machine of a number, of a swarm that began with so many."""
    shape = unevenness or Unevenness()
    rng = Random(f"{seed} machines")
    last = max(machines - 1, 1)
    cpu, line = rng.sample(range(machines), machines), rng.sample(range(machines), machines)
    own = number % machines
    draws = Random(f"{seed} machines blocked {number}")
    blocked = [(host, draws.random() < BLOCKED) for host in hosts]
    ways = {host: way_s(seed, address_of(number), host, shape.spread_s) for host in hosts} if shape.spread_s else {}
    return SimMachine(
        CPU_S * shape.cpu_times ** (cpu[own] / last),
        LINE_BYTES_PER_S / LINE_TIMES ** (line[own] / last),
        {host: None for index, (host, is_blocked) in enumerate(blocked) if is_blocked and index % machines != own},
        shape.silent,
        {host: 2 * TRIPS * one_way_s for host, one_way_s in ways.items()},
    )


def address_of(number: int) -> str:
    """The address of the machine of a number."""
    return f"10.0.{number // 250}.{number % 250 + 1}"


def way_s(seed: int, one: str, other: str, spread_s: float) -> float:
    """One way between two machines or hosts, by address or name, in seconds."""
    return spread_s * dist(_place(seed, one), _place(seed, other))


def _place(seed: int, name: str) -> tuple[float, float]:
    rng = Random(f"{seed} place {name}")
    return rng.random(), rng.random()
