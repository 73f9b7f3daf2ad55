"""Builds one crawl on one node of a swarm, each part from those before it.

record, view ─▶ state, ownership ─▶ links, copier ─▶ ports ─▶ parts of the crawl
─▶ assignments ─▶ crawl ─▶ bodies ─▶ board ─▶ coordinator ─▶ run
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dhtcrawl.config import SwarmSettings
from dhtcrawl.crawl.crawler import Crawl
from dhtcrawl.crawl.parts import CrawlParts, build, first_round
from dhtcrawl.crawl.ports import CrawlPorts
from dhtcrawl.crawl.site_timer import SiteTimer
from dhtcrawl.fetch.robots import product_token
from dhtcrawl.node.crawl_ports import SwarmBudget, SwarmRecord, SwarmReplication
from dhtcrawl.node.crawl_run import AssignmentSide, CopyingSide, CrawlBoard, CrawlRun
from dhtcrawl.node.single import Node, RunningCrawl
from dhtcrawl.policy.guard import Guard
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.rows import PeerRow
from dhtcrawl.storage.archive.names import first_number
from dhtcrawl.storage.outputs.outputs import LivePages, OutputDirs
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.storage.store.depth_limits import reaches
from dhtcrawl.storage.store.given_up import GivenUp, OpenedAgain
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.swarm.assignment.assignments import Assignments, AssignmentServices
from dhtcrawl.swarm.assignment.assignments import build as build_assignments
from dhtcrawl.swarm.assignment.facts import NodeTraits, facts_of
from dhtcrawl.swarm.assignment.failures import Failures, undecided
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.assignment.policies import Policies
from dhtcrawl.swarm.assignment.site_places import Measures
from dhtcrawl.swarm.bodies.absences import Absences
from dhtcrawl.swarm.bodies.copier import Copier, PageRows
from dhtcrawl.swarm.bodies.copying import BodyCopies, BodyStore
from dhtcrawl.swarm.bodies.missing import MissingBodies
from dhtcrawl.swarm.hosts.host_leases import HostLeases
from dhtcrawl.swarm.lifecycle.audit import Auditor, CrawlAudit
from dhtcrawl.swarm.lifecycle.coordinator import Coordinator
from dhtcrawl.swarm.lifecycle.crawl_memory import CrawlMemories
from dhtcrawl.swarm.lifecycle.crawl_records import CrawlRecords
from dhtcrawl.swarm.lifecycle.page_blocks import PageAllowance
from dhtcrawl.swarm.lifecycle.participants import Participants
from dhtcrawl.swarm.lifecycle.run_state import RunState
from dhtcrawl.swarm.lifecycle.scope_growth import ScopeGrowth
from dhtcrawl.swarm.membership.contact import LostContact
from dhtcrawl.swarm.records.owner_news import OwnerNews
from dhtcrawl.swarm.records.replicate import Replicator
from dhtcrawl.swarm.records.send_links import LinkSender


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts of a node that all its crawls share."""

    node: Node
    group: asyncio.TaskGroup
    peers: Peers
    replicator: Replicator
    owner_news: OwnerNews
    settings: SwarmSettings
    gate: HostLeases
    moved: Callable[[PeerRow], None]
    incarnation_of: Callable[[bytes], int | None]  # of a node id; None: no such member
    learn: Callable[[CrawlRecord], Awaitable[object]]
    auditor: Auditor
    scope_settled: Callable[[bytes], Awaitable[bool]]  # (crawl): whether it is known which targets of redirects count
    awake: Callable[[], bool]  # False once this node learns that it did not run for a while
    reconciling: Callable[[], bool]
    lost_contact: Callable[[], LostContact | None]
    tell_crawl: Callable[[bytes, bytes], Awaitable[object]]  # (node, crawl)
    records: CrawlRecords
    stop_crawl: Callable[[bytes, str], Awaitable[None]]  # (crawl, cause)
    policies: Policies
    merge: Callable[[bytes, list[TaskReplica], bytes], Awaitable[Merged]]  # (crawl, records of another node, which)
    compare: Callable[[bytes, Sequence[bytes]], Awaitable[bool]]  # (crawl, task keys) with the nodes that keep them
    traits: NodeTraits  # this node, for planners
    memories: CrawlMemories


