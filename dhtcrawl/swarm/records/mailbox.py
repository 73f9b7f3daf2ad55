"""Things on their way to other nodes, gathered while earlier ones are under way.

The first to come waits a moment for others, and while a batch is under way the
next one grows: a frame costs its receiver a write to disk, and most of the rest
of what it costs is the same for one item as for a hundred. A further batch sets
out early only when it is full.

Bounded by those who put: links by the outbox, records by the pages in flight.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

BATCH_MAX = 300  # design: 100–300 URLs a frame
# Enough to keep a long line busy: 4 × 300 URLs a round trip of 0.2 s are 6,000 URLs/s.
UNDER_WAY_MAX = 4


class Mailbox(Generic[T]):
    """One queue a peer; `send(peer, batch)` returns when the batch is over, whatever came of it."""

    def __init__(
        self, group: asyncio.TaskGroup, send: Callable[[bytes, list[T]], Awaitable[None]], *, linger_s: float
    ) -> None:
        """`linger_s` is how long the first of a batch waits for others."""
        self._linger_s = linger_s
        self._group = group
        self._send = send
        self._queues: dict[bytes, deque[T]] = {}
        self._under_way: dict[bytes, int] = {}

    @property
    def busy(self) -> bool:
        """Whether anything waits or is under way."""
        return bool(self._under_way) or any(self._queues.values())

    def put(self, peer: bytes, items: Iterable[T]) -> None:
        """Send these to `peer`."""
        queue = self._queues.setdefault(peer, deque())
        queue.extend(items)
        under_way = self._under_way.get(peer, 0)
        if queue and (not under_way or (len(queue) >= BATCH_MAX and under_way < UNDER_WAY_MAX)):
            self._under_way[peer] = under_way + 1
            self._group.create_task(self._run(peer))

    async def _run(self, peer: bytes) -> None:
        try:
            while queue := self._queues.get(peer):
                if len(queue) < BATCH_MAX:
                    await asyncio.sleep(self._linger_s)
                batch = [queue.popleft() for _ in range(min(BATCH_MAX, len(queue)))]
                if batch:
                    await self._send(peer, batch)
        finally:
            self._under_way[peer] -= 1
            if not self._under_way[peer]:
                del self._under_way[peer]
                if not self._queues.get(peer):
                    self._queues.pop(peer, None)
