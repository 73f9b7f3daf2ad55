"""P4 with real processes: one node with ever more requests at once, and a cluster to which a node is added a minute.

*One node.* The paper's threads are our requests in flight. The site takes
`LATENCY_S` for an answer, so that one request at a time leaves the node idle.

*The cluster.* In the paper each node makes a crawl call every 5 s. Here a node
has one request in flight and the site takes 5 s to answer: as many calls, and
the delay is where no node can help it. A node is added a minute; its minute
begins when all others know it. Then the same without the 5 s, and with the
usual number of requests in flight.

All of it shares one machine, the site included: seconds of CPU are the nodes'
own, speeds are also the machine's. On loopback no network is ever full.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import correlation, fmean, linear_regression, median, stdev
from typing import NamedTuple

from dhtcrawl.config import SwarmSettings
from policy_bench.nodes import Cluster, Sample, wanted_s
from policy_bench.report import Experiment, Options, Row, line_plot
from policy_bench.slow_site import LINKS, slow_site

LATENCY_S = 0.05
LEVELS = (1, 2, 4, 8, 16, 32, 64)
R2_MIN = 0.99
NOISE = 2.0  # standard deviations
REPLICAS = SwarmSettings().replicas
WARM_PAGES = 20


class Level(NamedTuple):
    """One node with so many requests at once."""

    concurrency: int
    sample: Sample
    network_bytes_per_s: float
    wanted: float  # % of the time in which its event loop had a core, or waited for one

    @property
    def possible(self) -> float:
        """Pages a second, were the site's latency all that a page takes."""
        return self.concurrency / LATENCY_S


class Growth(NamedTuple):
    """How a cluster grows."""

    nodes: int
    minute_s: float  # from a node to the next
    sample_s: float
    latency_s: float
    concurrency: int


PUBLISHED = Growth(nodes=8, minute_s=60.0, sample_s=20.0, latency_s=5.0, concurrency=1)
WITHOUT_SLEEP = Growth(nodes=4, minute_s=20.0, sample_s=10.0, latency_s=0.0, concurrency=32)

Samples = Mapping[int, Sequence[Sample]]  # by the number of nodes


# One node


def one_node(concurrency: int, seconds: float, home: Path) -> Level:
    """What it does once it has begun."""
    with (
        slow_site(home, LATENCY_S) as site,
        Cluster(home / "nodes", "--concurrency", str(concurrency)) as cluster,
    ):
        cluster.add()
        cluster.crawl(site.url + "/0")
        cluster.reach(WARM_PAGES)
        # Every request there is has been begun by then.
        cluster.samples(1, seconds / 5)
        before, wanted = site.totals(), wanted_s(cluster.nodes[0])
        (sample,) = cluster.samples(1, seconds)
        after, wanted = site.totals(), wanted_s(cluster.nodes[0]) - wanted
    network = after.bytes_in + after.bytes_out - before.bytes_in - before.bytes_out
    return Level(concurrency, sample, network / sample.seconds, 100 * wanted / sample.seconds)


def run_one_node(options: Options) -> list[Row]:
    """A row for each level, and one for all."""
    levels = []
    for concurrency in (1, 4) if options.quick else LEVELS:
        with tempfile.TemporaryDirectory(prefix="bench-policies-") as home:
            levels.append(one_node(concurrency, 1.0 if options.quick else 10.0, Path(home)))
    if options.plots:
        for name, text in level_plots(levels).items():
            (options.plots / name).write_text(text)
    return [*map(level_row, levels), saturation_row(levels, options)]


def level_row(level: Level) -> Row:
    """For information."""
    speed, sample = level.sample.pages_per_s, level.sample
    cpu_ms = 1000 * sum(sample.cpu_s) / max(1, sample.pages)
    return Row(
        "P4",
        f"one node, {level.concurrency} at once",
        "",
        "",
        f"{speed:.1f} URLs/s processed of {level.possible:.0f} possible, {speed * LINKS:,.0f} generated, "
        f"{sample.seen / sample.seconds:,.0f} of them new; CPU {sum(sample.cpu_shares):.0f} % of a core "
        f"(had or wanted {level.wanted:.0f} % of the time), {cpu_ms:.1f} ms a page; "
        f"network {level.network_bytes_per_s / 1e6:.2f} MB/s",
        None,
        0,
        value=speed,
        unit="URLs/s",
    )


