"""`bp_pso` at the owner: it gives each node its share of the plan.

A finite job has quotas: the next task goes to the node that has had the least of
its share, so that after n tasks no node is more than one task off. An endless crawl
has weights, by rendezvous, so that few tasks move when the plan changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dhtcrawl.policy.backlog import PlannedPolicy
from dhtcrawl.policy.bp_pso.planner import MODES, Split
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import Candidate, PolicyTask, Settings, failed_last, number_in


class BpPso(PlannedPolicy):
    """The plan's `shares` are positive numbers by node; with `finite` they are quotas."""

    name = "bp-pso"
    about = "each node fetches its share of a plan that lets all end at the same time"
    options: ClassVar = {"mode": MODES}
    needs: ClassVar = ("numpy", "scipy", "psutil")
    planner = Split

    @classmethod
    def needs_with(cls, options: Mapping[str, str]) -> Sequence[str]:
        """Rates need no net, and the paper's net is trained without scipy."""
        spared = {"rates": ("scipy", "psutil"), "paper": ("scipy",)}.get(options.get("mode", MODES[0]), ())
        return [module for module in cls.needs if module not in spared]

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._given: dict[bytes, int] = {}  # under this plan, by node

    def ranked(self, task: PolicyTask, candidates: Sequence[Candidate]) -> list[bytes]:
        nodes = [candidate.node for candidate in candidates]
        shares = {node: number_in(self._table, "shares", node, 1.0) for node in nodes}
        ranked = rendezvous(task.key, nodes, shares)
        if self._table.get("finite") is not True:
            return failed_last(ranked, task.failed)
        # Divisors 0.5, 1.5, 2.5 … (Sainte-Laguë): rounding favours no node. Rendezvous decides between equals.
        ranked.sort(key=lambda node: (self._given.get(node, 0) + 0.5) / shares[node])
        ranked = failed_last(ranked, task.failed)
        if ranked:
            self._given[ranked[0]] = self._given.get(ranked[0], 0) + 1
        return ranked

    def adopt(self, table: Mapping[str, Any]) -> None:
        super().adopt(table)
        self._given.clear()
