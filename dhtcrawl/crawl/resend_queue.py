"""A queue of pages whose links must go out again."""

from __future__ import annotations

import asyncio


class ResendQueue:
    """Task keys of pages whose links must go out again."""

    def __init__(self) -> None:
        self.pending = 0  # pages that were put in and are not done yet
        self._pages: asyncio.Queue[bytes] = asyncio.Queue()

    def put(self, page: bytes) -> None:
        """Add a page."""
        self.pending += 1
        self._pages.put_nowait(page)

    async def get(self) -> bytes:
        """Wait for the next page; the caller answers with `done`."""
        return await self._pages.get()

    def done(self) -> None:
        """Count a page as dealt with: its links are handed in, or the page is not here."""
        self.pending -= 1
