"""Places by landmarks (Liu et al. 2010, Ng & Zhang 2002): some nodes that lie well apart place all others.

Which nodes they are is chosen from what was measured: the two that are
farthest from each other, then the one that is farthest from all that are chosen,
of those whose times to all of them are known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dhtcrawl.policy.gnp.space import DIMENSIONS, Array, embed, landmarks

LANDMARKS = 9  # Liu et al. 2010, table 1
LANDMARKS_MIN = 4  # with fewer a place is a guess


def by_landmarks(
    pairs: Sequence[tuple[int, int]], rtts: Sequence[float], count: int, rng: np.random.Generator
) -> tuple[Array, set[int], list[int]] | None:
    """Points of `count` nodes, whose are known, and the landmarks; None where too few were measured from each other.

    `pairs` are indices of nodes, `rtts` their times in seconds; of both directions the shorter counts.
    """
    times = np.full((count, count), np.inf)
    for (one, other), seconds in zip(pairs, rtts, strict=True):
        times[one, other] = times[other, one] = min(seconds, times[one, other])
    marks = well_apart(times)
    if len(marks) < LANDMARKS_MIN:
        return None
    among = np.ix_(marks, marks)
    table = np.where(np.eye(len(marks), dtype=bool), 0.0, times[among])
    points = np.zeros((count, DIMENSIONS))
    points[marks] = landmarks(table, rng)
    placed = set(marks)
    for node in range(count):
        seen = [mark for mark in marks if np.isfinite(times[node, mark])]
        if node not in placed and len(seen) >= LANDMARKS_MIN:
            points[node] = embed(points[seen], times[node, seen], rng)
            placed.add(node)
    return points, placed, marks


def well_apart(times: Array) -> list[int]:
    """Indices of up to `LANDMARKS` nodes; `times` is square, infinite where nothing was measured."""
    known = np.where(np.isfinite(times), times, -1.0)
    np.fill_diagonal(known, -1.0)
    one, other = np.unravel_index(int(known.argmax()), known.shape)
    if known[one, other] <= 0:
        return []
    marks = [int(one), int(other)]
    while len(marks) < LANDMARKS:
        nearest = known[:, marks].min(axis=1)  # below 0 where one of them is unknown
        nearest[marks] = -1.0
        if nearest.max() <= 0:
            break
        marks.append(int(nearest.argmax()))
    return marks
