"""Requests and their credit: how many bytes may be unanswered, lane by lane and way by way.

Credit is counted in bytes, so that it bounds memory whatever the requests are.
A frame costs the length it announces, but at least `COST_BYTES_MIN`, which
bounds their number too; one that asks for a long answer costs as much as that
answer, since that is what it makes the receiver hold.

    sender's credit + on the wire + handled by the receiver + owed to the sender = window

The receiver gives credit back when it has answered, and only while the sender
reads. `Asking` is a link's half towards the peer, `Answering` the other one;
`dhtcrawl.rpc.tasks.link` alone uses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dhtcrawl.rpc.tasks.events import Answered, Event, Failure, FailureKind, RequestFailed
from dhtcrawl.rpc.tasks.frame import FRAME_BYTES_MAX, Kind, Malformed
from dhtcrawl.rpc.tasks.messages import (
    ANSWERS,
    REQUEST_ID_MAX,
    Ack,
    Answer,
    Lane,
    Message,
    Refused,
    Reply,
    Request,
    encode,
)
from dhtcrawl.rpc.tasks.rows import TEXT_CHARS_MAX
from dhtcrawl.rpc.tasks.signals import Credit

COST_BYTES_MIN = 1024
# Beyond so much that the peer has not read, no answer is longer than its request has cost.
UNREAD_BYTES_MAX = FRAME_BYTES_MAX
# Backups first: an owner's ack waits for them.
_ORDER = (Lane.BACKUPS, Lane.CALLS, Lane.TASKS)
_LENGTH_BYTES = 4
_LANES = tuple(Lane)  # an enum takes its time to list its members


def cost_of(length: int, message: Message | None) -> int:
    """What a request takes of its lane's window; `length` is what its frame announces."""
    return max(length, COST_BYTES_MIN, getattr(message, "reply_bytes_max", 0))


class _Pending:
    """A request of ours: waiting for credit while it has a frame, then for its answer."""

    __slots__ = ("cost", "deadline", "frame", "items", "kind", "node_id")

    def __init__(self, message: Request, frame: bytes, deadline: float, node_id: bytes | None) -> None:
        self.kind = message.kind
        self.items = message.items
        self.frame = frame
        self.cost = cost_of(len(frame) - _LENGTH_BYTES, message)
        self.deadline = deadline
        self.node_id = node_id


class _Outlet:
    """What waits in a lane, and the credit we have there."""

    __slots__ = ("credit", "queue", "queued_bytes", "window")

    def __init__(self) -> None:
        self.credit = self.window = self.queued_bytes = 0
        self.queue: dict[int, _Pending] = {}

    def remove(self, request_id: int) -> _Pending | None:
        """Take a request out of the queue; None when it does not wait there."""
        pending = self.queue.pop(request_id, None)
        if pending is not None:
            self.queued_bytes -= len(pending.frame)
        return pending


