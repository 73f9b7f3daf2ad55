"""The parts of a node of a swarm, in groups; each is built from those before it.

    ground, transport ─▶ planes ─▶ crawls ─▶ records ─▶ gate ─▶ lifecycle ─▶ membership

`build` makes all of them and lets them hear of one another; nothing runs before
`dhtcrawl.node.swarm_node` lets it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from dhtcrawl.closed.secret import Ring
from dhtcrawl.crawl.budget import DiskLimit
from dhtcrawl.node.planes import NetworkConfig
from dhtcrawl.node.reception import FEATURES, Reception
from dhtcrawl.node.single import Node
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.server import RoutingServer
from dhtcrawl.rpc.membership.gossip import Gossip
from dhtcrawl.rpc.membership.gossip_settings import GossipSettings
from dhtcrawl.rpc.membership.hello import OUTBOUND, MemberRecord
from dhtcrawl.rpc.membership.member_exchange import TaskPlane
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers
from dhtcrawl.rpc.membership.row_proofs import OwnNode
from dhtcrawl.rpc.peers.bounded import Bounded
from dhtcrawl.rpc.peers.port import CallRegistry
from dhtcrawl.rpc.peers.task_peers import TaskPeers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.sockets import TlsContexts
from dhtcrawl.rpc.tasks.transport import TaskTransport
from dhtcrawl.storage.outputs.outputs import OutputDirs
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.assignment import assignments
from dhtcrawl.swarm.bodies import copying
from dhtcrawl.swarm.bodies.adopt import Adoption
from dhtcrawl.swarm.bodies.exports import Exports
from dhtcrawl.swarm.calls.bodies import Adopt
from dhtcrawl.swarm.calls.lifecycle import AuditKeys
from dhtcrawl.swarm.calls.records import Have
from dhtcrawl.swarm.hosts.host_leases import HostLeases, HostLeaseSettings
from dhtcrawl.swarm.hosts.leases import LeaseTerms, RestLimits
from dhtcrawl.swarm.lifecycle import in_flight
from dhtcrawl.swarm.lifecycle.audit import Auditor
from dhtcrawl.swarm.lifecycle.crawl_authority import CrawlAuthority
from dhtcrawl.swarm.lifecycle.crawl_calls import CrawlCalls
from dhtcrawl.swarm.lifecycle.crawl_records import CrawlRecords
from dhtcrawl.swarm.lifecycle.crawl_runs import CrawlRuns
from dhtcrawl.swarm.lifecycle.manual_queue import ManualQueue
from dhtcrawl.swarm.lifecycle.redirect_trust import RedirectTrust
from dhtcrawl.swarm.membership.join import Join
from dhtcrawl.swarm.membership.join_steps import JoinSettings
from dhtcrawl.swarm.membership.leave import Leave
from dhtcrawl.swarm.membership.leave_state import LeaveSettings
from dhtcrawl.swarm.membership.outward import OutwardConnections
from dhtcrawl.swarm.membership.own_address import OwnAddress
from dhtcrawl.swarm.membership.peer_store import GossipStanding, PeerStore, ask_members
from dhtcrawl.swarm.membership.ports import OwnerPorts
from dhtcrawl.swarm.membership.reach_check import ReachCheck, TryAddress
from dhtcrawl.swarm.records.doubts import CrawlKnowledge, Doubts
from dhtcrawl.swarm.records.inbox import Inbox
from dhtcrawl.swarm.records.merger import Merger
from dhtcrawl.swarm.records.owner_news import OwnerNews
from dhtcrawl.swarm.records.replicate import Replicator
from dhtcrawl.swarm.records.sync import Syncer

REPAIR_S = 600.0  # how often everything is compared, whatever happened


@dataclass(frozen=True, slots=True)
class Ground:
    """What a node has before it is in the network."""

    node: Node
    network: NetworkConfig
    registry: CallRegistry
    reception: Reception
    outputs: Callable[[bytes], OutputDirs]  # where a crawl's files go
    disk_used: DiskLimit
    boottime: Callable[[], float] | None  # a clock that goes on while the machine sleeps

    @property
    def id(self) -> bytes:
        return bytes.fromhex(self.node.node_id)

    def archive_of(self, crawl: bytes) -> Directory:
        """Where the bodies of a crawl are."""
        return self.outputs(crawl).archive


@dataclass(frozen=True, slots=True)
class Planes:
    """How a node reaches the others, and who they are."""

    routing: RoutingServer
    transport: TaskTransport
    gossip: Gossip
    peers: TaskPeers

    def use_secrets(self, ring: Ring, tls: TlsContexts) -> None:
        """Seal, open and connect by these from here on; connections by a secret that is dropped are cut."""
        sealed = self.routing.plane.sealed
        if sealed is not None:
            sealed.sealer.use(ring)
            self.transport.use_tls(tls)

    @property
    def address(self) -> Address:
        """Where the others reach this node."""
        return self.gossip.members.me.address

    def awake(self) -> bool:
        """False where this node did not run for so long that it has to join again, which begins with this call."""
        return not self.gossip.check_paused()

    def rtt_s(self, address: Address) -> float | None:
        """The smoothed round trip to a member, in seconds; None where nothing was measured."""
        return self.routing.plane.calls.rtt.measured_s(address)

    def rtts(self) -> dict[bytes, float]:
        """The round trips that were measured, in seconds, by member."""
        measured = {member.id: self.rtt_s(member.address) for member in self.gossip.view.members}
        return {node: rtt_s for node, rtt_s in measured.items() if rtt_s is not None}


@dataclass(frozen=True, slots=True)
class RecordParts:
    """What brings task records to the nodes that keep them."""

    syncer: Syncer
    inbox: Inbox
    merger: Merger
    replicator: Replicator
    owner_news: OwnerNews

    def take_links(self, owning: bool) -> None:
        """Whether links are taken from here on."""
        self.inbox.owning = owning


@dataclass(frozen=True, slots=True)
class LifecycleParts:
    """The crawls, and what is done with them from their start to their export."""

    runs: CrawlRuns
    auditor: Auditor
    adoption: Adoption
    given_up: ManualQueue
    trust: RedirectTrust


@dataclass(frozen=True, slots=True)
class MembershipParts:
    """How a node comes to own and leaves, and whom it remembers."""

    join: Join
    leave: Leave
    peer_store: PeerStore


@dataclass(frozen=True, slots=True)
class PlaceParts:
    """Where the others reach this node, and whether they do."""

    own_address: OwnAddress | None  # where it may change
    reach_check: ReachCheck
    outward: OutwardConnections | None  # where they do not


@dataclass(frozen=True, slots=True)
class SwarmParts:
    """All parts of a node that listens."""

    planes: Planes
    records: RecordParts
    gate: HostLeases
    lifecycle: LifecycleParts
    membership: MembershipParts
    place: PlaceParts


def build(
    ground: Ground,
    group: asyncio.TaskGroup,
    transport: TaskTransport,
    routing: RoutingServer,
    address: Address,
    try_address: TryAddress,
) -> SwarmParts:
    """The parts of a node whose planes listen; requests are answered from here on."""
    planes = build_planes(ground, transport, routing, address)
    authority = CrawlAuthority(
        ground.node.ports.key,
        lambda: planes.peers.view,
        lambda node: planes.gossip.members.get(node) is not None,
        incarnation=ground.node.incarnation,
        passed_on=ground.network.commanded_anywhere,
    )
    crawls = CrawlRecords(planes.peers, ground.registry, ground.node.committer, authority)
    runs = CrawlRuns(planes.peers, crawls, ground.node.committer, group)
    records = build_records(ground, group, planes, runs)
    gate = build_gate(ground, planes, records, runs)
    trust = RedirectTrust(planes.peers, ground.registry, ground.node.committer, crawls, partial(_has_from_us, runs))
    lifecycle = build_lifecycle(ground, planes, records, runs, trust)
    membership = build_membership(ground, planes, records, gate, lifecycle)
    place = build_place(ground, planes, transport, membership.peer_store, try_address)
    join = membership.join
    bounded = Bounded(ground.id, records.inbox.handle, ground.node.ports.clock.monotonic)
    ground.reception.open(bounded.handle, lambda: join.state.active, planes.gossip.members.knows)
    return SwarmParts(planes, records, gate, lifecycle, membership, place)


def build_planes(ground: Ground, transport: TaskTransport, routing: RoutingServer, address: Address) -> Planes:
    """The gossip, and the peers that it knows."""
    ports, reception = ground.node.ports, ground.reception
    features = (*FEATURES, OUTBOUND) if ground.network.outbound_only else FEATURES
    gossip = Gossip(
        routing,
        OwnNode(MemberRecord.newcomer(ground.id, address, ground.node.incarnation, features), ports.key),
        clock=ports.clock,
        rng=ports.rng,
        tasks=TaskPlane(partial(ask_members, transport), transport.heard_s),
        settings=GossipSettings(suspicion_s=ground.node.config.swarm.suspicion_s),
        boottime=ground.boottime,
    )
    ground.registry.serve(ExchangeMembers, gossip.answer_members)
    peers = TaskPeers(
        ground.id,
        transport,
        reception.handle,
        reception.hello,
        lambda: gossip.view,
        gossip.members.get,
        routing.plane,
    )
    return Planes(routing, transport, gossip, peers)


def build_records(ground: Ground, group: asyncio.TaskGroup, planes: Planes, runs: CrawlRuns) -> RecordParts:
    """Records that come are merged for the crawls, in one order, whichever way they come."""
    committer, settings = ground.node.committer, ground.node.config.swarm
    orders = itertools.count(ground.node.incarnation << 40)  # drawn on the committer's thread
    syncer = Syncer(
        planes.peers,
        committer.submit,
        runs.records.ids,
        settings.replicas,
        runs.merged,
        lambda crawl: runs.terms(crawl, orders),
    )
    ground.registry.serve(Have, syncer.on_have)
    merger = Merger(committer, orders, runs.of, planes.peers, ground.node.ports.clock.monotonic)
    inbox = Inbox(
        planes.peers,
        ground.registry,
        group,
        merger,
        refresh=syncer.on_refresh,
        doubts=Doubts(
            CrawlKnowledge(partial(_strays, runs), partial(_took_part, planes, runs), runs.records.catch_up_with),
            ground.node.ports.clock.monotonic,
            group,
        ),
        awake=planes.awake,
    )
    replicator = Replicator(
        planes.peers,
        group,
        replicas=settings.replicas,
        acks=settings.acks,
        further=merger.merge,
        compare=partial(_compared, planes, syncer),
        heir_of=runs.records.heir_of,
    )
    return RecordParts(syncer, inbox, merger, replicator, OwnerNews(planes.peers, group, further=merger.merge))


async def _compared(planes: Planes, syncer: Syncer, node: bytes) -> bool:
    """Whether a member has the same records as this node, of those that both keep."""
    result = await syncer.sync(node, planes.peers.view)
    return not isinstance(result, Failure) and not result.refused


def _strays(runs: CrawlRuns, crawl: bytes, links: Sequence[Link | None]) -> list[Link]:
    """The links that a crawl's scope does not reach; none where its record has no room for all that it reaches."""
    run = runs.of(crawl)
    found = [] if run is None else run.parts.scope.strays(links)
    return found if found and runs.records.has_room(crawl) else []


