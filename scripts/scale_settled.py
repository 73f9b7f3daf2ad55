"""Simulated swarms whose nodes know each other from the start: how fast they crawl, and what a page takes.

To join costs a swarm the square of its nodes (decision 0012), which is most of what a simulation of thousands takes.
What a page costs, and how speed grows, does not depend on how the nodes met: so each is told of all others here, and
has its routing table filled, as after a long time together. Ids are chosen as newcomers choose them (decision 0073).

The web is slow to answer, and its pages are dealt out to its hosts as those of the real nodes' web are (`scale_site`):
a host is asked for one page at a time, and a node asks for `FLIGHT`. So a node has a speed of its own however large the
swarm is, and E(N) = the speed of N nodes over N times that of one says what is lost between them. The speed is that of
the crawl's middle, in which half of the pages come; what is told of the whole has the beginning and the end in it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

import benchmark
from scale_swarms import LOOK_S, Sample, Simulated, measured, note, rss_bytes

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.rpc.contact import KEY_BITS, Contact
from dhtcrawl.rpc.discovery.lookup import K
from dhtcrawl.rpc.discovery.table import RoutingTable
from dhtcrawl.rpc.membership.hello import MemberRecord
from dhtcrawl.rpc.membership.members import Members
from dhtcrawl.sim.pages import Response, WebShape
from dhtcrawl.sim.swarm import SimHost, SimSwarm
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.swarm.membership.sections import together

DEFAULT_POLICY = "xor"
FLIGHT = 1
LATENCY_S = 1.0  # half of it to one and a half times
PAGES_A_HOST = 3  # however large the swarm is, as each host also has a robots.txt
CHILDREN = 4
OTHER_LINKS = 4  # of a page, to any others
# What is wanted of the largest swarm.
EFFICIENCY_MIN, RATIO_MAX, FLAT_FROM = 0.85, 1.3, 100
# Alone a node crawls as many pages as so many, so that its middle is long enough to be measured.
ALONE_TIMES = 10


@dataclass(frozen=True, slots=True)
class Paced:
    """One swarm's run, and its pages a virtual second."""

    sample: Sample
    middle_rate: float
    whole_rate: float


class EvenWeb(SimWeb):
    """A tree of pages that is dealt out to the hosts; each page also leads to a few others."""

    def __init__(self, seed: int, hosts: int, pages: int) -> None:
        super().__init__(
            seed, WebShape(hosts=hosts, pages=hosts, latency_s=LATENCY_S, broken=0.0, flaky=0.0, slow_s=0.0)
        )
        self._pages = pages

    def seeds(self) -> list[str]:
        """The root of the tree."""
        return [self._at(0)]

    def respond(self, url: str, attempt: int = 1) -> Response:
        """A page, or 404."""
        number = url.rpartition("/")[2]
        if not number.isdecimal():
            return Response(404, [("Content-Type", "text/plain")], b"none")
        links = "".join(f'<li><a href="{link}">one</a>' for link in self._links(int(number)))
        text = f"<!doctype html><title>Page {number}</title><p>{'word ' * 100}<ul>{links}</ul>"
        return Response(200, [("Content-Type", "text/html; charset=utf-8")], text.encode())

    def truth(self, *args: object, **kwargs: object) -> dict[str, int]:
        """All pages; how far each is from the root is not said."""
        return {self._at(number): 0 for number in range(self._pages)}

    def rates(self) -> tuple[float, float]:
        """Pages a second, in the middle and over all."""
        ends = sorted(visit.end for visit in self.visits if visit.status == 200)
        first, last = len(ends) // 4, 3 * len(ends) // 4
        return (last - first) / (ends[last] - ends[first]), len(ends) / (ends[-1] - self.visits[0].start)

    def _at(self, number: int) -> str:
        return f"http://{self.hosts[number % len(self.hosts)]}/{number}"

    def _links(self, number: int) -> Iterator[str]:
        children = range(number * CHILDREN + 1, number * CHILDREN + 1 + CHILDREN)
        yield from (self._at(child) for child in children if child < self._pages)
        rng = Random(self.seed << 32 | number)
        yield from (self._at(rng.randrange(self._pages)) for _ in range(OTHER_LINKS))


