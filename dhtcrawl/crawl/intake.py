"""Takes in what reaches a crawl from other nodes: links to own, task records, a new view of who owns which keys.

    STORE_TASK ──▶ accept ──▶ on disk ──▶ on the backups ──▶ acked, and queued; the next link to it is known
    a record was merged in ──▶ its task enters or leaves the queue here
    the view changed ──▶ the frontier at once, the store page by page (`run`)

No task is fetched before its backups know of it, because one of them may answer
that it was fetched long ago (design invariant I6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from dhtcrawl.crawl.due_tasks import DueTasks
from dhtcrawl.crawl.frontier import Frontier
from dhtcrawl.crawl.next_round import NextRound
from dhtcrawl.crawl.rounds import CrawlStart
from dhtcrawl.crawl.safe_tasks import SafeTasks
from dhtcrawl.crawl.seed_links import seed_parts
from dhtcrawl.crawl.services import Services
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store import counters, replicas, tasks
from dhtcrawl.storage.store.ownership import NO_KEYS, OwnershipSnapshot
from dhtcrawl.storage.store.records import State
from dhtcrawl.storage.store.replicas import Merged, Swept, TaskReplica
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.storage.store.txn import Txn

RECORDS_A_SWEEP = 2_000
_NOT_SWEPT = object()


class _Sweeps:
    """Whether a sweep of the store is wanted or under way, and for which claim."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.under_way = False
        self.closing = False
        self.claim: object = None
        self.swept: object = _NOT_SWEPT  # the claim that the queues conform to


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
        """`orders` numbers new tasks, on the committer's thread only.

        `changed` is called when there may be something to start, or nothing left.
        """
        self.activity = 0  # grows with each message and each change of view
        self._s = services
        self._start = start
        self._frontier = frontier
        self._due = due
        self._next = next_round
        self._orders = orders
        self._changed = changed
        self._handling = 0
        self._sweeps = _Sweeps()
        self._safe = SafeTasks(services.safe_tasks, start.crawl_id)

    @property
    def idle(self) -> bool:
        """Whether no link is being accepted and no sweep is under way or wanted."""
        return not (self._handling or self._sweeps.under_way or self._sweeps.wanted.is_set())

    async def accept(self, links: list[Link]) -> frozenset[bytes]:
        """Accept links that this node owns or takes into custody; return the new keys once all are safe (I1).

        Raises:
            StorageError: the links cannot be written.
        """
        self.activity += 1
        links = self._safe.unknown(links)
        if not links:
            return NO_KEYS
        self._handling += 1
        era = self._safe.era
        try:
            new = await self._take(links)
            if era == self._safe.era:
                self._note_safe(links)
        finally:
            self._handling -= 1
            self._changed()
        return new

    def let_go(self, merged: Merged) -> None:
        """Queue tasks that another node had in flight; some may have been in the stored queue already."""
        self.merged(merged)
        self._frontier.distrust(self._s.clock.monotonic())
        self._changed()

    def merged(self, merged: Merged) -> None:
        """Apply the outcome of merging other nodes' records into the store, after a message or a sync.

        Records that this node owns must be on its backups, too, before they are
        fetched, or acked as known (I1). A node that is joining may have synced with
        this node and the others before these changes came, so it gets them, too (I4).
        """
        self.activity += 1
        now, ports = self._s.clock.monotonic(), self._s.ports
        fresh = [*merged.fresh, *merged.changed] if merged.changed and ports.replication.joins else merged.fresh
        # A task of another owner is over, and this did not come from the owner, which would
        # have sent the tombstone: tell it, or it may fetch the page.
        owned = frozenset(ports.ownership.owned([copy.key for copy in (*fresh, *merged.changed)]))
        news = [copy for copy in merged.changed if copy.task.state >= State.FETCHED and copy.key not in owned]
        if news:
            ports.replication.tell(news)
        ours = [copy for copy in fresh if copy.key in owned]
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

    def told_on(self, keys: Iterable[bytes]) -> frozenset[bytes]:
        """Those of these tasks that this node owns, while a node joins that is told of each change to them (I4)."""
        ports = self._s.ports
        return frozenset(ports.ownership.owned(keys)) if ports.replication.joins else NO_KEYS

    def known_to_owner(self, keys: Sequence[bytes]) -> None:
        """Note tasks that their owners have, safely: links to them need not be sent.

        Where depth matters, a nearer way to one is news all the same.
        """
        if self._start.spec.settings.depth < 0:
            self._next.outbox.learn(keys)

    def view_changed(self, claim: object) -> None:
        """Nodes came or went; `claim` is the set of keys that this node may fetch.

        If it differs from the last one, forget at once the tasks that this node may not
        fetch any more, and sweep the store for those that it may.
        """
        self.activity += 1
        self._safe.claimed(claim)
        if claim == self._sweeps.swept:
            return
        self._sweeps.claim = claim
        self.look_again()

    def look_again(self) -> None:
        """Forget at once the tasks that this node may not fetch, and sweep the store for those that it may."""
        self._sweeps.swept = _NOT_SWEPT
        self._frontier.disown(self._s.ports.ownership.mine, self._s.clock.monotonic())
        self._sweeps.wanted.set()

    def close(self) -> None:
        """Sweep no more; `run` returns."""
        self._sweeps.closing = True
        self._sweeps.wanted.set()

    async def run(self) -> None:
        """Bring the queues in line with the claim whenever it has changed, until `close`.

        Raises:
            StorageError: the store cannot be read or written.
        """
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
        # Tasks that were queued while this node did not claim them were not added to the frontier.
        self._frontier.distrust(self._s.clock.monotonic())

    async def _seed(self) -> None:
        """Accept the seeds that this node owns, so that each is a task."""
        owns = self._s.ports.ownership.owns
        for part in seed_parts(self._start.spec, wanted=owns):
            mine = [link for link in part.links if owns(link.key)]
            if mine:
                await self.accept(mine)
            else:
                await asyncio.sleep(0)  # making the pages of results may take long
            if self._sweeps.wanted.is_set():
                return  # nodes came or went: it begins anew

    async def _take(self, links: list[Link]) -> frozenset[bytes]:
        """Write links; return the new keys once all are safe."""
        ownership = self._s.ports.ownership
        snapshot = ownership.snapshot(link.key for link in links)
        accepted = await self._submit_links(links, snapshot)
        self._start.counters.urls_seen += accepted.new
        self._start.counters.add(accepted.reopened)
        changed = {key for key, _ in accepted.changed}
        known, doubtful = [link for link in links if link.key not in changed], list[Link]()
        if known and ownership.snapshot(link.key for link in links) != snapshot:
            # Their records were taken for safe under a claim that has changed: these are written once more.
            doubtful = [link for link in known if snapshot.mine(link.key) and not ownership.mine(link.key)]
            changed.update(link.key for link in doubtful)
            known = [link for link in known if link.key not in changed]
        self._due.expect(accepted.queued)
        # Before anything else is awaited: until it is under way, a further link to a new task would count as safe.
        kept = self._keep([TaskReplica(*pair) for pair in accepted.changed], [link.key for link in known])
        new = await self._take(doubtful) if doubtful else NO_KEYS
        await kept
        self._due.add(accepted.queued)
        self._resend(accepted.resend)
        return new.union(task.key for task in accepted.queued)

    def _submit_links(self, links: list[Link], snapshot: OwnershipSnapshot) -> asyncio.Future[tasks.Accepted]:
        crawl, depth_matters = self._start.crawl_id, self._start.spec.settings.depth >= 0
        orders = self._orders

        def write(txn: Txn) -> tasks.Accepted:
            accepted = tasks.accept(txn, crawl, links, orders, depth_matters=depth_matters, safe=snapshot.mine)
            counters.count(txn, crawl, {**accepted.reopened, **({"urls_seen": accepted.new} if accepted.new else {})})
            return accepted

        return self._s.committer.submit(write)

    def _note_safe(self, links: list[Link]) -> None:
        """Note those that this node owns by its claim: what it was lent, or keeps for another, it may lose again."""
        claims = self._s.ports.ownership.snapshot(()).claims
        self._safe.add([link for link in links if claims(link.key)])

    def _keep(self, changed: list[TaskReplica], known: list[bytes]) -> asyncio.Future[None]:
        """Send `changed` records to the backups; done once these have them, and those of `known` that are under way."""
        replication = self._s.ports.replication
        waiting = 1
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def one() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting and not done.done():
                done.set_result(None)

        for key in known if replication.busy else ():
            waiting += replication.when_kept(key, one)
        if changed:
            waiting += 1
            replication.keep(changed, one)
        one()
        return done

    def _resend(self, pages: list[bytes]) -> None:
        if pages:
            self._next.resend(pages)


def _everything(_: bytes) -> bool:
    """Keep every record: `dhtcrawl.swarm.records.sync` drops them once other nodes have them."""
    return True
