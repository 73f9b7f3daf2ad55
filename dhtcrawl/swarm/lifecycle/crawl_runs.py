"""The crawls that run at one node: what starts, holds and ends them.

A crawl that has not ended, by its record, runs here. When its record says that it has, the run ends and writes what
this node has of it. Where the node was killed before it had, a run that begins nothing does so, once the node knows
again what is its own. Work that is left here opens the crawl again (`dhtcrawl.swarm.lifecycle.reopen_check`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Protocol

from dhtcrawl.crawl.parts import CrawlParts
from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.ownership import OwnershipSnapshot, Test
from dhtcrawl.storage.store.replicas import Merged
from dhtcrawl.swarm.assignment.assignments import Assignments
from dhtcrawl.swarm.bodies.copying import CopiedRun
from dhtcrawl.swarm.claim import KeyClaim
from dhtcrawl.swarm.lifecycle.board import Board
from dhtcrawl.swarm.lifecycle.coordinator import Coordinator
from dhtcrawl.swarm.lifecycle.crawl_records import CrawlRecords
from dhtcrawl.swarm.lifecycle.reopen_check import ReopenCheck
from dhtcrawl.swarm.records.holdings import RecordTerms
from dhtcrawl.swarm.records.merger import InboxRun


class GuidedRun(Protocol):
    """The run of a crawl, as it is told what happens around it."""

    @property
    def draining(self) -> bool:
        """Whether something that was begun is not over."""
        ...

    def view_changed(self, view: View) -> None: ...

    def settle(self, view: View | None) -> None: ...

    def changed(self, record: CrawlRecord) -> bool:
        """The crawl's record has changed; whether the run ends for that."""
        ...

    def hold(self, hold: bool) -> None: ...

    def host_free(self, host: str) -> None: ...

    def interrupt(self) -> None:
        """End this run; the crawl goes on when the node is back."""
        ...


class AskedRun(CopiedRun, InboxRun, Protocol):
    """The run of a crawl, as other nodes' calls and this node's other parts ask for its sides."""

    @property
    def parts(self) -> CrawlParts: ...

    @property
    def counters(self) -> CrawlCounters: ...

    @property
    def assignments(self) -> Assignments: ...

    @property
    def board(self) -> Board: ...

    @property
    def coordinator(self) -> Coordinator: ...

    def in_flight(self, key: bytes) -> bool:
        """Whether a task's record must stay."""
        ...


class RunningHere(GuidedRun, AskedRun, Protocol):
    """A crawl that runs here."""


StartRun = Callable[[CrawlRecord], Awaitable[RunningHere]]


@loop_state
class _Runs:
    """The runs of now, and the counters of those that are over; of each crawl one of both, `CRAWLS_MAX` at most."""

    def __init__(self) -> None:
        self.now: dict[bytes, RunningHere] = {}
        self.counted: dict[bytes, CrawlCounters] = {}
        self.unwritten: list[bytes] = []  # crawls of which the node did not come to write what it has

    def begin(self, crawl: bytes, run: RunningHere) -> None:
        self.now[crawl] = run
        self.counted.pop(crawl, None)  # a run goes on with the counters of the one before

    def end(self, crawl: bytes) -> None:
        run = self.now.pop(crawl, None)
        if run is not None:
            self.counted[crawl] = run.counters


@loop_state
class _Life:
    """What the node is at, as far as it matters to its runs."""

    def __init__(self) -> None:
        self.joining = False  # once more: it is told when it has
        self.leaving = False  # for good
        self.stopping = False  # for good

    @property
    def held(self) -> bool:
        """Whether nothing is started in any crawl."""
        return self.joining or self.leaving


