"""That a node is to stop: what it waits for before it takes part is broken off then."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Stopping:
    """Asked for once or more often, from any task of the loop."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._broken_off: asyncio.Timeout | None = None

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def ask(self) -> None:
        self._asked.set()
        # One that is broken off already may take a while to come to its end, and cannot be once more.
        limit, self._broken_off = self._broken_off, None
        if limit is not None:
            limit.reschedule(-math.inf)

    async def wait(self) -> None:
        """Return once it was asked for."""
        await self._asked.wait()

    @asynccontextmanager
    async def breaks_off(self) -> AsyncIterator[None]:
        """A block that is left where it waits, and without an error, once the node is to stop."""
        try:
            async with asyncio.timeout(None) as limit:
                self._broken_off = limit
                if self.asked:
                    self.ask()
                try:
                    yield
                finally:
                    self._broken_off = None
        except TimeoutError:
            if not limit.expired():
                raise
