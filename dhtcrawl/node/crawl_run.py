"""One crawl on one node of a swarm: its ports, and what the other nodes ask of it.

Crawl ──send──▶ Courier ──▶ owners          owners and backups ──▶ Inbox ──▶ Intake of the crawl
└────keep──▶ Replicator ──▶ backups
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from dhtcrawl.clock import Clock
from dhtcrawl.config import SwarmSettings
from dhtcrawl.crawl.crawler import Crawl
from dhtcrawl.crawl.intake import Intake
from dhtcrawl.crawl.ports import CrawlPorts
from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.keyspace import task_key_bytes
from dhtcrawl.node.crawl_ports import SwarmBudget, SwarmRecord, SwarmReplication
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.rows import PeerRow
from dhtcrawl.storage.store.catalog import CrawlRecord
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.crawl_record import RUNNING
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.swarm.assignment.assignments import Assignments
from dhtcrawl.swarm.assignment.facts import NodeTraits, facts_of
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.assignment.policies import Policies
from dhtcrawl.swarm.bodies.copying import BodyCopies, BodyStore
from dhtcrawl.swarm.bodies.missing import MissingBodies
from dhtcrawl.swarm.claim import KeyClaim
from dhtcrawl.swarm.lifecycle.audit import Auditor, CrawlAudit
from dhtcrawl.swarm.lifecycle.board import PageNeed
from dhtcrawl.swarm.lifecycle.coordinator import Coordinator
from dhtcrawl.swarm.lifecycle.page_blocks import PageAllowance
from dhtcrawl.swarm.lifecycle.participants import Participants
from dhtcrawl.swarm.lifecycle.waves import FROZEN, CrawlReport
from dhtcrawl.swarm.records.owner_news import OwnerNews
from dhtcrawl.swarm.records.replicate import Replicator
from dhtcrawl.swarm.records.send_links import LinkSender


@dataclass(slots=True)
class Shared:
    """What all crawls of a node have in common."""

    peers: Peers
    replicator: Replicator
    tidings: OwnerNews
    committer: Committer
    clock: Clock
    settings: SwarmSettings
    moved: Callable[[PeerRow], None]
    incarnation_of: Callable[[bytes], int | None]  # a member's; None: it is not there
    learn: Callable[[CrawlRecord], Awaitable[object]]
    auditor: Auditor
    awake: Callable[[], bool]  # False once this node learns that it did not run for a while
    incarnation: int
    reconciling: Callable[[], bool]
    tell_crawl: Callable[[bytes, bytes], Awaitable[object]]  # (node, crawl)
    announce: Callable[[bytes, Sequence[str]], Awaitable[None]]  # (crawl, aliases)
    disk: Callable[[CrawlRecord], BodyStore]
    policies: Policies
    merge: Callable[[bytes, list[TaskReplica]], Awaitable[Merged]]  # (crawl, records of another node)
    compare: Callable[[bytes, Sequence[bytes]], Awaitable[bool]]  # (crawl, task keys) with whoever keeps them
    about: NodeTraits  # this node, for planners


class CrawlRun:
    """A crawl that runs here."""

    def __init__(self, shared: Shared, record: CrawlRecord, counters: CrawlCounters, group: asyncio.TaskGroup) -> None:
        self._record = record
        self.key_bytes = task_key_bytes(record.spec.key_mode)
        self.depth_matters = record.spec.settings.depth >= 0
        self._shared = shared
        self._id = record.crawl_id
        self._group = group
        self._own = shared.peers.node_id
        self._crawl: Crawl | None = None
        self._view = shared.peers.view
        self._settled: View | None = None
        self.ownership = SwarmOwnership(KeyClaim(self._own, self._view, None))
        self.elsewhere = Assignments(
            self,
            self.ownership,
            shared.peers,
            shared.clock,
            shared.committer,
            group,
            incarnation_of=shared.incarnation_of,
            policy=shared.policies.of(record),
            policies=shared.policies,
            merge=shared.merge,
            compare=shared.compare,
            facts=facts_of(record.spec.settings, shared.about, lambda: len(self.crawl.frontier)),
        )
        self._participants = Participants(record, shared.learn, group)
        self.held_back = False  # nothing is started: joining once more, or about to leave
        self.courier = LinkSender(
            shared.peers,
            self._id,
            group,
            acked=lambda links: self.crawl.corridor.acked(links),
            put_back=lambda links: self.crawl.corridor.put_back(links),
            moved=shared.moved,
            tell_crawl=lambda node: shared.tell_crawl(node, self._id),
        )
        self.copying = BodyCopies(self, shared, shared.disk(record), group)
        self.bodies = MissingBodies(
            shared.committer,
            shared.clock,
            self._id,
            grace_s=shared.settings.holder_grace_s,
            absent=self._absent,
            claims=lambda: self.ownership.claim.mine,
            snapshot=self.ownership.snapshot,
            opened=self._opened,
            rehome=self.copying.rehome,
            gave_up=self.copying.holders_changed,
        )
        self._allowance = PageAllowance(record.spec.settings.max_pages)
        self._allowance.begin(counters.pages, shared.incarnation)
        self.ports = CrawlPorts(
            self.ownership,
            SwarmReplication(
                self._id,
                shared.replicator,
                shared.tidings,
                self.courier,
                self.copying.copier,
                lambda: self.elsewhere.releasing,
            ),
            self.elsewhere,
            SwarmBudget(shared.awake, self._allowance, counters),
            SwarmRecord(self._id, shared.announce, self._participants, self.bodies),
        )

    @property
    def crawl(self) -> Crawl:
        """The crawl, once it was begun."""
        assert self._crawl is not None, "begin first"
        return self._crawl

    @property
    def intake(self) -> Intake:
        return self.crawl.intake

    def begin(self, crawl: Crawl) -> None:
        """The crawl that this is the swarm's side of."""
        self._crawl = crawl
        self.copying.begin(crawl.corridor)
        self._audit = CrawlAudit(self._shared.auditor, self._record, crawl.corridor, doubt=crawl.counters.pages > 0)
        self.coordinator = Coordinator(self._shared.peers, self._shared.clock, self._id, self, self._allowance)
        self._hold()

    def snapshot(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot:
        return self.ownership.snapshot(task_keys)

    def keep(self, copies: Sequence[TaskReplica], then: Callable[[], None]) -> None:
        self.ports.replication.keep(copies, then)

    # What others ask

    def heard(self, found: Sequence[TaskReplica]) -> None:
        """Copies came: what is over is with nobody else any more."""
        self.elsewhere.heard(found)

    def buried(self, keys: Sequence[bytes]) -> None:
        """These are over: they were safe before they were fetched, so links to them need not be sent again."""
        if not self.depth_matters:
            learn = self.crawl.corridor.outbox.learn
            for key in keys:
                learn(key)
        self.elsewhere.over(keys)

    def in_flight(self, key: bytes) -> bool:
        """Whether a task's record must stay: it is being fetched here, or its outcome is not with its owner yet."""
        return self.crawl.has_in_flight(key) or self.elsewhere.is_borrowed(key)

    @property
    def draining(self) -> bool:
        """Whether anything that was begun is not over."""
        waiting = self.crawl.waiting
        taking = bool(self.copying.desk.busy) or self.elsewhere.lending
        return self.courier.busy or taking or any(count for word, count in waiting.items() if word != "queued")

    @property
    def crawl_id(self) -> bytes:
        return self._id

    @property
    def owning(self) -> bool:
        """Whether what is this node's own may be fetched, or lent."""
        return not self.crawl.held

    @property
    def leaving(self) -> bool:
        """Whether nothing more is begun here, whatever the crawl does."""
        return self.held_back or self._settled is None

    @property
    def claim(self) -> KeyClaim:
        """Which tasks are for this node to fetch, or to lend."""
        return self.ownership.claim

    # What happens around it

    def view_changed(self, view: View) -> None:
        """Other keys are ours than before, or only somebody did not answer for a while."""
        before, self._view = self._view, view
        if view.alike(before):
            if self._settled is before:
                self._settled = view
            return
        self._audit.view_changed(before, view)
        self._reclaim()
        self.copying.nodes_came()
        self.coordinator.view_changed()

    def settle(self, view: View | None) -> None:
        """What is ours by `view` may be fetched."""
        self._settled = self._view if view is not None and view.alike(self._view) else view
        self._hold()
        self._reclaim()

    def _reclaim(self) -> None:
        before, now = self.ownership.claim, KeyClaim(self._own, self._view, self._settled)
        self.ownership.reclaim(now)
        self.crawl.intake.view_changed(now.bits)
        # What was somebody else's a moment ago may lie at a node that is gone.
        self.bodies.view_changed(ours=now.bits != before.bits)
        self.elsewhere.view_changed()

    def changed(self, record: CrawlRecord) -> None:
        """The crawl's record has changed."""
        if record.adopted != self._record.adopted:
            self.copying.holders_changed()
        self._record = record
        self._participants.changed(record)
        self.crawl.learn_aliases(record.aliases)
        self._hold()
        self.bodies.view_changed(ours=False)
        self.coordinator.record_changed()
        if record.ended:
            self.crawl.finish()
        else:
            self.crawl.settled()

    def hold(self, hold: bool) -> None:
        """Start nothing, whatever else says that we may."""
        self.held_back = hold
        self._hold()
        if hold:
            self.elsewhere.stop()

    def _hold(self) -> None:
        self.crawl.held = self.held_back or self._settled is None or self._record.state != RUNNING

    async def run(self) -> None:
        """Look after what others have and what is missing, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.bodies.run())
            group.create_task(self.copying.run())
            group.create_task(self.elsewhere.run())

    # Board: how the crawl stands here, for its coordinator

    def record(self) -> CrawlRecord:
        return self._record

    def report(self) -> CrawlReport:
        crawl, counters = self.crawl, self.crawl.counters
        waiting = {word: count for word, count in self._waiting().items() if count}
        return CrawlReport(
            self._shared.incarnation,
            idle=not waiting,
            activity=crawl.activity,
            waiting=waiting,
            counters={
                **counters.figures(),
                "bytes": counters.body_bytes,
                "queued": len(crawl.frontier),
                "in_flight": crawl.frontier.in_flight,
                "seconds": crawl.seconds,
            },
        )

    def _waiting(self) -> dict[str, int]:
        """What keeps the crawl from its end, in the words of `termination.WAITING`."""
        crawl = self.crawl
        found = crawl.waiting
        if "queued" in found and (crawl.held or not self.ports.budget.may_start(len(crawl.in_flight))):
            found[FROZEN] = found.pop("queued")
        if self._settled is not self._view:
            found["repair"] = 1
        return found | {
            "links": found.get("links", 0) + self.courier.busy,
            "backups": int(self._shared.replicator.busy_with(self._id)),
            "bodies": self.bodies.missing + self._participants.busy,
            "copies": found.get("copies", 0) + self.copying.under_way,
            "held": self.elsewhere.waiting,
            FROZEN: found.get(FROZEN, 0) + self.elsewhere.frozen,
            "hand_over": self.elsewhere.releasing + self._shared.reconciling(),
        }

    async def audit(self) -> tuple[int, int]:
        return await self._audit.run()

    async def update(self, record: CrawlRecord) -> None:
        await self._shared.learn(record)

    def need(self) -> PageNeed:
        crawl = self.crawl
        return PageNeed(crawl.counters.pages + len(crawl.in_flight), 0 if crawl.held else len(crawl.frontier))

    def granted(self) -> None:
        self.crawl.settled()

    # Inside

    def _is_member(self, node: str) -> bool:
        return self._shared.incarnation_of(bytes.fromhex(node)) is not None

    def awaited(self) -> list[str]:
        """Participants that may yet come back, with bodies that nobody else has."""
        return [node for node in self._absent() if node not in self.bodies.given_up]

    def _absent(self) -> list[str]:
        return self._participants.absent(self._shared.peers.view, self._is_member)

    @property
    def given_up(self) -> frozenset[str]:
        """Participants that are gone for longer than the grace."""
        return self.bodies.given_up

    def members(self) -> frozenset[str]:
        """Who is there, this node included."""
        return frozenset(member.id.hex() for member in self._shared.peers.view.members) | {self._own.hex()}

    def _opened(self, opened: list[TaskReplica], merged: Merged) -> None:
        if opened:
            self.keep(opened, partial(self.crawl.intake.merged, merged))
