"""Pages of ours that have too few copies get further ones (design invariant I11, `--copies`).

A copy counts while its node is there, or may come back within the grace, or
left it to an heir. What is short of copies, because nodes are gone for good or
refused, or because there were not enough, is offered again when nodes come,
when further ones are given up, and now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.bodies.copier import Copier

PAGES_A_SCAN: Final = 2_000
PAGES_AT_ONCE: Final = 256
# A disk that was full may have room by now.
AGAIN_S: Final = 60.0

Short = tuple[bytes, tuple[bytes, ...]]  # a page, and who has copies


class CopyWatch:
    """Of one crawl on one node."""

    def __init__(
        self,
        committer: Committer,
        crawl: bytes,
        copier: Copier,
        counters: CrawlCounters,
        standing: Callable[[bytes], bytes | None],
        enough_nodes: Callable[[], bool],
    ) -> None:
        """`standing(node)` names who has what `node` had, None: nobody any more; it runs on the committer's thread."""
        self._copying = 0
        self._looking = False
        self._committer = committer
        self._crawl = crawl
        self._copier = copier
        self._counters = counters
        self._standing = standing
        self._enough_nodes = enough_nodes
        self._changed = asyncio.Event()
        if counters.pages_undercopied:
            self._changed.set()

    @property
    def under_way(self) -> int:
        """Pages that are being copied once more; 1 at least while it is not known whether any are to be."""
        return max(self._copying, self._looking, self._changed.is_set())

    def holders_changed(self) -> None:
        """Copies may be gone, or others' pages are ours by now."""
        self._changed.set()

    def nodes_came(self) -> None:
        """There may be somebody to take further copies."""
        if self._counters.pages_undercopied:
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                again = self._counters.pages_undercopied and self._enough_nodes()
                async with asyncio.timeout(AGAIN_S if again else None):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._looking = True
            self._changed.clear()
            await self._look()
            self._looking = False

    async def _look(self) -> None:
        left, cursor = 0, b""
        while cursor is not None:
            scan: Any = partial(
                body_copies.too_few,
                crawl=self._crawl,
                cursor=cursor,
                limit=PAGES_A_SCAN,
                wanted=self._copier.further,
                standing=self._standing,
            )
            short: list[Short]
            short, cursor = await self._committer.submit(scan)
            for first in range(0, len(short), PAGES_AT_ONCE):
                left += await self._copy(short[first : first + PAGES_AT_ONCE])
        self._counters.pages_undercopied = left

    async def _copy(self, short: list[Short]) -> int:
        """Offer some pages to further nodes, and note who has them; how many have too few copies still."""
        self._copying = len(short)
        over = asyncio.get_running_loop().create_future()
        now: dict[bytes, tuple[bytes, ...]] = {}

        def copied(page: bytes, holders: tuple[bytes, ...]) -> None:
            now[page] = holders
            if len(now) == len(short) and not over.done():
                over.set_result(None)

        try:
            for page, holders in short:
                self._copier.copy([page], copied, again=True, has_it=holders)
            await over
        finally:
            self._copying = 0
        changed = [(page, now[page]) for page, holders in short if now[page] != holders]

        def write(txn: Txn) -> None:
            for page, holders in changed:
                body_copies.put_holders(txn, self._crawl, page, holders)

        if changed:
            await self._committer.submit(write)
        return sum(len(holders) < self._copier.further for holders in now.values())
