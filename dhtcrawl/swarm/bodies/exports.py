"""What a node hands out of its crawls to whoever gathers them: facts, rows, archive files."""

from __future__ import annotations

import resource
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeGuard

from dhtcrawl.keyspace import CRAWL_ID_BYTES
from dhtcrawl.rpc.peers.port import BAD_ARGUMENTS, CallRegistry, CallValue
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.collect import export
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.records import unpack
from dhtcrawl.storage.store.txn import Txn

NAME_CHARS_MAX = 255
CURSOR_BYTES_MAX = 256


class Exports:
    """Of one node."""

    def __init__(
        self,
        committer: Committer,
        archive_of: Callable[[bytes], Directory],
        ended: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """`ended(crawl)` returns at once, but for a crawl that has ended and is just writing its last."""
        self._ended = ended
        self._committer = committer
        self._archive_of = archive_of

    def register(self, registry: CallRegistry) -> None:
        """Answer the calls."""
        registry.register("export_facts", self._on_facts)
        registry.register("export_rows", self._on_rows)
        registry.register("export_files", self._on_files)
        registry.register("export_chunk", self._on_chunk)

    def _on_facts(self, _asker: bytes, args: dict[str, Any]) -> Any:
        crawl = args.get("crawl")
        return self._facts(crawl) if _is_crawl(crawl) else BAD_ARGUMENTS

    def _on_rows(self, _asker: bytes, args: dict[str, Any]) -> Any:
        crawl, kind, cursor = args.get("crawl"), args.get("kind"), args.get("cursor")
        if not _is_crawl(crawl) or not isinstance(kind, bytes) or not isinstance(cursor, bytes):
            return BAD_ARGUMENTS
        return self._rows(crawl, kind, cursor) if len(cursor) <= CURSOR_BYTES_MAX else BAD_ARGUMENTS

    def _on_files(self, _asker: bytes, args: dict[str, Any]) -> Any:
        crawl, after = args.get("crawl"), args.get("after")
        return self._files(crawl, after) if _is_crawl(crawl) and isinstance(after, str) else BAD_ARGUMENTS

    def _on_chunk(self, _asker: bytes, args: dict[str, Any]) -> Any:
        crawl, name, offset, limit = (args.get(field) for field in ("crawl", "name", "offset", "limit"))
        if not _is_crawl(crawl) or not isinstance(name, str) or len(name) > NAME_CHARS_MAX:
            return BAD_ARGUMENTS
        if type(offset) is not int or type(limit) is not int or offset < 0 or limit <= 0:
            return BAD_ARGUMENTS
        return self._chunk(crawl, name, offset, limit)

    async def _facts(self, crawl: bytes) -> CallValue:
        await self._ended(crawl)
        counters = await self._committer.submit(partial(counters_of, crawl=crawl))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"counters": counters, "rss_bytes_max": peak if sys.platform == "darwin" else peak * 1024}

    async def _rows(self, crawl: bytes, kind: bytes, cursor: bytes) -> CallValue:
        try:
            read: Any = partial(export.export_rows, crawl=crawl, kind=kind, cursor=cursor)
            rows, after = await self._committer.submit(read)
        except export.CannotExport as error:
            return Refused("no-rows", str(error))
        return {"rows": rows, "cursor": after}

    async def _files(self, crawl: bytes, after: str) -> CallValue:
        read: Any = partial(export.export_files, crawl=crawl)
        files = [(name, length) for name, length in await self._committer.submit(read) if name > after]
        return {"files": files[: export.ROWS_MAX]}

    async def _chunk(self, crawl: bytes, name: str, offset: int, limit: int) -> CallValue:
        archive = self._archive_of(crawl)
        try:
            read: Any = partial(
                export.export_chunk, crawl=crawl, archive=archive, name=name, offset=offset, limit=limit
            )
            return {"data": await self._committer.submit(read)}
        except export.CannotExport as error:
            return Refused("no-file", str(error))


def counters_of(txn: Txn, *, crawl: bytes) -> dict[str, Any]:
    """What this node did, and those whose pages it took over."""
    total: dict[str, Any] = {}
    for _, value in txn.scan(*keys.bounds(keys.COUNTERS, crawl)):
        for name, count in unpack(value).items():
            total[name] = max(total.get(name, 0), count) if name == "seconds" else total.get(name, 0) + count
    return total


def _is_crawl(value: object) -> TypeGuard[bytes]:
    return isinstance(value, bytes) and len(value) == CRAWL_ID_BYTES
