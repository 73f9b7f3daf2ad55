"""What is told of real swarms of several sizes: rows, CSV and a plot with the line through their speeds. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from statistics import correlation, linear_regression, mean, median

import benchmark
from policy_bench.report import line_plot
from scale_nodes import BUSY_MAX, RealSample

Samples = Mapping[tuple[str, str, int], Sequence[RealSample]]  # by policy, key and nodes
# What is wanted of 8 and 16 nodes: by `balanced`, and by `xor` of what its uneven shares allow.
EFFICIENCY_MIN = 0.9
JUDGED_NODES = (8, 16)
# Where each node has a share of a core, the swarm is judged at any size, under every policy.
SHARED_MIN, SHARED_CPU_MAX = 0.8, 1.35
REFETCHED_MAX = 1_000  # per million
FIELDS = (
    "policy", "key", "nodes", "pages", "pages_per_s", "efficiency", "allowed", "cpu_ms_a_page", "rpc_bytes_a_page",
    "uneven", "again_per_million", "lost", "too_soon", "memory_mib", "busy", "whole_s",
)  # fmt: skip


def efficiency(one: Sequence[RealSample], some: Sequence[RealSample]) -> list[float]:
    """E(N): the speed of each sample over N times that of one node."""
    speed = median(sample.rate for sample in one)
    return [sample.rate / (sample.trial.nodes * speed) for sample in some]


def allowed(sample: RealSample) -> float:
    """The E that a swarm's shares allow: all wait for the node with the most pages."""
    return 1.0 / sample.uneven


def rows_of(samples: Samples) -> list[benchmark.Row]:
    """What is measured of each swarm; speed is judged at 8 and at 16 nodes, what must not happen everywhere."""
    rows: list[benchmark.Row] = []
    for (policy, key, nodes), some in samples.items():
        name = f"{policy}, by {key}, {nodes} node{'s' * (nodes > 1)}"
        rows += _speed_rows(name, samples, (policy, key, nodes))
        rows += _promise_rows(name, some)
    for policy, key in dict.fromkeys((policy, key) for policy, key, _ in samples):
        points = speeds(samples, policy, key)
        if len(points) > 2:
            rows.append(
                benchmark.row(
                    f"{policy}, by {key}: R² of the line", r2(points), "", len(points), claim="speed by nodes"
                )
            )
    return rows


def _speed_rows(name: str, samples: Samples, which: tuple[str, str, int]) -> list[benchmark.Row]:
    policy, key, nodes = which
    some = samples[which]
    rates = [sample.rate for sample in some]
    rows = [benchmark.row(f"{name}: speed", median(rates), "pages/s", rates, claim="in the middle of the crawl")]
    one = samples.get((policy, key, 1), ())
    if nodes > 1 and one:
        share = efficiency(one, some)
        small = all(sample.trial.share for sample in (*one, *some))
        by_shares = policy == "xor" and not small
        of = [e / allowed(sample) for e, sample in zip(share, some, strict=True)] if by_shares else share
        valid = all(sample.valid for sample in (*one, *some))
        target = (SHARED_MIN if small else EFFICIENCY_MIN) if valid and (small or nodes in JUDGED_NODES) else None
        claim = "speed over N times one node's" + ("" if valid else f"; the machine was over {BUSY_MAX:.0%} busy")
        rows.append(benchmark.row(f"{name}: E", median(share), "", share, claim=claim))
        what = "E over what the shares allow" if by_shares else "E"
        ok = target is None or median(of) >= target
        rows.append(benchmark.row(f"{name}: {what}, judged", median(of), "", of, target=target, ok=ok))
        if small:
            dearer = [sample.cpu_ms / median(each.cpu_ms for each in one) for sample in some]
            bound = SHARED_CPU_MAX if valid else None
            ok = bound is None or median(dearer) <= bound
            claim = "CPU a page over one node's"
            rows.append(
                benchmark.row(f"{name}: dearer", median(dearer), "times", dearer, claim=claim, target=bound, ok=ok)
            )
    cpu, busy = [sample.cpu_ms for sample in some], [100 * sample.busy for sample in some]
    uneven = [sample.uneven for sample in some]
    rows += [
        benchmark.row(f"{name}: CPU", median(cpu), "ms/page", cpu, claim="of all nodes, in the middle"),
        benchmark.row(f"{name}: busy", median(busy), "%", busy, claim="of the machine, the web's server included"),
        benchmark.row(f"{name}: uneven", median(uneven), "max/mean", uneven, claim="pages of the nodes"),
    ]
    told = [sample.rpc_bytes / sample.asked.pages for sample in some if sample.rpc_bytes is not None]
    if told:
        rows.append(benchmark.row(f"{name}: RPC", median(told), "B/page", told, claim="over connections"))
    memory = [max(sample.memory_bytes) / 2**20 for sample in some]
    rows.append(benchmark.row(f"{name}: memory", median(memory), "MiB", memory, claim="of the largest node, at most"))
    return rows


