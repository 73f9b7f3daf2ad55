"""Sends the links of pages again: reads the pages from the archive and analyses them as when they arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from dhtcrawl.crawl import recovery
from dhtcrawl.crawl.discovery import Discovery
from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.record_finder import Finder
from dhtcrawl.crawl.rounds import CrawlStart, Relinked
from dhtcrawl.crawl.services import Services
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.archive.archive import Archive
from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.txn import Txn


@loop_state
class Resends:
    """Hands in the links of the pages in the `ResendQueue` of a `NextRound`."""

    def __init__(
        self,
        services: Services,
        start: CrawlStart,
        next_round: NextRound,
        discovery: Discovery,
        finder: Finder | None,
        resent: Callable[[], None],
    ) -> None:
        """`finder` is that of `record_finder`; `resent` is called after each page."""
        self._s = services
        self._start = start
        self._pages = next_round.resends
        self._next = next_round
        self._discovery = discovery
        self._finder = finder
        self._resent = resent
        self._added = asyncio.Event()
        self._pages.added.listen(self._added.set)

    async def run(self) -> None:
        """Work through the queue until cancelled.

        Raises:
            StorageError: a page cannot be read.
        """
        while True:
            while (key := self._pages.take()) is None:
                self._added.clear()
                await self._added.wait()
            html_bytes_max = self._s.config.fetch.html_bytes_max
            crawl = self._start.crawl_id
            read = partial(_read, crawl=crawl, key=key, archive=self._s.archive, html_bytes_max=html_bytes_max)
            page = await self._s.committer.submit(read)
            if page is None:
                # Only the page's link keys came, from a node that leaves or did not end it: the page's node sends them.
                self._next.forget_resend(key)
                self._pages.done()
                self._resent()
                continue
            find = None if self._finder is None else self._finder(page.task.url)
            look = partial(recovery.look_again, page, html_bytes_max, find, self._discovery.token)
            found = await recovery.links_of(page, await self._s.offload(look), self._discovery)
            relinked = Relinked(found.link_keys, page.task.depth, found.skipped, self._start.depth_limit)
            self._next.send_again(key, found.links, relinked, found.under_way)
            self._pages.done()
            self._resent()


def _read(txn: Txn, crawl: bytes, key: bytes, archive: Archive, html_bytes_max: int) -> recovery.StoredPage | None:
    """The page, or None if it is not on this node."""
    if tasks.get_page(txn, crawl, key) is None:
        return None
    return recovery.read_page(txn, crawl=crawl, key=key, archive=archive, html_bytes_max=html_bytes_max)