class Asking:
    """Our requests: each comes to exactly one event, unless it is forgotten."""

    def __init__(self, events: list[Event], queue_bytes_max: int, in_flight_max: int) -> None:
        self.timeouts = 0  # in a row
        self._events = events
        self._queue_bytes_max = queue_bytes_max
        self._in_flight_max = in_flight_max
        self._outlets = tuple(_Outlet() for _ in _LANES)
        self._in_order = tuple(self._outlets[lane] for lane in _ORDER)
        self._in_flight: dict[int, _Pending] = {}
        self._late: dict[int, None] = {}  # no caller waits for these any longer, but their answers may come
        self._last_id = 0

    def request(self, message: Request, deadline: float, node_id: bytes | None) -> int | Failure:
        """Queue a request; its number, or why not.

        Raises:
            Malformed: it has no encoding; TooLong: it fits into no frame.
        """
        request_id = (self._last_id + 1) & REQUEST_ID_MAX
        frame = encode(request_id, message)
        outlet = self._outlets[message.lane]
        if outlet.queue and outlet.queued_bytes + len(frame) > self._queue_bytes_max:
            return Failure(FailureKind.BUSY, f"{outlet.queued_bytes:,} bytes wait to be sent already", sent=False)
        self._last_id = request_id
        outlet.queue[request_id] = _Pending(message, frame, deadline, node_id)
        outlet.queued_bytes += len(frame)
        return request_id

    def forget(self, request_id: int) -> None:
        """No caller waits for this request any longer."""
        if self._in_flight.pop(request_id, None) is not None:
            self._late[request_id] = None
        for outlet in self._outlets:
            outlet.remove(request_id)

    def open(self, windows: Iterable[int], node_id: bytes) -> None:
        """The handshake is done: the peer allows so much. Requests for another node fail."""
        for outlet, window in zip(self._outlets, windows, strict=False):
            outlet.credit = outlet.window = window
            for request_id, pending in list(outlet.queue.items()):
                if pending.node_id not in (None, node_id):
                    self._fail_queued(outlet, request_id, FailureKind.NODE, f"{node_id.hex()} listens there")

    def earn(self, grants: Iterable[int]) -> None:
        """The peer gives credit back.

        Raises:
            Malformed: it is more than we had spent.
        """
        for outlet, grant in zip(self._outlets, grants, strict=False):
            outlet.credit += grant
            if outlet.credit > outlet.window:
                raise Malformed("more credit than the window")

    def take(self, bytes_max: int) -> list[bytes]:
        """Frames that may be sent now: each lane's in order, while its credit lasts, until they are `bytes_max`."""
        frames: list[bytes] = []
        for outlet in self._in_order:
            while outlet.queue and bytes_max > 0 and len(self._in_flight) + len(self._late) < self._in_flight_max:
                request_id = next(iter(outlet.queue))
                pending = outlet.queue[request_id]
                # The first waits for enough, the others for it: a long one would otherwise never be sent.
                if pending.cost > outlet.credit:
                    break
                outlet.credit -= pending.cost
                outlet.remove(request_id)
                self._in_flight[request_id] = pending
                frames.append(pending.frame)
                bytes_max -= len(pending.frame)
                pending.frame = b""
        return frames

    def answered(self, request_id: int, kind: int, message: Message | None) -> None:
        """The peer's answer.

        Raises:
            Malformed: it does not answer anything of ours.
        """
        pending = self._in_flight.get(request_id)
        if pending is None:
            if request_id not in self._late:
                raise Malformed("an answer to what was not asked")
            del self._late[request_id]
            return
        if isinstance(message, Refused):
            failure = Failure(FailureKind.REFUSED, f"{message.reason}: {message.detail}")
            self._events.append(RequestFailed(request_id, failure))
        elif isinstance(message, Answer) and kind == ANSWERS[pending.kind]:
            if isinstance(message, Ack) and len(message.codes) != pending.items:
                raise Malformed(f"{len(message.codes)} codes for {pending.items} items")
            self._events.append(Answered(request_id, message))
        else:
            raise Malformed(f"kind {kind:#04x} does not answer {Kind(pending.kind).name}")
        del self._in_flight[request_id]
        self.timeouts = 0

    def expire(self, now: float) -> None:
        """Fail what has waited too long."""
        for outlet in self._outlets:
            for request_id in [number for number, pending in outlet.queue.items() if pending.deadline <= now]:
                self._fail_queued(outlet, request_id, FailureKind.TIMEOUT, "waited for credit until its deadline")
        for request_id in [number for number, pending in self._in_flight.items() if pending.deadline <= now]:
            del self._in_flight[request_id]
            self._late[request_id] = None
            self.timeouts += 1
            self._events.append(RequestFailed(request_id, Failure(FailureKind.TIMEOUT, "no answer until its deadline")))

    def fail_queued(self, kind: FailureKind, detail: str) -> None:
        """Fail what has not been sent."""
        for outlet in self._outlets:
            for request_id in list(outlet.queue):
                self._fail_queued(outlet, request_id, kind, detail)

    def fail_all(self, kind: FailureKind, detail: str) -> None:
        """Fail what has no answer."""
        self.fail_queued(kind, detail)
        self._events.extend(RequestFailed(request_id, Failure(kind, detail)) for request_id in self._in_flight)
        self._in_flight.clear()
        self._late.clear()

    def next_at(self) -> float:
        """The earliest deadline; infinity where nothing is asked."""
        return min((pending.deadline for pending in self._all()), default=float("inf"))

    def queued_bytes(self, lane: Lane) -> int:
        """How much waits in a lane."""
        return self._outlets[lane].queued_bytes

    @property
    def waiting(self) -> int:
        """How many requests have a caller that waits for the answer."""
        return len(self._in_flight) + sum([len(outlet.queue) for outlet in self._outlets])

    @property
    def in_flight(self) -> int:
        """Requests that were sent."""
        return len(self._in_flight)

    @property
    def late(self) -> int:
        """How many answers may come for which no caller waits any longer."""
        return len(self._late)

    def _all(self) -> Iterator[_Pending]:
        yield from self._in_flight.values()
        for outlet in self._outlets:
            yield from outlet.queue.values()

    def _fail_queued(self, outlet: _Outlet, request_id: int, kind: FailureKind, detail: str) -> None:
        outlet.remove(request_id)
        self._events.append(RequestFailed(request_id, Failure(kind, detail, sent=False)))


