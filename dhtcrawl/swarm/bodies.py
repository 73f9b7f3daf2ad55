"""Pages whose body nobody has any more are fetched anew (design invariant I11).

A participant of a crawl that is gone took its archive along. If it comes back
within `holder_grace_s`, nothing is lost. Otherwise every owner opens the pages
again whose body was to lie there: a new generation, from `pending` on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.storage import copies
from dhtcrawl.storage.committer import Committer
from dhtcrawl.storage.copies import Copy, Merged

RECORDS_A_SCAN = 2_000
LOOK_EVERY_S = 1.0


class Bodies:
    """Of one crawl on one node."""

    def __init__(
        self,
        committer: Committer,
        clock: Clock,
        crawl: bytes,
        *,
        grace_s: float,
        absent: Callable[[], list[str]],
        mine: Callable[[bytes], bool],
        held: Callable[[bytes], bool],
        opened: Callable[[list[Copy], Merged], None],
    ) -> None:
        """`absent()` names the participants (hex) that are not there; `opened` sends records to their backups."""
        self._committer = committer
        self._clock = clock
        self._crawl = crawl
        self._grace_s = grace_s
        self._absent = absent
        self._mine = mine
        self._held = held
        self._opened = opened
        self._gone_at: dict[str, float] = {}
        self._missing: dict[str, int] = {}  # pages of ours whose body lies at a node that is gone
        self._changed = asyncio.Event()
        self._looking = False

    @property
    def missing(self) -> int:
        """Pages that wait for a node to come back, or to be fetched anew; 1 at least while we do not know."""
        unknown = any(node not in self._missing for node in self._absent())
        return sum(self._missing.values()) + unknown + self._looking

    def view_changed(self) -> None:
        """Nodes may have come or gone, and others' keys may be ours by now."""
        self._missing.clear()
        self._changed.set()

    async def run(self) -> None:
        """Look after absent nodes, until cancelled."""
        while True:
            absent, now = self._absent(), self._clock.monotonic()
            self._gone_at = {node: self._gone_at.get(node, now) for node in absent}
            for node in absent:
                over = now - self._gone_at[node] >= self._grace_s
                if node not in self._missing or (over and self._missing[node]):
                    await self._look(node, reopen=over)
            self._changed.clear()
            try:
                async with asyncio.timeout(LOOK_EVERY_S if absent else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _look(self, node: str, *, reopen: bool) -> None:
        """Count the pages of ours that lie at `node`, and open them again if it has been gone for too long."""
        self._looking = True
        missing, cursor = 0, b""
        while cursor is not None:
            scan: Any = partial(
                copies.bodies_at, crawl=self._crawl, cursor=cursor, limit=RECORDS_A_SCAN, node=node, mine=self._mine
            )
            keys, cursor = await self._committer.submit(scan)
            missing += len(keys)
            if keys and reopen:
                write: Any = partial(
                    copies.reopen, crawl=self._crawl, task_keys=keys, node=node, mine=self._mine, held=self._held
                )
                opened, merged = await self._committer.submit(write)
                self._opened(opened, merged)
                missing -= len(opened)
        # What changed while we looked is looked for again.
        if not self._changed.is_set():
            self._missing[node] = missing
        self._looking = False
