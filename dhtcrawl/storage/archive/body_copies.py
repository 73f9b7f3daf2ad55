"""The store's records about bodies that are on several nodes (design invariant I11, `--copies`).

    y, z   at a node with a copy: the page record of a page that another node
           fetched, with its place in a file here, and that page's link keys
    o      at the node that has the page: the ids of those with copies

No output lists a copy and no audit asks for its links. When the node that had the
page is gone, a copy stands in for the page: it becomes a page of this node
(`stand_in`), the page's owner writes the new place into the task record (`rehome`: a
new generation, fetched but not done), and so the page's links go out once more and
further copies are made, as when it was fetched.

All functions take a `Txn` and run on the committer's thread; those that read a record
raise `StorageError` if it is damaged.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

from dhtcrawl.errors import StorageError
from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.storage.archive.warcread import GZIP
from dhtcrawl.storage.archive.warcscan import scan
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.records import Place, State, others_beside, pack, unpack
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import get_page, get_task
from dhtcrawl.storage.store.txn import Txn

COPY_FIELD = "copy"  # in the page record of a copy, also after it stood in: another node fetched the page
# The fields that distinguish one fetch of a page from another.
_FETCH = ("node", "fetched_at", "payload_digest")
# A request's head has a URL of 8 KiB at most and what the crawl sends with it.
REQUEST_BYTES_MAX = 32 << 10
_REQUEST = b"\r\nWARC-Type: request\r\n"

Fields = dict[str, Any]


class Parcel(NamedTuple):
    """A page of this node, as it is sent to a node that is to have a copy."""

    key: bytes
    record: bytes  # the page record as stored
    links: bytes
    place: Place
    length: int  # bytes of the response's member and of the request's behind it


def parcel(txn: Txn, crawl: bytes, archive: Directory, key: bytes) -> Parcel | None:
    """All that a copy of a page needs, except the members' bytes; None if the page is not here or cannot be read."""
    record, links = txn.get(keys.PAGE + crawl + key), txn.get(keys.LINKS + crawl + key)
    if record is None or links is None:
        return None
    place = Place(*unpack(record)["place"])
    try:
        return Parcel(key, record, links, place, place.length + _request_length(archive, place))
    except StorageError:
        return None  # the file was removed from outside, which must not stop the node


def members(archive: Directory, parcel: Parcel) -> bytes | None:
    """The bytes of a page's members; None if they cannot be read."""
    try:
        data = archive.read(parcel.place.file, parcel.place.offset, parcel.length)
    except StorageError:
        return None
    return data if len(data) == parcel.length else None


def _request_length(archive: Directory, place: Place) -> int:
    """The length of the request's member behind its response; 0 if there is none."""
    data = archive.read(place.file, place.offset + place.length, REQUEST_BYTES_MAX)
    gzip = zlib.decompressobj(GZIP)
    try:
        content = gzip.decompress(data, 4 * REQUEST_BYTES_MAX)
    except zlib.error:
        return 0
    return len(data) - len(gzip.unused_data) if gzip.eof and _REQUEST in content[:REQUEST_BYTES_MAX] else 0


def is_page(stream: BinaryIO, fields: Fields, length: int) -> bool:
    """Whether a stream holds exactly the members of the page with this record; takes long for a big one."""
    # What a node sends as a page may be any bytes: nothing is looked for behind the first that are none.
    found = list(islice(scan(stream, past_damage=False), 3))
    response = found[0] if found else None
    if response is None or len(found) > 2 or any(member.problems for member in found):
        return False
    if any(member.type != "request" for member in found[1:]):
        return False
    claimed = response.type, response.url, response.payload_digest, response.length
    return claimed == ("response", fields["url"], fields["payload_digest"], length)


# At a node with copies


def held(txn: Txn, crawl: bytes, key: bytes, fields: Fields, leads_here: Container[str]) -> Place | None:
    """The place of a copy of this very fetch on this node, or None; only one that may stand in (`stand_in`) is one."""
    value = txn.get(keys.COPY + crawl + key)
    ours = None if value is None else unpack(value)
    if ours is None or any(ours.get(name) != fields.get(name) for name in _FETCH):
        return None
    place = Place(*ours["place"])
    return place if place.node in leads_here else None


def is_own(txn: Txn, crawl: bytes, key: bytes, fields: Fields, leads_here: Container[str]) -> bool:
    """Whether this very fetch is a page of this node: then it needs no copy of it, and may stand in (`stand_in`)."""
    page = get_page(txn, crawl, key)
    if page is None or page["place"].node not in leads_here:
        return False
    return all(page.get(name) == fields.get(name) for name in _FETCH)


def put_copy(txn: Txn, crawl: bytes, key: bytes, fields: Fields, links: bytes, place: Place) -> None:
    """Note that a copy of a page lies at `place` on this node; it replaces a copy of another fetch."""
    txn.put(keys.COPY + crawl + key, pack({**fields, COPY_FIELD: True, "place": place}))
    txn.put(keys.COPY_LINKS + crawl + key, links)


