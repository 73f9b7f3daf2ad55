"""Sends the records that this node wrote to their backups (design invariants I1, I6).

`dhtcrawl.swarm.records.replica_tracker` decides who gets them and when they are
safe; this shell sends them and reads the acks. A node that lacks the record of
a tombstone gets the record whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import cast

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Ack, Code, DeleteBackup, Request, StoreBackup
from dhtcrawl.rpc.tasks.rows import RecordRow, TombstoneRow
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.deliver.deliverer import Deliverer
from dhtcrawl.swarm.deliver.queues import Batch, DeliveryLimits, Rest
from dhtcrawl.swarm.records import wire
from dhtcrawl.swarm.records.replica_tracker import (
    ROOM_S,
    AwaitRoom,
    CompareWith,
    ReplicaKind,
    ReplicaTicket,
    ReplicaTracker,
    Then,
    ToSend,
)
from dhtcrawl.swarm.records.safe_news import SafeNews
from dhtcrawl.swarm.records.silent_nodes import SilentNodes

log = logging.getLogger(__name__)

LIMITS = DeliveryLimits(
    batch_bytes_max=wire.RECORDS_BYTES_MAX,
    # Some 40,000 records. A record that finds the queue of a target full is not safe until there is room, or
    # another node has it: its page stays in flight and the links to it unacknowledged, which slows the fetchers down.
    held_bytes_max=16 << 20,
    linger_s=0.02,
    pause_s=0.2,
)

# A comparison goes through all records that two nodes share: who refuses it is asked for it ever more seldom.
COMPARE_PAUSE_S_MAX = 10.0
_KNOWN = int(Code.KNOWN)


@loop_state
class Replicator:
    """Replicates the records of one node, for all its crawls."""

    def __init__(
        self,
        peers: Peers,
        group: asyncio.TaskGroup,
        *,
        replicas: int,
        acks: int,
        further: Callable[[bytes, list[TaskReplica], bytes], Awaitable[object]],
        compare: Callable[[bytes], Awaitable[bool]],
        heir_of: Callable[[bytes, str], str | None] = lambda crawl, node: node,
    ) -> None:
        """`further(crawl, copies, node)` merges records that a backup knew better (I6), and returns once that is done.

        `compare(node)` makes the records the same that this node and another both keep; whether that one answered.

        `heir_of(crawl, node)` is the node that has the pages that `node` fetched: itself, or its heir.
        """
        self.records_sent = 0
        self._peers = peers
        self._further = further
        self._compare = compare
        self._group = group
        self._comparing: set[bytes] = set()
        self._waits: dict[bytes, asyncio.Task[None]] = {}  # for room in queues that are full
        self._tracker = ReplicaTracker(peers.view, peers.node_id, replicas=replicas, acks=acks, heir_of=heir_of)
        self._news = SafeNews()
        self._silent = SilentNodes()
        self._deliverer: Deliverer[ReplicaTicket] = Deliverer(
            group,
            self._send,
            LIMITS,
            size_of=attrgetter("sent.size"),
            is_there=lambda node: node in peers.view,
            give_back=self._given_back,
            room=self._room,
        )

    @property
    def busy(self) -> bool:
        """Whether any record is not safe, or any replica is under way."""
        return self._tracker.busy or self._deliverer.busy

    def busy_with(self, crawl: bytes) -> bool:
        """The same for one crawl, whose end does not wait for the replicas of other crawls."""
        return self._tracker.busy_with(crawl)

    @property
    def joins(self) -> bool:
        """Whether a node is joining."""
        return self._tracker.targets(self._peers.view).joins

    def keep(self, crawl: bytes, copies: Sequence[TaskReplica], then: Then, *, over: bool = False) -> None:
        """Send records to their backups; `then()` once all are safe. With `over` they are tombstones."""
        self._tracker.keep(self._peers.view, crawl, copies, then, over=over)
        self._act()

    async def remind(self, crawl: bytes, copies: Sequence[TaskReplica]) -> set[str]:
        """Send records to the nodes that have their pages and were away, but for backups: these have synced.

        Returns:
            The nodes named in the records, in hex, of which some pages' holder is there but has not taken all records.
        """
        untold = set[str]()
        for (named, holder), theirs in self._tracker.held_afar(self._peers.view, crawl, copies).items():
            for part in wire.in_frames(theirs):
                if not await self._told(holder, crawl, part):
                    untold.add(named)
                    break
        return untold

    async def _told(self, node: bytes, crawl: bytes, copies: Sequence[TaskReplica]) -> bool:
        """Whether a node took these records, or is gone, so that there is nothing to wait for."""
        if node not in self._peers.view:
            return True
        self.records_sent += len(copies)
        reply = await self._peers.ask(node, StoreBackup(crawl, tuple(map(wire.record_of, copies))))
        if isinstance(reply, Failure):
            return node not in self._peers.view
        assert isinstance(reply, Ack), "the kind that answers STORE_BACKUP"
        if reply.records:
            await self._further(crawl, wire.further_of(reply.records, copies), node)
        return all(code <= Code.KNOWN for code in reply.codes)

    def when_kept(self, crawl: bytes, key: bytes, then: Then) -> bool:
        """Call `then()` once the latest version of a record is safe; False if it is, or none was kept."""
        return self._tracker.when_kept(crawl, key, then)

    def unsafe(self, crawl: bytes, key: bytes) -> bool:
        """Whether a record is not safe yet, so that nothing may be acknowledged because of it."""
        return self._tracker.unsafe(crawl, key)

    def view_changed(self) -> None:
        """Send the records that are not safe to their new replica sets."""
        self._tracker.view_changed(self._peers.view)
        self._act()

    def backups(self, key: bytes) -> list[bytes]:
        """The nodes besides this one that are to have a record, those that are joining included."""
        backups, joining = self._tracker.targets(self._peers.view).of(key)
        return [*backups, *joining]

    async def _send(self, batch: Batch[ReplicaTicket]) -> Rest[ReplicaTicket]:
        kind, tickets = batch.kind, batch.items
        assert isinstance(kind, ReplicaKind)
        self.records_sent += len(tickets)
        safe = self._news.take(batch.node, kind.crawl)
        message: Request
        if kind.whole:
            message = StoreBackup(kind.crawl, _records_of(tickets), safe=safe)
        else:
            rows = cast("tuple[TombstoneRow, ...]", tuple([ticket.sent.row for ticket in tickets]))
            message = DeleteBackup(kind.crawl, rows, safe)
        reply = await self._peers.ask(batch.node, message)
        if isinstance(reply, Failure):
            self._note_silent(batch.node, reply)
            return Rest(refused=tickets)
        self._silent.answered(batch.node)
        assert isinstance(reply, Ack), "the kind that answers STORE_BACKUP and DELETE_BACKUP"
        if reply.records:
            copies = [ticket.copy for ticket in tickets]
            await self._further(kind.crawl, wire.further_of(reply.records, copies), batch.node)
        taken, failed = list(tickets), list[ReplicaTicket]()
        if max(reply.codes) > _KNOWN:
            taken = [ticket for ticket, code in zip(tickets, reply.codes, strict=True) if code <= _KNOWN]
            failed = [ticket for ticket, code in zip(tickets, reply.codes, strict=True) if code > _KNOWN]
        # Each record of each backup comes by here: no call of `safe` for it.
        unsafe = [ticket for ticket in taken if ticket.waiters is not None] if kind.whole else []
        self._tracker.acked(self._peers.view, batch.node, taken)
        self._act()
        if kind.whole:
            self._tell_safe(batch.node, kind.crawl, taken, [ticket for ticket in unsafe if ticket.waiters is None])
            return Rest(refused=failed)
        if failed:
            self._put(batch.node, ReplicaKind(kind.crawl, whole=True), failed)
            self._act()
        return Rest()

    def _note_silent(self, node: bytes, failure: Failure) -> None:
        if node not in self._peers.view:
            return
        silent_s = self._silent.failed(node, failure, asyncio.get_running_loop().time())
        if silent_s is not None:
            log.warning(
                "node %s is a member and has not answered this node for %.0f s (%s): no crawl ends before it has the"
                " records of which it is a backup; see whether a firewall stands between the two",
                node.hex()[:12],
                silent_s,
                failure.detail,
                extra={"peer": node.hex()},
            )

    def _tell_safe(
        self, node: bytes, crawl: bytes, taken: list[ReplicaTicket], became_safe: list[ReplicaTicket]
    ) -> None:
        """Have a node told which of the records that it took are safe, and others which became it by that."""
        told: dict[bytes, list[bytes]] = {node: [ticket.copy.key for ticket in taken if ticket.waiters is None]}
        for ticket in became_safe:
            for other in ticket.acked:
                if other != node:
                    told.setdefault(other, []).append(ticket.copy.key)
        for other, keys in told.items():
            self._news.add(other, crawl, keys)

    def _given_back(self, node: bytes, tickets: list[ReplicaTicket]) -> None:
        self._tracker.gone(self._peers.view, node, tickets)
        self._act()

    async def _compare_with(self, node: bytes) -> None:
        """Compare records with a node that was passed over, until it lacks none, or is gone; ever more seldom."""
        pause_s = LIMITS.pause_s
        try:
            while lacked := self._tracker.lacking(node):
                if await self._compare(node):
                    self._tracker.compared(node, lacked)
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, COMPARE_PAUSE_S_MAX)
        finally:
            self._comparing.discard(node)

    async def _wait_for_room(self, node: bytes) -> None:
        """Pass a node over that has no room for `ROOM_S`; cancelled once it has."""
        await asyncio.sleep(ROOM_S)
        self._waits.pop(node, None)
        self._tracker.no_room(self._peers.view, node, asyncio.get_running_loop().time())
        self._act()

    def _room(self, node: bytes) -> None:
        wait = self._waits.pop(node, None)
        if wait is not None:
            wait.cancel()
        waiting = self._tracker.room(node)
        for kind, tickets in waiting.items():
            self._put(node, kind, tickets)
        for tickets in waiting.values():
            self._tracker.placed(self._peers.view, tickets)
        self._act()

    def _act(self) -> None:
        while effects := self._tracker.take_effects():
            for effect in effects:
                if isinstance(effect, ToSend):
                    self._put(effect.node, effect.kind, effect.tickets)
                elif isinstance(effect, AwaitRoom):
                    self._waits[effect.node] = self._group.create_task(self._wait_for_room(effect.node))
                elif isinstance(effect, CompareWith):
                    if effect.node not in self._comparing:
                        self._comparing.add(effect.node)
                        self._group.create_task(self._compare_with(effect.node))
                else:
                    effect.then()

    def _put(self, node: bytes, kind: ReplicaKind, tickets: list[ReplicaTicket]) -> None:
        taken = self._deliverer.put(node, tickets, kind)
        if taken < len(tickets):
            now = asyncio.get_running_loop().time()
            self._tracker.refused(self._peers.view, node, kind, tickets[taken:], now)


def _records_of(tickets: Sequence[ReplicaTicket]) -> tuple[RecordRow, ...]:
    """The rows of whole records, which most tickets have."""
    found = [ticket.sent.row if ticket.kind.whole else wire.record_of(ticket.copy) for ticket in tickets]
    return cast("tuple[RecordRow, ...]", tuple(found))