def _has_from_us(runs: CrawlRuns, crawl: bytes, key: bytes, node: bytes) -> bool:
    """Whether a node has a task from this one, or from the owner before."""
    run = runs.of(crawl)
    return run is not None and run.assignments.holder(key) == node


def _took_part(planes: Planes, runs: CrawlRuns, crawl: bytes, node: str) -> bool:
    """Whether a node has, or may have, pages of a crawl: it is or was a member, or the crawl's record names it."""
    if planes.gossip.members.get(bytes.fromhex(node)) is not None or runs.of(crawl) is None:
        return True
    record = runs.records.get(crawl)
    return record is None or runs.records.is_named(crawl, node)


def build_gate(ground: Ground, planes: Planes, records: RecordParts, runs: CrawlRuns) -> HostLeases:
    """The leases of hosts: this node's own, and those that it gives as a gatekeeper."""
    ports, config, inbox = ground.node.ports, ground.node.config, records.inbox
    return HostLeases(
        planes.peers,
        ground.registry,
        ports.clock,
        runs.host_free,
        rng=ports.rng,
        settings=HostLeaseSettings(
            started_at=ports.clock.monotonic(),
            fresh=ground.node.incarnation == 1,
            terms=LeaseTerms(ttl_s=config.swarm.lease_s, requests=config.swarm.lease_requests),
            robots_ttl_s=config.politeness.robots_ttl_s,
            rests=RestLimits(
                delay_s=config.politeness.crawl_delay_max_s,
                hold_s=max(config.politeness.retry_after_max_s, config.politeness.backoff_max_s),
                delay_of_crawls=lambda: runs.records.delay_s,
            ),
        ),
        # One that never owns has no leases when it has to join again: they were voided.
        fit=lambda: (inbox.owning or ground.network.outbound_only) and planes.awake(),
    )


