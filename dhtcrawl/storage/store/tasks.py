"""The steps of a task's life in the store.

    accept   a link arrives: unless it was seen, write a record and a queue entry
    fetched  the body is archived: write page record and link keys, and leave the queue
    settle   all out-links are acked: the record becomes a tombstone, done; at once with `fetched` if they were before
    kill     the task is given up: the record becomes a tombstone, dead
    skip     a link is not followed: write the reason, once

All functions take a `Txn` and run on the committer's thread. Those that read a record
raise `StorageError` if it is damaged and `StoreTooNew` if a later version wrote it.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from dhtcrawl.keyspace import host_key, url_key
from dhtcrawl.storage.store import counters, keys
from dhtcrawl.storage.store.records import (
    DEPTH_LIMIT,
    NO_ADDITIONS,
    Additions,
    Place,
    SkippedLink,
    SkipReason,
    State,
    Task,
    fetched_again,
    pack,
    unpack,
    unpack_task,
)
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.url import host_of


class Link(NamedTuple):
    """A URL on its way to its owner, as STORE_TASK carries it."""

    key: bytes
    url: str
    depth: int
    referrer: str
    hops: int = 0
    seed: bool = False
    added: Additions = NO_ADDITIONS  # without `others`; they become those of its task


class Queued(NamedTuple):
    """A task in its host's queue."""

    depth: int
    order: int
    key: bytes
    url: str
    referrer: str
    hops: int
    seed: bool


_KEYS_AT_ONCE = 16

NONE_COUNTED: Final[Mapping[str, int]] = MappingProxyType({})


class Accepted(NamedTuple):
    """The result of accepting a batch of links."""

    queued: list[Queued]  # new, or found again at a smaller depth
    resend: list[bytes]  # fetched before at a greater depth: their links must go out again
    new: int
    changed: list[tuple[bytes, Task]]  # keys and records that the backups must have before the links are acked
    reopened: Mapping[str, int] = NONE_COUNTED  # what is counted for tasks that were dead, by names of `counters`


class FetchedPage(NamedTuple):
    """A page that was fetched, to be written with `fetched`."""

    key: bytes
    depth: int  # the depth for which its links were sent
    fields: dict[str, Any]  # the line of pages.jsonl, without place
    link_keys: bytes
    skipped: list[tuple[str, str]]  # (url, reason) of links not followed


class Linked(NamedTuple):
    """The result of writing the links of a page that was linked again."""

    links: int  # so many more than before
    skipped: Mapping[str, int]  # as of `Arrival`


def accept(
    txn: Txn,
    crawl: bytes,
    links: Iterable[Link],
    orders: Iterator[int],
    *,
    depth_matters: bool,
    safe: Callable[[bytes], bool] = lambda _: True,
) -> Accepted:
    """Write the links that were not seen before.

    `depth_matters` if the crawl has a depth limit: only then can a smaller depth of a
    page bring links within the limit that were beyond it.
    `safe(key)` says whether the backups have the record of the task, if there is one; if
    not, it came from an owner that perhaps vanished before they had it.
    """
    arrivals = _Arrivals(txn, crawl, depth_matters=depth_matters)
    links = list(links)
    depths = txn.task_depths(crawl, [link.key for link in links])
    changed = arrivals.changed
    for link, depth in zip(links, depths, strict=True):
        key = link.key
        if key in changed:  # by a link before it
            depth = changed[key].depth
        if depth is None:
            arrivals.add(link, next(orders))
        elif link.depth < depth:
            arrivals.move(link, _task(txn, crawl, key))
        elif not safe(key) and key not in changed:
            changed[key] = _task(txn, crawl, key)
    return Accepted(arrivals.queued, arrivals.resend, arrivals.new, list(changed.items()), arrivals.reopened)


def seed(txn: Txn, crawl: bytes, links: Iterable[Link], orders: Iterator[int], tasks: int) -> int:
    """Write seeds that were not seen before, and that those of so many virtual tasks are written; how many were new."""
    accepted = accept(txn, crawl, links, orders, depth_matters=False)
    if tasks:
        txn.put(keys.key(keys.SEEDED, crawl), tasks.to_bytes(8, "big"))
    return accepted.new


def seeded(txn: Txn, crawl: bytes) -> int:
    """Of how many virtual tasks, the first ones, all pages of results are written."""
    return int.from_bytes(txn.get(keys.key(keys.SEEDED, crawl)) or b"", "big")


def _task(txn: Txn, crawl: bytes, key: bytes) -> Task:
    task = get_task(txn, crawl, key)
    assert task is not None, "it was there when its depth was read"
    return task


