"""Fills the frontier's fronts from the stored queues when they run low."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from dhtcrawl.crawl.due_tasks import DueTasks
from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.crawl.services import Services
from dhtcrawl.keyspace import host_key
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store import tasks

HOSTS_A_SCAN = 256
# Until the heads of queues are read again that brought nothing: their tasks wait for backups, or for their new owners.
PAUSE_S = 0.1


@loop_state
class Refill:
    """Reads tasks and hosts for one crawl's frontier from the store."""

    def __init__(
        self,
        services: Services,
        crawl: bytes,
        frontier: Frontier,
        due: DueTasks,
        refilled: Callable[[], None],
    ) -> None:
        """`due` holds back the tasks that may not be fetched before their backups have them.

        `refilled` is called when there may be something to start, or nothing left.
        """
        self.busy = False
        self._s = services
        self._crawl = crawl
        self._frontier = frontier
        self._due = due
        self._refilled = refilled
        self._wanted = asyncio.Event()

    def wanted(self) -> None:
        """Wake `run`, because the frontier wants tasks or hosts."""
        self._wanted.set()

    async def run(self) -> None:
        """Fill fronts that run low, and bring hosts into memory while there is room; until cancelled.

        Raises:
            StorageError: the store cannot be read.
        """
        submit = self._s.committer.submit
        replication = self._s.ports.replication
        cursor = b""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self.busy = True
            brought = False
            wanted = self._frontier.refills()
            reads = [
                submit(partial(tasks.host_queue, crawl=self._crawl, host=host_key(name), limit=limit))
                for name, limit in wanted
            ]
            for read in reads:
                read.add_done_callback(_seen)  # if one fails, the others are not awaited
            for (name, _), read in zip(wanted, reads, strict=True):
                # Handle each read at once: a task written while the next is awaited would still look open in this one.
                found, complete = await read
                # Tasks that another node has come to own, or is fetching, leave the stored queue
                # later; tasks that the backups do not have are added when they do.
                ours = self._due.ours(found)
                unsafe = {task.key: task for task in ours if replication.unsafe(task.key)}
                safe = [task for task in ours if task.key not in unsafe]
                brought |= self._frontier.refilled(name, safe, complete, self._s.clock.monotonic())
                for task in unsafe.values():
                    self._due.await_safe(task, replication.when_kept)
            if self._frontier.wants_hosts:
                cursor = await self._walk(cursor)
            self.busy = False
            self._refilled()
            if wanted and not brought and self._frontier.wants_refill:
                await asyncio.sleep(PAUSE_S)

    async def _walk(self, cursor: bytes) -> bytes:
        """Look through the next stored queues for hosts to activate; return the cursor to go on from."""
        if not cursor:
            self._frontier.walk_begins()
        read = partial(tasks.hosts_with_work, crawl=self._crawl, cursor=cursor, limit=HOSTS_A_SCAN)
        hosts, next_cursor = await self._s.committer.submit(read)
        for key, name in hosts:
            if not self._frontier.activate(name):
                return key
        if next_cursor is None:
            self._frontier.walk_ended()
            return b""
        return next_cursor


def _seen(read: asyncio.Future[Any]) -> None:
    if not read.cancelled():
        read.exception()
