"""A task group that can cancel its tasks, in the order in which they began.

Tasks that a node still has under way when it stops (records for a node that does
not answer, answers that wait for one) would keep a plain TaskGroup open while the
other side is away. A TaskGroup also cancels in the order of a set, so that what
other nodes see of the end would differ from run to run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class OrderedTaskGroup(asyncio.TaskGroup):
    """A TaskGroup whose tasks can be cancelled in order."""

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
        """Create a task as asyncio's group does, but cancel it at once if the group is ending.

        Callers react to a message or to a new member and need not know that the group ends.
        """
        try:
            task = super().create_task(coro, name=name, context=context)
        except RuntimeError:
            # From Python 3.13 on the group has closed it, and no task can be made of it any more.
            coro.close()
            over = asyncio.get_running_loop().create_task(_never_begun(), name=name, context=context)
            over.cancel()
            return over
        self._begun[task] = None
        task.add_done_callback(self._forget)
        return task

    def cancel_all(self) -> None:
        """Cancel every task that was created here and is not over."""
        for task in list(self._begun):
            task.cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._begun.pop(task, None)


async def _never_begun() -> Any:
    raise AssertionError("it is cancelled before it begins")