def saturation_row(levels: Sequence[Level], options: Options) -> Row:
    """Whether more requests at once bring more, and in the end no more since there is no more CPU."""
    first, last = levels[0], levels[-1]
    best = max(levels, key=lambda level: level.sample.pages_per_s)
    bound = last.sample.pages_per_s < 0.8 * last.possible and last.wanted > 80
    grows = best.sample.pages_per_s > 2 * first.sample.pages_per_s
    return Row(
        "P4",
        "one node, ever more requests at once",
        "threads on one machine saturate CPU and network",
        f"twice the speed, and saturation by {LEVELS[-1]} at once: under 80 % of what the site would allow, "
        "and a core wanted for over 80 % of the time",
        f"from {first.sample.pages_per_s:.1f} URLs/s at {first.concurrency} to {best.sample.pages_per_s:.1f} "
        f"at {best.concurrency}; {100 * last.sample.pages_per_s / last.possible:.0f} % of what is possible "
        f"at {last.concurrency}, where a core is had or wanted for {last.wanted:.0f} % of the time",
        options.judged(bound and grows),
        0,
        "the network is loopback, which is never full; where others use the machine, a core is waited for",
        value=best.sample.pages_per_s / max(first.sample.pages_per_s, 1e-9),
        unit="times the speed",
        samples=len(levels),
    )


def level_plots(levels: Sequence[Level]) -> dict[str, str]:
    """Both of the paper's speeds, and what they cost."""
    at = [float(level.concurrency) for level in levels]
    samples = [level.sample for level in levels]
    speeds = {
        "processed": [sample.pages_per_s for sample in samples],
        "generated, new": [sample.seen / sample.seconds for sample in samples],
    }
    use = {
        "CPU, % of a core": [sum(sample.cpu_shares) for sample in samples],
        "a core had or wanted, % of the time": [level.wanted for level in levels],
        "network, Mbit/s": [8e-6 * level.network_bytes_per_s for level in levels],
    }
    return {
        f"p4-one-node-{name}.svg": line_plot(
            "One node",
            "requests at once",
            unit,
            {each: list(zip(at, line, strict=True)) for each, line in what.items()},
        )
        for name, unit, what in (("speed", "URLs/s", speeds), ("use", "", use))
    }


# A cluster that grows


def grow(growth: Growth, home: Path) -> Samples:
    """What all nodes together do, with one node, with two, and so on."""
    found = {}
    options = ("--concurrency", str(growth.concurrency))
    with slow_site(home, growth.latency_s) as site, Cluster(home / "nodes", *options) as cluster:
        cluster.add()
        cluster.crawl(site.url + "/0")
        cluster.reach(1)
        for count in range(1, growth.nodes + 1):
            if count > 1:
                cluster.add()
            found[count] = cluster.samples(round(growth.minute_s / growth.sample_s), growth.sample_s)
    return found


class Line(NamedTuple):
    """Through points, by least squares."""

    slope: float
    r2: float
    off: float  # standard deviation of the points from it


def line_through(points: Sequence[tuple[float, float]]) -> Line:
    """The line."""
    across, up = zip(*points, strict=True)
    slope, start = linear_regression(across, up)
    # Points of one height have no correlation, and are none of growth either.
    r2 = correlation(across, up) ** 2 if len(set(up)) > 1 else 0.0
    return Line(slope, r2, stdev(y - start - slope * x for x, y in points))


def speeds(samples: Samples) -> list[tuple[float, float]]:
    """Nodes, and pages a second of all of them, sample by sample."""
    return [(count, sample.pages_per_s) for count, of in samples.items() for sample in of]


def minutes(samples: Samples) -> list[tuple[float, float]]:
    """The same by the minute."""
    return [(count, fmean(sample.pages_per_s for sample in of)) for count, of in samples.items()]


def shares(samples: Samples) -> list[tuple[float, float]]:
    """Nodes, and % of a core, of each of them and sample by sample."""
    return [(count, share) for count, of in samples.items() for sample in of for share in sample.cpu_shares]


def mean_shares(samples: Samples) -> list[tuple[float, float]]:
    """The same by the minute, a node."""
    return [(count, fmean(share for sample in of for share in sample.cpu_shares)) for count, of in samples.items()]


def run_cluster(options: Options) -> list[Row]:
    """Speed and CPU a node while the cluster grows."""
    growth = Growth(2, 1.5, 0.5, 0.1, 1) if options.quick else PUBLISHED
    return cluster_rows(growth, grown("cluster", growth, options), options)


def grown(name: str, growth: Growth, options: Options) -> Samples:
    """What a cluster did while it grew, with pictures of it."""
    with tempfile.TemporaryDirectory(prefix="bench-policies-") as home:
        samples = grow(growth, Path(home))
    if options.plots:
        for file, text in growth_plots(name, samples).items():
            (options.plots / file).write_text(text)
    return samples


def cluster_rows(growth: Growth, samples: Samples, options: Options) -> list[Row]:
    """What the paper claims of it."""
    text = f"1 to {growth.nodes} nodes, a call every {growth.latency_s:g} s"
    return [speed_row(text, growth, samples, options), *cpu_rows(text, samples, options)]


