"""Fetches pages anew whose body no node has any more (design invariant I11).

A participant that is gone took its archive along. If it comes back within `holder_grace_s`, nothing is lost. Otherwise
every owner looks for copies of its pages whose body lay there, where the crawl makes any, and opens the others again: a
new generation, from `pending` on.

A node that comes back may lack pages: its disk was restored from an older copy, or lost power before all was on it.
Every owner asks it which of its pages it has, and does with the others as with those of a node that is gone. It may
also lack what the owners of its pages learned meanwhile: that a page has a smaller depth, so that its links are to be
sent again. Every owner tells it. Both does a node, too, that comes to own the page later, or that has itself been
started since: that one asks itself as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Set
from functools import partial
from typing import Any, Protocol

from dhtcrawl.clock import Clock
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store import replicas
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.ownership import TakeSnapshot
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.swarm.bodies.absences import Absences, Awaited
from dhtcrawl.swarm.bodies.held_pages import Lacking

RECORDS_A_SCAN = 2_000
LOOK_EVERY_S = 1.0


class StandIns(Protocol):
    """The copies of a crawl's bodies on other nodes."""

    async def rehome(self, gone: str, pages: list[bytes], /) -> tuple[list[bytes], int]:
        """Let copies stand in; return the pages without any, and how many others are still missing."""
        ...

    @property
    def depth_matters(self) -> bool:
        """Whether a page that is found at a smaller depth sends its links again."""
        ...

    async def lacking(self, pages: list[bytes], /) -> Lacking:
        """Those of these pages that their nodes lack; nodes that did not answer."""
        ...

    async def remind(self, pages: list[bytes], /) -> set[str]:
        """Tell the nodes that have these pages what their records say; return those that could not be told."""
        ...

    def holders_changed(self) -> None:
        """Note that other nodes are given up than before."""
        ...


@loop_state
class MissingBodies:
    """Looks after the pages of a crawl that this node owns and whose bodies are missing."""

    def __init__(
        self,
        committer: Committer,
        clock: Clock,
        crawl: bytes,
        absences: Absences,
        snapshot: TakeSnapshot,
        copies: StandIns,
        opened: Callable[[list[TaskReplica], Merged], None],
    ) -> None:
        """`absences` has the participants that are not there; `opened` sends records to their backups."""
        self._committer = committer
        self._clock = clock
        self._crawl = crawl
        self._absences = absences
        self._snapshot = snapshot
        self._copies = copies
        self._opened = opened
        self._changed = asyncio.Event()
        self._looking = False

    @property
    def missing(self) -> int:
        """Pages that wait for a node to come back, or to be fetched anew; at least 1 while that is not known.

        Nodes that are back and have not been told of their pages count, too.
        """
        return self._absences.pages + self._looking + len(self._absences.back)

    @property
    def awaited(self) -> list[Awaited]:
        """The absent nodes with pages of ours that may yet come back, the one that is given up next first."""
        return self._absences.holders(self._clock.monotonic())

    def view_changed(self, *, ours: bool) -> None:
        """Note that nodes may have come or gone; with `ours` others' keys may be ours now, too."""
        self._absences.view_changed(ours=ours)
        self._changed.set()

    async def run(self) -> None:
        """Look after absent nodes, until cancelled."""
        while True:
            self._changed.clear()
            await self._meet_again()
            absent = self._absences.absent()
            if self._absences.review(absent, self._clock.monotonic()):
                self._copies.holders_changed()
            for node in absent:
                if self._is_absent(node) and self._absences.is_due(node, self._clock.monotonic()):
                    await self._look(node, reopen=node in self._absences.given_up)
                    self._absences.looked(node, self._clock.monotonic())
            try:
                async with asyncio.timeout(LOOK_EVERY_S if absent or self._absences.back else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _look(self, node: str, *, reopen: bool) -> None:
        """Count the pages of ours that lie at `node`; with `reopen` find copies of them, or open them again."""
        self._looking = True
        self._absences.more_at.pop(node, None)
        missing = 0
        async for keys in self._pages_at({node}):
            missing += len(keys)
            if keys and reopen and self._is_absent(node):
                missing -= await self._see_to(node, keys)
        # After a change during the scan, the pages are counted again.
        if not self._changed.is_set() and node not in self._absences.more_at:
            self._absences.missing[node] = missing
        self._looking = False

    def _is_absent(self, node: str) -> bool:
        return node in self._absences.absent()

    async def _meet_again(self) -> None:
        """Look after our pages at nodes that are back; those that do not answer are met again."""
        # Nodes that come back during the scan are met by the next one.
        nodes = set(self._absences.back)
        self._absences.back.clear()
        if not nodes:
            return
        self._looking = True
        again = set[str]()
        async for keys in self._pages_at(nodes):
            if keys:
                found = await self._compared(keys)
                again |= found
                nodes -= found
        # One that is gone by now is back once it is there.
        self._absences.back |= dict.fromkeys(node for node in sorted(again) if not self._is_absent(node))
        self._looking = False

    async def _compared(self, keys: list[bytes]) -> set[str]:
        """See to the pages, of these, that their nodes lack, and tell what the records say, where their depths count.

        Returns:
            The nodes with which this did not succeed.
        """
        lacking = await self._copies.lacking(keys)
        again = set(lacking.silent)
        for node, lacked in lacking.pages.items():
            if await self._see_to(node, lacked) < len(lacked):
                again.add(node)
        return again | await self._copies.remind(keys) if self._copies.depth_matters else again

    async def _pages_at(self, nodes: Set[str]) -> AsyncIterator[list[bytes]]:
        """The keys of our pages that lie at these nodes, a part of the store at a time."""
        cursor: bytes | None = b""
        while cursor is not None:
            scan: Any = partial(
                replicas.bodies_at,
                crawl=self._crawl,
                cursor=cursor,
                limit=RECORDS_A_SCAN,
                nodes=frozenset(nodes),
                mine=self._snapshot(()).claims,
            )
            keys, cursor = await self._committer.submit(scan)
            yield keys

    async def _see_to(self, node: str, keys: list[bytes]) -> int:
        """Let copies stand in for pages that lay at `node`, and open the others again; how many are missing no more."""
        nowhere, unsure = await self._copies.rehome(node, keys)
        now = self._snapshot(nowhere)
        write: Any = partial(
            replicas.reopen,
            crawl=self._crawl,
            task_keys=nowhere,
            when=lambda task: replicas.lies_at(task, node),
            mine=now.mine,
            held=now.held,
        )
        opened, merged = await self._committer.submit(write) if nowhere else ([], None)
        if merged is not None:
            self._opened(opened, merged)
        return len(keys) - unsure - len(nowhere) + len(opened)
