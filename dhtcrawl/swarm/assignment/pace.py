"""How fast this node fetches while it has something to fetch; plans are made from it. Pure.

Time in which there was nothing to do is left out. The rest is cut into batches: pages, and the seconds that they took.
Their lengths differ, in turns: from equal ones a neural network could learn only that they are equal, and not what more
pages cost. They are short, so that five nodes have enough for a net (24) within a minute; but one of few pages would
tell more of when it ended than of the node, so it waits for some.

What the line brings is what the fastest batches agree on: one that is faster than all others may be a burst, from a
queue that had filled or a clock that stood still, and tells nothing of the next minute.
"""

from __future__ import annotations

from collections import deque
from statistics import median

BATCHES_S = (4.0, 12.0, 6.0, 8.0)
PAGES_MIN, BATCH_MAX_S = 4, 40.0  # it ends with so many pages, or after so long
BATCHES_MAX = 50
FASTEST = 3  # batches that say together what the line brings
RATE_BATCHES = 4  # the latest, each length once: the rate is taken over these


class Pace:
    """Measures the pace of a crawl on one node. Times are seconds on the caller's monotonic clock."""

    def __init__(self) -> None:
        self.batches: deque[tuple[int, float]] = deque(maxlen=BATCHES_MAX)
        self._at: float | None = None
        self._pages = 0
        self._batch_pages = 0
        self._batch_s = 0.0
        self._bytes = 0
        self._batch_bytes = 0
        self._ended = 0  # batches, ever
        self._fastest: list[float] = []  # bytes a second of so many batches, the fastest first

    def look(self, pages: int, body_bytes: int, busy: bool, now: float) -> None:
        """Take the totals so far, of pages and body bytes; `busy`: there was something to do since the last look."""
        if self._at is not None and busy:
            self._batch_s += now - self._at
            self._batch_pages += max(pages - self._pages, 0)
            self._batch_bytes += max(body_bytes - self._bytes, 0)
            if self._is_full():
                self._ended += 1
                self.batches.append((self._batch_pages, self._batch_s))
                fastest = sorted([*self._fastest, self._batch_bytes / self._batch_s], reverse=True)
                self._fastest = fastest[:FASTEST]
                self._batch_pages, self._batch_bytes, self._batch_s = 0, 0, 0.0
        self._at, self._pages, self._bytes = now, pages, body_bytes

    def _is_full(self) -> bool:
        """Whether the batch is over."""
        enough = self._batch_pages >= PAGES_MIN and self._batch_s >= BATCHES_S[self._ended % len(BATCHES_S)]
        return enough or self._batch_s >= BATCH_MAX_S

    @property
    def bytes_per_s(self) -> float:
        """The most that comes over the line, by the median of the fastest batches; 0: not known yet."""
        return median(self._fastest) if self._fastest else 0.0

    @property
    def rate(self) -> float:
        """Pages a second while there was something to do; 0: not known yet."""
        latest = list(self.batches)[-RATE_BATCHES:]
        seconds = sum(took_s for _, took_s in latest)
        return sum(pages for pages, _ in latest) / seconds if seconds else 0.0
