"""Tasks that this node had assigned to others when it ceased to own them. No I/O.

A newcomer asks the former owners which of its tasks others have (`activate`). Gossip may have told them of the newcomer
before its question comes, or their answer may be lost and the question come again. So they remember for as long as a
new owner would wait for the worker. Another owner may have come in between and taken the task back: then the worker
says that it does not have it.
"""

from __future__ import annotations

from collections.abc import Mapping

from dhtcrawl.loop_state import loop_state
from dhtcrawl.swarm.assignment.assigned import LENT_MAX
from dhtcrawl.swarm.assignment.inherited import HELD_S


@loop_state
class FormerLoans:
    """Which worker had which task; times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self._loans: dict[bytes, tuple[bytes, float]] = {}  # the oldest first

    def add(self, loans: Mapping[bytes, bytes], now: float) -> None:
        """Remember these tasks, by key, with the worker of each."""
        self._forget(now)
        for key, node in loans.items():
            self._loans.pop(key, None)
            self._loans[key] = node, now + HELD_S
        while len(self._loans) > LENT_MAX:
            del self._loans[next(iter(self._loans))]

    def holders(self, now: float) -> dict[bytes, bytes]:
        """The worker of each task that was added no longer than `HELD_S` ago."""
        self._forget(now)
        return {key: node for key, (node, _) in self._loans.items()}

    def _forget(self, now: float) -> None:
        while self._loans and next(iter(self._loans.values()))[1] <= now:
            del self._loans[next(iter(self._loans))]
