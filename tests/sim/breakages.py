"""The code broken on purpose where nothing public breaks it: each function spoils one thing until its test is over.

What the judge is to catch are mistakes within a class. Only this module names what is private to another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.rpc.tasks.messages import Code
from dhtcrawl.sim import committer
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.storage.archive.archive import Archive
from dhtcrawl.swarm.bodies.copy_watch import CopyWatch
from dhtcrawl.swarm.bodies.missing import MissingBodies
from dhtcrawl.swarm.membership.join import Join
from dhtcrawl.swarm.membership.join_steps import Hold, Settle
from dhtcrawl.swarm.records import sync
from dhtcrawl.swarm.records.inbox import Inbox
from dhtcrawl.swarm.records.sync import Syncer
from dhtcrawl.swarm.replica_sets import Span


def believes_torn_tails(patch: pytest.MonkeyPatch) -> None:
    """An archive does not cut off what a crash left behind the last commit."""
    numbers = count(1000)
    patch.setattr(Archive, "recover", lambda self, txn: setattr(self, "_next", next(numbers)))


def only_greets(patch: pytest.MonkeyPatch) -> None:
    """A newcomer owns before it has asked for the records."""

    async def meet(self: Join, node: bytes, within: Sequence[Span]) -> None:
        await self._membership.exchange(node)
        await self._ports.pull(node)
        self.state.met(node, self._membership.view, self._membership.view)

    patch.setattr(Join, "_meet", meet)


def fetches_before_it_tells(patch: pytest.MonkeyPatch) -> None:
    """A newcomer starts tasks while others still have them in flight."""
    real = Join._tell

    async def tell(self: Join, node: bytes) -> None:
        self._do((Settle(self._membership.view), Hold(False)))
        await asyncio.sleep(5)
        await real(self, node)

    patch.setattr(Join, "_tell", tell)


def takes_every_link(patch: pytest.MonkeyPatch) -> None:
    """A node takes links whether it owns them or not."""

    def sort(self: Inbox, links: Sequence[Any], tried: Any) -> tuple[bytearray, bytearray, list[Any]]:
        return bytearray([Code.ACCEPTED]) * len(links), bytearray(), []

    patch.setattr(Inbox, "_sort", sort)


def drops_what_it_gave_nobody(patch: pytest.MonkeyPatch) -> None:
    """Records are dropped before those that are to keep them have said that they do."""

    async def give(self: Syncer, crawl: bytes, copies: Sequence[Any], *_: Any, **__: Any) -> dict[bytes, set[bytes]]:
        return {copy.key: set() for copy in copies}

    patch.setattr(Syncer, "_give", give)
    patch.setattr(sync, "_all_have", lambda acked, keepers: True)


def commits_at_once(patch: pytest.MonkeyPatch) -> None:
    """Transactions run when they are written, and no caller waits a turn for their outcome."""
    patch.setattr(LoopCommitter, "_hold", lambda self: None)
    patch.setattr(committer, "TURNS", 1)


def misses_no_body(patch: pytest.MonkeyPatch) -> None:
    """A node that is gone is said to have had no page."""

    async def look(self: MissingBodies, node: str, *, reopen: bool) -> None:
        self._absences.missing[node] = 0

    patch.setattr(MissingBodies, "_look", look)


def puts_a_stale_count(patch: pytest.MonkeyPatch) -> None:
    """The count of pages with too few copies is set from what it was before a look, not added to."""
    real = CopyWatch._look

    async def look(self: CopyWatch) -> None:
        before = self._counters.pages_undercopied
        counters, self._counters = self._counters, CrawlCounters(pages_undercopied=before)
        try:
            await real(self)
        finally:
            counters.pages_undercopied = self._counters.pages_undercopied
            self._counters = counters

    patch.setattr(CopyWatch, "_look", look)
