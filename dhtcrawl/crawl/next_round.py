"""Collects what the next round will write, and knows which pages wait for links or copies before they are done. Pure.

Fetchers hand in pages and kills, owners and backups hand in acks, at any time
while a round is being committed. A page is done when none of its links is under
way (`Outbox`), its copies are made (`CopyBarrier`), and no smaller depth was found
for which it must send its links again:

    page() ──▶ links under way ──acked──▶ done ──copied──▶ take() ──▶ committed
                     ▲                     │
                     └──send_again──owing──┘ resend
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dhtcrawl.crawl.copy_barrier import CopyBarrier, Holders
from dhtcrawl.crawl.outbox import Outbox
from dhtcrawl.crawl.places import OpenPages
from dhtcrawl.crawl.resend_queue import ResendQueue
from dhtcrawl.crawl.rounds import Fetched, Kill, Relinked, Round
from dhtcrawl.crawl.wake_up import WakeUp
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.tasks import Link

# Fetchers wait while this much is not on disk yet: memory stays bounded when the
# disk is slower than the web.
BACKLOG_BYTES_MAX = 64 << 20
# Fetchers wait while this many links are under way; a page that is being parsed may still add its own.
BACKLOG_LINKS_MAX = 200_000


class Gathered:
    """All that was handed in since the last round was taken."""

    __slots__ = ("body_bytes", "fetched", "has_aliases", "kills", "owed", "relinked")

    def __init__(self) -> None:
        self.fetched: list[Fetched] = []
        self.kills: list[Kill] = []
        self.relinked: dict[bytes, Relinked] = {}
        self.owed: dict[str, float] = {}
        self.has_aliases = False
        self.body_bytes = 0  # in memory


class NextRound:
    """Takes in pages, kills and acks from the crawl and the swarm, and gives them to the writer as rounds."""

    def __init__(
        self,
        outbox: Outbox,
        copying: CopyBarrier,
        aliases: Sequence[str],
        resends: ResendQueue,
    ) -> None:
        """`aliases` are all stored ones; `send_again` or `forget_resend` follows for each page put into `resends`."""
        self.outbox = outbox
        self.copying = copying
        self.handed_in = WakeUp()
        self.unwritten_pages = 0  # pages that arrived and are not counted yet
        self.open_pages = OpenPages()  # that arrived in this run, and whose end the backups do not know
        self.resends = resends
        self._aliases = list(aliases)
        self._gathered = Gathered()
        self._done: dict[bytes, None] = {}
        self._owing: set[bytes] = set()  # pages whose links are to be sent again

    @property
    def empty(self) -> bool:
        """Whether nothing was handed in, and no link is under way."""
        handed = self._gathered
        return not (handed.fetched or handed.kills or self._done or len(self.outbox) or handed.has_aliases)

    @property
    def overfull(self) -> bool:
        """Whether fetchers are to wait."""
        return self._gathered.body_bytes >= BACKLOG_BYTES_MAX or len(self.outbox) >= BACKLOG_LINKS_MAX

    # -- called by the crawl and the swarm --

    def page(self, fetched: Fetched, links: list[Link], alias: str | None, under_way: Sequence[bytes] = ()) -> None:
        """Take a page that arrived, with the links to send, and the keys of those that are `under_way`."""
        assert fetched.page is not None
        self.open_pages.add(fetched.page.key, fetched.body.size)
        if alias is not None:
            self._aliases.append(alias)
            self._gathered.has_aliases = True
        self.outbox.add(fetched.page.key, links, under_way)
        self.unwritten_pages += 1
        self.archive(fetched)

    def archive(self, fetched: Fetched) -> None:
        """Take a response to archive: a page's, or one that is no page."""
        self._gathered.fetched.append(fetched)
        self._gathered.body_bytes += 0 if fetched.body.spooled else fetched.body.size
        self.handed_in()

    def kill(self, kill: Kill) -> None:
        """Take a task that was given up."""
        self._gathered.kills.append(kill)
        self.handed_in()

    def owe(self, host: str, wait_s: float) -> None:
        """Store that a restart must leave `host` alone for `wait_s`; 0 takes that back."""
        self._gathered.owed[host] = wait_s
        self.handed_in()

    def acked(self, links: list[Link]) -> None:
        """The owners of these links have them."""
        self.done_with(dict.fromkeys(self.outbox.acked(links)))
        self.handed_in()

    def put_back(self, links: list[Link]) -> None:
        """Send links again that did not reach their owner; another node may have become the owner."""
        self.outbox.put_back(links)
        self.handed_in()

    def resend(self, pages: Iterable[bytes]) -> None:
        """Send the links of these pages again before the pages are done, for instance at a smaller depth."""
        # Acks of the links that went out before must not make the page done: its
        # mark would be removed, and a crash would lose the resend.
        for page in pages:
            self._owing.add(page)
            self._done.pop(page, None)
            self.resends.put(page)

    def lost(self, page: bytes, links: Iterable[bytes]) -> None:
        """Send links of a page again whose owner acknowledged them, but no longer has a record of them."""
        for link in links:
            self.outbox.forget(link)
        self.resend([page])

    def send_again(self, page: bytes, links: list[Link], found: Relinked, under_way: Sequence[bytes] = ()) -> None:
        """The same of a page that is fetched but not done; `found` is stored for the page."""
        self._owing.discard(page)
        if page not in self._gathered.relinked:
            self.copying.hold([page])  # once for each entry of `relinked`: it is copied when that is written
        self._gathered.relinked[page] = found
        if self.outbox.add(page, links, under_way):
            self._done[page] = None
        self.handed_in()

    def forget_resend(self, page: bytes) -> None:
        """Drop a resend, because the page is not on this node."""
        self._owing.discard(page)
        self.handed_in()

    def copied(self, page: bytes, holders: Holders) -> None:
        """A copy job of a page ended: `holders` have its body, and no more nodes will get it."""
        self.copying.copied(page, holders)
        self.handed_in()

    # -- called by the writer --

    def take(
        self, links: list[Link], counters: dict[str, int | float], ownership: OwnershipSnapshot, *, alone: bool = False
    ) -> Round | None:
        """The round to write now, with these links to accept and the counters by name; None: there is nothing.

        On a node that is `alone` pages whose links are acked already are done in the round in which they are written.
        """
        handed = self._gathered
        settled: list[bytes] = []
        for fetched in handed.fetched:
            if fetched.page is not None:
                # All its links may have been acked already: `written_without_links` finds it once it is written.
                key = fetched.page.key
                self._done.pop(key, None)
                if alone and key not in self._owing and not self.outbox.waits(key):
                    settled.append(key)
        done, self._done = self.copying.pass_through(self._done)
        to_copy = handed.relinked if self.copying.further else {}  # copied once they are written
        if not (handed.fetched or handed.kills or done or links or handed.has_aliases or to_copy or handed.owed):
            return None
        self._gathered = Gathered()
        return Round(
            handed.fetched,
            handed.kills,
            links,
            done,
            list(self._aliases) if handed.has_aliases else None,
            handed.relinked,
            handed.owed,
            self.copying.take(done),
            counters,
            ownership,
            frozenset(settled),
        )

    def wrote(self, fetched: Iterable[Fetched], refetched: set[bytes]) -> None:
        """Note that these are on disk; the store had the pages in `refetched` before."""
        for each in fetched:
            if each.page is None:
                continue
            self.unwritten_pages -= 1
            if each.page.key in refetched:
                self.open_pages.close(each.page.key)

    def done_with(self, pages: dict[bytes, None]) -> None:
        """Every link of these pages is acked."""
        self._done.update((page, None) for page in pages if page not in self._owing)

    def written_without_links(self, fetched: Iterable[Fetched], over: set[bytes]) -> None:
        """Mark those of these pages, which are on disk, as done that have no link under way; those in `over` are it."""
        # A page's links were handed in together with the page, so none of them can come later.
        pages = [each.page.key for each in fetched if each.page is not None and each.page.key not in over]
        self.done_with({page: None for page in pages if not self.outbox.waits(page)})

    def over_elsewhere(self, done: Iterable[bytes], over: set[bytes]) -> None:
        """Close pages that are done here, but not `over`: other nodes have their records, so no tombstone is sent."""
        for page in done:
            if page not in over and page not in self._owing:
                self.open_pages.close(page)

    def safe(self, pages: Iterable[bytes]) -> None:
        """The backups have the tombstones of these pages."""
        for page in pages:
            self.open_pages.close(page)