@loop_state
class CrawlRuns:
    """Starts and ends the runs of one node's crawls, and tells them what happens around them."""

    def __init__(self, peers: Peers, records: CrawlRecords, committer: Committer, group: asyncio.TaskGroup) -> None:
        self._peers = peers
        self.records = records
        self._ran = _Runs()
        self._start: StartRun | None = None
        self._starting: dict[bytes, None] = {}
        self._settled: View | None = None
        self._group = group
        self._over_here: set[bytes] = set()  # runs that end before the node does, and write what they have
        self._reopen_check = ReopenCheck(committer, group, over=self._over, claims=self._claims, reopen=records.publish)
        self._gone = asyncio.Event()
        self._life = _Life()
        records.on_change.append(self._changed)

    def __iter__(self) -> Iterator[tuple[bytes, RunningHere]]:
        return iter(self._ran.now.items())

    def __len__(self) -> int:
        return len(self._ran.now)

    def of(self, crawl: bytes) -> RunningHere | None:
        """The run of a crawl that has not ended."""
        return self._ran.now.get(crawl)

    async def once_made(self, crawl: bytes) -> RunningHere | None:
        """The run of a crawl, also of one that is just being made; None where there is none."""
        while crawl in self._starting:
            self._gone.clear()
            await self._gone.wait()
        return self.of(crawl)

    @property
    def counters(self) -> Iterator[CrawlCounters]:
        """Of all crawls that ran here since the node was started, those that have ended included."""
        yield from self._ran.counted.values()
        for run in self._ran.now.values():
            yield run.counters

    async def load(self, start: StartRun, unwritten: Iterable[bytes] = ()) -> None:
        """Go on with the crawls in the store, and start those that come from here on; until then they are only known.

        `start(record)` makes and starts the run of a crawl; `changed` tells the run of a newer record. Those that are
        `unwritten` run also where they have ended.
        """
        self._start = start
        self._ran.unwritten = list(unwritten)
        await self.records.load()
        for record in self.records:
            await self._begin(record)

    # What happens around the runs

    def start_no_more(self) -> None:
        """Start nothing in any crawl from here on, whatever `hold` says later: joining may end while it leaves."""
        self._life.leaving = True
        self._hold()

    def hold(self, hold: bool) -> None:
        """Start nothing in any crawl, or go on where the node does not leave."""
        self._life.joining = hold
        self._hold()

    def _hold(self) -> None:
        for run in self._ran.now.values():
            run.hold(self._life.held)

    def settled(self, view: View | None) -> None:
        """Let what is ours by `view` be fetched; None: nothing."""
        self._settled = view
        for run in self._ran.now.values():
            run.settle(view)
        if view is not None:
            unwritten, self._ran.unwritten = self._ran.unwritten, []
            for crawl in unwritten:
                self._group.create_task(self._write_up(crawl))
        for record in self.records:
            self._reopen_check.at(record.crawl_id)

    def view_changed(self, view: View) -> None:
        """Tell all runs of a new view, by which other keys may be ours."""
        for run in self._ran.now.values():
            run.view_changed(view)

    def host_free(self, host: str) -> None:
        """Tell all runs that a host may be asked."""
        for run in self._ran.now.values():
            run.host_free(host)

    def ended(self, crawl: bytes) -> None:
        """Forget a run that is over; where the crawl has been opened again meanwhile, begin the next one."""
        self._ran.end(crawl)
        self._gone.set()
        record = self.records.get(crawl)
        if crawl in self._over_here and record is not None and not record.ended:
            self._group.create_task(self._begin(record))
        self._over_here.discard(crawl)
        self._reopen_check.at(crawl)

    @property
    def draining(self) -> bool:
        """Whether a crawl that starts nothing more still has something under way."""
        return any(run.draining for run in self._ran.now.values())

    async def stop(self) -> None:
        """End all runs here; they go on when the node is back."""
        self._life.stopping = True
        for run in self._ran.now.values():
            run.interrupt()
        while self._ran.now or self._starting:
            self._gone.clear()
            await self._gone.wait()

    async def wait_for_end(self, crawl: bytes) -> None:
        """Return once a crawl that has ended, by its record, has written what it has here."""
        while crawl in self._ran.now and (record := self.records.get(crawl)) is not None and record.ended:
            self._gone.clear()
            await self._gone.wait()

    # Task records, of crawls that run and of those that have ended

    def merged(self, crawl: bytes, merged: Merged) -> None:
        """Note that records of a crawl were merged into the store."""
        run = self._ran.now.get(crawl)
        if run is not None:
            run.intake.merged(merged)
        elif merged.queued:
            self._reopen_check.at(crawl)

    def terms(self, crawl: bytes, orders: Iterator[int]) -> RecordTerms | None:
        """The terms on which a crawl takes records; None for one that is not known."""
        record, run = self.records.get(crawl), self._ran.now.get(crawl)
        if record is None:
            return None
        if run is None:
            return RecordTerms(record.spec.keys, orders, record.depth_matters, self._snapshot, _never)
        return RecordTerms(run.keys, orders, run.depth_matters, run.snapshot, run.in_flight)

    def _over(self, crawl: bytes) -> CrawlRecord | None:
        busy = self._settled is None or self._life.stopping or crawl in self._ran.now or crawl in self._starting
        return None if busy else self.records.get(crawl)

    def _claims(self) -> Test:
        """The claim by the settled view."""
        return KeyClaim(self._peers.node_id, self._settled or self._peers.view, self._settled).mine

    def _snapshot(self, _: Iterable[bytes] | None = None, /) -> OwnershipSnapshot:
        return OwnershipSnapshot(self._claims())

    # What follows from a record

    async def _changed(self, record: CrawlRecord) -> None:
        run = self._ran.now.get(record.crawl_id)
        if run is not None:
            self._tell(run, record)
        else:
            await self._begin(record)

    def _tell(self, run: RunningHere, record: CrawlRecord) -> None:
        if run.changed(record):
            self._over_here.add(record.crawl_id)

    async def _write_up(self, crawl: bytes) -> None:
        """Have what this node has of a crawl written that has ended; of one that goes on it is at its end."""
        record = self.records.get(crawl)
        if record is not None and record.ended:
            await self._begin(record, ended=True)

    async def _begin(self, record: CrawlRecord, *, ended: bool = False) -> None:
        crawl, start = record.crawl_id, self._start
        if start is None or self._life.stopping or crawl in self._ran.now or crawl in self._starting:
            return
        if record.ended and not ended:
            return
        self._starting[crawl] = None
        try:
            run = await start(record)
        finally:
            del self._starting[crawl]
            self._gone.set()
        self._ran.begin(crawl, run)
        if self._life.stopping:
            run.interrupt()
        # What changed while the run was being made.
        run.view_changed(self._peers.view)
        run.hold(self._life.held)
        run.settle(self._settled)
        self._tell(run, self.records.get(crawl) or record)


def _never(_: bytes) -> bool:
    return False
