"""Which crawls a node knows, asked and answered: a newcomer pulls the records that it lacks, or has older."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from dhtcrawl.keyspace import CRAWL_ID_BYTES
from dhtcrawl.rpc.peers.port import BAD_ARGUMENTS, CallRegistry, CallValue, Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.catalog import CrawlRecord
from dhtcrawl.storage.store.crawl_record import WIRE_BYTES_MAX

log = logging.getLogger(__name__)

CRAWLS_A_LIST = 256


class CrawlList:
    """`records` is the node's own, kept by whoever made this; `learn` merges one into it."""

    def __init__(
        self,
        peers: Peers,
        registry: CallRegistry,
        records: Mapping[bytes, CrawlRecord],
        learn: Callable[[CrawlRecord], Awaitable[object]],
    ) -> None:
        self._peers = peers
        self._records = records
        self._learn = learn
        registry.register("crawl_list", self._on_list)
        registry.register("crawl_get", self._on_get)

    async def pull(self, node: bytes) -> bool:
        """Learn the crawls that `node` knows; whether it answered."""
        cursor = b""
        while True:
            args = {"after": cursor}
            reply = await self._peers.call(node, "crawl_list", args, reply_bytes_max=64 * 1024)
            if isinstance(reply, Failure):
                return False
            known = reply.get("crawls")
            if not isinstance(known, tuple) or not all(map(_is_listed, known)):
                return False
            if any(crawl <= cursor for crawl, _ in known):
                return False  # a list that leads back would never end
            for crawl, digest in known:
                ours = self._records.get(crawl)
                if ours is None or catalog.record_digest(ours) != digest:
                    await self._pull_one(node, crawl)
            if len(known) < CRAWLS_A_LIST:
                return True
            cursor = known[-1][0]

    async def _pull_one(self, node: bytes, crawl: bytes) -> None:
        reply = await self._peers.call(node, "crawl_get", {"crawl": crawl}, reply_bytes_max=WIRE_BYTES_MAX + 1024)
        record = None if isinstance(reply, Failure) else parsed(reply.get("record"))
        if record is not None:
            await self._learn(record)

    def _on_list(self, _asker: bytes, args: dict[str, Any]) -> CallValue:
        after = args.get("after")
        if not isinstance(after, bytes):
            return BAD_ARGUMENTS
        known = sorted(crawl for crawl in self._records if crawl > after)[:CRAWLS_A_LIST]
        return {"crawls": [(crawl, catalog.record_digest(self._records[crawl])) for crawl in known]}

    def _on_get(self, _asker: bytes, args: dict[str, Any]) -> CallValue:
        crawl = args.get("crawl")
        record = self._records.get(crawl) if isinstance(crawl, bytes) else None
        return Refused("unknown-crawl") if record is None else {"record": catalog.to_wire(record)}


def parsed(data: Any, known: CrawlRecord | None = None, among: Sequence[bytes] = ()) -> CrawlRecord | None:
    """A record that a peer sent, whole or what is new in the one `known`; None for what is neither."""
    try:
        return catalog.from_wire(data, known, among)
    except catalog.NotARecord as error:
        log.info("a crawl record from a peer: %s", error)
        return None


def _is_listed(row: Any) -> bool:
    return (
        isinstance(row, tuple)
        and len(row) == 2
        and isinstance(row[0], bytes)
        and len(row[0]) == CRAWL_ID_BYTES
        and isinstance(row[1], bytes)
    )
