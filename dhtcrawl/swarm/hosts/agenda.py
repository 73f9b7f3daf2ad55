"""Due times, one for each name, the earliest first; without I/O."""

from __future__ import annotations

import heapq
import math

_STALE_MAX = 4  # dead entries of the heap for each live one


class Agenda:
    """Names with the time at which each is due; memory grows with the number of names only."""

    __slots__ = ("_due", "_heap", "_turn")

    def __init__(self) -> None:
        self._due: dict[str, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._turn = 0  # the order of entry decides between equal times

    def put(self, name: str, due_at: float) -> None:
        """Set the time at which `name` is due, instead of any earlier one; infinity: never."""
        before = self._due.get(name)
        if before is not None and before[0] == due_at:
            return
        if due_at == math.inf:
            self._due.pop(name, None)
            return
        self._turn += 1
        self._due[name] = (due_at, self._turn)
        heapq.heappush(self._heap, (due_at, self._turn, name))
        if len(self._heap) > _STALE_MAX * (len(self._due) + 16):
            self._heap = [(at, turn, name) for name, (at, turn) in self._due.items()]
            heapq.heapify(self._heap)

    def due_at(self, name: str) -> float:
        """When `name` is due; infinity: never."""
        entry = self._due.get(name)
        return math.inf if entry is None else entry[0]

    def next_due_at(self) -> float:
        """When the first name is due; infinity: none is."""
        while self._heap:
            due_at, turn, name = self._heap[0]
            if self._due.get(name) == (due_at, turn):
                return due_at
            heapq.heappop(self._heap)
        return math.inf

    def pop_due(self, now: float) -> str | None:
        """Take the first due name off the agenda; None where none is due."""
        if self.next_due_at() > now:
            return None
        name = heapq.heappop(self._heap)[2]
        del self._due[name]
        return name
