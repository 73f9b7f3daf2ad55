"""What comes to a crawl from other nodes: links to own, records that moved, a new view of who owns what.

    STORE_TASK ──▶ accept ──▶ on disk ──▶ on the backups ──▶ acked, and queued
    a record merged in ──▶ queued here, or out of the queue
    the view changed ──▶ memory at once, the store page by page (`run`)

Nothing is fetched before its backups know of it: what one of them answers may
be that it was fetched long ago (design invariant I6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from dhtcrawl.crawl.due_tasks import DueTasks
from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.rounds import CrawlStart
from dhtcrawl.crawl.services import Services
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store import replicas, tasks
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.records import State
from dhtcrawl.storage.store.replicas import Merged, Swept, TaskReplica
from dhtcrawl.storage.store.tasks import Link

RECORDS_A_SWEEP = 2_000
_NOT_SWEPT = object()


class _Sweeps:
    """Whether the store is to be looked through, and what for."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.under_way = False
        self.closing = False
        self.claim: object = None
        self.swept: object = _NOT_SWEPT  # the claim that the queues are in line with


@loop_state
class Intake:
    """Takes links and records for one crawl."""

    def __init__(
        self,
        services: Services,
        start: CrawlStart,
        frontier: Frontier,
        due: DueTasks,
        next_round: NextRound,
        orders: Iterator[int],
        changed: Callable[[], None],
    ) -> None:
        """`orders` numbers new tasks: on the committer's thread only.

        `changed` is called when there may be something to start, or nothing left.
        """
        self.activity = 0  # grows with everything that came
        self._s = services
        self._start = start
        self._frontier = frontier
        self._due = due
        self._next = next_round
        self._orders = orders
        self._changed = changed
        self._handling = 0
        self._sweeps = _Sweeps()

    @property
    def idle(self) -> bool:
        """Whether nothing that came is still being worked on."""
        return not (self._handling or self._sweeps.under_way or self._sweeps.wanted.is_set())

    async def accept(self, links: list[Link]) -> frozenset[bytes]:
        """Links that this node owns, or takes into custody; the keys that were new. Returns once they are safe (I1)."""
        self.activity += 1
        self._handling += 1
        try:
            accepted = await self._write_links(links)
            self._start.counters.urls_seen += accepted.new
            changed = {key for key, _ in accepted.changed}
            known = [link.key for link in links if link.key not in changed]
            self._due.expect(accepted.queued)
            await self._kept([TaskReplica(*pair) for pair in accepted.changed], known)
            self._due.add(accepted.queued)
            self._resend(accepted.resend)
        finally:
            self._handling -= 1
            self._changed()
        return frozenset(task.key for task in accepted.queued)

    def let_go(self, merged: Merged) -> None:
        """Tasks that another node had in flight were queued; some may have been in the stored queue already."""
        self.merged(merged)
        self._frontier.distrust(self._s.clock.monotonic())
        self._changed()

    def merged(self, merged: Merged) -> None:
        """Records of other nodes were merged into the store, by a message or by a sync.

        What came to us as its owner has to be on our backups, too, before it
        is fetched, or acked as known (I1). And whoever is joining may have
        asked us, and the others, before what changed here had come (I4).
        """
        self.activity += 1
        now, ports = self._s.clock.monotonic(), self._s.ports
        fresh = [*merged.fresh, *merged.changed] if merged.changed and ports.replication.joins else merged.fresh
        # Not from the owner, who buries what is over: there may be one who would fetch it.
        owns = ports.ownership.owns
        news = [copy for copy in merged.changed if copy.task.state >= State.FETCHED and not owns(copy.key)]
        if news:
            ports.replication.tell(news)
        ours = [copy for copy in fresh if owns(copy.key)]
        due = merged.queued if ours else []
        self._due.expect(due)
        if merged.holders:
            ports.record.took_part(merged.holders)
        for host, key in merged.unqueued:
            self._frontier.forget(host, key, now)
            self._due.written(key)  # a backup knew better than we did
        if ours:
            ports.replication.keep(ours, partial(self._due.add, due))
        else:
            self._frontier.add(self._due.ours(merged.queued), now)
        self._resend(merged.resend)
        self._changed()

    def view_changed(self, claim: object) -> None:
        """Others came or went. `claim` says which keys are ours to fetch; equal ones say the same.

        If it is another than before, what is not ours any more is forgotten at
        once, and the store is looked through for what is.
        """
        self.activity += 1
        if claim == self._sweeps.swept:
            return
        self._sweeps.claim = claim
        self.look_again()

    def look_again(self) -> None:
        """Forget at once what is not ours, and look through the store for what is."""
        self._sweeps.swept = _NOT_SWEPT
        self._frontier.disown(self._s.ports.ownership.mine, self._s.clock.monotonic())
        self._sweeps.wanted.set()

    def close(self) -> None:
        """No more sweeps."""
        self._sweeps.closing = True
        self._sweeps.wanted.set()

    async def run(self) -> None:
        """Bring the queues in line with the view, whenever it has changed, until `close`."""
        while True:
            await self._sweeps.wanted.wait()
            self._sweeps.wanted.clear()
            if self._sweeps.closing:
                return
            self._sweeps.under_way = True
            claim = self._sweeps.claim
            await self._sweep()
            await self._seed()
            self._sweeps.under_way = False
            if not self._sweeps.wanted.is_set():
                self._sweeps.swept = claim
            self._changed()

    async def _sweep(self) -> None:
        cursor: bytes | None = b""
        while cursor is not None and not self._sweeps.wanted.is_set():
            snapshot = self._s.ports.ownership.snapshot()
            sweep = partial(
                replicas.sweep,
                crawl=self._start.crawl_id,
                cursor=cursor,
                limit=RECORDS_A_SWEEP,
                mine=snapshot.mine,
                held=snapshot.held,
                keep=_everything,
            )
            swept: Swept = await self._s.committer.submit(sweep)
            now = self._s.clock.monotonic()
            for host, key in swept.unqueued:
                self._frontier.forget(host, key, now)
            self._frontier.add(self._due.ours(swept.queued), now)
            self.activity += bool(swept.queued or swept.unqueued or swept.dropped)
            cursor = swept.cursor
            self._changed()
        # What was queued while it was not ours to fetch was not told to the frontier.
        self._frontier.distrust(self._s.clock.monotonic())

    async def _seed(self) -> None:
        """Whoever owns a seed makes sure that it is a task."""
        links = [Link(self._start.spec.key_of(seed), seed, 0, "", 0, True) for seed in self._start.spec.seeds]
        mine = [link for link in links if self._s.ports.ownership.owns(link.key)]
        if mine:
            await self.accept(mine)

    async def _write_links(self, links: list[Link]) -> tasks.Accepted:
        """Write links; those whose records were taken for safe under a claim that is gone are looked at once more."""
        ownership = self._s.ports.ownership
        snapshot = ownership.snapshot(link.key for link in links)
        accepted = await self._submit_links(links, snapshot)
        changed = {key for key, _ in accepted.changed}
        known = [link for link in links if link.key not in changed]
        doubtful = [link for link in known if snapshot.mine(link.key) and not ownership.mine(link.key)]
        if not doubtful:
            return accepted
        again = await self._submit_links(doubtful, ownership.snapshot(link.key for link in doubtful))
        return tasks.Accepted(
            [*accepted.queued, *again.queued],
            [*accepted.resend, *again.resend],
            accepted.new + again.new,
            [*accepted.changed, *again.changed],
        )

    def _submit_links(self, links: list[Link], snapshot: OwnershipSnapshot) -> asyncio.Future[tasks.Accepted]:
        write = partial(
            tasks.accept,
            crawl=self._start.crawl_id,
            links=links,
            orders=self._orders,
            depth_matters=self._start.spec.settings.depth >= 0,
            safe=snapshot.mine,
        )
        return self._s.committer.submit(write)

    async def _kept(self, changed: list[TaskReplica], known: list[bytes]) -> None:
        """Return once the backups have these records, and those that are on their way there already."""
        replication = self._s.ports.replication
        waiting = 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def one() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting and not done.done():
                done.set_result(None)

        for key in known:
            waiting += replication.when_kept(key, one)
        if changed:
            waiting += 1
            replication.keep(changed, one)
        one()
        await done

    def _resend(self, pages: list[bytes]) -> None:
        if pages:
            self._next.resend(pages)


def _everything(_: bytes) -> bool:
    """Records go when another node has them, see `dhtcrawl.swarm.records.sync`."""
    return True
