"""`balanced`: each node gets an equal share, whatever its place among the keys, as long as it has room.

By XOR distance alone the fullest of 50 nodes has 3.5 times its share, since ids
do not lie evenly. Rendezvous hashing among the `NEAREST` to the key has 1.1 at
most up to that many nodes, and costs a bounded number of hashes in any swarm.
A node whose batch is full is passed over, so that one that is slow gets less.
"""

from __future__ import annotations

from collections.abc import Sequence

from dhtcrawl.keyspace import distance, placement
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import Candidate, Policy, Task, failed_last

NEAREST = 64


class Balanced(Policy):
    """Rendezvous among the closest."""

    name = "balanced"

    def rank(self, task: Task, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        nodes = [candidate.node for candidate in candidates]
        far: list[bytes] = []
        if len(nodes) > NEAREST:
            place = placement(task.key)
            nodes.sort(key=lambda node: distance(place, node))
            nodes, far = nodes[:NEAREST], nodes[NEAREST:]
        return failed_last([*rendezvous(task.key, nodes, {}), *far], task.failed)
