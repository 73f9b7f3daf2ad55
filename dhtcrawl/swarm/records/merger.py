"""Writes other nodes' task records into the store, and tells the crawl that runs here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from dhtcrawl.crawl.intake import Intake
from dhtcrawl.keyspace import TaskKeys
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store import catalog, ownership, replicas
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.ownership import OwnershipSnapshot, TakeSnapshot
from dhtcrawl.storage.store.replicas import End, Merged, TaskReplica
from dhtcrawl.storage.store.txn import Txn


class InboxRun(Protocol):
    """What the inbox and the merger need of a crawl that runs here."""

    @property
    def intake(self) -> Intake: ...

    @property
    def keys(self) -> TaskKeys: ...

    @property
    def depth_matters(self) -> bool: ...

    def snapshot(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot: ...

    def heard(self, found: Sequence[TaskReplica]) -> None:
        """Note that these replicas came from another node and are written."""
        ...

    def buried(self, keys: Sequence[bytes]) -> None:
        """Note that these tasks have tombstones here."""
        ...


@loop_state
class Merger:
    """Merges the records that come to one node, for all its crawls."""

    def __init__(self, committer: Committer, orders: Iterator[int], run_of: Callable[[bytes], InboxRun | None]) -> None:
        """`orders` number what is queued, whichever way it came; they are drawn on the committer's thread."""
        self.run_of = run_of
        self._committer = committer
        self._orders = orders

    async def merge(self, crawl: bytes, records: list[TaskReplica]) -> Merged:
        """Merge other nodes' records into the store; `Merged.further` has what we know better.

        Raises:
            StorageError: the disk has failed.
        """
        run = self.run_of(crawl)
        now = _take_snapshot(run)(record.key for record in records)
        write: Any = partial(
            _merge_in if run is None else partial(replicas.merge_in, depth_matters=run.depth_matters),
            crawl=crawl, copies=records, orders=self._orders, mine=now.mine, held=now.held,
        )  # fmt: skip
        merged: Merged = await self._committer.submit(write)
        if run is not None:
            # Only once it is written: before, a search for tasks to fetch would find it pending and not held.
            run.heard(records)
            run.intake.merged(merged)
        return merged

    async def bury(self, crawl: bytes, ends: list[End]) -> tuple[list[bool], Merged]:
        """Merge tombstones into records that are here; for each whether there is one.

        Raises:
            StorageError: the disk has failed.
        """
        run = self.run_of(crawl)
        now = _take_snapshot(run)(end.key for end in ends)
        write: Any = partial(replicas.bury, crawl=crawl, ends=ends, mine=now.mine, held=now.held)
        known, merged = await self._committer.submit(write)
        if run is not None:
            run.buried([end.key for end, there in zip(ends, known, strict=True) if there])
            run.intake.merged(merged)
        return known, merged


def _take_snapshot(run: InboxRun | None) -> TakeSnapshot:
    """How to take snapshots for a crawl; one that does not run here fetches nothing, it only keeps records (I4)."""
    return ownership.nothing if run is None else run.snapshot


def _merge_in(txn: Txn, *, crawl: bytes, **fields: Any) -> Merged:
    """Merge records of a crawl that does not run here; one that is about to sends links for the marks that it finds."""
    return replicas.merge_in(txn, crawl, depth_matters=catalog.depth_matters(txn, crawl), **fields)
