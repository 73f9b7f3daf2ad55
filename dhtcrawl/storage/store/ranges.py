"""Reads a node's records of a part of the key space, in pages, and as digests by which two nodes compare them.

REFRESH_TASK answers with them (design invariant I5). Two nodes that share keys
compare digests of equal parts of a range, then send only the parts that differ: the
idea of Merkle trees in Dynamo (DeCandia et al. 2007, section 4.7), but computed when
they are asked for.

The digest of a part is the sum, modulo 2^64, of a 64-bit hash of each record's key
and `essence`, so that the order does not matter. Every call reads a bounded number of
records, so that other transactions do not wait long. All raise `StorageError` if a
record is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgpack

from dhtcrawl.errors import StorageError
from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import essence, essence_of, unpack, unpack_task
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import get_task
from dhtcrawl.storage.store.txn import Txn

# So many records take some 10 ms of the committer's thread.
RECORDS_A_CALL = 2_000
# A node that joins compares the same records with each of its neighbours.
HASHES_KEPT_MAX = 16_384
DIGEST_BYTES = 8
# The bytes of a record on the wire besides its stored value: its key, and the row's own.
ROW_BYTES_MORE = 2 * KEY_BYTES + 8
FIRST, LAST = bytes(KEY_BYTES), b"\xff" * KEY_BYTES
_MODULUS = 1 << 8 * DIGEST_BYTES
_SPACE = 1 << 8 * KEY_BYTES


class RecordPage(NamedTuple):
    """Records in key order; `cursor` is where the next page begins, None at the end of the range."""

    copies: list[TaskReplica]
    cursor: bytes | None


@dataclass(slots=True)
class Part:
    """The records of one part of a range."""

    digest: int = 0
    count: int = 0
    lowest: bytes = b""  # task keys
    highest: bytes = b""


@dataclass(slots=True)
class Digests:
    """The parts of a range that have records, by number; `cursor` is where to go on, None when all are read."""

    parts: dict[int, Part] = field(default_factory=dict)
    cursor: bytes | None = b""

    def pack(self, bits: int) -> bytes:
        packed = bytearray(DIGEST_BYTES << bits)
        for number, part in self.parts.items():
            packed[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES] = part.digest.to_bytes(DIGEST_BYTES, "big")
        return bytes(packed)


def page(
    txn: Txn,
    crawl: bytes,
    first: bytes,
    last: bytes,
    cursor: bytes,
    limit: int,
    bytes_max: int,
    wanted: Callable[[bytes], bool],
) -> RecordPage:
    """Up to `limit` records with first <= placement <= last behind `cursor`, at most `bytes_max` on the wire together.

    A page that is not the last may be empty, if many records are not `wanted`. A
    single record that is larger than `bytes_max` ends the page before it, with
    `cursor` where it was.
    """
    copies: list[TaskReplica] = []
    looked_at, before, size = 0, cursor, 0
    for full, value in txn.scan(_start(crawl, first, cursor), keys.after(keys.TASK + crawl + last)):
        key = keys.suffix(full)
        if looked_at == RECORDS_A_CALL or len(copies) == limit:
            return RecordPage(copies, before)
        if wanted(key):
            size += len(value) + ROW_BYTES_MORE
            if size > bytes_max:
                return RecordPage(copies, before)
            copies.append(TaskReplica(key, unpack_task(value)))
        looked_at, before = looked_at + 1, key
    return RecordPage(copies, None)


def add_digests(
    txn: Txn, crawl: bytes, first: bytes, last: bytes, bits: int, into: Digests, wanted: Callable[[bytes], bool]
) -> None:
    """Add the next records of a range of 2^bits parts; call it, each in a transaction, until `cursor` is None.

    A range of a single placement (with host keys: one host) is divided by the part of
    the key that follows the placement.
    """
    assert into.cursor is not None, "there is no more"
    number_of = part_numbers(first, last, bits)
    looked_at, parts = 0, into.parts
    for full, value in txn.scan(_start(crawl, first, into.cursor), keys.after(keys.TASK + crawl + last)):
        if looked_at == RECORDS_A_CALL:
            return
        key = keys.suffix(full)
        looked_at, into.cursor = looked_at + 1, key
        if not wanted(key):
            continue
        number = number_of(key)
        part = parts.get(number)
        if part is None:
            part = parts[number] = Part(lowest=key)
        part.digest = (part.digest + _hash(key, value)) % _MODULUS
        part.count += 1
        part.highest = key
    into.cursor = None


def some(txn: Txn, crawl: bytes, task_keys: Iterable[bytes]) -> list[TaskReplica]:
    """The records with these keys, as far as they are here."""
    found = ((key, get_task(txn, crawl, key)) for key in task_keys)
    return [TaskReplica(key, task) for key, task in found if task is not None]


def same(txn: Txn, crawl: bytes, hashes: Iterable[tuple[bytes, int]]) -> list[bool]:
    """For each key and `record_hash`: whether the same record is here."""
    values = ((key, wanted, txn.get(keys.TASK + crawl + key)) for key, wanted in hashes)
    return [value is not None and _hash(key, value) == wanted for key, wanted, value in values]


def record_hash(copy: TaskReplica) -> int:
    """A 64-bit hash of a record's key and `essence`."""
    key, task = copy
    return _hash_fields(key, essence(task))


def part_numbers(first: bytes, last: bytes, bits: int) -> Callable[[bytes], int]:
    """The function from a task key to its part, of the 2^bits equal parts of a range."""
    if first == last:
        shift = 8 * KEY_BYTES - bits
        return lambda key: int.from_bytes(key[KEY_BYTES:], "big") >> shift
    low, span = _low_and_span(first, last)
    return lambda key: (int.from_bytes(key[:KEY_BYTES], "big") - low << bits) // span


def part_bounds(first: bytes, last: bytes, bits: int, number: int) -> tuple[int, int]:
    """The lowest and the highest number in a part; if the lowest is higher, the part is empty."""
    low, span = (0, _SPACE) if first == last else _low_and_span(first, last)
    return low + -(-number * span >> bits), low + (-(-(number + 1) * span >> bits)) - 1


def _low_and_span(first: bytes, last: bytes) -> tuple[int, int]:
    low = int.from_bytes(first, "big")
    return low, int.from_bytes(last, "big") - low + 1


def _start(crawl: bytes, first: bytes, cursor: bytes) -> bytes:
    """The key at which a scan begins: at `first`, and behind the task key `cursor`."""
    return keys.TASK + crawl + (cursor + b"\0" if cursor >= first and cursor else first)


@lru_cache(maxsize=HASHES_KEPT_MAX)
def _hash(key: bytes, value: bytes) -> int:
    try:
        fields = essence_of(unpack(value))
    except (ValueError, TypeError):
        raise StorageError(f"the store has a damaged record (task {key.hex()}); run 'dhtcrawl fsck'") from None
    return _hash_fields(key, fields)


def _hash_fields(key: bytes, fields: tuple[Any, ...]) -> int:
    text = msgpack.packb((key, *fields))
    return int.from_bytes(blake2b(text, digest_size=DIGEST_BYTES).digest(), "big")