def speed_row(text: str, growth: Growth, samples: Samples, options: Options) -> Row:
    """Both of the paper's speeds: each page has the same number of links."""
    line = line_through(speeds(samples))
    new = median(sample.seen / max(1, sample.pages) for of in samples.values() for sample in of)
    return Row(
        "P4",
        f"speed, {text}",
        "grows linearly with the nodes",
        f"R² ≥ {R2_MIN:g} of a line through samples of {growth.sample_s:g} s",
        f"R² {line.r2:.4f}, through whole minutes {line_through(minutes(samples)).r2:.4f}; a node adds "
        f"{line.slope:.3f} URLs/s processed, {line.slope * LINKS:.1f} generated, {line.slope * new:.1f} of them new",
        options.judged(line.r2 >= R2_MIN),
        0,
        f"samples lie off the line by {line.off * growth.sample_s:.1f} pages (standard deviation); pages are whole",
        value=line.r2,
        unit="R²",
        samples=len(speeds(samples)),
    )


def cpu_rows(text: str, samples: Samples, options: Options) -> list[Row]:
    """Of all, and of the clusters that are large enough for every copy of a record."""
    every, most = line_through(shares(samples)), max(samples)
    growth, noise = every.slope * (most - 1), NOISE * every.off
    means = ", ".join(f"{mean:.2f}" for _, mean in mean_shares(samples))
    why = (
        f"up to {REPLICAS + 1} nodes each brings a backup more for a record; from there on a page's {LINKS} links "
        "go to more owners, each a request and its copies"
    )
    rows = [
        Row(
            "P4",
            f"CPU a node, {text}",
            "flat",
            "growth within the noise of single samples (two standard deviations)",
            f"{means} % of a core; the line grows by {growth:.2f}, noise {noise:.2f}",
            options.judged(growth <= noise),
            0,
            "" if growth <= noise else why,
            value=growth,
            unit="% of a core",
            samples=len(shares(samples)),
        )
    ]
    large = {count: of for count, of in samples.items() if count > REPLICAS}
    if len(large) > 1:
        line = line_through(shares(large))
        growth = line.slope * (most - min(large))
        measured = f"the line grows by {growth:.2f} % of a core, noise {NOISE * line.off:.2f}"
        what = f"CPU a node, from {min(large)} nodes on: all {REPLICAS} backups"
        points = len(shares(large))
        rows.append(Row("P4", what, "flat", "", measured, None, 0, value=growth, unit="% of a core", samples=points))
    return rows


def run_without_sleep(options: Options) -> list[Row]:
    """As fast as they go, on one machine."""
    growth = Growth(2, 1.0, 1.0, 0.0, 4) if options.quick else WITHOUT_SLEEP
    samples = grown("without-sleep", growth, options)
    return [flat_out_row(count, of) for count, of in samples.items()]


def flat_out_row(nodes: int, samples: Sequence[Sample]) -> Row:
    """For information: nodes that share a machine cannot grow linearly."""
    cpu_ms = median(1000 * sum(sample.cpu_s) / max(1, sample.pages) for sample in samples)
    speeds = [sample.pages_per_s for sample in samples]
    return Row(
        "P4",
        f"without the sleep, {nodes} {'node' if nodes == 1 else 'nodes'}",
        "",
        "",
        f"{median(speeds):.0f} URLs/s processed ({min(speeds):.0f} to {max(speeds):.0f}), "
        f"{median(speeds) * LINKS:,.0f} generated; {cpu_ms:.1f} ms of the nodes' CPU a page",
        None,
        0,
        "the nodes and the site share this machine's cores; CPU a page is what compares",
        value=median(speeds),
        unit="URLs/s",
        samples=len(speeds),
    )


def growth_plots(name: str, samples: Samples) -> dict[str, str]:
    """Means of the samples."""
    speed = minutes(samples)
    lines = {"measured": speed, "as many times one node": [(count, count * speed[0][1]) for count, _ in speed]}
    return {
        f"p4-{name}-speed.svg": line_plot("All nodes together", "nodes", "URLs/s processed", lines),
        f"p4-{name}-cpu.svg": line_plot("A node", "nodes", "CPU, % of a core", {"mean": mean_shares(samples)}),
    }


EXPERIMENTS = (
    Experiment("p4-one-node", "P4", "a real node with 1 to 64 requests at once, to saturation", run_one_node),
    Experiment("p4-cluster", "P4", "real nodes with a call every 5 s, one more a minute, 8 minutes", run_cluster),
    Experiment("p4-without-sleep", "P4", "the same as fast as one machine goes", run_without_sleep),
)
