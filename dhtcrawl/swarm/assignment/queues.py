"""What an assigner and a worker need of their crawl: its frontier, its queues, and what may be done now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
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
    def leaving(self) -> bool:
        """Whether nothing more is started here, whatever the crawl does."""
        ...


@loop_state
class AssignmentQueues:
    """The queues of one crawl: `AssignerQueues` of its assigner and `WorkerQueues` of its worker."""

    def __init__(
        self,
        run: QueuesRun,
        clock: Clock,
        committer: Committer,
        *,
        ownership: SwarmOwnership,
        merge: Callable[[bytes, list[TaskReplica]], Awaitable[Merged]],
        ask: Callable[[list[bytes]], None],
        lending: bool,
    ) -> None:
        """`merge` takes records that a worker knew better; `ask` asks others about tasks that a worker does not report.

        `lending`: whether the crawl has a policy here.
        """
        self.moving = 0  # tasks on their way into a queue, which nothing else counts
        self._ownership = ownership
        self._run = run
        self._clock = clock
        self._committer = committer
        self._merge = merge
        self._ask = ask
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
        """See `AssignerQueues`."""
        return self._run.owning

    @property
    def takes(self) -> bool:
        """See `WorkerQueues`."""
        return self._lending and not self._run.leaving

    def owns(self, key: bytes) -> bool:
        """See `AssignerQueues`."""
        return self._ownership.claim.mine(key)

    def held(self, key: bytes) -> bool:
        """See `AssignerQueues`."""
        return self._ownership.held(key)

    def decided(self) -> None:
        """See `AssignerQueues`."""
        self._run.parts.changed()

    def has_in_flight(self, key: bytes) -> bool:
        """See `WorkerQueues`."""
        return self._run.parts.has_open(key)

    def retrying(self) -> set[bytes]:
        """See `WorkerQueues`."""
        return self.frontier.retrying()

    def forget(self, keys: list[bytes]) -> None:
        """See `WorkerQueues`."""
        gone = frozenset(keys)
        self.frontier.disown(lambda key: key not in gone, self._clock.monotonic())

    def merged(self, records: Sequence[TaskReplica]) -> Awaitable[Merged]:
        """See `AssignerQueues`."""
        return self._merge(self.crawl_id, list(records))

    async def write_lent(self, keys: list[bytes]) -> list[TaskReplica]:
        """See `AssignerQueues`."""
        now = self._ownership.snapshot(keys)
        write: Any = partial(replicas.lend, crawl=self.crawl_id, task_keys=keys, mine=now.mine, held=now.held)
        records, merged = await self._committer.submit(write)
        self._run.parts.intake.merged(merged)
        found: list[TaskReplica] = records
        return found

    async def requeue(self, keys: list[bytes]) -> None:
        """See `AssignerQueues` and `WorkerQueues`."""
        if keys:
            self._run.parts.intake.merged(await self.requeued(keys))

    def unheard_of(self, keys: list[bytes]) -> None:
        """See `AssignerQueues`."""
        self._ask(keys)

    async def requeued(self, keys: list[bytes]) -> Merged:
        """Put these where they belong now; the caller passes the result on to the crawl."""
        self.moving += len(keys)
        try:
            now = self._ownership.snapshot(keys)
            write: Any = partial(replicas.requeue, crawl=self.crawl_id, task_keys=keys, mine=now.mine, held=now.held)
            merged: Merged = await self._committer.submit(write)
            return merged
        finally:
            self.moving -= len(keys)

    async def settled(self, keys: list[bytes]) -> list[bytes]:
        """See `WorkerQueues`."""
        read: Any = partial(replicas.settled, crawl=self.crawl_id, task_keys=keys)
        found: list[bytes] = await self._committer.submit(read)
        return found
