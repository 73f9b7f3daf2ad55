"""Merges the rows of many nodes into one collection, whatever the order in which they come.

Task records merge in the lattice of `records`. A page that several nodes fetched
stands once: the version that the task's place names, unless its body is not here and
another's is; else that of the lowest node id. The others are put aside, with their
sender, so that `finish` decides on all that was sent, in any order and any number of
times, and again when a further node has been reached.

    merge_rows   t  merged, its queue entry and mark made to fit
                 p  in place if no node's page is yet, else aside
                 l  with its sender's page, else aside      f  aside
                 s  the smallest reason                     x  all
                 y  aside, as a page that others fetched     z  aside
    finish       CONTESTED  of the pages of one key the best is put in place
                 PAGES      a page's task is fetched at least; a dead one's page goes aside
                 LINKS      link keys join the page of their sender
                 COPIES     the same for a copy that stands in
                 MARKS      a done page whose links must go out again stays marked
    REPEATS    count the refetches of pages that were fetched more than once, or by several nodes

A copy (`--copies`) stands in for a page whose body is not here. Most copies are not
needed: `wanted_files` names the files of those that are, which the caller brings
before it calls `finish` once more. `gather_aside` has the keys of rows that are aside.
`gather_files` writes the committed length of an archive file (`w`), once it is on disk.
Runs on the committer's thread; a step handles a bounded number of keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.storage.archive.body_copies import COPY_FIELD
from dhtcrawl.storage.collect import foreign
from dhtcrawl.storage.collect.export import PART_BYTES
from dhtcrawl.storage.collect.foreign import BadRow, NotLeft, Origin
from dhtcrawl.storage.collect.gather_aside import WHOLE, aside, by_key, of_key
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import (
    Place,
    SkippedLink,
    State,
    Task,
    holds_copies,
    lower_order,
    merge,
    others_beside,
    pack,
    shown_task,
    unpack,
    unpack_task,
    url_of,
)
from dhtcrawl.storage.store.tasks import get_page, get_task, queue_key
from dhtcrawl.storage.store.txn import Txn

# A step of `finish`, and so a transaction, ends after as many keys or bytes.
KEYS_AT_ONCE = 1_000
BYTES_AT_ONCE = 16 << 20
# Behind every order that a node gives out, so that the order of a real record wins.
_ORDER_UNKNOWN = (1 << 64) - 1


class Phase(IntEnum):
    """The steps of `finish`, in their order."""

    CONTESTED = 0
    PAGES = 1
    LINKS = 2
    COPIES = 3
    MARKS = 4
    REPEATS = 5
    OVER = 6


@dataclass(frozen=True, slots=True)
class GatherProgress:
    """How far `finish` has come; `refetches` counts fetches of pages beyond the first of each."""

    phase: Phase = Phase.CONTESTED
    cursor: bytes = b""
    refetches: int = 0


def merge_rows(
    txn: Txn,
    crawl: bytes,
    node: str,
    kind: bytes,
    rows: Iterable[tuple[bytes, bytes]],
    key_of: Callable[[str], bytes],
    left: tuple[str, ...] = (),
) -> None:
    """Add a batch of a node's rows to the collection; `key_of` gives a URL's task key.

    `left` names the nodes that left their pages to this one: such pages still stand
    under the node that fetched them, and have to come before their link keys. What is
    of others is passed over: it was to be their heir, and did not get all.

    Raises:
        BadRow: a row is not one that a node sends; the transaction must write nothing.
    """
    how = _MERGE.get(kind)
    if how is None:
        raise BadRow(f"sent rows of kind {kind!r}, which was not asked for")
    origin = Origin(crawl, node, key_of, left)
    for row in rows:
        match row:
            case [bytes(suffix), bytes(value)]:
                try:
                    how(txn, origin, suffix, value)
                except NotLeft:
                    continue  # that node has it, or its heir; or it was fetched again
            case _:
                raise BadRow("sent a row that is no pair of bytes")


def finish(txn: Txn, crawl: bytes, at: GatherProgress, keys_max: int = KEYS_AT_ONCE) -> GatherProgress:
    """Do one step towards a consistent collection; return how far it is then.

    Begin with `GatherProgress()` when all rows and files are there, and go on until
    `Phase.OVER`.

    Raises:
        StorageError: a record is damaged.
    """
    step = _STEPS[at.phase]
    cursor, refetches = step(txn, crawl, at.cursor, keys_max)
    refetches += at.refetches
    if cursor is not None:
        return GatherProgress(at.phase, cursor, refetches)
    return GatherProgress(Phase(at.phase + 1), b"", refetches)


# -- merging rows --


def _merge_task(txn: Txn, origin: Origin, key: bytes, value: bytes) -> None:
    full = keys.TASK + origin.crawl + key
    held = txn.get(full)
    if held is not None and (lower := lower_order(held, value)) is not None:
        # A backup's replica, as most are: nodes number their tasks by themselves, and all else was checked.
        if lower is held:
            return
        if shown_task(value).state != State.PENDING:  # one that is pending is queued by its number
            txn.put(full, value)
            return
    task = foreign.read_task(origin, key, value)
    if held is None:
        put_task(txn, origin.crawl, key, None, task)
        return
    old = unpack_task(held)
    merged = merge(old, task)
    if merged != old:
        put_task(txn, origin.crawl, key, old, merged)


def _merge_page(txn: Txn, origin: Origin, key: bytes, value: bytes) -> None:
    author: str = foreign.read_page(origin, key, value, _checked_url(txn, origin, key))["place"][0]
    full, beside = keys.PAGE + origin.crawl + key, aside(origin.crawl, keys.PAGE, key, author)
    held = txn.get(full)
    if held is None or place_of(held).node == author:
        # It may have been aside before; it must not stand twice.
        txn.delete(beside)
    else:
        full, held = beside, txn.get(beside)
    if held is None or replaces(get_task(txn, origin.crawl, key), held, value):
        txn.put(full, value)


def replaces(task: Task | None, before: bytes, value: bytes) -> bool:
    """Whether of two records of a page, by one node that fetched it, the second counts; if they say the same, it does.

    Heirs that have handed it on, or were no backups of its task, may have an earlier one: of an earlier body, or from
    before the page was found at a smaller depth.
    """
    return _age(task, value) <= _age(task, before)


def _age(task: Task | None, page: bytes) -> tuple[bool, bool, int]:
    fields = unpack(page)
    is_elsewhere = task is None or Place(*fields["place"]) != task.place
    return bool(fields.get(COPY_FIELD)), is_elsewhere, fields["depth"]


def _checked_url(txn: Txn, origin: Origin, key: bytes) -> str | None:
    """The URL of a task that is here already, and so was found to be canonical and to stand under its key."""
    held = txn.get(keys.TASK + origin.crawl + key)
    return None if held is None else url_of(held)


def _author(txn: Txn, origin: Origin, key: bytes) -> str:
    """The node whose page the sender has: the sender itself, if it has its own."""
    if not origin.left:
        return origin.node  # the usual case
    held = txn.get(keys.PAGE + origin.crawl + key)
    in_place = None if held is None else place_of(held).node
    for node in origin.authors:
        if node == in_place or txn.get(aside(origin.crawl, keys.PAGE, key, node)) is not None:
            return node
    return origin.node


def _merge_links(txn: Txn, origin: Origin, suffix: bytes, value: bytes) -> None:
    # `finish` decides whether they join a page, once the page has come.
    key, part = _key_and_part(suffix, value)
    held, author = txn.get(keys.PAGE + origin.crawl + key), _author(txn, origin, key)
    if suffix == key and held is not None and place_of(held).node == author:
        full = keys.LINKS + origin.crawl + key
    else:
        full = aside(origin.crawl, keys.LINKS, key, author, part)
    before = txn.get(full)
    # Found at a smaller depth, a page has all links that it had, and those that were too deep.
    if before is None or len(before) <= len(value):
        txn.put(full, value)


def _key_and_part(suffix: bytes, value: bytes) -> tuple[bytes, bytes]:
    is_part = len(suffix) in (KEY_BYTES + PART_BYTES, 2 * KEY_BYTES + PART_BYTES)
    key, part = (suffix[:-PART_BYTES], suffix[-PART_BYTES:]) if is_part else (suffix, WHOLE)
    foreign.read_task_key(key)
    if len(value) % KEY_BYTES and not is_part:
        raise BadRow("sent link keys that are none")
    return key, part


def _merge_mark(txn: Txn, origin: Origin, key: bytes, _: bytes) -> None:
    author = _author(txn, origin, foreign.read_task_key(key))
    txn.put(aside(origin.crawl, keys.FETCHED, key, author), b"")


def _merge_skipped(txn: Txn, origin: Origin, key: bytes, value: bytes) -> None:
    full = keys.SKIPPED + origin.crawl + key
    held = txn.get(full)
    if held == value:
        return
    link = foreign.read_skipped(key, value)
    if held is None or rank_of(link) < rank_of(SkippedLink(*unpack(held))):
        txn.put(full, pack(link))


def rank_of(link: SkippedLink) -> tuple[str, bool, str]:
    """Of links to one URL that is skipped, the smallest is kept: by reason, and one that names its page first."""
    return link.reason, not link.referrer, link.referrer


def _merge_extra(txn: Txn, origin: Origin, suffix: bytes, value: bytes) -> None:
    foreign.read_extra(origin, suffix, value)
    txn.put(keys.EXTRA + origin.crawl + suffix, value)


def _merge_copy(txn: Txn, origin: Origin, key: bytes, value: bytes) -> None:
    fields = foreign.read_page(origin, key, value, _checked_url(txn, origin, key))
    author = fields["place"][0]
    for full in (keys.PAGE + origin.crawl + key, aside(origin.crawl, keys.PAGE, key, author)):
        held = txn.get(full)
        if held is not None and place_of(held).node == author:
            return  # the sender has the page itself, or this copy came before
    txn.put(full, pack({**fields, COPY_FIELD: True}))


def _merge_copy_links(txn: Txn, origin: Origin, suffix: bytes, value: bytes) -> None:
    key, part = _key_and_part(suffix, value)
    txn.put(aside(origin.crawl, keys.COPY_LINKS, key, _author(txn, origin, key), part), value)


_MERGE: dict[bytes, Callable[[Txn, Origin, bytes, bytes], None]] = {
    keys.TASK: _merge_task,
    keys.PAGE: _merge_page,
    keys.LINKS: _merge_links,
    keys.FETCHED: _merge_mark,
    keys.SKIPPED: _merge_skipped,
    keys.EXTRA: _merge_extra,
    keys.COPY: _merge_copy,
    keys.COPY_LINKS: _merge_copy_links,
}
COPIES = (keys.COPY, keys.COPY_LINKS)
# Tasks first: in a crawl that still runs, a page that a task record tells of is then in a later read.
GATHERED = tuple(kind for kind in _MERGE if kind not in COPIES)


def put_task(txn: Txn, crawl: bytes, key: bytes, old: Task | None, new: Task) -> None:
    """Write a task with the queue entry or the mark that its state asks for, if any."""
    if old is not None and old.state == State.PENDING:
        txn.delete(queue_key(crawl, key, old))
    if new.state == State.PENDING:
        txn.put(queue_key(crawl, key, new), b"")
    if new.state == State.FETCHED:
        txn.put(keys.FETCHED + crawl + key, b"")
    elif old is not None:
        txn.delete(keys.FETCHED + crawl + key)
    txn.put(keys.TASK + crawl + key, new.pack())


# -- finishing: each step takes keys from a cursor on, and returns the next cursor and the refetches it counted --


def _contested(txn: Txn, crawl: bytes, cursor: bytes, keys_max: int) -> tuple[bytes | None, int]:
    refetches = size = 0
    for count, (key, group) in enumerate(by_key(txn, crawl, keys.PAGE, cursor)):
        if count == keys_max or size >= BYTES_AT_ONCE:
            return key, refetches
        copies = {row.node: row.value for row in group}
        held = txn.get(keys.PAGE + crawl + key)
        if held is not None:
            copies[place_of(held).node] = held
        fetched = [node for node, value in copies.items() if not _is_copy(value)]
        task = get_task(txn, crawl, key)
        if task is None or not task.others:  # else it is counted under REPEATS
            refetches += _repeats(task, fetched)
        if not fetched and task is not None and task.state not in (State.FETCHED, State.DONE):
            continue  # only copies are here, and the task was opened again
        rank = partial(_rank, txn, crawl, task)
        size += _stand_in_place(txn, crawl, key, held, min(copies.values(), key=rank))
    return None, refetches


def _repeats(task: Task | None, fetched: Iterable[str]) -> int:
    """How often a page was fetched beyond the first time, by its task record and the nodes that have it."""
    known = Counter(fetched) | Counter(() if task is None else task.fetchers)
    return max(0, known.total() - 1)


def _all_repeats(txn: Txn, crawl: bytes, cursor: bytes, keys_max: int) -> tuple[bytes | None, int]:
    refetches = 0
    rows, after = txn.page(keys.TASK, crawl, cursor, keys_max)
    for key, value in rows:
        task = unpack_task(value)
        if task.others:
            held = txn.get(keys.PAGE + crawl + key)
            pages = [*([] if held is None else [held]), *(row.value for row in of_key(txn, crawl, keys.PAGE, key))]
            refetches += _repeats(task, (place_of(page).node for page in pages if not _is_copy(page)))
    return after, refetches


def _rank(txn: Txn, crawl: bytes, task: Task | None, page: bytes) -> tuple[Any, ...]:
    place = place_of(page)
    return _is_missing(txn, crawl, place), task is None or place != task.place, _is_copy(page), place


def _is_missing(txn: Txn, crawl: bytes, place: Place) -> bool:
    committed = txn.get(keys.ARCHIVE + crawl + place.file.encode())
    return committed is None or place.offset + place.length > unpack(committed)


def wanted_files(txn: Txn, crawl: bytes, cursor: bytes, keys_max: int = KEYS_AT_ONCE) -> tuple[set[str], bytes | None]:
    """The files of copies whose bodies are missing here, for pages from `cursor` on; and the next cursor.

    Call it after `finish`.
    """
    wanted: set[str] = set()
    rows, after = txn.page(keys.PAGE, crawl, cursor, keys_max)
    for key, value in rows:
        if _is_missing(txn, crawl, place_of(value)):
            pages = [value, *(row.value for row in of_key(txn, crawl, keys.PAGE, key))]
            wanted |= {file for page in pages if holds_copies(file := place_of(page).file)}
    return wanted, after


def _stand_in_place(txn: Txn, crawl: bytes, key: bytes, held: bytes | None, chosen: bytes | None) -> int:
    """Put the page in place aside with its link keys, and the chosen one in place; return the bytes moved."""
    if held == chosen:
        return 0
    in_place, links_key = keys.PAGE + crawl + key, keys.LINKS + crawl + key
    moved = len(held or b"") + len(chosen or b"")
    if held is not None:
        node = place_of(held).node
        txn.put(aside(crawl, keys.PAGE, key, node), held)
        txn.delete(in_place)
        links = txn.get(links_key)
        if links is not None:
            txn.put(aside(crawl, keys.LINKS, key, node, WHOLE), links)
            txn.delete(links_key)
            moved += len(links)
    if chosen is not None:
        txn.delete(aside(crawl, keys.PAGE, key, place_of(chosen).node))
        txn.put(in_place, chosen)
    return moved


def _pages(txn: Txn, crawl: bytes, cursor: bytes, keys_max: int) -> tuple[bytes | None, int]:
    rows, after = txn.page(keys.PAGE, crawl, cursor, keys_max)
    for key, value in rows:
        task = get_task(txn, crawl, key)
        if task is not None and task.state == State.DEAD:
            _stand_in_place(txn, crawl, key, value, None)
        elif task is None or task.state == State.PENDING:
            # A fetched page counts whatever its task says (I2): the nodes that knew of it are out of reach.
            found = task if task is not None else _task_of(txn, crawl, key)
            place = place_of(value)
            fetched = found._replace(state=State.FETCHED, place=place)
            put_task(txn, crawl, key, task, fetched.with_others(others_beside(place, found.fetchers)))
    return after, 0


def _task_of(txn: Txn, crawl: bytes, key: bytes) -> Task:
    page = get_page(txn, crawl, key)
    assert page is not None, "it was just read"
    return Task(page["url"], page["depth"], _ORDER_UNKNOWN, page["referrer"] or "")


def _links(txn: Txn, crawl: bytes, cursor: bytes, keys_max: int, kind: bytes = keys.LINKS) -> tuple[bytes | None, int]:
    size = 0
    for count, (key, group) in enumerate(by_key(txn, crawl, kind, cursor)):
        if count == keys_max or size >= BYTES_AT_ONCE:
            return key, 0
        held = txn.get(keys.PAGE + crawl + key)
        if held is None or (kind == keys.COPY_LINKS and not _lacks_links(txn, crawl, key, held)):
            continue
        node, whole = place_of(held).node, bytearray()
        for row in group:
            # A part behind a gap is useless: the sender broke off, and will be asked again.
            if row.node == node and int.from_bytes(row.part, "big") == len(whole):
                whole += row.value
                txn.delete(aside(crawl, kind, key, node, row.part))
                txn.put(keys.LINKS + crawl + key, bytes(whole))
        size += len(whole)
    return None, 0


def _lacks_links(txn: Txn, crawl: bytes, key: bytes, page: bytes) -> bool:
    """Whether a copy that stands in lacks its link keys."""
    return _is_copy(page) and txn.get(keys.LINKS + crawl + key) is None


def _marks(txn: Txn, crawl: bytes, cursor: bytes, keys_max: int) -> tuple[bytes | None, int]:
    for count, (key, group) in enumerate(by_key(txn, crawl, keys.FETCHED, cursor)):
        if count == keys_max:
            return key, 0
        held, task = txn.get(keys.PAGE + crawl + key), get_task(txn, crawl, key)
        if held is None or task is None or task.state != State.DONE:
            continue
        if any(row.node == place_of(held).node for row in group):
            txn.put(keys.FETCHED + crawl + key, b"")
    return None, 0


_STEPS: dict[Phase, Callable[[Txn, bytes, bytes, int], tuple[bytes | None, int]]] = {
    Phase.CONTESTED: _contested,
    Phase.PAGES: _pages,
    Phase.LINKS: _links,
    Phase.COPIES: partial(_links, kind=keys.COPY_LINKS),
    Phase.MARKS: _marks,
    Phase.REPEATS: _all_repeats,
}


def place_of(page: bytes) -> Place:
    """Where the body of a stored page record lies."""
    return Place(*unpack(page)["place"])


def _is_copy(page: bytes) -> bool:
    return bool(unpack(page).get(COPY_FIELD))
