"""`gnp`: of the three nodes nearest to a site, the one with the least to do.

The coordinator makes the coordinates: of the nodes from the round-trip times
that they know of each other, by Vivaldi, which needs no landmarks; of a site
from the times that some nodes took for a request to it and its response.
Always the nearest (the paper's Top1) would load one node with everything near
it: Top3 was better in the paper by a random choice, and by the load it is
better still.

Where hosts have a delay, a site is asked for one page at a time, however many
nodes fetch from it, and each change of the node costs the site a turn. So loads
are compared by the batch there: the nearest node has all of a site until it has a
batch more than the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import dist
from typing import Any, ClassVar

from dhtcrawl.policy.backlog import PlannedPolicy
from dhtcrawl.policy.gnp.planner import SPACES, TOP, Atlas, Place, places_in
from dhtcrawl.policy.gnp.rtt import ESTIMATORS
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import BATCH, AssignmentTerms, Candidate, PolicyTask, Settings, failed_last

CHOICES = ("least-loaded", "top3", "top1")


class Gnp(PlannedPolicy):
    """Ranks by predicted time, then by load; a site without a place in the plan goes to any node, by rendezvous."""

    name = "gnp"
    about = "of the three nodes nearest to a site, the one with the least to do fetches"
    needs: ClassVar = ("numpy",)
    options: ClassVar = {"choice": CHOICES, "space": SPACES, "rtt": tuple(ESTIMATORS)}
    planner = Atlas

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._choice = settings.options.get("choice", CHOICES[0])
        self._nodes: dict[bytes, Place] = {}
        self._sites: dict[str, Place] = {}
        self._load_step = BATCH if settings.delay_s > 0 else 1

    def ranked(self, task: PolicyTask, candidates: Sequence[Candidate]) -> list[bytes]:
        place = self._sites.get(task.host)
        lots = rendezvous(task.key, [candidate.node for candidate in candidates], {})
        if place is None:
            return failed_last(lots, task.failed)
        lent = {candidate.node: candidate.lent for candidate in candidates}
        # Whose place is not known comes behind those whose is.
        known = [node for node in lots if node in self._nodes]
        known.sort(key=lambda node: dist(self._nodes[node], place))
        known = failed_last(known, task.failed)
        near = known[:TOP]
        if self._choice == "least-loaded":
            near.sort(key=lambda node: lent[node] // self._load_step)
        elif self._choice == "top3":
            near.sort(key=lots.index)
        return failed_last([*near, *known[TOP:], *(node for node in lots if node not in self._nodes)], task.failed)

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        return AssignmentTerms() if self.settings.delay_s > 0 else super().terms(node, host)

    def adopt(self, table: Mapping[str, Any]) -> None:
        self._nodes, self._sites = places_in(table)
