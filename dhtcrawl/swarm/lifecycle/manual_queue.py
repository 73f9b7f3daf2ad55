"""Tasks that were given up, over the whole swarm: a user lists them, has them tried again, or drops them.

    asked node ──given_up: from a key on──▶ every member: those that it owns
               ──decide: release or drop, URLs or all──▶ every member: does so for those that it owns

This is the manual queue of Yu et al. (2014), but no node keeps one: the records are the queue. An owner gives what it
releases to the backups before it is fetched, as with every record. A crawl that is complete goes on by itself where it
is given work (`dhtcrawl.swarm.lifecycle.reopen_check`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.ask_all import ask_all
from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL, CallRegistry, Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.store import given_up
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.given_up import Dropped, GivenUp, OpenedAgain
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.calls import lifecycle as calls
from dhtcrawl.swarm.calls.lifecycle import DROP, RELEASE
from dhtcrawl.swarm.lifecycle.crawl_runs import CrawlRuns

SCANNED_A_STEP = 2_000
ROWS_MAX = 10_000  # of one node; the rest is cut off

Keep = Callable[[bytes, Sequence[TaskReplica], Callable[[], None]], None]


class Listed(NamedTuple):
    """What the members answered."""

    tasks: list[GivenUp]  # by URL
    silent: list[bytes]  # nodes that did not answer, or not to the end
    cut: bool  # whether there are more


class Decided(NamedTuple):
    """The result of a decision."""

    tasks: int  # that were released or dropped
    silent: list[bytes]


@loop_state
class ManualQueue:
    """Lists and decides what was given up, for a user at this node and for other nodes."""

    def __init__(
        self, peers: Peers, registry: CallRegistry, committer: Committer, runs: CrawlRuns, *, keep: Keep
    ) -> None:
        """`keep(crawl, records, then)` gives records to their backups."""
        self._peers = peers
        self._committer = committer
        self._runs = runs
        self._keep = keep
        registry.serve(calls.ListGivenUp, self._on_list)
        registry.serve(calls.DecideGivenUp, self._on_decide)

    # What a user asks

    async def listed(self, crawl: bytes) -> Listed:
        """All tasks of a crawl that were given up."""
        nodes = self._members()
        found = dict(zip(nodes, await ask_all(nodes, partial(self._list_of, crawl)), strict=True))
        rows = {row.key: row for rows, _ in found.values() for row in rows}
        silent = [node for node, (_, whole) in found.items() if not whole]
        cut = any(len(rows) >= ROWS_MAX for rows, _ in found.values())
        return Listed(sorted(rows.values(), key=lambda row: row.url), silent, cut)

    async def decide(self, crawl: bytes, action: str, urls: Sequence[str] | None) -> Decided:
        """Release or drop tasks by their canonical URLs; None: all that were given up."""
        starts = range(0, 0 if urls is None else len(urls), calls.URLS_A_CALL)
        parts = [None] if urls is None else [tuple(urls[i : i + calls.URLS_A_CALL]) for i in starts]
        nodes = self._members()
        counts = await ask_all(nodes, partial(self._decide_at, crawl, action, parts))
        silent = [node for node, done in zip(nodes, counts, strict=True) if done is None]
        return Decided(sum(done or 0 for done in counts), silent)

    def _members(self) -> list[bytes]:
        return [member.id for member in self._peers.view.members]

    async def _list_of(self, crawl: bytes, node: bytes) -> tuple[list[GivenUp], bool]:
        rows: list[GivenUp] = []
        cursor: bytes | None = b""
        while cursor is not None and len(rows) < ROWS_MAX:
            answer = await self._peers.call(node, calls.ListGivenUp(crawl, cursor))
            if isinstance(answer, Failure):
                return rows, False
            before, cursor = cursor, answer.cursor
            rows += [GivenUp(*row) for row in answer.rows]
            if cursor is not None and cursor <= before:
                return rows, False  # with such a cursor the list would never end
        return rows, True

    async def _decide_at(
        self, crawl: bytes, action: str, parts: Sequence[tuple[str, ...] | None], node: bytes
    ) -> int | None:
        done = 0
        for part in parts:
            answer = await self._peers.call(node, calls.DecideGivenUp(crawl, action, part))
            if isinstance(answer, Failure):
                return None
            done += answer.count
        return done

    # What a node answers

    async def _on_list(self, _asker: bytes, args: calls.ListGivenUp) -> calls.TasksGivenUp:
        found, after = await self._page(args.crawl, args.cursor)
        cut = calls.GIVEN_UP_DETAIL_CHARS_MAX
        rows = tuple(calls.GivenUpRow(row.key, row.url, row.depth, row.attempts, row.detail[:cut]) for row in found)
        return calls.TasksGivenUp(rows, after)

    async def _on_decide(self, _asker: bytes, args: calls.DecideGivenUp) -> calls.TasksDecided | Refused:
        record = self._runs.records.get(args.crawl)
        if record is None:
            return Refused(UNKNOWN_CRAWL)
        wanted = None if args.urls is None else [record.spec.key_of(url) for url in args.urls]
        return calls.TasksDecided(await self._decide(args.crawl, args.action, wanted))

    async def _decide(self, crawl: bytes, action: str, wanted: list[bytes] | None) -> int:
        run = self._runs.of(crawl)
        if action == RELEASE and run is not None:
            run.parts.origins.forgive()
        done = 0
        if wanted is not None:
            return await self._change(crawl, action, wanted)
        cursor: bytes | None = b""
        while cursor is not None:
            found, cursor = await self._page(crawl, cursor)
            done += await self._change(crawl, action, [row.key for row in found])
        return done

    async def _page(self, crawl: bytes, cursor: bytes) -> tuple[list[GivenUp], bytes | None]:
        """Some of our tasks that were given up, after a key, and from where to go on."""
        terms = self._runs.terms(crawl, count())
        if terms is None:
            return [], None
        read: Any = partial(
            given_up.given_up, crawl=crawl, cursor=cursor, scanned_max=SCANNED_A_STEP,
            found_max=calls.GIVEN_UP_ROWS_MAX, mine=terms.snapshot().mine,
        )  # fmt: skip
        found: tuple[list[GivenUp], bytes | None] = await self._committer.submit(read)
        return found

    async def _change(self, crawl: bytes, action: str, wanted: list[bytes]) -> int:
        """Release or drop those of these that we own; return how many."""
        terms = self._runs.terms(crawl, count())
        if terms is None:
            return 0
        now = terms.snapshot(wanted)
        ours = [key for key in wanted if now.mine(key)]
        if not ours:
            return 0
        if action == DROP:
            drop: Any = partial(given_up.drop, crawl=crawl, task_keys=ours)
            gone: Dropped = await self._committer.submit(drop)
            self._keep(crawl, gone.dropped, _nothing)
            await self._count(crawl, gone.counted)
            return len(gone.dropped)
        write: Any = partial(given_up.release, crawl=crawl, task_keys=ours, mine=now.mine, held=now.held)
        again: OpenedAgain = await self._committer.submit(write)
        if again.opened:
            self._keep(crawl, again.opened, partial(self._runs.merged, crawl, again.merged))
        await self._count(crawl, again.counted)
        return len(again.opened)

    async def _count(self, crawl: bytes, counted: Mapping[str, int]) -> None:
        # A run that is being made may have read the counters before they changed.
        run = await self._runs.once_made(crawl) if counted else None
        if run is not None:
            run.counters.heard(counted)


def _nothing() -> None:
    pass
