"""Pages whose links must go out again, in turn."""

from __future__ import annotations

import asyncio


class ResendQueue:
    """Task keys of pages whose links must go out again."""

    def __init__(self) -> None:
        self.pending = 0  # until `done`
        self._pages: asyncio.Queue[bytes] = asyncio.Queue()

    def put(self, page: bytes) -> None:
        """Send the links of this page."""
        self.pending += 1
        self._pages.put_nowait(page)

    async def get(self) -> bytes:
        """The next one; `done` follows."""
        return await self._pages.get()

    def done(self) -> None:
        """The links of a page are handed in, or the page is not here."""
        self.pending -= 1
