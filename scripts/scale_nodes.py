"""Real nodes that crawl a web which is slow to answer: how fast N do what one does, and what is lost.

The web (`scale_site.py`) takes its time for each page, so what a node can do is its requests in flight over that time,
and the machine has to have CPU to spare: a sample in which it had not is marked, and says nothing. Every swarm has as
many pages for each node. What is told of the crawl's *middle* leaves its beginning and its end out: from the first
tenth of the pages to the last tenth. The nodes run on this machine, or on others (`scale_hosts.py`).

With a `share` each node has so much of a core once all know each other (cgroups): then it is the node and not the web
that is slow, and a swarm is as many small machines.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "tests"))

from bench_tasks import Node
from policy_bench.lab import Machine, limited
from policy_bench.nodes import Cluster
from scale_site import Asked, ScaleSite

TICK_S = 0.25
# A thousand pages of a node that has one request in flight take five minutes.
END_MAX_S = 1_200.0
MIDDLE = (0.1, 0.9)
# Above this share of the machine a node waits for a core, not for the web.
BUSY_MAX = 0.7
_BYTES = re.compile(r"\bbytes_sent:(\d+)")


@dataclass(frozen=True, slots=True)
class Trial:
    """What a swarm is to crawl. Times are seconds."""

    nodes: int
    pages_each: int
    flight: int = 4  # requests at once, of a node
    latency_s: float = 0.3
    delay_s: float = 0.25
    hosts: int = 128
    policy: str = "xor"
    key: str = "url"
    share: float = 0.0  # of a core, for each node; 0: no limit

    @property
    def pages(self) -> int:
        """Of the whole web."""
        return self.pages_each * self.nodes


@dataclass(frozen=True, slots=True)
class RealSample:
    """What a swarm did."""

    trial: Trial
    whole_s: float  # from the submission until all was told to have ended
    rate: float  # pages a second in the middle
    cpu_s: float  # of all nodes, in the middle
    middle_pages: int
    busy: float  # the share of the machine's CPU that was in use in the middle; of several machines, the busiest's
    rpc_bytes: int | None  # over connections between nodes, all of the crawl; None where `ss` is missing
    shares: tuple[int, ...]  # pages of each node
    asked: Asked  # by the web's count
    told_too_soon: int  # by the nodes' own count
    lost: int  # pages of the web that nobody asked for
    memory_bytes: tuple[int, ...]  # at most, of each node

    @property
    def uneven(self) -> float:
        """Pages of the busiest node over the mean."""
        return max(self.shares) / mean(self.shares)

    @property
    def cpu_ms(self) -> float:
        """CPU a page in the middle."""
        return 1000 * self.cpu_s / max(1, self.middle_pages)

    @property
    def valid(self) -> bool:
        """Whether the machine had CPU to spare."""
        return self.busy < BUSY_MAX


@dataclass(frozen=True, slots=True)
class Reading:
    """What was so at one moment; `cpu_s` of all nodes, `busy_s` of the machine of each, for a processor."""

    at: float
    pages: int
    cpu_s: float
    busy_s: tuple[float, ...]


class ScaleNode(Protocol):
    """A node somewhere."""

    @property
    def address(self) -> str:
        """Where the others reach it."""

    @property
    def cpu_s(self) -> float:
        """User and system time so far."""

    @property
    def busy_s(self) -> float:
        """CPU seconds in use of its machine so far, over its processors."""

    @property
    def peak_bytes(self) -> int:
        """The most memory that it had."""

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """What its admin answers below /api/v1."""


def run(trial: Trial, home: Path) -> RealSample:
    """One crawl by a new swarm; `home` is an empty directory.

    Raises:
        SystemExit: a node does not start, or the crawl does not end.
        Unavailable: nodes are to have a share, and there are no cgroups here that can be written.
    """
    options = ("--concurrency", str(trial.flight))
    with (
        ScaleSite(home, trial.hosts, trial.pages, trial.latency_s, trial.delay_s) as site,
        Cluster(home / "nodes", *options) as cluster,
        ExitStack() as limits,
    ):
        for _ in range(trial.nodes):
            cluster.add()
        addresses = {node.address for node in cluster.nodes}
        machine = Machine(cpu=trial.share)
        for number, node in enumerate(cluster.nodes if trial.share else ()):
            limits.enter_context(limited(f"scale{number}", machine, node.process.pid))
        return measure(trial, site, [_NodeHere(node) for node in cluster.nodes], lambda: connection_bytes(addresses))


def measure(
    trial: Trial, site: ScaleSite, nodes: Sequence[ScaleNode], sent_bytes: Callable[[], int | None]
) -> RealSample:
    """One crawl by nodes that know each other; `sent_bytes()` is what went over the connections between them so far.

    Raises:
        SystemExit: the crawl does not end.
    """
    began = time.monotonic()
    readings, crawl = _crawl(trial, site, nodes)
    whole_s = time.monotonic() - began
    facts = nodes[0].ask("GET", f"crawls/{crawl}/export/nodes")
    counters = [fact["counters"] for fact in facts]
    return _sample(trial, whole_s, readings, site.totals(), nodes, counters, sent_bytes())


class _NodeHere:
    """A node of this machine."""

    def __init__(self, node: Node) -> None:
        self.address, self.ask = node.address, node.ask
        self._node = node

    @property
    def cpu_s(self) -> float:
        return self._node.cpu_s

    @property
    def busy_s(self) -> float:
        return machine_busy_s() / (os.cpu_count() or 1)

    @property
    def peak_bytes(self) -> int:
        return peak_bytes(self._node.process.pid)


def _crawl(trial: Trial, site: ScaleSite, nodes: Sequence[ScaleNode]) -> tuple[list[Reading], str]:
    settings = {
        "delay_s": str(trial.delay_s), "allow_private": True, "policy": trial.policy, "key": trial.key,
    }  # fmt: skip
    crawl = nodes[0].ask("POST", "crawls", {"seeds": site.seeds, "settings": settings})["crawl"]
    readings, until = [_read(site, nodes)], time.monotonic() + END_MAX_S
    while nodes[0].ask("GET", f"crawls/{crawl}")["state"] != "ended":
        if time.monotonic() > until:
            raise SystemExit(f"bench: a crawl by {trial.nodes} nodes does not end within {END_MAX_S:g} s")
        time.sleep(TICK_S)
        readings.append(_read(site, nodes))
    return readings, crawl


def _read(site: ScaleSite, nodes: Sequence[ScaleNode]) -> Reading:
    busy_s = tuple(node.busy_s for node in nodes)
    return Reading(time.monotonic(), site.totals().pages, sum(node.cpu_s for node in nodes), busy_s)


def _sample(
    trial: Trial,
    whole_s: float,
    readings: Sequence[Reading],
    asked: Asked,
    nodes: Sequence[ScaleNode],
    counters: Sequence[dict[str, int]],
    rpc_bytes: int | None,
) -> RealSample:
    first, last = middle_of([(reading.pages, reading) for reading in readings], trial.pages)
    seconds, pages = last.at - first.at, last.pages - first.pages
    busy = max(after - before for before, after in zip(first.busy_s, last.busy_s, strict=True)) / seconds
    return RealSample(
        trial,
        whole_s,
        pages / seconds,
        last.cpu_s - first.cpu_s,
        pages,
        busy,
        rpc_bytes,
        tuple(each["pages"] for each in counters),
        asked,
        sum(each.get("politeness_violations", 0) for each in counters),
        trial.pages - (asked.pages - asked.again),
        tuple(node.peak_bytes for node in nodes),
    )


def middle_of(readings: Sequence[tuple[int, Reading]], pages: int) -> tuple[Reading, Reading]:
    """The first reading with a tenth of the pages, and the last before the last tenth; pure.

    Raises:
        SystemExit: there are no two such readings.
    """
    low, high = (share * pages for share in MIDDLE)
    within = [reading for done, reading in readings if low <= done <= high]
    if len(within) < 2:
        raise SystemExit("bench: the crawl was over before it was looked at twice; give it more pages")
    return within[0], within[-1]


def machine_busy_s() -> float:
    """CPU seconds that all processors have spent on work since the machine was started (proc(5), /proc/stat)."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int) -> int:
    """The most memory that a process had (VmHWM)."""
    text = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(text.partition("VmHWM:")[2].split()[0])


def connection_bytes(addresses: set[str]) -> int | None:
    """Bytes that were sent over the open connections of these addresses, both ways; None without `ss`."""
    try:
        told = subprocess.run(["ss", "-tinOH"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return bytes_between(told, addresses)


def bytes_between(told: str, addresses: set[str]) -> int:
    """The sum of what `ss -tinO` says was sent by either end of each connection to one of these addresses; pure."""
    found = 0
    for line in told.splitlines():
        fields = line.split()
        if len(fields) > 4 and not addresses.isdisjoint(fields[3:5]):
            sent = _BYTES.search(line)
            found += int(sent[1]) if sent else 0
    return found


def as_json(sample: RealSample) -> dict[str, object]:
    """What is kept of a sample in the report."""
    return dataclasses.asdict(sample)