class Settled(Simulated):
    """A swarm of nodes that know each other, and its web."""

    def __init__(self, nodes: int, pages: int, seed: int, policy: str) -> None:
        self._even = EvenWeb(seed, nodes * pages // PAGES_A_HOST, nodes * pages)
        settings: dict[str, object] = {"fetch.concurrency": FLIGHT, "crawl.scope": "any", "crawl.policy": policy}
        super().__init__(nodes, pages, seed, web=self._even, settings=settings)

    async def join(self) -> None:
        """All nodes begin, and are told of each other."""
        self._hosts = await settle(self._swarm, self._nodes, self._rng)

    def rates(self) -> tuple[float, float]:
        """Pages a second, in the middle and over all."""
        return self._even.rates()


def run(nodes: int, pages: int, seed: int, policy: str = DEFAULT_POLICY) -> Paced:
    """Settle, crawl, idle.

    Raises:
        SystemExit: not all pages were fetched, or the crawl has ended otherwise.
    """
    swarm = Settled(nodes, pages * (ALONE_TIMES if nodes == 1 else 1), seed, policy)
    sample = measured([swarm], nodes)
    paced = Paced(sample, *swarm.rates())
    swarm.end()
    return paced


def rows_of(paced: Mapping[int, Sequence[Paced]], policy: str = DEFAULT_POLICY) -> list[benchmark.Row]:
    """What is told of each size; the largest is judged: its speed beside one node's, its bytes beside a hundred's."""
    rows: list[benchmark.Row] = []
    under = "" if policy == DEFAULT_POLICY else f"{policy}, "

    def row(
        name: str, unit: str, values: list[float], claim: str, target: float | None = None, *, most: bool = True
    ) -> None:
        measured = median(values)
        ok = target is None or (measured <= target if most else measured >= target)
        rows.append(
            benchmark.row(
                under + name, measured, unit, values, by=benchmark.SIMULATED, claim=claim, target=target, ok=ok
            )
        )

    alone = median(each.middle_rate for each in paced[1]) if 1 in paced else None
    for nodes, some in paced.items():
        row(f"{nodes} nodes: speed", "pages/s", [each.middle_rate for each in some], "in the middle of the crawl")
        if alone is not None and nodes > 1:
            judged = EFFICIENCY_MIN if nodes == max(paced) and nodes > FLAT_FROM else None
            shares = [each.middle_rate / nodes / alone for each in some]
            row(f"{nodes} nodes: E", "", shares, "speed over N times one node's", judged, most=False)
            whole = [each.whole_rate / nodes / alone for each in some]
            row(f"{nodes} nodes: E, whole", "", whole, "the same with beginning and end")
        samples = [each.sample for each in some]
        row(f"{nodes} nodes: RPC", "B/page", [each.a_page("rpc_bytes") for each in samples], "beyond idle nodes'")
        row(f"{nodes} nodes: requests", "1/page", [each.a_page("messages") for each in samples], "of the task plane")
        row(f"{nodes} nodes: CPU", "ms/page", [1000 * each.a_page("cpu_s") for each in samples], "of the simulation")
        row(f"{nodes} nodes: memory", "MiB", [each.rss_bytes / 2**20 for each in samples], "of the simulation")
    largest = max(paced)
    if FLAT_FROM in paced and largest > FLAT_FROM:
        before = median(each.sample.a_page("rpc_bytes") for each in paced[FLAT_FROM])
        ratios = [each.sample.a_page("rpc_bytes") / before for each in paced[largest]]
        row("RPC, ratio", "times", ratios, f"bytes a page, {largest:,} nodes over {FLAT_FROM}", RATIO_MAX)
    return rows


async def settle(swarm: SimSwarm, nodes: int, rng: Random) -> list[SimHost]:
    """So many nodes, each of which knows all others and has met them."""
    hosts = [swarm.add() for _ in range(nodes)]
    for host, node_id in zip(hosts, together(nodes, _ids(rng), bytes, []), strict=True):
        host.id = node_id
        host.begin([])
    for host in hosts:
        while host.swarm is None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(LOOK_S)
        await host.swarm.ready.wait()
    note(f"{nodes} nodes are there, {rss_bytes() >> 20} MiB")
    there = [host.swarm for host in hosts if host.swarm is not None]
    rows = sorted((node.gossip.members.me for node in there), key=lambda row: row.id)
    now = asyncio.get_running_loop().time()
    for node in there:
        introduce(node.gossip.members, rows, now)
        fill(node.routing.plane.table, rows, now, rng)
    note(f"each knows all others, {rss_bytes() >> 20} MiB")
    return hosts


def introduce(members: Members, rows: Sequence[MemberRecord], now: float) -> None:
    """Have a node know these, its own among them, as if each had answered it."""
    members.learn(rows, now, news=False)
    for row in rows:
        if row.id != members.me.id:
            members.met(row.id)
    while members.next_target(new=True) is not None:
        pass  # who was met need not be asked out of turn


def fill(table: RoutingTable, rows: Sequence[MemberRecord], now: float, rng: Random) -> None:
    """Put as many into each bucket as it takes; `rows` are sorted by id."""
    own = int.from_bytes(table.own_id, "big")
    for shared in range(KEY_BITS):
        height = KEY_BITS - 1 - shared
        first = ((own >> height) ^ 1) << height
        low = bisect_left(rows, first.to_bytes(KEY_BYTES, "big"), key=lambda row: row.id)
        beyond = first + (1 << height)
        high = len(rows)
        if beyond >> KEY_BITS == 0:
            high = bisect_left(rows, beyond.to_bytes(KEY_BYTES, "big"), key=lambda row: row.id)
        for row in rng.sample(rows[low:high], min(K, high - low)):
            table.confirm(Contact(row.id, *row.address), now)


def _ids(rng: Random) -> Iterator[bytes]:
    while True:
        yield rng.randbytes(KEY_BYTES)
