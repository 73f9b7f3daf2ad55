"""One host's queue, as far as it is in memory. Pure; see `dhtcrawl.crawl.frontier`."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store.tasks import Queued

# A host with so many pages waiting for another try starts no new ones: it is in
# trouble, and what waits is in memory.
RETRIES_MAX = 64


@dataclass(slots=True)
class Refilling:
    """Whether the store's part of a queue is being read."""

    busy: bool = False
    doubted: bool = False  # what is being read may be older than what was queued without our knowing


@loop_state
@dataclass(eq=False, slots=True)
class BackQueue:
    """`front` and `desk`, both sorted, are the head of the stored queue; all of it where `complete`."""

    name: str
    complete: bool = True
    front: list[Queued] = field(default_factory=list, init=False)  # to be fetched here
    desk: list[Queued] = field(default_factory=list, init=False)  # who is to fetch them is not decided
    # Keys in front, on the desk, in flight, waiting for a retry, or fetched and
    # not yet written: until then the stored queue still has them.
    known: set[bytes] = field(default_factory=set, init=False)
    # Of these, what left the stored queue while it was in flight: another node's, or over.
    left: set[bytes] = field(default_factory=set, init=False)
    # A heap: (due_at, task, attempt).
    retries: list[tuple[float, Queued, int]] = field(default_factory=list, init=False)
    refilling: Refilling = field(default_factory=Refilling, init=False)
    in_flight: int = field(default=0, init=False)
    robots_busy: bool = field(default=False, init=False)
    # The valid entry in a heap of the frontier; others are stale; 0: none is valid.
    entry: int = field(default=0, init=False)
    # Of that entry: (waiting, due_at) or (not waiting, depth).
    place: tuple[bool, float] = field(default=(False, 0.0), init=False)

    @property
    def idle(self) -> bool:
        """Whether there is nothing of it, here or on disk."""
        return self.complete and not (self.known or self.in_flight or self.refilling.busy)

    @property
    def filled(self) -> int:
        """How many tasks of the stored queue's head are here."""
        return len(self.front) + len(self.desk)

    def head(self, now: float) -> Queued | None:
        """The task to start next, if there is one to start now."""
        if self.retries and self.retries[0][0] <= now:
            return self.retries[0][1]
        return self.front[0] if self.front and len(self.retries) < RETRIES_MAX else None

    def insert(self, task: Queued, *, waits: bool) -> None:
        """A task that is in the stored queue; one behind what is in memory is left there."""
        if task.key in self.known:
            self.left.discard(task.key)
            # Found again on a shorter way: the old place goes.
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
            return  # it lies behind the front, on disk
        self.known.add(task.key)
        bisect.insort(self.desk if waits else self.front, task)

    def assign(self, keys: Collection[bytes]) -> None:
        """Those of these on the desk are to be fetched here."""
        for task in self.desk:
            if task.key in keys:
                bisect.insort(self.front, task)
        self.desk = [task for task in self.desk if task.key not in keys]

    def drop(self, unwanted: Callable[[Queued], bool]) -> bool:
        """Forget these, unless they are in flight; whether there were any."""
        gone = [task for task in (*self.front, *self.desk) if unwanted(task)]
        gone += [task for _, task, _ in self.retries if unwanted(task)]
        if not gone:
            return False
        self.front = [task for task in self.front if not unwanted(task)]
        self.desk = [task for task in self.desk if not unwanted(task)]
        self.retries = [retry for retry in self.retries if not unwanted(retry[1])]
        heapq.heapify(self.retries)
        for task in gone:
            self.known.discard(task.key)
        return True

    def leaves(self, key: bytes) -> bool:
        """A task is in the stored queue no more; whether it was to be started here. What is in flight is noted."""
        if self.drop(lambda task: task.key == key):
            return True
        if key in self.known:
            self.left.add(key)
        return False

    def ends(self, key: bytes) -> bool:
        """A task in flight is over here; whether it has not left meanwhile."""
        stays = key not in self.left
        self.left.discard(key)
        self.known.discard(key)
        return stays

    def again(self, task: Queued, due_at: float, attempt: int) -> None:
        """Try a task that was in flight once more, unless it has left."""
        if self.ends(task.key):
            self.known.add(task.key)
            heapq.heappush(self.retries, (due_at, task, attempt))

    def spill(self, count: int) -> None:
        """Leave all but the first `count` tasks to the stored queue."""
        if self.desk:
            last = sorted((*self.front, *self.desk))[count - 1]
            kept = bisect.bisect_right(self.front, last), bisect.bisect_right(self.desk, last)
        else:
            kept = count, 0
        for spilled in (*self.front[kept[0] :], *self.desk[kept[1] :]):
            self.known.discard(spilled.key)
        del self.front[kept[0] :], self.desk[kept[1] :]
        self.complete = False
