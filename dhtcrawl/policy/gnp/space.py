"""Network coordinates: points in Euclidean space whose distances are round-trip times.

    landmarks   Global Network Positioning (Ng & Zhang 2002): a few nodes, each measured from each other, get the
                points whose distances have the least squared relative error
    embed       more points, each from its distances to some that are known
    vivaldi     no landmarks: each node moves a little with every sample (Dabek et al. 2004, figure 3), here over all
                samples that are known, again and again

Times are seconds, all positive; points are rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

DIMENSIONS = 5  # Ng & Zhang 2002, section 6: 5 to 7 are enough
CC, CE = 0.25, 0.25  # Dabek et al. 2004, section 3.3
ROUNDS = 60
STARTS = 3
STEPS = 50  # what is still moving then moves by less than the times are worth
DAMPING_AT_FIRST, DAMPING = 1e-2, (1e-7, 1e7)
_TINY = 1e-9


def landmarks(rtts: Array, rng: np.random.Generator, dimensions: int = DIMENSIONS) -> Array:
    """Points for nodes that were all measured from each other: (l, l) symmetric → (l, d)."""
    count = len(rtts)
    one, other = np.triu_indices(count, 1)
    wanted = rtts[one, other]
    # Which two nodes a pair is of: 1 for the one, −1 for the other.
    sides = np.eye(count)[one] - np.eye(count)[other]

    def off(flat: Array) -> tuple[Array, Array]:
        points = flat.reshape(-1, count, dimensions)
        relative, slope = _relative(points[:, one] - points[:, other], wanted)
        return relative, (sides[:, :, None] * slope[:, :, None, :]).reshape(*relative.shape, -1)

    points, losses = _settled(rng.normal(0, wanted.mean() / 2, (STARTS, count * dimensions)), off)
    return np.asarray(points[losses.argmin()].reshape(count, dimensions))


def embed(known: Array, rtts: Array, rng: np.random.Generator) -> Array:
    """The points of things measured from known points, all at once: (…, n, d) and (…, n) → (…, d).

    A minimizer that is called for each of them takes milliseconds a site, and a plan has thousands.
    """

    def off(points: Array) -> tuple[Array, Array]:
        return _relative(points[..., None, :] - known, rtts)

    nearest = np.take_along_axis(known, rtts.argmin(axis=-1)[..., None, None], axis=-2)[..., 0, :]
    middle = known.mean(axis=-2)
    spread = rtts.mean(axis=-1)[..., None] / 2
    starts = [nearest + spread / 10 * rng.normal(size=middle.shape), middle]
    starts.append(middle + spread * rng.normal(size=middle.shape))
    points, losses = _settled(np.stack(starts), off)
    return np.asarray(np.take_along_axis(points, losses.argmin(axis=0)[None, ..., None], axis=0)[0])


def _relative(apart: Array, rtts: Array) -> tuple[Array, Array]:
    """How far distances are off, relatively, and how that changes with the first of each two points."""
    distances = np.sqrt((apart**2).sum(axis=-1)) + _TINY
    return distances / rtts - 1, apart / (distances * rtts)[..., None]


def _settled(points: Array, off: Callable[[Array], tuple[Array, Array]]) -> tuple[Array, Array]:
    """Where many points come to rest, each for itself, with their losses: Levenberg's and Marquardt's method (1963).

    points  (…, d)
    off     at points: residuals (…, n) and their slopes (…, n, d); the loss is the sum of the squared residuals
    """
    residuals, slope = off(points)
    losses = (residuals**2).sum(axis=-1)
    damping = np.full(losses.shape, DAMPING_AT_FIRST)
    for _ in range(STEPS):
        square = np.einsum("...ni,...nj->...ij", slope, slope)
        pull = np.einsum("...n,...ni->...i", residuals, slope)
        # Fewer residuals than dimensions leave directions in which nothing pulls: damped, they can be solved for.
        damped = damping * np.maximum(np.einsum("...ii->...", square), _TINY)
        step = np.linalg.solve(square + damped[..., None, None] * np.eye(points.shape[-1]), pull[..., None])[..., 0]
        residuals_then, slope_then = off(points - step)
        losses_then = (residuals_then**2).sum(axis=-1)
        better = losses_then < losses
        points = np.where(better[..., None], points - step, points)
        residuals = np.where(better[..., None], residuals_then, residuals)
        slope = np.where(better[..., None, None], slope_then, slope)
        losses = np.where(better, losses_then, losses)
        damping = np.clip(np.where(better, damping / 5, damping * 4), *DAMPING)
    return points, losses


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
