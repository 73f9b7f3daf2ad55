"""Copies of task records: what comes from other nodes meets what is here (design invariants I2, I4, I6).

    merge_in   records of another node: the lattice decides, field by field of I2
    bury       tombstones of another node: the same, for records that are here
    requeue    the queue entries of a few records, as they have to be now
    sweep      the same for the whole store, piece by piece, after the view changed
    drop       records that their new holders acknowledged (I5)
    reopen     pages whose body is gone (I11), and what was given up, when a person says so

A record is in its host's queue exactly when its task is open, this node owns
it (`mine`) and it is not leased to another node for now (`held`). `order` is a
node's own; everything else of a record converges. What two copies must agree
in to count as equal is their `essence`; how a task was found (referrer, hops)
is left out of it, since no decision of the swarm depends on it.

All functions take a `Txn` and run on the committer's thread, and so do the
functions that they are given: those of an `OwnershipSnapshot`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from dhtcrawl.keyspace import host_key
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.ownership import Test
from dhtcrawl.storage.store.records import Place, State, Task, is_task, merge, others_of, pack, unpack, unpack_task
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.url import host_of


class TaskReplica(NamedTuple):
    """A record under its key."""

    key: bytes
    task: Task


class End(NamedTuple):
    """How a task ended, without what is known of it anyway: a tombstone."""

    key: bytes
    state: State
    gen: int
    attempt: int
    reason: str
    detail: str
    place: Place | None
    others: tuple[str, ...] = ()


class Merged(NamedTuple):
    """What a batch of copies came to. What was unqueued goes first: a key in both was queued again."""

    further: list[TaskReplica]  # our record where it is further on than what came (I6: a write is a read)
    queued: list[Queued]  # new in our queue, or at another place in it
    unqueued: list[tuple[str, bytes]]  # (host, key) that left our queue
    resend: list[bytes]  # pages we fetched whose links must go out again
    new: int
    # As they came: those that were not here, and those of `queued`. Whoever owns them sees to their backups (I1).
    fresh: tuple[TaskReplica, ...] = ()
    changed: tuple[TaskReplica, ...] = ()  # others that are further on than ours were, as they are now
    holders: tuple[str, ...] = ()  # nodes, in hex, that have the bodies of pages which we learned of


class Swept(NamedTuple):
    """What a part of the store came to; `cursor` is None at the end."""

    queued: list[Queued]
    unqueued: list[tuple[str, bytes]]
    dropped: int
    cursor: bytes | None


def essence(task: Task) -> tuple[Any, ...]:
    """What copies are compared by; records that merged both ways agree in it."""
    same = (task.gen, task.state, task.attempt, task.depth, task.place, task.seed, task.reason)
    return (*same, task.others) if task.others else same


def merge_in(
    txn: Txn,
    crawl: bytes,
    copies: Iterable[TaskReplica],
    orders: Iterator[int],
    *,
    mine: Test,
    held: Test,
    depth_matters: bool,
) -> Merged:
    """Merge records of another node into ours; a new one gets the next of `orders`.

    A page that we fetched must send its links again where a shorter way to it
    came and `depth_matters` (the crawl has a depth limit), or where its record
    comes back to us as fetched and nobody here goes on with it.
    """
    into = _Into(txn, crawl, mine, held)
    fresh: list[TaskReplica] = []
    changed: list[TaskReplica] = []
    for key, task in copies:
        value = txn.get(keys.TASK + crawl + key)
        if value is None:
            into.add(key, task, next(orders))
            into.owe_links(key, None, task, depth_matters)
            fresh.append(TaskReplica(key, task))
            continue
        order = _order(value)
        if value == task.pack_with(order):
            into.place(key, task, task, order)  # to make a Task of ours would cost more than all of this
        else:
            ours = unpack_task(value)
            both = into.meet(key, ours, replace(task, order=order))
            into.owe_links(key, ours, both, depth_matters)
            if both is not ours and essence(both) != essence(ours) and key not in into.queued:
                changed.append(TaskReplica(key, both))
        if key in into.queued:
            fresh.append(TaskReplica(key, task))
    return into.merged._replace(fresh=tuple(fresh), changed=tuple(changed))


def bury(txn: Txn, crawl: bytes, ends: Iterable[End], *, mine: Test, held: Test) -> tuple[list[bool], Merged]:
    """Merge tombstones into our records; False for each whose record we lack, which must be sent whole."""
    into = _Into(txn, crawl, mine, held)
    known: list[bool] = []
    for end in ends:
        value = txn.get(keys.TASK + crawl + end.key)
        known.append(value is not None)
        if value is not None and not into.close(value, end):
            ours = unpack_task(value)
            came = replace(ours, **{name: value for name, value in end._asdict().items() if name != "key"})
            into.meet(end.key, ours, came)
    return known, into.merged


def requeue(txn: Txn, crawl: bytes, task_keys: Iterable[bytes], *, mine: Test, held: Test) -> Merged:
    """Queue what should be queued by now, and the reverse: leases ended, owners changed.

    Tasks that were in their queue already are told, too: a shorter way to one
    that another node has puts it there, and nobody who fetches hears of it.
    """
    into = _Into(txn, crawl, mine, held)
    for key in task_keys:
        value = txn.get(keys.TASK + crawl + key)
        if value is not None:
            task = unpack_task(value)
            into.place(key, task, task, task.order)
            into.tell(key, task)
    return into.merged


def lend(
    txn: Txn, crawl: bytes, task_keys: Iterable[bytes], *, mine: Test, held: Test
) -> tuple[list[TaskReplica], Merged]:
    """Take tasks that are `held` by now out of their queues; the records of those that are still open."""
    into = _Into(txn, crawl, mine, held)
    found: list[TaskReplica] = []
    for key in task_keys:
        value = txn.get(keys.TASK + crawl + key)
        task = None if value is None else unpack_task(value)
        if task is not None and task.state == State.PENDING:
            into.place(key, task, task, task.order)
            found.append(TaskReplica(key, task))
    return found, into.merged


def sweep(txn: Txn, crawl: bytes, cursor: bytes, limit: int, *, mine: Test, held: Test, keep: Test) -> Swept:
    """Bring the queues in line with who owns what, for `limit` records from the task key `cursor` on.

    Drops, without asking anybody, what is not to `keep`: only for records that
    their holders have. What still has to send its links is never dropped.
    """
    into = _Into(txn, crawl, mine, held)
    dropped = 0
    found, after = _slice(txn, crawl, cursor, limit)
    for key, value in found:
        task = unpack_task(value)
        if keep(key) or not into.let_go(key, task):
            into.place(key, task, task, task.order)
        else:
            dropped += 1
    return Swept(list(into.queued.values()), into.unqueued, dropped, after)


def drop(txn: Txn, crawl: bytes, copies: Iterable[TaskReplica], *, keep: Test) -> Swept:
    """Let go of records whose new holders have them as in `copies` (I5).

    What has changed since, is to `keep` after all, or still has to send its
    links, stays. `cursor` of the answer is None.
    """
    into = _Into(txn, crawl, keep, _never)
    dropped = 0
    for key, acked in copies:
        value = txn.get(keys.TASK + crawl + key)
        if value is not None and not keep(key):
            task = unpack_task(value)
            dropped += essence(task) == essence(acked) and into.let_go(key, task)
    return Swept([], into.unqueued, dropped, None)


def bodies_at(
    txn: Txn, crawl: bytes, cursor: bytes, limit: int, node: str, mine: Test
) -> tuple[list[bytes], bytes | None]:
    """Task keys of our pages whose body only `node` is known to hold, among `limit` records from `cursor` on."""
    found, after = _slice(txn, crawl, cursor, limit)
    tasks = ((key, unpack_task(value)) for key, value in found if mine(key))
    return [key for key, task in tasks if lies_at(task, node)], after


def lies_at(task: Task, node: str) -> bool:
    """Whether `node` has the body of a page."""
    return task.place is not None and task.place.node == node


def reopen(
    txn: Txn, crawl: bytes, task_keys: Iterable[bytes], *, when: Callable[[Task], bool], mine: Test, held: Test
) -> tuple[list[TaskReplica], Merged]:
    """Open tasks again, `when` they still are what they were: a new generation, to be fetched anew.

    Returns:
        The records, for their backups, and what it did to our queue.
    """
    into = _Into(txn, crawl, mine, held)
    opened: list[TaskReplica] = []
    for key in task_keys:
        value = txn.get(keys.TASK + crawl + key)
        task = None if value is None else unpack_task(value)
        if task is None or not when(task):
            continue  # something else became of it meanwhile
        again = replace(task, state=State.PENDING, gen=task.gen + 1, attempt=0, reason="", detail="", place=None)
        again = replace(again, others=task.fetchers)
        txn.put(keys.TASK + crawl + key, again.pack())
        into.place(key, task, again, again.order)
        opened.append(TaskReplica(key, again))
    return opened, into.merged


def settled(txn: Txn, crawl: bytes, task_keys: Iterable[bytes]) -> list[bytes]:
    """Those of these keys whose record says what came of the task."""
    values = ((key, txn.get(keys.TASK + crawl + key)) for key in task_keys)
    return [key for key, value in values if value is not None and unpack_task(value).state >= State.FETCHED]


class _Into:
    """The store that copies are merged into, and what came of it so far."""

    __slots__ = ("_crawl", "_held", "_mine", "_txn", "further", "holders", "new", "queued", "resend", "unqueued")

    def __init__(self, txn: Txn, crawl: bytes, mine: Test, held: Test) -> None:
        self._txn = txn
        self._crawl = crawl
        self._mine = mine
        self._held = held
        self.further: list[TaskReplica] = []
        self.queued: dict[bytes, Queued] = {}
        self.unqueued: list[tuple[str, bytes]] = []
        self.resend: dict[bytes, None] = {}
        self.holders: dict[str, None] = {}
        self.new = 0

    @property
    def merged(self) -> Merged:
        """What came of it."""
        queued, resend = list(self.queued.values()), list(self.resend)
        return Merged(self.further, queued, self.unqueued, resend, self.new, holders=tuple(self.holders))

    def add(self, key: bytes, task: Task, order: int) -> None:
        """A record that was not here, at its place in our order."""
        self._txn.put(keys.TASK + self._crawl + key, task.pack_with(order))
        self._note(task.place)
        if self._queueable(key, task):
            self._enqueue(key, task, order, self._entry(key, task.depth, order, host_of(task.url)))
        self.new += 1

    def meet(self, key: bytes, ours: Task, came: Task) -> Task:
        """Another copy of a record; the one that both amount to."""
        both = ours if came == ours else merge(ours, came)
        self._note(both.place)
        if both != ours:
            self._txn.put(keys.TASK + self._crawl + key, both.pack())
        if essence(both) != essence(came):
            self.further.append(TaskReplica(key, both))
        self.place(key, ours, both, ours.order)
        return both

    def close(self, value: bytes, end: End) -> bool:
        """The usual tombstone, for an open record of its generation; False where it is another.

        What `meet` would do, without making a Task: every page costs each of its backups one of these.
        """
        stored = unpack(value)
        if not is_task(stored) or others_of(stored) or end.others:
            return False
        url, depth, order, referrer, state, gen, _, hops, seed, *_ = stored
        if state != State.PENDING or gen != end.gen or end.state < State.DEAD:
            return False
        over = (url, depth, order, referrer, int(end.state), gen, end.attempt, hops, seed, *end[4:7])
        self._txn.put(keys.TASK + self._crawl + end.key, pack(over))
        self._note(end.place)
        self._leave(end.key, depth, order, host_of(url))
        return True

    def place(self, key: bytes, before: Task, task: Task, order: int) -> None:
        """Put a record into its queue, at its place, or take it out; its entry was written for `before`."""
        if before.state != State.PENDING and task.state != State.PENDING:
            return
        host = host_of(task.url)
        if not self._queueable(key, task):
            self._leave(key, before.depth, order, host)
            return
        entry = was = self._entry(key, task.depth, order, host)
        if before.depth != task.depth:
            was = self._entry(key, before.depth, order, host)
            self._txn.delete(was)
        if entry != was or self._txn.get(entry) is None:
            self._enqueue(key, task, order, entry)

    def tell(self, key: bytes, task: Task) -> None:
        """Let it be known that a task is in its queue, if it is."""
        if key not in self.queued and self._queueable(key, task):
            self.queued[key] = Queued(task.depth, task.order, key, task.url, task.referrer, task.hops, task.seed)

    def owe_links(self, key: bytes, before: Task | None, task: Task, depth_matters: bool) -> None:
        """Mark a page of ours whose links must go out again, so that a restart goes on with it, too."""
        if task.state not in (State.FETCHED, State.DONE):
            return
        shorter = depth_matters and (before is None or task.depth < before.depth)
        back = task.state == State.FETCHED and (before is None or before.place != task.place)
        if not (shorter or back):
            return
        page = self._txn.get(keys.PAGE + self._crawl + key)
        if page is None:
            return  # it lies at another node, which is told as it is told of every change
        sent = unpack(page)
        back = back and Place(*sent["place"]) == task.place
        if back or (shorter and task.depth < sent["depth"]):
            self._txn.put(keys.FETCHED + self._crawl + key, b"")
            self.resend[key] = None

    def let_go(self, key: bytes, task: Task) -> bool:
        """Remove a record with its queue entry; False where its page still has to send its links."""
        if self._txn.get(keys.FETCHED + self._crawl + key) is not None:
            return False
        if task.state == State.PENDING:
            self._leave(key, task.depth, task.order, host_of(task.url))
        self._txn.delete(keys.TASK + self._crawl + key)
        return True

    def _note(self, place: Place | None) -> None:
        if place is not None:
            self.holders[place.node] = None

    def _queueable(self, key: bytes, task: Task) -> bool:
        return task.state == State.PENDING and self._mine(key) and not self._held(key)

    def _entry(self, key: bytes, depth: int, order: int, host: str) -> bytes:
        return keys.queue_key(self._crawl, host_key(host), depth, order, key)

    def _enqueue(self, key: bytes, task: Task, order: int, entry: bytes) -> None:
        self._txn.put(entry, b"")
        self.queued[key] = Queued(task.depth, order, key, task.url, task.referrer, task.hops, task.seed)

    def _leave(self, key: bytes, depth: int, order: int, host: str) -> None:
        """Take a record out of its queue, if it is there."""
        entry = self._entry(key, depth, order, host)
        if self._txn.get(entry) is not None:
            self._txn.delete(entry)
            self.unqueued.append((host, key))
            self.queued.pop(key, None)


def _order(value: bytes) -> int:
    stored = unpack(value)
    order: int = stored[2] if is_task(stored) else unpack_task(value).order
    return order


def _slice(txn: Txn, crawl: bytes, cursor: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """`limit` records from the task key `cursor` on, read before anything is written, and where to go on."""
    start, stop = keys.bounds(keys.TASK, crawl)
    found: list[tuple[bytes, bytes]] = []
    for full, value in txn.scan(start + cursor, stop):
        if len(found) == limit:
            return found, keys.suffix(full)
        found.append((keys.suffix(full), value))
    return found, None


def _never(_: bytes) -> bool:
    return False
