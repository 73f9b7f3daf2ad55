"""`--max-pages` over many nodes: who may still start how many pages. Pure.

The coordinator hands the limit out in blocks, and a node starts a page only
within its own. What is handed out is, for each node, one number: `out`, the
pages that the node has used (fetched or in flight) or may still use.

    left = limit - sum of `out` over all nodes that ever were told one

A node alone lowers its number, a coordinator alone raises it, and always in
answer to the node's own word: an ask says how much the node counts as out,
the answer how much it is now. An answer that got lost, or comes after the next
ask, is void for both sides: the node repeats its old number, and the
coordinator believes it. So no number is ever higher at the node than in the
coordinator's book.

A new coordinator first *claims* all members: it picks an epoch above
all it hears of, every member promises to take no answer of an earlier epoch,
and says its number. That is the first phase of Paxos (Lamport 1998) with all
members as the quorum. What is out at nodes that are gone is in the book, which
a coordinator writes to its successors before it answers. What a dead node has
not used stays lost to the crawl, for no node knows that it was not used; one
that comes back says what it has on disk and gives back the rest.

Blocks shrink with what is left (guided self-scheduling, Polychronopoulos &
Kuck 1987), so that the last pages are not all at one node.

A limit may change while the crawl goes on. A node that hears of it gives back what it
has not used and asks anew, so the coordinator's book is right once all have. Pages
that nodes start before they hear of a lower limit count, and may pass it.

Two coordinators at once, in the two halves of a partition, may together hand
out more than the limit: each half counts what the other had when they parted.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.loop_state import loop_state
from dhtcrawl.swarm.calls.lifecycle import BOOK_NODES_MAX, BOOK_ROW_BYTES, EPOCH_MAX, PAGES_MAX
from dhtcrawl.swarm.calls.words import COUNT_MAX

BLOCK_MAX: Final = 64
GIVE_BACK_AFTER_S: Final = 1.0
RETRY_S: Final = 0.5  # after an ask that failed
EMPTY_S: Final = 1.0  # after an answer that there is nothing left

EPOCH_STEP_MAX: Final = 1_000 << 32  # a thousand coordinators, see `next_epoch`

_ROW: Final = struct.Struct(f">{KEY_BYTES}sQQQ")
assert _ROW.size == BOOK_ROW_BYTES


def next_epoch(seen: int, coordinator: bytes) -> int:
    """An epoch above `seen` that no other coordinator picks: a counter, and 32 bits of the node's id below it."""
    return ((seen >> 32) + 1) << 32 | int.from_bytes(coordinator[:4], "big")


def stepped(epoch: int, seen: int) -> int:
    """How far an epoch that another node names is believed, where `seen` is the highest heard of.

    Each new coordinator counts one further; a claim at the last epoch of all would leave the next one none. What is
    lowered is heard again with the next claim, so that an honest number is reached in a few.
    """
    return min(epoch, seen + EPOCH_STEP_MAX)


class PagesAsk(NamedTuple):
    """What a node asks its coordinator: `out` pages are out here, `want` more are wanted; with 0 it gives back."""

    epoch: int
    serial: int
    out: int
    want: int


class _Row(NamedTuple):
    """Of two rows for one node the later stands: a higher epoch, then a higher number within it."""

    epoch: int
    number: int
    out: int


@loop_state
class PageBook:
    """How many pages are out at each node, by the latest word that this node has heard."""

    def __init__(self) -> None:
        self.version = 0  # grows with every change, here only
        self.leaps = 0  # epochs of others that were lowered
        self._rows: dict[bytes, _Row] = {}
        self._changed: dict[bytes, int] = {}  # the version of each row's last change

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def total(self) -> int:
        """Pages that are out."""
        return sum(row.out for row in self._rows.values())

    @property
    def epoch(self) -> int:
        """The latest epoch heard of."""
        return max((row.epoch for row in self._rows.values()), default=0)

    def has_room_for(self, node: bytes) -> bool:
        """Whether a row for this node can be written."""
        return node in self._rows or len(self._rows) < BOOK_NODES_MAX  # a further node gets no pages

    def out(self, node: bytes) -> int:
        """How many pages are out at one node."""
        row = self._rows.get(node)
        return 0 if row is None else row.out

    def put(self, node: bytes, row: tuple[int, int, int]) -> None:
        """Write (epoch, number, out), if that is later than what stands there."""
        if self.has_room_for(node) and row > self._rows.get(node, (-1, 0, 0)):
            self.version += 1
            self._rows[node] = _Row(*row)
            self._changed[node] = self.version

    def rows(self, after: int = 0) -> bytes:
        """The rows that have changed since that version, for the wire."""
        return b"".join(
            _ROW.pack(node, *row) for node, row in sorted(self._rows.items()) if self._changed[node] > after
        )

    def learn(self, rows: bytes) -> None:
        """Take in rows from the wire; one whose numbers are out of range is left out, an epoch far ahead lowered."""
        seen = self.epoch
        for node, *row in _ROW.iter_unpack(rows):
            epoch, number, out = row
            if epoch <= EPOCH_MAX and number <= COUNT_MAX and out <= PAGES_MAX:
                self.leaps += stepped(epoch, seen) < epoch
                self.put(node, (stepped(epoch, seen), number, out))


