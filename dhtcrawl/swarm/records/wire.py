"""Converts rows of the task plane to links, records and tombstones of the store and back, and checks what they mean.

`dhtcrawl.rpc.tasks.rows` has checked types, lengths and ranges. Checked here: a
key is that of its URL, the URL's origin is canonical (or its host would evade
politeness), a state is valid and has the place or reason that goes with it.
Whether the rest of a URL is canonical is not checked: it would cost more than
everything else together, and such a URL is only one more URL, as any query is.
A row that fails is None: drop it, or answer FAILED.

`extra` is what versions after the first added to a row (`records.Additions`). That
of a record or tombstone begins with `others`, a byte with their number and the ids
of 20 bytes. What stands behind it, and all of a link's, is the tail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import repeat

from dhtcrawl.keyspace import TaskKeys, unknown_keys, url_keys
from dhtcrawl.possessive import compile_pattern
from dhtcrawl.rpc.tasks import rows
from dhtcrawl.storage.store.ownership import NO_KEYS
from dhtcrawl.storage.store.records import NO_ADDITIONS, OTHERS_MAX, STATES, Additions, Place, State, Task
from dhtcrawl.storage.store.replicas import End, TaskReplica
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.deliver.queues import fitting, in_messages
from dhtcrawl.url import canonicalize, host_of

# Generations and attempts grow by one for each failure of a node or a fetch; a
# number beyond this is forged, and would leave no room to count on.
COUNT_MAX = 1 << 20
NODE_BYTES = 20
TAIL_BYTES_MAX = rows.EXTRA_BYTES_MAX - 1 - OTHERS_MAX * NODE_BYTES
_BYTES_END = 1 << 63

# A frame holds 1 MiB, and two URLs of a link may take 16 KiB: a message that does not fit would never arrive.
LINKS_BYTES_MAX = 512 * 1024  # of one message
RECORDS_BYTES_MAX = 256 * 1024  # of one message
# Of the records in an ACK, which may be larger than those that it answers: they were found elsewhere.
TOLD_BYTES_MAX = 512 * 1024
_LINK_BYTES = 128  # of a link on the wire besides its URLs and `extra`, at most
_RECORD_BYTES = 288  # of a record on the wire besides its texts and `extra`, at most

_ORIGIN = re.compile(r"(https?://([^/?#\\]+))/")
_REST = re.compile(r'[!-"$-~]*')  # what WHATWG serialization leaves unescaped, without a fragment
# The same for several URLs, each on a line of its own.
_URLS = compile_pattern(r'(?:https?://[^/?#\\\n]++/[!-"$-~]*+(?:\n|\Z))++')
_HOST_AT = len("https://")  # at the earliest where the slash behind a host may be, for `http` has a letter less
# What the classes themselves do takes a Python call more.
_make_link = partial(tuple.__new__, Link)
_make_task = partial(tuple.__new__, Task)
_make_place = partial(tuple.__new__, Place)
_make_copy = partial(tuple.__new__, TaskReplica)
_make_end = partial(tuple.__new__, End)
_DONE = int(State.DONE)
_NODE = re.compile(r"[0-9a-f]{40}")
_FILE = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}")
_REASON = re.compile(r"[a-z][a-z-]{0,31}")


def link_bytes(link: Link) -> int:
    """How many bytes a link takes on the wire, at most."""
    _, url, _, referrer, _, _, added = link
    return _LINK_BYTES + len(url) + len(referrer) + (0 if added is NO_ADDITIONS else len(added.tail()))


def record_bytes(copy: TaskReplica) -> int:
    """How many bytes a record takes on the wire, at most."""
    task = copy.task
    texts = len(task.url) + len(task.referrer) + 4 * len(task.detail)
    if task.added is NO_ADDITIONS:
        return _RECORD_BYTES + texts
    return _RECORD_BYTES + texts + NODE_BYTES * len(task.others) + len(task.added.tail())


def in_frames(copies: Sequence[TaskReplica]) -> Iterator[Sequence[TaskReplica]]:
    """Divide records into messages that fit into a frame, for a sender that waits for each answer."""
    return in_messages(copies, record_bytes, RECORDS_BYTES_MAX, rows.ITEMS_MAX)


def tellable(further: Sequence[TaskReplica]) -> tuple[Sequence[TaskReplica], frozenset[bytes]]:
    """Those of the records that an ACK is to tell that fit into one, and the task keys of the others."""
    if not further:
        return further, NO_KEYS  # the usual case
    count = fitting(map(record_bytes, further), rows.ITEMS_MAX, TOLD_BYTES_MAX)
    return further[:count], frozenset(copy.key for copy in further[count:])


def row_of_link(link: Link) -> rows.LinkRow:
    """The row of a link."""
    added = link.added
    return rows.make_link((*link[:-1], b"" if added is NO_ADDITIONS else added.tail()))


def link_of(row: rows.LinkRow, keys: TaskKeys) -> Link | None:
    """The link of a row, for a crawl with these task keys; None where the row is invalid."""
    found = _found(row.key, row.url, row.referrer, keys) and len(row.extra) <= TAIL_BYTES_MAX
    if not found:
        return None
    return Link(*row[:-1], Additions.of_tail(row.extra) if row.extra else NO_ADDITIONS)


def links_of(found: Sequence[rows.LinkRow], keys: TaskKeys) -> list[Link] | list[Link | None]:
    """What `link_of` makes of each of these rows, for much less where all are valid and have no `extra`."""
    task_keys, urls, depths, referrers, hops, seeds, extras = zip(*found, strict=True)
    if any(extras) or not _all_found(task_keys, urls, referrers, keys):
        return [link_of(row, keys) for row in found]
    plain = repeat(NO_ADDITIONS)
    return list(map(_make_link, zip(task_keys, urls, depths, referrers, hops, seeds, plain, strict=False)))


def record_of(copy: TaskReplica) -> rows.RecordRow:
    """The row of a record."""
    key, (url, depth, order, referrer, state, gen, attempt, hops, seed, reason, detail, place, added) = copy
    return rows.make_record((
        key, url, depth, referrer, hops, seed, order, int(state), gen, attempt, reason, detail[: rows.TEXT_CHARS_MAX],
        None if place is None else rows.make_place(place), b"" if added is NO_ADDITIONS else _extra_of(added),
    ))  # fmt: skip


def copy_of(row: rows.RecordRow, keys: TaskKeys) -> TaskReplica | None:
    """The record of a row; None where it is invalid. Its `order` is the sender's, and means nothing here."""
    if not valid_record(keys, row):
        return None
    key, url, depth, referrer, hops, seed, order, state, gen, attempt, reason, detail, place, extra = row
    task = _make_task((
        url, depth, order, referrer, STATES[state], gen, attempt, hops, seed, reason, detail,
        None if place is None else _make_place(place), _additions_of(extra),
    ))  # fmt: skip
    return _make_copy((key, task))


