"""The records about a store itself: its format, its incarnation, its crawls.

All functions take a `Txn` and run on the committer's thread. Those that read a
record raise `StorageError` if it is damaged and `StoreTooNew` if a later version wrote it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from dhtcrawl.errors import StorageError, StoreTooNew
from dhtcrawl.keyspace import INCARNATION_MAX
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.crawl_record import (
    MAY_BE_MISSING,
    STATE_BYTES,
    CrawlRecord,
    fits_the_wire,
    has_room,
    merge_crawls,
    read_fields,
    with_said_of,
    write_fields,
)
from dhtcrawl.storage.store.records import pack, unpack
from dhtcrawl.storage.store.txn import Txn

FORMAT_VERSION = 1

CLOSED_KEPT_MS: Final = 30 * 86_400_000  # of the node's own running time, see `put_closed`
CLOSED_KEPT_MAX: Final = 10_000  # the note of the crawl forgotten first is dropped for another one
_CLOSED = b"\x00closed"
_RAN_KEY = b"\x00ran"
_UNWRITTEN = "unwritten"  # beside the fields of a crawl's record


class DropStep(NamedTuple):
    """How many records a step has dropped, and where the next one begins; None: all are dropped."""

    dropped: int = 0
    cursor: bytes | None = b""


def check_format(txn: Txn) -> None:
    """Mark a new store with its format, or check that of an old one.

    Raises:
        StoreTooNew: a later version wrote the store.
        StorageError: it is not a store of dhtcrawl.
    """
    value = txn.get(keys.FORMAT_KEY)
    if value is None:
        if next(iter(txn.scan(b"", b"\xff" * 8)), None) is not None:
            raise StorageError("the store is a LevelDB, but not one of dhtcrawl's; use another directory")
        txn.put(keys.FORMAT_KEY, str(FORMAT_VERSION).encode())
        return
    version = value.decode("ascii", "replace")
    if not version.isdigit():
        raise StorageError(f"the store's format is {version!r}, which is no version; restore it, or start anew")
    if int(version) > FORMAT_VERSION:
        raise StoreTooNew(
            f"the store has format {version}, this version reads up to {FORMAT_VERSION}; upgrade dhtcrawl"
        )


def next_incarnation(txn: Txn) -> int:
    """Count one more start of the node; return how many there were, at most `INCARNATION_MAX`."""
    stored = number_at(txn, keys.INCARNATION_KEY)
    # Earlier versions stored whatever others named. No node has started so often: it counts anew, as one that is not
    # new, and what the others know of it, it will hear from them.
    known = stored if 0 <= stored <= INCARNATION_MAX else 1
    incarnation = min(known + 1, INCARNATION_MAX)
    txn.put(keys.INCARNATION_KEY, pack(incarnation))
    return incarnation


def remember_incarnation(txn: Txn, incarnation: int) -> None:
    """Count the starts of the node from this number on, which the others know; one above `INCARNATION_MAX` is a bug."""
    assert 0 < incarnation <= INCARNATION_MAX, incarnation
    if incarnation > number_at(txn, keys.INCARNATION_KEY):
        txn.put(keys.INCARNATION_KEY, pack(incarnation))


def mark_swarm(txn: Txn, node: str) -> None:
    """Note that this node (its id, hex) took part in a swarm: so records may be replicas, and bodies at other nodes."""
    if swarm_node(txn) != node:
        txn.put(keys.SWARM_KEY, pack(node))


def swarm_node(txn: Txn) -> str | None:
    """The id under which this store took part in a swarm, or None."""
    value = txn.get(keys.SWARM_KEY)
    node: str | None = None if value is None else unpack(value)
    return node


def put_crawl(txn: Txn, crawl: CrawlRecord) -> None:
    """Write a crawl's record; one that was forgotten here is wanted again."""
    if is_closed(txn, crawl.crawl_id):
        txn.delete(_CLOSED + crawl.crawl_id)
    txn.put(keys.key(keys.CRAWL, crawl.crawl_id), pack(write_fields(crawl)))


def crawls(txn: Txn) -> list[CrawlRecord]:
    """All crawls in the store."""
    return [_read(key[len(keys.CRAWL) :], unpack(value)) for key, value in txn.scan(keys.CRAWL, keys.after(keys.CRAWL))]


def _read(crawl: bytes, fields: dict[str, Any]) -> CrawlRecord:
    """The record in a stored map.

    Raises:
        StorageError: a version that made other pages of templates began the crawl.
    """
    try:
        return read_fields(crawl, fields)
    except ValueError as error:
        raise StorageError(
            f"the store's crawl {crawl.hex()} cannot be read ({error}); "
            "go on with the version that began it, or use another directory"
        ) from error


def get_crawl(txn: Txn, crawl: bytes) -> CrawlRecord | None:
    """A crawl's record; None of one that is not known."""
    value = txn.get(keys.key(keys.CRAWL, crawl))
    return None if value is None else _read(crawl, unpack(value))


def depth_matters(txn: Txn, crawl: bytes) -> bool:
    """Whether a smaller depth of a page may bring further links into scope; not in a crawl that is not known."""
    record = get_crawl(txn, crawl)
    return record is not None and record.depth_matters


