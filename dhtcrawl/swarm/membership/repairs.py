"""Which ranges of keys are to be compared with others after owners vanished, and when. Pure.

The records that an owner kept have one replica less. If it is gone, the next
node compares them with the others, at once. If it is there, but joining (it was
started again, or stood still for a while), it will have everything in a moment:
until then the owner of its keys asks those that kept them as well what they
know, and no node makes a further replica that would be dropped again.

An owner may also come and go before all is in line with it: a node that slept
tells of those who died meanwhile, and until they are found dead again they count.
What was written in that time went to them, and not to the nodes that they stood
before. So these ranges are compared, too.
"""

from __future__ import annotations

from typing import NamedTuple

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.swarm.replica_sets import Span, apart, kept_by, owned_bits, owned_by

# What is waited for costs nothing but that there is one copy less of what it kept meanwhile.
PATIENCE_S = 60.0


class Due(NamedTuple):
    """Ranges that lie apart, in order."""

    copies: list[Span]  # to be compared with all who share them now
    owned: list[Span]  # with those who shared them before


@loop_state
class Repairs:
    """Says what this node is to compare. Times are seconds on the caller's monotonic clock."""

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self._expected: dict[bytes, tuple[View, float]] = {}  # who joins again: in which view it kept what, until when
        self._passing: dict[bytes, None] = {}  # owners that were seen, and that nothing is in line with
        self._passed: dict[bytes, None] = {}  # of these, who was gone when `due` was asked last, and is since

    def saw(self, before: View, view: View) -> None:
        """The view is this one, for a moment at least, while everything is in line with `before`."""
        for node in sorted(view.owning - before.owning):
            self._passing[node] = None
            self._passed.pop(node, None)

    def due(self, before: View | None, view: View, own: bytes, now: float) -> Due:
        """What is to be compared by `view`, when everything was in line with `before`."""
        vanished = before.owning - view.owning if before is not None else frozenset[bytes]()
        views = {node: before for node in vanished if node not in view}
        views |= {node: kept_in for node, (kept_in, _) in self._expected.items() if self._given_up(node, view, now)}
        by_view: dict[View | None, list[bytes]] = {}
        for node in sorted(views):
            by_view.setdefault(views[node], []).append(node)
        spans = [span for each, nodes in by_view.items() if each for span in kept_by(each, nodes, self._replicas)]
        self._passed = {node: None for node in self._passing if node not in view.owning}
        if before is not None:
            # A keeper by `before` that went without a record had one of these before it. As that one is nearer to the
            # key, it would be a keeper among the owners of `before`, too, whoever else came or was away meanwhile.
            spans += kept_by(before, self._passed, self._replicas)
        owned: list[Span] = []
        if before is not None and owned_bits(before, own) != owned_bits(view, own):
            owned = owned_by(before, (node for node in vanished if node in view))
        return Due(apart(spans), owned)

    def done(self, before: View | None, view: View, now: float) -> None:
        """What was due by `view` has been compared."""
        if before is not None:
            for node in sorted(before.owning - view.owning):
                if node in view:
                    self._expected[node] = before, now + PATIENCE_S
        self._passing = {node: None for node in self._passing if node not in view.owning and node not in self._passed}
        over = [node for node in self._expected if node in view.owning or self._given_up(node, view, now)]
        for node in over:
            del self._expected[node]

    def wait_s(self, now: float) -> float:
        """When to look again, whatever happens."""
        return max(min((until for _, until in self._expected.values()), default=float("inf")) - now, 0.0)

    def forget(self) -> None:
        """Everything is compared with every neighbour, as by a node that joins."""
        self._expected.clear()
        self._passing.clear()
        self._passed.clear()

    def _given_up(self, node: bytes, view: View, now: float) -> bool:
        return node not in view.owning and (node not in view or self._expected[node][1] <= now)
