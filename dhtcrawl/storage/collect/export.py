"""Hands out a node's records and archive files of a crawl, for gathering into one collection.

Rows are records as they are stored. They come in pages of bounded size; each page
ends with the cursor at which the next one begins. A page shows the store as it is
when the page is read; what is written between two pages may or may not be in them.

    suffix of a row   the part of the key behind kind and crawl id (see `keys`); for
                      link keys (those of copies, too) that are more than a page
                      holds: task key ‖ offset (4)

Archive files are handed out by chunks, and never beyond their committed length: the
rest may be half a record. Runs on the committer's thread.
"""

from __future__ import annotations

from dhtcrawl.errors import StorageError
from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.storage.archive.archive import lengths
from dhtcrawl.storage.collect.limits import CHUNK_BYTES_MAX, ROWS_MAX
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.records import unpack
from dhtcrawl.storage.store.txn import Txn

EXPORTED = (
    keys.TASK, keys.PAGE, keys.LINKS, keys.EXTRA, keys.SKIPPED, keys.ARCHIVE, keys.COUNTERS, keys.FETCHED,
    *keys.COPIES,
)  # fmt: skip
IN_PARTS = (keys.LINKS, keys.COPY_LINKS)
ROWS_BYTES = 256 << 10
PART_BYTES = 4  # of the offset behind a task key

Row = tuple[bytes, bytes]


class CannotExport(Exception):
    """What was asked for is not here, or cannot be read; one line for the asking node."""


def export_rows(
    txn: Txn, crawl: bytes, kind: bytes, cursor: bytes, bytes_max: int = ROWS_BYTES
) -> tuple[list[Row], bytes | None]:
    """Up to `ROWS_MAX` rows of a kind from `cursor` on (b"" begins), and the next cursor, None at the end.

    A page stays below `bytes_max`, unless its first row alone is larger.

    Raises:
        CannotExport: rows of this kind stay at the node.
    """
    if kind not in EXPORTED:
        raise CannotExport(f"rows of kind {kind!r} are not handed out")
    first, offset = _begin(kind, cursor)
    rows: list[Row] = []
    room = bytes_max
    for suffix, value in txn.rows(kind, crawl, first):
        resumed = offset is not None and suffix == first
        if resumed and len(value) <= (offset or 0):
            continue
        if not rows and kind in IN_PARTS and (resumed or len(value) > bytes_max):
            return _part(suffix, value, offset if resumed and offset is not None else 0, bytes_max)
        room -= len(suffix) + len(value)
        if rows and (room < 0 or len(rows) == ROWS_MAX):
            return rows, suffix
        rows.append((suffix, value))
    return rows, None


def export_files(txn: Txn, crawl: bytes) -> list[tuple[str, int]]:
    """The archive files by name, with their committed lengths."""
    return list(lengths(txn, crawl).items())


def export_chunk(txn: Txn, crawl: bytes, archive: Directory, name: str, offset: int, limit: int) -> bytes:
    """Up to `limit` bytes of an archive file from `offset` on; b"" at the end of what is committed.

    Raises:
        CannotExport: the crawl has no such file, or it cannot be read.
    """
    value = txn.get(keys.ARCHIVE + crawl + name.encode("utf-8", "replace"))
    if value is None:
        raise CannotExport(f"{name}: the crawl has no such file here")
    wanted = min(limit, CHUNK_BYTES_MAX, unpack(value) - offset)
    if offset < 0 or wanted <= 0:
        return b""
    try:
        data = archive.read(name, offset, wanted)
    except StorageError as error:
        # A file that was removed from outside must not stop the node.
        raise CannotExport(str(error)) from error
    if len(data) < wanted:
        raise CannotExport(f"{name}: is shorter than what was committed to it")
    return data


def _begin(kind: bytes, cursor: bytes) -> tuple[bytes, int | None]:
    """The suffix that a cursor points at, and the offset if it points at a part of link keys."""
    if kind in IN_PARTS and len(cursor) in (KEY_BYTES + PART_BYTES, 2 * KEY_BYTES + PART_BYTES):
        return cursor[:-PART_BYTES], int.from_bytes(cursor[-PART_BYTES:], "big")
    return cursor, None


def _part(key: bytes, value: bytes, offset: int, bytes_max: int) -> tuple[list[Row], bytes | None]:
    end = min(offset + bytes_max, len(value))
    # This holds behind the last part, too: the next page goes on with the next key.
    return [(_part_key(key, offset), value[offset:end])], _part_key(key, end)


def _part_key(key: bytes, offset: int) -> bytes:
    return key + offset.to_bytes(PART_BYTES, "big")