def merge_in(txn: Txn, crawl: CrawlRecord, *, free_bytes: int = STATE_BYTES) -> CrawlRecord:
    """Merge another replica of a crawl's record into the store; return the record as it is stored now.

    Fields that a later version stored stay. If both together leave less than `free_bytes` of what can be told to other
    nodes, the stored lists stay as they are: no node could learn the crawl any more. State and settings have room.
    """
    key = keys.key(keys.CRAWL, crawl.crawl_id)
    value = txn.get(key)
    stored: dict[str, Any] = {} if value is None else unpack(value)
    known = _read(crawl.crawl_id, stored) if stored else crawl
    merged = merge_crawls(crawl, known)
    if stored and not has_room(merged, free_bytes) and fits_the_wire(known):
        if with_said_of(merged, known).digest != known.digest:
            merged = with_said_of(known, merged)
        if not fits_the_wire(merged):
            return known
    others = {name: value for name, value in stored.items() if name not in MAY_BE_MISSING}
    txn.put(key, pack({**others, **write_fields(merged)}))
    return merged


def set_ended(txn: Txn, crawl: bytes, ended: str) -> None:
    """Note how a crawl ended: a word such as "complete", or "" if there is work left."""
    key = keys.key(keys.CRAWL, crawl)
    value = txn.get(key)
    assert value is not None, "a crawl that ends has a record"
    fields = {name: value for name, value in unpack(value).items() if name != "maker"}  # who has not said this
    txn.put(key, pack({**fields, "ended": ended}))


def set_unwritten(txn: Txn, crawl: bytes, unwritten: bool) -> None:
    """Note whether a node of a swarm has yet to write its outputs of a crawl that it has begun to run."""
    key = keys.key(keys.CRAWL, crawl)
    value = txn.get(key)
    fields: dict[str, Any] = {} if value is None else unpack(value)
    if value is not None and fields.get(_UNWRITTEN, False) != unwritten:
        txn.put(key, pack({**fields, _UNWRITTEN: unwritten}))


def unwritten(txn: Txn) -> list[bytes]:
    """The crawls that this node has begun to run, and of which it has not written its outputs since."""
    found = txn.scan(keys.CRAWL, keys.after(keys.CRAWL))
    return [key[len(keys.CRAWL) :] for key, value in found if unpack(value).get(_UNWRITTEN)]


def forget(txn: Txn, crawl: bytes, limit: int, cursor: bytes = b"") -> DropStep:
    """Drop up to `limit` of a crawl's records from `cursor` on, its own record last.

    The next step goes on behind what was dropped: LevelDB has that for a long time yet, and to pass all of it again
    would take longer with each step.
    """
    return drop_keys(txn, _records(txn, crawl, cursor), limit)


def drop_keys(txn: Txn, doomed: Iterable[bytes], limit: int) -> DropStep:
    """Drop the first `limit` of these."""
    found = list(islice(doomed, limit + 1))
    for key in found[:limit]:
        txn.delete(key)
    return DropStep(min(len(found), limit), found[limit] if len(found) > limit else None)


def _records(txn: Txn, crawl: bytes, cursor: bytes) -> Iterator[bytes]:
    """The keys of a crawl's records, that of its own record last, from `cursor` on."""
    kinds = sorted(keys.KINDS, key=lambda kind: kind == keys.CRAWL)
    for kind in kinds[kinds.index(cursor[:1]) if cursor else 0 :]:
        start, stop = keys.bounds(kind, crawl)
        yield from (key for key, _ in txn.scan(cursor if kind == cursor[:1] else start, stop))


def put_closed(txn: Txn, crawl: bytes) -> None:
    """Note that a crawl was forgotten here, so that no node that was away brings it back (I4).

    The note lasts for 30 days of this node's running time. The store has no
    instants, and running time never goes faster than the calendar, so the note
    lasts 30 days or longer, never less.
    """
    notes = list(txn.scan(_CLOSED, keys.after(_CLOSED)))
    if len(notes) >= CLOSED_KEPT_MAX:
        txn.delete(min(notes, key=lambda note: (unpack(note[1]), note[0]))[0])
    txn.put(_CLOSED + crawl, pack(number_at(txn, _RAN_KEY)))


def is_closed(txn: Txn, crawl: bytes) -> bool:
    """Whether this crawl was forgotten here and its note still lasts."""
    return txn.get(_CLOSED + crawl) is not None


def closed(txn: Txn) -> list[bytes]:
    """The crawls that were forgotten here and whose notes still last."""
    return [key[len(_CLOSED) :] for key, _ in txn.scan(_CLOSED, keys.after(_CLOSED))]


def drop_closed(txn: Txn, crawl: bytes, limit: int, cursor: bytes = b"") -> DropStep:
    """As `forget`, of a crawl that was forgotten here: what a kill left of it, or others that have it have sent since.

    Nothing is dropped of a crawl that is wanted again.
    """
    return forget(txn, crawl, limit, cursor) if is_closed(txn, crawl) else DropStep(0, None)


def count_run_time(txn: Txn, ran_ms: int) -> int:
    """Add to this node's running time, and drop the notes that are too old; return how many were dropped.

    Call it now and then, with the time since the last call. Time that a crash leaves
    uncounted makes notes last longer.
    """
    now_ms = number_at(txn, _RAN_KEY) + ran_ms
    txn.put(_RAN_KEY, pack(now_ms))
    old = [key for key, at in txn.scan(_CLOSED, keys.after(_CLOSED)) if now_ms - unpack(at) >= CLOSED_KEPT_MS]
    for key in old:
        txn.delete(key)
    return len(old)


def number_at(txn: Txn, key: bytes) -> int:
    """The number that is stored under a key; 0 if there is none."""
    value = txn.get(key)
    number: int = 0 if value is None else unpack(value)
    return number
