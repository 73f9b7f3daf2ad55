"""What a page costs as the swarm grows, at 10, 100 and 1,000 simulated nodes; with --real how fast real ones are.

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
it would take minutes more to repeat to everybody what everybody knows. And
nobody exchanges all it knows with another one, as each does every few minutes:
whether these seconds meet it is chance.

CPU is that of the whole simulation, its web and networks included. A thousand
nodes are in no cache, each of them after all the others: what of the CPU is
that, and no more work, tell ten swarms of a hundred that run side by side, in
turns of a millisecond. The target is for what comes on top of it.

    python scripts/bench_scale.py [--quick] [--json FILE] [--plot FILE.svg]

With `--settled`, swarms whose nodes know each other from the start (`scale_settled.py`): how fast thousands are.

    python scripts/bench_scale.py --settled 1,100,2000 [--policies balanced]

With `--real`, processes on this machine crawl a web that is slow to answer (`scale_nodes.py`): speed, E(N) = the speed
of N nodes over N times that of one, CPU and bytes a page, how even the shares are, and by the web's own count what was
asked for twice, lost, or asked for too soon. Each swarm has as many pages for each node.

    python scripts/bench_scale.py --real 1,2,4,8,16 [--policies xor,balanced] [--keys url] [--csv FILE]

A web that takes longer (`--latency 0.9`) asks less of a machine that all nodes share.

With `--share 0.05` each has a twentieth of a core, as root: small machines, which the web does not hold up.

    python scripts/bench_scale.py --real 1,16 --share 0.05 --flight 16 --pages 300

With `--inventory` the processes run on other machines, over ssh (`scale_hosts.py` has the file's form).

    python scripts/bench_scale.py --inventory hosts.toml [--real 1,2,4]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import benchmark
import ended
import scale_hosts
import scale_report
import scale_settled
from policy_bench.lab import Unavailable
from scale_nodes import RealSample, Trial, as_json
from scale_nodes import run as run_real
from scale_swarms import Sample, Spent, note, run

NODES = (10, 100, 1_000)
QUICK_NODES = (5, 15)
PAGES = 20
QUICK_PAGES = 8
REAL_POLICIES = "xor,balanced"
REAL_PAGES = 1_000
SETTLED_PAGES = 16
# A page may cost a swarm ten times as large as one of a hundred so much more.
RATIO_MAX = 1.3
FLAT_FROM, FLAT_TO = 100, 1_000

# What it comes to


def measure(nodes: int, pages: int, seed: int, swarms: int = 1) -> Sample:
    """The same in a process of its own, so that no swarm runs among what another left behind."""
    note(f"{f'{swarms} swarms of ' if swarms > 1 else ''}{nodes} nodes, {pages} pages each, seed {seed}")
    return _sample(_apart("--one", nodes, pages, seed, swarms))


def _apart(option: str, *arguments: int | str) -> dict[str, Any]:
    """What a run in a process of its own has measured."""
    done = subprocess.run([sys.executable, __file__, option, json.dumps(arguments)], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(
            f"bench: the run of {arguments[0]} nodes ended with {done.returncode}; what it said stands above"
        )
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def _sample(values: dict[str, Any]) -> Sample:
    return Sample(**(values | {phase: Spent(**values[phase]) for phase in ("join", "crawl", "idle")}))


# Name, unit, what of it is shown.
MEASURES: tuple[tuple[str, str, Callable[[Sample], float], str], ...] = (
    ("cpu", "ms/page", lambda s: 1000 * s.a_page("cpu_s"), "CPU a page"),
    ("rpc_bytes", "B/page", lambda s: s.a_page("rpc_bytes"), "bytes of both planes a page"),
    ("task_bytes", "B/page", lambda s: s.a_page("task_bytes"), "of them, over connections"),
    ("messages", "1/page", lambda s: s.a_page("messages"), "requests of the task plane a page"),
    ("connections", "1/page", lambda s: s.a_page("connections"), "connections made a page"),
    ("idle_datagram_bytes", "B/s", lambda s: s.a_node_second("datagram_bytes"), "of an idle node"),
    ("idle_cpu", "ms/s", lambda s: 1000 * s.a_node_second("cpu_s"), "of an idle node"),
    ("join_cpu", "ms/node", lambda s: 1000 * s.a_newcomer("cpu_s"), "of the whole swarm for each newcomer"),
    ("join_task_bytes", "B/node", lambda s: s.a_newcomer("task_bytes"), "of the whole swarm for each newcomer"),
    ("join_datagram_bytes", "B/node", lambda s: s.a_newcomer("datagram_bytes"), "of the whole swarm for each newcomer"),
    ("crawl_virtual_s", "s", lambda s: s.crawl.virtual_s, "from submission until all know of the end"),
    ("memory", "MiB", lambda s: s.rss_bytes / 2**20, "of the simulation at the end"),
)
FLAT = ("cpu", "rpc_bytes")


def compared(sizes: Iterable[int]) -> tuple[int, int]:
    """Between which two sizes a page is to cost the same."""
    sizes = set(sizes)
    return (FLAT_FROM, FLAT_TO) if {FLAT_FROM, FLAT_TO} <= sizes else (min(sizes), max(sizes))


def rows_of(samples: dict[int, list[Sample]], beside: Sequence[Sample] = ()) -> list[benchmark.Row]:
    """A row for each measure and swarm; the ratios that have to be flat last.

    `beside` are samples of as many small swarms in one process as have the nodes of the large one.
    """
    rows: list[benchmark.Row] = []
    for name, unit, value, claim in MEASURES:
        for nodes, some in samples.items():
            rows.append(row(f"{name}_{nodes}", claim, [value(sample) for sample in some], unit))
    small, large = compared(samples)
    if small == large:
        return rows
    target = RATIO_MAX if (small, large) == (FLAT_FROM, FLAT_TO) else None
    value_of = {name: value for name, _, value, _ in MEASURES}

    def over(name: str, base: Sequence[Sample], claim: str, target: float | None) -> benchmark.Row:
        value = value_of[name]
        before = median(map(value, base))
        return row(f"{name}_ratio", claim, [value(sample) / before for sample in samples[large]], "times", target)

    claim = f"{large:,} nodes over {small:,}"
    rows.append(over("rpc_bytes", samples[small], f"bytes a page, {claim}", target))
    if not beside:
        rows.append(over("cpu", samples[small], f"CPU a page, {claim}", target))
        return rows
    cpu_ms = [value_of["cpu"](sample) for sample in beside]
    rows.append(
        row("cpu_beside", f"CPU a page of {small:,} nodes, in swarms that have {large:,} together", cpu_ms, "ms/page")
    )
    rows.append(over("cpu", beside, f"CPU a page, {claim} in swarms of as many together", target))
    rows.append(over("cpu", samples[small], f"CPU a page, {claim} alone", None) | {"name": "cpu_ratio_alone"})
    return rows


def row(name: str, claim: str, values: list[float], unit: str, target: float | None = None) -> benchmark.Row:
    """One row of the report; without a target it is information."""
    measured = median(values)
    ok = target is None or measured <= target
    return benchmark.row(name, measured, unit, values, by=benchmark.SIMULATED, claim=claim, target=target, ok=ok)


def print_table(rows: list[benchmark.Row], samples: dict[int, list[Sample]]) -> None:
    """For people, on stderr: a line for each measure, a column for each swarm."""
    by_name = {item["name"]: item for item in rows}
    sizes = list(samples)
    print("\n" + " " * 22 + "".join(f"{f'{nodes:,} nodes':>14}" for nodes in sizes), file=sys.stderr)
    print(f"{'pages':22}" + "".join(f"{samples[nodes][0].pages:>14,}" for nodes in sizes), file=sys.stderr)
    for name, unit, _, claim in MEASURES:
        cells = "".join(f"{by_name[f'{name}_{nodes}']['measured']:>14,.1f}" for nodes in sizes)
        print(f"{name:22}{cells}  {unit:8}{claim}", file=sys.stderr)
    for item in rows:
        if "_ratio" in item["name"]:
            verdict = "" if item["target"] is None else f"at most {item['target']}: {'ok' if item['ok'] else 'NOT OK'}"
            print(f"{item['name']:22}{item['measured']:>14,.2f}  {verdict:20}{item['claim']}", file=sys.stderr)


def plot(rows: list[benchmark.Row], sizes: list[int]) -> str:
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


def settled(args: argparse.Namespace) -> int:
    """The settled swarms that were asked for, each in a process of its own; the exit code."""
    pages = args.pages or (QUICK_PAGES if args.quick else SETTLED_PAGES)
    rows: list[benchmark.Row] = []
    for policy in (args.policies or scale_settled.DEFAULT_POLICY).split(","):
        paced: dict[int, list[scale_settled.Paced]] = {}
        for seed in range(1, args.seeds + 1):
            for nodes in args.settled:
                note(f"{nodes} settled nodes, {pages} pages each, seed {seed}, {policy}")
                values = _apart("--one-settled", nodes, pages, seed, policy)
                each = scale_settled.Paced(**(values | {"sample": _sample(values["sample"])}))
                paced.setdefault(nodes, []).append(each)
        rows += scale_settled.rows_of(paced, policy)
    benchmark.print_table(rows, " ")
    return benchmark.finish(rows, args.json)


def real(args: argparse.Namespace) -> int:
    """The real swarms that were asked for, in rounds; the exit code."""
    run_one, sizes = _where(args)
    # The web's pages are a tree that is dealt out to its hosts: with fewer pages than hosts there would be empty ones.
    more: dict[str, Any] = {"hosts": 16, "delay_s": 0.05, "latency_s": 0.1} if args.quick else {}
    pages = args.pages or (40 if args.quick else REAL_PAGES)
    if args.flight:
        more["flight"] = args.flight
    if args.share:
        more["share"] = args.share
    if args.latency:
        more["latency_s"] = args.latency
    samples: dict[tuple[str, str, int], list[RealSample]] = {}
    for _ in range(args.rounds):
        for policy in (args.policies or REAL_POLICIES).split(","):
            for key in args.keys.split(","):
                for nodes in sizes:
                    trial = Trial(nodes, pages, policy=policy, key=key, **more)
                    note(f"{nodes} real nodes, {pages} pages each, {policy}, by {key}")
                    with tempfile.TemporaryDirectory(prefix="bench-scale-") as home:
                        samples.setdefault((policy, key, nodes), []).append(_ran(run_one, trial, Path(home)))
    rows = scale_report.rows_of(samples)
    benchmark.print_table(rows, " ")
    if args.plot:
        Path(args.plot).write_text(scale_report.plot(samples))
    if args.csv:
        Path(args.csv).write_text(scale_report.csv_text(samples))
    return benchmark.finish(rows, args.json, runs=[as_json(sample) for some in samples.values() for sample in some])


def _ran(run_one: Callable[[Trial, Path], RealSample], trial: Trial, home: Path) -> RealSample:
    try:
        return run_one(trial, home)
    except Unavailable as error:
        raise SystemExit(f"bench: --share {trial.share:g}: {error}") from None


def _where(args: argparse.Namespace) -> tuple[Callable[[Trial, Path], RealSample], list[int]]:
    """What runs a real swarm, and of which sizes.

    Raises:
        SystemExit: there are not so many hosts.
    """
    sizes: list[int] = args.real or []
    if not args.inventory:
        return run_real, sizes
    inventory = scale_hosts.read_inventory(args.inventory)
    hosts = len(inventory.nodes)
    if max(sizes, default=0) > hosts:
        raise SystemExit(f"bench: {args.inventory} has {hosts} nodes, and --real asks for {max(sizes)}")
    return partial(scale_hosts.run, inventory), sizes or scale_hosts.sizes_of(hosts)


def main(argv: list[str] | None = None) -> int:
    """Measure, print, write; 0 only when every row with a target is ok."""
    parser = argparse.ArgumentParser(description="Measures what a page costs in simulated swarms of several sizes.")
    benchmark.add_options(parser, "small swarms and few pages; under a minute, no target")
    parser.add_argument(
        "--settled",
        type=benchmark.counts,
        metavar="N,N",
        help="swarms of these sizes whose nodes know each other already",
    )
    parser.add_argument(
        "--real",
        type=benchmark.counts,
        metavar="N,N",
        help="real nodes on this machine instead, in swarms of these sizes",
    )
    parser.add_argument("--inventory", metavar="FILE", help="real nodes on the hosts of this file (TOML), over ssh")
    parser.add_argument(
        "--policies", metavar="NAME,…", help=f"of real nodes (default {REAL_POLICIES}), or settled ones (default xor)"
    )
    parser.add_argument("--keys", default="url", metavar="NAME,…", help="of real nodes: url, host or both")
    parser.add_argument("--rounds", type=benchmark.count, default=1, help="of real swarms, in turns (default 1)")
    parser.add_argument(
        "--flight", type=benchmark.count, metavar="N", help="requests at once, of a real node (default 4)"
    )
    parser.add_argument("--latency", type=float, metavar="S", help="of each page of the real nodes' web (default 0.3)")
    parser.add_argument("--share", type=float, metavar="CORES", help="of a core, for each real node, such as 0.05")
    parser.add_argument("--csv", type=benchmark.output, metavar="FILE", help="write a line for each real swarm there")
    parser.add_argument("--plot", type=benchmark.output, metavar="FILE", help="write a plot there, as SVG")
    parser.add_argument("--nodes", type=benchmark.counts, help="sizes of swarms, such as 10,100,1000")
    parser.add_argument("--pages", type=benchmark.count, help=f"for each node (default {PAGES})")
    parser.add_argument("--seeds", type=benchmark.count, default=1, help="runs of each swarm (default 1)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--one-settled", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one or args.one_settled:
        ended.at_once()
    if args.one:
        print(json.dumps(dataclasses.asdict(run(*json.loads(args.one)))))
        return 0
    if args.one_settled:
        print(json.dumps(dataclasses.asdict(scale_settled.run(*json.loads(args.one_settled)))))
        return 0
    if args.settled:
        return settled(args)
    if args.real or args.inventory:
        return real(args)
    sizes = args.nodes or list(QUICK_NODES if args.quick else NODES)
    pages = args.pages or (QUICK_PAGES if args.quick else PAGES)
    seeds = range(1, args.seeds + 1)
    samples = {nodes: [measure(nodes, pages, seed) for seed in seeds] for nodes in sizes}
    small, large = compared(sizes)
    beside = [measure(small, pages, seed, large // small) for seed in seeds] if large // small > 1 else []
    rows = rows_of(samples, beside)
    print_table(rows, samples)
    if args.plot:
        Path(args.plot).write_text(plot(rows, sizes))
    return benchmark.finish(rows, args.json)


if __name__ == "__main__":
    sys.exit(ended.in_order(main))
