"""Remembers which members do not answer this node, so that the next nodes get the links that are theirs (I7). No I/O.

    asked ──no answer──▶ again ──none for SILENT_S──▶ passed over for PASSED_S ──▶ again ──no answer──▶ passed over
                           └── an answer ─▶ forgotten ◀── an answer ─────────────┘

A node that is gone is a member no longer before that. So this is for one that others take for alive and that this
node does not reach, as when a firewall stands between the two: the next node takes the link into custody and gives
it to its owner.
"""

from __future__ import annotations

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.tasks.events import Failure, FailureKind

SILENT_S = 20.0  # longer than it takes until a node that is gone is declared dead
PASSED_S = 60.0
GAP_S = 120.0  # who was not asked for as long begins anew
SAID_AGAIN_S = 600.0
NODES_MAX = 4_096  # as many as there may be members; beyond, all are forgotten
_NO_ANSWER = frozenset(
    {FailureKind.CONNECT, FailureKind.VERSION, FailureKind.NODE, FailureKind.TIMEOUT, FailureKind.LOST}
)


@loop_state
class SilentNodes:
    """The members that do not answer; times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self._asked: dict[bytes, tuple[float, float]] = {}  # who did not answer, when first and last
        self._until: dict[bytes, float] = {}  # who is passed over, until when
        self._said_at: dict[bytes, float] = {}

    def failed(self, node: bytes, failure: Failure, now: float) -> float | None:
        """Note that a member was asked in vain; for how long it is silent if that is to be said: first, then seldom.

        One that refuses has answered; that this node was busy says nothing.
        """
        if failure.kind is FailureKind.REFUSED:
            self.answered(node)
        if failure.kind not in _NO_ANSWER:
            return None
        first, last = self._asked.get(node, (now, now))
        if now - last > GAP_S:
            first = now
        if node not in self._asked and len(self._asked) >= NODES_MAX:
            for noted in (self._asked, self._until, self._said_at):
                noted.clear()
        self._asked[node] = first, now
        if now - first < SILENT_S:
            return None
        self._until[node] = now + PASSED_S
        if now - self._said_at.get(node, -SAID_AGAIN_S) < SAID_AGAIN_S:
            return None
        self._said_at[node] = now
        return now - first

    def answered(self, node: bytes) -> None:
        """Forget a node that answers."""
        if self._asked.pop(node, None) is not None:
            self._until.pop(node, None)
            self._said_at.pop(node, None)

    def passed_over(self, now: float) -> frozenset[bytes]:
        """The nodes whose links go to the next ones."""
        if not self._until:
            return frozenset()  # the usual case
        self._until = {node: until for node, until in self._until.items() if until > now}
        return frozenset(self._until)
