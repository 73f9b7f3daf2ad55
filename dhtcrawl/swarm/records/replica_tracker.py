"""Decides which nodes get the records that an owner wrote, and when a record is safe (I1, I6). No I/O.

The replica set of a key is its owner and the next R members. A record is safe
once it is on disk here and at W of the others; fewer only where the swarm is
smaller. A node that is joining gets a replica too and must acknowledge it, even
if it has joined in the meantime: it is about to own keys, and must not take this
one for new.

    keep ─▶ ticket ──ToSend──▶ each target ── acked ──▶ W backups and all who join have it: Safe
               ▲                   ├─ refused, as its queue is full: waits for room, and until then is not safe
               │                   │    └── none for ROOM_S: the next nearest node gets it instead
               └── aimed anew ◀────┴─ gone, or the view changed

So a backup that is slower than the others holds up a record for `ROOM_S` at
most, and once it has, for `SLOW_S` none that finds its queue full: a *stand-in*
gets those. A record still has R other nodes and needs W acks, and of the backups
that are left as many as there are, up to W. A stand-in hands over what it is not
to keep (`dhtcrawl.swarm.records.sync`). A backup that was passed over *lacks*
records; once it has room its records are compared with ours, and until then
no crawl of which it lacks any is taken for over.

Every replica is sent until it is acknowledged or its target is gone, also after
the record has become safe. When the view changes, records that are not safe yet
are sent to the new replica set; `dhtcrawl.swarm.records.sync` sees to the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from dhtcrawl.keyspace import KEY_BYTES, placement
from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.rpc.tasks.rows import RecordRow, TombstoneRow
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.records.wire import record_bytes, record_of, tombstone_of

Then = Callable[[], None]
_PREFIXES_MAX = 65_536
# How long a record waits for room in the queue of a backup: some batches of a node that is busy, not slow.
ROOM_S = 2.0
# For how long a backup that had none counts as slow, so that not every record waits so long.
SLOW_S = 60.0


class ReplicaKind(NamedTuple):
    """Tickets of one kind may go in one message."""

    crawl: bytes
    whole: bool  # records; otherwise tombstones, for nodes that have the record


class SentRow(NamedTuple):
    """What all targets of a record are sent."""

    row: RecordRow | TombstoneRow
    size: int  # as a whole record, in bytes


@dataclass(slots=True)
class _Batch:
    """The records of one call of `keep`."""

    then: Then
    missing: int  # records that are not safe


class Detour(NamedTuple):
    """Who gets a record in place of those that have no room for it."""

    passed: tuple[bytes, ...]  # backups and stand-ins without room
    stand_ins: tuple[bytes, ...]

    def left(self, backups: Sequence[bytes]) -> list[bytes]:
        """The backups that were not passed over."""
        return [node for node in backups if node not in self.passed]


@dataclass(eq=False, slots=True)
class ReplicaTicket:
    """A record that is not safe yet, or that some of its targets have not acknowledged."""

    kind: ReplicaKind  # not whole: its targets have the record and need only the tombstone
    copy: TaskReplica
    sent: SentRow
    batch: _Batch
    sent_to: dict[bytes, None] = field(init=False, default_factory=dict)
    acked: dict[bytes, None] = field(init=False, default_factory=dict)
    unplaced: int = field(default=0, init=False)  # targets whose queue had no room
    waiters: list[Then] | None = field(init=False, default_factory=list)  # None: the record is safe
    view: View | None = field(default=None, init=False)  # by which `backups` and `joining` were computed
    backups: Sequence[bytes] = field(default=(), init=False)
    joining: Sequence[bytes] = field(default=(), init=False)  # or joined since the record was sent to them
    detour: Detour | None = field(default=None, init=False)  # None: every target had room

    @property
    def safe(self) -> bool:
        """Whether the record is safe, so that only replicas that are under way are left of the ticket."""
        return self.waiters is None


class ToSend(NamedTuple):
    """Send these to a node."""

    node: bytes
    kind: ReplicaKind
    tickets: list[ReplicaTicket]


class CompareWith(NamedTuple):
    """A node that was passed over has room: compare records with it until `lacking` says that it lacks none."""

    node: bytes


class AwaitRoom(NamedTuple):
    """Call `no_room` after `ROOM_S`, unless `room` is called before."""

    node: bytes


class Safe(NamedTuple):
    """Call this: a record or a batch of records has become safe."""

    then: Then


Effect: TypeAlias = ToSend | AwaitRoom | CompareWith | Safe


class ReplicaTargets:
    """Says which other nodes are to have this node's records, by one view."""

    __slots__ = ("_by_prefix", "_joining", "_own", "_replicas", "_shift", "alone", "view")

    def __init__(self, view: View, own: bytes, replicas: int) -> None:
        self.view = view
        self._own = own
        self._replicas = replicas
        self._shift = view.shift
        self._joining = [member for member in view.members if member.state is MemberState.JOINING]
        self.alone = all(node == own for node in view.eligible)  # no record has a target
        self._by_prefix: dict[int, list[bytes]] = {}  # of keys that all have the same backups; at most `_PREFIXES_MAX`

    @property
    def joins(self) -> bool:
        """Whether a node is joining."""
        return bool(self._joining)

    def of(self, key: bytes) -> tuple[list[bytes], list[bytes]]:
        """The other nodes of a task key's replica set, and the joining nodes that would be in it.

        Each joining node is ranked as if it alone had joined: which of them will be first is not known.
        """
        known = self._by_prefix.get(int.from_bytes(key[:KEY_BYTES], "big") >> self._shift)
        if known is not None:
            return known, []
        place = placement(key)
        prefix = None if self._joining else self.view.prefix_of(place, self._replicas + 1)
        closest = self.view.closest(place, self._replicas + 1)
        backups = [member.id for member in closest if member.id != self._own]
        if prefix is not None and len(self._by_prefix) < _PREFIXES_MAX:
            self._by_prefix[prefix] = backups
        if not self._joining:
            return backups, []
        number = int.from_bytes(place, "big")
        reach = closest[-1].number ^ number if len(closest) > self._replicas else None
        joining = [m.id for m in self._joining if m.id != self._own and (reach is None or m.number ^ number < reach)]
        return backups, joining