def _promise_rows(name: str, some: Sequence[RealSample]) -> list[benchmark.Row]:
    again = [1e6 * sample.asked.again / sample.asked.pages for sample in some]
    lost, soon = sum(sample.lost for sample in some), sum(sample.asked.too_soon for sample in some)
    return [
        benchmark.row(
            f"{name}: again", median(again), "per million", again, target=REFETCHED_MAX,
            ok=median(again) <= REFETCHED_MAX, claim="pages asked for twice, by the web's count",
        ),
        benchmark.row(f"{name}: lost", lost, "pages", len(some), target=0, ok=lost == 0, claim="by the web's count"),
        benchmark.row(
            f"{name}: too soon", soon, "requests", len(some), target=0, ok=soon == 0, claim="by the web's count"
        ),
    ]  # fmt: skip


def speeds(samples: Samples, policy: str, key: str) -> list[tuple[float, float]]:
    """Nodes, and the pages a second of each sample."""
    return [
        (float(nodes), sample.rate)
        for (p, k, nodes), some in samples.items()
        if (p, k) == (policy, key)
        for sample in some
    ]


def r2(points: Sequence[tuple[float, float]]) -> float:
    """Of the straight line through the points, by least squares."""
    across, up = zip(*points, strict=True)
    return correlation(across, up) ** 2 if len(set(across)) > 1 and len(set(up)) > 1 else 0.0


def plot(samples: Samples) -> str:
    """The speeds over the number of nodes, and the line through each policy's, as SVG."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for policy, key in dict.fromkeys((policy, key) for policy, key, _ in samples):
        points = speeds(samples, policy, key)
        name = f"{policy}, by {key}"
        lines[name] = [
            (nodes, mean(up for at, up in points if at == nodes)) for nodes in sorted({at for at, _ in points})
        ]
        if len(lines[name]) > 1:
            slope, start = linear_regression(*zip(*points, strict=True))
            ends = (lines[name][0][0], lines[name][-1][0])
            lines[f"{name}: the line through it, R² {r2(points):.4f}"] = [(at, start + slope * at) for at in ends]
    return line_plot("Real nodes, a web that is slow to answer", "nodes", "pages a second", lines)


def csv_text(samples: Samples) -> str:
    """A line for each sample."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(FIELDS)
    for (policy, key, nodes), some in samples.items():
        one = samples.get((policy, key, 1), ())
        for sample in some:
            share = f"{efficiency(one, [sample])[0]:.4f}" if one else ""
            rpc = "" if sample.rpc_bytes is None else round(sample.rpc_bytes / sample.asked.pages)
            writer.writerow((
                policy, key, nodes, sample.trial.pages, f"{sample.rate:.3f}", share, f"{allowed(sample):.4f}",
                f"{sample.cpu_ms:.3f}", rpc, f"{sample.uneven:.4f}",
                f"{1e6 * sample.asked.again / sample.asked.pages:.1f}", sample.lost, sample.asked.too_soon,
                f"{max(sample.memory_bytes) / 2**20:.1f}", f"{sample.busy:.3f}", f"{sample.whole_s:.2f}",
            ))  # fmt: skip
    return out.getvalue()
