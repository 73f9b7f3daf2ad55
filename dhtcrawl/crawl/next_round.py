"""What the next round will write, and which pages wait for links or copies before they are done.

Fetchers hand in pages and kills, owners and backups hand in acks, at any time
while a round is being committed. A page is done when none of its links is under
way (`Outbox`), its copies are made (`CopyBarrier`), and no shorter way asks it to
send its links again:

    page() ──▶ links under way ──acked──▶ done ──copied──▶ take() ──▶ committed
                     ▲                     │
                     └──send_again──owing──┘ resend
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dhtcrawl.crawl.copy_barrier import CopyBarrier, Holders
from dhtcrawl.crawl.outbox import Outbox
from dhtcrawl.crawl.resend_queue import ResendQueue
from dhtcrawl.crawl.rounds import CrawlCounters, Fetched, Kill, Relinked, Round
from dhtcrawl.crawl.wake_up import WakeUp
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.tasks import Link

# A fetcher waits when this much is not on disk yet: memory stays bounded when
# the disk is slower than the web.
BACKLOG_BYTES_MAX = 64 << 20
# Links under way do not stop the parser, but the next fetch.
BACKLOG_LINKS_MAX = 200_000


@dataclass(slots=True)
class Gathered:
    """What was handed in since the last round."""

    fetched: list[Fetched] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    relinked: dict[bytes, Relinked] = field(default_factory=dict)
    owed: dict[str, float] = field(default_factory=dict)
    has_aliases: bool = False
    body_bytes: int = 0  # in memory


class NextRound:
    """The writer's side that the rest of the crawl, and the swarm, hand things to."""

    def __init__(
        self,
        outbox: Outbox,
        copying: CopyBarrier,
        aliases: Sequence[str],
        resends: ResendQueue,
    ) -> None:
        """`aliases` are all that are stored; `send_again` follows for each page that is put into `resends`."""
        self.outbox = outbox
        self.copying = copying
        self.handed_in = WakeUp()
        self.unwritten_pages = 0  # that arrived and are not counted yet
        # Task keys of pages that arrived in this run and of which the backups do not know.
        self.open_pages: dict[bytes, None] = {}
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

    # What is handed in

    def page(self, fetched: Fetched, links: list[Link], alias: str | None) -> None:
        """A page arrived, with the links to send."""
        assert fetched.page is not None
        self.open_pages[fetched.page.key] = None
        if alias is not None:
            self._aliases.append(alias)
            self._gathered.has_aliases = True
        self.outbox.add(fetched.page.key, links)
        self.unwritten_pages += 1
        self.archive(fetched)

    def archive(self, fetched: Fetched) -> None:
        """Something arrived that is to be archived."""
        self._gathered.fetched.append(fetched)
        self._gathered.body_bytes += 0 if fetched.body.spooled else fetched.body.size
        self.handed_in()

    def kill(self, kill: Kill) -> None:
        """A task is given up."""
        self._gathered.kills.append(kill)
        self.handed_in()

    def owe(self, host: str, wait_s: float) -> None:
        """A restart is to leave `host` alone for `wait_s`; 0 takes that back."""
        self._gathered.owed[host] = wait_s
        self.handed_in()

    def acked(self, links: list[Link]) -> None:
        """The owners of these links have them."""
        self.done_with(dict.fromkeys(self.outbox.acked(links)))
        self.handed_in()

    def put_back(self, links: list[Link]) -> None:
        """These did not reach their owner; it may be another by now."""
        self.outbox.put_back(links)
        self.handed_in()

    def resend(self, pages: Iterable[bytes]) -> None:
        """A shorter way to these pages was found: their links go out again before they are done."""
        # Those that went out before do not make it done: the mark would be
        # gone, and a crash would lose the rest.
        for page in pages:
            self._owing.add(page)
            self._done.pop(page, None)
            self.resends.put(page)

    def lost(self, page: bytes, links: Iterable[bytes]) -> None:
        """No owner has a record of these links of a page any more, though one acknowledged them: they go out again."""
        for link in links:
            self.outbox.forget(link)
        self.resend([page])

    def send_again(self, page: bytes, links: list[Link], found: Relinked) -> None:
        """The links to send of a page that is fetched but not done, and what there is to note of all its links."""
        self._owing.discard(page)
        if page not in self._gathered.relinked:
            self.copying.hold([page])  # as it will be then
        self._gathered.relinked[page] = found
        if self.outbox.add(page, links):
            self._done[page] = None
        self.handed_in()

    def forget_resend(self, page: bytes) -> None:
        """There is nothing to send again: the page is not here."""
        self._owing.discard(page)
        self.handed_in()

    def copied(self, page: bytes, holders: Holders) -> None:
        """So many nodes have a page's body, and no more will."""
        self.copying.copied(page, holders)
        self.handed_in()

    # What the writer asks

    def take(self, links: list[Link], counters: CrawlCounters, ownership: OwnershipSnapshot) -> Round | None:
        """The round to write now, with these links to accept; None where there is nothing to write."""
        handed = self._gathered
        for fetched in handed.fetched:
            if fetched.page is not None:
                # Its links may all have been acked for other pages; it is looked at again once it is written.
                self._done.pop(fetched.page.key, None)
        done, self._done = self.copying.pass_through(self._done)
        to_copy = handed.relinked if self.copying.further else {}  # as they are then
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
        )

    def wrote(self, fetched: Iterable[Fetched], refetched: set[bytes]) -> None:
        """These are on disk; of `refetched` the store had a page before."""
        for each in fetched:
            if each.page is None:
                continue
            self.unwritten_pages -= 1
            if each.page.key in refetched:
                self.open_pages.pop(each.page.key, None)

    def done_with(self, pages: dict[bytes, None]) -> None:
        """Of these pages every link is acked."""
        self._done.update((page, None) for page in pages if page not in self._owing)

    def written_without_links(self, fetched: Iterable[Fetched]) -> None:
        """Of these, which are on disk, those are done that have no link under way."""
        # A page's links were handed in together with it, so that whatever is
        # acked now belongs to a page that is written by now.
        pages = [each.page.key for each in fetched if each.page is not None]
        self.done_with({page: None for page in pages if not self.outbox.waits(page)})

    def over_elsewhere(self, done: Iterable[bytes], over: set[bytes]) -> None:
        """Of pages that are done here, those that are not `over` have their record at other nodes: none to give on."""
        for page in done:
            if page not in over and page not in self._owing:
                self.open_pages.pop(page, None)

    def safe(self, pages: Iterable[bytes]) -> None:
        """The backups have the end of these."""
        for page in pages:
            self.open_pages.pop(page, None)
