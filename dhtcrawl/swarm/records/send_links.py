"""Sends links to their owners with STORE_TASK, and reads the acks (design invariants I3, I7).

    outbox ──send──▶ queue of the owner ──STORE_TASK──▶ ACCEPTED, KNOWN ──▶ acked
       ▲                                                MOVED, FULL, FAILED, no answer
       └────────────────────── put_back, after a pause ──────────┘

The owner of a link is looked up each time it leaves the outbox. So a link that
came back goes to its present owner, and nothing here depends on the view. Where
that has not answered for long, though it is a member, the next node is told that
it was tried, and takes the link into custody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter

from dhtcrawl.keyspace import placement
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL, Peers
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Ack, Code, StoreTask
from dhtcrawl.rpc.tasks.rows import PeerRow
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.deliver.deliverer import Deliverer
from dhtcrawl.swarm.deliver.queues import Batch, DeliveryLimits, Rest
from dhtcrawl.swarm.records import wire
from dhtcrawl.swarm.records.silent_nodes import SilentNodes
from dhtcrawl.swarm.records.tried_owners import TriedOwners
from dhtcrawl.swarm.replica_sets import NO_OWNER, by_owner

log = logging.getLogger(__name__)

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
        self._silent = SilentNodes()
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
        by_node = by_owner(self._peers.view, links, attrgetter("key"))
        passed = self._silent.passed_over(asyncio.get_running_loop().time())
        if passed:
            by_node = self._pass_over(passed, by_node)
        for node, theirs in by_node.items():
            taken = self._deliverer.put(node, theirs)
            refused += theirs[taken:]
        return refused

    def _pass_over(self, passed: frozenset[bytes], by_node: dict[bytes, list[Link]]) -> dict[bytes, list[Link]]:
        """The links by the nodes that get them, where these owners do not answer; the only other one gets its own.

        This node takes none into custody itself: it could not give it to an owner that it does not reach.
        """
        view, without = self._peers.view, {*passed, self._peers.node_id}
        found: dict[bytes, list[Link]] = {}
        for owner, links in by_node.items():
            if owner not in passed:
                found.setdefault(owner, []).extend(links)
                continue
            self._tried.failed(owner, (link.key for link in links))
            for link in links:
                nearest = view.closest_active(placement(link.key), len(without) + 1)
                node = next((member.id for member in nearest if member.id not in without), owner)
                found.setdefault(node, []).append(link)
        return found

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
            self._note_silent(owner, reply)
            return Rest(refused=links)
        self._silent.answered(owner)
        assert isinstance(reply, Ack), "the kind that answers STORE_TASK"
        return Rest(refused=self._read(reply, links))

    def _note_silent(self, owner: bytes, failure: Failure) -> None:
        if owner not in self._peers.view:
            return
        silent_s = self._silent.failed(owner, failure, asyncio.get_running_loop().time())
        if silent_s is not None:
            log.warning(
                "node %s is a member and has not answered this node for %.0f s (%s): links to its tasks go to the"
                " next node; see whether a firewall stands between the two",
                owner.hex()[:12],
                silent_s,
                failure.detail,
                extra={"crawl": self._crawl.hex(), "peer": owner.hex()},
            )

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
