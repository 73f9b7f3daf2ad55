"""Many nodes' rows become one collection, whatever the order in which they come.

Task records meet in the lattice of `records`. A page that several nodes fetched
stands once: the copy that the task names, unless its body is not here and
another's is; else that of the lowest node id. What did not win is put aside,
with its sender, so that `finish` decides on all that was sent, in any order and
any number of times, and again when a further node has been reached.

    merge_rows   t  merged, its queue entry and mark made to fit
                 p  in place where nobody's is yet, else aside
                 l  with its sender's page, else aside      f  aside
                 s  the smallest reason                     x  all
    finish       CONTESTED  of pages of one key the best comes to stand in place
                 PAGES      a page's task is fetched at least; a dead one's page goes aside
                 LINKS      link keys join the page of their sender
                 MARKS      a done page whose links must go out again stays marked

Rows aside lie among the crawl's notes (kind `n`): `a` ‖ kind ‖ task key ‖ node
(20), and for link keys ‖ offset (4). How much of an archive file is committed
(`w`) is written by whoever brings the file, once it is on disk. Runs on the
committer's thread; a step handles a bounded number of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from dhtcrawl.keyspace import KEY_BYTES, host_key
from dhtcrawl.storage import foreign, keys
from dhtcrawl.storage.committer import Txn
from dhtcrawl.storage.export import PART_BYTES
from dhtcrawl.storage.foreign import BadRow, Origin
from dhtcrawl.storage.records import Place, State, Task, merge, pack, unpack, unpack_task
from dhtcrawl.storage.tasks import get_page, get_task
from dhtcrawl.url import host_of

# A step of `finish`, and so a transaction, ends after as many keys or bytes.
KEYS_AT_ONCE = 1_000
BYTES_AT_ONCE = 16 << 20
_ASIDE = b"a"
_WHOLE = bytes(PART_BYTES)  # the offset of link keys in one piece
# Behind everything that a node gives out, so that a real record's wins.
_ORDER_UNKNOWN = (1 << 64) - 1


class Phase(IntEnum):
    """What `finish` is at."""

    CONTESTED = 0
    PAGES = 1
    LINKS = 2
    MARKS = 3
    OVER = 4


@dataclass(frozen=True, slots=True)
class Progress:
    """How far `finish` has come; `refetches` counts page rows beyond one a key."""

    phase: Phase = Phase.CONTESTED
    cursor: bytes = b""
    refetches: int = 0


class _Aside(NamedTuple):
    key: bytes
    node: str
    part: bytes
    value: bytes


def merge_rows(
    txn: Txn,
    crawl: bytes,
    node: str,
    kind: bytes,
    rows: Iterable[tuple[bytes, bytes]],
    key_of: Callable[[str], bytes],
    left: tuple[str, ...] = (),
) -> None:
    """Add a page of a node's rows to the collection; `key_of` gives a URL's task key.

    `left` names the nodes that left their pages to this one: their pages stand
    as theirs. For these, a page has to come before its link keys.

    Raises:
        BadRow: the node sent what no node sends; the transaction must write nothing.
    """
    how = _MERGE.get(kind)
    if how is None:
        raise BadRow(f"sent rows of kind {kind!r}, which was not asked for")
    origin = Origin(crawl, node, key_of, left)
    for row in rows:
        match row:
            case [bytes(suffix), bytes(value)]:
                how(txn, origin, suffix, value)
            case _:
                raise BadRow("sent a row that is no pair of bytes")


def finish(txn: Txn, crawl: bytes, at: Progress, keys_max: int = KEYS_AT_ONCE) -> Progress:
    """One step towards a collection that holds together; how far it is then.

    Begin with `Progress()` when all rows and files are there, and go on until
    `Phase.OVER`.
    """
    step = _STEPS[at.phase]
    cursor, refetches = step(txn, crawl, at.cursor, keys_max)
    refetches += at.refetches
    if cursor is not None:
        return Progress(at.phase, cursor, refetches)
    return Progress(Phase(at.phase + 1), b"", refetches)


def drop_aside(txn: Txn, crawl: bytes, limit: int) -> int:
    """Drop up to `limit` rows that did not win, when no more will come; how many went."""
    start, stop = keys.bounds(keys.COUNTERS, crawl, _ASIDE)
    dropped = 0
    for full, _ in txn.scan(start, stop):
        txn.delete(full)
        dropped += 1
        if dropped == limit:
            break
    return dropped


# -- rows as they come --


def _merge_task(txn: Txn, origin: Origin, key: bytes, value: bytes) -> None:
    held = txn.get(keys.TASK + origin.crawl + key)
    if held == value:  # a backup's copy, as most are
        return
    task = foreign.read_task(origin, key, value)
    if held is None:
        _put_task(txn, origin.crawl, key, None, task)
        return
    old = unpack_task(held)
    merged = merge(old, task)
    if merged != old:
        _put_task(txn, origin.crawl, key, old, merged)


def _merge_page(txn: Txn, origin: Origin, key: bytes, value: bytes) -> None:
    author: str = foreign.read_page(origin, key, value)["place"][0]
    in_place = keys.PAGE + origin.crawl + key
    held = txn.get(in_place)
    if held is None or _place_of(held).node == author:
        # Not twice, should it have been aside before.
        txn.delete(_aside(origin.crawl, keys.PAGE, key, author))
        txn.put(in_place, value)
    else:
        txn.put(_aside(origin.crawl, keys.PAGE, key, author), value)


def _author(txn: Txn, origin: Origin, key: bytes) -> str:
    """Whose page it is that the sender has: its own, where it has one."""
    held = txn.get(keys.PAGE + origin.crawl + key)
    in_place = None if held is None else _place_of(held).node
    for node in origin.authors:
        if node == in_place or txn.get(_aside(origin.crawl, keys.PAGE, key, node)) is not None:
            return node
    return origin.node


def _merge_links(txn: Txn, origin: Origin, suffix: bytes, value: bytes) -> None:
    # Whether they join a page is for `finish` to see, when its page has come.
    is_part = len(suffix) in (KEY_BYTES + PART_BYTES, 2 * KEY_BYTES + PART_BYTES)
    key, part = (suffix[:-PART_BYTES], suffix[-PART_BYTES:]) if is_part else (suffix, _WHOLE)
    foreign.read_task_key(key)
    if len(value) % KEY_BYTES and not is_part:
        raise BadRow("sent link keys that are none")
    held, author = txn.get(keys.PAGE + origin.crawl + key), _author(txn, origin, key)
    if not is_part and held is not None and _place_of(held).node == author:
        txn.put(keys.LINKS + origin.crawl + key, value)
    else:
        txn.put(_aside(origin.crawl, keys.LINKS, key, author, part), value)


def _merge_mark(txn: Txn, origin: Origin, key: bytes, _: bytes) -> None:
    author = _author(txn, origin, foreign.read_task_key(key))
    txn.put(_aside(origin.crawl, keys.FETCHED, key, author), b"")


def _merge_skipped(txn: Txn, origin: Origin, key: bytes, value: bytes) -> None:
    full = keys.SKIPPED + origin.crawl + key
    held = txn.get(full)
    if held == value:
        return
    url, reason = foreign.read_skipped(key, value)
    if held is None or reason < unpack(held)[1]:
        txn.put(full, pack((url, reason)))


def _merge_extra(txn: Txn, origin: Origin, suffix: bytes, value: bytes) -> None:
    foreign.read_extra(origin, suffix, value)
    txn.put(keys.EXTRA + origin.crawl + suffix, value)


_MERGE: dict[bytes, Callable[[Txn, Origin, bytes, bytes], None]] = {
    keys.TASK: _merge_task,
    keys.PAGE: _merge_page,
    keys.LINKS: _merge_links,
    keys.FETCHED: _merge_mark,
    keys.SKIPPED: _merge_skipped,
    keys.EXTRA: _merge_extra,
}
# Tasks first: of a crawl that still runs, what a task says is on disk then has its page in a later read.
GATHERED = tuple(_MERGE)


def _put_task(txn: Txn, crawl: bytes, key: bytes, old: Task | None, new: Task) -> None:
    """Write a task with what its state asks for: a queue entry, or a mark, or neither."""
    if old is not None and old.state <= State.LEASED:
        txn.delete(_queue_key(crawl, key, old))
    if new.state <= State.LEASED:
        txn.put(_queue_key(crawl, key, new), b"")
    if new.state == State.FETCHED:
        txn.put(keys.FETCHED + crawl + key, b"")
    elif old is not None:
        txn.delete(keys.FETCHED + crawl + key)
    txn.put(keys.TASK + crawl + key, new.pack())


def _queue_key(crawl: bytes, key: bytes, task: Task) -> bytes:
    return keys.queue_key(crawl, host_key(host_of(task.url)), task.depth, task.order, key)


# -- the end: each step takes keys from a cursor on, and says where to go on, and how many refetches it saw --


def _contested(txn: Txn, crawl: bytes, cursor: bytes, keys_max: int) -> tuple[bytes | None, int]:
    refetches = size = 0
    for count, (key, group) in enumerate(_by_key(txn, crawl, keys.PAGE, cursor)):
        if count == keys_max or size >= BYTES_AT_ONCE:
            return key, refetches
        copies = {row.node: row.value for row in group}
        held = txn.get(keys.PAGE + crawl + key)
        if held is not None:
            copies[_place_of(held).node] = held
        refetches += len(copies) - 1
        rank = partial(_rank, txn, crawl, get_task(txn, crawl, key))
        size += _stand_in_place(txn, crawl, key, held, min(copies.values(), key=rank))
    return None, refetches


def _rank(txn: Txn, crawl: bytes, task: Task | None, page: bytes) -> tuple[Any, ...]:
    place = _place_of(page)
    committed = txn.get(keys.ARCHIVE + crawl + place.file.encode())
    missing = committed is None or place.offset + place.length > unpack(committed)
    return missing, task is None or place != task.place, place


def _stand_in_place(txn: Txn, crawl: bytes, key: bytes, held: bytes | None, chosen: bytes | None) -> int:
    """Put the page that stood in place aside with its link keys, and the chosen one there; bytes moved."""
    if held == chosen:
        return 0
    in_place, links_key = keys.PAGE + crawl + key, keys.LINKS + crawl + key
    moved = len(held or b"") + len(chosen or b"")
    if held is not None:
        node = _place_of(held).node
        txn.put(_aside(crawl, keys.PAGE, key, node), held)
        txn.delete(in_place)
        links = txn.get(links_key)
        if links is not None:
            txn.put(_aside(crawl, keys.LINKS, key, node, _WHOLE), links)
            txn.delete(links_key)
            moved += len(links)
    if chosen is not None:
        txn.delete(_aside(crawl, keys.PAGE, key, _place_of(chosen).node))
        txn.put(in_place, chosen)
    return moved


def _pages(txn: Txn, crawl: bytes, cursor: bytes, keys_max: int) -> tuple[bytes | None, int]:
    start, stop = keys.bounds(keys.PAGE, crawl)
    for count, (full, value) in enumerate(txn.scan(start + cursor, stop)):
        key = keys.suffix(full)
        if count == keys_max:
            return key, 0
        task = get_task(txn, crawl, key)
        if task is not None and task.state == State.DEAD:
            _stand_in_place(txn, crawl, key, value, None)
        elif task is None or task.state <= State.LEASED:
            # A result counts whatever its task says (I2): whoever knew of it is out of reach.
            found = task if task is not None else _task_of(txn, crawl, key)
            _put_task(txn, crawl, key, task, replace(found, state=State.FETCHED, place=_place_of(value)))
    return None, 0


def _task_of(txn: Txn, crawl: bytes, key: bytes) -> Task:
    page = get_page(txn, crawl, key)
    assert page is not None, "it was just read"
    return Task(page["url"], page["depth"], _ORDER_UNKNOWN, page["referrer"] or "")


def _links(txn: Txn, crawl: bytes, cursor: bytes, keys_max: int) -> tuple[bytes | None, int]:
    size = 0
    for count, (key, group) in enumerate(_by_key(txn, crawl, keys.LINKS, cursor)):
        if count == keys_max or size >= BYTES_AT_ONCE:
            return key, 0
        held = txn.get(keys.PAGE + crawl + key)
        if held is None:
            continue
        node, whole = _place_of(held).node, bytearray()
        for row in group:
            # A part behind a gap is no use: the sender broke off, and is asked again.
            if row.node == node and int.from_bytes(row.part, "big") == len(whole):
                whole += row.value
                txn.delete(_aside(crawl, keys.LINKS, key, node, row.part))
                txn.put(keys.LINKS + crawl + key, bytes(whole))
        size += len(whole)
    return None, 0


def _marks(txn: Txn, crawl: bytes, cursor: bytes, keys_max: int) -> tuple[bytes | None, int]:
    for count, (key, group) in enumerate(_by_key(txn, crawl, keys.FETCHED, cursor)):
        if count == keys_max:
            return key, 0
        held, task = txn.get(keys.PAGE + crawl + key), get_task(txn, crawl, key)
        if held is None or task is None or task.state != State.DONE:
            continue
        if any(row.node == _place_of(held).node for row in group):
            txn.put(keys.FETCHED + crawl + key, b"")
    return None, 0


_STEPS = {Phase.CONTESTED: _contested, Phase.PAGES: _pages, Phase.LINKS: _links, Phase.MARKS: _marks}


def _place_of(page: bytes) -> Place:
    return Place(*unpack(page)["place"])


def _aside(crawl: bytes, kind: bytes, key: bytes, node: str, part: bytes = b"") -> bytes:
    return keys.COUNTERS + crawl + _ASIDE + kind + key + bytes.fromhex(node) + part


def _by_key(txn: Txn, crawl: bytes, kind: bytes, cursor: bytes) -> Iterator[tuple[bytes, Iterator[_Aside]]]:
    """Rows aside from the task key `cursor` on; those of a key by node, then part."""
    return groupby(_asides(txn, crawl, kind, cursor), lambda row: row.key)


def _asides(txn: Txn, crawl: bytes, kind: bytes, cursor: bytes) -> Iterator[_Aside]:
    start, stop = keys.bounds(keys.COUNTERS, crawl, _ASIDE + kind)
    tail = KEY_BYTES + (PART_BYTES if kind == keys.LINKS else 0)
    for full, value in txn.scan(start + cursor, stop):
        rest = full[len(start) :]
        at = len(rest) - tail
        yield _Aside(rest[:at], rest[at : at + KEY_BYTES].hex(), rest[at + KEY_BYTES :], value)