def build_lifecycle(
    ground: Ground, planes: Planes, records: RecordParts, runs: CrawlRuns, trust: RedirectTrust
) -> LifecycleParts:
    """What other nodes and people ask about crawls beside their runs."""
    registry, committer, peers = ground.registry, ground.node.committer, planes.peers
    auditor = Auditor(peers, committer)
    registry.serve(AuditKeys, auditor.on_audit_keys)
    Exports(committer, ground.archive_of, runs.wait_for_end).serve(registry)
    adoption = Adoption(peers, committer, ground.archive_of, runs.records, runs.once_made, ground.disk_used)
    registry.serve(Adopt, adoption.on_adopt)
    CrawlCalls(peers, committer, runs, ground.node.incarnation).serve(registry)
    assignments.serve(registry, runs.of)
    copying.serve(registry, runs.of)
    given_up = ManualQueue(peers, registry, committer, runs, keep=records.replicator.keep)
    return LifecycleParts(runs, auditor, adoption, given_up, trust)


def build_membership(
    ground: Ground, planes: Planes, records: RecordParts, gate: HostLeases, lifecycle: LifecycleParts
) -> MembershipParts:
    """Joining and leaving.

    What a gatekeeper before us does not tell of hosts that are ours now, the gate waits for instead.
    """
    clock, config, runs = ground.node.ports.clock, ground.node.config, lifecycle.runs
    join = Join(
        planes.peers,
        GossipStanding(planes.gossip),
        records.syncer,
        runs,
        clock,
        JoinSettings(
            ground.id,
            config.swarm.replicas,
            REPAIR_S,
            config.swarm.suspicion_s,
            outbound=ground.network.outbound_only,
        ),
        OwnerPorts(
            pull=runs.records.pull,
            hold_for=partial(in_flight.hold_for, runs),
            adopt=gate.office.adopt,
            owning=records.take_links,
            reunited=gate.reunited,
        ),
    )
    leave = Leave(
        LeaveSettings(own=ground.id, replicas=config.swarm.replicas, drain_s=config.node.drain_timeout_s),
        planes.gossip,
        runs,
        records.syncer,
        records.replicator,
        lifecycle.adoption,
        join,
    )
    return MembershipParts(join, leave, PeerStore(planes.gossip, ground.node.committer, clock, planes.address))


def build_place(
    ground: Ground, planes: Planes, transport: TaskTransport, peer_store: PeerStore, try_address: TryAddress
) -> PlaceParts:
    """What knows where this node is, and what others are asked about that."""
    own_hosts, own_address = ground.network.own_hosts, None
    if own_hosts is not None:
        own_address = OwnAddress(planes.gossip, own_hosts, lambda: peer_store.addresses, transport.part_from_all)
    reach_check = ReachCheck(planes.peers, planes.gossip, planes.routing.plane, try_address)
    reach_check.serve(ground.registry)
    outward = OutwardConnections(planes.peers, transport.is_connected) if ground.network.outbound_only else None
    return PlaceParts(own_address, reach_check, outward)
