"""How fast a crawl goes, as a person reads it: over seconds, not over the moment between two lines."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

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


class Used(NamedTuple):
    """What a crawl has used so far; or what it may use, where 0 is no limit."""

    pages: float
    seconds: float
    size_bytes: float


def rough_end(queued: int, rate: float, used: Used, limits: Used) -> str:
    """How long it takes at this rate until what is queued is done, or a limit is reached; `rate` is in pages a second.

    "" where nothing can be said: links to come are not known.
    """
    if queued <= 0 or rate <= 0:
        return ""
    ends = [queued / rate]
    if limits.pages:
        ends.append((limits.pages - used.pages) / rate)
    if limits.seconds:
        ends.append(limits.seconds - used.seconds)
    if limits.size_bytes and used.size_bytes:
        ends.append((limits.size_bytes - used.size_bytes) / used.size_bytes * used.pages / rate)
    return f"roughly {span(min(ends))} left" if min(ends) > 0 else ""
