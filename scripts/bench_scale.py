"""What a page costs as the swarm grows: CPU, bytes and messages at 10, 100 and 1,000 simulated nodes.

The nodes are the real ones, on a virtual clock and networks in memory; every
swarm has as many pages for each node, on as many hosts, with as many links a
page. A cost that is flat is one that a node pays for its own work. Three
phases are measured apart, each in a process of its own for each swarm:

    join    nodes come in waves, each as large as the swarm is by then
    crawl   from the submission until every node knows of the end
    idle    nobody crawls: what membership costs, for each node and second

While nodes crawl they also gossip, and how long a crawl takes is for its
politeness to say. So what a page costs is what the crawl took beyond what idle
nodes take in the same time; idle nodes have a row of their own. Between join and crawl what is
left of the gossip about newcomers is dropped once all nodes know all others:
it would take minutes more to repeat to everybody what everybody knows.

CPU is that of the whole simulation, its web and networks included.

    python scripts/bench_scale.py [--quick] [--json FILE] [--plot FILE.svg]
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from dhtcrawl.config import load
from dhtcrawl.sim import loop
from dhtcrawl.sim.swarm import SimHost, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.storage.crawl_record import COMPLETE

NODES = (10, 100, 1_000)
QUICK_NODES = (5, 15)
PAGES = 20
QUICK_PAGES = 8
# As many for every swarm, or nodes would ask more gatekeepers for the robots.txt of fewer pages each.
HOSTS = 10
CONCURRENCY = 8
# A page may cost a swarm ten times as large as one of a hundred so much more.
RATIO_MAX = 1.3
FLAT_FROM, FLAT_TO = 100, 1_000
IDLE_S = 20.0
WAVE_MIN = 8
LOOK_S = 0.5
NONCE = bytes(16)


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used up, by a moment or between two."""

    cpu_s: float
    virtual_s: float
    task_bytes: int
    datagram_bytes: int
    datagrams: int
    messages: int  # requests of the task plane, between different nodes
    connections: int

    @property
    def rpc_bytes(self) -> int:
        """Of requests and answers, however they went."""
        return self.task_bytes + self.datagram_bytes

    def __sub__(self, other: Spent) -> Spent:
        ours, theirs = dataclasses.astuple(self), dataclasses.astuple(other)
        return Spent(*(a - b for a, b in zip(ours, theirs, strict=True)))


@dataclass(frozen=True, slots=True)
class Sample:
    """One swarm's run."""

    nodes: int
    pages: int
    join: Spent
    crawl: Spent
    idle: Spent
    rss_bytes: int

    def a_page(self, name: str) -> float:
        """Of one measure, what the crawl took beyond what idle nodes take in the same time, for each page."""
        idle = getattr(self.idle, name) / self.idle.virtual_s * self.crawl.virtual_s
        return float((getattr(self.crawl, name) - idle) / self.pages)

    def a_node_second(self, name: str) -> float:
        """Of one measure, what an idle node takes in a second."""
        return float(getattr(self.idle, name) / self.nodes / self.idle.virtual_s)

    def a_newcomer(self, name: str) -> float:
        """Of one measure, what the whole swarm spends for each node that joins, idling included."""
        return float(getattr(self.join, name) / self.nodes)


# One run


async def run(nodes: int, pages: int, seed: int) -> Sample:
    """Join, crawl, idle; to be run on a virtual loop."""
    config = load(flags={"fetch.concurrency": CONCURRENCY})
    web = SimWeb(seed, hosts=HOSTS, pages=nodes * pages)
    spec = make_spec(web.seeds(), dataclasses.replace(config.crawl, delay_s=0.0))
    trace = Trace(asyncio.get_running_loop().time)
    async with asyncio.TaskGroup() as group:
        swarm = SimSwarm(group, seed, config, web, trace)
        began = spent(swarm)
        hosts = await gather(swarm, nodes, Random(seed))
        joined = spent(swarm) - began
        await calm(hosts)
        # A thousand nodes in one heap: the collector would look at millions of objects of the others, again and again.
        gc.disable()
        began = spent(swarm)
        await crawl(hosts, spec)
        crawled = spent(swarm) - began
        began = spent(swarm)
        await asyncio.sleep(IDLE_S)
        idled = spent(swarm) - began
        fetched = {visit.url for visit in web.visits if not visit.url.endswith("/robots.txt")}
        if lost := web.truth().keys() - fetched:
            raise SystemExit(f"bench: {len(lost)} pages of {nodes} nodes were not fetched, {min(lost)} for one")
        sample = Sample(nodes, len(fetched), joined, crawled, idled, rss_bytes())
        for host in hosts:
            await host.crash()
    return sample


async def gather(swarm: SimSwarm, nodes: int, rng: Random) -> list[SimHost]:
    """A swarm of so many nodes, which came in waves through random members."""
    hosts = [swarm.add()]
    await hosts[0].start([])
    while len(hosts) < nodes:
        wave = [swarm.add() for _ in range(min(nodes - len(hosts), max(WAVE_MIN, len(hosts))))]
        for host in wave:
            host.begin(rng.sample(hosts, min(3, len(hosts))))
        for host in wave:
            while host.swarm is None:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(LOOK_S)
            await host.swarm.ready.wait()
        hosts += wave
        note(f"{len(hosts)} nodes have joined, {rss_bytes() >> 20} MiB")
    return hosts


