"""Merges the stores of nodes that have ended into an empty collection, all of them at once, in the order of their keys.

`dhtcrawl.storage.collect.gather` takes rows of one node after another, in any order and over again, and believes none
of them. Here the stores are this machine's own and lie open: the records of one task stand beside each other, so that
each is looked at once, and most are written on as the bytes that they are. What comes of it is the same
(`tests/storage/test_merge_stores.py`).

    t   merged, its queue entry and mark made to fit
    p   in place; those of one key beyond the first aside
    l   with the page of its store, else aside
    s   the smallest reason

A page whose task is neither fetched nor done, a second page or lone link keys of one key, and a record that names other
fetchers are for `gather.finish`, which the caller is told. All other kinds are for `gather.merge_rows`, behind these.
Runs on the committer's thread; a step handles a bounded number of keys.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice
from typing import NamedTuple

from dhtcrawl.keyspace import CRAWL_ID_BYTES
from dhtcrawl.storage.collect.gather import BYTES_AT_ONCE, KEYS_AT_ONCE, place_of, put_task, rank_of, replaces
from dhtcrawl.storage.collect.gather_aside import WHOLE, aside
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import (
    SkippedLink,
    State,
    has_additions,
    merge_stored,
    shown_task,
    unpack,
    unpack_task,
)
from dhtcrawl.storage.store.txn import Txn

MERGED = (keys.TASK, keys.PAGE, keys.LINKS, keys.SKIPPED)
_BY_TASK = (keys.TASK, keys.PAGE, keys.LINKS)
_ARRIVED = (State.FETCHED, State.DONE)
_HEAD = len(keys.TASK) + CRAWL_ID_BYTES
# Of each kind in each store, in memory: so many rows, or these bytes and one row.
ROWS_AT_ONCE = 64
ROW_BYTES_AT_ONCE = 1 << 20

_Row = tuple[bytes, int, int, bytes]  # key, number of its kind, number of its store, value: in the order of a merge


class EndedStore(NamedTuple):
    """The store of a node that has ended: its id in hex, what reads it, and what gives back the memory of reading."""

    node: str
    txn: Txn
    let_go: Callable[[], None]


class MergeStep(NamedTuple):
    """The key at which the next step begins, None at the end; and whether `gather.finish` has something to do."""

    cursor: bytes | None
    unsettled: bool = False


def is_empty(txn: Txn, crawl: bytes) -> bool:
    """Whether a collection holds no rows of a crawl yet, so that there is nothing to merge with."""
    kinds = (*MERGED, keys.FETCHED, keys.EXTRA, *keys.COPIES)
    return not any(txn.page(kind, crawl, b"", 1)[0] for kind in kinds)


def merge_tasks(
    txn: Txn, crawl: bytes, stores: Sequence[EndedStore], cursor: bytes, keys_max: int = KEYS_AT_ONCE
) -> MergeStep:
    """Bring the tasks from the key `cursor` on, with their pages and link keys.

    Raises:
        StorageError: a record is damaged, or cannot be read.
    """
    unsettled, size = False, 0
    for count, (key, rows) in enumerate(_by_key(stores, crawl, _BY_TASK, cursor)):
        if count == keys_max or size >= BYTES_AT_ONCE:
            return MergeStep(key, unsettled)
        size += sum([len(row[3]) for row in rows])
        unsettled |= _take(txn, crawl, key, rows, stores)
    return MergeStep(None, unsettled)


def merge_skipped(
    txn: Txn, crawl: bytes, stores: Sequence[EndedStore], cursor: bytes, keys_max: int = KEYS_AT_ONCE
) -> MergeStep:
    """Bring the skipped links from the key `cursor` on.

    Raises:
        StorageError: a record is damaged, or cannot be read.
    """
    for count, (key, group) in enumerate(_by_key(stores, crawl, (keys.SKIPPED,), cursor)):
        if count == keys_max:
            return MergeStep(key)
        first, *others = {row[3] for row in group}
        value = min((first, *others), key=lambda value: rank_of(SkippedLink(*unpack(value)))) if others else first
        txn.put(keys.SKIPPED + crawl + key, value)
    return MergeStep(None)


def _by_key(
    stores: Iterable[EndedStore], crawl: bytes, kinds: Sequence[bytes], cursor: bytes
) -> Iterator[tuple[bytes, list[_Row]]]:
    """The rows of all stores by key; those of one key by kind, then by store."""
    streams = [
        _Stream(order, number, store.txn.scan(kind + crawl + cursor, keys.after(kind + crawl)))
        for order, kind in enumerate(kinds)
        for number, store in enumerate(stores)
    ]
    while True:
        for stream in streams:
            stream.read_on()
        streams = [stream for stream in streams if stream.rows]
        if not streams:
            return
        # Each stream has been read up to this key at least, so what it has of the keys before is complete.
        last = min([stream.rows[-1][0][1:] for stream in streams])
        found: dict[bytes, list[_Row]] = {}
        for stream in streams:
            for full, value in stream.take(last):
                key = full[_HEAD:]
                found.setdefault(key, []).append((key, stream.order, stream.number, value))
        for key in sorted(found):
            yield key, found[key]


class _Stream:
    """The rows of one kind in one store; so many are read at once that a row costs little more than to read it."""

    def __init__(self, order: int, number: int, source: Iterator[tuple[bytes, bytes]]) -> None:
        self.order, self.number = order, number
        self.rows: list[tuple[bytes, bytes]] = []
        self._source = source

    def read_on(self) -> None:
        """Read more once all is taken."""
        if self.rows:
            return
        size = 0
        for row in islice(self._source, ROWS_AT_ONCE):
            self.rows.append(row)
            size += len(row[1])
            if size >= ROW_BYTES_AT_ONCE:
                break

    def take(self, last: bytes) -> list[tuple[bytes, bytes]]:
        """Take the rows up to a key without its kind."""
        count = bisect_right(self.rows, last, key=_without_kind)
        taken = self.rows[:count]
        del self.rows[:count]
        return taken


def _without_kind(row: tuple[bytes, bytes]) -> bytes:
    return row[0][1:]


def _take(txn: Txn, crawl: bytes, key: bytes, rows: Sequence[_Row], stores: Sequence[EndedStore]) -> bool:
    """Write what the stores have under one task key; whether that leaves something for `gather.finish`."""
    tasks = [value for _, order, _, value in rows if order == 0]
    state, unsettled = _put_task(txn, crawl, key, reduce(merge_stored, tasks)) if tasks else (None, False)
    if len(tasks) == len(rows):
        return unsettled
    pages = {number: value for _, order, number, value in rows if order == 1}
    links = {number: value for _, order, number, value in rows if order == 2}
    if len(pages) > 1:
        _keep_latest(txn.get(keys.TASK + crawl + key), pages, links)
    chosen = next(iter(pages), None)
    authors = {number: place_of(page).node for number, page in pages.items()} if len(pages) > 1 else {}
    for number, page in pages.items():
        in_place = number == chosen
        txn.put(keys.PAGE + crawl + key if in_place else aside(crawl, keys.PAGE, key, authors[number]), page)
    for number, value in links.items():
        if number == chosen:
            txn.put(keys.LINKS + crawl + key, value)
        else:
            txn.put(aside(crawl, keys.LINKS, key, authors.get(number, stores[number].node), WHOLE), value)
    return unsettled or state not in _ARRIVED or len(pages) != 1 or not links.keys() <= pages.keys()


def _keep_latest(task: bytes | None, pages: dict[int, bytes], links: dict[int, bytes]) -> None:
    """Leave one record of each node that fetched the page, and its link keys."""
    known = None if task is None else unpack_task(task)
    latest: dict[str, int] = {}
    for number, page in list(pages.items()):
        author = place_of(page).node
        other = latest.setdefault(author, number)
        if other == number:
            continue
        kept, dropped = (number, other) if replaces(known, pages[other], page) else (other, number)
        latest[author] = kept
        del pages[dropped]
        if dropped in links:
            links[kept] = max(links.pop(dropped), links.get(kept, b""), key=len)


def _put_task(txn: Txn, crawl: bytes, key: bytes, task: bytes) -> tuple[State, bool]:
    """Write a merged task record; its state, and whether it names other fetchers, whose pages are to be counted."""
    state = shown_task(task).state
    if state in (State.PENDING, State.FETCHED):
        put_task(txn, crawl, key, None, unpack_task(task))
    else:
        txn.put(keys.TASK + crawl + key, task)
    return state, has_additions(task)
