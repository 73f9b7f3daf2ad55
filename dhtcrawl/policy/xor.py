"""`xor`: the owner fetches (Tao & Xiang 2015). The default: nothing crosses the network."""

from __future__ import annotations

from collections.abc import Sequence

from dhtcrawl.keyspace import distance, placement
from dhtcrawl.policy.seam import Candidate, Policy, Task, failed_last


class Xor(Policy):
    """By distance to the key, the owner first."""

    name = "xor"

    def rank(self, task: Task, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        place = placement(task.key)
        nodes = sorted((candidate.node for candidate in candidates), key=lambda node: distance(place, node))
        return failed_last(nodes, task.failed)
