"""What a backup heard of a task before its owner did, on its way there (design invariants I8, I12).

After a partition has healed, those who join tell each of the others what they
know, one after the other; whoever hears that a page is fetched may be its
backup, while its owner is about to fetch it. Told at once, the owner need not,
and passes it on to whoever is joining.

Sent once: a sync with the owner, which all have before long, makes up for what
does not arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Ack, StoreBackup
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.records import wire
from dhtcrawl.swarm.records.mailbox import Mailbox
from dhtcrawl.swarm.records.range_sync import batches

LINGER_S = 0.02


class OwnerNews:
    """Of one node, for all its crawls."""

    def __init__(
        self, peers: Peers, group: asyncio.TaskGroup, *, further: Callable[[bytes, list[TaskReplica]], Awaitable[None]]
    ) -> None:
        """`further(crawl, copies)` merges what an owner knew better."""
        self.records_sent = 0
        self._peers = peers
        self._further = further
        self._mailbox: Mailbox[tuple[bytes, TaskReplica]] = Mailbox(group, self._deliver, linger_s=LINGER_S)

    def tell(self, crawl: bytes, copies: Iterable[TaskReplica]) -> None:
        """Send records to their owners, by the view of now.

        Who is joining learns much that everybody knew: its tidings would be none.
        """
        if self._peers.node_id not in self._peers.view.owning:
            return
        by_owner: dict[bytes, list[tuple[bytes, TaskReplica]]] = {}
        for copy in copies:
            owner = self._peers.view.owner(placement(copy.key))
            if owner is not None and owner.id != self._peers.node_id:
                by_owner.setdefault(owner.id, []).append((crawl, copy))
        for node, items in by_owner.items():
            self._mailbox.put(node, items)

    async def _deliver(self, node: bytes, items: list[tuple[bytes, TaskReplica]]) -> None:
        by_crawl: dict[bytes, list[TaskReplica]] = {}
        for crawl, copy in items:
            by_crawl.setdefault(crawl, []).append(copy)
        for crawl, copies in by_crawl.items():
            for batch in batches(copies):
                self.records_sent += len(batch)
                reply = await self._peers.ask(node, StoreBackup(crawl, tuple(map(wire.record_of, batch))))
                if isinstance(reply, Failure):
                    return
                if isinstance(reply, Ack) and reply.records:
                    await self._further(crawl, wire.copies_of(reply.records, len(batch[0].key)))