@loop_state
class PageBlocks:
    """Hands out the pages of a crawl, as its coordinator."""

    def __init__(self, limit: int, book: PageBook) -> None:
        self.limit = limit
        self.book = book
        self.epoch = 0  # 0: we hand out nothing
        self._serials: dict[bytes, int] = {}  # of the members that are claimed: their last ask

    @property
    def left(self) -> int:
        """Pages that no node has been given."""
        return max(0, self.limit - self.book.total)

    def begin(self, epoch: int) -> None:
        """Start to claim the members under a new epoch."""
        self.epoch = epoch
        self._serials.clear()

    def depose(self) -> None:
        """Hand out nothing, until the next `begin`."""
        self.begin(0)

    def unclaimed(self, members: Iterable[bytes]) -> list[bytes]:
        """The members that have not said their number under this epoch."""
        return [node for node in members if node not in self._serials]

    def claimed(self, node: bytes, serial: int, out: int) -> None:
        """Take a member's own number after its ask `serial`; it takes no answers to that and earlier ones."""
        # A node without a row could not be counted: it stays unclaimed, and no node gets more.
        if self.book.has_room_for(node):
            self._serials[node] = serial
            self._put(node, out)

    def ask(self, node: bytes, ask: PagesAsk, members: int) -> int | None:
        """How many pages are out at `node` after this ask; to be answered only once the successors have the book.

        None: a later ask was here before, or the node is not claimed.
        """
        last = self._serials.get(node)
        if last is not None and ask.epoch != self.epoch:
            # The node, or its run of the crawl, began anew, and knows nothing of our claim. Serials tell nothing then.
            del self._serials[node]
            return None
        if last is None or ask.serial <= last:
            return None
        self._serials[node] = ask.serial
        self._put(node, ask.out)
        out = ask.out + min(ask.want, self.left, self._block(members))
        self._put(node, out)
        return out

    def _block(self, members: int) -> int:
        return min(BLOCK_MAX, -(-self.left // (2 * max(1, members))))

    def _put(self, node: bytes, out: int) -> None:
        # The version grows with every change of the book, so it can number them.
        self.book.put(node, (self.epoch, self.book.version + 1, out))


@loop_state
class PageAllowance:
    """The pages that one node may start. With a limit of 0 it may start all, and asks for none."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.out = 0
        self.epoch = 0
        self.serial = 0
        self._pending: PagesAsk | None = None
        self._unsaid = False  # the coordinator counts more as out than we do
        self._block = 0  # what we were given last
        self._not_before = -math.inf
        self._spare_since = math.inf

    def begin(self, used: int, incarnation: int) -> None:
        """Start, before anything else, with `used` pages on disk: so much is out here, whatever was before."""
        self.out = used
        # Above all serials that the node used before it was restarted.
        self.serial = (incarnation & 0x7FFF_FFFF) << 32

    def change(self, limit: int, used: int) -> None:
        """Go on with another limit, 0 for none, and with `used` pages: all that is not used is given back."""
        self.limit = limit
        self.out = used
        self._pending = None
        self._unsaid = True
        self._block = 0
        self._not_before = -math.inf
        self._spare_since = math.inf

    def may_start(self, pages: int, open_: int = 0) -> bool:
        """Whether one more page may be started, with so many fetched and so many in flight or unwritten."""
        return not self.limit or pages + open_ < self.out

    def claim(self, epoch: int) -> int | None:
        """Answer a coordinator's claim: how much is out here, or None where a later one was here before."""
        if epoch < self.epoch:
            return None
        self.epoch = stepped(epoch, self.epoch)
        self._pending = None
        self._unsaid = False
        self._not_before = -math.inf
        return self.out

    def next_ask(self, used: int, queued: int, now: float) -> PagesAsk | None:
        """What to ask, if it is time to; `answered` has to follow. `queued` tasks could be started now or soon."""
        if not self.limit or self._pending is not None:
            return None
        spare = self.out - used
        self._watch_spare(spare - queued, now)
        if now < self._not_before:
            return None
        if now - self._spare_since >= GIVE_BACK_AFTER_S:
            # These pages are given back from this moment, whether or not the coordinator hears of it.
            self.out = used + queued
            self._unsaid = True
            self._spare_since = math.inf
            return self._ask(0)
        if queued > spare and spare <= self._block // 2:
            return self._ask(queued - max(0, spare))
        return self._ask(0) if self._unsaid else None

    def answered(self, ask: PagesAsk, out: int | None, now: float) -> bool:
        """Take the coordinator's answer, None where none came; whether more may be started than before."""
        if ask is not self._pending:
            return False
        self._pending = None
        if out is None or not ask.out <= out <= ask.out + ask.want:
            self._unsaid = True  # the answer may have been lost, and may not be asked for again
            self._not_before = now + RETRY_S
            return False
        self._unsaid = False
        self.out = out
        if ask.want:
            self._block = out - ask.out
            self._not_before = now if self._block else now + EMPTY_S
        return out > ask.out

    def _watch_spare(self, surplus: int, now: float) -> None:
        if surplus <= 0:
            self._spare_since = math.inf
        else:
            self._spare_since = min(self._spare_since, now)

    def _ask(self, want: int) -> PagesAsk:
        self.serial += 1
        self._pending = PagesAsk(self.epoch, self.serial, self.out, min(want, PAGES_MAX))
        return self._pending