def copies_in(found: Sequence[rows.RecordRow], keys: TaskKeys) -> list[TaskReplica] | list[TaskReplica | None]:
    """What `copy_of` makes of each of these rows, for much less where all are of new tasks and valid."""
    task_keys, urls, depths, referrers, hops, seeds, orders, states, gens, attempts, *others = zip(*found, strict=True)
    reasons, details, places, extras = others
    new = not (any(states) or any(reasons) or any(details) or any(extras)) and places.count(None) == len(places)
    if not new or max(*gens, *attempts) > COUNT_MAX or not _all_found(task_keys, urls, referrers, keys):
        return [copy_of(row, keys) for row in found]
    tasks = zip(
        urls, depths, orders, referrers, repeat(State.PENDING), gens, attempts, hops, seeds, reasons, details, places,
        repeat(NO_ADDITIONS), strict=False,
    )  # fmt: skip
    return list(map(_make_copy, zip(task_keys, map(_make_task, tasks), strict=True)))


def copies_of(records: Iterable[rows.RecordRow], keys: TaskKeys) -> list[TaskReplica]:
    """The records of the valid rows."""
    return [copy for copy in (copy_of(row, keys) for row in records) if copy is not None]


def further_of(records: Iterable[rows.RecordRow], sent: Sequence[TaskReplica]) -> list[TaskReplica]:
    """What the answer to records says of them: the valid rows that are about one of those that were sent."""
    about = {copy.key for copy in sent}
    return [copy for copy in copies_of(records, unknown_keys(len(sent[0].key))) if copy.key in about]


def tombstone_of(copy: TaskReplica) -> rows.TombstoneRow:
    """The tombstone of a record, for nodes that have the record."""
    key, (_, _, _, _, state, gen, attempt, _, _, reason, detail, place, added) = copy
    return rows.make_tombstone((
        key, int(state), gen, attempt, reason, detail[: rows.TEXT_CHARS_MAX],
        None if place is None else rows.make_place(place), b"" if added is NO_ADDITIONS else _extra_of(added),
    ))  # fmt: skip


def end_of(row: rows.TombstoneRow, keys: TaskKeys) -> End | None:
    """The tombstone of a row; None where it is invalid. Its key is good only where the store has a record under it."""
    key, state, gen, attempt, reason, detail, place, extra = row
    if len(key) != keys.width or state < State.DEAD or not _stands(state, gen, attempt, reason, detail, place, extra):
        return None
    there = None if place is None else _make_place(place)
    added = _additions_of(extra) if extra else NO_ADDITIONS
    return _make_end((key, STATES[state], gen, attempt, reason, detail, there, added))


