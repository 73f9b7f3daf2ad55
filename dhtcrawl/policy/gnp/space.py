"""Network coordinates: points in Euclidean space whose distances are round-trip times.

    landmarks   Global Network Positioning (Ng & Zhang 2002): a few nodes, each measured from each other, get the
                points whose distances have the least squared relative error
    embed       one more point, from its distances to some that are known
    vivaldi     no landmarks: each node moves a little with every sample (Dabek et al. 2004, figure 3), here over all
                samples that are known, again and again

Times are seconds, all positive; points are rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array: TypeAlias = NDArray[np.float64]

DIMENSIONS = 5  # Ng & Zhang 2002, section 6: 5 to 7 are enough
CC, CE = 0.25, 0.25  # Dabek et al. 2004, section 3.3
ROUNDS = 60
STARTS = 3
_TINY = 1e-9


def landmarks(rtts: Array, rng: np.random.Generator, dimensions: int = DIMENSIONS) -> Array:
    """Points for nodes that were all measured from each other: (l, l) symmetric → (l, d)."""
    count = len(rtts)
    above = np.triu_indices(count, 1)
    wanted = rtts[above]

    def loss(flat: Array) -> tuple[float, Array]:
        points = flat.reshape(count, dimensions)
        apart = points[above[0]] - points[above[1]]
        distances = np.sqrt((apart**2).sum(axis=1)) + _TINY
        off = distances / wanted - 1
        pull = (2 * off / wanted / distances)[:, None] * apart
        gradient = np.zeros_like(points)
        np.add.at(gradient, above[0], pull)
        np.subtract.at(gradient, above[1], pull)
        return float(off @ off), gradient.ravel()

    return _best(loss, [rng.normal(0, wanted.mean() / 2, count * dimensions) for _ in range(STARTS)]).reshape(count, -1)


def embed(known: Array, rtts: Array, rng: np.random.Generator) -> Array:
    """The point of something measured from known points: (n, d) and (n,) → (d,)."""

    def loss(point: Array) -> tuple[float, Array]:
        apart = point - known
        distances = np.sqrt((apart**2).sum(axis=1)) + _TINY
        off = distances / rtts - 1
        return float(off @ off), (2 * off / rtts / distances) @ apart

    nearest = known[int(rtts.argmin())]
    spread = float(rtts.mean()) / 2
    starts = [nearest + rng.normal(0, spread / 10, known.shape[1]), known.mean(axis=0)]
    return _best(loss, [*starts, known.mean(axis=0) + rng.normal(0, spread, known.shape[1])])


def vivaldi(
    pairs: Array, rtts: Array, count: int, rng: np.random.Generator, dimensions: int = DIMENSIONS, rounds: int = ROUNDS
) -> Array:
    """Points of `count` nodes from samples: pairs of indices (s, 2) with their times (s,) → (count, d).

    Each sample moves the first of its pair, so a measurement of both comes in twice.
    """
    # All at one place they would not know where to go: Dabek et al. choose a random direction, and so does this.
    points = rng.normal(0, 1e-3, (count, dimensions))
    errors = np.ones(count)
    for _ in range(rounds):
        for index in rng.permutation(len(rtts)):
            one, other = pairs[index]
            rtt = rtts[index]
            apart = points[one] - points[other]
            distance = float(np.sqrt(apart @ apart)) + _TINY
            trust = errors[one] / (errors[one] + errors[other] + _TINY)
            error = abs(distance - rtt) / rtt
            errors[one] = min(error * CE * trust + errors[one] * (1 - CE * trust), 1.0)
            points[one] += CC * trust * (rtt - distance) / distance * apart
    return points


def distances(points: Array, point: Array) -> Array:
    """From each of some points to one: (n, d) and (d,) → (n,)."""
    return np.asarray(np.sqrt(((points - point) ** 2).sum(axis=1)))


def _best(loss: object, starts: Sequence[Array]) -> Array:
    found = [minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 300}) for start in starts]
    return np.asarray(min(found, key=lambda each: float(each.fun)).x)