class _Arrivals:
    """What accepting a batch of links changes."""

    __slots__ = ("_crawl", "_depth_matters", "_txn", "changed", "new", "queued", "reopened", "resend")

    def __init__(self, txn: Txn, crawl: bytes, *, depth_matters: bool) -> None:
        self._txn = txn
        self._crawl = crawl
        self._depth_matters = depth_matters
        self.queued: list[Queued] = []
        self.resend: list[bytes] = []
        self.changed: dict[bytes, Task] = {}
        self.reopened: Counter[str] = Counter()
        self.new = 0

    def add(self, link: Link, order: int) -> None:
        """Write the task of a link that was not seen before."""
        key, url, depth, referrer, hops, seed, added = link
        task = Task(url, depth, order, referrer, State.PENDING, 0, 0, hops, seed, "", "", None, added)
        self._txn.put(keys.TASK + self._crawl + key, task.pack())
        self._enqueue(key, task)
        self.changed[key] = task
        self.new += 1

    def move(self, link: Link, old: Task) -> None:
        """Write that a task was found again, at a smaller depth."""
        txn, key, record_key = self._txn, link.key, keys.TASK + self._crawl + link.key
        new = old._replace(
            depth=link.depth,
            referrer=link.referrer,
            hops=link.hops,
            seed=old.seed or link.seed,
            added=old.added.merge(link.added, old.others),
        )
        if is_too_deep(old):  # before it was queued again the limit was lowered; this way may be within it
            self.reopened += counters.of_change(old, None)
            new = new._replace(state=State.PENDING, gen=old.gen + 1, attempt=0, reason="", detail="")
        self.changed[key] = new
        txn.put(record_key, new.pack())
        if new.state == State.PENDING:
            txn.delete(queue_key(self._crawl, key, old))
            self._enqueue(key, new)
            return
        # If another node has the page, it hears of this change as of any other.
        if old.state != State.DEAD and self._depth_matters and txn.get(keys.PAGE + self._crawl + key) is not None:
            # The mark makes a restart send the links.
            txn.put(keys.FETCHED + self._crawl + key, b"")
            self.resend.append(key)

    def _enqueue(self, key: bytes, task: Task) -> None:
        self._txn.put(queue_key(self._crawl, key, task), b"")
        self.queued.append(queued(key, task))


def queue_key(crawl: bytes, key: bytes, task: Task) -> bytes:
    """The key of a task's queue entry."""
    return keys.queue_key(crawl, host_key(host_of(task.url)), task.depth, task.order, key)


def queued(key: bytes, task: Task, order: int | None = None) -> Queued:
    """A task as it is in its queue, with its own order or another one."""
    place = task.order if order is None else order
    return Queued(task.depth, place, key, task.url, task.referrer, task.hops, task.seed)


class Arrival(NamedTuple):
    """The result of writing a page that was fetched."""

    task: Task  # the record as it is now
    again: bool  # the page had been fetched before: a refetch
    resend: bool  # a smaller depth was found while it was being fetched: its links must go out again
    skipped: Mapping[str, int] = NONE_COUNTED  # of its links, those that were noted as not followed, by reason


def fetched(txn: Txn, crawl: bytes, page: FetchedPage, place: Place, attempt: int, *, settled: bool = False) -> Arrival:
    """Record that the body lies at `place`.

    With `settled` all out-links were acked before: unless they have to go out again, the page is done with this.
    """
    record_key, old = keys.TASK + crawl + page.key, get_task(txn, crawl, page.key)
    if old is None:
        # The record was handed over to a new owner while the page was being fetched, or after an earlier fetch.
        old = Task(page.fields["url"], page.depth, 0, page.fields["referrer"] or "", added=_earlier(txn, crawl, page))
    again = old.state >= State.FETCHED and old.state != State.DEAD
    txn.delete(queue_key(crawl, page.key, old))
    if again:
        known = old.with_others(fetched_again(old, place.node))
        txn.put(record_key, known.pack())
        # The crawl counts these as noted, and the page may have had other links before.
        skip(txn, crawl, page.skipped, page.fields["url"])
        return Arrival(known, again=True, resend=False)
    # Dead beats fetched when replicas merge, so a page of a dead task has to belong
    # to a later generation.
    gen = old.gen + (old.state == State.DEAD)
    resend = old.depth < page.depth
    state = State.DONE if settled and not resend else State.FETCHED
    # An open task has no attempt, unless a member has said so: behind that, a backup would open it once more (I2).
    attempt = max(attempt, old.attempt) if gen == old.gen else attempt
    new = old._replace(state=state, gen=gen, attempt=attempt, reason="", detail="", place=place)
    txn.put(record_key, new.pack())
    if state is State.FETCHED:
        txn.put(keys.FETCHED + crawl + page.key, b"")
    txn.put(keys.PAGE + crawl + page.key, pack({**page.fields, "place": place}))
    txn.put(keys.LINKS + crawl + page.key, page.link_keys)
    skipped = skip(txn, crawl, page.skipped, page.fields["url"])
    return Arrival(new, again=False, resend=resend, skipped=skipped)


