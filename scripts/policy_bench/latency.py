"""Round-trip times from crawlers to each other and to sites: measured ones out of a file, or drawn ones.

A file is an .npz with one of

    rtt_10us, n   the upper triangle of n × n, without the diagonal, in units of 10 µs
    rtt_ms        samples × n × n, in ms; of each pair the median over samples, and the mean of both directions
    rt_ms         clients × services, in ms, of HTTP responses; the ways between clients are not in it, and the
                  shortest one over a service stands for them

In the first two the crawlers and the sites are different nodes of the same n.

Without a file each seed draws its own 490 nodes: in `CLUSTERS` clusters on a plane as wide as 200 ms and as high as
100 ms, with an access delay at each end of a pair. `DETOURS` of the pairs take a longer way than that, so that some
percent of all triangles are no triangles. All times are in seconds here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dhtcrawl.errors import ConfigError
from policy_bench.report import Options

Array = NDArray[np.float64]

NODES = 490
CLUSTERS = 8
PLANE_S = (0.2, 0.1)
CLUSTER_S = 0.008  # standard deviation of a cluster, each way
ACCESS_S = 0.004  # mean, exponential
DETOURS, DETOUR = 0.03, (1.5, 3.0)  # a share of the pairs, and how much longer their way is

RTT_MIN_S = 0.0001
# A file of whole 10 ms says 0 for what is below 5.
RESOLUTION_SHARE = 0.5

CRAWLERS, SITES = 30, 203  # Liu et al. 2010
FORMS = "rtt_10us with n, rtt_ms (samples × n × n) or rt_ms (clients × services)"


class World(NamedTuple):
    """What an experiment takes place in."""

    between: Array  # crawlers × crawlers, symmetric
    to: Array  # crawlers × sites


@dataclass(frozen=True, slots=True)
class Latencies:
    """All that is known; worlds are drawn from it."""

    between: Array
    to: Array | None = None  # None: each node may be a site

    def world(self, rng: np.random.Generator, crawlers: int = CRAWLERS, sites: int = SITES) -> World:
        """Some crawlers and some sites; fewer sites where there are not so many."""
        ids = rng.permutation(len(self.between))
        chosen = ids[:crawlers]
        if self.to is None:
            to = self.between[np.ix_(chosen, ids[crawlers : crawlers + sites])]
        else:
            to = self.to[np.ix_(chosen, rng.permutation(self.to.shape[1])[:sites])]
        return World(self.between[np.ix_(chosen, chosen)], to)


class Job(NamedTuple):
    """One seed of an experiment, for a process of its own."""

    seed: int
    matrix: Path | None
    quick: bool

    def world(self) -> World:
        """The same for all experiments with this seed."""
        rng = np.random.default_rng(self.seed)
        latencies = drawn(rng) if self.matrix is None else read(self.matrix)
        return latencies.world(rng, *((12, 20) if self.quick else (CRAWLERS, SITES)))


def jobs(options: Options) -> list[Job]:
    """One for each of the usual 8 seeds; ends the program where the file cannot be used."""
    try:
        if options.matrix is not None:
            read(options.matrix)
    except ConfigError as error:
        raise SystemExit(f"bench_policies: {error}") from None
    return [Job(seed, options.matrix, options.quick) for seed in options.seeds_or(8)]


def drawn(rng: np.random.Generator, count: int = NODES) -> Latencies:
    """See the top of the module."""
    centres = rng.uniform((0, 0), PLANE_S, (CLUSTERS, 2))
    points = centres[rng.integers(CLUSTERS, size=count)] + rng.normal(0, CLUSTER_S, (count, 2))
    access = rng.exponential(ACCESS_S, count)
    straight = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2)) + access[:, None] + access[None]
    longer = np.where(rng.random((count, count)) < DETOURS, rng.uniform(*DETOUR, (count, count)), 1.0)
    above = np.triu(straight * longer, 1)
    return Latencies(_clean(above + above.T, RTT_MIN_S))


@lru_cache(maxsize=1)
def read(path: Path) -> Latencies:
    """What a file says.

    Raises:
        ConfigError: it cannot be read, or is none of those that we know.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return _latencies({name: np.asarray(file[name]) for name in file.files})
    except (OSError, EOFError, ValueError, BadZipFile, AttributeError) as error:
        raise ConfigError(
            f"--latency-matrix {path}: {error or type(error).__name__}; use an .npz with {FORMS}"
        ) from None


def _latencies(found: Mapping[str, NDArray[Any]]) -> Latencies:
    if "rtt_10us" in found and "n" in found:
        return Latencies(_from_triangle(found["rtt_10us"].astype(float) * 1e-5, int(found["n"])))
    if "rtt_ms" in found:
        return Latencies(_from_samples(found["rtt_ms"].astype(float) / 1000))
    if "rt_ms" in found:
        return _from_responses(found["rt_ms"].astype(float) / 1000)
    raise ValueError(f"it has {', '.join(found) or 'nothing'}")


def _from_triangle(flat: Array, count: int) -> Array:
    if flat.shape != (count * (count - 1) // 2,):
        raise ValueError(f"rtt_10us has the shape {flat.shape}, which is no triangle of n = {count}")
    rtts = np.zeros((count, count))
    rtts[np.triu_indices(count, 1)] = flat
    return _clean(rtts + rtts.T, RTT_MIN_S)


def _from_samples(samples: Array) -> Array:
    if samples.ndim != 3 or samples.shape[1] != samples.shape[2]:
        raise ValueError(f"rtt_ms has the shape {samples.shape}")
    middle = np.median(samples, axis=0)
    return _clean((middle + middle.T) / 2, RESOLUTION_SHARE * float(samples[samples > 0].min(initial=1.0)))


def _from_responses(times: Array) -> Latencies:
    if times.ndim != 2:
        raise ValueError(f"rt_ms has the shape {times.shape}")
    times = np.maximum(times, RTT_MIN_S)
    between = np.array([(row + times).min(axis=1) for row in times])
    return Latencies(_clean(between, RTT_MIN_S), times)


def _clean(rtts: Array, least: float) -> Array:
    """No time is 0, but that of a node to itself."""
    if not np.isfinite(rtts).all():
        raise ValueError("some times are missing")
    rtts = np.maximum(rtts, least)
    np.fill_diagonal(rtts, 0.0)
    return rtts
