"""Tasks that are in the store and not yet on their backups: they enter the frontier when they are.

    expect ──▶ due ──add──▶ the frontier, those that are still open and this node's

What one of the backups answers may be that a task was fetched long ago, so none
is started before (design invariant I6). A task may be due for several batches
of records at once; one that is over meanwhile stays out of the frontier until
the last of them is through.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.crawl.ports import Ownership
from dhtcrawl.storage.store.tasks import Queued


class DueTasks:
    """Those of one crawl."""

    def __init__(self, frontier: Frontier, ownership: Ownership, clock: Clock) -> None:
        self._frontier = frontier
        self._ownership = ownership
        self._clock = clock
        self._due: dict[bytes, int] = {}  # how many batches of records hold a task back
        self._over: dict[bytes, None] = {}  # left the queue meanwhile

    def expect(self, queued: list[Queued]) -> None:
        """These are in the store; `add` will follow once the backups have them, and all that was sent with them."""
        for task in queued:
            self._due[task.key] = self._due.get(task.key, 0) + 1

    def add(self, queued: list[Queued]) -> None:
        """The backups have these tasks: those that are still open and this node's may be started."""
        over = self._over
        # Another node may have in flight what came here once more, by a shorter way.
        open_ = [task for task in self.ours(queued) if task.key not in over]
        for task in queued:
            self._due[task.key] -= 1
            if not self._due[task.key]:
                del self._due[task.key]
                over.pop(task.key, None)
        self._frontier.add(open_, self._clock.monotonic())

    def await_safe(self, task: Queued, when_kept: Callable[[bytes, Callable[[], None]], bool]) -> None:
        """A task was found in its stored queue while records of it are under way: add it once they are safe.

        That of a new task follows anyway; but a link to a known one makes us ask the backups again, too.
        """
        if task.key not in self._due:
            self.expect([task])
            add = partial(self.add, [task])
            if not when_kept(task.key, add):
                add()

    def written(self, key: bytes) -> None:
        """A task is over here.

        It may be due still: it is safe, and may be read from the store, before
        the rest of its batch is; and a shorter way to it is a batch of its own.
        """
        if key in self._due:
            self._over[key] = None

    def ours(self, queued: list[Queued]) -> list[Queued]:
        """Those that this node may start now: some may have changed hands since the transaction that queued them."""
        mine, held = self._ownership.mine, self._ownership.held
        return [task for task in queued if mine(task.key) and not held(task.key)]
