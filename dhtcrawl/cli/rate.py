"""How fast a crawl goes, as a person reads it: over seconds, not over the moment between two lines."""

from __future__ import annotations

from collections import deque
from typing import Final

from dhtcrawl.standing import span

RATE_OVER_S: Final = 10.0


class Rate:
    """How fast a count grows, over the last `RATE_OVER_S`; from the start while less has passed."""

    def __init__(self, now: float, count: int) -> None:
        self._seen = deque([(now, count)])

    def after(self, now: float, count: int) -> float:
        """Note the count at `now`, in seconds of the same clock; return what is added to it a second.

        Where the last count is older than `RATE_OVER_S`, the rate since then. A count that falls has the rate 0.
        """
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - RATE_OVER_S:
            self._seen.popleft()
        before_s, before = self._seen[0]
        return max(0, count - before) / (now - before_s) if now > before_s else 0.0


def a_second(rate: float) -> str:
    """`0.5/s`, `12/s`."""
    return f"{rate:.1f}/s" if 0 < rate < 9.95 else f"{rate:.0f}/s"


def rough_end(queued: int, rate: float) -> str:
    """How long what is queued takes at this rate, or "" where nothing can be said: links to come are not known."""
    if queued <= 0 or rate <= 0:
        return ""
    return f"roughly {span(queued / rate)} left"
