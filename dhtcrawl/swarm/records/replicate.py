"""Copies of what an owner wrote, on their way to the backups (design invariants I1, I6).

The replica set of a key is its owner and the R next; a record is safe when it
is on disk here and at W of the others, fewer only where the swarm is smaller.
A node that is joining gets a copy too, and has to ack it, even if it has joined
meanwhile: it will be asked for the key before long, and must not take it for new.

Every copy goes on being sent until it is acked or its target is gone. When the
view changes, records that are not safe yet turn to the new replica set; those
that were safe are what `dhtcrawl.swarm.records.sync` is for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.membership.view import Member, MemberState, View
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Ack, Code, DeleteBackup, StoreBackup
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.records import wire
from dhtcrawl.swarm.records.mailbox import Mailbox
from dhtcrawl.swarm.records.range_sync import batches

PAUSE_S = 0.2
LINGER_S = 0.02

Then = Callable[[], None]


@dataclass(slots=True)
class _Batch:
    """What one call of `keep` waits for."""

    then: Then
    missing: int


@dataclass(eq=False, slots=True)
class _ReplicaTicket:
    """One record that is not safe yet."""

    crawl: bytes
    copy: TaskReplica
    over: bool
    batch: _Batch
    sent_to: dict[bytes, None] = field(default_factory=dict)
    acked: dict[bytes, None] = field(default_factory=dict)
    waiters: list[Then] = field(default_factory=list)
    view: View | None = None  # by which `backups` and `joining` are
    backups: list[bytes] = field(default_factory=list)
    joining: list[bytes] = field(default_factory=list)  # or have joined since it was sent


class _Item(NamedTuple):
    """One record for one target."""

    ticket: _ReplicaTicket
    whole: bool  # a tombstone's target lacked the record


class Replicator:
    """Of one node, for all its crawls."""

    def __init__(
        self,
        peers: Peers,
        group: asyncio.TaskGroup,
        *,
        replicas: int,
        acks: int,
        further: Callable[[bytes, list[TaskReplica]], Awaitable[None]],
        heir_of: Callable[[bytes, str], str | None] = lambda crawl, node: node,
    ) -> None:
        """`further(crawl, copies)` merges what a backup knew better (I6), and returns once that is done.

        `heir_of(crawl, node)` has the pages that `node` fetched: itself, or whom it left them to.
        """
        self.records_sent = 0
        self.frames_sent = 0
        self._peers = peers
        self._own = peers.node_id.hex()
        self._replicas = replicas
        self._acks = acks
        self._further = further
        self._heir_of = heir_of
        self._mailbox: Mailbox[_Item] = Mailbox(group, self._deliver, linger_s=LINGER_S)
        self._unsafe: dict[tuple[bytes, bytes], list[_ReplicaTicket]] = {}
        self._under_way: Counter[bytes] = Counter()  # by crawl: records that are not safe, copies that are not acked
        self._view: View | None = None
        self._joining: list[Member] = []
        self._ids: dict[bytes, None] = {}

    @property
    def busy(self) -> bool:
        """Whether copies are under way."""
        return bool(self._unsafe) or self._mailbox.busy

    def busy_with(self, crawl: bytes) -> bool:
        """Whether copies of this crawl are: another's, which goes on, does not keep it from its end."""
        return crawl in self._under_way

    @property
    def joins(self) -> bool:
        """Whether anybody is joining."""
        self._look()
        return bool(self._joining)

    def keep(self, crawl: bytes, copies: Sequence[TaskReplica], then: Then, *, over: bool = False) -> None:
        """Send copies to their backups; `then()` once all are safe. With `over` they are tombstones."""
        if not copies:
            then()
            return
        batch = _Batch(then, len(copies))
        self._under_way[crawl] += len(copies)
        tickets = [_ReplicaTicket(crawl, copy, over, batch) for copy in copies]
        for ticket in tickets:
            self._unsafe.setdefault((crawl, ticket.copy.key), []).append(ticket)
        self._send(tickets)
        for ticket in tickets:
            self._check(ticket)

    def when_kept(self, crawl: bytes, key: bytes, then: Then) -> bool:
        """Call `then()` once the copies of a record that are under way are safe; False where there is none."""
        tickets = self._unsafe.get((crawl, key))
        if not tickets:
            return False
        tickets[-1].waiters.append(then)
        return True

    def unsafe(self, crawl: bytes, key: bytes) -> bool:
        """Whether copies of a record are under way that nobody may rely on yet."""
        return (crawl, key) in self._unsafe

    def view_changed(self) -> None:
        """Turn to the new replica sets."""
        for tickets in list(self._unsafe.values()):
            for ticket in list(tickets):
                self._send((ticket,))
                self._check(ticket)

    def backups(self, key: bytes) -> list[bytes]:
        """The nodes besides us that are to have a record, those that join included."""
        backups, joining = self._targets(key)
        return [*backups, *joining]

    def _targets(self, key: bytes) -> tuple[list[bytes], list[bytes]]:
        """The replica set without us, and the nodes that would be in it if they had joined.

        Each of these by itself: which of them will be the first to have joined, nobody knows.
        """
        view, own, place = self._peers.view, self._peers.node_id, placement(key)
        closest = view.closest(place, self._replicas + 1)
        backups = [member.id for member in closest if member.id != own]
        self._look()
        if not self._joining:
            return backups, []
        number = int.from_bytes(place, "big")
        reach = closest[-1].number ^ number if len(closest) > self._replicas else None
        joining = [m.id for m in self._joining if m.id != own and (reach is None or m.number ^ number < reach)]
        return backups, joining

    def _aim(self, ticket: _ReplicaTicket) -> None:
        """Say who is to have a record by the view of now."""
        view = self._peers.view
        if ticket.view is not view:
            before, ticket.view = ticket.joining, view
            ticket.backups, ticket.joining = self._targets(ticket.copy.key)
            # Who was sent it while joining may own the key by now, and must not begin before it knows.
            ticket.joining += [node for node in before if node in ticket.backups]

    def _look(self) -> None:
        """Take notice of a new view."""
        view = self._peers.view
        if view is not self._view:
            self._view = view
            self._ids = {member.id: None for member in view.members}
            self._joining = [member for member in view.members if member.state is MemberState.JOINING]

    def _send(self, tickets: Iterable[_ReplicaTicket]) -> None:
        """Records on their way to those who are to have them and were not sent them."""
        outgoing: dict[bytes, list[_Item]] = {}
        for ticket in tickets:
            item = _Item(ticket, whole=not ticket.over)
            for node in self._targets_of(ticket):
                if node not in ticket.sent_to:
                    ticket.sent_to[node] = None
                    self._under_way[ticket.crawl] += 1
                    outgoing.setdefault(node, []).append(item)
        for node, items in outgoing.items():
            self._mailbox.put(node, items)

    def _targets_of(self, ticket: _ReplicaTicket) -> list[bytes]:
        self._aim(ticket)
        place = ticket.copy.task.place
        targets = [*ticket.backups, *ticket.joining]
        if place is not None and place.node != self._own:
            # The node that has the page is told of everything that becomes of it.
            holder = bytes.fromhex(self._heir_of(ticket.crawl, place.node) or place.node)
            if holder not in targets and holder != self._peers.node_id and self._known(holder):
                targets.append(holder)
        return targets

    def _known(self, node: bytes) -> bool:
        self._look()
        return node in self._ids

    def _check(self, ticket: _ReplicaTicket) -> None:
        """Let those go on who wait for a record that is safe by now."""
        self._aim(ticket)
        acked = sum(node in ticket.acked for node in ticket.backups)
        if acked < min(self._acks, len(ticket.backups)) or any(node not in ticket.acked for node in ticket.joining):
            return
        key = (ticket.crawl, ticket.copy.key)
        tickets = self._unsafe.get(key, [])
        if ticket not in tickets:
            return  # it was safe before
        tickets.remove(ticket)
        if not tickets:
            del self._unsafe[key]
        self._over(ticket.crawl)
        for waiter in ticket.waiters:
            waiter()
        ticket.batch.missing -= 1
        if not ticket.batch.missing:
            ticket.batch.then()

    async def _deliver(self, node: bytes, items: list[_Item]) -> None:
        first, whole = items[0].ticket, items[0].whole
        same: list[_Item] = []
        others: list[_Item] = []
        for item in items:
            (same if item.whole == whole and item.ticket.crawl == first.crawl else others).append(item)
        fitting = len(next(batches([item.ticket.copy for item in same])))
        self._mailbox.put(node, [*same[fitting:], *others])
        same = same[:fitting]
        self.records_sent += len(same)
        self.frames_sent += 1
        copies = [item.ticket.copy for item in same]
        message = (
            StoreBackup(first.crawl, tuple(map(wire.record_of, copies)))
            if whole
            else DeleteBackup(first.crawl, tuple(map(wire.tombstone_of, copies)))
        )
        reply = await self._peers.ask(node, message)
        if isinstance(reply, Failure):
            await self._again(node, same)
            return
        assert isinstance(reply, Ack), "the kind that answers STORE_BACKUP and DELETE_BACKUP"
        if reply.records:
            await self._further(first.crawl, wire.copies_of(reply.records, len(first.copy.key)))
        await self._read(node, same, reply)

    async def _read(self, node: bytes, items: list[_Item], ack: Ack) -> None:
        failed = []
        for item, code in zip(items, ack.codes, strict=True):
            if code in (Code.ACCEPTED, Code.KNOWN):
                item.ticket.acked[node] = None
                self._over(item.ticket.crawl)
                self._check(item.ticket)
            elif not item.whole:
                self._mailbox.put(node, (_Item(item.ticket, whole=True),))
            else:
                failed.append(item)
        if failed:
            await self._again(node, failed)

    async def _again(self, node: bytes, items: list[_Item]) -> None:
        """A target did not take these: try again while it is there."""
        await asyncio.sleep(PAUSE_S)
        if self._known(node):
            self._mailbox.put(node, items)
            return
        for item in items:
            item.ticket.sent_to.pop(node, None)
            self._over(item.ticket.crawl)
            if item.ticket in self._unsafe.get((item.ticket.crawl, item.ticket.copy.key), ()):
                self._send((item.ticket,))
                self._check(item.ticket)

    def _over(self, crawl: bytes) -> None:
        """One thing less is under way."""
        self._under_way[crawl] -= 1
        if not self._under_way[crawl]:
            del self._under_way[crawl]
