"""Asks other nodes for what they have stored of a crawl, by the `export_` calls.

A question that was lost with its connection is asked again, so that a transfer goes on where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.schema import CallArgs, WireMap
from dhtcrawl.storage.collect.export import Row
from dhtcrawl.storage.collect.facts import Unreachable
from dhtcrawl.storage.collect.foreign import BadRow
from dhtcrawl.storage.collect.limits import CHUNK_BYTES_MAX
from dhtcrawl.swarm.calls import bodies as calls

RESUME_AFTER_S: Final = (0.2, 1.0)
# After these, another connection may bring the answer. A node that let the time pass is not waited for once more.
_LOST: Final = frozenset({FailureKind.CONNECT, FailureKind.LOST, FailureKind.BUSY})
FILES_MAX: Final = 100_000  # of a node for a crawl; more names are not kept in memory
R = TypeVar("R", bound=WireMap)


@loop_state
class PeerSource:
    """One crawl at other nodes; every question raises `Unreachable` where the node does not answer it."""

    def __init__(self, peers: Peers, crawl: bytes, timeout_s: float | None = None) -> None:
        """Without `timeout_s` a question has the time of its call."""
        self._peers = peers
        self._crawl = crawl
        self._timeout_s = timeout_s

    async def rows(self, node: bytes, kind: bytes, cursor: bytes) -> tuple[Sequence[Row], bytes | None]:
        """A page of rows from `cursor` on (b"" begins), and the next cursor, None at the end."""
        found = await self._ask(node, calls.ExportRows(self._crawl, kind, cursor))
        return found.rows, found.cursor

    async def files(self, node: bytes) -> list[tuple[str, int]]:
        """The node's archive files, and how much of each is committed.

        Raises:
            BadRow: the list would never end, or is longer than `FILES_MAX`.
        """
        files: list[tuple[str, int]] = []
        while True:
            after = files[-1][0] if files else ""
            page = (await self._ask(node, calls.ExportFiles(self._crawl, after))).files
            if not page:
                return files
            if page[-1].name <= after:
                raise BadRow("sent a list of files that leads back")
            if len(files) + len(page) > FILES_MAX:
                raise BadRow(f"sent a list of more than {FILES_MAX:,} files")
            files += page

    async def chunk(self, node: bytes, name: str, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes of an archive file, and no more than a chunk has; none behind what is committed."""
        part = calls.ExportChunk(self._crawl, name, offset, min(limit, CHUNK_BYTES_MAX))
        return (await self._ask(node, part)).data

    async def _ask(self, node: bytes, args: CallArgs[R]) -> R:
        pauses = iter(RESUME_AFTER_S)
        while True:
            value = await self._peers.call(node, args, timeout_s=self._timeout_s)
            if not isinstance(value, Failure):
                return value
            pause_s = next(pauses, None) if value.kind in _LOST else None
            if pause_s is None:
                raise Unreachable(f"does not answer {args.terms.name}: {value.detail}")
            await asyncio.sleep(pause_s)
