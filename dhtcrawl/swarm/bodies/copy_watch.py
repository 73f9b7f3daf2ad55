"""Gives further copies to pages of ours that have too few (design invariant I11, `--copies`).

A copy counts while its node is there, or may come back within the grace, or left it to an heir. A page has too few
because nodes are gone for good or refused, or because there were not enough. It is offered again when nodes come, when
further ones are given up, and every `AGAIN_S` while there are enough nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.archive.body_copies import Short
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.bodies.copier import Copier

PAGES_A_SCAN: Final = 2_000
PAGES_AT_ONCE: Final = 256
# A disk that was full may have room again.
AGAIN_S: Final = 60.0

Holder = Callable[[bytes], "bytes | None"]  # the node that has what a node had; None: no node any more


@loop_state
class CopyWatch:
    """Watches the copies of a crawl's pages on one node."""

    def __init__(
        self,
        committer: Committer,
        crawl: bytes,
        copier: Copier,
        counters: CrawlCounters,
        *,
        standing: Callable[[], Holder],
        enough_nodes: Callable[[], bool],
    ) -> None:
        """`standing()` returns an immutable function: the node that has what another had, as known at this moment."""
        self._copying = 0
        self._looking = False
        self._committer = committer
        self._crawl = crawl
        self._copier = copier
        self._counters = counters
        self._standing = standing
        self._enough_nodes = enough_nodes
        self._changed = asyncio.Event()
        if counters.pages and copier.further:
            self._changed.set()  # from an earlier run: nodes may have gone meanwhile

    @property
    def under_way(self) -> int:
        """Pages that are being copied once more; at least 1 while it is not known whether any are to be."""
        return max(self._copying, self._looking, self._changed.is_set())

    def holders_changed(self) -> None:
        """Note that copies may be gone, or others' pages may be ours now."""
        self._changed.set()

    def nodes_came(self) -> None:
        """Note that there may be nodes for further copies."""
        if self._counters.pages_undercopied:
            self._changed.set()

    async def run(self) -> None:
        """Look for pages with too few copies, and copy them; until cancelled."""
        while True:
            try:
                # Rounds count further pages meanwhile, and wake nobody.
                async with asyncio.timeout(AGAIN_S):
                    await self._changed.wait()
            except TimeoutError:
                if not (self._counters.pages_undercopied and self._enough_nodes()):
                    continue
            self._looking = True
            self._changed.clear()
            await self._look()
            self._looking = False

    async def _look(self) -> None:
        cursor: bytes | None = b""
        while cursor is not None:
            scan: Any = partial(
                body_copies.too_few,
                crawl=self._crawl,
                cursor=cursor,
                limit=PAGES_A_SCAN,
                wanted=self._copier.further,
                standing=self._standing(),
            )
            short: list[Short]
            short, cursor = await self._committer.submit(scan)
            for first in range(0, len(short), PAGES_AT_ONCE):
                await self._copy(short[first : first + PAGES_AT_ONCE])

    async def _copy(self, short: list[Short]) -> None:
        """Offer some pages to further nodes, and note the holders."""
        self._copying = len(short)
        over = asyncio.get_running_loop().create_future()
        now: dict[bytes, tuple[bytes, ...]] = {}

        def copied(page: bytes, holders: tuple[bytes, ...]) -> None:
            now[page] = holders
            if len(now) == len(short) and not over.done():
                over.set_result(None)

        try:
            for page in short:
                self._copier.copy([page.key], copied, again=True, has_it=page.holders)
            await over
        finally:
            self._copying = 0
        # A list that names nodes which are gone is written anew, too: the figure counts by these lists.
        changed = {
            page.key: now[page.key]
            for page in short
            if now[page.key] != page.holders or len(page.holders) != page.noted
        }
        if changed:
            write = partial(_note, crawl=self._crawl, changed=changed, wanted=self._copier.further)
            # A round changes the counter meanwhile: it is read after the transaction, not before.
            grew = await self._committer.submit(write)
            self._counters.pages_undercopied += grew


def _note(txn: Txn, crawl: bytes, changed: Mapping[bytes, tuple[bytes, ...]], wanted: int) -> int:
    """Note the holders of these pages; by how much the number of pages with too few copies grew."""
    return sum(body_copies.note_holders(txn, crawl, page, holders, wanted) for page, holders in changed.items())
