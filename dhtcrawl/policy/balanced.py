"""`balanced`: each node gets tasks by its capacity, whatever its place among the keys.

By XOR distance alone the fullest of 50 nodes has three times its share, since
ids do not lie evenly. Weighted rendezvous is as even as a fair lottery, and a
leave moves the leaver's tasks only (`scripts/bench_policies.py --experiment
p4-shares`). Beyond `NEAREST` nodes it is held among those nearest to the key,
so that it costs a bounded number of hashes in any swarm; there a leave moves
about twice as many, since it lets another node into the nearest of many keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dhtcrawl.keyspace import distance, placement
from dhtcrawl.policy.backlog import PlannedPolicy
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import Candidate, Planner, PolicyTask, failed_last, number_in

# Up to so many, hashing all of them is cheaper than to look for the nearest.
NEAREST = 256
# One fast node among slow ones shall not get everything, should its report be wrong.
WEIGHT_MIN, WEIGHT_MAX = 0.05, 20.0
# A plan that is not better by this is not worth the tasks that it moves.
BETTER = 1.1


class Rates(Planner):
    """Weights from what the nodes did: pages a second while they had work, in relation to the median."""

    wants = ("rate",)

    def plan(self, nodes: Mapping[bytes, Mapping[str, Any]], before: Mapping[str, Any], now: float) -> dict[str, Any]:
        rates = {
            node: number_in({"rate": {node: report.get("rate")}}, "rate", node, 0.0) for node, report in nodes.items()
        }
        known = sorted(rate for rate in rates.values() if rate)
        if not known:
            return {}
        median = known[len(known) // 2]
        weights = {
            node: min(max(rate / median, WEIGHT_MIN), WEIGHT_MAX) if rate else 1.0 for node, rate in rates.items()
        }
        return dict(before) if _serves(before, weights) else {"weights": weights}


def _serves(before: Mapping[str, Any], weights: Mapping[bytes, float]) -> bool:
    """Whether with the last weights, of the same nodes, the last one would end not much later than with these."""
    last = {node: number_in(before, "weights", node, 0.0) for node in weights}
    rows = before.get("weights")
    if not isinstance(rows, Mapping) or rows.keys() != weights.keys() or not all(last.values()):
        return False
    latest = max(last[node] / weight for node, weight in weights.items())
    return latest / sum(last.values()) <= BETTER / sum(weights.values())


class Balanced(PlannedPolicy):
    """Weighted rendezvous among the closest."""

    name = "balanced"
    planner = Rates

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        nodes = [candidate.node for candidate in candidates]
        far: list[bytes] = []
        if len(nodes) > NEAREST:
            place = placement(task.key)
            nodes.sort(key=lambda node: distance(place, node))
            nodes, far = nodes[:NEAREST], nodes[NEAREST:]
        weights = {node: self.weight(node) for node in nodes}
        return failed_last([*rendezvous(task.key, nodes, weights), *far], task.failed)

    def weight(self, node: bytes) -> float:
        """What share a node has, in relation to the others; 1 where the plan says nothing."""
        return number_in(self._table, "weights", node, 1.0)
