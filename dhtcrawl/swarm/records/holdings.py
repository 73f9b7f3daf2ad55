"""A node's task records, for those who move them between nodes: every access is a short transaction.

What a merge does to our queues is reported to the crawl even where whoever
asked for it was cancelled meanwhile: it is on disk, and nobody else would tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store import ranges
from dhtcrawl.storage.store import replicas as stored
from dhtcrawl.storage.store.ownership import TakeSnapshot, Test
from dhtcrawl.storage.store.ranges import Digests, RecordPage
from dhtcrawl.storage.store.replicas import Merged, Swept, TaskReplica
from dhtcrawl.storage.store.txn import Txn

T = TypeVar("T")


class Submit(Protocol):
    """`Committer.submit`."""

    def __call__(self, function: Callable[[Txn], T], /) -> asyncio.Future[T]: ...


@dataclass(frozen=True, slots=True)
class RecordTerms:
    """On which terms a crawl takes records. `orders` is drawn on the committer's thread, the rest is for the loop."""

    key_bytes: int  # the width of its task keys
    orders: Iterator[int]
    depth_matters: bool
    snapshot: TakeSnapshot
    busy: Test  # it is in flight here, or its outcome is not written: its record must not go


@loop_state
class Holdings:
    """The records of all crawls of this node."""

    def __init__(
        self, submit: Submit, terms: Callable[[bytes], RecordTerms | None], merged: Callable[[bytes, Merged], None]
    ) -> None:
        """`terms(crawl)` is None for a crawl that is not known; `merged` hears of every change to a crawl's queues."""
        self.terms = terms
        self._submit = submit
        self._merged = merged

    async def digests(self, crawl: bytes, first: bytes, last: bytes, bits: int, wanted: Test) -> Digests:
        """Digests of the wanted records in 2^bits parts of a range."""
        digests = Digests()
        while digests.cursor is not None:
            await self._submit(
                partial(ranges.add_digests, crawl=crawl, first=first, last=last, bits=bits, into=digests, wanted=wanted)
            )
        return digests

    async def page(
        self, crawl: bytes, first: bytes, last: bytes, cursor: bytes, limit: int, bytes_max: int, wanted: Test
    ) -> RecordPage:
        """The next wanted records of a range; may be empty and not the last."""
        return await self._submit(
            partial(
                ranges.page, crawl=crawl, first=first, last=last, cursor=cursor, limit=limit, bytes_max=bytes_max,
                wanted=wanted,
            )
        )  # fmt: skip

    async def some(self, crawl: bytes, task_keys: Sequence[bytes]) -> list[TaskReplica]:
        """Those of these records that are here."""
        return await self._submit(partial(ranges.some, crawl=crawl, task_keys=task_keys))

    async def same(self, crawl: bytes, hashes: Sequence[tuple[bytes, int]]) -> list[bool]:
        """Which of some records, told by key and `ranges.record_hash`, are here just so, on disk."""
        return await self._submit(partial(ranges.same, crawl=crawl, hashes=hashes))

    async def merge(self, crawl: bytes, copies: Sequence[TaskReplica]) -> Merged:
        """Merge records of another node into ours; nothing comes of it where the crawl is not known any more."""
        terms = self.terms(crawl)
        if terms is None or not copies:
            return Merged([], [], [], [], 0)
        now = terms.snapshot(copy.key for copy in copies)
        future = self._submit(
            partial(
                stored.merge_in, crawl=crawl, copies=copies, orders=terms.orders,
                mine=now.mine, held=now.held, depth_matters=terms.depth_matters,
            )
        )  # fmt: skip
        future.add_done_callback(partial(self._report, crawl))
        return await asyncio.shield(future)

    async def drop(self, crawl: bytes, copies: Iterable[TaskReplica], keep: Test) -> int:
        """Let go of records that their new holders acknowledged; how many went."""
        terms = self.terms(crawl)
        gone = [] if terms is None else [copy for copy in copies if not terms.busy(copy.key)]
        if not gone:
            return 0
        future = self._submit(partial(stored.drop, crawl=crawl, copies=gone, keep=keep))
        future.add_done_callback(partial(self._report_dropped, crawl))
        return (await asyncio.shield(future)).dropped

    def _report(self, crawl: bytes, future: asyncio.Future[Merged]) -> None:
        # Asking for the exception marks it as seen: who waits gets it too, or was cancelled.
        if not future.cancelled() and future.exception() is None:
            self._merged(crawl, future.result())

    def _report_dropped(self, crawl: bytes, future: asyncio.Future[Swept]) -> None:
        if not future.cancelled() and future.exception() is None and future.result().unqueued:
            self._merged(crawl, Merged([], [], future.result().unqueued, [], 0))
