"""Runs one crawl on one node of a swarm: passes events to its parts, and answers the other nodes' questions.

Crawl ──send──▶ LinkSender ──▶ owners       owners and backups ──▶ Inbox ──▶ Intake of the crawl
└────keep──▶ Replicator ──▶ backups

`dhtcrawl.node.swarm_crawl` makes one, part by part.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dhtcrawl.crawl.budget import Stop
from dhtcrawl.crawl.crawler import Crawl
from dhtcrawl.crawl.intake import Intake
from dhtcrawl.crawl.parts import CrawlParts
from dhtcrawl.crawl.ports import Budget
from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.crawl.site_timer import SiteTimer
from dhtcrawl.keyspace import TaskKeys
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.standing import FROZEN, OWED, Cause, Obstacle, first, without_time
from dhtcrawl.storage.store.crawl_record import RUNNING, CrawlRecord
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.storage.store.replicas import End, TaskReplica
from dhtcrawl.storage.store.tasks import is_too_deep
from dhtcrawl.swarm.assignment.assignments import Assignments
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.bodies.copying import BodyCopies
from dhtcrawl.swarm.bodies.missing import MissingBodies
from dhtcrawl.swarm.claim import KeyClaim
from dhtcrawl.swarm.lifecycle.audit import CrawlAudit
from dhtcrawl.swarm.lifecycle.board import PageNeed, RunReport
from dhtcrawl.swarm.lifecycle.coordinator import Coordinator
from dhtcrawl.swarm.lifecycle.crawl_authority import CrawlAuthority
from dhtcrawl.swarm.lifecycle.participants import Participants
from dhtcrawl.swarm.lifecycle.run_state import RunState
from dhtcrawl.swarm.lifecycle.scope_growth import ScopeGrowth
from dhtcrawl.swarm.membership.contact import LostContact
from dhtcrawl.swarm.records.replicate import Replicator
from dhtcrawl.swarm.records.send_links import LinkSender

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.1
LOOKS_MAX = 600  # what takes longer to end may be done again


@dataclass(frozen=True, slots=True)
class AssignmentSide:
    """The port through which `Assignments` see the crawl and its state."""

    parts: CrawlParts
    state: RunState

    @property
    def crawl_id(self) -> bytes:
        return self.parts.start.crawl_id

    @property
    def owning(self) -> bool:
        return self.state.owning

    @property
    def may_start(self) -> bool:
        return self.state.owning and self.parts.shares.may_start

    @property
    def depth_matters(self) -> bool:
        return self.state.record.settings.depth >= 0

    @property
    def leaving(self) -> bool:
        return self.state.leaving


@dataclass(frozen=True, slots=True)
class CopyingSide:
    """The port through which `BodyCopies` see the crawl and its state."""

    state: RunState
    ownership: SwarmOwnership
    replicator: Replicator
    peers: Peers

    @property
    def held_back(self) -> bool:
        return self.state.held_back

    def record(self) -> CrawlRecord:
        return self.state.record

    @property
    def claim(self) -> KeyClaim:
        return self.ownership.claim

    def keep(self, copies: Sequence[TaskReplica], then: Callable[[], None]) -> None:
        self.replicator.keep(self.state.record.crawl_id, copies, then)

    async def remind(self, copies: Sequence[TaskReplica]) -> set[str]:
        return await self.replicator.remind(self.state.record.crawl_id, copies)

    def members(self) -> frozenset[str]:
        return frozenset(member.id.hex() for member in self.peers.view.members) | {self.peers.node_id.hex()}


@dataclass(frozen=True, slots=True)
class CrawlBoard:
    """The port `Board`: tells the coordinator how the crawl stands on this node."""

    node: bytes
    incarnation: int
    state: RunState
    parts: CrawlParts
    crawl: Crawl
    budget: Budget
    ownership: SwarmOwnership
    replicator: Replicator
    links: LinkSender
    assignments: Assignments
    copying: BodyCopies
    bodies: MissingBodies
    participants: Participants
    crawl_audit: CrawlAudit
    growth: ScopeGrowth
    learn: Callable[[CrawlRecord], Awaitable[object]]
    reconciling: Callable[[], bool]  # whether records are on their way to the nodes that are to keep them
    lost_contact: Callable[[], LostContact | None]  # with the other nodes
    authority: CrawlAuthority

    def record(self) -> CrawlRecord:
        return self.state.record

    def report(self) -> RunReport:
        counters, frontier = self.parts.counters, self.parts.frontier
        waiting = {word: count for word, count in self._waiting().items() if count}
        awaited = [
            Obstacle(Cause.HOLDER_GONE, gone.node, number=gone.pages, for_s=gone.gone_s, left_s=gone.left_s)
            for gone in self.bodies.awaited
        ]
        return RunReport(
            self.incarnation,
            activity=self.crawl.activity,
            waiting=waiting,
            counters={
                **counters.told(),
                "bytes": counters.body_bytes,
                "queued": len(frontier),
                "in_flight": frontier.in_flight,
                "seconds": self.crawl.seconds,
            },
            obstacle=self._obstacle(waiting, awaited),
            awaited=awaited,
        )

    def _obstacle(self, waiting: Mapping[str, int], awaited: Sequence[Obstacle]) -> Obstacle | None:
        """What keeps the crawl from going on here; None while something moves, or where its record says it.

        A node that has lost its swarm says so first, and what keeps it back besides.
        """
        found = self._obstacle_here(waiting, awaited)
        lost = None if found is None else self.lost_contact()
        if found is None or lost is None:
            return found
        alone = Obstacle(
            Cause.ALONE, self.node.hex(), without_time(found), lost.others, for_s=lost.for_s, left_s=found.left_s
        )
        return first([alone, found])

    def _obstacle_here(self, waiting: Mapping[str, int], awaited: Sequence[Obstacle]) -> Obstacle | None:
        node = self.node.hex()
        if self.parts.frontier.in_flight or self.state.record.state != RUNNING:
            return None
        if self.state.leaving:
            return Obstacle(Cause.JOINING, node)
        if self._at_limit and self.state.record.settings.max_pages:
            return Obstacle(Cause.PAGE_LIMIT, number=waiting.get(FROZEN, 0))
        if not self.parts.frontier.empty:
            return self.crawl.obstacle
        if awaited:
            return awaited[0]
        # Of a task that another node has begun, that node says what keeps it back.
        ours = {word: count for word, count in waiting.items() if word != FROZEN}
        word = max(ours, key=lambda word: ours[word], default=None)
        return None if word is None else Obstacle(Cause.OWED, node, OWED.get(word, word), waiting[word])

    @property
    def _at_limit(self) -> bool:
        """Whether tasks are queued here none of which may be started."""
        return "queued" in self.crawl.waiting and not self.budget.may_start(len(self.parts.open_tasks()))

    def _waiting(self) -> dict[str, int]:
        """What keeps the crawl from its end, in the words of `standing.OWED`."""
        found = self.crawl.waiting
        if self._at_limit:
            found[FROZEN] = found.pop("queued")
        if self.state.settled is not self.state.view or self.growth.busy or self.state.is_over:
            found["repair"] = 1
        return found | {
            "links": found.get("links", 0) + self.links.busy,
            "backups": int(self.replicator.busy_with(self.state.record.crawl_id)),
            "bodies": self.bodies.missing + self.participants.busy,
            "copies": found.get("copies", 0) + self.copying.under_way,
            "held": self.assignments.waiting,
            FROZEN: found.get(FROZEN, 0) + self.assignments.frozen,
            "hand_over": self.ownership.releasing + self.reconciling(),
        }

    async def audit(self) -> tuple[int, int]:
        return await self.crawl_audit.run()

    async def update(self, record: CrawlRecord) -> None:
        await self.learn(record)

    def believed(self, record: CrawlRecord, teller: bytes) -> CrawlRecord:
        return self.authority.believed(record, self.state.record, teller)

    def signed(self, record: CrawlRecord) -> CrawlRecord:
        return self.authority.signed(record, self.state.record)

    def need(self) -> PageNeed:
        used = self.parts.counters.pages + len(self.parts.open_tasks())
        return PageNeed(used, 0 if self.state.held else len(self.parts.frontier))

    def granted(self) -> None:
        self.parts.changed()


@loop_state
@dataclass(frozen=True, slots=True)
class CrawlRun:
    """A crawl that runs on this node."""

    state: RunState
    parts: CrawlParts
    crawl: Crawl
    ownership: SwarmOwnership
    assignments: Assignments
    links: LinkSender
    copying: BodyCopies
    bodies: MissingBodies
    participants: Participants
    audit: CrawlAudit
    growth: ScopeGrowth
    board: CrawlBoard
    timer: SiteTimer
    coordinator: Coordinator
    anew: asyncio.Event = field(default_factory=asyncio.Event)  # the run is to end, and another one to begin

    # What others ask

    @property
    def intake(self) -> Intake:
        return self.parts.intake

    @property
    def counters(self) -> CrawlCounters:
        return self.parts.counters

    @property
    def keys(self) -> TaskKeys:
        """How the crawl's URLs become task keys."""
        return self.state.record.spec.keys

    @property
    def depth_matters(self) -> bool:
        """Whether a smaller depth of a page may bring further links into scope."""
        return self.state.record.settings.depth >= 0

    def record(self) -> CrawlRecord:
        """The crawl's record as this node has it."""
        return self.state.record

    def snapshot(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot:
        """See `Ownership.snapshot`."""
        return self.ownership.snapshot(task_keys)

    def heard(self, found: Sequence[TaskReplica]) -> None:
        """Records came from another node: tasks in them that are over are assigned to no node any more."""
        self.assignments.ended.heard(found)
        if self.state.record.begun_depth is not None and any(is_too_deep(record.task) for record in found):
            self.growth.look()  # another node may have had another limit

    def buried(self, ends: Sequence[End]) -> None:
        """Note tasks that are over: their owners know them, so links to them need not be sent again."""
        keys = [end.key for end in ends]
        self.intake.known_to_owner(keys)
        self.assignments.ended.over(keys)
        if self.state.record.begun_depth is not None and any(end.reason == SkipReason.DEPTH for end in ends):
            self.growth.look()

    def in_flight(self, key: bytes) -> bool:
        """Whether a task is being fetched here, or its owner lacks the outcome; then its record must stay."""
        return self.parts.has_open(key) or key in self.ownership.borrowed

    @property
    def draining(self) -> bool:
        """Whether any work that was begun is not over."""
        waiting = self.crawl.waiting
        taking = bool(self.copying.service.busy) or len(self.ownership.lent) > 0
        return self.links.busy or taking or any(count for word, count in waiting.items() if word != "queued")

    # What happens around it

    def view_changed(self, view: View) -> None:
        """The view changed: this node's keys, or only the state of a member that did not answer for a while."""
        state = self.state
        before, state.view = state.view, view
        if view.alike(before):
            if state.settled is before:
                state.settled = view
            return
        self.audit.view_changed(before, view)
        self._reclaim()
        self.copying.nodes_came()
        self.coordinator.view_changed()

    def settle(self, view: View | None) -> None:
        """Let this node fetch what it owns by `view`."""
        self.state.settle(view)
        self._reclaim()

    def _reclaim(self) -> None:
        before, now = self.ownership.claim, self.state.claim()
        self.ownership.reclaim(now)
        self.parts.intake.view_changed(now.bits)
        # Pages that this node has come to own may have their bodies at a node that is gone.
        self.bodies.view_changed(ours=now.bits != before.bits)
        grows = self.state.record.aliases or self.state.record.begun_depth is not None
        if now.bits != before.bits and grows:
            self.growth.look()
        self.assignments.view_changed()

    def changed(self, record: CrawlRecord) -> bool:
        """The crawl's record has changed; whether the run ends for that: the crawl has ended, or begins anew here."""
        if record.heirs != self.state.record.heirs:
            self.copying.holders_changed()
        if record.changes != self.state.record.changes:
            self.parts.origins.change(record.settings)
        grown = record.aliases != self.state.record.aliases
        if record.settings.depth != self.parts.start.spec.settings.depth:
            self._begin_anew()
        self.state.record = record
        self.participants.changed(record)
        self.crawl.learn_aliases(record.aliases)
        if grown:
            self.growth.look()
        self.bodies.view_changed(ours=False)
        self.coordinator.record_changed()
        if record.ended:
            self.crawl.finish()
        else:
            self.parts.changed()
        return bool(record.ended) or self.state.is_over

    def _begin_anew(self) -> None:
        """Start nothing more, and end this run: another depth limit asks what a run does as it begins."""
        if self.state.is_over:
            return
        self.state.is_over = True
        self.assignments.stop()
        self.anew.set()
        crawl = self.state.record.crawl_id.hex()
        log.info("crawl %s begins anew here: its depth limit has changed", crawl[:12], extra={"crawl": crawl})

    async def _end_once_drained(self) -> None:
        """Interrupt the run once it is to begin anew, and nothing is under way that the next run would not know of.

        That is above all which tasks other nodes have of ours, and we of theirs.
        """
        await self.anew.wait()
        for _ in range(LOOKS_MAX):
            if not (self.draining or self.assignments.waiting):
                break
            await asyncio.sleep(LOOK_EVERY_S)
        self.interrupt()

    def hold(self, hold: bool) -> None:
        """Start nothing while `hold` is true."""
        self.state.held_back = hold
        if hold:
            self.assignments.stop()

    def interrupt(self) -> None:
        """Stop the crawl here; it goes on when the node is started again."""
        self.crawl.stop(Stop.INTERRUPTED)

    def host_free(self, host: str) -> None:
        """A host became free to be asked."""
        self.timer.host_free(host)
        self.crawl.host_free(host)

    async def run(self) -> None:
        """Watch tasks that other nodes have and bodies that are missing, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.bodies.run())
            group.create_task(self.copying.run())
            group.create_task(self.assignments.run())
            group.create_task(self.growth.run())
            group.create_task(self.coordinator.run())
            group.create_task(self._end_once_drained())
