"""Tells people how a crawl stands at all nodes: `crawl_progress` at the coordinator, out of what its waves bring.

However many ask, and however often, a wave is made no sooner than `fresh_s` after the last one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import Final

from dhtcrawl.clock import Clock
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.storage.store.crawl_record import CrawlRecord
from dhtcrawl.swarm.calls import lifecycle as calls
from dhtcrawl.swarm.lifecycle.roll import Roll

FRESH_S: Final = 0.4  # older figures are heard anew before people are told them
FRESH_WAIT_S: Final = 1.0  # but they are told after so long in any case: a member may not answer


@loop_state
class PeopleDesk:
    """The figures of one crawl at one node, which coordinates it or may have to."""

    def __init__(self, peers: Peers, clock: Clock, roll: Roll, wake: Callable[[], None]) -> None:
        """`wake()` has a coordinator make its next wave now."""
        self.asked = False  # whether the coordinator has asked this node since it was last set to False
        self._roll = roll
        self._peers = peers
        self._clock = clock
        self._wake = wake
        self._waved = asyncio.Event()  # a new one for each wave, set at its end
        self._waved_at = -math.inf

    def coordinator_asked(self, args: calls.ReportCrawl) -> None:
        """Take what the coordinator tells in its wave."""
        self.asked = True
        self._roll.hear_of(args.gone, self._clock.monotonic())

    def told(self, members: Iterable[bytes]) -> tuple[calls.GoneRow, ...]:
        """What a coordinator tells those that may follow it in a wave."""
        return self._roll.told(self._peers.node_id, members, self._clock.monotonic())

    def heard(self, node: bytes, report: calls.CrawlStanding) -> None:
        """Take a member's report; it counts at once, whoever else is slow."""
        self._roll.heard(node, report, self._clock.monotonic())

    def wave_over(self) -> None:
        """Note that all members have reported, or did not in time."""
        self._waved_at = self._clock.monotonic()
        self._waved.set()
        self._waved = asyncio.Event()

    def elapsed_s(self) -> float:
        """How long the crawl has gone on, whichever nodes were there."""
        return self._roll.elapsed_s(self._clock.monotonic())

    def totals(self) -> dict[str, int | float]:
        """The figures of all nodes, added up."""
        return self._roll.totals(self._peers.view.ids)

    async def answer(self, record: CrawlRecord, *, nodes: bool) -> calls.CrawlFigures:
        """The answer to `crawl_progress` at the coordinator, with a row for each node where `nodes` are wanted."""
        if self._clock.monotonic() - self._waved_at > FRESH_S:
            self._wake()
            try:
                async with asyncio.timeout(FRESH_WAIT_S):
                    await self._waved.wait()
            except TimeoutError:
                pass  # the row of each node says how old its figures are
        now, rows_max = self._clock.monotonic(), calls.PROGRESS_ROWS_MAX if nodes else 0
        return self._roll.figures(record, self._peers.view.ids, now, nodes_max=rows_max)
