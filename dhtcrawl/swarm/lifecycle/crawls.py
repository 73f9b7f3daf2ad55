"""The crawls that a node knows, and those that it runs.

Every node knows every crawl: a submitted one is told to all, a newcomer pulls the list, and the coordinator tells nodes
that have an older record. Records are merged by `merge_crawls`, so the order does not matter in which nodes tell each
other. A crawl that has not ended runs here; when its record says that it has, the run ends and writes what this node
has of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from dhtcrawl.crawl.parts import CrawlParts
from dhtcrawl.keyspace import placement, task_key_bytes
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL, CallRegistry, Peers, by_crawl
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.rpc.tasks.schema import BadArguments
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.catalog import CrawlRecord
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.crawl_record import heir_of
from dhtcrawl.storage.store.ownership import OwnershipSnapshot, Test
from dhtcrawl.storage.store.replicas import Merged
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.assignment import assignments
from dhtcrawl.swarm.assignment.assignments import Assignments
from dhtcrawl.swarm.assignment.wire import first_rows
from dhtcrawl.swarm.bodies.copying import CopiedRun
from dhtcrawl.swarm.bodies.exports import counters_of
from dhtcrawl.swarm.calls import lifecycle as calls
from dhtcrawl.swarm.calls.membership import HeldRow
from dhtcrawl.swarm.calls.words import KEYS_MAX, Done
from dhtcrawl.swarm.claim import KeyClaim
from dhtcrawl.swarm.lifecycle.board import Board, report_without_run
from dhtcrawl.swarm.lifecycle.coordinator import Coordinator
from dhtcrawl.swarm.lifecycle.crawl_list import CrawlList, parsed
from dhtcrawl.swarm.lifecycle.reopen_check import ReopenCheck
from dhtcrawl.swarm.lifecycle.waves import view_fingerprint
from dhtcrawl.swarm.records.holdings import RecordTerms
from dhtcrawl.swarm.records.inbox import InboxRun

log = logging.getLogger(__name__)

CRAWLS_MAX = 10_000
KEYS_A_CALL = KEYS_MAX  # a node that gets a row may ask about all of its keys in one call


class RunningHere(InboxRun, CopiedRun, Protocol):
    """A crawl that runs here, as the node's other parts see it."""

    @property
    def parts(self) -> CrawlParts: ...

    @property
    def assignments(self) -> Assignments: ...

    @property
    def board(self) -> Board: ...

    @property
    def coordinator(self) -> Coordinator: ...

    @property
    def draining(self) -> bool:
        """Whether something that was begun is not over."""
        ...

    def record(self) -> CrawlRecord: ...

    def in_flight(self, key: bytes) -> bool:
        """Whether a task's record must stay."""
        ...

    def view_changed(self, view: View) -> None: ...

    def settle(self, view: View | None) -> None: ...

    def changed(self, record: CrawlRecord) -> None: ...

    def hold(self, hold: bool) -> None: ...

    def interrupt(self) -> None:
        """End this run; the crawl goes on when the node is back."""
        ...

    def host_free(self, host: str) -> None: ...


StartRun = Callable[[CrawlRecord], Awaitable[RunningHere]]


