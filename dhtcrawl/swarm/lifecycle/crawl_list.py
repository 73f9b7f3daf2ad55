"""Tells other nodes which crawls this one knows, and pulls the records that it lacks, or has older ones of."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL, CallRegistry, Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.catalog import CrawlRecord
from dhtcrawl.swarm.calls import lifecycle as calls
from dhtcrawl.swarm.calls.lifecycle import CRAWLS_A_LIST

log = logging.getLogger(__name__)


@loop_state
class CrawlList:
    """Answers `crawl_list` and `crawl_get` from `records`, the node's own; `learn` merges a record into them."""

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
        registry.serve(calls.ListCrawls, self._on_list)
        registry.serve(calls.GetCrawl, self._on_get)

    async def pull(self, node: bytes) -> bool:
        """Learn the crawls that `node` knows; whether it answered."""
        cursor = b""
        while True:
            reply = await self._peers.call(node, calls.ListCrawls(cursor))
            if isinstance(reply, Failure):
                return False
            known = reply.crawls
            if any(crawl <= cursor for crawl, _ in known):
                return False  # a list that leads back would never end
            for crawl, digest in known:
                ours = self._records.get(crawl)
                if ours is None or catalog.record_digest(ours) != digest:
                    await self._pull_one(node, crawl)
            if len(known) < CRAWLS_A_LIST:
                return True
            cursor = known[-1].crawl

    async def _pull_one(self, node: bytes, crawl: bytes) -> None:
        reply = await self._peers.call(node, calls.GetCrawl(crawl))
        record = None if isinstance(reply, Failure) else parsed(reply.record)
        if record is not None:
            await self._learn(record)

    def _on_list(self, _asker: bytes, args: calls.ListCrawls) -> calls.KnownCrawls:
        known = sorted(crawl for crawl in self._records if crawl > args.after)[:CRAWLS_A_LIST]
        digests = (catalog.record_digest(self._records[crawl]) for crawl in known)
        return calls.KnownCrawls(tuple(map(calls.ListedCrawl, known, digests)))

    def _on_get(self, _asker: bytes, args: calls.GetCrawl) -> calls.KnownRecord | Refused:
        record = self._records.get(args.crawl)
        return Refused(UNKNOWN_CRAWL) if record is None else calls.KnownRecord(catalog.to_wire(record))


def parsed(data: bytes, known: CrawlRecord | None = None, among: Sequence[bytes] = ()) -> CrawlRecord | None:
    """A record that a peer sent, whole or as changes of the `known` one; None where it is invalid."""
    try:
        return catalog.from_wire(data, known, among)
    except catalog.NotARecord as error:
        log.info("a crawl record from a peer: %s", error)
        return None
