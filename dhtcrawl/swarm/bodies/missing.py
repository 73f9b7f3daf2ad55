"""Fetches pages anew whose body no node has any more (design invariant I11).

A participant that is gone took its archive along. If it comes back within `holder_grace_s`, nothing is lost. Otherwise
every owner looks for copies of its pages whose body lay there, where the crawl makes any, and opens the others again: a
new generation, from `pending` on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store import replicas
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.ownership import TakeSnapshot, Test
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.swarm.bodies.absences import Absences

RECORDS_A_SCAN = 2_000
LOOK_EVERY_S = 1.0
SEEK_EVERY_S = 5.0  # for a copy that a node may have which does not answer


@loop_state
class MissingBodies:
    """Looks after the pages of one crawl that one node owns and whose bodies are missing."""

    def __init__(
        self,
        committer: Committer,
        clock: Clock,
        crawl: bytes,
        *,
        grace_s: float,
        absences: Absences,
        claims: Callable[[], Test],
        snapshot: TakeSnapshot,
        opened: Callable[[list[TaskReplica], Merged], None],
        rehome: Callable[[str, list[bytes]], Awaitable[tuple[list[bytes], int]]] | None = None,
        gave_up: Callable[[], None] = lambda: None,
    ) -> None:
        """`claims()` returns an immutable test of which tasks this node may fetch or assign.

        `absences` has the participants that are not there; `opened` sends records to their backups.

        `rehome(node, pages)` lets copies stand in and returns the pages without any, and how many
        others are still missing. `gave_up` is called when `Absences.given_up` has changed.
        """
        self._committer = committer
        self._clock = clock
        self._crawl = crawl
        self._grace_s = grace_s
        self._absences = absences
        self._claims = claims
        self._snapshot = snapshot
        self._opened = opened
        self._rehome = rehome
        self._gave_up = gave_up
        self._gone_at: dict[str, float] = {}
        self._seek_at: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._looking = False

    @property
    def missing(self) -> int:
        """Pages that wait for a node to come back, or to be fetched anew; at least 1 while that is not known."""
        unknown = any(node not in self._absences.missing for node in self._absences.absent())
        return sum(self._absences.missing.values()) + unknown + self._looking

    def view_changed(self, *, ours: bool) -> None:
        """Note that nodes may have come or gone; with `ours` others' keys may be ours now, too."""
        absent = () if ours else self._absences.absent()
        self._absences.missing = {
            node: self._absences.missing[node] for node in absent if node in self._absences.missing
        }
        self._changed.set()

    async def run(self) -> None:
        """Look after absent nodes, until cancelled."""
        while True:
            self._changed.clear()
            absent, now = self._absences.absent(), self._clock.monotonic()
            self._gone_at = {node: self._gone_at.get(node, now) for node in absent}
            self._give_up(frozenset(node for node in absent if now - self._gone_at[node] >= self._grace_s))
            for node in absent:
                over = node in self._absences.given_up
                again = (
                    over
                    and self._absences.missing.get(node)
                    and self._clock.monotonic() >= self._seek_at.get(node, now)
                )
                if node not in self._absences.missing or again:
                    await self._look(node, reopen=over)
                    self._seek_at[node] = self._clock.monotonic() + (SEEK_EVERY_S if over else 0.0)
            try:
                async with asyncio.timeout(LOOK_EVERY_S if absent else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _give_up(self, nodes: frozenset[str]) -> None:
        if nodes != self._absences.given_up:
            self._absences.given_up = nodes
            self._seek_at.clear()
            self._gave_up()

    async def _look(self, node: str, *, reopen: bool) -> None:
        """Count the pages of ours that lie at `node`; with `reopen` find copies of them, or open them again."""
        self._looking = True
        self._absences.more_at.pop(node, None)
        missing, cursor = 0, b""
        while cursor is not None:
            scan: Any = partial(
                replicas.bodies_at, crawl=self._crawl, cursor=cursor, limit=RECORDS_A_SCAN, node=node,
                mine=self._claims(),
            )  # fmt: skip
            keys, cursor = await self._committer.submit(scan)
            missing += len(keys)
            if keys and reopen:
                missing -= await self._see_to(node, keys)
        # After a change during the scan, the pages are counted again.
        if not self._changed.is_set() and node not in self._absences.more_at:
            self._absences.missing[node] = missing
        self._looking = False

    async def _see_to(self, node: str, keys: list[bytes]) -> int:
        """Let copies stand in for pages that lay at `node`, and open the others again; how many are missing no more."""
        nowhere, unsure = (keys, 0) if self._rehome is None else await self._rehome(node, keys)
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
