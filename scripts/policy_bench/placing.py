"""Where crawlers and sites lie, as tables like those of the product's planner, and how its policy ranks by them.

    gnp    as published: landmarks among the crawlers, everything else by its times to them (Ng & Zhang 2002)
    ours   the product's planner: crawlers by Vivaldi, sites by the times that some crawlers took

Both are ranked by the product's policy, so that they differ in nothing but the points.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from dhtcrawl.policy.gnp.planner import Atlas
from dhtcrawl.policy.gnp.policy import Gnp
from dhtcrawl.policy.gnp.space import embed, landmarks
from dhtcrawl.policy.seam import Candidate, PolicyTask, Settings
from policy_bench.latency import RTT_MIN_S, Array, World

RANDOM_PROBES, BEST_PROBES = 5, 4  # of a site, by crawlers: as many as there are landmarks


def crawler(number: int) -> bytes:
    """Its id."""
    return sha256(f"crawler {number}".encode()).digest()[:20]


def site(number: int) -> str:
    """Its host."""
    return f"site-{number}.test"


class Ranked:
    """The product's policy, for crawlers and sites by number."""

    def __init__(self, table: dict[str, Any], crawlers: int) -> None:
        self._policy = Gnp(Settings(own=crawler(0)))
        self._policy.adopt(table)
        self._ids = [crawler(number) for number in range(crawlers)]
        self._numbers = {node: number for number, node in enumerate(self._ids)}

    def rank(self, where: int, lent: Sequence[int]) -> list[int]:
        """The crawlers for a site, best first; `lent` is what each of them has to do."""
        key = sha256(site(where).encode()).digest()
        candidates = [Candidate(node, has) for node, has in zip(self._ids, lent, strict=True)]
        return [self._numbers[node] for node in self._policy.rank(PolicyTask(key, site(where)), candidates, 0.0)]

    def idle(self, where: int) -> list[int]:
        """The same while nobody has anything to do: the nearest first."""
        return self.rank(where, [0] * len(self._ids))


def spread(between: Array, count: int) -> list[int]:
    """Landmarks: of so many clusters of crawlers the middle of each (Ng & Zhang 2002, "N-cluster-medians")."""
    labels = fcluster(linkage(squareform(between, checks=False), "average"), count, "maxclust")
    clusters = [np.flatnonzero(labels == label) for label in range(1, labels.max() + 1)]
    return [int(each[between[np.ix_(each, each)].sum(axis=1).argmin()]) for each in clusters]


def gnp(world: World, count: int, dimensions: int, rng: np.random.Generator) -> tuple[dict[str, Any], list[int]]:
    """A table by so many landmarks, and who they are."""
    marks = spread(world.between, count)
    points = landmarks(world.between[np.ix_(marks, marks)], rng, dimensions)
    crawlers = embed_all(points, world.between[marks].T, rng)
    crawlers[marks] = points
    sites = embed_all(points, world.to[marks].T, rng)
    table = {
        "nodes": {crawler(number): point.tolist() for number, point in enumerate(crawlers)},
        "sites": {site(number): point.tolist() for number, point in enumerate(sites)},
    }
    return table, marks


def embed_all(points: Array, rtts: Array, rng: np.random.Generator) -> Array:
    """Points of all that were measured from the same landmarks: (l, d) and (n, l) → (n, d)."""
    # A landmark has no time to itself; its row means nothing and is replaced.
    return embed(np.broadcast_to(points, (len(rtts), *points.shape)), np.maximum(rtts, RTT_MIN_S), rng)


def ours(world: World, rng: np.random.Generator) -> tuple[dict[str, Any], list[list[int]]]:
    """The planner's table after two rounds, and who measured each site.

    In the first round crawlers by chance do, as long as nothing is known; in the second those that the first plan
    says are nearest, of those that have not.
    """
    crawlers, sites = world.to.shape
    probed = [rng.permutation(crawlers)[:RANDOM_PROBES].tolist() for _ in range(sites)]
    nearest = predicted(_plan(world, probed), world.to.shape).argsort(axis=0)
    for number, seen in enumerate(probed):
        seen += [int(each) for each in nearest[:, number] if each not in seen][:BEST_PROBES]
    return _plan(world, probed), probed


def _plan(world: World, probed: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What the product's planner makes of what the crawlers report: their times to all others, and to sites."""
    count = len(world.between)
    reports: dict[bytes, dict[str, Any]] = {
        crawler(one): {
            "rtts": {crawler(other): float(world.between[one, other]) for other in range(count) if other != one},
            "probes": {site(where): float(world.to[one, where]) for where, seen in enumerate(probed) if one in seen},
        }
        for one in range(count)
    }
    return Atlas().plan(reports, {}, 0.0)


def predicted(table: dict[str, Any], shape: tuple[int, int]) -> Array:
    """The times that a table says: crawlers × sites."""
    crawlers = np.array([table["nodes"][crawler(number)] for number in range(shape[0])])
    sites = np.array([table["sites"][site(number)] for number in range(shape[1])])
    return np.asarray(np.sqrt(((crawlers[:, None] - sites[None]) ** 2).sum(axis=2)))