@dataclass(frozen=True, slots=True)
class _Given:
    """The parts of a crawl that are made first."""

    record: CrawlRecord
    state: RunState
    policy: Guard | None  # None if this node cannot run it
    failures: Failures
    ownership: SwarmOwnership
    participants: Participants
    absences: Absences
    allowance: PageAllowance


async def compose(
    shared: Shared, record: CrawlRecord, dirs: OutputDirs, *, disk_used: Callable[[], Awaitable[bool]]
) -> tuple[CrawlRun, RunningCrawl]:
    """Build the run of a crawl, and the crawl with its outputs; each is to be run once.

    Raises:
        StorageError: the store or an archive file cannot be read.
    """
    node, peers = shared.node, shared.peers
    # A command that gathers on this machine has the nodes' directories, and takes what is there.
    first_file = 0 if dirs.gathered else first_number(node.ports.clock.wall())
    recovered, live = await node.recover(record, dirs.archive, first_file=first_file), LivePages(dirs)
    policy, start = await shared.policies.of(record), recovered.start
    given = _given(shared, record, policy, start.counters.pages)
    next_round = first_round(start)
    tell_crawl = partial(_tell_crawl, shared.tell_crawl, record.crawl_id)
    links = LinkSender(
        peers,
        record.crawl_id,
        shared.group,
        acked=next_round.acked,
        put_back=next_round.put_back,
        moved=shared.moved,
        tell_crawl=tell_crawl,
    )
    copier = Copier(
        peers,
        node.committer,
        node.ports.clock,
        shared.group,
        PageRows(record.crawl_id, dirs.archive),
        further=record.spec.settings.copies - 1,
        tell_crawl=tell_crawl,
    )
    ports = CrawlPorts(
        given.ownership,
        SwarmReplication(record.crawl_id, shared.replicator, shared.owner_news, links, copier, given.ownership),
        SwarmRecord(
            record.crawl_id,
            shared.records.announce,
            partial(_caught_up, shared),
            shared.records.has_room,
            shared.stop_crawl,
            given.participants,
            given.absences,
        ),
    )
    services = node.services(recovered, ports, (shared.gate.book, shared.gate))
    parts = build(services, start, next_round, live)
    timer = SiteTimer(services, record.spec, parts)
    assignments = _assignments(shared, given, parts, timer)
    budget = SwarmBudget(given.state, shared.awake, given.allowance, parts.counters)
    crawl = Crawl(services, parts, assignments, budget, disk_used=disk_used)
    side = CopyingSide(given.state, given.ownership, shared.replicator, peers)
    disk = BodyStore(dirs.archive, partial(node.copies_archive, record, dirs.archive, first_file), node.ports.offload)
    copying = BodyCopies(side, peers, node.committer, disk, copier, parts, given.absences)
    bodies = _missing_bodies(shared, given, parts, copying)
    audit = CrawlAudit(shared.auditor, record, next_round, shared.scope_settled, doubt=parts.counters.pages > 0)
    growth = ScopeGrowth(
        node.committer,
        record.crawl_id,
        partial(_reaches, parts),
        given.ownership.snapshot,
        partial(_reached, shared.replicator, record.crawl_id, parts),
    )
    board = CrawlBoard(
        peers.node_id,
        node.incarnation,
        given.state,
        parts,
        crawl,
        budget,
        given.ownership,
        shared.replicator,
        links,
        assignments,
        copying,
        bodies,
        given.participants,
        audit,
        growth,
        shared.learn,
        shared.reconciling,
        shared.lost_contact,
        shared.records.authority,
    )
    run = CrawlRun(
        given.state,
        parts,
        crawl,
        given.ownership,
        assignments,
        links,
        copying,
        bodies,
        given.participants,
        audit,
        growth,
        board,
        timer,
        Coordinator(
            peers,
            node.ports.clock,
            record.crawl_id,
            board,
            given.allowance,
            memory=shared.memories.of(record.crawl_id),
        ),
    )
    return run, node.running(record, crawl, dirs, live)


