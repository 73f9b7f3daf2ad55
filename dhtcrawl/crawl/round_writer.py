"""Writes a crawl's progress in rounds: awaits what `round_state` decides, which has the diagram.

A round is one transaction: the bodies that arrived go into the archive, their
pages become `fetched`, the links under way are accepted, pages whose last link
was accepted in an earlier round become `done` (on a node by itself those that
arrived after that at once), tasks that were given up become `dead`. While a
round is being committed the next one gathers (`NextRound`), so that a round,
never a page, pays for an fsync and a thread hop.

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
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from dhtcrawl.crawl import round_state as steps
from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.round_transaction import RoundTransaction
from dhtcrawl.crawl.rounds import CrawlCounters, Fetched, Kill, Listener, Round, RoundResult
from dhtcrawl.crawl.services import Services
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.outputs.outputs import LivePages
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import Link, Queued
from dhtcrawl.storage.store.txn import Txn

log = logging.getLogger(__name__)


@loop_state
class RoundWriter:
    """Writes the rounds of a crawl, as `state` decides."""

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
        self.state = steps.RoundState(next_round, services.ports.ownership, counters)
        self._committer = services.committer
        self._replication = services.ports.replication
        self._next = next_round
        self._transaction = transaction
        self._listener = listener
        self._live = live
        self._unshown: list[dict[str, Any]] = []  # lines of rounds that are on disk, shown with the next one
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        next_round.handed_in.listen(self._handed_in)

    async def room(self) -> None:
        """Return once the backlog has room for another page."""
        await self._room.wait()

    async def run(self) -> None:
        """Commit rounds until `close`, and what is left then.

        Raises:
            StorageError: the disk failed.
        """
        while self.state.phase is not steps.RoundPhase.CLOSED:
            await self._work.wait()
            self._work.clear()
            while (round_ := self.state.begin(self._send(self.state.take_links()))) is not None:
                await self._write(round_)
            await self._show()
            self._listener.settled()

    def close(self) -> None:
        """Let `run` return once all that was handed in is written."""
        self.state.close()
        self._work.set()

    def _handed_in(self) -> None:
        if self._next.overfull:
            self._room.clear()
        self._work.set()

    def _send(self, links: list[Link]) -> list[Link]:
        return self._replication.send(links) if links else []

    async def _write(self, round_: Round) -> None:
        begun_at = asyncio.get_running_loop().time()
        try:
            write = partial(self._transaction.write, round_=round_)
            if self._unshown:
                lines, self._unshown = self._unshown, []
                write = partial(_show_and_write, live=self._live, lines=lines, write=write)
            result = await self._committer.submit(write)
        except BaseException:
            self.state.failed()
            raise
        if log.isEnabledFor(logging.DEBUG):
            took_s, count = asyncio.get_running_loop().time() - begun_at, len(round_.fetched)
            text = "%d responses, %d given-up tasks and %d links were written in %.3f s"
            log.debug(text, count, len(round_.kills), len(round_.links), took_s, extra={"seconds": round(took_s, 6)})
        for step in self.state.written(round_, result):
            self._follow_up(step)
        if result.spared:
            self._listener.spared()
        if not self._next.overfull:
            self._room.set()
        if self._live.shown:
            self._unshown = result.lines

    async def _show(self) -> None:
        """Show what the last round wrote, since none follows that would take it along."""
        if self._unshown:
            lines, self._unshown = self._unshown, []
            # This transaction writes no record, so it costs no fsync.
            await self._committer.submit(partial(_show, live=self._live, lines=lines))

    def _follow_up(self, step: steps.FollowUp) -> None:
        replication = self._replication
        match step:
            case steps.Wrote(fetched, kills):
                self._release(fetched, kills)
            case steps.AckOnceKept(links):
                when_kept, acked = replication.when_kept, self._next.acked
                safe = [link for link in links if not when_kept(link.key, partial(acked, [link]))]
                self._next.done_with(dict.fromkeys(self._next.outbox.acked(safe)))
            case steps.Expect(queued):
                self._listener.expected(queued)
            case steps.Keep(records, links, queued):
                replication.keep(records, partial(self._kept, links, queued))
            case steps.KeepTombstones(records):
                replication.keep(records, partial(self._kept_over, records), over=True)
            case steps.CopyBodies(pages, again):
                replication.copy(pages, self._next.copied, again=again)

    def _release(self, fetched: list[Fetched], kills: list[Kill]) -> None:
        for each in fetched:
            each.body.close()
        over = [(each.host, each.page.key) for each in fetched if each.page is not None]
        over += [(kill.host, kill.key) for kill in kills]
        if over:
            self._listener.written(over)

    def _kept(self, links: list[Link], queued: list[Queued]) -> None:
        if links:
            self._listener.queued(queued)
            self._next.acked(links)

    def _kept_over(self, records: list[TaskReplica]) -> None:
        self._next.safe(record.key for record in records)
        self._listener.settled()


def _show_and_write(
    txn: Txn, live: LivePages, lines: list[dict[str, Any]], write: Callable[[Txn], RoundResult]
) -> RoundResult:
    """Write a round, and show the one before, which is durable."""
    live.append(lines)
    return write(txn)


def _show(_: Txn, live: LivePages, lines: list[dict[str, Any]]) -> None:
    """Append the pages of a round to pages.jsonl for people who watch it."""
    live.append(lines)
