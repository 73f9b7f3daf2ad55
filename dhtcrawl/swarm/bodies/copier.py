"""Bodies of pages that lie here, on their way to the nodes that are to have copies (`--copies`, design invariant I11).

Who is to have a copy follows from the task's key: the active members next to
it, this node aside. So whoever owns the task after us most likely has the body,
too, and everybody else knows whom to ask. A member that refuses (its disk is
full) or does not answer is passed over for the next; when nobody is left, the
page has fewer copies.

What is to go to one node goes together: one call carries up to `BATCH_BYTES`
of pages, one call at a time is under way to a node and `CALLS_MAX` in all. A
page that is too big for a call is only announced, and the receiver fetches it
in chunks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, Final, NamedTuple

from dhtcrawl.clock import Clock
from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.storage.archive import body_copies
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.records.mailbox import Mailbox
from dhtcrawl.swarm.records.send_links import UNKNOWN_CRAWL

log = logging.getLogger(__name__)

CALL: Final = "copy_pages"
PAGES_A_CALL: Final = 256
BATCH_BYTES: Final = 512 << 10
INLINE_BYTES: Final = 256 << 10  # a bigger page is fetched by the receiver; two of this fit into a frame
CALLS_MAX: Final = 4
LINGER_S: Final = 0.02
TIMEOUT_S: Final = 15.0  # a node that answers no sooner is most likely gone: others know by then
FETCHED_BYTES_A_S: Final = 256 << 10  # how slow a receiver may be that fetches
# How long a node that refused, or did not answer, is not asked again.
FULL_S: Final = 60.0
SILENT_S: Final = 10.0

Copied = Callable[[bytes, tuple[bytes, ...]], None]


class CopyCode(IntEnum):
    """What became of one page of a call."""

    HAS_IT = 0  # on its disk
    FULL = 1
    LACKS_IT = 2  # send the body, too
    REFUSED = 3


class CopyRow(NamedTuple):
    """One page of a call."""

    key: bytes
    record: bytes  # the page record as stored
    links: bytes | None  # its link keys; None: to be fetched
    data: bytes | None  # its members; None: it may be there already, or is to be fetched
    length: int  # of the members
    fetch: bool


@dataclass(eq=False, slots=True)
class _CopyTicket:
    """One page that has too few copies."""

    key: bytes
    then: Copied
    ask_first: bool  # some may have it already
    has_it: dict[bytes, None]
    asked: dict[bytes, None] = field(default_factory=dict)
    tried: dict[bytes, None] = field(default_factory=dict)
    lacking: dict[bytes, None] = field(default_factory=dict)  # who was asked first, and needs the body
    over: bool = False


class _WantedRow(NamedTuple):
    """What a transaction is to know of a ticket, for one node."""

    key: bytes
    ask_first: bool
    lacking: bool  # the node was asked first, and needs the body


def targets(view: View, key: bytes, without: Iterable[bytes], wanted: int) -> list[bytes]:
    """The `wanted` active members that are to have a task's body next, best first; fewer where there are fewer."""
    others = dict.fromkeys(without)
    found = view.closest_active(placement(key), wanted + len(others))
    return [member.id for member in found if member.id not in others][:wanted]


