"""Scores whether this node itself is starved or cut off, so that it does not take others for dead; without I/O.

The score is Lifeguard's local health (Dadgar, Phillips & Currey 2018, section
IV.A): it rises when we run late, when others suspect us, and when no node
answers; it falls with every answer. Timeouts are multiplied by `factor`.

Who has been cut off, and has just heard of it, sees few for a moment. Others that were cut off with it go on saying
that those on the other side are dead: they see as many as it does, so they would be believed; and it sees many soon
after, so it would be when it passes that on. Therefore it measures words by what the one sees that knew better.
"""

from __future__ import annotations

SCORE_MAX = 3  # timeouts grow fourfold at most: a dead node is still found, within about half a minute
# A timer that fires later than this: longer than the loop is busy with a page (as `rtt.MIN_S`).
LATE_S = 0.25


class LocalHealth:
    """0 is well."""

    def __init__(self) -> None:
        self.score = 0
        self._seen = 0  # members that answer the one by which we know that we were cut off
        self._seen_until = float("-inf")

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

    def was_cut_off(self, sees: int, now: float, for_s: float) -> None:
        """We were, and know it from one that `sees` so many others; to be remembered for some seconds."""
        self._seen, self._seen_until = max(sees, self.seen_elsewhere(now)), now + for_s

    def seen_elsewhere(self, now: float) -> int:
        """How many others answer the one by which we know that we were cut off; 0 where we were not, or long ago."""
        return self._seen if now < self._seen_until else 0

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
