"""A node of a swarm: its store, its two planes, its crawls, built and run in stages.

    open ─▶ listen ─▶ find the others ─▶ join ─▶ crawl ─▶ leave, or stop ─▶ closed

Leaving hands everything over first; stopping does not, and leaves the node's
part to its backups until it is back. Everything that runs, runs in one
TaskGroup; what touches the world came in with `dhtcrawl.node.single.Ports`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from dhtcrawl.config import pairs
from dhtcrawl.keyspace import host_key
from dhtcrawl.loop_state import loop_state
from dhtcrawl.node.crawl_run import CrawlRun
from dhtcrawl.node.planes import NetworkConfig, listen
from dhtcrawl.node.single import Node, RunningCrawl
from dhtcrawl.node.swarm_crawl import Shared, compose
from dhtcrawl.node.task_group import OrderedTaskGroup
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.server import RoutingServer
from dhtcrawl.rpc.membership.gossip import Gossip
from dhtcrawl.rpc.membership.gossip_settings import GossipSettings
from dhtcrawl.rpc.membership.hello import MemberRecord
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import CallRegistry
from dhtcrawl.rpc.peers.task_peers import TaskPeers
from dhtcrawl.rpc.tasks.messages import Refused, Reply, Request
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.rpc.tasks.transport import TaskTransport
from dhtcrawl.storage.outputs.outputs import OutputDirs
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.catalog import CrawlRecord
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.keys import INCARNATION_KEY
from dhtcrawl.storage.store.records import pack
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm import calls
from dhtcrawl.swarm.assignment.facts import NodeTraits
from dhtcrawl.swarm.assignment.policies import Policies
from dhtcrawl.swarm.bodies import copying
from dhtcrawl.swarm.bodies.adopt import Adoption
from dhtcrawl.swarm.bodies.exports import Exports
from dhtcrawl.swarm.hosts.host_leases import HostLeases, HostLeaseSettings
from dhtcrawl.swarm.hosts.leases import LeaseTerms
from dhtcrawl.swarm.lifecycle.audit import Auditor
from dhtcrawl.swarm.lifecycle.crawls import Crawls
from dhtcrawl.swarm.lifecycle.manual_queue import ManualQueue
from dhtcrawl.swarm.membership.join import Join
from dhtcrawl.swarm.membership.leave import Leave
from dhtcrawl.swarm.membership.peer_store import GossipStanding, PeerStore, ask_members
from dhtcrawl.swarm.records.holdings import RecordTerms
from dhtcrawl.swarm.records.inbox import Inbox
from dhtcrawl.swarm.records.owner_news import OwnerNews
from dhtcrawl.swarm.records.replicate import Replicator
from dhtcrawl.swarm.records.sync import Syncer

log = logging.getLogger(__name__)

FEATURES = ("xor",)
READY_LOOK_S = 0.05
FLUSH_S = 2.0  # for the last copies, when a node stops
REMEMBER_EVERY_S = 1.0
COUNT_EVERY_S = 3600.0
REPAIR_S = 600.0  # how often everything is compared, whatever happened


@loop_state
class SwarmNode:
    """One node; make it, `run` it once, stop it by `leave` or `shutdown`."""

    def __init__(
        self,
        node: Node,
        network: NetworkConfig,
        *,
        outputs: Callable[[bytes], OutputDirs],
        disk_used: Callable[[bytes], Callable[[], Awaitable[bool]]],
        boottime: Callable[[], float] | None = None,
    ) -> None:
        """`outputs(crawl)` is where a crawl's files go; `boottime` a clock that goes on while the machine sleeps."""
        self.node = node
        self.id = bytes.fromhex(node.node_id)
        self.opened, self.ready, self.over = (asyncio.Event() for _ in range(3))
        self.registry = CallRegistry()
        self._network = network
        self._outputs = outputs
        self._disk_used = disk_used
        self._boottime = boottime
        self._settings = node.config.swarm
        self._stopping = asyncio.Event()
        self._leaving = False
        self._said: Hello | None = None
        self.handed_over = True
        self.records_handed_over = self.records_left = 0

    # What it is made of, in the order of making

    async def run(self) -> bool:
        """Take part until stopped; whether everything was handed over that had to be.

        Raises:
            BootstrapUnreachable: none of the nodes to join through answered.
            OSError: the address is taken, or not ours.
        """
        async with TaskTransport(self._hello, self._handle, source=self._network.source) as transport:
            self.transport = transport
            ports = self.node.ports
            self.routing, address = await listen(
                transport, *self._network.listen, lambda: RoutingServer(self.id, clock=ports.clock, rng=ports.rng)
            )
            self.address = self._network.advertise or address
            try:
                async with OrderedTaskGroup() as group:
                    self._build(group)
                    await self._live(group)
            finally:
                self.routing.stop()
        return self.handed_over

    def leave(self) -> None:
        """Hand everything over, then stop."""
        self._leaving = True
        self._stopping.set()

    async def drain(self) -> bool:
        """Start nothing more; whether all that was begun was over in time."""
        return await self._farewell().drain()

    def shutdown(self) -> None:
        """Stop in order, without handing over: the backups take over until this node is back."""
        self._stopping.set()

    @property
    def state(self) -> str:
        """What this node is, for people: joining, active, leaving."""
        if self._stopping.is_set():
            return "leaving"
        return "active" if self.entrance.active else "joining"

    def rtt_s(self, address: Address) -> float | None:
        """The smoothed round trip to a member, in seconds; None where nothing was measured."""
        return self.routing.plane.calls.rtt.measured_s(address)

    def _rtts(self) -> dict[bytes, float]:
        measured = {member.id: self.rtt_s(member.address) for member in self.gossip.view.members}
        return {node: rtt_s for node, rtt_s in measured.items() if rtt_s is not None}

    def explain_host(self, host: str) -> dict[str, Any]:
        """How a host stands here, for people."""
        return self.gate.explain(host)

    def _build(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        ports, committer, settings = self.node.ports, self.node.committer, self._settings
        self.gossip = Gossip(
            self.routing,
            MemberRecord.newcomer(self.id, self.address, self.node.incarnation, FEATURES),
            clock=ports.clock,
            rng=ports.rng,
            ask_members=partial(ask_members, self.transport),
            settings=GossipSettings(suspicion_s=settings.suspicion_s),
            boottime=self._boottime,
        )
        self.acquaintances = PeerStore(self.gossip, committer, ports.clock, self.address)
        self.peers = TaskPeers(
            self.id, self.transport, self._handle, self._hello, lambda: self.gossip.view, self.gossip.members.get,
            self.routing.plane,
        )  # fmt: skip
        self.replicator = Replicator(
            self.peers, group, replicas=settings.replicas, acks=settings.acks, further=self._further,
            heir_of=lambda crawl, node: self.crawls.heir_of(crawl, node),
        )  # fmt: skip
        self.tidings = OwnerNews(self.peers, group, further=self._further)
        self.auditor = Auditor(self.peers, committer)
        self.crawls = Crawls(
            self.peers, self.registry, committer, group, incarnation=self.node.incarnation, start=self._start
        )
        self.syncer = Syncer(
            self.peers, committer.submit, self.crawls.ids, settings.replicas, self.crawls.merged, self._terms
        )
        self.inbox = Inbox(
            lambda: self.peers,
            self.registry,
            committer,
            group,
            incarnation=self.node.incarnation,
            run_of=self.crawls.run_of,
            refresh=self.syncer.on_refresh,
            awake=self._awake,
        )
        self.gate = HostLeases(
            self.peers,
            self.registry,
            ports.clock,
            self.crawls.host_free,
            rng=ports.rng,
            settings=HostLeaseSettings(
                started_at=ports.clock.monotonic(),
                fresh=self.node.incarnation == 1,
                terms=LeaseTerms(ttl_s=settings.lease_s, requests=settings.lease_requests),
                robots_ttl_s=self.node.config.politeness.robots_ttl_s,
            ),
            fit=self._fit,
        )
        self.entrance = Join(
            self.peers,
            GossipStanding(self.gossip),
            self.syncer,
            self.crawls,
            ports.clock,
            replicas=settings.replicas,
            repair_s=REPAIR_S,
            adopt=self._adopt_hosts,
            owning=self._owning,
        )
        Exports(committer, self._archive_of, self.crawls.wait_for_end).serve(self.registry)
        self.adoption = Adoption(self.peers, committer, self._archive_of)
        self.registry.serve(calls.Adopt, self.adoption.on_adopt)
        self.given_up = ManualQueue(self.peers, self.registry, committer, self.crawls, keep=self.replicator.keep)
        copying.serve(self.registry, self.crawls.run_of)
        self.registry.serve(calls.Have, self.syncer.on_have)
        self.registry.serve(ExchangeMembers, self.gossip.answer_members)
        self.registry.serve(calls.Activate, self._on_activate)
        self.registry.serve(calls.AuditKeys, self.auditor.on_audit_keys)
        self.gossip.on_change.append(self._view_changed)
        self.gossip.on_declared_dead.append(self._declared_dead)

    async def _live(self, group: OrderedTaskGroup) -> None:
        for run in (self.routing.run, self.gossip.run, self.gate.run):
            group.create_task(run())
        await self.node.committer.submit(partial(catalog.mark_swarm, node=self.id.hex()))
        await self.crawls.load()
        self.opened.set()
        if not await self.acquaintances.find(self._network.bootstrap):
            self.entrance.begin_alone()
        group.create_task(self.entrance.run())
        group.create_task(self._watch())
        group.create_task(self.acquaintances.seek())
        await self._stopping.wait()
        if self._leaving:
            handed = await self._farewell().say()
            self.handed_over = bool(handed)
            self.records_handed_over, self.records_left = handed.pushed, handed.refused
        await self.crawls.stop()
        await self._flush()
        await self.gate.release()
        await self.acquaintances.remember()
        self.gossip.stop()
        self.routing.stop()
        self.over.set()
        # What is still under way may wait for a node that is gone; each may be cancelled at any time.
        group.cancel_all()

    # Others

    def _farewell(self) -> Leave:
        drain_s = self.node.config.node.drain_timeout_s
        return Leave(self.id, self.gossip, self.crawls, self.replicator, self.adoption, self.entrance, drain_s=drain_s)

    async def _flush(self) -> None:
        """Let the last copies reach the backups that are there."""
        try:
            async with asyncio.timeout(FLUSH_S):
                while self.replicator.busy:  # noqa: ASYNC110 - much ends, little is told of
                    await asyncio.sleep(READY_LOOK_S)
        except TimeoutError:
            log.info("not all copies reached their backups in time; they are brought in step when this node is back")

    async def _watch(self) -> None:
        """Note now and then who is there, for a restart, and say when this node is ready."""
        while not self.entrance.active:  # it is so once, or not at all
            if (failed := self.node.committer.failed) is not None:
                raise failed  # others would wait for what it cannot answer
            await asyncio.sleep(READY_LOOK_S)
        self.ready.set()
        looked_at = self.node.ports.clock.monotonic()
        while True:
            await self.acquaintances.remember()
            # Raises once the store has failed, which ends a node that writes nothing of its own, too.
            await self.node.committer.submit(lambda _: None)
            await asyncio.sleep(REMEMBER_EVERY_S)
            now = self.node.ports.clock.monotonic()
            if now - looked_at >= COUNT_EVERY_S:
                ran_ms, looked_at = round(1000 * (now - looked_at)), now
                await self.node.committer.submit(partial(catalog.count_run_time, ran_ms=ran_ms))

    def _hello(self) -> Hello:
        state = "active" if hasattr(self, "entrance") and self.entrance.active else "joining"
        if self._said is None or self._said.state != state:
            self._said = Hello(self.id, self.node.incarnation, state, FEATURES)
        return self._said

    def _handle(self, hello: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
        return Refused("closing") if self.over.is_set() else self.inbox.handle(hello, message)

    def _archive_of(self, crawl: bytes) -> Directory:
        return self._outputs(crawl).archive

    # What happens

    def _view_changed(self, view: View) -> None:
        self.peers.view_changed(view)
        crawling = self.crawls.running
        self.crawls.view_changed(view)
        self.replicator.view_changed()
        self.gate.view_changed(view, crawling, dead=self.gossip.members.dead_count)
        self.entrance.view_changed()

    def _declared_dead(self) -> None:
        known = self.gossip.members.me.incarnation
        if known > self.node.incarnation:
            # A restored data directory: the others have seen later starts of this node.
            self._group.create_task(self._remember_start(known))
        self.gate.void()
        self.entrance.rejoin()

    async def _remember_start(self, incarnation: int) -> None:
        await self.node.committer.submit(lambda txn: txn.put(INCARNATION_KEY, pack(incarnation)))

    def _adopt_hosts(self, rows: Sequence[calls.HostStateRow]) -> None:
        """What a gatekeeper before us knew of hosts that are ours now; what does not come, we wait for instead."""
        self.gate.office.adopt(rows)

    def _owning(self, owning: bool) -> None:
        self.inbox.owning = owning

    def _fit(self) -> bool:
        return self.inbox.owning and self._awake()

    def _awake(self) -> bool:
        """False where this node did not run for so long that it has to join again, which begins with this call."""
        return not self.gossip.check_paused()

    def _on_activate(self, asker: bytes, args: calls.Activate) -> calls.Activated | Refused:
        """A newcomer owns from now on: what we have in flight of its tasks."""
        lent = self.crawls.lent()
        if not self.gossip.mark_active(asker, args.incarnation):
            return Refused("not-a-member", "tell members first")
        owner, office = self.gossip.view.owner, self.gate.office
        hosts = office.export(lambda host: (found := owner(host_key(host))) is not None and found.id == asker)
        return calls.Activated(self.crawls.in_flight_of(asker, lent), hosts)

    async def _further(self, crawl: bytes, copies: list[TaskReplica]) -> None:
        await self.inbox.merge(crawl, copies)

    def _terms(self, crawl: bytes) -> RecordTerms | None:
        return self.crawls.terms(crawl, self.inbox.orders)

    # Crawls

    async def _start(self, record: CrawlRecord) -> CrawlRun:
        crawl = record.crawl_id
        shared = Shared(
            node=self.node,
            group=self._group,
            peers=self.peers,
            replicator=self.replicator,
            owner_news=self.tidings,
            settings=self._settings,
            gate=self.gate,
            moved=self.acquaintances.greet,
            incarnation_of=self.peers.incarnation_of,
            learn=self.crawls.learn,
            auditor=self.auditor,
            awake=self._awake,
            reconciling=lambda: self.entrance.busy,
            tell_crawl=self.crawls.tell,
            announce=self.crawls.announce,
            policies=Policies(self.id, self.node.ports.aside),
            merge=self.inbox.merge,
            compare=partial(self.syncer.compare, keepers=self.replicator.backups),
            traits=NodeTraits(self._rtts, self.node.ports.machine, pairs(self.node.config.node.labels)),
        )
        run, running = await compose(shared, record, self._outputs(crawl), disk_used=self._disk_used(crawl))
        self._group.create_task(self._run_crawl(run, running))
        return run

    async def _run_crawl(self, run: CrawlRun, running: RunningCrawl) -> None:
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(run.run())
            try:
                await running.run_part(lambda: run.ownership.claim.owns)
            finally:
                looking.cancel()
                self.crawls.ended(run.record().crawl_id)
