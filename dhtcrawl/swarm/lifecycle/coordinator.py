"""Looks after a crawl as a whole: waves, audit, limits, the record. The asyncio shell of `coordination`.

Every node with a running crawl has a `Coordinator`. The one whose node is closest to the crawl's key does the work, by
these calls:

    crawl_report  how does the crawl stand with you   every member, every wave
    crawl_audit   are all links of your pages known   every member, once all is still
    crawl_tell    this is the crawl's record          members with an older one
    crawl_get     what is yours                       members with another one
    pages_…       page blocks, see `page_block_service`
    crawl_progress  for people: what all nodes have done together, by the last wave (`roll`)

The others answer, and ask for the record themselves when they have not been asked for long: the coordinator may have
ended the crawl and died before it could tell them.

It writes what it decides into the record, with a higher version, and leaves nothing else behind. Two coordinators at
once, or one after the other, decide the same: an end merges with itself, and termination stays true.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TypeVar

from dhtcrawl.clock import Clock
from dhtcrawl.keyspace import crawl_key
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.ask_all import answers_of, ask_all
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap
from dhtcrawl.storage.store.crawl_record import STOPPING, changed
from dhtcrawl.swarm.calls import lifecycle as calls
from dhtcrawl.swarm.lifecycle.audit import AskedAudit
from dhtcrawl.swarm.lifecycle.board import Board, standing_of
from dhtcrawl.swarm.lifecycle.coordination import Coordination
from dhtcrawl.swarm.lifecycle.crawl_memory import CrawlMemory
from dhtcrawl.swarm.lifecycle.page_block_service import PageBlockService, newcomers, successors
from dhtcrawl.swarm.lifecycle.page_blocks import PageAllowance
from dhtcrawl.swarm.lifecycle.people_desk import PeopleDesk
from dhtcrawl.swarm.lifecycle.record_sharing import RecordSharing
from dhtcrawl.swarm.lifecycle.waves import WaveVerdict, view_fingerprint

log = logging.getLogger(__name__)

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
        memory: CrawlMemory | None = None,
    ) -> None:
        """`memory` has what was heard in earlier runs of the crawl."""
        memory = memory or CrawlMemory()
        self.settings = settings or CoordinatorSettings()
        self.desk = PageBlockService(
            peers, clock, crawl_id, allowance, memory.book, board, timeout_s=self.settings.timeout_s
        )
        self.state = Coordination(memory.bytes_seen)
        self._peers = peers
        self._crawl_id = crawl_id
        self._board = board
        self._sharing = RecordSharing(peers, crawl_id, board, self.settings.timeout_s)
        self._audit = AskedAudit(board.audit, self.settings.audit_answer_s)
        self._group: asyncio.TaskGroup | None = None
        self._wake = asyncio.Event()
        self._people = PeopleDesk(peers, clock, memory.roll, self._wake.set)
        self._stopping = False

    def view_changed(self) -> None:
        """Act on members that came, went or changed their state."""
        self.desk.wake()
        self._wake.set()

    def record_changed(self) -> None:
        """Act on a record that another part, or another node, has changed."""
        self.desk.limit_changed(self._board.record().settings.max_pages)
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
                self._audit.cancel()

    # -- what others ask --

    def on_report(self, asker: bytes, args: calls.ReportCrawl) -> calls.CrawlStanding:
        """Answer `crawl_report`."""
        if asker == self._coordinator():
            self._people.coordinator_asked(args)
        return self._standing()

    def _standing(self) -> calls.CrawlStanding:
        """How the crawl stands here."""
        report = self._board.report()
        record, figures = self._board.record(), self.desk.figures()
        return standing_of(self._peers, record, report, idle=not report.waiting, figures=figures)

    async def on_progress(self, _asker: bytes, args: calls.AskProgress) -> calls.CrawlFigures | Refused:
        """Answer `crawl_progress` for the whole swarm."""
        if not self._in_charge():
            return Refused("not-coordinator")
        return await self._people.answer(self._board.record(), nodes=args.nodes)

    async def on_audit(self, asker: bytes, args: calls.AuditCrawl) -> calls.AuditResult | Refused:
        """Answer `crawl_audit` with the audit's result, or that it still runs."""
        if asker != self._coordinator():
            return Refused("not-coordinator")
        if self._group is None:
            return Refused("not-ready")
        return await self._audit.result(args.still, self._group)

    # -- as a member --

    def _coordinator(self) -> bytes | None:
        owner = self._peers.view.owner(crawl_key(self._crawl_id))
        return None if owner is None else owner.id

    def _in_charge(self) -> bool:
        return self._coordinator() == self._peers.node_id

    async def _follow(self) -> None:
        """Wait for a change; ask for the record if the coordinator has not asked us for long."""
        self.state.start_over()
        self._people.asked = False
        await self._sleep(self.settings.unasked_s)
        coordinator = self._coordinator()
        if not (self._people.asked or self._wake.is_set() or coordinator is None or self._in_charge()):
            await self._sharing.get(coordinator)

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
        told, digest = view_fingerprint(view), record.digest
        self.state.heard(await self._reports(members))
        self._people.wave_over()
        await self._sharing.share(view, self.state.reports)
        if not self._in_charge():
            return 0.0
        stop = self.state.over_limit(self._board.record(), self._people.elapsed_s())
        if stop is not None:
            log.info("crawl %s has reached a limit, and stops (%s)", self._crawl_id.hex()[:12], stop.cause)
            await self._sharing.adopt(self._board.signed(stop))
            return 0.0
        judgement = self.state.judge(members, told, digest, stopping=record.state == STOPPING)
        if log.isEnabledFor(logging.DEBUG):
            crawl, verdict = self._crawl_id.hex(), judgement.verdict.value
            text = "%d of %d members told how crawl %s stands with them, from which follows: %s"
            log.debug(text, len(self.state.reports), len(members), crawl[:12], verdict, extra={"crawl": crawl})
        if judgement.verdict is WaveVerdict.COMPLETE:
            await self._end(self.state.end_of_complete(self._board.record(), view))
        elif judgement.verdict is WaveVerdict.AUDIT:
            audit = calls.AuditCrawl(self._crawl_id, self.state.still)
            self.state.audited(members, await self._ask(self.state.to_audit(members), audit))
        elif judgement.verdict is WaveVerdict.FROZEN:
            spent = self.desk.spent({node: report.counters for node, report in self.state.reports.items()})
            ended = self.state.end_of_frozen(self._board.record(), spent=spent)
            if ended is not None:
                await self._end(ended)
            return self._pause_s(members, still=False)  # it lasts until the crawl is resumed, or pages are given back
        return self._pause_s(members, still=judgement.still)

    def _pause_s(self, members: list[bytes], *, still: bool) -> float:
        settings = self.settings
        return max(settings.still_s if still else settings.busy_s, settings.member_s * len(members))

    async def _reports(self, members: list[bytes]) -> dict[bytes, calls.CrawlStanding]:
        """The reports of the members that answer."""
        self._people.heard(self._peers.node_id, self._standing())  # so that the others are told what is true now
        plain, told = calls.ReportCrawl(self._crawl_id), calls.ReportCrawl(self._crawl_id, self._people.told(members))
        may_follow = {*successors(self._peers, self._crawl_id), *newcomers(self._peers, self._crawl_id)}
        found: dict[bytes, calls.CrawlStanding] = {}

        async def ask(node: bytes) -> None:
            args = told if node in may_follow else plain
            answer = await self._peers.call(node, args, timeout_s=self.settings.timeout_s)
            if not isinstance(answer, Failure):
                found[node] = answer
                self._people.heard(node, answer)

        await ask_all(members, ask)
        return {node: found[node] for node in members if node in found}

    async def _ask(self, nodes: list[bytes], args: CallArgs[R]) -> dict[bytes, R]:
        return await answers_of(self._peers, nodes, args, timeout_s=self.settings.timeout_s)

    async def _end(self, ended: str) -> None:
        """End the crawl. The others are told first: our own run ends with the update."""
        record = self._board.record()
        over = self._board.signed(
            changed(record, record.state, cause=record.cause, ended=ended, totals=self._people.totals())
        )
        log.info("crawl %s has ended: %s", self._crawl_id.hex()[:12], ended, extra={"crawl": self._crawl_id.hex()})
        await self._sharing.tell(over, self.state.reports)
        await self._sharing.adopt(over)
