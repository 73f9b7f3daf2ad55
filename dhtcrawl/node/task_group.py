"""A group of tasks that end when it is over, in the order in which they began.

What a node still has under way when it stops (copies for a node that does not
answer, answers that wait for one) would keep a plain TaskGroup open, as long
as the other side is away. And a TaskGroup cancels in the order of a set: what
the others see of our end would differ from run to run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class OrderedTaskGroup(asyncio.TaskGroup):
    """A TaskGroup that can be told to end."""

    def __init__(self) -> None:
        super().__init__()
        self._begun: dict[asyncio.Task[Any], None] = {}

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """As the group of asyncio; what is begun while the group ends is cancelled at once.

        Whoever begins it is told of something by others, a node that came or a message, and has no part in the end.
        """
        try:
            task = super().create_task(coro, name=name, context=context)
        except RuntimeError:
            task = asyncio.get_running_loop().create_task(coro, name=name, context=context)
            task.cancel()
            return task
        self._begun[task] = None
        task.add_done_callback(self._forget)
        return task

    def cancel_all(self) -> None:
        """End every task that was created here and is not over."""
        for task in list(self._begun):
            task.cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._begun.pop(task, None)
