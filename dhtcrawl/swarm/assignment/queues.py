"""What the assignments of a crawl need of it: its frontier, its stored queues, and what may be done now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.parts import CrawlParts
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store import replicas
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership


class QueuesRun(Protocol):
    """The run whose tasks these are."""

    @property
    def parts(self) -> CrawlParts: ...

    @property
    def crawl_id(self) -> bytes: ...

    @property
    def owning(self) -> bool:
        """Whether this node fetches, or assigns, the tasks that it owns."""
        ...

    @property
    def may_start(self) -> bool:
        """Whether tasks may be started here, as far as the crawl and its limits say."""
        ...

    @property
    def depth_matters(self) -> bool:
        """Whether a smaller depth of a page may bring further links into scope."""
        ...

    @property
    def leaving(self) -> bool:
        """Whether nothing more is started here, whatever the crawl does."""
        ...


@loop_state
class AssignmentQueues:
    """The queues of a crawl, in memory and in the store."""

    def __init__(
        self,
        run: QueuesRun,
        clock: Clock,
        committer: Committer,
        *,
        ownership: SwarmOwnership,
        merge: Callable[[bytes, list[TaskReplica], bytes], Awaitable[Merged]],
        lending: bool,
    ) -> None:
        """`merge` takes records that a worker knew better. `lending`: whether the crawl has a policy here."""
        self.moving = 0  # tasks on their way into a queue, which nothing else counts
        self._ownership = ownership
        self._run = run
        self._clock = clock
        self._committer = committer
        self._merge = merge
        self._lending = lending

    @property
    def crawl_id(self) -> bytes:
        return self._run.crawl_id

    @property
    def frontier(self) -> Frontier:
        return self._run.parts.frontier

    @property
    def next_round(self) -> NextRound:
        return self._run.parts.next_round

    @property
    def lends(self) -> bool:
        """Whether tasks may be assigned now: this node owns, and the crawl runs."""
        return self._run.owning

    @property
    def takes(self) -> bool:
        """Whether this node may fetch for others, and will go on to."""
        return self._lending and not self._run.leaving

    @property
    def depth_matters(self) -> bool:
        """Whether a worker has to learn of a smaller depth that its owner heard of meanwhile."""
        return self._run.depth_matters

    def decided(self) -> None:
        """Note that there may be tasks to start, or to read from the store."""
        self._run.parts.changed()

    def open_tasks(self) -> list[bytes]:
        """Tasks in flight here, and those whose outcome only this node knows."""
        return self._run.parts.open_tasks()

    def has_in_flight(self, key: bytes) -> bool:
        """Whether `open_tasks` has a task."""
        return self._run.parts.has_open(key)

    def kept_back(self, keys: Collection[bytes]) -> frozenset[bytes]:
        """Those of these tasks that wait on purpose: for their host, or because the crawl starts nothing here."""
        if self._run.may_start:
            return self.frontier.kept_back(keys, self._clock.monotonic())
        return frozenset(keys)

    def retrying(self) -> set[bytes]:
        """Tasks that were tried, and will be tried again."""
        return self.frontier.retrying()

    def forget(self, keys: Iterable[bytes]) -> None:
        """Begin none of these."""
        gone = frozenset(keys)
        self.frontier.disown(lambda key: key not in gone, self._clock.monotonic())

    def merged(self, records: Sequence[TaskReplica], worker: bytes) -> Awaitable[Merged]:
        """Merge the records that a worker knew better."""
        return self._merge(self.crawl_id, list(records), worker)

    async def write_lent(self, keys: list[bytes]) -> list[TaskReplica]:
        """Take assigned tasks out of their stored queues; return their records."""
        now = self._ownership.snapshot(keys)
        write: Any = partial(replicas.lend, crawl=self.crawl_id, task_keys=keys, mine=now.mine, held=now.held)
        records, merged = await self._committer.submit(write)
        self._run.parts.intake.merged(merged)
        found: list[TaskReplica] = records
        return found

    async def queue_borrowed(self, keys: list[bytes]) -> list[bytes]:
        """Queue tasks that their owner assigns to this node; return those whose records are not here."""
        lacking, merged = await self._put_right(keys, replicas.borrow)
        self._run.parts.intake.merged(merged)
        found: list[bytes] = lacking
        return found

    async def requeue(self, keys: list[bytes]) -> None:
        """Queue those that are ours to fetch now, and take the others out of the queues."""
        if keys:
            self._run.parts.intake.merged(await self._put_right(keys, replicas.requeue))

    async def requeue_held(self, keys: list[bytes]) -> None:
        """The same for tasks that another node had in flight; some may be in the stored queue already."""
        self._run.parts.intake.let_go(await self._put_right(keys, replicas.requeue))

    async def _put_right(self, keys: list[bytes], function: Callable[..., Any]) -> Any:
        self.moving += len(keys)
        try:
            now = self._ownership.snapshot(keys)
            write = partial(function, crawl=self.crawl_id, task_keys=keys, mine=now.mine, held=now.held)
            return await self._committer.submit(write)
        finally:
            self.moving -= len(keys)

    async def settled(self, keys: list[bytes]) -> list[bytes]:
        """Those whose outcome is in our own records."""
        read: Any = partial(replicas.settled, crawl=self.crawl_id, task_keys=keys)
        found: list[bytes] = await self._committer.submit(read)
        return found
