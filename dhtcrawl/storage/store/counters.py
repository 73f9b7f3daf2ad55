"""The stored counters of a crawl on this node, where transactions other than a round's count, too.

    a round       all that the event loop knew as the round began, and what the transaction found
    links         `urls_seen`, with the records of what other nodes found

A round must not undo what the others count meanwhile, so these counters go on from what is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import pack, unpack
from dhtcrawl.storage.store.txn import Txn

Figures: TypeAlias = Mapping[str, int | float]

NOTHING: Final[Mapping[str, int]] = MappingProxyType({})
_COUNTED_APART: Final = frozenset({"urls_seen"})


def put_counters(txn: Txn, crawl: bytes, known: Figures, counted: Mapping[str, int] = NOTHING) -> None:
    """Store what the event loop knew, and what a round has counted since.

    Raises:
        StorageError: the stored counters are damaged.
    """
    apart = {name: count for name, count in _stored(txn, crawl).items() if name in _COUNTED_APART}
    counters = Counter({**known, **apart})
    counters.update(counted)
    txn.put(keys.key(keys.COUNTERS, crawl), pack(dict(counters)))


def count(txn: Txn, crawl: bytes, counted: Mapping[str, int]) -> None:
    """Count what no round does, in the transaction that does it.

    Raises:
        StorageError: the stored counters are damaged.
    """
    if not counted:
        return
    assert counted.keys() <= _COUNTED_APART, counted
    counters = Counter(_stored(txn, crawl))
    counters.update(counted)
    txn.put(keys.key(keys.COUNTERS, crawl), pack(dict(counters)))


def _stored(txn: Txn, crawl: bytes) -> dict[str, int]:
    value = txn.get(keys.key(keys.COUNTERS, crawl))
    return {} if value is None else unpack(value)
