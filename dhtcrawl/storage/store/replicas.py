"""Merges replicas of task records from other nodes into the store (design invariants I2, I4, I6).

    merge_in   merge records of another node by the lattice, field by field of I2
    bury       merge tombstones of another node into records that are here
    requeue    put the queue entries of a few records right
    lend       the same for tasks that this node assigns to another
    borrow     the same for tasks that another node assigns to this one
    sweep      the same for the whole store, piece by piece, after the view changed
    drop       drop records that their new holders acknowledged (I5)
    reopen     open pages whose body is gone (I11), or given-up tasks that a user releases

A record is in its host's queue exactly when its task is open, belongs to this node
(`mine`) and is not with another node (`held`). `order` is each node's own; all other
fields of a record converge. Two replicas are equal if their `essence` is; it leaves
out how a task was found (referrer, hops), on which no decision of the swarm depends.

All functions take a `Txn` and run on the committer's thread, and so do the functions
of an `OwnershipSnapshot` that they are given. Those that read a record raise
`StorageError` if it is damaged and `StoreTooNew` if a later version wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from dhtcrawl.keyspace import host_key
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.ownership import NO_KEYS, Test
from dhtcrawl.storage.store.records import (
    NO_ADDITIONS,
    Additions,
    Place,
    State,
    Task,
    essence,
    is_task,
    merge,
    others_beside,
    pack,
    unpack,
    unpack_task,
)
from dhtcrawl.storage.store.tasks import Queued, get_task, queued
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.url import host_of

_PENDING, _DEAD = int(State.PENDING), int(State.DEAD)


class TaskReplica(NamedTuple):
    """A task key and its record."""

    key: bytes
    task: Task


class End(NamedTuple):
    """A tombstone: how a task ended, without the fields that its replicas have anyway."""

    key: bytes
    state: State
    gen: int
    attempt: int
    reason: str
    detail: str
    place: Place | None
    added: Additions = NO_ADDITIONS


class Merged(NamedTuple):
    """The result of a merge. Apply `unqueued` before `queued`: a key in both was queued again."""

    further: list[TaskReplica]  # our records that are further on than those that came (I6: a write is a read)
    queued: list[Queued]  # new in our queues, or at another place in them
    unqueued: list[tuple[str, bytes]]  # (host, key) that left our queues
    resend: list[bytes]  # pages that we fetched, whose links must go out again
    new: int
    # As they came: records that were not here, and those of `queued`. Their owner gives them to its backups (I1).
    fresh: tuple[TaskReplica, ...] = ()
    changed: tuple[TaskReplica, ...] = ()  # our other records that changed by the merge, as they are now
    holders: tuple[str, ...] = ()  # nodes, in hex, that have the bodies of pages that we learned of
    doubted: tuple[bytes, ...] = ()  # tasks that would be over, or lie elsewhere, by a record that was left out


class Swept(NamedTuple):
    """The result of sweeping a part of the store; `cursor` is None at its end."""

    queued: list[Queued]
    unqueued: list[tuple[str, bytes]]
    dropped: int
    cursor: bytes | None


def merge_in(
    txn: Txn,
    crawl: bytes,
    copies: Iterable[TaskReplica],
    orders: Iterator[int],
    *,
    mine: Test,
    held: Test,
    depth_matters: bool,
    doubtful: Set[bytes] = NO_KEYS,
) -> Merged:
    """Merge records of another node into ours; a new one gets the next of `orders`.

    A record with a `doubtful` key is left out where it would end a task that is open or unknown here, or move its page.

    A page that we fetched must send its links again if a smaller depth came and
    `depth_matters` (the crawl has a depth limit), or if its record comes back to us
    as fetched and this node is not working on it.
    """
    into = _Into(txn, crawl, mine, held)
    fresh: list[TaskReplica] = []
    changed: list[TaskReplica] = []
    doubted: list[bytes] = []
    copies = list(copies)
    for (key, task), value in zip(copies, _stored(txn, crawl, [key for key, _ in copies]), strict=True):
        if key in doubtful and (value is None or into.moves(key, value, task)):
            doubted.append(key)
            continue
        if value is None:
            into.add(key, task, next(orders))
            into.owe_links(key, None, task, depth_matters)
            fresh.append(TaskReplica(key, task))
            continue
        order = _order(value)
        if value == task.pack_with(order):
            into.place(
                key, task, task, order
            )  # equal records are the usual case: make no Task of ours, which costs more than this
        else:
            ours = unpack_task(value)
            both = into.meet(key, ours, task._replace(order=order))
            into.owe_links(key, ours, both, depth_matters)
            if both is not ours and essence(both) != essence(ours) and key not in into.queued:
                changed.append(TaskReplica(key, both))
        if key in into.queued:
            fresh.append(TaskReplica(key, task))
    return into.merged._replace(fresh=tuple(fresh), changed=tuple(changed), doubted=tuple(doubted))


def bury(
    txn: Txn,
    crawl: bytes,
    ends: Iterable[End],
    *,
    mine: Test,
    held: Test,
    doubtful: Set[bytes] = NO_KEYS,
    told_on: Set[bytes] = NO_KEYS,
) -> tuple[list[bool], Merged]:
    """Merge tombstones into our records; False for each that must be sent whole, because we lack its record.

    One with a `doubtful` key is left out as in `merge_in`, and then False, too. `Merged.changed` has only records with
    a `told_on` key: to read all of them would cost more than the rest.
    """
    into = _Into(txn, crawl, mine, held)
    known: list[bool] = []
    doubted: list[bytes] = []
    before: dict[bytes, bytes] = {}  # of those that are told on
    ends = list(ends)
    for end, value in zip(ends, _stored(txn, crawl, [end.key for end in ends]), strict=True):
        if value is not None and end.key in doubtful and into.moves(end.key, value, _over(unpack_task(value), end)):
            doubted.append(end.key)
            known.append(False)
            continue
        known.append(value is not None)
        if value is not None and end.key in told_on:
            before.setdefault(end.key, value)
        if value is not None and not into.close(value, end):
            ours = unpack_task(value)
            into.meet(end.key, ours, _over(ours, end))
    into.leave_closed()
    return known, into.merged._replace(changed=_changed(txn, crawl, before), doubted=tuple(doubted))


def requeue(txn: Txn, crawl: bytes, task_keys: Iterable[bytes], *, mine: Test, held: Test) -> Merged:
    """Put the queue entries of these tasks right, after assignments ended or owners changed.

    Tasks that were in their queue already are returned, too: if a smaller depth is
    found for a task that another node has, it is queued without the frontier's knowledge.
    """
    into = _Into(txn, crawl, mine, held)
    for key in task_keys:
        value = _stored_if_ours(txn, crawl, key)
        if value is not None:
            task = unpack_task(value)
            into.place(key, task, task, task.order)
            into.tell(key, task)
    return into.merged


def lend(
    txn: Txn, crawl: bytes, task_keys: Iterable[bytes], *, mine: Test, held: Test
) -> tuple[list[TaskReplica], Merged]:
    """Take tasks that were assigned, and so are `held`, out of their queues; return the records of the open ones."""
    into = _Into(txn, crawl, mine, held)
    found: list[TaskReplica] = []
    for key in task_keys:
        task = get_task(txn, crawl, key)
        if task is not None and task.state == State.PENDING:
            into.place(key, task, task, task.order)
            found.append(TaskReplica(key, task))
    return found, into.merged


def borrow(txn: Txn, crawl: bytes, task_keys: Sequence[bytes], *, mine: Test, held: Test) -> tuple[list[bytes], Merged]:
    """Queue tasks that another node assigns to this one; return the keys of those that have no record here."""
    merged = requeue(txn, crawl, task_keys, mine=mine, held=held)
    return [key for key in task_keys if _stored_if_ours(txn, crawl, key) is None], merged


def sweep(txn: Txn, crawl: bytes, cursor: bytes, limit: int, *, mine: Test, held: Test, keep: Test) -> Swept:
    """Put the queues right after ownership changed, for `limit` records from the task key `cursor` on.

    Drops the records that are not to `keep`, which other nodes must have. A page that
    still has to send its links is never dropped.
    """
    into = _Into(txn, crawl, mine, held)
    dropped = 0
    found, after = txn.page(keys.TASK, crawl, cursor, limit)
    for key, value in found:
        task = unpack_task(value)
        if keep(key) or not into.let_go(key, task):
            into.place(key, task, task, task.order)
        else:
            dropped += 1
    return Swept(list(into.queued.values()), into.unqueued, dropped, after)


def drop(txn: Txn, crawl: bytes, copies: Iterable[TaskReplica], *, keep: Test) -> Swept:
    """Drop records whose new holders have them as in `copies` (I5).

    A record that has changed since, is to `keep` after all, or still has to send its
    links, stays. `cursor` of the result is None.
    """
    into = _Into(txn, crawl, keep, lambda _: False)
    dropped = 0
    for key, acked in copies:
        task = get_task(txn, crawl, key)
        if task is not None and not keep(key):
            dropped += essence(task) == essence(acked) and into.let_go(key, task)
    return Swept([], into.unqueued, dropped, None)


def bodies_at(
    txn: Txn, crawl: bytes, cursor: bytes, limit: int, nodes: Set[str], mine: Test
) -> tuple[list[bytes], bytes | None]:
    """Our pages whose body only one of `nodes` is known to have, among `limit` records from `cursor` on.

    The second value is the next cursor.
    """
    found, after = txn.page(keys.TASK, crawl, cursor, limit)
    tasks = ((key, unpack_task(value)) for key, value in found if mine(key))
    return [key for key, task in tasks if task.place is not None and task.place.node in nodes], after


def lies_at(task: Task, node: str) -> bool:
    """Whether `node` has the body of a page."""
    return task.place is not None and task.place.node == node


def reopen(
    txn: Txn, crawl: bytes, task_keys: Iterable[bytes], *, when: Callable[[Task], bool], mine: Test, held: Test
) -> tuple[list[TaskReplica], Merged]:
    """Open tasks again, in a new generation, if `when` still holds for them.

    Returns:
        The records, for their backups, and the changes of our queues.
    """
    into = _Into(txn, crawl, mine, held)
    opened: list[TaskReplica] = []
    for key in task_keys:
        task = get_task(txn, crawl, key)
        if task is None or not when(task):
            continue  # its record has changed meanwhile
        again = task._replace(state=State.PENDING, gen=task.gen + 1, attempt=0, reason="", detail="", place=None)
        again = again.with_others(others_beside(None, task.fetchers))
        txn.put(keys.TASK + crawl + key, again.pack())
        into.place(key, task, again, again.order)
        opened.append(TaskReplica(key, again))
    return opened, into.merged


def settled(txn: Txn, crawl: bytes, task_keys: Iterable[bytes]) -> list[bytes]:
    """The keys, of these, whose record has an outcome."""
    found = ((key, get_task(txn, crawl, key)) for key in task_keys)
    return [key for key, task in found if task is not None and task.state >= State.FETCHED]


class _Into:
    """Merges replicas into the store, and collects the result."""

    __slots__ = (
        "_closed", "_crawl", "_held", "_mine", "_txn", "further", "holders", "new", "queued", "resend", "unqueued",
    )  # fmt: skip

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
        self._closed: dict[bytes, tuple[str, bytes]] = {}  # queue entry → host and key of a task that is over

    @property
    def merged(self) -> Merged:
        queued, resend = list(self.queued.values()), list(self.resend)
        return Merged(self.further, queued, self.unqueued, resend, self.new, holders=tuple(self.holders))

    def add(self, key: bytes, task: Task, order: int) -> None:
        self._txn.put(keys.TASK + self._crawl + key, task.pack_with(order))
        if task.place is not None:
            self.holders[task.place.node] = None
        if task.state == State.PENDING and self._mine(key) and not self._held(key):
            self._enqueue(key, task, order, self._entry(key, task.depth, order, host_of(task.url)))
        self.new += 1

    def meet(self, key: bytes, ours: Task, came: Task) -> Task:
        """Merge another replica of a record; return the merged record."""
        both = ours if came == ours else merge(ours, came)
        self._note(both.place)
        if both != ours:
            self._txn.put(keys.TASK + self._crawl + key, both.pack())
        if essence(both) != essence(came):
            self.further.append(TaskReplica(key, both))
        self.place(key, ours, both, ours.order)
        return both

    def moves(self, key: bytes, value: bytes, came: Task) -> bool:
        """Whether a record that came would end a task, or move its page elsewhere than to where we have it."""
        ours = unpack_task(value)
        both = merge(ours, came)
        if (both.state, both.gen, both.place) == (ours.state, ours.gen, ours.place):
            return False
        page = self._txn.get(keys.PAGE + self._crawl + key)
        return page is None or Place(*unpack(page)["place"]) != both.place

    def close(self, value: bytes, end: End) -> bool:
        """Apply a tombstone to an open record of the same generation and additions; return False for any other case.

        Does what `meet` would do, without making a Task: each page costs each of its backups one call. `leave_closed`
        follows once, for all.
        """
        stored = unpack(value)
        if not is_task(stored) or not end.added.are_in(stored):
            return False
        url, depth, order, referrer, state, gen, _, hops, seed, _, _, _, *added = stored
        key, end_state, end_gen, attempt, reason, detail, place, _ = end
        if state != _PENDING or gen != end_gen or end_state < _DEAD:
            return False
        over = (
            url, depth, order, referrer, int(end_state), gen, attempt, hops, seed, reason, detail, place, *added,
        )  # fmt: skip
        self._txn.put(keys.TASK + self._crawl + key, pack(over))
        if place is not None:
            self.holders[place.node] = None
        host = host_of(url)
        self._closed[keys.queue_key(self._crawl, host_key(host), depth, order, key)] = host, key
        return True

    def leave_closed(self) -> None:
        """Take the tasks that were closed out of their queues; at most backups none is in one.

        Each is got by itself: in a large store one of many keys passes all that was removed behind it, and much was.
        """
        for entry, (host, key) in self._closed.items():
            if self._txn.get(entry) is not None:
                self._txn.delete(entry)
                self.unqueued.append((host, key))
                self.queued.pop(key, None)

    def place(self, key: bytes, before: Task, task: Task, order: int) -> None:
        """Put a record into its queue at its place, or take it out; its present entry was written for `before`."""
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
        """Add a task to `queued`, if it belongs in its queue."""
        if key not in self.queued and self._queueable(key, task):
            self.queued[key] = queued(key, task)

    def owe_links(self, key: bytes, before: Task | None, task: Task, depth_matters: bool) -> None:
        """Mark a page of ours if its links must go out again, so that a restart sends them, too."""
        if task.state not in (State.FETCHED, State.DONE):
            return
        shorter = depth_matters and (before is None or task.depth < before.depth)
        back = task.state == State.FETCHED and (before is None or before.place != task.place)
        if not (shorter or back):
            return
        page = self._txn.get(keys.PAGE + self._crawl + key)
        if page is None:
            return  # the page is at another node, which hears of this change as of any other
        sent = unpack(page)
        back = back and Place(*sent["place"]) == task.place
        if back or (shorter and task.depth < sent["depth"]):
            self._txn.put(keys.FETCHED + self._crawl + key, b"")
            self.resend[key] = None

    def let_go(self, key: bytes, task: Task) -> bool:
        """Remove a record with its queue entry; return False if its page still has to send its links."""
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
        self.queued[key] = queued(key, task, order)

    def _leave(self, key: bytes, depth: int, order: int, host: str) -> None:
        entry = self._entry(key, depth, order, host)
        if self._txn.get(entry) is not None:
            self._txn.delete(entry)
            self.unqueued.append((host, key))
            self.queued.pop(key, None)


def _over(ours: Task, end: End) -> Task:
    """Our record as a tombstone says that it ended."""
    return ours._replace(**{name: value for name, value in end._asdict().items() if name != "key"})


def _changed(txn: Txn, crawl: bytes, before: Mapping[bytes, bytes]) -> tuple[TaskReplica, ...]:
    """The records, of these, that are others than before."""
    found = ((key, unpack_task(value), get_task(txn, crawl, key)) for key, value in before.items())
    return tuple(TaskReplica(key, now) for key, was, now in found if now is not None and essence(now) != essence(was))


def _stored(txn: Txn, crawl: bytes, task_keys: list[bytes]) -> Iterator[bytes | None]:
    """The stored records of these tasks, each as it is when it is taken; read at once, as far as keys differ."""
    head = keys.TASK + crawl
    record_keys = [head + key for key in task_keys]
    if len(set(record_keys)) < len(record_keys):
        return map(txn.get, record_keys)  # the first of two alike changes what the second finds
    return iter(txn.get_many(record_keys))


def _stored_if_ours(txn: Txn, crawl: bytes, key: bytes) -> bytes | None:
    """The stored record of a task that may be other nodes' to keep.

    Got by itself: where a sweep has removed the records of half of the keys, one of many keys passes all of them.
    """
    return txn.get(keys.TASK + crawl + key)


def _order(value: bytes) -> int:
    stored = unpack(value)
    order: int = stored[2] if is_task(stored) else unpack_task(value).order
    return order
