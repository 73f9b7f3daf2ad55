"""Hands out what a node has of its crawls, to a gatherer or an heir: facts, rows, archive files."""

from __future__ import annotations

import resource
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from dhtcrawl.errors import StorageError
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import CallRegistry
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.collect import export
from dhtcrawl.storage.collect.limits import ROWS_MAX
from dhtcrawl.storage.store import catalog, keys
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.counters import told
from dhtcrawl.storage.store.crawl_record import heir_of
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.records import unpack
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.calls import bodies as calls
from dhtcrawl.swarm.calls.words import COUNT_MAX, WORDS_MAX


@loop_state
class Exports:
    """Answers the `export_` calls at one node."""

    def __init__(
        self,
        committer: Committer,
        archive_of: Callable[[bytes], Directory],
        ended: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """`ended(crawl)` waits for a crawl that has ended and is still writing; for others it returns at once."""
        self._ended = ended
        self._committer = committer
        self._archive_of = archive_of

    def serve(self, registry: CallRegistry) -> None:
        """Register the handlers."""
        registry.serve(calls.ExportFacts, self._on_facts)
        registry.serve(calls.ExportRows, self._on_rows)
        registry.serve(calls.ExportFiles, self._on_files)
        registry.serve(calls.ExportChunk, self._on_chunk)

    async def _on_facts(self, _asker: bytes, args: calls.ExportFacts) -> calls.NodeFigures:
        await self._ended(args.crawl)
        counters = await self._committer.submit(partial(counters_of, crawl=args.crawl))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return calls.NodeFigures(counters, peak if sys.platform == "darwin" else peak * 1024)

    async def _on_rows(self, _asker: bytes, args: calls.ExportRows) -> calls.StoredRows | Refused:
        try:
            read: Any = partial(export.export_rows, crawl=args.crawl, kind=args.kind, cursor=args.cursor)
            rows, after = await self._committer.submit(read)
        except export.CannotExport as error:
            return Refused("no-rows", str(error))
        return calls.StoredRows(tuple(rows), after)

    async def _on_files(self, _asker: bytes, args: calls.ExportFiles) -> calls.StoredFiles:
        read: Any = partial(export.export_files, crawl=args.crawl)
        files = [file for file in await self._committer.submit(read) if file[0] > args.after]
        return calls.StoredFiles(tuple(calls.StoredFile(*file) for file in files[:ROWS_MAX]))

    async def _on_chunk(self, _asker: bytes, args: calls.ExportChunk) -> calls.StoredChunk | Refused:
        try:
            read: Any = partial(_chunk, args=args, archive_of=self._archive_of)
            return calls.StoredChunk(await self._committer.submit(read))
        except export.CannotExport as error:
            return Refused("no-file", str(error))


def _chunk(txn: Txn, *, args: calls.ExportChunk, archive_of: Callable[[bytes], Directory]) -> bytes:
    """A chunk of an archive file; the directory, which is made where it is missing, is asked for of a known file only.

    Raises:
        export.CannotExport: as `export.export_chunk`.
    """
    if txn.get(keys.ARCHIVE + args.crawl + args.name.encode("utf-8", "replace")) is None:
        raise export.CannotExport(f"{args.name}: the crawl has no such file here")
    try:
        archive = archive_of(args.crawl)
    except StorageError as error:
        # It was removed from outside, which must not stop the node.
        raise export.CannotExport(str(error)) from error
    return export.export_chunk(txn, args.crawl, archive, args.name, args.offset, args.limit)


def counters_of(txn: Txn, *, crawl: bytes) -> dict[str, Any]:
    """The sum of what this node counted, and of what those did whose heir it is; of `seconds` the largest.

    It may have what others counted, too: of one that came back, and tells that itself, or that has another heir. What
    others said they counted, a lie perhaps, never makes more of it than can be told.
    """
    total: dict[str, Any] = {}
    rows = [(keys.suffix(full).hex(), value) for full, value in txn.scan(*keys.bounds(keys.COUNTERS, crawl))]
    record, own = catalog.get_crawl(txn, crawl) if len(rows) > 1 else None, catalog.swarm_node(txn)
    for node, value in rows:
        if node and (record is None or heir_of(record, node, lambda each: each == own) is None):
            continue
        _add(total, unpack(value))
    return told(total)


def _add(total: dict[str, Any], counted: dict[str, Any]) -> None:
    for name, count in counted.items():
        if name in total or len(total) < WORDS_MAX:
            both = max(total.get(name, 0), count) if name == "seconds" else total.get(name, 0) + count
            total[name] = max(-COUNT_MAX, min(both, COUNT_MAX))
