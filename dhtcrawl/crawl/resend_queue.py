"""A queue of pages whose links must go out again. Pure."""

from __future__ import annotations

from collections import deque

from dhtcrawl.crawl.wake_up import WakeUp


class ResendQueue:
    """Task keys of pages whose links must go out again."""

    def __init__(self) -> None:
        self.pending = 0  # pages that were put in and are not done yet
        self.added = WakeUp()
        self._pages: deque[bytes] = deque()

    def put(self, page: bytes) -> None:
        """Add a page."""
        self.pending += 1
        self._pages.append(page)
        self.added()

    def take(self) -> bytes | None:
        """The next page; the caller answers with `done`. None if there is none."""
        return self._pages.popleft() if self._pages else None

    def done(self) -> None:
        """Count a page as dealt with: its links are handed in, or the page is not here."""
        self.pending -= 1
