"""Sends what `dhtcrawl.swarm.deliver.queues` decides: a task for each open slot, none while nothing is to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from dhtcrawl.swarm.deliver.queues import (
    Batch,
    DeliveryLimits,
    DeliveryQueues,
    GivenBack,
    Rest,
    Slot,
    SlotOpened,
    WaitFor,
)

T = TypeVar("T")


def _never(_node: bytes) -> bool:
    return False


def _nothing_comes_back(_node: bytes, _items: Sequence[object]) -> None:
    raise AssertionError("a user whose batches leave items behind says what becomes of them")


def _no_wait(_node: bytes) -> None:
    """A user that drops what is refused does not wait for room."""


class Deliverer(Generic[T]):
    """Delivers items of one user to other nodes, in tasks of a group; cancelling the group ends it."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        send: Callable[[Batch[T]], Awaitable[Rest[T]]],
        limits: DeliveryLimits,
        *,
        size_of: Callable[[T], int],
        is_there: Callable[[bytes], bool] = _never,
        give_back: Callable[[bytes, list[T]], None] = _nothing_comes_back,
        room: Callable[[bytes], None] = _no_wait,
    ) -> None:
        """`send(batch)` sends a batch, handles the answer and returns what is left; an exception of it ends the group.

        Refused items are tried again after `DeliveryLimits.pause_s` where `is_there(node)`, and
        otherwise go to `give_back(node, items)`. `room(node)` is called when `put` has refused
        items for a node and would take more now.
        """
        self._group = group
        self._send = send
        self._place_s = limits.place_s
        self._queues = DeliveryQueues(limits, size_of, is_there)
        self._give_back = give_back
        self._room = room
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def busy(self) -> bool:
        """Whether anything waits or is under way."""
        return self._queues.busy

    def put(self, node: bytes, items: Iterable[T], kind: Hashable = None) -> int:
        """Queue items for a node; how many, from the first: the others are refused, as too much waits.

        Batches hold items of one kind.
        """
        taken = self._queues.offer(node, items, kind)
        self._act()
        if self._queues.busy:
            self._idle.clear()
        return taken

    async def flushed(self) -> None:
        """Return once nothing waits or is under way."""
        await self._idle.wait()

    async def _run(self, slot: Slot[T]) -> None:
        queues = self._queues
        try:
            while (step := queues.step(slot)) is not None:
                self._act()
                if isinstance(step, WaitFor):
                    await asyncio.sleep(step.seconds)
                else:
                    queues.over(slot, await self._sent(slot, step))
                    self._act()
            self._act()
        finally:
            queues.abandon(slot)  # for a slot whose task was cancelled
            if not queues.busy:
                self._idle.set()

    async def _sent(self, slot: Slot[T], batch: Batch[T]) -> Rest[T]:
        if self._place_s is None:
            return await self._send(batch)
        timer = asyncio.get_running_loop().call_later(self._place_s, self._is_slow, slot)
        try:
            return await self._send(batch)
        finally:
            timer.cancel()

    def _is_slow(self, slot: Slot[T]) -> None:
        self._queues.is_slow(slot)
        self._act()

    def _act(self) -> None:
        for effect in self._queues.take_effects():
            if isinstance(effect, SlotOpened):
                self._group.create_task(self._run(effect.slot))
            elif isinstance(effect, GivenBack):
                self._give_back(effect.node, effect.items)
            else:
                self._room(effect.node)
