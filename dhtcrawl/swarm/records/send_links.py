"""Sends links to their owners with STORE_TASK, and reads the acks (design invariants I3, I7).

    outbox ──send──▶ queue of the owner ──STORE_TASK──▶ ACCEPTED, KNOWN ──▶ acked
       ▲                                                MOVED, FULL, FAILED, no answer
       └────────────────────── put_back, after a pause ──────────┘

The owner of a link is looked up each time it leaves the outbox. So a link that
came back goes to its present owner, and nothing here depends on the view.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL, Peers
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Ack, Code, StoreTask
from dhtcrawl.rpc.tasks.rows import PeerRow
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.deliver.deliverer import Deliverer
from dhtcrawl.swarm.deliver.queues import Batch, DeliveryLimits, Rest
from dhtcrawl.swarm.records import wire
from dhtcrawl.swarm.records.tried_owners import TriedOwners
from dhtcrawl.swarm.replica_sets import NO_OWNER, by_owner

LIMITS = DeliveryLimits(
    batch_bytes_max=wire.LINKS_BYTES_MAX,
    # Some 70,000 links to one owner. What is refused then stays in the outbox, whose size stops the fetchers.
    held_bytes_max=16 << 20,
    linger_s=0.01,
    pause_s=0.2,  # long enough for news of a new owner to come
)


@loop_state
class LinkSender:
    """Sends the links of a crawl."""

    def __init__(
        self,
        peers: Peers,
        crawl: bytes,
        group: asyncio.TaskGroup,
        *,
        acked: Callable[[list[Link]], None],
        put_back: Callable[[list[Link]], None],
        moved: Callable[[PeerRow], None],
        tell_crawl: Callable[[bytes], Awaitable[object]],
    ) -> None:
        """`moved` is called with each owner that a MOVED names; `tell_crawl` sends a node the crawl's record."""
        self._peers = peers
        self._crawl = crawl
        self._acked = acked
        self._moved = moved
        self._tell_crawl = tell_crawl
        self._tried = TriedOwners()
        self._deliverer: Deliverer[Link] = Deliverer(
            group,
            self._send,
            LIMITS,
            size_of=wire.link_bytes,
            give_back=lambda owner, links: put_back(links),
        )

    @property
    def busy(self) -> bool:
        """Whether links are under way."""
        return self._deliverer.busy

    def send(self, links: Sequence[Link]) -> list[Link]:
        """Send each link to its owner; `acked` or `put_back` follows for each.

        Returns:
            Those that are refused, as too much waits for their owners; a call of `acked`
            or `put_back` for other links means that there may be room.
        """
        refused: list[Link] = []
        for node, theirs in by_owner(self._peers.view, links, attrgetter("key")).items():
            taken = self._deliverer.put(node, theirs)
            refused += theirs[taken:]
        return refused

    async def _send(self, batch: Batch[Link]) -> Rest[Link]:
        owner, links = batch.node, batch.items
        if owner == NO_OWNER:
            return Rest(refused=links)
        tried = self._tried.besides(owner, (link.key for link in links))
        reply = await self._peers.ask(owner, StoreTask(self._crawl, tuple(map(wire.row_of_link, links)), tried))
        if isinstance(reply, Failure):
            if reply.kind is FailureKind.REFUSED and reply.detail.startswith(UNKNOWN_CRAWL):
                await self._tell_crawl(owner)
            self._tried.failed(owner, (link.key for link in links))
            return Rest(refused=links)
        assert isinstance(reply, Ack), "the kind that answers STORE_TASK"
        return Rest(refused=self._read(reply, links))

    def _read(self, ack: Ack, links: list[Link]) -> list[Link]:
        """Report the links that were taken, and return the others."""
        taken = [link for link, code in zip(links, ack.codes, strict=True) if code <= Code.KNOWN]
        if taken:
            self._tried.taken(link.key for link in taken)
            self._acked(taken)
        if len(taken) == len(links):
            return []
        for peer in dict.fromkeys(ack.moved_to().values()):
            self._moved(peer)
        return [link for link, code in zip(links, ack.codes, strict=True) if code > Code.KNOWN]