def ends_in(found: Sequence[rows.TombstoneRow], keys: TaskKeys) -> list[End] | list[End | None]:
    """What `end_of` makes of each of these rows, for much less where all are of pages that are done, and valid."""
    task_keys, states, gens, attempts, reasons, details, places, extras = zip(*found, strict=True)
    plain = states.count(_DONE) == len(states) and not (any(reasons) or any(details) or any(extras) or None in places)
    if not plain or max(*gens, *attempts) > COUNT_MAX or set(map(len, task_keys)) != {keys.width}:
        return [end_of(row, keys) for row in found]
    if [file for node, file, at, length in places if at + length >= _BYTES_END or not _is_file(node, file)]:
        return [end_of(row, keys) for row in found]
    where, none = map(_make_place, places), repeat(NO_ADDITIONS)
    ends = zip(task_keys, repeat(State.DONE), gens, attempts, reasons, details, where, none, strict=False)
    return list(map(_make_end, ends))


def valid_record(keys: TaskKeys, row: rows.RecordRow) -> bool:
    """Whether a row can be a record of a crawl with these task keys."""
    return _found(row.key, row.url, row.referrer, keys) and _stands(
        row.state, row.gen, row.attempt, row.reason, row.detail, row.place, row.extra
    )


def _found(key: bytes, url: str, referrer: str, keys: TaskKeys) -> bool:
    """Whether a key is that of its URL, and the URL one that this crawler would write."""
    match = _ORIGIN.match(url)
    if match is None or not referrer.isascii() or _REST.fullmatch(url, match.end()) is None:
        return False
    origin, host = match.groups()
    return _is_canonical(origin) and keys.fits(key, url, host)


def _all_found(task_keys: Sequence[bytes], urls: Sequence[str], referrers: Sequence[str], keys: TaskKeys) -> bool:
    """Whether `_found` holds for all of these, with one call of each test for all of them."""
    lines = "\n".join(urls)
    if (
        "" in urls
        or _URLS.fullmatch(lines) is None
        or lines.count("\n") >= len(urls)
        or not "".join(referrers).isascii()
    ):
        return False
    if not all(map(_is_canonical, _origins_of(urls))):
        return False
    if keys.mode == "url":
        return url_keys(lines.encode("ascii").split(b"\n")) == list(task_keys)
    return all(keys.fits(key, url, host_of(url)) for key, url in zip(task_keys, urls, strict=True))


def _origins_of(urls: Sequence[str]) -> set[str]:
    """The origins of http(s) URLs that have a path; those of a frame are often the same."""
    first = urls[0][: urls[0].index("/", _HOST_AT)]
    if all(map(str.startswith, urls, repeat(first + "/"))):
        return {first}
    return {url[: url.index("/", _HOST_AT)] for url in urls}


@lru_cache(maxsize=16_384)
def _is_canonical(origin: str) -> bool:
    return origin.isascii() and canonicalize(origin + "/") == origin + "/"


def _stands(
    state: int, gen: int, attempt: int, reason: str, detail: str, place: rows.PlaceRow | None, extra: bytes
) -> bool:
    """Whether a state is valid, and has the fields that go with it."""
    if state == 0 and gen <= COUNT_MAX >= attempt and place is None and not (reason or detail or extra):
        return True  # the usual case: a new task
    if state > State.DONE or gen > COUNT_MAX or attempt > COUNT_MAX:
        return False
    if (place is not None) != (state in (State.FETCHED, State.DONE)):
        return False
    if (reason != "") != (state == State.DEAD):
        return False
    if reason and _REASON.fullmatch(reason) is None:
        return False
    return (not detail or _is_text(detail)) and (place is None or _is_place(place)) and _is_extra(extra)


def _is_place(place: rows.PlaceRow) -> bool:
    return place.offset + place.length < _BYTES_END and _is_file(place.node, place.file)


@lru_cache(maxsize=4096)
def _is_file(node: str, file: str) -> bool:
    """Whether a node may have a file of this name; many places lie in the same one."""
    return _NODE.fullmatch(node) is not None and _FILE.fullmatch(file) is not None


def _is_text(text: str) -> bool:
    """Whether the store can encode a text: it has no surrogates."""
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _extra_of(added: Additions) -> bytes:
    if added == NO_ADDITIONS:
        return b""
    return bytes([len(added.others)]) + b"".join(map(bytes.fromhex, added.others)) + added.tail()


def _additions_of(extra: bytes) -> Additions:
    if not extra:
        return NO_ADDITIONS
    end = 1 + extra[0] * NODE_BYTES
    others = tuple(sorted(extra[at : at + NODE_BYTES].hex() for at in range(1, end, NODE_BYTES)))
    return Additions.of_tail(extra[end:], others)


def _is_extra(extra: bytes) -> bool:
    if not extra:
        return True
    end = 1 + extra[0] * NODE_BYTES
    return extra[0] <= OTHERS_MAX and end <= len(extra) <= end + TAIL_BYTES_MAX
