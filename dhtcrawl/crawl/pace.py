"""How fast this node fetches while it has something to fetch. Pure; what plans are made from.

Time in which there was nothing to do is left out. What was done in `BATCH_S` of
the rest makes a batch: pages, and the seconds that they took.
"""

from __future__ import annotations

from collections import deque

BATCH_S = 10.0
BATCHES_MAX = 50
RATE_BATCHES = 6  # the latest, of which the rate is


class Pace:
    """Of one crawl on one node. Times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self.batches: deque[tuple[int, float]] = deque(maxlen=BATCHES_MAX)
        self._at: float | None = None
        self._pages = 0
        self._batch_pages = 0
        self._batch_s = 0.0

    def look(self, pages: int, busy: bool, now: float) -> None:
        """So many pages have come in all; `busy`: there was something to do since the last look."""
        if self._at is not None and busy:
            self._batch_s += now - self._at
            self._batch_pages += max(pages - self._pages, 0)
            if self._batch_s >= BATCH_S:
                self.batches.append((self._batch_pages, self._batch_s))
                self._batch_pages, self._batch_s = 0, 0.0
        self._at, self._pages = now, pages

    @property
    def rate(self) -> float:
        """Pages a second while there was something to do; 0: not known yet."""
        latest = list(self.batches)[-RATE_BATCHES:]
        seconds = sum(took_s for _, took_s in latest)
        return sum(pages for pages, _ in latest) / seconds if seconds else 0.0