class ReplicaTracker:
    """Tracks the replicas of one node, for all its crawls. Act on `take_effects` after every method that changes it."""

    def __init__(
        self, view: View, own: bytes, *, replicas: int, acks: int, heir_of: Callable[[bytes, str], str | None]
    ) -> None:
        """`heir_of(crawl, node)` is the node that has the pages that `node` fetched: itself, or its heir."""
        self._targets = ReplicaTargets(view, own, replicas)
        self._own = own
        self._replicas = replicas
        self._acks = acks
        self._heir_of = heir_of
        self._unsafe: dict[tuple[bytes, bytes], list[ReplicaTicket]] = {}  # by crawl and task key
        # Records that are not safe and replicas that are not acknowledged, by crawl.
        self._under_way: Counter[bytes] = Counter()
        self._unplaced: dict[bytes, list[tuple[ReplicaKind, ReplicaTicket]]] = {}  # by node whose queue is full
        self._awaited: dict[bytes, None] = {}  # nodes whose queue became full less than `ROOM_S` ago
        self._slow: dict[bytes, float] = {}  # nodes whose queue was full for long, and until when they count as slow
        self._lacking: dict[bytes, Counter[bytes]] = {}  # node that was passed over → records by crawl
        self._effects: list[Effect] = []

    @property
    def busy(self) -> bool:
        """Whether any record is not safe."""
        return bool(self._unsafe)

    def busy_with(self, crawl: bytes) -> bool:
        """Whether a record of this crawl is not safe, or a replica of it is not acknowledged."""
        return crawl in self._under_way or any(crawl in crawls for crawls in self._lacking.values())

    def unsafe(self, crawl: bytes, key: bytes) -> bool:
        """Whether a record is not safe."""
        return (crawl, key) in self._unsafe

    def targets(self, view: View) -> ReplicaTargets:
        """The targets by a view; computed once for each view."""
        if view is not self._targets.view:
            self._targets = ReplicaTargets(view, self._own, self._replicas)
        return self._targets

    def take_effects(self) -> list[Effect]:
        """What is to be done outside, in this order."""
        effects, self._effects = self._effects, []
        return effects

    def keep(self, view: View, crawl: bytes, copies: Sequence[TaskReplica], then: Then, *, over: bool) -> None:
        """Send records to their targets, `over`: as tombstones; `then` is called once all of them are safe."""
        if not copies or self.targets(view).alone:
            self._effects.append(Safe(then))
            return
        batch, kind, targets = _Batch(then, len(copies)), ReplicaKind(crawl, not over), self.targets(view)
        row_of: Callable[[TaskReplica], RecordRow | TombstoneRow] = tombstone_of if over else record_of
        tickets = [ReplicaTicket(kind, copy, SentRow(row_of(copy), record_bytes(copy)), batch) for copy in copies]
        self._under_way[crawl] += len(tickets)
        for ticket in tickets:
            key = ticket.copy.key
            ticket.view, (ticket.backups, ticket.joining) = view, targets.of(key)
            self._unsafe.setdefault((crawl, key), []).append(ticket)
        self._send(view, tickets)
        for ticket in tickets:
            if not (ticket.sent_to and self._acks):  # else it needs an ack first
                self._check(view, ticket)

    def held_afar(
        self, view: View, crawl: bytes, copies: Iterable[TaskReplica]
    ) -> dict[tuple[str, bytes], list[TaskReplica]]:
        """Those of these records whose page lies at a node that is not to have the record for any other reason.

        They are grouped by the node that they name, in hex, and the node that has its pages now.
        """
        targets, found = self.targets(view), dict[tuple[str, bytes], list[TaskReplica]]()
        for copy in copies:
            place, holder = copy.task.place, self._holder(crawl, copy)
            if place and holder is not None and not any(holder in nodes for nodes in targets.of(copy.key)):
                found.setdefault((place.node, holder), []).append(copy)
        return found

    def when_kept(self, crawl: bytes, key: bytes, then: Then) -> bool:
        """Call `then` once the latest version of a record is safe; False if it is, or none was kept."""
        tickets = self._unsafe.get((crawl, key))
        if not tickets:
            return False
        waiters = tickets[-1].waiters
        assert waiters is not None, "a ticket that is safe is not among these"
        waiters.append(then)
        return True

    def view_changed(self, view: View) -> None:
        """Send the records that are not safe to their new replica sets."""
        # What a node lacks that is gone is compared among those that are left.
        self._lacking = {node: crawls for node, crawls in self._lacking.items() if node in view}
        for tickets in list(self._unsafe.values()):
            for ticket in list(tickets):
                self._send(view, (ticket,))
                self._check(view, ticket)

    def acked(self, view: View, node: bytes, tickets: Iterable[ReplicaTicket]) -> None:
        """Note that a node has these on its disk."""
        acks, over = self._acks, Counter[bytes]()
        for ticket in tickets:
            acked = ticket.acked
            acked[node] = None
            over[ticket.kind.crawl] += 1
            # Each record of each backup comes by here: most are `safe` already, or need further acks.
            if ticket.waiters is None or (ticket.view is view and len(acked) < min(acks, len(ticket.backups))):
                continue
            self._check(view, ticket)
        for crawl, count in over.items():
            self._over(crawl, count)

    def gone(self, view: View, node: bytes, tickets: Iterable[ReplicaTicket]) -> None:
        """Note that a node is gone that did not acknowledge these."""
        for ticket in tickets:
            ticket.sent_to.pop(node, None)
            self._over(ticket.kind.crawl)
            if not ticket.safe:
                self._send(view, (ticket,))
                self._check(view, ticket)

    def refused(self, view: View, node: bytes, kind: ReplicaKind, tickets: Iterable[ReplicaTicket], now: float) -> None:
        """Note that the queue for a node is full.

        These wait for room, and are not safe before they are queued; where the node is slow, others get them.
        """
        slow = self._slow.get(node, now) > now
        for ticket in tickets:
            if slow and self._passes_over(view, node, ticket):
                self._check(view, ticket)
                continue
            ticket.unplaced += 1
            self._unplaced.setdefault(node, []).append((kind, ticket))
        if not slow and node not in self._awaited:
            self._awaited[node] = None
            self._effects.append(AwaitRoom(node))

    def no_room(self, view: View, node: bytes, now: float) -> None:
        """Note that the queue for a node was full for `ROOM_S`: others get what waits for it."""
        self._slow = {each: until for each, until in self._slow.items() if until > now}
        self._slow[node] = now + SLOW_S
        self._awaited.pop(node, None)
        left = []
        for kind, ticket in self._unplaced.pop(node, ()):
            if self._passes_over(view, node, ticket):
                ticket.unplaced -= 1
                self._check(view, ticket)
            else:
                left.append((kind, ticket))
        if left:
            self._unplaced[node] = left

    def room(self, node: bytes) -> dict[ReplicaKind, list[ReplicaTicket]]:
        """Take the tickets that waited for room in the queue for a node: queue them, then call `placed`."""
        self._awaited.pop(node, None)
        if node in self._lacking:
            self._effects.append(CompareWith(node))
        by_kind: dict[ReplicaKind, list[ReplicaTicket]] = {}
        for kind, ticket in self._unplaced.pop(node, ()):
            ticket.unplaced -= 1
            by_kind.setdefault(kind, []).append(ticket)
        return by_kind

    def lacking(self, node: bytes) -> Counter[bytes]:
        """How many records of each crawl a node was passed over with, and was not compared with since."""
        return Counter(self._lacking.get(node, ()))

    def compared(self, node: bytes, lacked: Counter[bytes]) -> None:
        """Note that a node has the same records as this one, but those that it was passed over with meanwhile."""
        left = self.lacking(node) - lacked
        if left:
            self._lacking[node] = left
        else:
            self._lacking.pop(node, None)

    def placed(self, view: View, tickets: Iterable[ReplicaTicket]) -> None:
        """Note that these were queued after a wait: those that found room may be safe."""
        for ticket in tickets:
            self._check(view, ticket)

    def _send(self, view: View, tickets: Iterable[ReplicaTicket]) -> None:
        """Send each record to those of its targets that it was not sent to."""
        outgoing: dict[tuple[bytes, ReplicaKind], list[ReplicaTicket]] = {}
        holders: dict[tuple[bytes, str], bytes | None] = {}
        for ticket in tickets:
            sent_to, kind = ticket.sent_to, ticket.kind
            for node in self._targets_of(view, ticket, holders):
                if node not in sent_to:
                    sent_to[node] = None
                    outgoing.setdefault((node, kind), []).append(ticket)
        for (node, kind), theirs in outgoing.items():
            self._under_way[kind.crawl] += len(theirs)
            self._effects.append(ToSend(node, kind, theirs))

    def _targets_of(
        self, view: View, ticket: ReplicaTicket, holders: dict[tuple[bytes, str], bytes | None]
    ) -> Sequence[bytes]:
        """The nodes that are to have a record; `holders` has those of pages that were looked up, by crawl and place."""
        if ticket.view is not view:
            self._aim(view, ticket)
        backups, detour = ticket.backups, ticket.detour
        if detour is not None:
            backups = [*detour.left(backups), *detour.stand_ins]
        place = ticket.copy.task.place
        if place is None:
            return [*backups, *ticket.joining] if ticket.joining else backups
        # The node that has the page gets every version of its record.
        asked = ticket.kind.crawl, place.node
        if asked not in holders:
            holders[asked] = self._holder(ticket.kind.crawl, ticket.copy)
        holder = holders[asked]
        if holder is None and not ticket.joining:
            return backups  # the usual case: it was fetched here
        targets = [*backups, *ticket.joining]
        if holder is not None and holder not in targets and holder in view:
            targets.append(holder)
        return targets

    def _holder(self, crawl: bytes, copy: TaskReplica) -> bytes | None:
        """The other node that has a page, whether it is there or not."""
        place = copy.task.place
        if place is None:
            return None
        holder = bytes.fromhex(self._heir_of(crawl, place.node) or place.node)
        return None if holder == self._own else holder

    def _aim(self, view: View, ticket: ReplicaTicket) -> None:
        """Note which nodes must acknowledge a record by this view."""
        if ticket.view is not view:
            before, ticket.view = ticket.joining, view
            ticket.backups, ticket.joining = self.targets(view).of(ticket.copy.key)
            if before:
                # A node that was sent it while joining may own the key now: it must have the record first.
                ticket.joining = [*ticket.joining, *(node for node in before if node in ticket.backups)]
            if ticket.detour is not None:
                self._aim_past(view, ticket, ticket.detour)

    def _aim_past(self, view: View, ticket: ReplicaTicket, detour: Detour) -> None:
        """Note by this view who stands in for the backups of a record that were passed over."""
        # One that joins anew has to have it; and who is a backup now stands in for none.
        passed = tuple(node for node in detour.passed if node not in ticket.joining)
        stand_ins = tuple(node for node in detour.stand_ins if node in view and node not in ticket.backups)
        for node in [node for node in ticket.backups if node in passed][len(stand_ins) :]:
            found = self._next(view, ticket, Detour(passed, stand_ins))
            if found is None:
                # Nobody is left to stand in for it: it gets the record after all.
                passed = tuple(each for each in passed if each != node)
            else:
                stand_ins = (*stand_ins, found)
        ticket.detour = Detour(passed, stand_ins)

    def _passes_over(self, view: View, node: bytes, ticket: ReplicaTicket) -> bool:
        """Whether another node gets a record instead of this one, whose queue is full.

        There may be none; and who joins, or has the page, has to have it.
        """
        self._aim(view, ticket)
        detour = ticket.detour or Detour((), ())
        replaceable = node in ticket.backups or node in detour.stand_ins
        if not replaceable or node in ticket.joining or node == self._holder(ticket.kind.crawl, ticket.copy):
            return False
        found = self._next(view, ticket, detour)
        if found is None:
            return False
        ticket.detour = Detour((*detour.passed, node), (*(each for each in detour.stand_ins if each != node), found))
        ticket.sent_to.pop(node, None)
        if node in ticket.backups:
            self._lacking.setdefault(node, Counter())[ticket.kind.crawl] += 1
        self._over(ticket.kind.crawl)
        self._send(view, (ticket,))
        return True

    def _next(self, view: View, ticket: ReplicaTicket, detour: Detour) -> bytes | None:
        """The nearest node that has no part in a record, and that is not slow."""
        without = {self._own, *ticket.backups, *ticket.sent_to, *detour.passed, *detour.stand_ins, *self._slow}
        nearest = view.closest(placement(ticket.copy.key), len(without) + 1)
        return next((member.id for member in nearest if member.id not in without), None)

    def _check(self, view: View, ticket: ReplicaTicket) -> None:
        """Note that a record is safe, if it is."""
        if ticket.waiters is None:
            return
        if ticket.view is not view:
            self._aim(view, ticket)
        acked, backups = ticket.acked, ticket.backups
        if len(acked) < self._acks and len(acked) < len(backups):
            return  # the usual case, before the backups are looked at one by one
        if ticket.detour is not None:
            backups = ticket.detour.left(backups)
            among = [*backups, *ticket.detour.stand_ins]
            if sum([node in acked for node in among]) < min(self._acks, len(among)):
                return
        if sum([node in acked for node in backups]) < min(self._acks, len(backups)) or ticket.unplaced:
            return
        if ticket.joining and any(node not in acked for node in ticket.joining):
            return
        waiters, ticket.waiters = ticket.waiters, None
        key = (ticket.kind.crawl, ticket.copy.key)
        tickets = self._unsafe[key]
        tickets.remove(ticket)
        if not tickets:
            del self._unsafe[key]
        self._over(ticket.kind.crawl)
        self._effects += map(Safe, waiters)
        ticket.batch.missing -= 1
        if not ticket.batch.missing:
            self._effects.append(Safe(ticket.batch.then))

    def _over(self, crawl: bytes, count: int = 1) -> None:
        """Count so many records or replicas less as under way."""
        self._under_way[crawl] -= count
        if not self._under_way[crawl]:
            del self._under_way[crawl]
