"""From fetched pages to done ones: everything of a crawl that is written, in rounds.

A round is one transaction: the bodies that arrived go into the archive, their
pages become `fetched`, the links under way are accepted, pages whose last link
was accepted in an earlier round become `done`, tasks without hope become
`dead`. While a round is being committed the next one gathers, so that the
price of an fsync and of a thread hop is paid by a round, never by a page.

    page() ─▶ fetched ─┐
              outbox ──┼─▶ round ─▶ commit ─▶ backups ─▶ queued tasks to the frontier
    kill() ─▶ dead ────┤                                 acked links to the outbox
              done ────┘                                 pages without links under way, copied: done

Links that another node owns leave through `Replication.send` and come back by
`acked` or `put_back`. What was written goes to the backups through
`Replication.keep` (for a node by itself, that is over at once); until
the tombstone of a page is there, the page counts as open: it is what a crash
of this node would make the swarm fetch again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from dhtcrawl.crawl.copy_barrier import CopyBarrier, Holders
from dhtcrawl.crawl.outbox import Outbox
from dhtcrawl.crawl.round_transaction import RoundTransaction
from dhtcrawl.crawl.rounds import CrawlCounters, Fetched, Kill, Listener, Relinked, Round, RoundResult
from dhtcrawl.crawl.services import Services
from dhtcrawl.storage.outputs.outputs import LivePages
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import Link, Queued
from dhtcrawl.storage.store.txn import Txn

LINKS_A_ROUND_MAX = 4096

# A fetcher waits when this much is not on disk yet: memory stays bounded when
# the disk is slower than the web.
BACKLOG_BYTES_MAX = 64 << 20
# Links under way do not stop the parser, but the next fetch.
BACKLOG_LINKS_MAX = 200_000


class RoundWriter:
    """Writes one crawl's progress."""

    def __init__(
        self,
        services: Services,
        crawl: bytes,
        counters: CrawlCounters,
        listener: Listener,
        *,
        depth_matters: bool,
        orders: Iterator[int],
        aliases: list[str],
        live: LivePages,
        copies: int = 1,
    ) -> None:
        self.counters = counters
        self.copying = CopyBarrier(copies - 1)
        self.outbox = Outbox(depth_matters=depth_matters)
        self._services = services
        self._listener = listener
        self._transaction = RoundTransaction(crawl, services.archive, orders, depth_matters, copies - 1)
        self._aliases = aliases
        self._new_aliases: list[str] = []
        self._live = live
        self._owed: dict[str, float] = {}
        self._fetched: list[Fetched] = []
        self._kills: list[Kill] = []
        self._done: dict[bytes, None] = {}
        self._relinked: dict[bytes, Relinked] = {}
        self._owing: set[bytes] = set()  # pages whose links are to be sent again
        self._backlog_bytes = 0
        self._pages_unwritten = 0
        self._open: dict[bytes, None] = {}
        self.rounds = 0
        self._busy = False
        self._closing = False
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    @property
    def idle(self) -> bool:
        """Everything that was handed in is on disk."""
        return not (self._busy or self._fetched or self._kills or self._done or len(self.outbox) or self._new_aliases)

    @property
    def unwritten_pages(self) -> int:
        """Pages that arrived and are not counted yet."""
        return self._pages_unwritten

    @property
    def open_pages(self) -> dict[bytes, None]:
        """Task keys of pages that arrived in this run and of which the backups do not know."""
        return self._open

    def acked(self, links: list[Link]) -> None:
        """Their owners have these."""
        self._done_with(dict.fromkeys(self.outbox.acked(links)))
        self._work.set()

    def resend(self, pages: Iterable[bytes]) -> None:
        """A shorter way to these pages was found: their links go out again before they are done."""
        # Those that went out before do not make it done: the mark would be
        # gone, and a crash would lose the rest.
        for page in pages:
            self._owing.add(page)
            self._done.pop(page, None)
            self._listener.resend(page)

    def lost(self, page: bytes, links: Iterable[bytes]) -> None:
        """No owner has a record of these links of a page any more, though one acknowledged them: they go out again."""
        for link in links:
            self.outbox.forget(link)
        self.resend([page])

    def put_back(self, links: list[Link]) -> None:
        """These did not reach their owner; it may be another by now."""
        self.outbox.put_back(links)
        self._work.set()

    def page(self, fetched: Fetched, links: list[Link], alias: str | None) -> None:
        """A page arrived, with the links to send."""
        assert fetched.page is not None
        self._open[fetched.page.key] = None
        if alias is not None:
            self._new_aliases.append(alias)
        self.outbox.add(fetched.page.key, links)
        self._pages_unwritten += 1
        self.archive(fetched)

    def archive(self, fetched: Fetched) -> None:
        """Something arrived that is to be archived."""
        self._fetched.append(fetched)
        self._backlog_bytes += 0 if fetched.body.spooled else fetched.body.size
        if self._overfull():
            self._room.clear()
        self._work.set()

    def kill(self, kill: Kill) -> None:
        """A task has no hope."""
        self._kills.append(kill)
        self._work.set()

    def send_again(self, page: bytes, links: list[Link], found: Relinked) -> None:
        """The links to send of a page that is fetched but not done, and what there is to note of all its links."""
        self._owing.discard(page)
        if page not in self._relinked:
            self.copying.hold([page])  # as it will be then
        self._relinked[page] = found
        if self.outbox.add(page, links):
            self._done[page] = None
        self._work.set()

    def forget_resend(self, page: bytes) -> None:
        """There is nothing to send again: the page is not here."""
        self._owing.discard(page)
        self._work.set()

    def owe(self, host: str, wait_s: float) -> None:
        """A restart is to leave `host` alone for `wait_s`; 0 takes that back."""
        self._owed[host] = wait_s
        self._work.set()

    async def room(self) -> None:
        """Return once a fetcher may bring more."""
        await self._room.wait()

    async def run(self) -> None:
        """Commit rounds until `close`, and what is left then."""
        while True:
            await self._work.wait()
            self._work.clear()
            while (round_ := self._gather()) is not None:
                self._busy = True
                result = await self._services.committer.submit(partial(self._transaction.write, round_=round_))
                self._busy = False
                self._after(round_, result)
                # Writes no record, so costs no fsync.
                await self._services.committer.submit(partial(_show, live=self._live, lines=result.lines))
            self._listener.settled()
            if self._closing:
                return

    def close(self) -> None:
        """No more will be handed in."""
        self._closing = True
        self._work.set()

    def _overfull(self) -> bool:
        return self._backlog_bytes >= BACKLOG_BYTES_MAX or len(self.outbox) >= BACKLOG_LINKS_MAX

    def _gather(self) -> Round | None:
        ports = self._services.ports
        links = self.outbox.take(LINKS_A_ROUND_MAX)
        if not ports.ownership.alone:
            theirs = [link for link in links if not ports.ownership.owns(link.key)]
            if theirs:
                links = [link for link in links if ports.ownership.owns(link.key)]
                self.outbox.put_back(ports.replication.send(theirs))
        for fetched in self._fetched:
            if fetched.page is not None:
                # Its links may all have been acked for other pages; it is looked at again once it is written.
                self._done.pop(fetched.page.key, None)
        done, self._done = self.copying.pass_through(self._done)
        relinked = self._relinked if self.copying.further else {}  # to be copied as they are then
        if not (self._fetched or self._kills or done or links or self._new_aliases or relinked or self._owed):
            return None
        copied = self.copying.take(done)
        if self._new_aliases:
            self._aliases = [*self._aliases, *self._new_aliases]
        round_ = Round(
            self._fetched,
            self._kills,
            links,
            done,
            self._aliases if self._new_aliases else None,
            self._relinked,
            self._owed,
            copied,
            self.counters.copy(),
            ports.ownership.snapshot(link.key for link in links),
        )
        self._fetched, self._kills, self._new_aliases = [], [], []
        self._relinked, self._owed = {}, {}
        self._backlog_bytes = 0
        return round_

    def _after(self, round_: Round, result: RoundResult) -> None:
        self.rounds += 1
        self.counters.add(result.counted)
        self.resend(result.resend)
        for fetched in round_.fetched:
            self._arrived(fetched, result)
        for kill in round_.kills:
            self._listener.written(kill.host, kill.key)
        self._keep(round_, result)
        # A page's links were handed in together with it, so that whatever is
        # acked now belongs to a page that is written by now.
        self._done_with(
            {f.page.key: None for f in round_.fetched if f.page is not None and not self.outbox.waits(f.page.key)}
        )
        self._copy(round_, result)
        if not self._overfull():
            self._room.set()

    def _copy(self, round_: Round, result: RoundResult) -> None:
        """What was written goes to further nodes, where the crawl wants it there."""
        if not self.copying.further:
            return
        ports = self._services.ports
        written = [f.page.key for f in round_.fetched if f.page is not None and f.page.key not in result.refetched]
        self.copying.hold(written)
        for pages, again in ((written, False), (list(round_.relinked), True)):
            if pages:
                ports.replication.copy(pages, self._copied, again=again)

    def _copied(self, page: bytes, holders: Holders) -> None:
        self.copying.copied(page, holders)
        self._work.set()

    def _arrived(self, fetched: Fetched, result: RoundResult) -> None:
        fetched.body.close()
        page = fetched.page
        if page is None:
            return
        self._pages_unwritten -= 1
        if page.key in result.refetched:
            self._open.pop(page.key, None)
        self._listener.written(fetched.host, page.key)

    def _keep(self, round_: Round, result: RoundResult) -> None:
        """Give what was written to the backups; ack links, and queue tasks, once they have it (I1)."""
        ports = self._services.ports
        changed = {copy.key for copy in result.changed}
        known = [link for link in round_.links if link.key not in changed]
        if not ports.ownership.alone:
            # The claim under which their records were taken for safe is gone: look at them under the one of now.
            doubtful = [
                link for link in known if round_.ownership.mine(link.key) and not ports.ownership.mine(link.key)
            ]
            if doubtful:
                self.put_back(doubtful)
                known = [link for link in known if link not in doubtful]
            # Somebody sent it a moment ago: as good as accepted, once the backups have it.
            known = [link for link in known if not ports.replication.when_kept(link.key, partial(self.acked, [link]))]
            # The owner of a page that was fetched here nevertheless is to know it soon.
            arrived = [copy for copy in result.arrived if not ports.ownership.owns(copy.key)]
            if arrived:
                ports.replication.keep(arrived, _nothing)
        self._done_with(dict.fromkeys(self.outbox.acked(known)))
        fresh = [link for link in round_.links if link.key in changed]
        self._listener.expected(result.queued)
        if result.changed:
            ports.replication.keep(result.changed, partial(self._kept, fresh, result.queued))
        over = {copy.key for copy in result.over}
        for page in round_.done:
            if page not in over and page not in self._owing:
                self._open.pop(page, None)  # other nodes have its record by now: nothing to bury
        if result.over:
            ports.replication.keep(result.over, partial(self._buried, result.over), over=True)

    def _kept(self, links: list[Link], queued: list[Queued]) -> None:
        self._listener.queued(queued)
        self.acked(links)

    def _buried(self, copies: list[TaskReplica]) -> None:
        for copy in copies:
            self._open.pop(copy.key, None)
        self._listener.settled()

    def _done_with(self, pages: dict[bytes, None]) -> None:
        """Pages of which every link is acked."""
        self._done.update((page, None) for page in pages if page not in self._owing)


def _show(_: Txn, live: LivePages, lines: list[dict[str, Any]]) -> None:
    """Let whoever watches pages.jsonl see the pages of a round."""
    if lines:
        live.append(lines)


def _nothing() -> None:
    """Nobody waits for it."""
