"""A deadline that moves: one timer however often it is put off.

`asyncio.timeout` re-arms a timer at every `reschedule`. An exchange moves its
deadline at the connection, at the head and at every read, nearly always to
later, so here a move is an assignment: the timer looks at the deadline when
it fires and arms itself again when that has moved. The contract with
cancellation is asyncio's: the block ends with TimeoutError when the deadline
cancelled it, with CancelledError when another task did.
"""

from __future__ import annotations

import asyncio
from types import TracebackType


class Deadline:
    """`with Deadline(loop, when):` ends the block by TimeoutError at `when`, on the loop's clock."""

    __slots__ = ("_armed", "_cancelling", "_expired", "_handle", "_loop", "_task", "_when")

    def __init__(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        task = asyncio.current_task(loop)
        assert task is not None, "a deadline cancels the task it was made in"
        self._loop = loop
        self._task = task
        self._cancelling = task.cancelling()
        self._expired = False
        self._when = self._armed = when
        self._handle: asyncio.TimerHandle | None = loop.call_at(when, self._fire)

    def move(self, when: float) -> None:
        """From now on the block ends at `when`; `math.inf` for never."""
        self._when = when
        if when < self._armed:
            if self._handle is not None:
                self._handle.cancel()
            self._arm(when)

    def __enter__(self) -> Deadline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _arm(self, when: float) -> None:
        self._armed = when
        self._handle = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        self._handle = None
        if self._loop.time() < self._when:
            # `inf` needs no timer; the next move is earlier and arms one.
            self._armed = self._when
            if self._when != float("inf"):
                self._arm(self._when)
            return
        self._expired = True
        self._task.cancel()
