"""How many of N tasks each of M nodes gets, when f(i, n) says how long node i takes for n.

The paper minimises the variance of all finishing times (Zhang et al. 2019,
equation 6). What a user waits for is the latest of them; for rising f both have
the same answer, and it is exact: find the time by which all N can be done, then
give out what is left one by one, each to whom it takes least.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]
Times = Callable[[Counts], Array]  # tasks of each node → seconds of each, 0 for none; shape (m,) → (m,)

# Of the time sought, and no more than one task of all: what is left to give out one by one then is little.
_CLOSE, _CLOSEST = 1e-7, 1e-15


def equal_split(total: int, nodes: int) -> Counts:
    """Split a total as evenly as it goes."""
    counts = np.full(nodes, total // nodes, dtype=np.int64)
    counts[: total % nodes] += 1
    return counts


def exact_split(times: Times, total: int, nodes: int) -> Counts:
    """The split that ends first, by bisection on the time when it ends."""
    low, high = 0.0, float(times(equal_split(total, nodes)).max())
    close = max(min(_CLOSE, 1 / max(total, 1)), _CLOSEST)
    while high - low > close * high:
        middle = (low + high) / 2
        if int(_within(times, middle, total, nodes).sum()) >= total:
            high = middle
        else:
            low = middle
    counts = _within(times, low, total, nodes)
    return _give_out(times, counts, total)


def largest_remainder(shares: Array, total: int) -> Counts:
    """Whole numbers in proportion to `shares`, which are not negative and not all 0; they sum up to `total`."""
    exact = shares / shares.sum() * total
    counts: Counts = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - counts), kind="stable")
    counts[order[: total - int(counts.sum())]] += 1
    return counts


def _within(times: Times, limit_s: float, total: int, nodes: int) -> Counts:
    """The most tasks that each node does within a time."""
    low, high = np.zeros(nodes, dtype=np.int64), np.full(nodes, total, dtype=np.int64)
    while (low < high).any():
        middle = (low + high + 1) // 2
        done = times(middle) <= limit_s
        low = np.where(done, middle, low)
        high = np.where(done, high, middle - 1)
    return low


def _give_out(times: Times, counts: Counts, total: int) -> Counts:
    """Give out what is still missing, one by one, to the node that then ends first."""
    missing = total - int(counts.sum())
    after = times(counts + 1)
    queue = [(float(seconds), node) for node, seconds in enumerate(after)]
    heapq.heapify(queue)
    for _ in range(missing):
        _, node = heapq.heappop(queue)
        counts[node] += 1
        one = counts.copy()
        one[node] += 1
        heapq.heappush(queue, (float(times(one)[node]), node))
    return counts
