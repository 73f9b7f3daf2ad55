"""Whether a crawl that is said to be complete has left work with us after all.

It can: a side of a partition that saw nothing of the other ends what it can
reach, and a node that comes back brings what nobody else had. Whoever owns a
task that is queued, or a page whose links are not all acknowledged, opens the
crawl again (I10). An end by a limit or by a user is nobody's mistake.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.catalog import CrawlRecord
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.crawl_record import RUNNING, changed
from dhtcrawl.storage.store.ownership import Test

log = logging.getLogger(__name__)

# Ends that say that nothing is left.
FINAL = ("complete", "failed")


@loop_state
class ReopenCheck:
    """Of one node. To be asked for whenever something may have come: it looks once however often it is asked."""

    def __init__(
        self,
        committer: Committer,
        group: asyncio.TaskGroup,
        *,
        over: Callable[[bytes], CrawlRecord | None],
        claims: Callable[[], Test],
        reopen: Callable[[CrawlRecord], Awaitable[object]],
    ) -> None:
        """`over(crawl)`: its record, if it has ended here and nothing stands in the way of a look.

        `claims()` is an immutable claim to tasks, the one of this moment.
        """
        self._committer = committer
        self._group = group
        self._over = over
        self._claims = claims
        self._reopen = reopen
        self._due: dict[bytes, None] = {}

    def at(self, crawl: bytes) -> None:
        """Look at this crawl, soon."""
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
