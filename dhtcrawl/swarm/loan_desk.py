"""What a lender and a borrower are given of their crawl: its frontier, its queues, and what may be done now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.corridor import Corridor
from dhtcrawl.crawl.crawler import Crawl
from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.storage import copies
from dhtcrawl.storage.committer import Committer
from dhtcrawl.storage.copies import Copy, Merged

Test = Callable[[bytes], bool]  # of a task key


class Run(Protocol):
    """The run whose tasks these are."""

    @property
    def crawl(self) -> Crawl: ...

    @property
    def crawl_id(self) -> bytes: ...

    @property
    def owning(self) -> bool:
        """Whether this node fetches what is its own, and lends it."""
        ...

    @property
    def leaving(self) -> bool:
        """Whether nothing more is started here, whatever the crawl does."""
        ...

    def owns(self, key: bytes) -> bool: ...

    def claims(self, key: bytes) -> bool:
        """Whether a task is ours to fetch or to lend."""
        ...


class LoanDesk:
    """Of one crawl; `Desk` of its lender and `Bench` of its borrower."""

    def __init__(
        self,
        run: Run,
        clock: Clock,
        committer: Committer,
        *,
        mine: Test,
        held: Test,
        merge: Callable[[bytes, list[Copy]], Awaitable[Merged]],
        ask: Callable[[list[bytes]], None],
        lending: bool,
    ) -> None:
        """`merge` is for what a worker knew better, `ask` for what others may know of what it does not tell.

        `lending`: whether the crawl has a policy here.
        """
        self.moving = 0  # tasks that are on their way into a queue, and nowhere else to be seen
        self.held = held
        self._run = run
        self._clock = clock
        self._committer = committer
        self._mine = mine
        self._merge = merge
        self._ask = ask
        self._lending = lending

    @property
    def crawl_id(self) -> bytes:
        return self._run.crawl_id

    @property
    def frontier(self) -> Frontier:
        return self._run.crawl.frontier

    @property
    def corridor(self) -> Corridor:
        return self._run.crawl.corridor

    @property
    def lends(self) -> bool:
        """See `Desk`."""
        return self._run.owning

    @property
    def takes(self) -> bool:
        """See `Bench`."""
        return self._lending and not self._run.leaving

    def owns(self, key: bytes) -> bool:
        """See `Desk`."""
        return self._run.claims(key)

    def decided(self) -> None:
        """See `Desk`."""
        self._run.crawl.settled()

    def has_in_flight(self, key: bytes) -> bool:
        """See `Bench`."""
        return self._run.crawl.has_in_flight(key)

    def retrying(self) -> set[bytes]:
        """See `Bench`."""
        return self.frontier.retrying()

    def forget(self, keys: list[bytes]) -> None:
        """See `Bench`."""
        gone = frozenset(keys)
        self.frontier.disown(lambda key: key not in gone, self._clock.monotonic())

    def merged(self, records: Sequence[Copy]) -> Awaitable[Merged]:
        """See `Desk`."""
        return self._merge(self.crawl_id, list(records))

    async def write_lent(self, keys: list[bytes]) -> list[Copy]:
        """See `Desk`."""
        write: Any = partial(copies.lend, crawl=self.crawl_id, task_keys=keys, mine=self._mine, held=self.held)
        records, merged = await self._committer.submit(write)
        self._run.crawl.intake.merged(merged)
        found: list[Copy] = records
        return found

    async def requeue(self, keys: list[bytes]) -> None:
        """See `Desk` and `Bench`."""
        if keys:
            self._run.crawl.intake.merged(await self.requeued(keys))

    def unheard_of(self, keys: list[bytes]) -> None:
        """See `Desk`."""
        self._ask(keys)

    async def requeued(self, keys: list[bytes]) -> Merged:
        """What putting these where they belong by now came to; the crawl is still to be told."""
        self.moving += len(keys)
        try:
            write: Any = partial(copies.requeue, crawl=self.crawl_id, task_keys=keys, mine=self._mine, held=self.held)
            merged: Merged = await self._committer.submit(write)
            return merged
        finally:
            self.moving -= len(keys)

    async def settled(self, keys: list[bytes]) -> list[bytes]:
        """See `Bench`."""
        read: Any = partial(copies.settled, crawl=self.crawl_id, task_keys=keys)
        found: list[bytes] = await self._committer.submit(read)
        return found
