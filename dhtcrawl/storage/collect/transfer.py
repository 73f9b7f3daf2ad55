"""Brings rows and archive files from the node that has them: the client of `dhtcrawl.storage.collect.export`.

A gatherer, an heir, and a node that copies a big page use it, each with its own way to ask. One answer is in memory at
a time, and where link keys come in parts those of one page. Whether the bytes are those of a page is for the user to
check: only a page's record has a digest.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.storage.collect.export import IN_PARTS, PART_BYTES, Row
from dhtcrawl.storage.collect.foreign import BadRow
from dhtcrawl.storage.collect.limits import CHUNK_BYTES_MAX
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.txn import Txn

LINKS_BYTES_MAX: Final = 64 << 20  # of one page, which are joined in memory

AskRows = Callable[[bytes], Awaitable[tuple[Sequence[Row], bytes | None]]]  # the page from a cursor on, the next cursor


async def bring_bytes(
    committer: Committer,
    chunk: Callable[[str, int, int], Awaitable[bytes]],
    name: str,
    at: int,
    end: int,
    append: Callable[[Txn, bytes], object],
) -> None:
    """Append the bytes from `at` to `end` of an archive file, which `chunk(name, offset, limit)` asks for.

    Raises:
        Unreachable: the node does not answer.
        BadRow: it sent nothing, or more than it was asked for.
        StorageFull: no space left.
    """
    while at < end:
        limit = min(CHUNK_BYTES_MAX, end - at)
        data = await chunk(name, at, limit)
        if not (isinstance(data, bytes) and 0 < len(data) <= limit):
            raise BadRow(f"sent no bytes of {name} where it has some")
        await committer.submit(partial(_append, append=append, data=data))
        at += len(data)


async def row_pages(ask: AskRows, cursor: bytes = b"") -> AsyncIterator[Sequence[Row]]:
    """The pages of rows from `cursor` on, as the node sends them.

    Raises:
        Unreachable: the node does not answer.
        BadRow: with its cursor the pages would never end.
    """
    at: bytes | None = cursor
    while at is not None:
        rows, after = await ask(at)
        yield rows
        if after is not None and not (isinstance(after, bytes) and after > at):
            raise BadRow("sent a cursor that leads back")
        at = after


async def whole_rows(
    ask: AskRows, kind: bytes, cursor: bytes = b"", value_bytes_max: int = LINKS_BYTES_MAX
) -> AsyncGenerator[list[Row], None]:
    """The rows of a kind from `cursor` on, some at a time and never none, with link keys that came in parts joined.

    Raises:
        Unreachable, BadRow: as `row_pages`; BadRow also for a part that does not follow the one before, and
            for parts of more than `value_bytes_max` together.
    """
    key, joined = b"", bytearray()  # what came of a row in parts; no key: none is coming
    async for rows in row_pages(ask, cursor):
        whole: list[Row] = []
        for suffix, value in rows:
            in_parts = kind in IN_PARTS and len(suffix) % KEY_BYTES == PART_BYTES
            if key and not (in_parts and suffix[:-PART_BYTES] == key):
                whole.append((key, bytes(joined)))
                key, joined = b"", bytearray()
            if not in_parts:
                whole.append((suffix, value))
                continue
            if int.from_bytes(suffix[-PART_BYTES:], "big") != len(joined) or len(joined) + len(value) > value_bytes_max:
                raise BadRow("sent link keys whose parts do not fit together")
            key = suffix[:-PART_BYTES]
            joined += value
        if whole:
            yield whole
    if key:
        yield [(key, bytes(joined))]


def _append(txn: Txn, append: Callable[[Txn, bytes], object], data: bytes) -> None:
    append(txn, data)
