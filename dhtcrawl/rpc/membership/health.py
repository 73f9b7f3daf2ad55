"""Scores whether this node itself is starved or cut off, so that it does not take others for dead; without I/O.

The score is Lifeguard's local health (Dadgar, Phillips & Currey 2018, section
IV.A): it rises when we run late, when others suspect us, and when no node
answers; it falls with every answer. Timeouts are multiplied by `factor`.
"""

from __future__ import annotations

SCORE_MAX = 3  # timeouts grow fourfold at most: a dead node is still found, within about half a minute
# A timer that fires later than this: longer than the loop is busy with a page (as `rtt.MIN_S`).
LATE_S = 0.25


class LocalHealth:
    """0 is well."""

    def __init__(self) -> None:
        self.score = 0

    @property
    def factor(self) -> int:
        return 1 + self.score

    def timer_fired(self, late_s: float) -> bool:
        """A timer fired that much later than planned; True when that counts as late."""
        if late_s <= LATE_S:
            return False
        self._add(1 + int(late_s))
        return True

    def was_suspected(self) -> None:
        self._add(1)

    def was_alone(self) -> None:
        """Neither the node that we asked nor those we asked for help have answered."""
        self._add(1)

    def was_answered(self) -> None:
        self._add(-1)

    def _add(self, points: int) -> None:
        self.score = min(max(self.score + points, 0), SCORE_MAX)


class PauseDetector:
    """Tells that this node did not run for longer than the others wait for it (SIGSTOP, suspend)."""

    def __init__(self, suspicion_s: float) -> None:
        self._suspicion_s = suspicion_s
        self._ran_at: float | None = None

    def was_paused(self, now_boottime: float) -> bool:
        """Whether it was, since the last call. The clock also counts while the machine sleeps (CLOCK_BOOTTIME)."""
        before, self._ran_at = self._ran_at, now_boottime
        return before is not None and now_boottime - before > self._suspicion_s