@loop_state
class Crawls:
    """Keeps the records of all crawls at one node, and starts and ends their runs."""

    def __init__(
        self,
        peers: Peers,
        registry: CallRegistry,
        committer: Committer,
        group: asyncio.TaskGroup,
        *,
        incarnation: int,
    ) -> None:
        self.runs: dict[bytes, RunningHere] = {}
        self._peers = peers
        self._committer = committer
        self._group = group
        self._incarnation = incarnation
        self._start: StartRun | None = None
        self._records: dict[bytes, CrawlRecord] = {}
        self._settled: View | None = None
        self._starting: dict[bytes, None] = {}
        self._second_look = ReopenCheck(committer, group, over=self._over, claims=self._claims, reopen=self._reopen)
        self._gone = asyncio.Event()
        self._held = False
        self._stopping = False
        self._catalogue = CrawlList(peers, registry, self._records, self.learn)
        registry.serve(calls.TellCrawl, self._on_tell)
        registry.serve(calls.ReportCrawl, self._on_report)
        registry.serve(calls.AskProgress, self._on_progress)
        registry.serve(calls.AuditCrawl, by_crawl(self.run_of, lambda run: run.coordinator.on_audit))
        registry.serve(calls.ClaimPages, by_crawl(self.run_of, lambda run: run.coordinator.desk.on_claim))
        registry.serve(calls.NotePages, by_crawl(self.run_of, lambda run: run.coordinator.desk.on_note))
        registry.serve(calls.AskPages, by_crawl(self.run_of, lambda run: run.coordinator.desk.on_ask))
        assignments.serve(registry, self.run_of)

    def __iter__(self) -> Iterator[CrawlRecord]:
        return iter(list(self._records.values()))

    def get(self, crawl: bytes) -> CrawlRecord | None:
        """A crawl's record as this node has it."""
        return self._records.get(crawl)

    def heir_of(self, crawl: bytes, node: str) -> str | None:
        """The member that has the pages which `node` fetched: itself or its heir; None where neither is a member."""
        record = self._records.get(crawl)
        return None if record is None else heir_of(record, node, lambda each: bytes.fromhex(each) in self._peers.view)

    def run_of(self, crawl: bytes) -> RunningHere | None:
        """The run of a crawl that has not ended."""
        return self.runs.get(crawl)

    @property
    def running(self) -> bool:
        """Whether a crawl has not ended."""
        return any(not record.ended for record in self._records.values())

    async def load(self, start: StartRun) -> None:
        """Go on with the crawls in the store, and start those that come from here on; until then they are only known.

        `start(record)` makes and starts the run of a crawl; `changed` tells the run of a newer record.
        """
        self._start = start
        for record in await self._committer.submit(catalog.crawls):
            self._records[record.crawl_id] = record
            await self._begin(record)

    async def create(self, spec: CrawlSpec, nonce: bytes) -> CrawlRecord:
        """Make a new crawl; every member that answers knows it once this returns."""
        record = CrawlRecord(spec.crawl_id(nonce), spec, nonce)
        await self.learn(record)
        await self.tell_all(record.crawl_id)
        return record

    async def learn(self, record: CrawlRecord) -> CrawlRecord:
        """Merge a record into what is known of its crawl; return the record as it is now."""

        def write(txn: Txn) -> CrawlRecord | None:
            return None if catalog.is_closed(txn, record.crawl_id) else catalog.merge_in(txn, record)

        known = self._records.get(record.crawl_id)
        if known is not None and catalog.merge_crawls(known, record) == known:
            return known
        merged = await self._committer.submit(write)
        if merged is None:
            return record  # forgotten here
        before = self._records.get(record.crawl_id)
        if before is not None:
            # Another change may have come while this one was being written.
            merged = catalog.merge_crawls(before, merged)
        self._records[record.crawl_id] = merged
        if merged != before:
            await self._apply(merged)
        return merged

    async def change(self, crawl: bytes, **fields: Any) -> CrawlRecord:
        """Change a crawl's record here, and tell all members."""
        record = self._records[crawl]
        changed = await self.learn(dataclasses.replace(record, **fields))
        await self.tell_all(crawl)
        return changed

    async def announce(self, crawl: bytes, aliases: Sequence[str]) -> None:
        """Tell every member of further seeds; once this returns all know them but those that did not answer."""
        known = self._records[crawl].aliases
        await self.change(crawl, aliases=[*known, *(alias for alias in aliases if alias not in known)])

    async def tell_all(self, crawl: bytes) -> None:
        """Tell every member a crawl's record; return once all have it, or did not answer in time."""
        others = [member.id for member in self._peers.view.members if member.id != self._peers.node_id]
        async with asyncio.TaskGroup() as group:
            for node in others:
                group.create_task(self.tell(node, crawl))

    async def tell(self, node: bytes, crawl: bytes) -> None:
        """Tell one node a crawl's record."""
        record = self._records.get(crawl)
        if record is not None:
            await self._peers.call(node, calls.TellCrawl(catalog.to_wire(record)))

    async def pull(self, node: bytes) -> bool:
        """Learn the crawls that `node` knows; whether it answered."""
        return await self._catalogue.pull(node)

    # What joining and leaving tell

    def hold(self, hold: bool) -> None:
        """Start nothing in any crawl, or go on."""
        self._held = hold
        for run in self.runs.values():
            run.hold(hold)

    def settled(self, view: View | None) -> None:
        """Let what is ours by `view` be fetched; None: nothing."""
        self._settled = view
        for run in self.runs.values():
            run.settle(view)
        for crawl in self._records:
            self._second_look.at(crawl)

    def view_changed(self, view: View) -> None:
        """Tell all runs of a new view, by which other keys may be ours."""
        for run in self.runs.values():
            run.view_changed(view)

    def hold_for(self, node: bytes, rows: Sequence[HeldRow]) -> None:
        """Hold what `node` has in flight of ours, by its answer to `activate`."""
        for row in rows:
            run = self.runs.get(row.crawl)
            if run is None:
                continue
            if row.node is not None:
                run.assignments.hold_lent(row.node, row.keys)
            else:
                run.assignments.hold_for(node, row.keys)

    def lent(self) -> dict[bytes, dict[bytes, bytes]]:
        """Which node has which task of ours, by crawl."""
        return {crawl: run.assignments.lent() for crawl, run in self.runs.items()}

    def in_flight_of(self, node: bytes, lent: Mapping[bytes, Mapping[bytes, bytes]]) -> tuple[HeldRow, ...]:
        """Our answer to `activate`: the tasks that `node` owns now and we have in flight, or had assigned (`lent`)."""
        rows: list[HeldRow] = []
        for crawl, run in self.runs.items():
            keys = run.assignments.in_hand(node)
            rows += _held_rows(crawl, keys, None)
        for crawl, tasks in lent.items():
            by_worker: dict[bytes, list[bytes]] = {}
            for key, worker in tasks.items():
                owner = self._peers.view.owner(placement(key))
                if owner is not None and owner.id == node != worker:
                    by_worker.setdefault(worker, []).append(key)
            for worker, keys in by_worker.items():
                rows += _held_rows(crawl, keys, worker)
        return first_rows(rows)

    def ended(self, crawl: bytes) -> None:
        """Forget a run that is over."""
        self.runs.pop(crawl, None)
        self._gone.set()
        self._second_look.at(crawl)

    @property
    def draining(self) -> bool:
        """Whether a crawl that starts nothing more still has something under way."""
        return any(run.draining for run in self.runs.values())

    async def stop(self) -> None:
        """End all runs here; they go on when the node is back."""
        self._stopping = True
        for run in self.runs.values():
            run.interrupt()
        while self.runs or self._starting:
            self._gone.clear()
            await self._gone.wait()

    async def wait_for_end(self, crawl: bytes) -> None:
        """Return once a crawl that has ended, by its record, has written what it has here."""
        while (run := self.runs.get(crawl)) is not None and run.record().ended:
            self._gone.clear()
            await self._gone.wait()

    def ids(self) -> list[bytes]:
        """The crawls whose records are synced, sorted."""
        return sorted(self._records)

    def merged(self, crawl: bytes, merged: Merged) -> None:
        """Note that records of a crawl were merged into the store."""
        run = self.runs.get(crawl)
        if run is not None:
            run.intake.merged(merged)
        elif merged.queued:
            self._second_look.at(crawl)

    def terms(self, crawl: bytes, orders: Iterator[int]) -> RecordTerms | None:
        """The terms on which a crawl takes records; None for one that is not known."""
        record, run = self._records.get(crawl), self.runs.get(crawl)
        if record is None:
            return None
        if run is None:
            return RecordTerms(task_key_bytes(record.spec.key_mode), orders, False, self._snapshot, _never)
        return RecordTerms(run.key_bytes, orders, run.depth_matters, run.snapshot, run.in_flight)

    def host_free(self, host: str) -> None:
        """Tell all runs that a host may be asked."""
        for run in self.runs.values():
            run.host_free(host)

    # A crawl that has ended

    def _over(self, crawl: bytes) -> CrawlRecord | None:
        busy = self._settled is None or self._stopping or crawl in self.runs or crawl in self._starting
        return None if busy else self._records.get(crawl)

    def _claims(self) -> Test:
        """The claim by the settled view."""
        return KeyClaim(self._peers.node_id, self._settled or self._peers.view, self._settled).mine

    def _snapshot(self, _: Iterable[bytes] | None = None, /) -> OwnershipSnapshot:
        return OwnershipSnapshot(self._claims())

    async def _reopen(self, record: CrawlRecord) -> None:
        await self.learn(record)
        await self.tell_all(record.crawl_id)

    # What follows from a record

    async def _apply(self, record: CrawlRecord) -> None:
        run = self.runs.get(record.crawl_id)
        if run is not None:
            run.changed(record)
        else:
            await self._begin(record)

    async def _begin(self, record: CrawlRecord) -> None:
        crawl, start = record.crawl_id, self._start
        if start is None or self._stopping or record.ended or crawl in self.runs or crawl in self._starting:
            return
        self._starting[crawl] = None
        try:
            run = await start(record)
        finally:
            del self._starting[crawl]
            self._gone.set()
        self.runs[crawl] = run
        if self._stopping:
            run.interrupt()
        # What changed while the run was being made.
        run.view_changed(self._peers.view)
        run.hold(self._held)
        run.settle(self._settled)
        run.changed(self._records[crawl])

    # What others ask

    async def _on_tell(self, _asker: bytes, args: calls.TellCrawl) -> Done | Refused:
        view = self._peers.view
        known = None if args.crawl is None else self._records.get(args.crawl)
        record = parsed(args.record, known, view.ids if args.view == view_fingerprint(view) else ())
        if record is None:
            raise BadArguments("record")
        if record.crawl_id not in self._records and len(self._records) >= CRAWLS_MAX:
            return Refused("full", f"{CRAWLS_MAX} crawls are known here")
        await self.learn(record)
        return Done()

    def _on_report(self, asker: bytes, args: calls.ReportCrawl) -> calls.CrawlStanding:
        run = self.runs.get(args.crawl)
        if run is not None:
            return run.coordinator.on_report(asker, args)
        return report_without_run(self._peers, self._records.get(args.crawl), self._incarnation)

    async def _on_progress(self, _asker: bytes, args: calls.AskProgress) -> calls.CrawlFigures | Refused:
        """Answer with a crawl's figures for people; unlike `crawl_report` this is no part of a wave."""
        if args.crawl not in self._records:
            return Refused(UNKNOWN_CRAWL)
        run = self.runs.get(args.crawl)
        if run is None:
            return calls.CrawlFigures(await self._committer.submit(partial(counters_of, crawl=args.crawl)), {})
        report = run.board.report()
        return calls.CrawlFigures(report.counters, report.waiting)


def _held_rows(crawl: bytes, keys: Sequence[bytes], node: bytes | None) -> Iterator[HeldRow]:
    for first in range(0, len(keys), KEYS_A_CALL):
        yield HeldRow(crawl, tuple(keys[first : first + KEYS_A_CALL]), node)


def _never(_: bytes) -> bool:
    return False
