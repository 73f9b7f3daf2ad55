"""Holds back tasks that are in the store until their backups have them; then they enter the frontier.

    expect ──▶ due ──add──▶ the frontier: tasks that are still open and this node's

No task starts before its backups have answered, because one of them may know that it
was fetched long ago (design invariant I6). A task may be in several batches of
records at once; if it ends meanwhile, it stays out of the frontier until the last
of them is through.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.crawl.ports import Ownership
from dhtcrawl.storage.store.tasks import Queued


class DueTasks:
    """Holds back the tasks of a crawl until their backups have them."""

    def __init__(self, frontier: Frontier, ownership: Ownership, clock: Clock) -> None:
        self._frontier = frontier
        self._ownership = ownership
        self._clock = clock
        self._due: dict[bytes, int] = {}  # how many batches of records hold a task back
        self._over: dict[bytes, None] = {}  # those of `_due` that left the queue meanwhile

    def expect(self, queued: list[Queued]) -> None:
        """Hold back tasks that are in the store; `add` follows once the backups have their whole batch."""
        for task in queued:
            self._due[task.key] = self._due.get(task.key, 0) + 1

    def add(self, queued: list[Queued]) -> None:
        """The backups have these tasks: add to the frontier those that are still open and this node's."""
        over = self._over
        # Another node may have a task in flight that was queued here again at a smaller depth.
        open_ = [task for task in self.ours(queued) if task.key not in over]
        for task in queued:
            self._due[task.key] -= 1
            if not self._due[task.key]:
                del self._due[task.key]
                over.pop(task.key, None)
        self._frontier.add(open_, self._clock.monotonic())

    def await_safe(self, task: Queued, when_kept: Callable[[bytes, Callable[[], None]], bool]) -> None:
        """Add a task that was read from its stored queue once the backups have its record, which is under way.

        A new task is added with its batch; a link to a known task sends the record again and holds nothing back.
        """
        if task.key in self._due:
            # It had left the queue and has come back, as when another node had it and gave it back.
            self._over.pop(task.key, None)
            return
        self.expect([task])
        add = partial(self.add, [task])
        if not when_kept(task.key, add):
            add()

    def written(self, key: bytes) -> None:
        """Keep a task that is over out of the frontier, if it is still due.

        It is safe, and may be read from the store and fetched, before the rest of
        its batch is; and a smaller depth that was found for it is a batch of its own.
        """
        if key in self._due:
            self._over[key] = None

    def ours(self, queued: list[Queued]) -> list[Queued]:
        """The tasks that this node may start now: others may own some since the transaction that queued them."""
        mine, held = self._ownership.mine, self._ownership.held
        return [task for task in queued if mine(task.key) and not held(task.key)]
