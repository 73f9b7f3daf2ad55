"""Keeps the rows of a collection that have no place in it, or not yet, among the crawl's notes, with their sender.

    kind `n`, then: `a` ‖ kind ‖ task key ‖ node (20), and for link keys ‖ offset (4)

`dhtcrawl.storage.collect.gather` decides on them. Runs on the committer's thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.storage.collect.export import IN_PARTS, PART_BYTES
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.catalog import DropStep, drop_keys
from dhtcrawl.storage.store.txn import Txn

ASIDE = b"a"
WHOLE = bytes(PART_BYTES)  # the offset of link keys in one piece


class Aside(NamedTuple):
    """One row that is aside."""

    key: bytes
    node: str
    part: bytes
    value: bytes


def aside(crawl: bytes, kind: bytes, key: bytes, node: str, part: bytes = b"") -> bytes:
    """The key of a row that is aside."""
    return keys.COUNTERS + crawl + ASIDE + kind + key + bytes.fromhex(node) + part


def by_key(txn: Txn, crawl: bytes, kind: bytes, cursor: bytes) -> Iterator[tuple[bytes, Iterator[Aside]]]:
    """The rows from the task key `cursor` on, by task key; those of one key are sorted by node, then part."""
    return groupby(_rows(txn, crawl, kind, cursor), lambda row: row.key)


def of_key(txn: Txn, crawl: bytes, kind: bytes, key: bytes) -> list[Aside]:
    """The rows of one task key."""
    for found, group in by_key(txn, crawl, kind, key):
        return list(group) if found == key else []
    return []


def drop_aside(txn: Txn, crawl: bytes, limit: int, cursor: bytes = b"") -> DropStep:
    """Drop up to `limit` of these rows from `cursor` on, when no more will come."""
    start, stop = keys.bounds(keys.COUNTERS, crawl, ASIDE)
    return drop_keys(txn, (key for key, _ in txn.scan(cursor or start, stop)), limit)


def _rows(txn: Txn, crawl: bytes, kind: bytes, cursor: bytes) -> Iterator[Aside]:
    tail = KEY_BYTES + (PART_BYTES if kind in IN_PARTS else 0)
    for rest, value in txn.rows(keys.COUNTERS, crawl + ASIDE + kind, cursor):
        at = len(rest) - tail
        yield Aside(rest[:at], rest[at : at + KEY_BYTES].hex(), rest[at + KEY_BYTES :], value)
