"""Sends the bodies of this node's pages to the nodes that are to have copies (`--copies`, design invariant I11).

`dhtcrawl.swarm.bodies.copy_tracker` decides which nodes are asked. Pages for one node go together: a call carries up to
`BATCH_BYTES` of them, one call at a time is under way to a node, and `CALLS_MAX` in all, beside those that are under
way for more than `PLACE_S`. A page that is too big for a call is only announced; the receiver fetches it in chunks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.ports import Copied
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL, Peers
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.bodies.copy_tracker import Ask, CopyCode, CopyTicket, CopyTracker
from dhtcrawl.swarm.calls import bodies as calls
from dhtcrawl.swarm.calls.bodies import CopyRow
from dhtcrawl.swarm.deliver.deliverer import Deliverer
from dhtcrawl.swarm.deliver.queues import Batch, DeliveryLimits, Rest

log = logging.getLogger(__name__)

BATCH_BYTES: Final = 512 << 10
INLINE_BYTES: Final = 256 << 10  # a bigger page is fetched by the receiver; two of this fit into a frame
CALLS_MAX: Final = 4
PLACE_S: Final = 1.0  # a call that takes longer holds none of these places, so that a slow receiver holds up no other
SLOW_CALLS_MAX: Final = 28  # with the others 16 MiB of bodies under way
FETCHED_BYTES_A_S: Final = 256 << 10  # how slowly a receiver may fetch
TICKET_BYTES: Final = 512  # what a page takes in memory while it waits: its body is read when it is sent
LIMITS: Final = DeliveryLimits(
    batch_items_max=calls.COPIES_A_CALL,
    batch_bytes_max=BATCH_BYTES,
    # Some 60,000 pages to one node. Beyond that it is passed over, as if it were full; `CopyWatch` makes up for it.
    held_bytes_max=32 << 20,
    under_way_max=1,
    all_under_way_max=CALLS_MAX,
    place_s=PLACE_S,
    slow_under_way_max=SLOW_CALLS_MAX,
    linger_s=0.02,
)


class PageRows:
    """Reads the pages of a crawl as they are sent; runs on the committer's thread."""

    def __init__(self, crawl: bytes, archive: Directory) -> None:
        self.crawl = crawl
        self._archive = archive

    def read(self, txn: Txn, wanted: Sequence[tuple[bytes, bool]]) -> list[CopyRow | None]:
        """The first of the pages, as many as fit into a call; `wanted` has each one's key and whether with its body.

        None stands for a page that cannot be read.
        """
        rows: list[CopyRow | None] = []
        size = 0
        for key, with_body in wanted:
            parcel = body_copies.parcel(txn, self.crawl, self._archive, key)
            row = None if parcel is None else self._row(parcel, with_body)
            if row is not None:
                size += len(row.record) + len(row.links or b"") + len(row.data or b"")
            if rows and size > BATCH_BYTES:
                break
            rows.append(row)
        return rows

    def _row(self, parcel: body_copies.Parcel, with_body: bool) -> CopyRow | None:
        links = parcel.links if len(parcel.links) <= INLINE_BYTES else None
        if links is None or parcel.length + len(links) > INLINE_BYTES:
            return CopyRow(parcel.key, parcel.record, links, None, parcel.length, fetch=True)
        if not with_body:
            return CopyRow(parcel.key, parcel.record, links, None, parcel.length, fetch=False)
        data = body_copies.members(self._archive, parcel)
        return None if data is None else CopyRow(parcel.key, parcel.record, links, data, parcel.length, fetch=False)


@loop_state
class Copier:
    """Makes the copies of a crawl's pages on one node."""

    def __init__(
        self,
        peers: Peers,
        committer: Committer,
        clock: Clock,
        group: asyncio.TaskGroup,
        pages: PageRows,
        *,
        further: int,
        tell_crawl: Callable[[bytes], Awaitable[object]],
    ) -> None:
        """`further` nodes besides this one are to have a body; `tell_crawl` lets a node know of the crawl."""
        self.bytes_sent = 0
        self._peers = peers
        self._committer = committer
        self._clock = clock
        self._crawl = pages.crawl
        self._pages = pages
        self._tell_crawl = tell_crawl
        self._tracker = CopyTracker(peers.node_id, further)
        self._deliverer: Deliverer[CopyTicket] = Deliverer(
            group, self._deliver, LIMITS, size_of=lambda ticket: TICKET_BYTES
        )

    @property
    def further(self) -> int:
        """How many nodes besides this one are to have a body."""
        return self._tracker.further

    def copy(self, pages: Iterable[bytes], then: Copied, *, again: bool, has_it: Sequence[bytes] = ()) -> None:
        """See that pages have enough copies; `then(page, holders)` for each, once it has them or cannot get more."""
        self._tracker.copy(self._peers.view, self._clock.monotonic(), pages, then, again=again, has_it=has_it)
        self._act()

    def _act(self) -> None:
        while effects := self._tracker.take_effects():
            for effect in effects:
                ticket = effect.ticket
                if not isinstance(effect, Ask):
                    ticket.then(ticket.key, tuple(ticket.has_it))
                elif not self._deliverer.put(effect.node, (ticket,)):
                    now = self._clock.monotonic()
                    self._tracker.answered(self._peers.view, now, effect.node, ticket, CopyCode.REFUSED)

    async def _deliver(self, batch: Batch[CopyTicket]) -> Rest[CopyTicket]:
        node, tickets = batch.node, batch.items
        wanted = [(ticket.key, not ticket.ask_first or node in ticket.lacking) for ticket in tickets]
        rows: list[CopyRow | None] = await self._committer.submit(partial(self._pages.read, wanted=wanted))
        found = [(ticket, row) for ticket, row in zip(tickets, rows, strict=False) if row is not None]
        answer = await self._send(node, [row for _, row in found]) if found else b""
        for ticket, row in zip(tickets, rows, strict=False):
            if row is None:
                self._tracker.lost(ticket)
        view, now = self._peers.view, self._clock.monotonic()
        if isinstance(answer, Failure):
            log.info("%s does not take copies: %s", node.hex()[:12], answer.detail)
            self._tracker.silent(view, now, node, [ticket for ticket, _ in found])
        else:
            for code, (ticket, _) in zip(answer, found, strict=True):
                self._tracker.answered(view, now, node, ticket, CopyCode(code))
        self._act()
        return Rest(unsent=tickets[len(rows) :])

    async def _send(self, node: bytes, rows: list[CopyRow]) -> bytes | Failure:
        """Send pages to a node; one code a page."""
        fetched = sum(row.length + len(row.links or b"") for row in rows if row.fetch)
        pages = calls.CopyPages(self._crawl, tuple(rows))
        self.bytes_sent += sum(len(row.data or b"") for row in rows)
        timeout_s = calls.COPY_TIMEOUT_S + fetched / FETCHED_BYTES_A_S
        answer = await self._peers.call(node, pages, timeout_s=timeout_s)
        if isinstance(answer, Failure) and answer.kind is FailureKind.REFUSED and UNKNOWN_CRAWL in answer.detail:
            await self._tell_crawl(node)
            answer = await self._peers.call(node, pages, timeout_s=timeout_s)
        return answer if isinstance(answer, Failure) else answer.codes
