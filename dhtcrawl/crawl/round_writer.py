"""Writes a crawl's progress in rounds, from fetched pages to done ones.

A round is one transaction: the bodies that arrived go into the archive, their
pages become `fetched`, the links under way are accepted, pages whose last link
was accepted in an earlier round become `done`, tasks that were given up become
`dead`. While a round is being committed the next one gathers (`NextRound`), so
that a round, never a page, pays for an fsync and a thread hop.

    page() ─▶ fetched ─┐
              outbox ──┼─▶ round ─▶ commit ─▶ backups ─▶ queued tasks to the frontier
    kill() ─▶ dead ────┤                                 acked links to the outbox
              done ────┘                                 pages without links under way, copied: done

Links that another node owns go out by `Replication.send` and come back by
`NextRound.acked` or `NextRound.put_back`. Records go to the backups by
`Replication.keep` (on a node by itself it returns at once). A page counts as open
until the backups have its tombstone: a crash of this node would make the swarm
fetch it again.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.round_transaction import RoundTransaction
from dhtcrawl.crawl.rounds import CrawlCounters, Listener, Round, RoundResult
from dhtcrawl.crawl.services import Services
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.outputs.outputs import LivePages
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import Link, Queued
from dhtcrawl.storage.store.txn import Txn

LINKS_A_ROUND_MAX = 4096


@loop_state
class RoundWriter:
    """Gathers, commits and follows up one crawl's rounds."""

    def __init__(
        self,
        services: Services,
        next_round: NextRound,
        transaction: RoundTransaction,
        counters: CrawlCounters,
        listener: Listener,
        live: LivePages,
    ) -> None:
        """`listener` is told of the tasks that each round wrote and queued."""
        self.rounds = 0
        self._committer = services.committer
        self._ownership = services.ports.ownership
        self._replication = services.ports.replication
        self._next = next_round
        self._transaction = transaction
        self._counters = counters
        self._listener = listener
        self._live = live
        self._state = _State()
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        next_round.handed_in.listen(self._handed_in)

    @property
    def idle(self) -> bool:
        """Whether everything that was handed in is on disk."""
        return not self._state.busy and self._next.empty

    async def room(self) -> None:
        """Return once the backlog has room for another page."""
        await self._room.wait()

    async def run(self) -> None:
        """Commit rounds until `close`, and what is left then.

        Raises:
            StorageError: the disk failed.
        """
        while True:
            await self._work.wait()
            self._work.clear()
            while (round_ := self._gather()) is not None:
                self._state.busy = True
                result = await self._committer.submit(partial(self._transaction.write, round_=round_))
                self._state.busy = False
                self._after(round_, result)
                # This transaction writes no record, so it costs no fsync.
                await self._committer.submit(partial(_show, live=self._live, lines=result.lines))
            self._listener.settled()
            if self._state.closing:
                return

    def close(self) -> None:
        """Let `run` return once all that was handed in is written."""
        self._state.closing = True
        self._work.set()

    def _handed_in(self) -> None:
        if self._next.overfull:
            self._room.clear()
        self._work.set()

    def _gather(self) -> Round | None:
        links = self._next.outbox.take(LINKS_A_ROUND_MAX)
        if not self._ownership.alone:
            owns = self._ownership.owns
            theirs = [link for link in links if not owns(link.key)]
            if theirs:
                links = [link for link in links if owns(link.key)]
                self._next.outbox.put_back(self._replication.send(theirs))
        return self._next.take(links, self._counters.figures(), self._ownership.snapshot(link.key for link in links))

    def _after(self, round_: Round, result: RoundResult) -> None:
        self.rounds += 1
        self._counters.add(result.counted)
        self._next.resend(result.resend)
        self._next.wrote(round_.fetched, result.refetched)
        for fetched in round_.fetched:
            fetched.body.close()
            if fetched.page is not None:
                self._listener.written(fetched.host, fetched.page.key)
        for kill in round_.kills:
            self._listener.written(kill.host, kill.key)
        self._keep(round_, result)
        self._next.written_without_links(round_.fetched)
        self._copy(round_, result)
        if not self._next.overfull:
            self._room.set()

    def _copy(self, round_: Round, result: RoundResult) -> None:
        """Send the bodies that were written to further nodes, if the crawl wants copies."""
        if not self._next.copying.further:
            return
        written = [f.page.key for f in round_.fetched if f.page is not None and f.page.key not in result.refetched]
        self._next.copying.hold(written)
        for pages, again in ((written, False), (list(round_.relinked), True)):
            if pages:
                self._replication.copy(pages, self._next.copied, again=again)

    def _keep(self, round_: Round, result: RoundResult) -> None:
        """Give the records to the backups; ack links and queue tasks once the backups have them (I1)."""
        keep = self._replication.keep
        changed = {copy.key for copy in result.changed}
        known = [link for link in round_.links if link.key not in changed]
        if not self._ownership.alone:
            known = self._known_and_safe(known, round_)
            # The owner of a page that was fetched here although another node owns it must know soon. So must
            # the backups of an own page that was fetched before: its former place may be gone before it is done.
            owns, again = self._ownership.owns, result.refetched
            arrived = [copy for copy in result.arrived if copy.key in again or not owns(copy.key)]
            if arrived:
                keep(arrived, _nothing)
        self._next.done_with(dict.fromkeys(self._next.outbox.acked(known)))
        fresh = [link for link in round_.links if link.key in changed]
        self._listener.expected(result.queued)
        if result.changed:
            keep(result.changed, partial(self._kept, fresh, result.queued))
        self._next.over_elsewhere(round_.done, {copy.key for copy in result.over})
        if result.over:
            keep(result.over, partial(self._kept_over, result.over), over=True)

    def _known_and_safe(self, known: list[Link], round_: Round) -> list[Link]:
        """The links to known records that are accepted now; the others are acked, or put back, later."""
        # Their records were taken for safe under a claim that has changed: try them under the present one.
        mine = self._ownership.mine
        doubtful = [link for link in known if round_.ownership.mine(link.key) and not mine(link.key)]
        if doubtful:
            self._next.put_back(doubtful)
            known = [link for link in known if link not in doubtful]
        # A record may still be under way to the backups: its link is acked once they have it.
        when_kept = self._replication.when_kept
        return [link for link in known if not when_kept(link.key, partial(self._next.acked, [link]))]

    def _kept(self, links: list[Link], queued: list[Queued]) -> None:
        self._listener.queued(queued)
        self._next.acked(links)

    def _kept_over(self, copies: list[TaskReplica]) -> None:
        self._next.safe(copy.key for copy in copies)
        self._listener.settled()


class _State:
    """Whether a round is being committed, and whether the writer was closed."""

    busy = False
    closing = False


def _show(_: Txn, live: LivePages, lines: list[dict[str, Any]]) -> None:
    """Append the pages of a round to pages.jsonl for people who watch it."""
    if lines:
        live.append(lines)


def _nothing() -> None:
    """Do nothing: no link or task waits for these records."""
