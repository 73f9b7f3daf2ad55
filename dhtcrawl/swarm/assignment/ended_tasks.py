"""Finds the assignments that have ended: the task's record says that it is fetched, or dead.

Records that come are looked at soon. Those that a sync has written are found by a walk over all assignments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store.records import State
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.assignment.queues import AssignmentQueues

LOOK_EVERY_S = 1.0
GATHER_S = 0.05  # a look into the store is a turn of the committer's thread, however many it looks for
LOOK_AT = 500  # assignments at a time


@loop_state
class EndedTasks:
    """Ends the assignments of a crawl's tasks, at their owner and at their worker."""

    def __init__(
        self, queues: AssignmentQueues, ownership: SwarmOwnership, over: Callable[[Sequence[bytes]], None]
    ) -> None:
        """`over(keys)` is called with tasks whose outcome is known; some may be assigned to others by this node."""
        self._queues = queues
        self._ownership = ownership
        self._over = over
        self._doubtful: list[bytes] = []  # these may have ended
        self._doubts = asyncio.Event()
        self._looked = self._looked_borrowed = 0

    def heard(self, found: Sequence[TaskReplica]) -> None:
        """Note records that came: those that are fetched or dead may end assignments."""
        if len(self._ownership.lent) or len(self._ownership.borrowed):
            self.over([copy.key for copy in found if copy.task.state >= State.FETCHED])

    def over(self, keys: Sequence[bytes]) -> None:
        """Look soon whether these have ended."""
        lent, borrowed = self._ownership.lent, self._ownership.borrowed
        # A tombstone of an earlier generation ends no assignment: our own record has to say so.
        if len(lent) or len(borrowed):
            found = lent.among(keys) | borrowed.among(keys)
            if found:
                self._doubtful += [key for key in keys if key in found]
                self._doubts.set()

    async def run(self) -> None:
        """End assignments, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._doubts.wait()
                await asyncio.sleep(GATHER_S)
            except TimeoutError:
                self._look_on()
            self._doubts.clear()
            doubtful, self._doubtful = self._doubtful, []
            over = await self._queues.settled(doubtful) if doubtful else []
            self._over(over)
            for key in over:
                self._ownership.borrowed.give_back(key)

    def _look_on(self) -> None:
        """Doubt the next assignments, in a circle."""
        lent, borrowed = list(self._ownership.lent), self._ownership.borrowed
        self._looked = _next(self._looked, len(lent))
        self._looked_borrowed = _next(self._looked_borrowed, len(borrowed))
        self._doubtful += lent[self._looked : self._looked + LOOK_AT]
        self._doubtful += borrowed.some(self._looked_borrowed, LOOK_AT)


def _next(first: int, count: int) -> int:
    return first + LOOK_AT if first + LOOK_AT < count else 0
