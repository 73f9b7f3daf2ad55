"""`xor`: the owner fetches (Tao & Xiang 2015). The default: nothing crosses the network.

Where the owner cannot connect, the nodes that are next to the key are asked,
each once: it may be the owner's own way to the host that is cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from dhtcrawl.keyspace import distance, placement
from dhtcrawl.policy.seam import BATCH_MAX, AssignmentTerms, Candidate, Policy, PolicyTask, failed_last


class Xor(Policy):
    """By distance to the key, the owner first."""

    name = "xor"
    about = "its owner fetches a task; where it cannot connect, the next nodes to the key do"
    owner_first = True
    # A dead host costs each owner so many attempts. Of pairs that cannot connect, a fifth: a page in 400,000 is lost.
    candidates_max = 8
    # What a page does wrong it does to every node.
    failures_max = 1

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        place = placement(task.key)
        nodes = sorted((candidate.node for candidate in candidates), key=lambda node: distance(place, node))
        return failed_last(nodes, task.failed)

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        # What no other node brought is the owner's again, however much it is.
        return AssignmentTerms(batch=BATCH_MAX) if node == self.settings.own else AssignmentTerms()
