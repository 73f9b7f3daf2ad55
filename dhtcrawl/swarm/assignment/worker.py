"""A worker's side of who fetches: tasks that their owners assign to this node.

Such a task is queued like one of our own, and its outcome reaches its owner as a record, like everything that is
fetched. The report adds what records do not say: how long it took, and which tasks we give back. It also shows that we
run: without it the owner takes its tasks back, and without its answer we start no more of them
(`dhtcrawl.swarm.assignment.assigned`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.keyspace import placement
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.swarm.assignment.assigned import REPORT_EVERY_S, AssignedHere, IncarnationOf
from dhtcrawl.swarm.assignment.queues import AssignmentQueues
from dhtcrawl.swarm.assignment.wire import to_rows
from dhtcrawl.swarm.calls import assignment as calls
from dhtcrawl.swarm.calls.words import KEYS_MAX, Done

LINGER_S = 0.5
HOSTS_MAX = 10_000
# What an owner says that a host may take to connect is for all pages of the host that this node fetches. With less, by
# one owner, no node would reach it; with more, one that answers nothing keeps a place.
CONNECT_LEAST_S, CONNECT_MOST_S = 1.0, 60.0
NEWS_MAX = 10_000  # for one owner that does not answer; it has to recall the rest


class _Reports:
    """The outcomes that owners are to be told of, by owner."""

    def __init__(self) -> None:
        self.news: dict[bytes, list[TaskOutcome]] = {}  # not told yet
        self.told_at: dict[bytes, float] = {}
        self.under_way: dict[bytes, None] = {}


@loop_state
class Worker:
    """Takes, gives back and reports the tasks of a crawl that are assigned to this node."""

    def __init__(
        self,
        queues: AssignmentQueues,
        peers: Peers,
        clock: Clock,
        borrowed: AssignedHere,
        *,
        incarnation_of: IncarnationOf,
        lent_here: Callable[[int], None],
    ) -> None:
        """`lent_here(epoch)` is called when an owner assigns tasks, with the epoch of its plan."""
        self.borrowed = borrowed
        self.connect_s: dict[str, float] = {}  # by host, where an owner has said so
        self._queues = queues
        self._peers = peers
        self._clock = clock
        self._incarnation_of = incarnation_of
        self._lent_here = lent_here
        self._reports = _Reports()
        self._awake = asyncio.Event()
        self._void: list[bytes] = []  # forgotten, and still in a stored queue
        self._view: View | None = None  # by which owners were last checked

    @property
    def busy(self) -> bool:
        """Whether an owner has yet to hear an outcome."""
        return bool(self._reports.news or self._reports.under_way)

    # What owners ask

    async def on_lend(self, asker: bytes, args: calls.Lend) -> Done | Refused:
        """Take tasks that their owner assigns to this node."""
        self._lent_here(args.epoch)
        keys = list(args.keys)
        if not self._queues.takes:
            return Refused("not-ready")
        if self.borrowed.full:
            return Refused("full")
        if any(self._owner_of(key) != asker for key in keys):
            return Refused("not-owner")
        for host, seconds in args.connect_s.items() if keys else ():
            self.connect_s.pop(host, None)
            self.connect_s[host] = min(max(float(seconds), CONNECT_LEAST_S), CONNECT_MOST_S)
            if len(self.connect_s) > HOSTS_MAX:
                del self.connect_s[next(iter(self.connect_s))]
        self.borrowed.borrow(asker, self._incarnation_of(asker), keys, self._clock.monotonic(), frozenset(args.patient))
        for key in await self._queues.queue_borrowed(keys):
            # Its record came before it, and has been handed over since: what is here by assignment only is not kept.
            self.over(TaskOutcome(key, "", TaskResult.RECALLED, 0.0))
        self._view = None
        return Done()

    async def on_recall(self, asker: bytes, args: calls.Recall) -> calls.LetGo | Refused:
        """Give back tasks that were not begun; without keys, forget all of this owner's."""
        keys = args.keys
        if not keys:
            return await self._forget(asker)
        ours, retrying = set(self.borrowed.of(asker)), self._queues.retrying()
        # A new owner may recall what the former one assigned to us; a node that is no owner by our view may not.
        if any(key not in ours and self._owner_of(key) != asker for key in keys):
            return Refused("not-owner")
        let_go = [key for key in keys if key not in retrying and not self._queues.has_in_flight(key)]
        kept_back = self._queues.kept_back(let_go)
        await self._queues.requeue([key for key in let_go if self.borrowed.give_back(key) is not None])
        # A task that ended is on its way as a record; and one may have been begun while we wrote.
        over = set(await self._queues.settled(let_go))
        back = [key for key in let_go if key not in over and not self._queues.has_in_flight(key)]
        return calls.LetGo(tuple(back), tuple(key for key in back if key in kept_back))

    async def _forget(self, owner: bytes) -> calls.LetGo:
        """Forget the tasks of an owner that took us for gone: other nodes have them now."""
        keys = self.borrowed.of(owner)
        for key in keys:
            self.borrowed.give_back(key)
        self._queues.forget(keys)
        await self._queues.requeue(keys)
        return calls.LetGo(())

    # What the crawl says

    def over(self, given: TaskOutcome) -> bool:
        """Note the outcome of a task; whether it was assigned to this node."""
        # A tombstone does not tell the page's depth, so the owner could not answer that it knows a smaller one.
        quiet = given.result is TaskResult.PAGE and not self._queues.depth_matters
        owner = (self.borrowed.bring if quiet else self.borrowed.give_back)(given.key)
        if owner is None:
            return False
        self._tell(owner, given)
        return True

    def give_all_back(self) -> None:
        """Give back all that is not in flight: nothing more is begun here."""
        for owner in self.borrowed.owners():
            for key in self.borrowed.of(owner):
                self.borrowed.give_back(key)
                if not self._queues.has_in_flight(key):
                    self._tell(owner, TaskOutcome(key, "", TaskResult.RECALLED, 0.0))

    def forget_void(self) -> list[bytes]:
        """From now on begin no task that its owner no longer owns, or may have taken back.

        Returns:
            The keys of these tasks; some may be in flight.
        """
        owner_of = None if self._peers.view is self._view else self._owner_of
        self._view = self._peers.view
        void = self.borrowed.void(owner_of, self._incarnation_of, self._clock.monotonic())
        if void:
            self._queues.forget(void)
            self._void += void
            self._awake.set()
        return void

    async def run(self) -> None:
        """Report to owners, and forget the tasks of those that do not answer; until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._awake.clear()
                self.forget_void()
                void, self._void = self._void, []
                await self._queues.requeue(void)
                for owner in {*self._reports.news, *self.borrowed.owners()}:
                    if owner not in self._reports.under_way and self._is_due(owner):
                        self._reports.under_way[owner] = None
                        group.create_task(self._report(owner))
                await _within(LINGER_S, self._awake.wait)

    def _tell(self, owner: bytes, given: TaskOutcome) -> None:
        news = self._reports.news.setdefault(owner, [])
        if len(news) < NEWS_MAX:
            news.append(given)

    def _is_due(self, owner: bytes) -> bool:
        if self._incarnation_of(owner) is None:
            self._reports.news.pop(owner, None)
            return False
        since_s = self._clock.monotonic() - self._reports.told_at.get(owner, float("-inf"))
        return bool(self._reports.news.get(owner)) or since_s >= REPORT_EVERY_S

    async def _report(self, owner: bytes) -> None:
        """Send an owner a report, with outcomes or without."""
        try:
            incarnation, news = self._incarnation_of(owner), self._reports.news.pop(owner, [])
            rows, later = news[:KEYS_MAX], news[KEYS_MAX:]
            self._reports.told_at[owner] = self._clock.monotonic()
            answer = await self._peers.call(owner, calls.ReportLent(self._queues.crawl_id, to_rows(rows)))
            if isinstance(answer, Failure):
                # An owner that refuses a report has assigned us nothing, or will take it back by itself.
                later = later if answer.kind is FailureKind.REFUSED else [*rows, *later]
            else:
                self.borrowed.heard_by(owner, incarnation, self._clock.monotonic())
            if later:
                self._reports.news[owner] = [*later, *self._reports.news.get(owner, [])][:NEWS_MAX]
        finally:
            del self._reports.under_way[owner]

    def _owner_of(self, key: bytes) -> bytes | None:
        owner = self._peers.view.owner(placement(key))
        return None if owner is None else owner.id


async def _within(seconds: float, wait: Callable[[], Awaitable[Any]]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await wait()
    except TimeoutError:
        return
