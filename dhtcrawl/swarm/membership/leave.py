"""How a node leaves: nothing in flight, nothing that only it has, then goodbye.

drain ──▶ another owns ──▶ pages to an heir ──▶ records to whoever is to keep them ──▶ LEFT
"""

from __future__ import annotations

import asyncio
import logging

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.gossip import Gossip
from dhtcrawl.storage.store.catalog import CrawlRecord
from dhtcrawl.swarm.bodies.adopt import Adoption
from dhtcrawl.swarm.lifecycle.crawls import Crawls
from dhtcrawl.swarm.membership.join import Join
from dhtcrawl.swarm.records.replicate import Replicator
from dhtcrawl.swarm.records.sync import HandedOver

log = logging.getLogger(__name__)

LOOK_S = 0.05
HEIRS_TRIED = 3


@loop_state
class Leave:
    """Takes one node out of its swarm, once."""

    def __init__(
        self,
        node: bytes,
        gossip: Gossip,
        crawls: Crawls,
        replicator: Replicator,
        adoption: Adoption,
        join: Join,
        *,
        drain_s: float,
    ) -> None:
        self._node = node
        self._gossip = gossip
        self._crawls = crawls
        self._replicator = replicator
        self._adoption = adoption
        self._join = join
        self._drain_s = drain_s

    async def drain(self) -> bool:
        """Start nothing more; whether all that was begun is over, and its backups know."""
        self._crawls.hold(True)
        try:
            async with asyncio.timeout(self._drain_s):
                while self._crawls.draining or self._replicator.busy:  # noqa: ASYNC110 - much ends, little is told of
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            return False
        return True

    async def _another_owns(self) -> None:
        """Where all others are joining: own until one of them has heard from here what is over.

        With the last owner gone they would become active with what their disks had, and fetch the rest again.
        """
        if not self._join.active or self._others_own or all(record.ended for record in self._crawls):
            return
        log.info("all other members are still joining; this node goes on until one of them is active")
        try:
            async with asyncio.timeout(self._drain_s):
                while not self._others_own:  # noqa: ASYNC110 - the view is another one each time
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            log.warning("nobody else became active in time; what this node knows stays in its store")

    @property
    def _others_own(self) -> bool:
        """Whether another member can own, or nobody is there who ever could."""
        view = self._gossip.view
        return view.owning != {self._node} or view.ids == (self._node,)

    async def say(self) -> HandedOver:
        """Leave; what became of the records that others are to have."""
        if not await self.drain():
            log.warning("requests in flight did not end in time; others will fetch these pages again")
        await self._another_owns()
        await self._adoption.close()
        left_to: list[tuple[CrawlRecord, bytes]] = []
        for record in list(self._crawls):
            if not record.ended and self._node.hex() in record.participants:
                left_to += await self._bequeath(record)
        handed = await self._join.leave(self._drain_s)
        for record, heir in left_to:
            if record.spec.settings.depth >= 0:
                # Shorter ways to pages were found meanwhile.
                await self._give(heir, record)
        await self._gossip.leave()
        return handed

    async def _bequeath(self, record: CrawlRecord) -> list[tuple[CrawlRecord, bytes]]:
        """Give the pages of a crawl that goes on to another node, and tell everybody who has them; to whom it was."""
        members = self._gossip.view.closest_active(self._node, HEIRS_TRIED + 1)
        for heir in (member.id for member in members if member.id != self._node):
            if await self._give(heir, record):
                known = self._crawls.get(record.crawl_id) or record
                adopted = {**known.adopted, self._node.hex(): heir.hex()}
                await self._crawls.change(record.crawl_id, adopted=adopted)
                return [(record, heir)]
        if len(members) > 1:
            log.warning("nobody took the pages of crawl %s; they stay here", record.crawl_id.hex()[:12])
        return []

    async def _give(self, heir: bytes, record: CrawlRecord) -> bool:
        return await self._adoption.give(heir, record.crawl_id, copies=record.spec.settings.copies > 1)
