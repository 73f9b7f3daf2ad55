"""Reads, merges and drops a node's task records, in short transactions.

A merge reports how it changed a crawl's queues even where its caller was
cancelled meanwhile: the change is on disk, and nothing else would report it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from dhtcrawl.keyspace import TaskKeys
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store import ranges
from dhtcrawl.storage.store import replicas as stored
from dhtcrawl.storage.store.ownership import TakeSnapshot, Test
from dhtcrawl.storage.store.ranges import Digests, RecordPage
from dhtcrawl.storage.store.replicas import Merged, Swept, TaskReplica
from dhtcrawl.storage.store.txn import Txn

T = TypeVar("T")


class Submit(Protocol):
    """Runs a function as a transaction: `Committer.submit`."""

    def __call__(self, function: Callable[[Txn], T], /) -> asyncio.Future[T]: ...


@dataclass(frozen=True, slots=True)
class RecordTerms:
    """How a crawl takes records. The committer's thread draws from `orders`; only the loop uses the rest."""

    keys: TaskKeys
    orders: Iterator[int]
    depth_matters: bool
    snapshot: TakeSnapshot
    busy: Test  # in flight here, or its outcome is not written: its record must stay


@loop_state
class Holdings:
    """All task records of one node.

    Raises:
        StorageError: from every method that uses the store, once the disk has failed.
    """

    def __init__(
        self, submit: Submit, terms: Callable[[bytes], RecordTerms | None], merged: Callable[[bytes, Merged], None]
    ) -> None:
        """`terms(crawl)` is None for an unknown crawl; `merged` is called after each change to a crawl's queues."""
        self.terms = terms
        self._submit = submit
        self._merged = merged

    async def digests(self, crawl: bytes, first: bytes, last: bytes, bits: int, wanted: Test) -> Digests:
        """Digests of the wanted records in each of the 2^bits parts of a range."""
        digests = Digests()
        while digests.cursor is not None:
            await self._submit(
                partial(ranges.add_digests, crawl=crawl, first=first, last=last, bits=bits, into=digests, wanted=wanted)
            )
        return digests

    async def page(
        self, crawl: bytes, first: bytes, last: bytes, cursor: bytes, limit: int, bytes_max: int, wanted: Test
    ) -> RecordPage:
        """The next wanted records of a range; a page may be empty before the last."""
        return await self._submit(
            partial(
                ranges.page, crawl=crawl, first=first, last=last, cursor=cursor, limit=limit, bytes_max=bytes_max,
                wanted=wanted,
            )
        )  # fmt: skip

    async def some(self, crawl: bytes, task_keys: Sequence[bytes]) -> list[TaskReplica]:
        """The records, of these, that are stored here."""
        return await self._submit(partial(ranges.some, crawl=crawl, task_keys=task_keys))

    async def same(self, crawl: bytes, hashes: Sequence[tuple[bytes, int]]) -> list[bool]:
        """Whether each record, given by key and `ranges.record_hash`, is on disk here with that hash."""
        return await self._submit(partial(ranges.same, crawl=crawl, hashes=hashes))

    async def merge(self, crawl: bytes, copies: Sequence[TaskReplica]) -> Merged:
        """Merge another node's records into ours; no effect where the crawl is not known any more."""
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
        """Drop records that the nodes that keep them acknowledged, unless they are busy here; how many were dropped."""
        terms = self.terms(crawl)
        gone = [] if terms is None else [copy for copy in copies if not terms.busy(copy.key)]
        if not gone:
            return 0
        future = self._submit(partial(stored.drop, crawl=crawl, copies=gone, keep=keep))
        future.add_done_callback(partial(self._report_dropped, crawl))
        return (await asyncio.shield(future)).dropped

    def _report(self, crawl: bytes, future: asyncio.Future[Merged]) -> None:
        # Reading the exception marks it as seen; the caller gets it too, unless it was cancelled.
        if not future.cancelled() and future.exception() is None:
            self._merged(crawl, future.result())

    def _report_dropped(self, crawl: bytes, future: asyncio.Future[Swept]) -> None:
        if not future.cancelled() and future.exception() is None and future.result().unqueued:
            self._merged(crawl, Merged([], [], future.result().unqueued, [], 0))