async def calm(hosts: list[SimHost]) -> None:
    """Wait until all know all, then let them tell nobody again."""
    nodes = [host.swarm for host in hosts if host.swarm is not None]
    while len({node.gossip.fingerprint() for node in nodes}) > 1:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(LOOK_S)
    for node in nodes:
        for member in node.gossip.view.ids:
            node.gossip.members.rumours.drop(member)
    await asyncio.sleep(1.0)


async def crawl(hosts: list[SimHost], spec: CrawlSpec) -> None:
    """Submit a crawl to one node, and wait until all know how it ended."""
    crawl_id = spec.crawl_id(NONCE)
    first = hosts[0].swarm
    assert first is not None, "it has joined"
    await first.crawls.create(spec, NONCE)
    running = hosts
    while running:
        await asyncio.sleep(LOOK_S)
        running = [host for host in running if not is_over(host, crawl_id)]
    note("the crawl is over")


def is_over(host: SimHost, crawl_id: bytes) -> bool:
    """Whether a node knows that the crawl has ended, and has nothing more to do for it."""
    assert host.swarm is not None, "nothing makes it crash"
    record = host.swarm.crawls.get(crawl_id)
    if record is None or not record.ended:
        return False
    if record.ended != COMPLETE:
        raise SystemExit(f"bench: the crawl ended as {record.ended!r}; see {host.name}")
    return crawl_id not in host.swarm.crawls.runs


def spent(swarm: SimSwarm) -> Spent:
    """Since the simulation began."""
    return Spent(
        cpu_s=time.process_time(),
        virtual_s=swarm.loop.time(),
        task_bytes=swarm.streams.bytes_sent,
        datagram_bytes=swarm.datagrams.bytes_sent,
        datagrams=swarm.datagrams.sent,
        messages=sum(swarm.tally.frames.values()),
        connections=swarm.streams.connections_made,
    )


