"""The part of one host's queue that is in memory. Pure; see `dhtcrawl.crawl.frontier`."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Collection, Set

from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store.tasks import Queued

# A host starts no new pages while so many wait for another try: it is in trouble,
# and the pages that wait take memory.
RETRIES_MAX = 64


class Refilling:
    """Whether the shell is reading the stored part of a queue."""

    __slots__ = ("busy", "doubted")

    def __init__(self) -> None:
        self.busy = False
        self.doubted = False  # tasks may have been queued since the read began, without a call of `insert`


@loop_state
class BackQueue:
    """The head of a host's stored queue: `front` and `desk`, both sorted; the whole queue if `complete`."""

    __slots__ = (
        "complete", "desk", "entry", "front", "in_flight", "known", "left", "name", "place", "refilling", "retries",
        "robots_busy",
    )  # fmt: skip

    def __init__(self, name: str, *, complete: bool = True) -> None:
        self.name = name
        self.complete = complete
        self.front: list[Queued] = []  # to be fetched here
        self.desk: list[Queued] = []  # not assigned to a node yet
        # Keys of tasks in `front` or `desk`, in flight, waiting for a retry, or fetched
        # and not yet written: the stored queue has them until they are written.
        self.known: set[bytes] = set()
        # Those of `known` that left the stored queue while in flight: another node has them, or they are over.
        self.left: set[bytes] = set()
        # A heap: (due_at, task, attempts, those of them that found no connection).
        self.retries: list[tuple[float, Queued, int, int]] = []
        self.refilling = Refilling()
        self.in_flight = 0
        self.robots_busy = False
        # The turn of this host's valid entry in a heap of the frontier; other entries are stale; 0: none is valid.
        self.entry = 0
        # Where that entry is: (True, due_at) among the waiting, (False, depth) among the ready.
        self.place = (False, 0.0)

    @property
    def idle(self) -> bool:
        """Whether the host has no task, in memory or on disk."""
        return self.complete and not (self.known or self.in_flight or self.refilling.busy)

    @property
    def filled(self) -> int:
        """How many tasks of the stored queue's head are in memory."""
        return len(self.front) + len(self.desk)

    def head(self, now: float) -> Queued | None:
        """The task to start next, or None if none may start now."""
        if self.retries and self.retries[0][0] <= now:
            return self.retries[0][1]
        return self.front[0] if self.front and len(self.retries) < RETRIES_MAX else None

    def insert(self, task: Queued, *, waits: bool) -> None:
        """Add a task of the stored queue, unless it lies behind the part that is in memory."""
        if task.key in self.known:
            self.left.discard(task.key)
            # The task was found again at a smaller depth: remove its old place.
            for line in (self.front, self.desk):
                stale = next((i for i, old in enumerate(line) if old.key == task.key), None)
                if stale is not None:
                    break
            if stale is None or line[stale] <= task:
                return
            del line[stale]
        elif (
            not self.complete and (not self.front or task > self.front[-1]) and (not self.desk or task > self.desk[-1])
        ):
            return  # it lies behind the part in memory, on disk
        self.known.add(task.key)
        bisect.insort(self.desk if waits else self.front, task)

    def assign(self, keys: Collection[bytes]) -> None:
        """Move the tasks with these keys from `desk` to `front`: this node fetches them."""
        for task in self.desk:
            if task.key in keys:
                bisect.insort(self.front, task)
        self.desk = [task for task in self.desk if task.key not in keys]

    def drop(self, unwanted: Callable[[Queued], bool]) -> bool:
        """Forget the unwanted tasks, except those in flight; return whether there were any."""
        waiting = (*self.front, *self.desk, *(task for _, task, *_ in self.retries))
        return self.drop_keys({task.key for task in waiting if unwanted(task)})

    def drop_keys(self, keys: Set[bytes]) -> bool:
        """The same of the tasks with these keys."""
        gone = {task.key for task in (*self.front, *self.desk) if task.key in keys}
        gone.update([task.key for _, task, *_ in self.retries if task.key in keys])
        if not gone:
            return False
        self.front = [task for task in self.front if task.key not in gone]
        self.desk = [task for task in self.desk if task.key not in gone]
        self.retries = [retry for retry in self.retries if retry[1].key not in gone]
        heapq.heapify(self.retries)
        self.known -= gone
        return True

    def leaves(self, key: bytes) -> bool:
        """A task left the stored queue: forget it, or note it if it is in flight; return whether it was forgotten."""
        if key not in self.known:
            return False
        if self.drop_keys({key}):
            return True
        self.left.add(key)
        return False

    def ends(self, key: bytes) -> bool:
        """A task is no longer in flight; return whether the stored queue still has it."""
        stays = key not in self.left
        self.left.discard(key)
        self.known.discard(key)
        return stays

    def again(self, task: Queued, due_at: float, attempt: int, unreached: int = 0) -> None:
        """Try a task that was in flight once more, unless it left the stored queue."""
        if self.ends(task.key):
            self.known.add(task.key)
            heapq.heappush(self.retries, (due_at, task, attempt, unreached))

    def spill(self, count: int) -> None:
        """Keep the first `count` tasks in memory and leave the rest to the stored queue."""
        if self.desk:
            last = sorted((*self.front, *self.desk))[count - 1]
            kept = bisect.bisect_right(self.front, last), bisect.bisect_right(self.desk, last)
        else:
            kept = count, 0
        for spilled in (*self.front[kept[0] :], *self.desk[kept[1] :]):
            self.known.discard(spilled.key)
        del self.front[kept[0] :], self.desk[kept[1] :]
        self.complete = False
