"""Tells owners what a backup learned about their tasks before they did (design invariants I8, I12).

After a partition has healed, nodes that join again tell each of the others what
they know, one after the other. A backup may learn in this way that a page is
fetched while the owner is about to fetch it. Told at once, the owner does not,
and passes the news on to the nodes that join.

News is sent once: a record that does not arrive comes with the next sync with
its owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.messages import Ack, StoreBackup
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.deliver.deliverer import Deliverer
from dhtcrawl.swarm.deliver.queues import Batch, DeliveryLimits, Rest
from dhtcrawl.swarm.records import wire
from dhtcrawl.swarm.replica_sets import NO_OWNER, by_owner

LIMITS = DeliveryLimits(
    batch_bytes_max=wire.RECORDS_BYTES_MAX,
    held_bytes_max=4 << 20,  # some 10,000 records to one owner; more are dropped, a sync brings them
    linger_s=0.02,
)


@loop_state
class OwnerNews:
    """Sends the news of one node, for all its crawls."""

    def __init__(
        self,
        peers: Peers,
        group: asyncio.TaskGroup,
        *,
        further: Callable[[bytes, list[TaskReplica], bytes], Awaitable[object]],
    ) -> None:
        """`further(crawl, copies, node)` merges what an owner knew better."""
        self.records_sent = 0
        self._peers = peers
        self._further = further
        self._deliverer: Deliverer[TaskReplica] = Deliverer(group, self._send, LIMITS, size_of=wire.record_bytes)

    def tell(self, crawl: bytes, copies: Iterable[TaskReplica]) -> None:
        """Send records to their owners, by the present view.

        A node that is joining sends none: most of what it learns all others know.
        """
        view = self._peers.view
        if self._peers.node_id not in view.owning:
            return
        for node, theirs in by_owner(view, copies, lambda copy: copy.key).items():
            if node not in (NO_OWNER, self._peers.node_id):
                self._deliverer.put(node, theirs, crawl)

    async def _send(self, batch: Batch[TaskReplica]) -> Rest[TaskReplica]:
        crawl = batch.kind
        assert isinstance(crawl, bytes)
        self.records_sent += len(batch.items)
        reply = await self._peers.ask(batch.node, StoreBackup(crawl, tuple(map(wire.record_of, batch.items))))
        if isinstance(reply, Ack) and reply.records:
            await self._further(crawl, wire.further_of(reply.records, batch.items), batch.node)
        return Rest()
