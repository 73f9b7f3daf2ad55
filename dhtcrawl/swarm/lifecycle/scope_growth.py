"""Opens tasks again that died beyond the scope of a crawl, or its depth limit, before it reached them.

The target of a seed's redirect is a seed, too, from when it is known. A link to it, or to
a page beside it, that another node sent before may be a lie or a true one that came early:
its task dies as out of scope, and every later link to it is known. So whenever such targets
have come, the owners look at what died so, and open what the scope reaches now. They look
again where they have come to own further tasks, and when the crawl begins at a node. A depth limit that was lowered
may be raised again; then the crawl begins anew at each node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store import given_up
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.given_up import GivenUp, OpenedAgain
from dhtcrawl.storage.store.ownership import TakeSnapshot

SCANNED_A_STEP = 2_000
FOUND_A_STEP = 200


@loop_state
class ScopeGrowth:
    """Looks through the tasks of one crawl at one node, whenever its scope has grown."""

    def __init__(
        self,
        committer: Committer,
        crawl: bytes,
        reaches: Callable[[GivenUp], bool],
        snapshot: TakeSnapshot,
        opened: Callable[[OpenedAgain], None],
    ) -> None:
        """`reaches(task)` says whether the crawl may fetch it by now.

        `opened` gives the records to their backups, and then makes the changes of the queues.
        """
        self._committer = committer
        self._crawl = crawl
        self._reaches = reaches
        self._snapshot = snapshot
        self._opened = opened
        self._wanted = asyncio.Event()
        self._looking = False

    @property
    def busy(self) -> bool:
        """Whether it is looking, or about to."""
        return self._looking or self._wanted.is_set()

    def look(self) -> None:
        """The scope has grown, or this node owns further tasks."""
        self._wanted.set()

    async def run(self) -> None:
        """Look whenever it is wanted, until cancelled.

        Raises:
            StorageError: the store cannot be read or written.
        """
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._looking = True
            cursor: bytes | None = b""
            while cursor is not None and not self._wanted.is_set():
                cursor = await self._step(cursor)
            self._looking = False

    async def _step(self, cursor: bytes) -> bytes | None:
        read: Any = partial(
            given_up.died_beyond, crawl=self._crawl, cursor=cursor, scanned_max=SCANNED_A_STEP,
            found_max=FOUND_A_STEP, mine=self._snapshot().mine,
        )  # fmt: skip
        found: list[GivenUp]
        after: bytes | None
        found, after = await self._committer.submit(read)
        reached = [task.key for task in found if self._reaches(task)]
        if reached:
            now = self._snapshot(reached)
            write: Any = partial(given_up.reach, crawl=self._crawl, task_keys=reached, mine=now.mine, held=now.held)
            again: OpenedAgain = await self._committer.submit(write)
            if again.opened:
                self._opened(again)
        return after