def _earlier(txn: Txn, crawl: bytes, page: FetchedPage) -> Additions:
    """The node that fetched an earlier page of this key which is here, as `others`."""
    before = get_page(txn, crawl, page.key)
    return NO_ADDITIONS if before is None or before["place"].is_copy else Additions((before["place"].node,))


def relink(
    txn: Txn,
    crawl: bytes,
    key: bytes,
    link_keys: bytes,
    depth: int,
    skipped: Iterable[tuple[str, str]] = (),
    depth_limit: int | None = None,
) -> Linked:
    """Write the link keys and the skipped links of a page that was found at a smaller depth, and for which depth.

    A smaller one may have been found since: that its links went out for that as well is not said. With `depth_limit`
    that is written, too.
    """
    page = get_page(txn, crawl, key)
    assert page is not None, "only a fetched page is linked again"
    before = txn.get(keys.LINKS + crawl + key) or b""
    txn.put(keys.LINKS + crawl + key, link_keys)
    noted = skip(txn, crawl, skipped, page["url"])
    said = {"depth": depth} if depth_limit is None else {"depth": depth, DEPTH_LIMIT: depth_limit}
    if page | said != page:
        txn.put(keys.PAGE + crawl + key, pack(page | said))
    return Linked(max(0, len(link_keys) - len(before)) // len(key), noted)


def settle(txn: Txn, crawl: bytes, key: bytes, *, depth_matters: bool = False) -> Task | None:
    """Make a page done, whose out-links are all acked; return its record, or None if other nodes keep that now.

    Returns None, too, if its links were sent for a greater depth than it has now: they go out again first.
    """
    task = get_task(txn, crawl, key)
    if task is not None and depth_matters:
        page = get_page(txn, crawl, key)
        if page is not None and task.depth < page["depth"]:
            return None
    txn.delete(keys.FETCHED + crawl + key)
    if task is None:
        return None
    if task.state == State.FETCHED:
        task = task._replace(state=State.DONE)
        txn.put(keys.TASK + crawl + key, task.pack())
    return task


def kill(txn: Txn, crawl: bytes, key: bytes, reason: str, detail: str, attempt: int, depth: int = 0) -> Task | None:
    """Give a task up for `reason`; return the new record, or None if the task was over or is not here.

    One that is given up for its `depth` stays if a smaller one was found for it meanwhile.
    """
    task = get_task(txn, crawl, key)
    if task is None or task.state != State.PENDING or (reason == SkipReason.DEPTH and task.depth < depth):
        return None  # without a record it was handed over to its owner, which will try for itself
    txn.delete(queue_key(crawl, key, task))
    dead = task._replace(state=State.DEAD, attempt=max(attempt, task.attempt), reason=reason, detail=detail)
    txn.put(keys.TASK + crawl + key, dead.pack())
    return dead


def skip(txn: Txn, crawl: bytes, skipped: Iterable[tuple[str, str]], referrer: str) -> Mapping[str, int]:
    """Note links on the page `referrer` that are not followed, each URL once, with the first reason and page.

    Returns how many were noted now, by reason.
    """
    notes: dict[bytes, SkippedLink] = {}
    for url, reason in skipped:
        notes.setdefault(keys.SKIPPED + crawl + url_key(url), SkippedLink(url, reason, referrer))
    noted: dict[str, int] = {}
    for (key, note), before in zip(notes.items(), txn.get_many([*notes]) if notes else (), strict=True):
        if before is None:
            txn.put(key, pack(note))
            noted[note.reason] = noted.get(note.reason, 0) + 1
    return noted or NONE_COUNTED


def owe(txn: Txn, crawl: bytes, host: str, wait_s: float) -> None:
    """Store that a restart must leave `host` alone for `wait_s`; 0 removes that.

    It is a duration, because a restart cannot know how much of it has passed.
    """
    key = keys.HOST + crawl + host_key(host)
    if wait_s:
        txn.put(key, pack((host, round(wait_s * 1000))))
    else:
        txn.delete(key)


def owed(txn: Txn, crawl: bytes) -> dict[str, float]:
    """The waits, in seconds, of hosts that asked for more than the crawl's delay."""
    rows = (unpack(value) for _, value in txn.rows(keys.HOST, crawl))
    return {host: wait_ms / 1000 for host, wait_ms in rows}


def host_queue(txn: Txn, crawl: bytes, host: bytes, limit: int) -> tuple[list[Queued], bool]:
    """The first `limit` tasks of a host's queue, and whether that is all of it."""
    entries = islice(txn.scan(*keys.bounds(keys.QUEUE, crawl, host)), limit + 1)
    found = [keys.queue_task(full) for full, _ in entries]
    return _queued(txn, crawl, found[:limit]), len(found) <= limit


def _queued(txn: Txn, crawl: bytes, task_keys: list[bytes]) -> list[Queued]:
    values = txn.get_many([keys.TASK + crawl + key for key in task_keys])
    found: list[Queued] = []
    for key, value in zip(task_keys, values, strict=True):
        assert value is not None, "a queue entry is written and removed with its record"
        found.append(queued(key, unpack_task(value)))
    return found


def hosts_with_work(txn: Txn, crawl: bytes, cursor: bytes, limit: int) -> tuple[list[tuple[bytes, str]], bytes | None]:
    """Hosts that have queued tasks, from the host key `cursor` on, and the next cursor.

    One seek a host: the scan jumps over the tasks behind the first of each host.
    """
    found: list[tuple[bytes, str]] = []
    _, stop = keys.bounds(keys.QUEUE, crawl)
    start = keys.QUEUE + crawl + cursor
    while len(found) < limit:
        first = next(iter(txn.scan(start, stop)), None)
        if first is None:
            return found, None
        host = keys.queue_host(first[0])
        (task,) = _queued(txn, crawl, [keys.queue_task(first[0])])
        found.append((host, host_of(task.url)))
        start = keys.after(keys.QUEUE + crawl + host)
    return found, start[1 + len(crawl) :]


def unsettled(txn: Txn, crawl: bytes, limit: int, cursor: bytes = b"") -> list[bytes]:
    """Task keys of pages that are fetched but not done."""
    behind = cursor + b"\0" if cursor else b""
    return [key for key, _ in islice(txn.rows(keys.FETCHED, crawl, behind), limit)]


def is_left(txn: Txn, crawl: bytes, mine: Callable[[bytes], bool]) -> bool:
    """Whether work is left: a queued task that is `mine`, or a page that is not done."""
    entries = txn.scan(*keys.bounds(keys.QUEUE, crawl))
    return any(mine(keys.queue_task(full)) for full, _ in entries) or bool(unsettled(txn, crawl, 1))


def first_missing(txn: Txn, crawl: bytes, task_keys: Iterable[bytes]) -> list[bytes]:
    """The keys, of these, that have no record here, each once, for an audit of links."""
    unique = [*dict.fromkeys(task_keys)]
    values = txn.get_many([keys.TASK + crawl + key for key in unique])
    return [key for key, value in zip(unique, values, strict=True) if value is None]


def is_too_deep(task: Task) -> bool:
    """Whether a task is dead because the crawl's depth limit was lowered."""
    return task.state == State.DEAD and task.reason == SkipReason.DEPTH


def get_task(txn: Txn, crawl: bytes, key: bytes) -> Task | None:
    """The record of one task, or None."""
    (value,) = txn.get_many([keys.TASK + crawl + key])
    return None if value is None else unpack_task(value)


def get_page(txn: Txn, crawl: bytes, key: bytes) -> dict[str, Any] | None:
    """The page record of one task with its `place`, or None."""
    value = txn.get(keys.PAGE + crawl + key)
    if value is None:
        return None
    fields: dict[str, Any] = unpack(value)
    fields["place"] = Place(*fields["place"])
    return fields


def link_keys_of(value: bytes, width: int) -> list[bytes]:
    """The task keys in an `l` record."""
    whole = len(value) - len(value) % (width * _KEYS_AT_ONCE)
    found = list(chain.from_iterable(_key_reader(width)(value[:whole])))
    found += [value[i : i + width] for i in range(whole, len(value), width)]
    return found


@cache
def _key_reader(width: int) -> Callable[[bytes], Iterator[tuple[bytes, ...]]]:
    """Takes so many keys apart at once: a third of the time that one slice after another takes."""
    return struct.Struct(f"{width}s" * _KEYS_AT_ONCE).iter_unpack
