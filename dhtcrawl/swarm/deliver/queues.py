"""Decides what goes to other nodes, when, and in which batches. No I/O.

Items for one node wait in a queue. A *slot* takes batches out of it, one after
the other, and exists only while there is something to send; how many slots a
node may have is the credit it gets. A frame costs its receiver a write to disk,
and most of the rest of its cost is the same for one item as for a hundred. So
the first item waits a moment for others, and while a batch is under way the
next one gathers; a further slot is opened early only for a full batch.

    offer ─▶ queue ─▶ LINGERING ── after linger_s ──▶ SENDING ── all taken ──▶ the next batch, or CLOSED
                         └── a full batch waits: at once ─▲└─── some not ──▶ PAUSING ── after pause_s ──▶
                                                              the node is there: back into the queue
                                                              it is gone: given back to the user

Where the batches to all nodes together are bounded, nodes take turns at these
*places*. A batch that is under way for longer than `place_s` gives its place to
another node: so those that are slow take none of what the others share.

Batches hold items of one kind. Items of a kind are sent in the order of the
offers; those that a node did not take go behind the others, so that an item that
is refused again and again does not hold them up.

Memory is bounded by `DeliveryLimits.held_bytes_max` for each node: `offer` takes a
prefix of the items and leaves the rest to the user, who is told (`Room`) when
half of it has become free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

BATCH_ITEMS_MAX = 300  # design: 100 to 300 URLs a frame
# Enough to keep a long line busy: 4 × 300 URLs a round trip of 0.2 s are 6,000 URLs/s.
UNDER_WAY_MAX = 4


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """How a user of this module wants its items to be delivered."""

    batch_bytes_max: int  # an item that is bigger goes alone
    held_bytes_max: int  # for one node, waiting and under way; an item that is bigger is taken only by itself
    batch_items_max: int = BATCH_ITEMS_MAX
    under_way_max: int = UNDER_WAY_MAX  # batches to one node
    all_under_way_max: int | None = None  # places: batches to all nodes together, but for those that are slow
    place_s: float | None = None  # a batch that takes longer is slow, and its place another's; None: none is
    slow_under_way_max: int = 0  # so many at once; beyond, they keep their places
    linger_s: float = 0.0  # how long the first item of a batch waits for others
    pause_s: float = 0.0  # how long a slot waits after a batch of which items were not taken


class Batch(NamedTuple, Generic[T]):
    """Items to send to a node now."""

    node: bytes
    kind: Hashable
    items: list[T]


class Rest(NamedTuple, Generic[T]):
    """What is left of a batch after it was sent."""

    refused: Sequence[T] = ()  # the node did not take these, or did not answer
    unsent: Sequence[T] = ()  # these did not fit after all: they go first in the next batch


class SlotState(Enum):
    """What a slot does."""

    OPENED = auto()
    LINGERING = auto()
    SENDING = auto()
    PAUSING = auto()
    FREE = auto()  # its batch is over
    CLOSED = auto()


@dataclass(eq=False, slots=True)
class Slot(Generic[T]):
    """The right to have one batch under way to a node; only `DeliveryQueues` changes it."""

    node: bytes
    state: SlotState = SlotState.OPENED
    kind: Hashable = None
    items: list[T] = field(default_factory=list)  # SENDING: the batch; PAUSING: what was not taken of it
    items_bytes: int = 0
    has_place: bool = True


class WaitFor(NamedTuple):
    """Call `step` again after so long."""

    seconds: float


class SlotOpened(NamedTuple, Generic[T]):
    """A slot was opened: call `step` for it until that returns None."""

    slot: Slot[T]


class GivenBack(NamedTuple, Generic[T]):
    """A node did not take these, and is gone."""

    node: bytes
    items: list[T]


class Room(NamedTuple):
    """`offer` refused items for this node before, and takes more now."""

    node: bytes


class _Queue(Generic[T]):
    """What is held for one node."""

    __slots__ = ("count", "held_bytes", "kinds", "refused", "slots", "waiting_bytes")

    def __init__(self) -> None:
        self.kinds: dict[Hashable, deque[tuple[T, int]]] = {}  # each with the items' sizes; the next kind first
        self.count = self.waiting_bytes = self.held_bytes = self.slots = 0
        self.refused = False


class DeliveryQueues(Generic[T]):
    """The queues and slots of one user. Call `take_effects` after every other method and act on what it returns."""

    def __init__(self, limits: DeliveryLimits, size_of: Callable[[T], int], is_there: Callable[[bytes], bool]) -> None:
        """`size_of(item)` in bytes, always the same; `is_there(node)`: whether a retry makes sense."""
        self._limits = limits
        self._size_of = size_of
        self._is_there = is_there
        self._queues: dict[bytes, _Queue[T]] = {}  # of nodes for which anything waits or is under way
        self._ready: dict[bytes, None] = {}  # nodes without a slot because of `all_under_way_max`, the next one first
        self._slots = self._slow = 0  # those with a place, and those that have given it up
        self._effects: list[SlotOpened[T] | GivenBack[T] | Room] = []

    @property
    def busy(self) -> bool:
        """Whether anything waits or is under way."""
        return bool(self._queues)

    def held_bytes(self, node: bytes) -> int:
        """The size of what waits for a node or is under way to it."""
        queue = self._queues.get(node)
        return 0 if queue is None else queue.held_bytes

    def take_effects(self) -> list[SlotOpened[T] | GivenBack[T] | Room]:
        """What is to be done outside, in this order."""
        effects, self._effects = self._effects, []
        return effects

    def offer(self, node: bytes, items: Iterable[T], kind: Hashable = None) -> int:
        """Queue items for a node; how many, from the first. The user keeps the others."""
        queue = self._queues.get(node) or _Queue()
        waiting = queue.kinds.get(kind)
        if waiting is None:
            waiting = deque()
        taken = 0
        for item in items:
            size = self._size_of(item)
            if queue.held_bytes and queue.held_bytes + size > self._limits.held_bytes_max:
                queue.refused = True
                break
            queue.held_bytes += size
            queue.waiting_bytes += size
            waiting.append((item, size))
            taken += 1
        if taken:
            queue.count += taken
            queue.kinds[kind] = waiting
            self._queues[node] = queue
        if queue.count and (taken or not queue.slots):
            self._want_slot(node, queue)
        return taken

    def step(self, slot: Slot[T]) -> WaitFor | Batch[T] | None:
        """What a slot does next: wait, or send a batch (then call `over`); None: it is closed."""
        queue = self._queues[slot.node]
        if slot.state is SlotState.SENDING:
            slot.state = SlotState.PAUSING
            return WaitFor(self._limits.pause_s)
        if slot.state is SlotState.PAUSING:
            self._retry(slot, queue)
        if not queue.count or (slot.state is SlotState.FREE and (self._ready or not slot.has_place)):
            self._close(slot, queue)
            return None
        if slot.state is not SlotState.LINGERING and self._limits.linger_s and not self._is_full(queue):
            slot.state = SlotState.LINGERING
            return WaitFor(self._limits.linger_s)
        slot.state = SlotState.SENDING
        self._take_batch(slot, queue)
        return Batch(slot.node, slot.kind, slot.items)

    def is_slow(self, slot: Slot[T]) -> None:
        """Note that a slot's batch is under way for `place_s`: the next node that waits gets its place."""
        if slot.state is SlotState.SENDING and slot.has_place and self._slow < self._limits.slow_under_way_max:
            self._leave_place(slot)
            slot.has_place = False
            self._slow += 1
            self._fill_places()

    def over(self, slot: Slot[T], rest: Rest[T]) -> None:
        """Note that a slot's batch was sent, and all of it was taken but `rest`."""
        assert slot.state is SlotState.SENDING, "a batch of this slot is under way"
        queue = self._queues[slot.node]
        assert len(rest.refused) + len(rest.unsent) <= len(slot.items), "only what was in the batch can be left of it"
        self._requeue(queue, slot.kind, rest.unsent, first=True)
        slot.items = list(rest.refused)
        left_bytes = self._size(rest.refused)
        self._free(slot.node, queue, slot.items_bytes - left_bytes - self._size(rest.unsent))
        slot.items_bytes = left_bytes
        if not slot.items:
            slot.state = SlotState.FREE

    def abandon(self, slot: Slot[T]) -> None:
        """Close a slot, whose items go back into the queue and are sent with the next offer."""
        if slot.state is SlotState.CLOSED:
            return
        queue = self._queues[slot.node]
        self._requeue(queue, slot.kind, slot.items, first=True)
        slot.items = []
        slot.state = SlotState.CLOSED
        queue.slots -= 1
        self._leave_place(slot)
        if not queue.count and not queue.slots:
            del self._queues[slot.node]

    def _want_slot(self, node: bytes, queue: _Queue[T]) -> None:
        """Open a slot if there is none, or if a full batch waits and the node has credit."""
        if queue.slots and not (queue.slots < self._limits.under_way_max and self._is_full(queue)):
            return
        total = self._limits.all_under_way_max
        if total is not None and self._slots >= total:
            self._ready[node] = None
            return
        queue.slots += 1
        self._slots += 1
        self._effects.append(SlotOpened(Slot(node)))

    def _close(self, slot: Slot[T], queue: _Queue[T]) -> None:
        """Close a slot; where others wait for one, the next of them gets it, and this node waits behind them."""
        slot.state = SlotState.CLOSED
        queue.slots -= 1
        self._leave_place(slot)
        if queue.count and not queue.slots:
            self._ready[slot.node] = None
        elif not queue.slots:
            del self._queues[slot.node]
        self._fill_places()

    def _leave_place(self, slot: Slot[T]) -> None:
        if slot.has_place:
            self._slots -= 1
        else:
            self._slow -= 1

    def _fill_places(self) -> None:
        """Give the places that are free to the nodes that wait for one."""
        while self._ready and (total := self._limits.all_under_way_max) is not None and self._slots < total:
            node = next(iter(self._ready))
            del self._ready[node]
            if (waiting := self._queues.get(node)) is not None and waiting.count:
                self._want_slot(node, waiting)

    def _is_full(self, queue: _Queue[T]) -> bool:
        return queue.count >= self._limits.batch_items_max or queue.waiting_bytes >= self._limits.batch_bytes_max

    def _take_batch(self, slot: Slot[T], queue: _Queue[T]) -> None:
        """Move the next batch into a slot. What is left of its kind comes after the other kinds."""
        kind = next(iter(queue.kinds))
        waiting = queue.kinds.pop(kind)
        if len(waiting) <= self._limits.batch_items_max and queue.waiting_bytes <= self._limits.batch_bytes_max:
            batch = list(waiting)  # the usual case
        else:
            fit = fitting((size for _, size in waiting), self._limits.batch_items_max, self._limits.batch_bytes_max)
            batch = [waiting.popleft() for _ in range(fit)]
            if waiting:
                queue.kinds[kind] = waiting
        slot.kind = kind
        slot.items = [item for item, _ in batch]
        slot.items_bytes = sum([size for _, size in batch])
        queue.count -= len(batch)
        queue.waiting_bytes -= slot.items_bytes

    def _retry(self, slot: Slot[T], queue: _Queue[T]) -> None:
        """Queue again, after the pause, what was not taken, or give it back where the node is gone."""
        slot.state = SlotState.FREE
        items, slot.items = slot.items, []
        if self._is_there(slot.node):
            self._requeue(queue, slot.kind, items, first=False)
            return
        self._effects.append(GivenBack(slot.node, items))
        self._free(slot.node, queue, slot.items_bytes)

    def _requeue(self, queue: _Queue[T], kind: Hashable, items: Sequence[T], *, first: bool) -> None:
        """Put a slot's items back into the queue, before or behind the others of their kind."""
        if not items:
            return
        waiting = queue.kinds.setdefault(kind, deque())
        sized = [(item, self._size_of(item)) for item in items]
        queue.count += len(sized)
        queue.waiting_bytes += sum([size for _, size in sized])
        if first:
            waiting.extendleft(reversed(sized))
        else:
            waiting.extend(sized)

    def _size(self, items: Iterable[T]) -> int:
        return sum(map(self._size_of, items))

    def _free(self, node: bytes, queue: _Queue[T], size: int) -> None:
        queue.held_bytes -= size
        if queue.refused and 2 * queue.held_bytes <= self._limits.held_bytes_max:
            queue.refused = False
            self._effects.append(Room(node))


def fitting(sizes: Iterable[int], items_max: int, bytes_max: int) -> int:
    """How many of the first items fit into one message; one at least, where there is one."""
    count = total = 0
    for size in islice(sizes, items_max):
        total += size
        if count and total > bytes_max:
            break
        count += 1
    return count


def in_messages(
    items: Sequence[T], size_of: Callable[[T], int], bytes_max: int, items_max: int
) -> Iterator[Sequence[T]]:
    """Divide items into messages, for a sender that waits for each answer before it sends the next."""
    first = 0
    while first < len(items):
        count = fitting((size_of(items[number]) for number in range(first, len(items))), items_max, bytes_max)
        yield items[first : first + count]
        first += count
