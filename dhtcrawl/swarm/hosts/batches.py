"""Items for other nodes, gathered while a call to the same node is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

Sender = Callable[[bytes, list[Any]], Awaitable[None]]


class Batches:
    """For each node and call one batch on its way and one that waits; bounded by `waiting_max` items each.

    Tasks live in the group that `start` names.
    """

    def __init__(self, senders: dict[str, Sender], *, items_max: int, waiting_max: int) -> None:
        """`senders[call](node, items)` sends up to `items_max` items and sees to their answers; it does not raise."""
        self._senders = senders
        self._items_max = items_max
        self._waiting_max = waiting_max
        self._group: asyncio.TaskGroup | None = None
        self._waiting: dict[tuple[bytes, str], list[Any]] = {}  # with an entry, however empty, while one is on its way
        self._empty = asyncio.Event()

    def start(self, group: asyncio.TaskGroup | None) -> None:
        """Send in this group from now on; None: nothing more."""
        self._group = group

    def send(self, node: bytes, call: str, item: Any) -> bool:
        """Send an item soon; False where that cannot be: not started, or too much waits."""
        if self._group is None:
            return False
        waiting = self._waiting.get((node, call))
        if waiting is None:
            self._waiting[node, call] = [item]
            self._empty.clear()
            self._group.create_task(self._deliver(node, call))
        elif len(waiting) >= self._waiting_max:
            return False
        else:
            waiting.append(item)
        return True

    async def flushed(self) -> None:
        """Until nothing waits or is on its way."""
        if self._waiting:
            await self._empty.wait()

    async def _deliver(self, node: bytes, call: str) -> None:
        waiting = self._waiting[node, call]
        try:
            while waiting:
                batch = waiting[: self._items_max]
                del waiting[: self._items_max]
                await self._senders[call](node, batch)
        finally:
            del self._waiting[node, call]
            if not self._waiting:
                self._empty.set()
