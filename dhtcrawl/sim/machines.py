"""Machines that are not alike: what a page costs each of them, and which hosts one cannot reach.

The slowest processor takes `CPU_TIMES` as long as the fastest, the narrowest
line `LINE_TIMES` as long as the widest, in even steps of a ratio, and which
machine has which is drawn; so every swarm of a size has the same sum of each. A
fifth of the pairs of a machine and a host do not connect, but every host is
reached by some machine.

One page after another uses the processor, and one byte after another the line,
however many requests are under way: that many of them bring more holds only
until either is busy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

CPU_S, CPU_TIMES = 0.5, 4.0  # for a page, at the fastest
LINE_BYTES_PER_S, LINE_TIMES = 8_000.0, 10.0  # of the widest
BLOCKED = 0.2
MHZ, MEMORY, DISK = 3_000.0, 4e9, 2e8  # of the fastest; memory and disk are the same everywhere, and never full


@dataclass(slots=True)
class SimMachine:
    """One of them. Times are seconds on the caller's clock."""

    cpu_s: float
    bytes_per_s: float
    blocked: dict[str, None] = field(default_factory=dict)  # hosts
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


def machine(seed: int, number: int, machines: int, hosts: list[str]) -> SimMachine:
    """The machine of a number, of a swarm that began with so many."""
    rng = Random(f"{seed} machines")
    last = max(machines - 1, 1)
    cpu, line = rng.sample(range(machines), machines), rng.sample(range(machines), machines)
    own = number % machines
    draws = Random(f"{seed} machines blocked {number}")
    blocked = [(host, draws.random() < BLOCKED) for host in hosts]
    return SimMachine(
        CPU_S * CPU_TIMES ** (cpu[own] / last),
        LINE_BYTES_PER_S / LINE_TIMES ** (line[own] / last),
        {host: None for index, (host, is_blocked) in enumerate(blocked) if is_blocked and index % machines != own},
    )
