"""Particle swarm optimisation of the split: as the paper has it, and repaired.

    paper_pso      Zhang et al. 2019, section 3.3: 30 particles from ⌊N/M⌋, V ← 0.8 V + 2 r₁ (pbest − X) +
                   2 r₂ (gbest − X), X ← X + ⌈V⌉; penalties for a wrong sum and for negative numbers. The best is the
                   *least* fitness: as printed it is the greatest, of what is to be minimised.
    repaired_pso   w = 0.73, c₁ = c₂ = 1.496 (Clerc & Kennedy 2002: the paper's values are not stable); a velocity's
                   parts sum to 0, so particles stay where the sum is N; what became negative is 0, and the rest
                   rescaled; whole numbers only when a particle is judged

Both return M whole numbers that are not negative and sum up to N.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dhtcrawl.policy.bp_pso.split import Counts, Times, equal_split, largest_remainder

Array: TypeAlias = NDArray[np.float64]

PARTICLES = 30
ROUNDS = 300


def paper_pso(times: Times, total: int, nodes: int, rng: np.random.Generator, *, rounds: int = ROUNDS) -> Counts:
    """The paper's; where its best does not sum up to N, rescaled."""
    places = np.tile(equal_split(total, nodes).astype(float), (PARTICLES, 1))
    speeds = rng.uniform(0, 1, places.shape)

    def fitness(place: Array) -> float:
        whole = place.astype(np.int64)
        short = float(np.abs(place).sum() - place.sum())
        return float(np.var(times(np.maximum(whole, 0)))) + float(place.sum() - total) ** 2 + short**2

    best, best_fit, of_all = places.copy(), np.array([fitness(place) for place in places]), 0
    of_all = int(best_fit.argmin())
    for _ in range(rounds):
        r1, r2 = rng.uniform(0, 1, (2, *places.shape))
        speeds = 0.8 * speeds + 2 * r1 * (best - places) + 2 * r2 * (best[of_all] - places)
        places = places + np.ceil(speeds)
        for index, place in enumerate(places):
            if (fit := fitness(place)) < best_fit[index]:
                best[index], best_fit[index] = place, fit
        of_all = int(best_fit.argmin())
    found = np.maximum(best[of_all], 0)
    return largest_remainder(found if found.any() else np.ones(nodes), total)


def repaired_pso(times: Times, total: int, nodes: int, rng: np.random.Generator, *, rounds: int = ROUNDS) -> Counts:
    """The same idea with everything in bounds."""
    even = np.full(nodes, total / nodes)
    # One particle begins at the even split, and one in proportion to the speeds there: the obvious first tries.
    speeds_there = 1 / np.maximum(times(equal_split(total, nodes)), 1e-12)
    places = np.vstack([even, speeds_there, rng.dirichlet(np.ones(nodes), PARTICLES - 2)])
    places *= total / places.sum(axis=1, keepdims=True)
    speeds = np.zeros_like(places)

    def fitness(place: Array) -> float:
        return float(np.var(times(largest_remainder(place, total))))

    best, best_fit = places.copy(), np.array([fitness(place) for place in places])
    of_all = int(best_fit.argmin())
    for _ in range(rounds):
        r1, r2 = rng.uniform(0, 1, (2, *places.shape))
        speeds = 0.73 * speeds + 1.496 * r1 * (best - places) + 1.496 * r2 * (best[of_all] - places)
        speeds -= speeds.mean(axis=1, keepdims=True)
        places = np.maximum(places + speeds, 0)
        places *= total / places.sum(axis=1, keepdims=True)
        for index, place in enumerate(places):
            if (fit := fitness(place)) < best_fit[index]:
                best[index], best_fit[index] = place, fit
        of_all = int(best_fit.argmin())
    return largest_remainder(best[of_all], total)
