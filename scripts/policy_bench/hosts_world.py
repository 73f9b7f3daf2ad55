"""Hosts, their files, and lines to them, in the units of Wu et al. (2011): f for size, T for time. Pure.

    files        200,000 over 400 hosts; a file is 1f … 10f
    links        1 % lead to another host
    latencies    1T … 9T: what a request waits for its first byte. LAN: of a host, the same for all; WAN: of a pair
    lines        LAN: all share 25 f/T; WAN: each node has 5 f/T
    timeout      a node whose latency to a host is longer cannot connect to it

What the paper leaves open is ours: a file has ten links; a host's files are all
known to whoever connected to it, since the links within a host bring them; a node
asks each host for one file at a time, and has as many requests in flight as first
hosts, three; a line carries one file after the other; a message takes 1T in a LAN
and 5T in a WAN.

Who gets which host is a protocol's question: `hosts_protocols`.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

FILES, HOSTS = 200_000, 400
SIZE_MAX_F = 10
FIRST_HOSTS = 3
LINKS, AWAY = 10, 0.01
LATENCY_MIN, LATENCY_MAX = 1.0, 9.0
LAN_F_PER_T, WAN_F_PER_T = 25.0, 5.0
MESSAGE_LAN_T, MESSAGE_WAN_T = 1.0, 5.0
REQUESTS = 3  # in flight, of a node


@dataclass(frozen=True, slots=True)
class World:
    """What there is to fetch, and from how far."""

    lan: bool
    nodes: int
    sizes: list[list[int]]  # of each host's files
    links: list[dict[int, list[int]]]  # of each host: file → hosts that it leads to, where it leads away
    latency: list[list[float]]  # node → host
    first: list[list[int]]  # the hosts that each node begins with

    @property
    def files(self) -> int:
        """How many there are."""
        return sum(len(sizes) for sizes in self.sizes)

    @property
    def message_t(self) -> float:
        """What a message takes."""
        return MESSAGE_LAN_T if self.lan else MESSAGE_WAN_T


def draw(seed: int, lan: bool, nodes: int, files: int = FILES, hosts: int = HOSTS) -> World:
    """The world of a seed; its files and links do not depend on the nodes, nor on what lies between."""
    rng = Random(f"files {seed}")
    each = files // hosts
    sizes = [rng.choices(range(1, SIZE_MAX_F + 1), k=each) for _ in range(hosts)]
    links: list[dict[int, list[int]]] = [{} for _ in range(hosts)]
    for host in range(hosts):
        for link in range(each * LINKS):
            if rng.random() < AWAY:
                other = (host + rng.randrange(1, hosts)) % hosts
                links[host].setdefault(link // LINKS, []).append(other)
    rng = Random(f"latencies {seed}")
    of_host = [rng.uniform(LATENCY_MIN, LATENCY_MAX) for _ in range(hosts)]
    of_pairs = [[rng.uniform(LATENCY_MIN, LATENCY_MAX) for _ in range(hosts)] for _ in range(nodes)]
    chosen = Random(f"first {seed}").sample(range(hosts), nodes * FIRST_HOSTS)
    first = [chosen[node * FIRST_HOSTS : (node + 1) * FIRST_HOSTS] for node in range(nodes)]
    return World(lan, nodes, sizes, links, [of_host] * nodes if lan else of_pairs, first)


@dataclass(slots=True)
class Run:
    """What came of it."""

    ended_t: float = 0.0
    brought_f: int = 0  # each file once
    files: int = 0
    duplicates: int = 0  # files fetched again
    messages: int = 0  # about hosts
    in_vain: int = 0  # of them, about hosts that are too far for everybody
    loans: int = 0  # messages about pages besides, where their owner is not who fetches them: see `ByOwners`


@dataclass(slots=True)
class Visit:
    """A host at a node."""

    host: int
    left: list[int]  # files, the next one last
    connected: bool = False
    stopped: bool = False


@dataclass(slots=True)
class Line:
    """Carries one file after the other."""

    f_per_t: float
    free_at: float = 0.0

    def through(self, size_f: int, now: float) -> float:
        """When a file that is there now will have come through."""
        self.free_at = max(self.free_at, now) + size_f / self.f_per_t
        return self.free_at


@dataclass(slots=True)
class Node:
    """A crawler."""

    line: Line
    idle: int = REQUESTS
    queue: deque[Visit] = field(default_factory=deque)  # what may be asked next, hosts in turn
    visits: dict[int, Visit] = field(default_factory=dict)


class Crawl(ABC):
    """A run; what a node does that finds a link to a host, or cannot connect to one, is a protocol's."""

    def __init__(self, world: World, timeout_t: float) -> None:
        self.world = world
        self.run = Run()
        self.now = 0.0
        self._timeout_t = timeout_t
        self._nearest_t = [min(of_nodes) for of_nodes in zip(*world.latency, strict=True)]
        shared = Line(LAN_F_PER_T)
        self.nodes = [Node(shared if world.lan else Line(WAN_F_PER_T)) for _ in range(world.nodes)]
        self._fetched: list[Counter[int]] = [Counter() for _ in world.sizes]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._turn = 0

    @abstractmethod
    def found(self, node: int, host: int) -> None:
        """A node was given a host, or found a link to one."""

    @abstractmethod
    def failed(self, node: int, host: int) -> None:
        """A node could not connect to a host within the timeout."""

    def connected(self, node: int, host: int) -> None:
        """A node connected to a host for the first time."""
        return

    def play(self) -> Run:
        """From the first hosts until nobody has anything to do."""
        for node, hosts in enumerate(self.world.first):
            for host in hosts:
                self.found(node, host)
        while self._events:
            self.now, _, happens = heapq.heappop(self._events)
            happens()
        return self.run

    def later(self, after_t: float, happens: Callable[[], None]) -> None:
        """Something happens after a while; at the same time, what was said first."""
        self._turn += 1
        heapq.heappush(self._events, (self.now + after_t, self._turn, happens))

    def send(self, host: int, happens: Callable[[], None]) -> None:
        """A message about a host: something happens when it has arrived, one trip later."""
        self.run.messages += 1
        self.run.in_vain += self._nearest_t[host] > self._timeout_t
        self.later(self.world.message_t, happens)

    def visits(self, node: int, host: int) -> bool:
        """Whether a node began with a host, and was not stopped."""
        visit = self.nodes[node].visits.get(host)
        return visit is not None and not visit.stopped

    def visit(self, node: int, host: int) -> None:
        """A node begins with a host, or goes on where it was stopped."""
        if not self.visits(node, host):
            at = self.nodes[node]
            before = at.visits.get(host) or Visit(host, list(reversed(range(len(self.world.sizes[host])))))
            # A new object: the one that was stopped may still be in the queue, or in flight.
            at.visits[host] = Visit(host, before.left, before.connected)
            at.queue.append(at.visits[host])
            self._work(node)

    def stop(self, node: int, host: int) -> None:
        """A node asks a host no more; what is in flight comes."""
        if host in self.nodes[node].visits:
            self.nodes[node].visits[host].stopped = True

    def _work(self, node: int) -> None:
        at = self.nodes[node]
        while at.idle and at.queue:
            visit = at.queue.popleft()
            if visit.stopped or not visit.left:
                continue
            at.idle -= 1
            latency_t = self.world.latency[node][visit.host]
            if not visit.connected:
                self.later(min(latency_t, self._timeout_t), partial(self._answered, node, visit))
            else:
                self.later(latency_t, partial(self._first_byte, node, visit, visit.left.pop()))

    def _answered(self, node: int, visit: Visit) -> None:
        if self.world.latency[node][visit.host] > self._timeout_t:
            self.failed(node, visit.host)
            self._next(node)
        else:
            visit.connected = True
            self.connected(node, visit.host)
            self._next(node, visit)

    def _first_byte(self, node: int, visit: Visit, file: int) -> None:
        done_t = self.nodes[node].line.through(self.world.sizes[visit.host][file], self.now)
        self.later(done_t - self.now, partial(self._came, node, visit, file))

    def _came(self, node: int, visit: Visit, file: int) -> None:
        host = visit.host
        self.run.ended_t = self.now
        self._fetched[host][file] += 1
        if self._fetched[host][file] > 1:
            self.run.duplicates += 1
        else:
            self.run.files += 1
            self.run.brought_f += self.world.sizes[host][file]
            for other in self.world.links[host].get(file, ()):
                self.found(node, other)
        self._next(node, visit if visit.left else None)

    def _next(self, node: int, visit: Visit | None = None) -> None:
        at = self.nodes[node]
        at.idle += 1
        if visit is not None:
            at.queue.append(visit)
        self._work(node)
