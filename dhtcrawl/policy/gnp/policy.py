"""`gnp`: of the three nodes nearest to a site, the one with the least to do.

The coordinator makes the coordinates: of the nodes from the round-trip times
that they know of each other, by Vivaldi, which needs no landmarks; of a site
from the times that some nodes took for a request to it and its response.
Always the nearest (the paper's Top1) would load one node with everything near
it: Top3 was better in the paper by a random choice, and by the load it is
better still.

What these three have no room for waits for them, as in the paper: a node far away
would take several times as long for it, and keep its places from what is near to
it. One that is idle is better than waiting all the same: where tasks wait at each
of the three for longer than they would take to come from it, it is ranked, too.

Where hosts have a delay, a site is asked for one page at a time, however many
nodes fetch from it, and each change of the node costs the site a turn. So the
nearest node has all of a site, until it has a batch more than the others; a few
tasks at a time, so that what was given before a better plan came is soon done.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from math import dist
from typing import Any, ClassVar

from dhtcrawl.policy.backlog import PlannedPolicy
from dhtcrawl.policy.gnp.planner import SPACES, TOP, Atlas, Place, places_in
from dhtcrawl.policy.gnp.rtt import ESTIMATORS
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import (
    BATCH,
    AssignmentTerms,
    Candidate,
    Outcome,
    PolicyTask,
    Settings,
    TaskResult,
    failed_last,
)

CHOICES = ("least-loaded", "top3", "top1")
TRIPS = 3  # round trips of a page: the connection's, the request's, and one more for all of its body
FORGIVEN_S = 600.0  # a node that had no time for a site's tasks may be the nearest again
TOLD_S = 2.0  # what a first page takes, and its report
PASSED_MAX = 100_000


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
        self._polite = settings.delay_s > 0
        self._load_step = BATCH if self._polite else 1
        self._asked_at: dict[bytes, float] = {}  # nodes that have tasks, and have brought nothing → since when
        self._passed: OrderedDict[tuple[bytes, str], float] = OrderedDict()  # (node, host) → when it had no time

    def ranked(self, task: PolicyTask, candidates: Sequence[Candidate]) -> list[bytes]:
        place = self._sites.get(task.host)
        lots = rendezvous(task.key, [candidate.node for candidate in candidates], {})
        if place is None:
            return failed_last(lots, task.failed)
        lent = {candidate.node: candidate.lent for candidate in candidates}
        # Whose place is not known comes behind those whose is.
        known = [node for node in lots if node in self._nodes]
        known.sort(key=lambda node: dist(self._nodes[node], place))
        known = failed_last(failed_last(known, self._passed_by(task.host, known)), task.failed)
        near = known[:TOP]
        if self._choice == "least-loaded":
            near.sort(key=lambda node: lent[node] // self._load_step)
        elif self._choice == "top3":
            near.sort(key=lots.index)
        if len(near) == TOP and not task.failed and not task.recalled:
            # The paper's choices are of one node; what it has no room for waits for it.
            one = self._polite or self._choice != CHOICES[0]
            return near[:1] if one else [*near, *self._sooner(known, place, candidates)]
        return failed_last([*near, *known[TOP:], *(node for node in lots if node not in self._nodes)], task.failed)

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        return AssignmentTerms(self._backlog.size(node, host)) if self._polite else super().terms(node, host)

    def heard(self, outcome: Outcome, now: float) -> None:
        super().heard(outcome, now)
        pair = outcome.node, outcome.host
        if outcome.result is TaskResult.PAGE:
            self._passed.pop(pair, None)
        elif outcome.result is TaskResult.RECALLED:
            self._passed[pair] = now
            self._passed.move_to_end(pair)
            if len(self._passed) > PASSED_MAX:
                self._passed.popitem(last=False)

    def adopt(self, table: Mapping[str, Any]) -> None:
        self._nodes, self._sites = places_in(table)

    def _sooner(self, known: Sequence[bytes], place: Place, candidates: Sequence[Candidate]) -> list[bytes]:
        """Of these nodes, the nearest first, those behind `TOP` from which a task comes sooner than from the first."""
        at_work = {each.node: each.at_work for each in candidates}
        waits_s = min(self._waits_s(node, at_work[node]) for node in known[:TOP])
        if not waits_s:
            return []
        soon_s = waits_s + TRIPS * dist(self._nodes[known[0]], place)
        return [
            node
            for node in known[TOP:]
            if self._waits_s(node, at_work[node]) + TRIPS * dist(self._nodes[node], place) < soon_s
        ]

    def _waits_s(self, node: bytes, at_work: int) -> float:
        """How long a task waits at a node; where it has brought nothing yet, how long it has had tasks."""
        waited_s = self._windows.waited_s(node)
        if waited_s or not at_work:
            self._asked_at.pop(node, None)
            return waited_s
        if len(self._asked_at) > PASSED_MAX:
            self._asked_at.clear()
        return max(0.0, self._now - self._asked_at.setdefault(node, self._now) - TOLD_S)

    def _passed_by(self, host: str, nodes: Sequence[bytes]) -> list[bytes]:
        """Those of these nodes that had no time for this site lately."""
        if not self._passed:
            return []
        return [node for node in nodes if self._now - self._passed.get((node, host), -FORGIVEN_S) < FORGIVEN_S]