def stand_in(
    txn: Txn, crawl: bytes, task_keys: Iterable[bytes], leads_here: Container[str]
) -> list[tuple[bytes, Place]]:
    """Make this node's copies of these pages its own pages; return the places of those that are here.

    `leads_here` are the nodes, in hex, whose places mean this one: itself, and those whose heir it is. It may have rows
    of others as well, whose heir it did not become because something failed: nobody would look for them here.
    """
    found = []
    for key in task_keys:
        page = get_page(txn, crawl, key)
        if page is not None and page["place"].node in leads_here:
            found.append((key, page["place"]))  # fetched here as well, left to this node, or stood in before
            continue
        record, links = txn.get(keys.COPY + crawl + key), txn.get(keys.COPY_LINKS + crawl + key)
        if record is None or links is None or Place(*unpack(record)["place"]).node not in leads_here:
            continue
        txn.put(keys.PAGE + crawl + key, record)
        txn.put(keys.LINKS + crawl + key, links)
        txn.delete(keys.COPY + crawl + key)
        txn.delete(keys.COPY_LINKS + crawl + key)
        found.append((key, Place(*unpack(record)["place"])))
    return found


def are_here(txn: Txn, crawl: bytes, task_keys: Sequence[bytes]) -> bytes:
    """A byte for each of these pages, 1 where this node has it."""
    return bytes(value is not None for value in txn.get_many([keys.PAGE + crawl + key for key in task_keys]))


# At the page's owner


class Rehomed(NamedTuple):
    """The records whose pages have a new place."""

    records: list[TaskReplica]  # for their backups, and for the node that has the page
    resend: list[bytes]  # pages whose new place is this node: their links go out once more


def rehome(
    txn: Txn, crawl: bytes, found: Iterable[tuple[bytes, Place]], gone: str, mine: Callable[[bytes], bool]
) -> Rehomed:
    """Give pages that lay at `gone` the places `found`, in a new generation: fetched, done once its links are acked."""
    rehomed = Rehomed([], [])
    for key, place in found:
        task = get_task(txn, crawl, key)
        if task is None or task.place is None or task.place.node != gone or place.node == gone or not mine(key):
            continue  # its record has changed meanwhile
        again = task._replace(state=State.FETCHED, gen=task.gen + 1, attempt=0, reason="", detail="", place=place)
        again = again.with_others(others_beside(place, task.fetchers))
        txn.put(keys.TASK + crawl + key, again.pack())
        rehomed.records.append(TaskReplica(key, again))
        page = get_page(txn, crawl, key)
        if page is not None and page["place"] == place:
            # The mark makes a restart send the links.
            txn.put(keys.FETCHED + crawl + key, b"")
            rehomed.resend.append(key)
    return rehomed


# At the node that has the page


def put_holders(txn: Txn, crawl: bytes, key: bytes, holders: Sequence[bytes]) -> int | None:
    """Store which nodes have copies of a page here; return how many were stored before, or None."""
    full = keys.HOLDERS + crawl + key
    before = txn.get(full)
    txn.put(full, b"".join(holders))
    return None if before is None else len(before) // KEY_BYTES


def note_holders(txn: Txn, crawl: bytes, key: bytes, holders: Sequence[bytes], wanted: int) -> int:
    """Call `put_holders`; return by how much the number of pages with fewer than `wanted` copies grew."""
    before = put_holders(txn, crawl, key, holders)
    return (len(holders) < wanted) - (before is not None and before < wanted)


def undercopied(txn: Txn, crawl: bytes, wanted: int) -> int:
    """How many pages have fewer than `wanted` copies on record; reads all of them."""
    return sum(len(value) // KEY_BYTES < wanted for _, value in txn.rows(keys.HOLDERS, crawl))


class Short(NamedTuple):
    """A page with too few copies."""

    key: bytes
    holders: tuple[bytes, ...]  # the nodes that have copies now
    noted: int  # how many copies are on record, those of nodes that are gone included


def too_few(
    txn: Txn, crawl: bytes, cursor: bytes, limit: int, wanted: int, standing: Callable[[bytes], bytes | None]
) -> tuple[list[Short], bytes | None]:
    """The pages, of `limit` from `cursor` on, that have fewer than `wanted` copies, and the next cursor.

    `standing(node)` is the node that has now what `node` had: itself, an heir, or None.
    """
    short: list[Short] = []
    found, after = txn.page(keys.HOLDERS, crawl, cursor, limit)
    for key, value in found:
        named = [value[first : first + KEY_BYTES] for first in range(0, len(value), KEY_BYTES)]
        holders = dict.fromkeys(there for node in named if (there := standing(node)) is not None)
        if len(holders) < wanted:
            short.append(Short(key, tuple(holders), len(named)))
    return short, after


class Stored(io.RawIOBase):
    """A part of an archive file as a stream."""

    def __init__(self, archive: Directory, name: str, start: int, length: int) -> None:
        super().__init__()
        self._read = archive.read
        self._name = name
        self._start = start
        self._length = length
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        self._at = max(0, min(self._length, base + offset))
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._read(self._name, self._start + self._at, min(len(buffer), self._length - self._at))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
