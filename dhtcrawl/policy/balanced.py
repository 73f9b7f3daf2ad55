"""`balanced`: owners fetch what they own, and give what is too much of it to nodes that own too little.

By XOR distance alone the fullest of 50 nodes has three times its share, since
ids do not lie evenly. What each node is to fetch is its weight; what it owns
follows from the ids (`dhtcrawl.policy.shares`). The key decides whether a task
stays with its owner, and weighted rendezvous which of the nodes that lack tasks
gets one that does not. So it is as even as a fair lottery, and of 50 nodes only
a third of all tasks move (`scripts/bench_policies.py --experiment p4-shares`).

Where the nodes that it ranks first have no room, a task goes to one that has
nothing from this owner, one task at a time: that is how a node that is idle, or
faster than the plan says, gets more. It gets more at a time while it brings them
at once (`Backlog`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dhtcrawl.keyspace import placement
from dhtcrawl.policy.backlog import Backlog, PlannedPolicy
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import (
    BATCH_MAX,
    AssignmentTerms,
    Candidate,
    Outcome,
    Planner,
    PolicyTask,
    Settings,
    failed_last,
    number_in,
)
from dhtcrawl.policy.shares import NEAREST, ShareBook
from dhtcrawl.policy.window import BUSY

# One fast node among slow ones shall not get everything, should its report be wrong.
WEIGHT_MIN, WEIGHT_MAX = 0.05, 20.0
# A plan that is not better by this is not worth the tasks that it moves.
BETTER = 1.1
# An owner starts so many times as many tasks of its own as it would assign to another: they need not be sent.
OWN_TIMES = 2
# A node that lacks nothing gets what it does in so many seconds besides, and at first one task.
BESIDES_S = 1.0
_END = 8  # octets at the end of a key: the host's key, where a crawl has one, is in front
_ALL = float(1 << 8 * _END)
_ANY_HOST = ""


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
    """The owner for its share; weighted rendezvous among those that lack tasks for the rest."""

    name = "balanced"
    about = "its owner fetches a task, but for what is more than the owner's share by how fast nodes are"
    planner = Rates
    candidates_max = NEAREST

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._shares = ShareBook()
        self._besides = Backlog(first=1, least=1, horizon_s=BESIDES_S)

    def ranked(self, task: PolicyTask, candidates: Sequence[Candidate]) -> list[bytes]:
        if not candidates:
            return []
        place = int.from_bytes(placement(task.key), "big")
        known = self._shares.near(place, [candidate.node for candidate in candidates])
        owner = known.closest(place)
        lot = int.from_bytes(task.key[-_END:], "big") / _ALL
        if known.keeps[owner] >= 1.0:
            first = [owner]
        elif lot < known.keeps[owner]:
            first = [owner, *_turned(list(known.lacks), lot)]
        else:
            # It waits for one of these, unless its owner has nothing to do.
            first = rendezvous(task.key, list(known.lacks), known.lacks)
        taken = set(first)
        # A task that a node could not fetch, or had no time for, may need any of them.
        any_of_them = bool(task.failed or task.recalled)
        besides = sorted(
            each.node
            for each in candidates
            if each.node not in taken and (any_of_them or each.lent < self._room(each.node, owner, first[0]))
        )
        return failed_last([*first, *_turned(besides, lot)], task.failed)

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        terms = super().terms(node, host)
        return replace(terms, batch=min(OWN_TIMES * terms.batch, BATCH_MAX)) if node == self.settings.own else terms

    def heard(self, outcome: Outcome, now: float) -> None:
        super().heard(outcome, now)
        self._besides.heard(outcome._replace(host=_ANY_HOST), now)

    def adopt(self, table: Mapping[str, Any]) -> None:
        super().adopt(table)
        self._shares.adopt(table)

    def _room(self, node: bytes, owner: bytes, first: bytes) -> int:
        """How many tasks a node may have that is not among the first for a task."""
        # More than one only where it does not wait as long as where it belongs.
        if node == owner or BUSY * self._windows.waited_s(node) > self._windows.waited_s(first):
            return 1
        return self._besides.size(node, _ANY_HOST)


def _turned(nodes: list[bytes], lot: float) -> list[bytes]:
    """The same, beginning with another for each task."""
    first = int(lot * len(nodes))
    return nodes[first:] + nodes[:first]
