"""Nodes of a swarm as processes on loopback, and what they have done so far."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from bench_tasks import Node, wait_for


class Reading(NamedTuple):
    """What nodes have done until an instant."""

    at: float
    pages: int
    seen: int  # distinct URLs that they came to know
    cpu_s: tuple[float, ...]  # of each


class Sample(NamedTuple):
    """What they did between two readings."""

    seconds: float
    pages: int
    seen: int
    cpu_s: tuple[float, ...]

    @property
    def pages_per_s(self) -> float:
        return self.pages / self.seconds

    @property
    def cpu_shares(self) -> list[float]:
        """% of a core, of each."""
        return [100 * cpu_s / self.seconds for cpu_s in self.cpu_s]


def between(first: Reading, last: Reading) -> Sample:
    """Of the same nodes."""
    cpu_s = tuple(after - before for before, after in zip(first.cpu_s, last.cpu_s, strict=True))
    return Sample(last.at - first.at, last.pages - first.pages, last.seen - first.seen, cpu_s)


class Cluster:
    """Nodes with the same options; leaving the block kills them."""

    def __init__(self, home: Path, *options: str) -> None:
        self.nodes: list[Node] = []
        self._home = home
        self._options = options
        home.mkdir(parents=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.end()

    def add(self) -> None:
        """One more, and wait until all know each other."""
        through = self.nodes[0].address if self.nodes else None
        self.nodes.append(Node(self._home / str(len(self.nodes)), through, *self._options))
        wait_for(lambda: all(active(node) == len(self.nodes) for node in self.nodes))

    def kill(self, numbers: Sequence[int]) -> None:
        """SIGKILL, and wait until the others have given them up."""
        for number in numbers:
            self.nodes[number].end()
        rest = [node for number, node in enumerate(self.nodes) if number not in numbers]
        wait_for(lambda: all(active(node) == len(rest) for node in rest))

    def restart(self, numbers: Sequence[int]) -> None:
        """Start those that were killed again, on their disks and at their addresses; the first node runs."""
        for number in numbers:
            dead, through = self.nodes[number], self.nodes[0].address
            self.nodes[number] = Node(self._home / str(number), through, *self._options, listen=dead.address)
            assert self.nodes[number].id == dead.id, "on its disk it is the same node"

    def crawl(self, seed: str) -> None:
        """Begin one, of a site of ours."""
        self.nodes[0].ask("POST", "crawls", {"seeds": [seed], "settings": {"delay_s": "0", "allow_private": True}})

    def read(self) -> Reading:
        """Now, of the one crawl that there is."""
        done = [row["counters"] for row in self.nodes[0].ask("GET", "crawls")]  # of all nodes together
        cpu_s = tuple(node.cpu_s for node in self.nodes)
        pages, seen = (sum(counters.get(name, 0) for counters in done) for name in ("pages", "urls_seen"))
        return Reading(time.monotonic(), pages, seen, cpu_s)

    def reach(self, pages: int) -> None:
        """Wait until they have so many."""
        wait_for(lambda: self.read().pages >= pages)

    def samples(self, count: int, seconds: float) -> list[Sample]:
        """What they do in each of so many stretches of time."""
        readings = [self.read()]
        began = readings[0].at
        for number in range(1, count + 1):
            time.sleep(max(0.0, began + number * seconds - time.monotonic()))
            readings.append(self.read())
        return [between(first, last) for first, last in pairwise(readings)]


def active(node: Node) -> int:
    """How many members a node knows as active, itself included."""
    return sum(peer["state"] == "active" for peer in node.ask("GET", "peers"))


def wanted_s(node: Node) -> float:
    """Seconds in which its event loop had a core or waited for one (the kernel's sched-stats.rst, `schedstat`)."""
    ran_ns, waited_ns, _ = map(int, Path(f"/proc/{node.process.pid}/schedstat").read_text().split())
    return (ran_ns + waited_ns) / 1e9
