"""A node of a swarm, run in stages.

    open ─▶ listen ─▶ find the others ─▶ join ─▶ crawl ─▶ leave, or stop ─▶ closed

Leaving hands everything over first; stopping does not, and leaves the node's
part to its backups until it is back. Either breaks off finding the others. Everything that runs, runs in one
TaskGroup; what touches the world came in with `dhtcrawl.node.single.Ports`.
`dhtcrawl.node.swarm_parts` builds what the node is made of, once it listens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from dhtcrawl.closed.secret import Ring
from dhtcrawl.crawl.budget import DiskLimit
from dhtcrawl.loop_state import loop_state
from dhtcrawl.node.crawl_starter import crawl_starter
from dhtcrawl.node.planes import NetworkConfig, listen
from dhtcrawl.node.reception import Reception, directly
from dhtcrawl.node.single import Node
from dhtcrawl.node.stopping import Stopping
from dhtcrawl.node.swarm_parts import Ground, RecordParts, SwarmParts, build
from dhtcrawl.node.task_group import OrderedTaskGroup
from dhtcrawl.node.try_address import try_address
from dhtcrawl.node.view_events import ViewEvents
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.discovery.server import RoutingServer
from dhtcrawl.rpc.membership.gossip import Gossip
from dhtcrawl.rpc.peers.port import CallRegistry, Peers
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.sockets import TlsContexts
from dhtcrawl.rpc.tasks.transport import TaskTransport, TransportLimits
from dhtcrawl.storage.outputs.outputs import OutputDirs
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.hosts.host_leases import HostLeases
from dhtcrawl.swarm.lifecycle.crawl_records import CrawlRecords
from dhtcrawl.swarm.lifecycle.crawl_runs import CrawlRuns
from dhtcrawl.swarm.lifecycle.manual_queue import ManualQueue
from dhtcrawl.swarm.membership.contact import LostContact
from dhtcrawl.swarm.membership.join import Join
from dhtcrawl.swarm.records.sync import HandedOver
from dhtcrawl.units import format_address

log = logging.getLogger(__name__)

READY_LOOK_S = 0.05
FLUSH_S = 2.0  # for the last copies, when a node stops
REMEMBER_EVERY_S = 1.0
COUNT_EVERY_S = 3600.0
# Nodes that have not forgotten a crawl send its records anew after each time.
FORGOTTEN_EVERY_S = 86_400.0


@loop_state
class SwarmNode:
    """One node; make it, `run` it once, stop it by `leave` or `shutdown`.

    Its parts exist from the moment it listens, which `listening` tells.

    Raises:
        RuntimeError: a part was asked for before that.
    """

    def __init__(
        self,
        node: Node,
        network: NetworkConfig,
        *,
        outputs: Callable[[bytes], OutputDirs],
        disk_used: DiskLimit,
        boottime: Callable[[], float] | None = None,
        through: Callable[[Handler], Handler] = directly,
    ) -> None:
        """`outputs(crawl)` is where a crawl's files go; `boottime` a clock that goes on while the machine sleeps.

        Requests from other nodes, and those of this node to itself, go `through(handler)`.
        """
        self.node = node
        self.id = bytes.fromhex(node.node_id)
        self.registry = CallRegistry()
        self.opened, self.ready, self.over = (asyncio.Event() for _ in range(3))
        self.handed = HandedOver()  # how many records were handed over, once this node has left
        reception = Reception(self.id, node.incarnation, through)
        self._ground = Ground(node, network, self.registry, reception, outputs, disk_used, boottime)
        self._secrets = network.ring, network.tls
        self._parts: SwarmParts | None = None
        self._stopping = Stopping()
        self._leaving = False

    async def run(self) -> bool:
        """Take part until stopped; whether everything was handed over that had to be.

        Raises:
            BootstrapUnreachable: none of the nodes to join through answered.
            NotReachable: other nodes tried, and do not reach this one.
            OSError: the address is taken, or not ours.
        """
        network, ports = self._ground.network, self.node.ports
        async with self._make_transport() as transport:
            make_routing = partial(self._make_routing, self.id)
            outbound_only = network.outbound_only
            routing, address = await listen(transport, *network.listen, make_routing, outbound_only=outbound_only)
            trying = partial(try_address, transport=self._make_transport, routing=self._make_routing, rng=ports.rng)
            try:
                async with OrderedTaskGroup() as group:
                    parts = build(self._ground, group, transport, routing, network.advertise or address, trying)
                    ViewEvents(self._ground, group, parts).subscribe()
                    self._parts = parts
                    await self._live(group, parts)
            finally:
                routing.stop()
        return bool(self.handed)

    def leave(self) -> None:
        """Hand everything over, then stop. A second call has it wait for nothing any more."""
        if self._leaving and self._parts is not None:
            self._parts.membership.leave.hasten()
        self._leaving = True
        self._stopping.ask()

    async def drain(self) -> bool:
        """Start nothing more; whether all that was begun was over in time.

        Raises:
            RuntimeError: it does not listen yet.
        """
        return await self._there.membership.leave.drain()

    def use_secrets(self, ring: Ring, tls: TlsContexts) -> None:
        """Go on with other secrets, or another certificate; nothing happens before it listens, or in an open swarm."""
        if self._parts is not None:
            self._secrets = ring, tls
            self._parts.planes.use_secrets(ring, tls)

    def shutdown(self) -> None:
        """Stop in order, without handing over: the backups take over until this node is back."""
        self._stopping.ask()

    @property
    def state(self) -> str:
        """What this node is, for people: joining, active, leaving."""
        return "leaving" if self._stopping.asked else self._ground.reception.hello().state

    # What it is made of

    @property
    def listening(self) -> bool:
        """Whether its parts are there."""
        return self._parts is not None

    @property
    def address(self) -> Address:
        """Where the others reach it."""
        return self._there.planes.address

    @property
    def routing(self) -> RoutingServer:
        return self._there.planes.routing

    @property
    def gossip(self) -> Gossip:
        return self._there.planes.gossip

    @property
    def peers(self) -> Peers:
        return self._there.planes.peers

    @property
    def records(self) -> RecordParts:
        return self._there.records

    @property
    def crawls(self) -> CrawlRecords:
        return self._there.lifecycle.runs.records

    @property
    def runs(self) -> CrawlRuns:
        return self._there.lifecycle.runs

    @property
    def given_up(self) -> ManualQueue:
        """The tasks that people decide on."""
        return self._there.lifecycle.given_up

    def lost_contact(self) -> LostContact | None:
        """What is lost where none of the nodes that this one knows answers now; None with contact."""
        return self._there.membership.peer_store.lost_contact()

    @property
    def join(self) -> Join:
        return self._there.membership.join

    def rtt_s(self, address: Address) -> float | None:
        """The smoothed round trip to a member, in seconds; None where nothing was measured."""
        return self._there.planes.rtt_s(address)

    def breaches(self, host: str) -> tuple[int, float]:
        """How often nodes at a host broke the protocol lately, and for how many seconds they are not let in for it."""
        return self._there.planes.peers.breaches(host)

    @property
    def gate(self) -> HostLeases:
        """The leases of hosts, and whether each request had one."""
        return self._there.gate

    @property
    def _there(self) -> SwarmParts:
        if self._parts is None:
            raise RuntimeError("the node does not listen yet")
        return self._parts

    def _make_transport(self, limits: TransportLimits | None = None) -> TaskTransport:
        reception, source = self._ground.reception, self._ground.network.source
        tls, key = self._secrets[1], self.node.ports.key
        return TaskTransport(reception.hello, reception.handle, limits=limits, source=source, tls=tls, key=key)

    def _make_routing(self, node_id: bytes) -> RoutingServer:
        ports = self.node.ports
        return RoutingServer(node_id, clock=ports.clock, rng=ports.rng, ring=self._secrets[0])

    # The stages once it listens

    async def _live(self, group: OrderedTaskGroup, parts: SwarmParts) -> None:
        for run in (parts.planes.routing.run, parts.planes.gossip.run, parts.gate.run, parts.lifecycle.trust.run):
            group.create_task(run())
        unwritten = await self.node.committer.submit(partial(_begun, node=self.id.hex()))
        await parts.lifecycle.runs.load(crawl_starter(self._ground, group, parts).start, unwritten)
        self.opened.set()
        log.info("this node listens at %s", format_address(parts.planes.address))
        async with self._stopping.breaks_off():
            await self._find_others(group, parts)
            group.create_task(parts.membership.join.run())
            group.create_task(self._watch(parts))
            group.create_task(parts.membership.peer_store.seek())
        await self._stopping.wait()
        log.info("this node %s", "hands over what it holds" if self._leaving else "stops without handing over")
        if self._leaving:
            self.handed = await parts.membership.leave.run()
        await self._stop(parts)
        # What is still under way may wait for a node that is gone; each may be cancelled at any time.
        group.cancel_all()

    async def _find_others(self, group: OrderedTaskGroup, parts: SwarmParts) -> None:
        peer_store, network = parts.membership.peer_store, self._ground.network
        found = await peer_store.find(network.bootstrap)
        network.met(peer_store.addresses)
        if not found:
            log.info("there is no swarm to join: this node begins one")
            parts.membership.join.state.begin_alone()
        if (own_address := parts.place.own_address) is not None:
            await own_address.look()  # by now it is known where the others are
            group.create_task(own_address.run())
        if network.tried:
            await parts.place.reach_check.require()
        if (outward := parts.place.outward) is not None:
            group.create_task(outward.run())

    async def _stop(self, parts: SwarmParts) -> None:
        await parts.lifecycle.runs.stop()
        await self._flush(parts)
        await parts.gate.release()
        await parts.membership.peer_store.remember()
        parts.planes.gossip.stop()
        parts.planes.routing.stop()
        self._ground.reception.close()
        self.over.set()

    async def _flush(self, parts: SwarmParts) -> None:
        """Let the last copies reach the backups that are there."""
        try:
            async with asyncio.timeout(FLUSH_S):
                while parts.records.replicator.busy:  # noqa: ASYNC110 - much ends, little is told of
                    await asyncio.sleep(READY_LOOK_S)
        except TimeoutError:
            log.info("not all copies reached their backups in time; they are brought in step when this node is back")

    async def _watch(self, parts: SwarmParts) -> None:
        """Note now and then who is there, for a restart, and say when this node is ready."""
        clock, committer = self.node.ports.clock, self.node.committer
        while not parts.membership.join.state.active:  # it is so once, or not at all
            if (failed := committer.failed) is not None:
                raise failed  # others would wait for what it cannot answer
            await asyncio.sleep(READY_LOOK_S)
        self.ready.set()
        looked_at = dropped_at = clock.monotonic()
        while True:
            await parts.membership.peer_store.remember()
            # Raises once the store has failed, which ends a node that writes nothing of its own, too.
            await committer.submit(lambda _: None)
            await asyncio.sleep(REMEMBER_EVERY_S)
            now = clock.monotonic()
            if now - looked_at >= COUNT_EVERY_S:
                ran_ms, looked_at = round(1000 * (now - looked_at)), now
                await committer.submit(partial(catalog.count_run_time, ran_ms=ran_ms))
            if now - dropped_at >= FORGOTTEN_EVERY_S:
                dropped_at = now
                await self.node.drop_forgotten(await committer.submit(catalog.closed))


def _begun(txn: Txn, node: str) -> list[bytes]:
    """Note that the store is a swarm's; the crawls whose outputs this node did not come to write."""
    catalog.mark_swarm(txn, node)
    return catalog.unwritten(txn)