def rss_bytes() -> int:
    """What this process holds in memory now."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * 4096


def note(text: str) -> None:
    """Progress, on stderr."""
    print(f"  {time.process_time():8.1f} CPU-s  {text}", file=sys.stderr)


# What it comes to


def measure(nodes: int, pages: int, seed: int) -> Sample:
    """The same in a process of its own, so that no swarm runs among what another left behind."""
    note(f"{nodes} nodes, {pages} pages each, seed {seed}")
    argv = [sys.executable, __file__, "--one", json.dumps([nodes, pages, seed])]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"bench: the run of {nodes} nodes ended with {done.returncode}; what it said stands above")
    values = json.loads(done.stdout)
    return Sample(**(values | {phase: Spent(**values[phase]) for phase in ("join", "crawl", "idle")}))


# Name, unit, what of it is shown.
MEASURES: tuple[tuple[str, str, Callable[[Sample], float], str], ...] = (
    ("cpu", "ms/page", lambda s: 1000 * s.a_page("cpu_s"), "CPU a page"),
    ("rpc_bytes", "B/page", lambda s: s.a_page("rpc_bytes"), "bytes of both planes a page"),
    ("task_bytes", "B/page", lambda s: s.a_page("task_bytes"), "of them, over connections"),
    ("messages", "1/page", lambda s: s.a_page("messages"), "requests of the task plane a page"),
    ("connections", "1/page", lambda s: s.a_page("connections"), "connections made a page"),
    ("idle_datagram_bytes", "B/s", lambda s: s.a_node_second("datagram_bytes"), "of an idle node"),
    ("idle_task_bytes", "B/s", lambda s: s.a_node_second("task_bytes"), "of an idle node"),
    ("idle_cpu", "ms/s", lambda s: 1000 * s.a_node_second("cpu_s"), "of an idle node"),
    ("join_cpu", "ms/node", lambda s: 1000 * s.a_newcomer("cpu_s"), "of the whole swarm for each newcomer"),
    ("join_task_bytes", "B/node", lambda s: s.a_newcomer("task_bytes"), "of the whole swarm for each newcomer"),
    ("join_datagram_bytes", "B/node", lambda s: s.a_newcomer("datagram_bytes"), "of the whole swarm for each newcomer"),
    ("crawl_virtual_s", "s", lambda s: s.crawl.virtual_s, "from submission until all know of the end"),
    ("memory", "MiB", lambda s: s.rss_bytes / 2**20, "of the simulation at the end"),
)
FLAT = ("cpu", "rpc_bytes")


def rows_of(samples: dict[int, list[Sample]]) -> list[dict[str, Any]]:
    """A row for each measure and swarm; the ratios that have to be flat last."""
    rows: list[dict[str, Any]] = []
    for name, unit, value, claim in MEASURES:
        for nodes, some in samples.items():
            rows.append(row(f"{name}_{nodes}", claim, [value(sample) for sample in some], unit))
    small, large = (FLAT_FROM, FLAT_TO) if {FLAT_FROM, FLAT_TO} <= samples.keys() else (min(samples), max(samples))
    for name, _, value, claim in MEASURES:
        if name in FLAT and small != large:
            before = median(value(sample) for sample in samples[small])
            ratios = [value(sample) / before for sample in samples[large]]
            target = RATIO_MAX if (small, large) == (FLAT_FROM, FLAT_TO) else None
            rows.append(row(f"{name}_ratio", f"{claim}, {large} nodes over {small}", ratios, "times", target))
    return rows


def row(name: str, claim: str, values: list[float], unit: str, target: float | None = None) -> dict[str, Any]:
    """One row of the report; without a target it is information."""
    measured = median(values)
    return {
        "name": name,
        "claim": claim,
        "target": target,
        "measured": round(measured, 3),
        "unit": unit,
        "samples": [round(value, 3) for value in values],
        "ok": target is None or measured <= target,
    }


def print_table(rows: list[dict[str, Any]], samples: dict[int, list[Sample]]) -> None:
    """For people, on stderr: a line for each measure, a column for each swarm."""
    by_name = {item["name"]: item for item in rows}
    sizes = list(samples)
    print("\n" + " " * 22 + "".join(f"{f'{nodes:,} nodes':>14}" for nodes in sizes), file=sys.stderr)
    print(f"{'pages':22}" + "".join(f"{samples[nodes][0].pages:>14,}" for nodes in sizes), file=sys.stderr)
    for name, unit, _, claim in MEASURES:
        cells = "".join(f"{by_name[f'{name}_{nodes}']['measured']:>14,.1f}" for nodes in sizes)
        print(f"{name:22}{cells}  {unit:8}{claim}", file=sys.stderr)
    for item in rows:
        if item["name"].endswith("_ratio"):
            verdict = "" if item["target"] is None else f"at most {item['target']}: {'ok' if item['ok'] else 'NOT OK'}"
            print(f"{item['name']:22}{item['measured']:>14,.2f}  {verdict:20}{item['claim']}", file=sys.stderr)


def plot(rows: list[dict[str, Any]], sizes: list[int]) -> str:
    """The flat measures over the number of nodes, each as a multiple of what it is in the smallest swarm, as SVG."""
    width, height, left, bottom = 480, 300, 50, 40
    by_name: dict[str, float] = {item["name"]: item["measured"] for item in rows}
    most = math.ceil(max(by_name[f"{name}_{n}"] / by_name[f"{name}_{sizes[0]}"] for name in FLAT for n in sizes))

    def x(nodes: int) -> float:
        span = math.log(max(sizes) / min(sizes)) or 1.0
        return left + (width - left - 20) * math.log(nodes / min(sizes)) / span

    def y(times: float) -> float:
        return (height - bottom) * (1 - times / most) + 10

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">']
    parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    parts += [f'<text x="{x(n)}" y="{height - 12}" font-size="11" text-anchor="middle">{n:,}</text>' for n in sizes]
    parts.append(f'<text x="{width - 20}" y="{height - 1}" font-size="11" text-anchor="end">nodes</text>')
    for times in range(most + 1):
        parts.append(f'<path d="M{left} {y(times)}H{width - 20}" stroke="#ccc"/>')
        parts.append(f'<text x="{left - 8}" y="{y(times) + 4}" font-size="11" text-anchor="end">×{times}</text>')
    for number, (name, colour) in enumerate(zip(FLAT, ("#0b6", "#06b"), strict=True)):
        points = [(x(n), y(by_name[f"{name}_{n}"] / by_name[f"{name}_{sizes[0]}"])) for n in sizes]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(
            f'<text x="{left + 10}" y="{26 + 16 * number}" font-size="12" fill="{colour}">{name} a page</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Measure, print, write; 0 only when every row with a target is ok."""
    parser = argparse.ArgumentParser(description="Measures what a page costs in simulated swarms of several sizes.")
    parser.add_argument("--quick", action="store_true", help="small swarms and few pages; under a minute, no target")
    parser.add_argument("--json", metavar="FILE", help="write the rows there; - for stdout")
    parser.add_argument("--plot", metavar="FILE", help="write a plot there, as SVG")
    parser.add_argument("--nodes", help="sizes of swarms, such as 10,100,1000")
    parser.add_argument("--pages", type=int, help=f"for each node (default {PAGES})")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each swarm (default 1)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one:
        print(json.dumps(dataclasses.asdict(loop.run(run(*json.loads(args.one))))))
        return 0
    sizes = [int(n) for n in args.nodes.split(",")] if args.nodes else list(QUICK_NODES if args.quick else NODES)
    pages = args.pages or (QUICK_PAGES if args.quick else PAGES)
    samples = {nodes: [measure(nodes, pages, seed) for seed in range(1, args.seeds + 1)] for nodes in sizes}
    rows = rows_of(samples)
    print_table(rows, samples)
    if args.plot:
        Path(args.plot).write_text(plot(rows, sizes))
    if args.json == "-":
        print(json.dumps({"rows": rows}, indent=2))
    elif args.json:
        Path(args.json).write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    return 0 if all(item["ok"] for item in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
