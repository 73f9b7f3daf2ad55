"""Decides which nodes are asked to take copies of which pages, and when a page has enough (I11). No I/O.

Copies go to the active members closest to the task's key, apart from this node. So the next owner of the task most
likely has the body too, and all other nodes know which ones to ask for it.

    copy ─▶ ticket ──Ask──▶ as many nodes as copies are missing
               ▲               ├─ HAS_IT ─▶ enough: Over
               │               ├─ LACKS_IT: asked once more, with the body
               └── the next ◀──┴─ FULL, REFUSED, no answer, no room in its queue
                   none is left: Over, with too few copies
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from dhtcrawl.crawl.ports import Copied
from dhtcrawl.keyspace import placement
from dhtcrawl.rpc.membership.view import View

# For how long a node that is full, or did not answer, is not asked again.
FULL_S: Final = 60.0
SILENT_S: Final = 10.0


class CopyCode(IntEnum):
    """A node's answer about one page that it was offered."""

    HAS_IT = 0  # on its disk
    FULL = 1
    LACKS_IT = 2  # it needs the body, too
    REFUSED = 3


@dataclass(eq=False, slots=True)
class CopyTicket:
    """One page that has too few copies."""

    key: bytes
    then: Copied
    ask_first: bool  # some nodes may have it already: they are offered the record before the body
    has_it: dict[bytes, None]
    asked: dict[bytes, None] = field(init=False, default_factory=dict)
    tried: dict[bytes, None] = field(init=False, default_factory=dict)
    lacking: dict[bytes, None] = field(init=False, default_factory=dict)  # these need the body, too
    over: bool = field(default=False, init=False)


class Ask(NamedTuple):
    """Offer a page to a node."""

    node: bytes
    ticket: CopyTicket


class Over(NamedTuple):
    """Tell the user who has a page: `ticket.then(ticket.key, ticket.has_it)`."""

    ticket: CopyTicket


def targets(view: View, key: bytes, without: Iterable[bytes], wanted: int) -> list[bytes]:
    """The `wanted` active members that are to have a task's body next, best first; fewer where there are fewer."""
    others = dict.fromkeys(without)
    found = view.closest_active(placement(key), wanted + len(others))
    return [member.id for member in found if member.id not in others][:wanted]


class CopyTracker:
    """Tracks the copies that one crawl makes on one node. Act on `take_effects` after every other method."""

    def __init__(self, own: bytes, further: int) -> None:
        """`further` nodes besides this one are to have each body."""
        self.further = further
        self._own = own
        self._avoided: dict[bytes, float] = {}  # node → until when
        self._effects: list[Ask | Over] = []

    def take_effects(self) -> list[Ask | Over]:
        """What the caller is to do, in this order."""
        effects, self._effects = self._effects, []
        return effects

    def copy(
        self, view: View, now: float, pages: Iterable[bytes], then: Copied, *, again: bool, has_it: Sequence[bytes]
    ) -> None:
        """See that pages have enough copies; `again`: some nodes may have them, `has_it`: these do."""
        for page in pages:
            self._further(view, now, CopyTicket(page, then, again, dict.fromkeys(has_it)))

    def answered(self, view: View, now: float, node: bytes, ticket: CopyTicket, code: CopyCode) -> None:
        """Take a node's answer about a page."""
        if ticket.over:
            return
        if code is CopyCode.LACKS_IT and node not in ticket.lacking:
            ticket.lacking[node] = None
            self._effects.append(Ask(node, ticket))
            return
        del ticket.asked[node]
        ticket.tried[node] = None
        if code is CopyCode.HAS_IT:
            ticket.has_it[node] = None
        elif code is CopyCode.FULL:
            self._avoided[node] = now + FULL_S
        self._further(view, now, ticket)

    def silent(self, view: View, now: float, node: bytes, tickets: Iterable[CopyTicket]) -> None:
        """Note that a node gave no answer, or an invalid one: it is not asked for a while."""
        self._avoided[node] = now + SILENT_S
        for ticket in tickets:
            self.answered(view, now, node, ticket, CopyCode.REFUSED)

    def lost(self, ticket: CopyTicket) -> None:
        """End a page that is not here any more, or whose file was taken away: no further node gets it."""
        self._over(ticket)

    def _further(self, view: View, now: float, ticket: CopyTicket) -> None:
        """Ask as many more nodes as copies are missing; end the page when no node is being asked."""
        missing = self.further - len(ticket.has_it) - len(ticket.asked)
        if missing > 0:
            self._avoided = {node: until for node, until in self._avoided.items() if until > now}
            without = [self._own, *ticket.has_it, *ticket.asked, *ticket.tried, *self._avoided]
            for node in targets(view, ticket.key, without, missing):
                ticket.asked[node] = None
                self._effects.append(Ask(node, ticket))
        if not ticket.asked:
            self._over(ticket)

    def _over(self, ticket: CopyTicket) -> None:
        if not ticket.over:
            ticket.over = True
            self._effects.append(Over(ticket))
