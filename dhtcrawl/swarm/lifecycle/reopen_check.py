"""Opens a crawl again that is said to be complete but has work left here (I10).

That happens: one side of a partition, which sees nothing of the other, ends what it can reach, and a node that comes
back brings what no other node had. The owner of a task that is queued, or of a page whose links are not all
acknowledged, opens the crawl again. An end by a limit or by a user stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.crawl_record import FINAL, RUNNING, CrawlRecord, changed
from dhtcrawl.storage.store.ownership import Test

log = logging.getLogger(__name__)


@loop_state
class ReopenCheck:
    """Checks the ended crawls of one node. Call `at` whenever work may have come: calls before a check count as one."""

    def __init__(
        self,
        committer: Committer,
        group: asyncio.TaskGroup,
        *,
        over: Callable[[bytes], CrawlRecord | None],
        claims: Callable[[], Test],
        reopen: Callable[[CrawlRecord], Awaitable[object]],
    ) -> None:
        """`over(crawl)`: its record, if it has ended here and nothing stands in the way of a check.

        `claims()` is the immutable claim to tasks of this moment.
        """
        self._committer = committer
        self._group = group
        self._over = over
        self._claims = claims
        self._reopen = reopen
        self._due: dict[bytes, None] = {}

    def at(self, crawl: bytes) -> None:
        """Check this crawl soon."""
        if crawl not in self._due and self._ended(crawl) is not None:
            self._due[crawl] = None
            self._group.create_task(self._look(crawl))

    async def _look(self, crawl: bytes) -> None:
        del self._due[crawl]
        left = await self._committer.submit(partial(tasks.is_left, crawl=crawl, mine=self._claims()))
        record = self._ended(crawl)
        if left and record is not None:
            log.warning("crawl %s is %s, and there is work left here: it goes on", crawl.hex(), record.ended)
            await self._reopen(changed(record, RUNNING))

    def _ended(self, crawl: bytes) -> CrawlRecord | None:
        record = self._over(crawl)
        return record if record is not None and record.ended in FINAL else None
