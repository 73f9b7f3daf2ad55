"""Looks after a crawl as a whole: waves, audit, limits, the record. The asyncio shell of `waves`.

Every node with a running crawl has a `Coordinator`. The one whose node is closest to the crawl's key does the work, by
these calls:

    crawl_report  how does the crawl stand with you   every member, every wave
    crawl_audit   are all links of your pages known   every member, once all is still
    crawl_tell    this is the crawl's record          members with an older one
    crawl_get     what is yours                       members with another one
    pages_…       page blocks, see `page_block_service`

The others answer, and ask for the record themselves when they have not been asked for long: the coordinator may have
ended the crawl and died before it could tell them.

It writes what it decides into the record, with a higher version, and leaves nothing else behind. Two coordinators at
once, or one after the other, decide the same: an end merges with itself, and termination stays true.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.budget import CrawlLimits, Stop
from dhtcrawl.keyspace import crawl_key
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap
from dhtcrawl.storage.store.crawl_record import (
    COMPLETE,
    FAILED,
    STOPPED,
    STOPPING,
    CrawlRecord,
    NotARecord,
    changed,
    from_wire,
    merge_crawls,
    record_digest,
    to_wire,
)
from dhtcrawl.swarm.calls import lifecycle as calls
from dhtcrawl.swarm.lifecycle.board import Board, filled_in
from dhtcrawl.swarm.lifecycle.page_block_service import PageBlockService
from dhtcrawl.swarm.lifecycle.page_blocks import PageAllowance
from dhtcrawl.swarm.lifecycle.waves import CrawlReport, Waves, WaveVerdict, report_of, view_fingerprint

RECORDS_KEPT: Final = 8
R = TypeVar("R", bound=WireMap)


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """How often a coordinator asks, and how long it waits."""

    busy_s: float = 1.0  # between two waves while things move
    still_s: float = 0.25  # while nothing moves: an end is noticed within a second
    member_s: float = 0.002  # but at least this for each member, or a thousand of them would occupy the coordinator
    timeout_s: float = 5.0  # for a call
    audit_answer_s: float = 3.0  # an audit that takes longer is asked after again
    unasked_s: float = 10.0  # a member that was not asked for so long asks for the record itself


@dataclass(slots=True)
class _Audit:
    """The audit of this node's pages in one state of stillness."""

    still: bytes
    task: asyncio.Task[tuple[int, int]]