class Copier:
    """Of one crawl on one node."""

    def __init__(
        self,
        peers: Peers,
        committer: Committer,
        clock: Clock,
        group: asyncio.TaskGroup,
        crawl: bytes,
        archive: Directory,
        *,
        further: int,
        tell_crawl: Callable[[bytes], Awaitable[object]],
    ) -> None:
        """`further` nodes besides this one are to have a body; `tell_crawl` lets a node know of the crawl."""
        self.further = further
        self.calls = 0
        self.bytes_sent = 0
        self._peers = peers
        self._committer = committer
        self._clock = clock
        self._crawl = crawl
        self._archive = archive
        self._tell_crawl = tell_crawl
        self._mailbox: Mailbox[_CopyTicket] = Mailbox(group, self._deliver, linger_s=LINGER_S)
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._avoided: dict[bytes, float] = {}  # node → until when

    def copy(self, pages: Iterable[bytes], then: Copied, *, again: bool, has_it: Sequence[bytes] = ()) -> None:
        """See that pages have enough copies; `then(page, who has them)` for each, once that is so, or cannot be."""
        for page in pages:
            self._further(_CopyTicket(page, then, again, dict.fromkeys(has_it)))

    def _further(self, ticket: _CopyTicket) -> None:
        """Ask as many more as are needed; or it is over."""
        missing = self.further - len(ticket.has_it) - len(ticket.asked)
        if missing > 0:
            now = self._clock.monotonic()
            self._avoided = {node: until for node, until in self._avoided.items() if until > now}
            without = [self._peers.node_id, *ticket.has_it, *ticket.asked, *ticket.tried, *self._avoided]
            for node in targets(self._peers.view, ticket.key, without, missing):
                ticket.asked[node] = None
                self._mailbox.put(node, (ticket,))
        if not ticket.asked:
            self._over(ticket)

    def _over(self, ticket: _CopyTicket) -> None:
        if not ticket.over:
            ticket.over = True
            ticket.then(ticket.key, tuple(ticket.has_it))

    async def _deliver(self, node: bytes, tickets: list[_CopyTicket]) -> None:
        async with self._room:
            wanted = [_WantedRow(each.key, each.ask_first, node in each.lacking) for each in tickets[:PAGES_A_CALL]]
            rows: list[CopyRow | None] = await self._committer.submit(partial(self._rows, wanted=wanted))
            self._mailbox.put(node, tickets[len(rows) :])
            found = [(ticket, row) for ticket, row in zip(tickets, rows, strict=False) if row is not None]
            answer = await self._send(node, [row for _, row in found]) if found else b""
        for ticket, row in zip(tickets, rows, strict=False):
            if row is None:
                self._over(ticket)  # it is not here any more, or its file was taken away
        if isinstance(answer, Failure):
            log.info("%s does not take copies: %s", node.hex()[:12], answer.detail)
            self._avoided[node] = self._clock.monotonic() + SILENT_S
        for number, (ticket, _) in enumerate(found):
            self._answered(node, ticket, CopyCode.REFUSED if isinstance(answer, Failure) else CopyCode(answer[number]))

    def _rows(self, txn: Txn, wanted: Sequence[_WantedRow]) -> list[CopyRow | None]:
        """What to send of the first of these, as many as fit; None for a page that cannot be had."""
        rows: list[CopyRow | None] = []
        size = 0
        for key, ask_first, lacking in wanted:
            parcel = body_copies.parcel(txn, self._crawl, self._archive, key)
            row = None if parcel is None else self._row(parcel, ask_first=ask_first, lacking=lacking)
            if row is not None:
                size += len(row.record) + len(row.links or b"") + len(row.data or b"")
            if rows and size > BATCH_BYTES:
                break
            rows.append(row)
        return rows

    def _row(self, parcel: body_copies.Parcel, *, ask_first: bool, lacking: bool) -> CopyRow | None:
        links = parcel.links if len(parcel.links) <= INLINE_BYTES else None
        if links is None or parcel.length + len(links) > INLINE_BYTES:
            return CopyRow(parcel.key, parcel.record, links, None, parcel.length, fetch=True)
        if ask_first and not lacking:
            return CopyRow(parcel.key, parcel.record, links, None, parcel.length, fetch=False)
        data = body_copies.members(self._archive, parcel)
        return None if data is None else CopyRow(parcel.key, parcel.record, links, data, parcel.length, fetch=False)

    async def _send(self, node: bytes, rows: list[CopyRow]) -> bytes | Failure:
        """One code a page."""
        fetched = sum(row.length + len(row.links or b"") for row in rows if row.fetch)
        args: dict[str, Any] = {"crawl": self._crawl, "pages": [tuple(row) for row in rows]}
        self.calls += 1
        self.bytes_sent += sum(len(row.data or b"") for row in rows)
        timeout_s = TIMEOUT_S + fetched / FETCHED_BYTES_A_S
        answer = await self._peers.call(node, CALL, args, timeout_s=timeout_s)
        if isinstance(answer, Failure) and answer.kind is FailureKind.REFUSED and UNKNOWN_CRAWL in answer.detail:
            await self._tell_crawl(node)
            answer = await self._peers.call(node, CALL, args, timeout_s=timeout_s)
        if isinstance(answer, Failure):
            return answer
        codes = answer.get("codes")
        if not isinstance(codes, bytes) or len(codes) != len(rows) or max(codes) >= len(CopyCode):
            return Failure(FailureKind.PROTOCOL, "pages were sent, and something else than a code for each came")
        return codes

    def _answered(self, node: bytes, ticket: _CopyTicket, code: CopyCode) -> None:
        if ticket.over:
            return
        if code is CopyCode.LACKS_IT and node not in ticket.lacking:
            ticket.lacking[node] = None
            self._mailbox.put(node, (ticket,))
            return
        del ticket.asked[node]
        ticket.tried[node] = None
        if code is CopyCode.HAS_IT:
            ticket.has_it[node] = None
        elif code is CopyCode.FULL:
            self._avoided[node] = self._clock.monotonic() + FULL_S
        self._further(ticket)
