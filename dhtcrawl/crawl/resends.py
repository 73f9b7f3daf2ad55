"""Pages whose links must go out again: read from the archive, and looked through as when they arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from dhtcrawl.crawl import recovery
from dhtcrawl.crawl.discovery import Discovery
from dhtcrawl.crawl.round_writer import RoundWriter
from dhtcrawl.crawl.rounds import Relinked
from dhtcrawl.crawl.services import Services
from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.txn import Txn


class Resends:
    """Of one crawl."""

    def __init__(
        self,
        services: Services,
        crawl: bytes,
        corridor: RoundWriter,
        discovery: Discovery,
        resent: Callable[[], None],
    ) -> None:
        """`resent` is called after each page."""
        self.pending = 0
        self._s = services
        self._crawl = crawl
        self._corridor = corridor
        self._discovery = discovery
        self._resent = resent
        self._pages: asyncio.Queue[bytes] = asyncio.Queue()

    def put(self, page: bytes) -> None:
        """Send the links of the page with this task key."""
        self.pending += 1
        self._pages.put_nowait(page)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            key = await self._pages.get()
            page = await self._s.committer.submit(partial(self._read, key=key))
            if page is None:
                # Its link keys came before it, from a node that leaves or did not end it: whoever has the page sends.
                self._corridor.forget_resend(key)
                self.pending -= 1
                self._resent()
                continue
            look = partial(recovery.look_again, page, self._s.config.fetch.html_bytes_max)
            found = recovery.links_of(page, await self._s.offload(look), self._discovery)
            self._corridor.send_again(key, found.links, Relinked(found.link_keys, found.skipped))
            self.pending -= 1
            self._resent()

    def _read(self, txn: Txn, key: bytes) -> recovery.StoredPage | None:
        """The page, where it is here."""
        if tasks.get_page(txn, self._crawl, key) is None:
            return None
        return recovery.read_page(txn, crawl=self._crawl, key=key, archive=self._s.archive)