def _given(shared: Shared, record: CrawlRecord, policy: Guard | None, pages: int) -> _Given:
    peers, failures = shared.peers, Failures()
    state = RunState(record, peers.node_id, peers.view)
    participants = Participants(record, shared.learn, shared.group)
    allowance = PageAllowance(record.settings.max_pages)
    allowance.begin(pages, shared.node.incarnation)

    def start_of(node: str) -> int | None:
        return shared.incarnation_of(bytes.fromhex(node))

    def is_member(node: str) -> bool:
        return start_of(node) is not None

    return _Given(
        record,
        state,
        policy,
        failures,
        SwarmOwnership(state.claim(), undecided(policy, failures), lends=policy is not None and not policy.owner_first),
        participants,
        Absences(
            lambda: participants.absent(peers.view, is_member),
            shared.settings.holder_grace_s,
            earlier=record.participants,
            started_anew=lambda: participants.started_anew(peers.view, start_of),
        ),
        allowance,
    )


def _assignments(shared: Shared, given: _Given, parts: CrawlParts, timer: SiteTimer) -> Assignments:
    node, settings = shared.node, given.record.settings
    services = AssignmentServices(
        shared.peers,
        node.ports.clock,
        node.committer,
        shared.group,
        shared.incarnation_of,
        shared.policies,
        shared.merge,
        shared.compare,
    )
    facts = facts_of(settings, shared.traits, lambda: len(parts.frontier))
    token = product_token(settings.user_agent)
    measures = Measures(facts, timer, settings.depth != 0, lambda origin: shared.gate.robots_read_by(origin, token))
    side = AssignmentSide(parts, given.state)
    return build_assignments(services, side, given.ownership, given.policy, given.failures, measures)


def _missing_bodies(shared: Shared, given: _Given, parts: CrawlParts, copying: BodyCopies) -> MissingBodies:
    return MissingBodies(
        shared.node.committer,
        shared.node.ports.clock,
        given.record.crawl_id,
        given.absences,
        given.ownership.snapshot,
        copying,
        partial(_opened, shared.replicator, given.record.crawl_id, parts),
    )


def _opened(replicator: Replicator, crawl: bytes, parts: CrawlParts, opened: list[TaskReplica], merged: Merged) -> None:
    """Queue pages that are to be fetched anew once their backups know of it."""
    if opened:
        parts.counters.pages_reopened += len(opened)
        replicator.keep(crawl, opened, partial(parts.intake.merged, merged))


def _reaches(parts: CrawlParts, task: GivenUp) -> bool:
    """Whether scope and depth limit let a task be fetched by now."""
    return parts.scope.rules_out(task.url) is None and reaches(parts.start.spec.settings.depth, task.depth)


def _reached(replicator: Replicator, crawl: bytes, parts: CrawlParts, again: OpenedAgain) -> None:
    """Queue tasks that the crawl reaches by now once their backups know of it."""
    parts.counters.heard(again.counted)
    replicator.keep(crawl, again.opened, partial(parts.intake.merged, again.merged))


async def _caught_up(shared: Shared, crawl: bytes) -> bool:
    """Learn all that decides what is within the scope; whether all answered that know it."""
    # Of what the members tell it is asked then.
    return await shared.records.catch_up(crawl) and await shared.scope_settled(crawl)


async def _tell_crawl(tell: Callable[[bytes, bytes], Awaitable[object]], crawl: bytes, node: bytes) -> None:
    await tell(node, crawl)
