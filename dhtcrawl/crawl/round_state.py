"""When a crawl's rounds are written, and what follows each. Pure.

    GATHERING ──begin──▶ WRITING ──written──▶ GATHERING     the next round gathers while one is written
        │                   └─────failed────▶ FAILED        the disk failed or is full; for good
        └── closed, and nothing is left ────▶ CLOSED

    GATHERING   pages, kills and acks are handed in to `NextRound` at any time, and end up in the next round
    WRITING     what is in the round counts as unwritten: it is neither acknowledged nor sent to backups
    FAILED      writes nothing more and is never idle, so that the crawl is not taken for complete: what the round and
                those after it have is found again on the disk or on the web, at the next start
    CLOSED      what was handed in before is on disk

What a round's transaction has returned is followed up in a fixed order:

    written   the frontier counts the tasks as over, bodies are let go of
    known     links to records that were there are acknowledged, once the backups have these records (I1)
    changed   new records go to the backups; then their links are acknowledged, and the tasks may be fetched
    over      tombstones go to the backups; then their pages are closed
    done      pages without a link under way are in the next round
    bodies    go to further nodes (`--copies`); their pages wait for that
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import NamedTuple, TypeAlias

from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.ports import Ownership
from dhtcrawl.crawl.rounds import CrawlCounters, Fetched, Kill, Round, RoundResult
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import Link, Queued

LINKS_A_ROUND_MAX = 4096


class RoundPhase(Enum):
    """What the writer of rounds is at; the diagram of this module says what each means."""

    GATHERING = "gathering"
    WRITING = "writing"
    FAILED = "failed"
    CLOSED = "closed"


class Wrote(NamedTuple):
    """These outcomes of tasks are on disk."""

    fetched: list[Fetched]
    kills: list[Kill]


class AckOnceKept(NamedTuple):
    """Acknowledge these links, each once no record of its task is under way to backups."""

    links: list[Link]


class Expect(NamedTuple):
    """These tasks are in the store, and not yet on the backups."""

    queued: list[Queued]


class Keep(NamedTuple):
    """Give records to their backups, then acknowledge the links and queue the tasks, if there are any."""

    records: list[TaskReplica]
    links: list[Link]
    queued: list[Queued]


class KeepTombstones(NamedTuple):
    """Give records to their backups, then close their pages."""

    records: list[TaskReplica]


class CopyBodies(NamedTuple):
    """Give bodies to further nodes; with `again` some nodes may have them."""

    pages: list[bytes]
    again: bool


FollowUp: TypeAlias = Wrote | AckOnceKept | Expect | Keep | KeepTombstones | CopyBodies


@loop_state
class RoundState:
    """Says what to do next about the rounds of a crawl, which follow one another."""

    def __init__(self, next_round: NextRound, ownership: Ownership, counters: CrawlCounters) -> None:
        self.phase = RoundPhase.GATHERING
        self.rounds = 0  # that were written
        self._next = next_round
        self._ownership = ownership
        self._counters = counters
        self._links: list[Link] = []  # of the next round
        self._closing = False

    @property
    def idle(self) -> bool:
        """Whether everything that was handed in is on disk."""
        return self.phase in (RoundPhase.GATHERING, RoundPhase.CLOSED) and self._next.empty

    def close(self) -> None:
        """Be CLOSED once nothing is left to write."""
        self._closing = True

    def take_links(self) -> list[Link]:
        """Take links for the next round; those that another node owns are returned, to be sent."""
        self._links = self._next.outbox.take(LINKS_A_ROUND_MAX)
        if self._ownership.alone:
            return []
        taken, owned = self._links, frozenset(self._ownership.owned([link.key for link in self._links]))
        self._links = [link for link in taken if link.key in owned]
        return [link for link in taken if link.key not in owned]

    def begin(self, not_sent: Iterable[Link] = ()) -> Round | None:
        """The round to write now; None if there is nothing to write. `not_sent` are put back in the outbox."""
        self._next.outbox.put_back(not_sent)
        links, self._links = self._links, []
        ownership = self._ownership.snapshot(link.key for link in links)
        alone = self._ownership.alone and not self._next.copying.further
        round_ = self._next.take(links, self._counters.figures(), ownership, alone=alone)
        if round_ is not None:
            self.phase = RoundPhase.WRITING
        elif self._closing:
            self.phase = RoundPhase.CLOSED
        return round_

    def failed(self) -> None:
        """Note that the round was not written, and that none will be."""
        self.phase = RoundPhase.FAILED

    def written(self, round_: Round, result: RoundResult) -> Iterator[FollowUp]:
        """Follow up a round that is on disk. The caller carries out each step before it asks for the next."""
        self.phase = RoundPhase.GATHERING
        self.rounds += 1
        self._counters.add(result.counted)
        self._next.resend(result.resend)
        self._next.wrote(round_.fetched, result.refetched)
        yield Wrote(round_.fetched, round_.kills)
        over = {copy.key for copy in result.over}
        yield from self._records(round_, result, over)
        self._next.written_without_links(round_.fetched, over)
        if self._next.copying.further:
            again = result.refetched
            written = [f.page.key for f in round_.fetched if f.page is not None and f.page.key not in again]
            self._next.copying.hold(written)
            yield from (CopyBodies(*each) for each in ((written, False), (list(round_.relinked), True)) if each[0])

    def _records(self, round_: Round, result: RoundResult, over: set[bytes]) -> Iterator[FollowUp]:
        changed = {copy.key for copy in result.changed}
        known = [link for link in round_.links if link.key not in changed]
        if not self._ownership.alone:
            known = self._trusted(known, round_)
            # The owner of a page that was fetched here although another node owns it must know soon, unless it
            # assigned the page to this node: then it waits for the end. The backups of an own page that was fetched
            # before must know, too: its former place may be gone before it is done.
            own, again = self._ownership, result.refetched
            arrived = [
                copy
                for copy in result.arrived
                if copy.key in again or not (own.owns(copy.key) or own.awaited(copy.key))
            ]
            if arrived:
                yield Keep(arrived, [], [])
        yield AckOnceKept(known)
        yield Expect(result.queued)
        if result.changed:
            yield Keep(result.changed, [link for link in round_.links if link.key in changed], result.queued)
        self._next.over_elsewhere(round_.done, over)
        if result.over:
            yield KeepTombstones(result.over)

    def _trusted(self, known: list[Link], round_: Round) -> list[Link]:
        """The links whose records are safe by the present claim; the others are in the next round once more."""
        # Their records were taken for safe under a claim that has changed: try them under the present one.
        mine = self._ownership.mine
        doubtful = [link for link in known if round_.ownership.mine(link.key) and not mine(link.key)]
        if doubtful:
            self._next.put_back(doubtful)
            keys = {link.key for link in doubtful}
            known = [link for link in known if link.key not in keys]
        return known
