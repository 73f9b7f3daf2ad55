"""The regular work of a node on the routing plane, until it is stopped.

- every `TICK_S`: ping contacts that are suspected or have been silent, and
  spares for which a place became free;
- hand values over to contacts that are new (Kademlia 2002, section 2.5), in
  slices, so that no datagram waits for a scan;
- refresh buckets that saw no look-up for an hour (2.3);
- store values again that no node stored for an hour (2.5), at the closest contacts in
  the table: without a look-up for each key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from random import Random
from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.rpc.contact import Contact
from dhtcrawl.rpc.discovery.pending import TRIES
from dhtcrawl.rpc.discovery.protocol import RoutingProtocol

TICK_S = 1.0
PROBES_A_TICK = 32
HAND_OVER_S = 2.0
REFRESH_CHECK_S = 60.0
REPUBLISH_S = 3600.0
VALUES_A_SLICE = 64


class Upkeep:
    """Keeps a node's table and values in order."""

    def __init__(
        self,
        plane: Callable[[], RoutingProtocol],
        fill: Callable[[bytes], Awaitable[None]],
        clock: Clock,
        rng: Random,
    ) -> None:
        """`plane` is what sends, and has table and values; `fill` fills the bucket of a key."""
        self._plane = plane
        self._fill = fill
        self._clock = clock
        self._rng = rng
        self._stopped = False
        self._pauses: list[asyncio.Future[None]] = []  # one a task of `run`

    def stop(self) -> None:
        self._stopped = True
        for pause in self._pauses:
            _end(pause)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._probe())
            group.create_task(self._hand_over())
            group.create_task(self._refresh())

    async def _probe(self) -> None:
        while not await self._stopped_within(TICK_S):
            plane = self._plane()
            for contact in plane.table.due(self._clock.monotonic(), PROBES_A_TICK):
                # A contact that did not answer twice gets one datagram a probe.
                plane.verifier.verify(contact, tries=1 if plane.table.suspected(contact.id) else TRIES)

    async def _hand_over(self) -> None:
        while not await self._stopped_within(HAND_OVER_S):
            newcomers = self._plane().verifier.newcomers
            # All that came since the last round, in one scan.
            arrived = [newcomers.popleft() for _ in range(len(newcomers))]
            if arrived:
                await self._give(arrived)

    async def _refresh(self) -> None:
        # Spread, so that nodes that were started together do not refresh together.
        while not await self._stopped_within(REFRESH_CHECK_S * self._rng.uniform(0.5, 1.5)):
            now = self._clock.monotonic()
            for key in self._plane().table.stale_keys(now, self._rng):
                if not self._stopped:
                    await self._fill(key)
            await self._republish()

    async def _give(self, newcomers: list[Contact]) -> None:
        plane = self._plane()
        own, k = int.from_bytes(plane.source_node.id, "big"), plane.table.k
        async for key, value in self._slices(iter(plane.storage)):
            # k + 1 and all newcomers: what they displace must still be in sight.
            closest = plane.table.closest(key, k + 1)
            number = int.from_bytes(key, "big")
            arrived = [contact for contact in newcomers if contact in closest[:k]]
            others = [contact for contact in closest if contact not in arrived]
            # One node hands over, the closest of those that had the key before.
            if arrived and (not others or own ^ number < others[0].number ^ number):
                for contact in arrived:
                    await self._store(contact, key, value)

    async def _republish(self) -> None:
        plane = self._plane()
        async for key, value in self._slices(iter(plane.storage.iter_older_than(REPUBLISH_S))):
            # Storing it makes it young again here and, by STORE, at all others.
            plane.storage[key] = value
            for contact in plane.table.closest(key):
                await self._store(contact, key, value)

    async def _slices(self, values: Any) -> Any:
        while chunk := list(islice(values, VALUES_A_SLICE)):
            for item in chunk:
                if self._stopped:
                    return
                yield item
            await asyncio.sleep(0)

    async def _store(self, contact: Contact, key: bytes, value: Any) -> None:
        plane = self._plane()
        result = await plane.store(contact.address, plane.source_node.id, key, value)
        plane.verifier.note(contact, result[0])

    async def _stopped_within(self, seconds: float) -> bool:
        # One timer and one future: this is all that an idle node does, every second.
        loop = asyncio.get_running_loop()
        if self._stopped:
            return True
        pause = loop.create_future()
        self._pauses.append(pause)
        timer = loop.call_later(seconds, _end, pause)
        try:
            await pause
        finally:
            timer.cancel()
            self._pauses.remove(pause)
        return self._stopped


def _end(pause: asyncio.Future[None]) -> None:
    if not pause.done():
        pause.set_result(None)