class Answering:
    """The peer's requests: what it may still send, what is handled, what credit we owe it."""

    def __init__(self, windows: Iterable[int]) -> None:
        self.windows = tuple(windows)[: len(Lane)]
        self.left = list(self.windows)
        self.owed = [0] * len(Lane)
        self.handled = [0] * len(Lane)
        self.unread_bytes = 0  # of answers since `grant` was called last: while the peer does not read it is not
        self._requests: dict[int, tuple[int, int, int, int]] = {}  # lane, cost, kind, items

    def __len__(self) -> int:
        return len(self._requests)

    def take(self, request_id: int, kind: int, length: int, message: Request | None) -> bool:
        """A request came; whether the peer had the credit for it.

        Raises:
            Malformed: its number is in use.
        """
        if request_id in self._requests:
            raise Malformed("a request's number that is in use")
        lane = Lane.CALLS if message is None else message.lane
        cost = cost_of(length, message)
        if cost > self.left[lane]:
            return False
        self.left[lane] -= cost
        self.handled[lane] += cost
        self._requests[request_id] = (lane, cost, kind, 0 if message is None else message.items)
        return True

    def reply(self, request_id: int, message: Reply) -> bytes | None:
        """The answer's frame; None for a request that is not open, as after the end of the connection."""
        request = self._requests.pop(request_id, None)
        if request is None:
            return None
        lane, cost, kind, items = request
        assert isinstance(message, Refused) or message.kind == ANSWERS[kind], "the kind that answers the request"
        assert not isinstance(message, Ack) or len(message.codes) == items, "a code for each item"
        self.handled[lane] -= cost
        self.owed[lane] += cost
        try:
            frame = encode(request_id, message)
        except Malformed as error:
            frame = encode(request_id, Refused("answer", str(error)[:TEXT_CHARS_MAX]))
        # Who says that it wants short answers pays for short ones: a thousand long ones would wait for it.
        if self.unread_bytes > UNREAD_BYTES_MAX and len(frame) - _LENGTH_BYTES > cost:
            frame = encode(request_id, Refused("too-long", "longer than was asked for, and earlier ones are unread"))
        self.unread_bytes += len(frame)
        return frame

    def grant(self) -> Credit | None:
        """The credit to give back now, if any.

        In lots of half a window: a grant for each answer would double the
        frames. But when nothing is left to answer, no answer would bring the
        rest, and the longest request, which may wait for it, has to fit.
        """
        self.unread_bytes = 0
        grants = [
            owed if 2 * owed >= window or (not handled and window - owed < FRAME_BYTES_MAX) else 0
            for owed, handled, window in zip(self.owed, self.handled, self.windows, strict=True)
        ]
        if not any(grants):
            return None
        for lane, grant in enumerate(grants):
            self.owed[lane] -= grant
            self.left[lane] += grant
        return Credit(tuple(grants))

    def clear(self) -> None:
        """The connection ended; answers that still come are dropped."""
        self._requests.clear()
