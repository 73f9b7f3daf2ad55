"""A reference family of clusters: what nodes are made of, and how long they truly take for n pages. Pure.

The ranges are those in which Zhang et al. 2019 vary one resource at a time
(their table of nodes is not printed). How long a node truly takes is ours:

    a page       costs cycles, bytes over the network, and bytes to the disk. The slowest of the three counts in full,
                 of the others 0.3: they overlap, but not perfectly
    cores        share half of the cycles; the other half has to be done one after the other
    memory       what is kept of each page makes all of them slower, the more the less memory there is: so the time
                 rises in n, and a little faster than n
    a batch      as measured is off by a factor, log-normal with 3 %

Nothing here was fitted to a result. Resources are rows in the order of the
planner's `VECTOR`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dhtcrawl.policy.bp_pso.split import Array, Times, equal_split

CORES = (1.0, 2.0, 4.0)
MHZ = (2400.0, 2600.0)
MEMORY_BYTES = (0.5e9, 4e9)
NET_BYTES_PER_S = (2e6 / 8, 30e6 / 8)
DISK_BYTES_PER_S = (2e6, 18e6)
BATCH_PAGES_MAX = 150  # the paper's range for n

PAGE_CYCLES = 5e8  # a fifth of a second
PAGE_BYTES = 250e3  # a second on the slowest line, a fifteenth of that on the fastest
KEPT_BYTES = 1e6
ALONE = 0.5
BESIDE = 0.3
NOISE = 0.03


def draw(count: int, rng: np.random.Generator) -> Array:
    """Some nodes, shape (count, 5); what is not one of a few values is as often in each octave."""

    def within(ends: tuple[float, float]) -> Array:
        return np.asarray(np.exp(rng.uniform(math.log(ends[0]), math.log(ends[1]), count)))

    columns = (
        rng.choice(CORES, count),
        rng.choice(MHZ, count),
        within(MEMORY_BYTES),
        within(NET_BYTES_PER_S),
        within(DISK_BYTES_PER_S),
    )
    return np.column_stack(columns)


def true_seconds(nodes: Array, counts: Array) -> Array:
    """How long each takes for so many pages; shapes (m, 5) and (m,) or (k, 1) → (m,) or (k, m)."""
    cores, mhz, memory, net, disk = nodes.T
    cpu = PAGE_CYCLES / (mhz * 1e6) * (ALONE + (1 - ALONE) / cores)
    parts = np.stack([cpu, PAGE_BYTES / net, PAGE_BYTES / disk])
    page = BESIDE * parts.sum(axis=0) + (1 - BESIDE) * parts.max(axis=0)
    return np.asarray(counts * page * (1 + counts * KEPT_BYTES / memory))


def times_of(nodes: Array) -> Times:
    """The same for one cluster, as the splits want it."""
    return lambda counts: true_seconds(nodes, counts.astype(float))


def optimum_s(nodes: Array, total: int) -> float:
    """The least time in which `total` tasks can be done, without the product's code.

    A node that has time T does its tasks 1, 2, … while f(k) ≤ T, f rising. So T
    is the `total`-th least of all f_i(k), whichever nodes they are of.
    """
    most = min(total, 16 * (total // len(nodes) + 1))
    table = true_seconds(nodes, np.arange(1.0, most + 1)[:, None])
    found = float(np.partition(table.ravel(), total - 1)[total - 1])
    assert most == total or found <= table[-1].min(), "a node may do more than the table has"
    return found


def as_uneven_as(ratio: float, count: int, total: int, rng: np.random.Generator, *, off: float = 0.01) -> Array:
    """The first cluster drawn whose best split of `total` takes that much of the equal split's time."""
    while True:
        nodes = draw(count, rng)
        equal_s = float(times_of(nodes)(equal_split(total, count)).max())
        if abs(optimum_s(nodes, total) / equal_s - ratio) <= off:
            return nodes


def measured(nodes: Array, counts: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Batches as a node measures them: samples (s, 6) and seconds (s,), a batch for each row."""
    seconds = true_seconds(nodes, counts) * np.exp(rng.normal(0, NOISE, len(nodes)))
    return np.column_stack([nodes, counts]), seconds


def sizes(count: int, rng: np.random.Generator) -> Array:
    """How many pages some batches have."""
    return rng.integers(1, BATCH_PAGES_MAX, count, endpoint=True).astype(float)


def history(count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Batches, each of another node."""
    return measured(draw(count, rng), sizes(count, rng), rng)


def own_history(nodes: Array, each: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """As many batches of each of these nodes, one node after the other."""
    rows = np.repeat(nodes, each, axis=0)
    return measured(rows, sizes(len(rows), rng), rng)


def timed_history(nodes: Array, rng: np.random.Generator, batches_s: Sequence[float]) -> tuple[Array, Array]:
    """A batch of each as it is when a clock ends it: as many pages as fill one of `batches_s`, in turns."""
    batch_s = np.resize(batches_s, len(nodes))
    noise = np.exp(rng.normal(0, NOISE, len(nodes)))
    counts = np.ones(len(nodes))
    while (short := true_seconds(nodes, counts) * noise < batch_s).any():
        counts += short
    return np.column_stack([nodes, counts]), true_seconds(nodes, counts) * noise