@loop_state
class Coordinator:
    """Coordinates one crawl from one node: `run` it, hand it the calls, and tell it of changes."""

    def __init__(
        self,
        peers: Peers,
        clock: Clock,
        crawl_id: bytes,
        board: Board,
        allowance: PageAllowance,
        settings: CoordinatorSettings | None = None,
    ) -> None:
        self.settings = settings or CoordinatorSettings()
        self.desk = PageBlockService(
            peers, clock, crawl_id, allowance, board.need, granted=board.granted, timeout_s=self.settings.timeout_s
        )
        self.reasons: tuple[str, ...] = ()  # why the crawl goes on, for people
        self.reports: dict[bytes, CrawlReport] = {}  # of the last wave
        self._peers = peers
        self._crawl_id = crawl_id
        self._key = crawl_key(crawl_id)
        self._board = board
        self._limits = CrawlLimits(replace(board.record().spec.settings, max_pages=0))
        self._waves = Waves()
        self._audits_of = b""  # the state of stillness that is being audited
        self._audits: dict[bytes, tuple[int, int]] = {}  # by node: links missing, and sent again
        self._ours: dict[bytes, CrawlRecord] = {}  # our latest records, by digest
        self._bytes_seen: dict[bytes, float] = {}  # by node, those that are gone included
        self._audit: _Audit | None = None
        self._group: asyncio.TaskGroup | None = None
        self._wake = asyncio.Event()
        self._asked = False
        self._stopping = False

    def view_changed(self) -> None:
        """Act on members that came, went or changed their state."""
        self.desk.wake()
        self._wake.set()

    def record_changed(self) -> None:
        """Act on a record that another part, or another node, has changed."""
        self._wake.set()

    def stop(self) -> None:
        """End `run` before the crawl is over."""
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Coordinate, or follow another coordinator, until the crawl has ended or `stop`."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self.desk.run())
            try:
                while not self._stopping and not self._board.record().ended:
                    self._wake.clear()
                    if self._in_charge():
                        await self._sleep(await self._wave())
                    else:
                        await self._follow()
            finally:
                self._group = None
                self.desk.stop()
                if self._audit is not None:
                    self._audit.task.cancel()

    # -- what others ask --

    def on_report(self, asker: bytes, _args: calls.ReportCrawl) -> calls.CrawlStanding:
        """Answer `crawl_report`."""
        self._asked = self._asked or asker == self._coordinator()
        report = self._board.report()
        report = replace(report, counters={**report.counters, **self.desk.figures()})
        return filled_in(report, self._peers, self._board.record()).standing()

    async def on_audit(self, asker: bytes, args: calls.AuditCrawl) -> calls.AuditResult | Refused:
        """Answer `crawl_audit` with the audit's result, or that it still runs."""
        if asker != self._coordinator():
            return Refused("not-coordinator")
        if self._group is None:
            return Refused("not-ready")
        if self._audit is None or self._audit.still != args.still:
            if self._audit is not None:
                self._audit.task.cancel()
            self._audit = _Audit(args.still, self._group.create_task(self._board.audit()))
        task = self._audit.task
        await asyncio.wait([task], timeout=self.settings.audit_answer_s)
        if not task.done() or task.cancelled():
            return calls.AuditResult(running=True)
        missing, resent = task.result()
        if missing or resent:
            self._audit = None  # the next call audits again
        return calls.AuditResult(missing, resent)

    # -- as a member --

    def _coordinator(self) -> bytes | None:
        owner = self._peers.view.owner(self._key)
        return None if owner is None else owner.id

    def _in_charge(self) -> bool:
        return self._coordinator() == self._peers.node_id

    async def _follow(self) -> None:
        """Wait for a change; ask for the record if the coordinator has not asked us for long."""
        self._waves.start_over()
        self._asked = False
        await self._sleep(self.settings.unasked_s)
        coordinator = self._coordinator()
        if not (self._asked or self._wake.is_set() or coordinator is None or self._in_charge()):
            await self._get(coordinator)

    async def _sleep(self, delay_s: float) -> None:
        if self._stopping or self._board.record().ended:
            return
        try:
            async with asyncio.timeout(delay_s):
                await self._wake.wait()
        except TimeoutError:
            pass

    # -- as the coordinator --

    async def _wave(self) -> float:
        """Make one wave and act on it; return the seconds until the next."""
        view, record = self._peers.view, self._board.record()
        members = [member.id for member in view.members]
        told, digest = view_fingerprint(view), record_digest(record)
        reports = await self._collect(members)
        self.reports = {node: report for node, report in reports.items() if report is not None}
        await self._share_record(view)
        if not self._in_charge():
            return 0.0
        if await self._stop_at_limit():
            return 0.0
        judgement = self._waves.judge(members, told, digest, reports, stopping=record.state == STOPPING)
        self.reasons = judgement.reasons
        if judgement.verdict is WaveVerdict.COMPLETE:
            await self._end(COMPLETE if self._brought_pages(view) else FAILED)
        elif judgement.verdict is WaveVerdict.AUDIT:
            await self._ask_for_audits(members)
        elif judgement.verdict is WaveVerdict.FROZEN:
            await self._end_if_spent()
            return self._pause_s(members, still=False)  # it lasts until the crawl is resumed, or pages are given back
        return self._pause_s(members, still=judgement.still)

    def _pause_s(self, members: list[bytes], *, still: bool) -> float:
        settings = self.settings
        return max(settings.still_s if still else settings.busy_s, settings.member_s * len(members))

    async def _collect(self, members: list[bytes]) -> dict[bytes, CrawlReport | None]:
        async def ask(node: bytes) -> CrawlReport | None:
            told = await self._call(node, calls.ReportCrawl(self._crawl_id))
            return None if isinstance(told, Failure) else report_of(node, told)

        async with asyncio.TaskGroup() as group:
            asked = {node: group.create_task(ask(node)) for node in members}
        return {node: task.result() for node, task in asked.items()}

    async def _share_record(self, view: View) -> None:
        """Learn what members know of the crawl, add who takes part, and tell those that know something else."""
        digest = record_digest(self._board.record())
        async with asyncio.TaskGroup() as group:
            for node, report in self.reports.items():
                if report.knows and report.record != digest and report.record not in self._ours:
                    group.create_task(self._get(node))
        record = self._board.record()
        self._remember(record)
        own = {member.id for member in view.members if member.state is not MemberState.JOINING}
        running = [node.hex() for node, report in self.reports.items() if report.knows and node in own]
        await self._adopt(replace(record, participants=[*record.participants, *running]))
        record = self._board.record()
        digest = record_digest(record)
        self._remember(record)
        await self._tell(node for node, report in self.reports.items() if report.record != digest)

    def _remember(self, record: CrawlRecord) -> None:
        """Keep a record of ours that others may have from us."""
        self._ours[record_digest(record)] = record
        if len(self._ours) > RECORDS_KEPT:
            del self._ours[next(iter(self._ours))]

    async def _stop_at_limit(self) -> bool:
        """Stop the crawl if all nodes together have used up its time or size; whether they have."""
        for node, report in self.reports.items():
            self._bytes_seen[node] = report.counters.get("bytes", 0)
        record = self._board.record()
        if record.state == STOPPING or all(report.idle for report in self.reports.values()):
            return False  # a crawl that has nothing left is complete, not stopped
        stop = self._limits.exceeded(
            pages=0,
            seconds=max((report.counters.get("seconds", 0.0) for report in self.reports.values()), default=0.0),
            size_bytes=int(sum(self._bytes_seen.values())),
        )
        if stop is None:
            return False
        await self._adopt(changed(record, STOPPING, cause=stop.word))
        return True

    async def _end_if_spent(self) -> None:
        """End the crawl if what is left may never be started."""
        record = self._board.record()
        if record.state == STOPPING:
            await self._end(record.cause or STOPPED)
        elif self.desk.spent({node: report.counters for node, report in self.reports.items()}):
            await self._end(Stop.PAGE_LIMIT.word)

    async def _ask_for_audits(self, members: list[bytes]) -> None:
        """Ask the members whose audit has no result yet; once all have one, tell the waves."""
        still = self._waves.still
        if self._audits_of != still:
            self._audits_of, self._audits = still, {}
        open_ = [node for node in members if node not in self._audits]
        async with asyncio.TaskGroup() as group:
            audit = calls.AuditCrawl(self._crawl_id, still)
            asked = [group.create_task(self._call(node, audit)) for node in open_]
        for node, call in zip(open_, asked, strict=True):
            found = call.result()
            if not isinstance(found, Failure) and found.missing is not None and found.resent is not None:
                self._audits[node] = (found.missing, found.resent)
        if len(self._audits) < len(members):
            self.reasons = (f"{len(members) - len(self._audits)} nodes still look for lost links",)
            return
        self._waves.audited(still, *map(sum, zip(*self._audits.values(), strict=True)))
        self._audits_of = b""

    async def _end(self, ended: str) -> None:
        """End the crawl. The others are told first: our own run ends with the update."""
        record = self._board.record()
        over = changed(record, record.state, cause=record.cause, ended=ended)
        await self._tell(self.reports, over)
        await self._adopt(over)

    def _brought_pages(self, view: View) -> bool:
        """Whether a node fetched a page; one that is gone may have."""
        members = {member.id.hex() for member in view.members}
        gone = any(node not in members for node in self._board.record().participants)
        return gone or any(report.counters.get("pages", 0) for report in self.reports.values())

    # -- calls --

    async def _adopt(self, record: CrawlRecord) -> None:
        """Merge a record into ours, if it says anything new."""
        ours = self._board.record()
        merged = merge_crawls(ours, record)
        if record_digest(merged) != record_digest(ours):
            await self._board.update(merged)

    async def _get(self, node: bytes) -> None:
        """Learn what a node knows of the crawl."""
        known = await self._call(node, calls.GetCrawl(self._crawl_id))
        if isinstance(known, Failure):
            return
        try:
            record = from_wire(known.record, known=self._board.record())
        except NotARecord:
            return
        if record.crawl_id == self._crawl_id:
            await self._adopt(record)

    async def _tell(self, nodes: Iterable[bytes], record: CrawlRecord | None = None) -> None:
        """Tell nodes the crawl's record; one that does not hear it says so in the next wave, or asks.

        A node that knows a recent record of ours is told what is new, and one that
        sees the members that we see is told their places in that list: else each of a
        thousand participants would hear the names of all.
        """
        record, view = record or self._board.record(), self._peers.view
        seen = view_fingerprint(view)
        told: dict[tuple[bytes, bool], calls.TellCrawl] = {}
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                if node == self._peers.node_id:
                    continue
                report = self.reports[node]
                since, alike = self._ours.get(report.record), report.view == seen
                which = report.record if since else b"", alike
                if which not in told:
                    news = to_wire(record, since, view.ids if alike else ())
                    told[which] = calls.TellCrawl(news, self._crawl_id, seen)
                group.create_task(self._call(node, told[which]))

    async def _call(self, node: bytes, args: CallArgs[R]) -> R | Failure:
        return await self._peers.call(node, args, timeout_s=self.settings.timeout_s)
