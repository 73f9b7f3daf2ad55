"""Writes other nodes' task records into the store, and tells the crawl that runs here.

A record by which a task of this node's own would be over, or its page lie elsewhere, is doubtful where the task was not
given to the node that is said to have fetched it. It counts as far as `dhtcrawl.swarm.records.end_trust` believes its
sender, and is left out otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from dhtcrawl.crawl.intake import Intake
from dhtcrawl.keyspace import TaskKeys
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.storage.store import catalog, ownership, replicas
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.ownership import NO_KEYS, OwnershipSnapshot, TakeSnapshot
from dhtcrawl.storage.store.records import Place, State
from dhtcrawl.storage.store.replicas import End, Merged, TaskReplica
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.records.end_trust import EndTrust

log = logging.getLogger(__name__)


class TaskGiver(Protocol):
    """What is this node's own of a crawl, and to whom it gave it."""

    @property
    def lends(self) -> bool:
        """Whether other nodes fetch tasks of this one as a rule."""
        ...

    def owned(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of these tasks that are this node's own."""
        ...

    def may_end(self, key: bytes, node: bytes) -> bool:
        """Whether another node has a task of this one from it, or may have."""
        ...


class AssignedTasks(Protocol):
    """Who fetches the tasks of a crawl."""

    @property
    def ownership(self) -> TaskGiver: ...


class InboxRun(Protocol):
    """What the inbox and the merger need of a crawl that runs here."""

    @property
    def intake(self) -> Intake: ...

    @property
    def keys(self) -> TaskKeys: ...

    @property
    def depth_matters(self) -> bool: ...

    @property
    def assignments(self) -> AssignedTasks: ...

    def snapshot(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot: ...

    def heard(self, found: Sequence[TaskReplica]) -> None:
        """Note that these replicas came from another node and are written."""
        ...

    def buried(self, ends: Sequence[End]) -> None:
        """Note that these tombstones are here."""
        ...


@loop_state
class Merger:
    """Merges the records that come to one node, for all its crawls; `refused` counts ends that were left out."""

    def __init__(
        self,
        committer: Committer,
        orders: Iterator[int],
        run_of: Callable[[bytes], InboxRun | None],
        peers: Peers,
        now: Callable[[], float],
    ) -> None:
        """`orders` number what is queued, whichever way it came; they are drawn on the committer's thread.

        `now` gives seconds.
        """
        self.run_of = run_of
        self.refused = 0
        self._committer = committer
        self._orders = orders
        self._peers = peers
        self._now = now
        self._trust = EndTrust(peers.view, now())

    def view_changed(self) -> None:
        """Note who has come and gone."""
        self._trust.look(self._peers.view, self._now())

    async def merge(self, crawl: bytes, records: list[TaskReplica], teller: bytes) -> Merged:
        """Merge records that another node tells into the store; `Merged.further` has what we know better.

        `Merged.doubted` are those that are not believed.

        Raises:
            StorageError: the disk has failed.
        """
        run = self.run_of(crawl)
        # Most are of new tasks, which end nothing.
        said = [(copy.key, copy.task.place) for copy in records if copy.task.state >= State.FETCHED]
        doubtful = NO_KEYS if run is None or not said else _doubtful(run, teller, said)
        merged = await self._merge(crawl, run, records, doubtful)
        left_out = self._not_believed(crawl, run, merged.doubted, teller)
        believed = set(merged.doubted) - left_out
        if not believed:
            return merged
        more = await self._merge(crawl, run, [record for record in records if record.key in believed], NO_KEYS)
        return merged._replace(further=[*merged.further, *more.further], doubted=tuple(left_out))

    def _not_believed(
        self, crawl: bytes, run: InboxRun | None, task_keys: Sequence[bytes], teller: bytes
    ) -> frozenset[bytes]:
        """Those of these ends that are to be left out."""
        if run is None or not task_keys:
            return frozenset()
        now = self._now()
        self._trust.look(self._peers.view, now)
        left_out = frozenset(task_keys) - self._trust.believed(
            teller, crawl, task_keys, now, lends=run.assignments.ownership.lends
        )
        if left_out and not self.refused:
            log_refused(crawl, teller)
        self.refused += len(left_out)
        return left_out

    async def _merge(
        self, crawl: bytes, run: InboxRun | None, records: list[TaskReplica], doubtful: frozenset[bytes]
    ) -> Merged:
        now = _take_snapshot(run)(record.key for record in records)
        write: Any = partial(
            _merge_in if run is None else partial(replicas.merge_in, depth_matters=run.depth_matters),
            crawl=crawl, copies=records, orders=self._orders, mine=now.is_mine, held=now.held, doubtful=doubtful,
        )  # fmt: skip
        merged: Merged = await self._committer.submit(write)
        if run is not None:
            # Only once it is written: before, a search for tasks to fetch would find it pending and not held.
            left_out = set(merged.doubted)
            run.heard([record for record in records if record.key not in left_out])
            run.intake.merged(merged)
        return merged

    async def bury(self, crawl: bytes, ends: list[End], teller: bytes) -> tuple[list[bool], Merged]:
        """Merge tombstones that another node tells into records that are here; for each whether there is one.

        Where it is not believed there is none: it is to be sent whole.

        Raises:
            StorageError: the disk has failed.
        """
        run = self.run_of(crawl)
        said = [(end.key, end.place) for end in ends if end.state >= State.FETCHED]
        doubtful = NO_KEYS if run is None else _doubtful(run, teller, said)
        known, merged = await self._bury(crawl, run, ends, doubtful)
        believed = set(merged.doubted) - self._not_believed(crawl, run, merged.doubted, teller)
        if believed:
            _, more = await self._bury(crawl, run, [end for end in ends if end.key in believed], NO_KEYS)
            merged = merged._replace(further=[*merged.further, *more.further])
            known = [there or end.key in believed for end, there in zip(ends, known, strict=True)]
        return known, merged

    async def _bury(
        self, crawl: bytes, run: InboxRun | None, ends: list[End], doubtful: frozenset[bytes]
    ) -> tuple[list[bool], Merged]:
        now = _take_snapshot(run)(end.key for end in ends)
        told_on = NO_KEYS if run is None else run.intake.told_on(end.key for end in ends)
        write: Any = partial(
            replicas.bury,
            crawl=crawl, ends=ends, mine=now.is_mine, held=now.held, doubtful=doubtful, told_on=told_on,
        )  # fmt: skip
        known, merged = await self._committer.submit(write)
        if run is not None:
            run.buried([end for end, there in zip(ends, known, strict=True) if there])
            run.intake.merged(merged)
        return known, merged


def _doubtful(run: InboxRun, teller: bytes, said: Sequence[tuple[bytes, Place | None]]) -> frozenset[bytes]:
    """Our own tasks that are said to be over at a node that was not given them."""
    tasks = run.assignments.ownership
    owned = frozenset(tasks.owned([key for key, _ in said]))
    if not owned:
        return NO_KEYS  # the usual case
    found = set()
    for key, place in said:
        if key not in owned:
            continue
        if not tasks.may_end(key, teller if place is None else bytes.fromhex(place.node)):
            found.add(key)
    return frozenset(found)


def log_refused(crawl: bytes, teller: bytes) -> None:
    """Log that an end is left out, for the first of them."""
    log.warning(
        "node %s says that tasks of crawl %s are over that are this node's own and were not given to it; it is not"
        " believed at once, and from now on this is only counted",
        teller.hex()[:12],
        crawl.hex()[:12],
        extra={"crawl": crawl.hex(), "peer": teller.hex()},
    )


def _take_snapshot(run: InboxRun | None) -> TakeSnapshot:
    """How to take snapshots for a crawl; one that does not run here fetches nothing, it only keeps records (I4)."""
    return ownership.nothing if run is None else run.snapshot


def _merge_in(txn: Txn, *, crawl: bytes, **fields: Any) -> Merged:
    """Merge records of a crawl that does not run here; one that is about to sends links for the marks that it finds."""
    return replicas.merge_in(txn, crawl, depth_matters=catalog.depth_matters(txn, crawl), **fields)
