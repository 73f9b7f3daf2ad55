"""What a store is and which crawls it holds: format, incarnation, crawl records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dhtcrawl.errors import StorageError, StoreTooNew
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage import keys
from dhtcrawl.storage.committer import Txn
from dhtcrawl.storage.records import pack, unpack

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class CrawlRecord:
    """A crawl as the store knows it. `ended` is "" while there is work left."""

    crawl_id: bytes
    spec: CrawlSpec
    nonce: bytes
    aliases: list[str] = field(default_factory=list)
    ended: str = ""


def check_format(txn: Txn) -> None:
    """Mark a new store with its format, and refuse one that we cannot read.

    Raises:
        StoreTooNew: a later version wrote it.
        StorageError: it is no store of ours.
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
    """How often the node has started, this time included."""
    value = txn.get(keys.INCARNATION_KEY)
    incarnation: int = 1 + (0 if value is None else unpack(value))
    txn.put(keys.INCARNATION_KEY, pack(incarnation))
    return incarnation


def put_crawl(txn: Txn, crawl: CrawlRecord) -> None:
    """Write a crawl's record."""
    txn.put(
        keys.key(keys.CRAWL, crawl.crawl_id),
        pack(
            {
                "spec": crawl.spec.canonical(),
                "nonce": crawl.nonce,
                "aliases": crawl.aliases,
                "ended": crawl.ended,
            }
        ),
    )


def crawls(txn: Txn) -> list[CrawlRecord]:
    """All crawls in the store."""
    return [_record(key, unpack(value)) for key, value in txn.scan(keys.CRAWL, keys.after(keys.CRAWL))]


def _record(key: bytes, fields: dict[str, Any]) -> CrawlRecord:
    spec = CrawlSpec.from_canonical(fields["spec"])
    return CrawlRecord(key[len(keys.CRAWL) :], spec, fields["nonce"], fields["aliases"], fields["ended"])


def set_ended(txn: Txn, crawl: bytes, ended: str) -> None:
    """Note how a crawl ended: "complete", or "" where there is work left."""
    key = keys.key(keys.CRAWL, crawl)
    value = txn.get(key)
    assert value is not None, "a crawl that ends has a record"
    txn.put(key, pack({**unpack(value), "ended": ended}))


def forget(txn: Txn, crawl: bytes, limit: int) -> int:
    """Drop up to `limit` of a crawl's records, its own record last; how many went."""
    dropped = 0
    for kind in sorted(keys.KINDS, key=lambda kind: kind == keys.CRAWL):
        start, stop = keys.bounds(kind, crawl)
        for key, _ in txn.scan(start, stop):
            txn.delete(key)
            dropped += 1
            if dropped == limit:
                return dropped
    return dropped
