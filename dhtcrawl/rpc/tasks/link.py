"""One connection of the task plane, without I/O: handshake, requests, credit, signs of life, the end.

    state       HELLO    PROVEN   GOODBYE (either way)  fault, loss, all done
    ──────────  ───────  ───────  ────────────────────  ─────────────────────
    CONNECTING                    CLOSED                CLOSED                 no bytes flow yet; CONNECTED → GREETED
    GREETED     PROVING           CLOSED                CLOSED                 our HELLO is on its way
    PROVING              OPEN     CLOSED                CLOSED                 our PROOF is, and requests behind it
    OPEN                          DRAINING              CLOSED                 requests go both ways
    DRAINING                      DRAINING              CLOSED                 what was asked is answered, no more asked
    CLOSED                                                                     what `take_bytes` has is the last

Bytes, requests, answers and `now` go in; `take_events` and `take_bytes` give
the results. Each request comes to exactly one `Answered` or `Failed`,
unless it was forgotten. Both ends run this same machine. The shell is
`dhtcrawl.rpc.tasks.connection`; the manner is h11's and aioquic's.

Backups, calls and tasks have credit of their own, and answers need none, so
none of them ever waits for another (design invariant I13).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dhtcrawl.rpc.tasks.events import Asked, Ended, Event, Failure, FailureKind, Opened
from dhtcrawl.rpc.tasks.frame import (
    FIRST_REPLY,
    FIRST_REQUEST,
    FRAME_BYTES_MAX,
    GREETING_BYTES_MAX,
    Body,
    Decoder,
    Malformed,
    TooLong,
    unpack,
)
from dhtcrawl.rpc.tasks.identity_check import IdentityCheck
from dhtcrawl.rpc.tasks.lanes import Answering, Asking
from dhtcrawl.rpc.tasks.messages import Lane, Refused, Reply, Request, decode
from dhtcrawl.rpc.tasks.rows import TEXT_CHARS_MAX
from dhtcrawl.rpc.tasks.signals import (
    Credit,
    Goodbye,
    Hello,
    Ping,
    Pong,
    Proof,
    Signal,
    Why,
    encode_signal,
    parse_signal,
)


class LinkState(Enum):
    """Where a connection stands."""

    CONNECTING = "connecting"
    GREETED = "greeted"
    PROVING = "proving"
    OPEN = "open"
    DRAINING = "draining"
    CLOSED = "closed"


_BEFORE_OPEN = (LinkState.CONNECTING, LinkState.GREETED, LinkState.PROVING)
_IN_HANDSHAKE = (LinkState.GREETED, LinkState.PROVING)
_SENDING = (LinkState.PROVING, LinkState.OPEN, LinkState.DRAINING)


class LinkStep(Enum):
    """What moves it on."""

    CONNECTED = "connected"
    HELLO = "hello"
    PROVEN = "proven"
    GOODBYE = "goodbye"
    ENDED = "ended"


TRANSITIONS: dict[tuple[LinkState, LinkStep], LinkState] = {
    (LinkState.CONNECTING, LinkStep.CONNECTED): LinkState.GREETED,
    (LinkState.CONNECTING, LinkStep.ENDED): LinkState.CLOSED,
    (LinkState.GREETED, LinkStep.HELLO): LinkState.PROVING,
    (LinkState.GREETED, LinkStep.ENDED): LinkState.CLOSED,
    (LinkState.PROVING, LinkStep.PROVEN): LinkState.OPEN,
    (LinkState.PROVING, LinkStep.ENDED): LinkState.CLOSED,
    (LinkState.OPEN, LinkStep.GOODBYE): LinkState.DRAINING,
    (LinkState.OPEN, LinkStep.ENDED): LinkState.CLOSED,
    (LinkState.DRAINING, LinkStep.GOODBYE): LinkState.DRAINING,
    (LinkState.DRAINING, LinkStep.ENDED): LinkState.CLOSED,
}


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """Times in seconds, sizes in bytes."""

    handshake_s: float = 10.0
    keepalive_s: float = 15.0  # silence after which we ask for a sign of life
    silent_s: float = 45.0  # silence after which the peer is taken for dead: two signs asked for in vain
    idle_s: float = 300.0  # without requests for so long, the connection is given up
    drain_s: float = 10.0  # what is not answered so long after a goodbye is lost
    queue_high_bytes: int = 1024 * 1024  # a lane with so much waiting asks its callers to wait
    queue_bytes_max: int = 4 * 1024 * 1024  # and with so much it refuses
    chunk_bytes: int = 256 * 1024  # how much is taken out of the lanes at once
    in_flight_max: int = 4096  # unanswered requests of ours
    frame_s: float = 120.0  # from a frame's first byte to its last
    timeouts_max: int = 16  # so many requests in a row without an answer, and the peer is given up


class _LinkTimes:
    """When what happened last, in seconds on the caller's clock."""

    __slots__ = ("frame_at", "heard_at", "pinged_at", "since", "used_at")

    def __init__(self, now: float) -> None:
        self.frame_at = float("inf")  # the frame that has not ended began
        self.since = now  # of the state
        self.used_at = now  # a request or a reply, either way
        self.heard_at = now
        self.pinged_at = now


class _LinkSignals:
    """What was said about the connection itself."""

    __slots__ = ("goodbye", "goodbye_heard", "pong")

    def __init__(self) -> None:
        self.goodbye = self.goodbye_heard = False
        self.pong: int | None = None  # to be said: only the last ping is answered, so a flood of them costs nothing


class PeerLink:
    """One end of a connection. `hello` is what we say of ourselves, `peer` what the other end said and has proven."""

    def __init__(self, hello: Hello, limits: LinkLimits, now: float, identity: IdentityCheck | None = None) -> None:
        self.state = LinkState.CONNECTING
        self.hello = hello
        self.peer: Hello | None = None
        self._events: list[Event] = []
        self.asking = Asking(self._events, limits.queue_bytes_max, limits.in_flight_max)
        self.answering = Answering(hello.windows)
        self._limits = limits
        self._decoder = Decoder(GREETING_BYTES_MAX)
        self._outbox: list[bytes] = []  # answers and signals: the windows we grant bound it
        self._times = _LinkTimes(now)
        self._said = _LinkSignals()
        self._identity = identity or IdentityCheck()

    @property
    def used_at(self) -> float:
        """When something was asked or answered last, either way."""
        return self._times.used_at

    @property
    def heard_at(self) -> float:
        """When bytes came last; of a living peer at least every `keepalive_s`."""
        return self._times.heard_at

    @property
    def held_bytes(self) -> int:
        """How much of a frame that has not ended is kept."""
        return 0 if self._ended else self._decoder.held_bytes

    @property
    def breached(self) -> bool:
        """Whether the peer has broken the protocol."""
        return self._decoder.fault is not None

    # What the shell tells

    def connected(self, now: float, proven_id: bytes | None = None) -> None:
        """Bytes can flow; `proven_id` is the node that TLS has found at the other end."""
        self._identity.certified = proven_id
        self._move(LinkStep.CONNECTED, now)
        self._times.heard_at = now
        self._say(self.hello)

    def receive(self, data: Body, now: float) -> None:
        """Bytes came."""
        self._times.heard_at = now
        if self._ended:
            return
        began_at = self._times.frame_at
        try:
            for kind, body in self._decoder.feed(data):
                began_at = now
                self._on_frame(kind, body, now)
                if self._ended:
                    return
            if self._decoder.fault is not None:
                raise self._decoder.fault
        except Malformed as fault:
            self._breach(Why.GARBAGE, fault, now)
        self._times.frame_at = min(began_at, now) if self._decoder.held_bytes else float("inf")
        self._end_when_drained(now)

    def lost(self, detail: str, now: float, kind: FailureKind = FailureKind.LOST) -> None:
        """The connection broke, or never came about."""
        self._end(None, kind, detail, now)
        self._outbox.clear()

    def leave(self, why: Why, now: float, detail: str = "") -> None:
        """Ask nothing more, let what was asked be answered, then end."""
        if self.state in _BEFORE_OPEN:
            self._end(why, FailureKind.PARTED, f"we left: {why}", now)
        elif self.state is LinkState.OPEN:
            self._part(Goodbye(why, detail), f"we left: {why}", now)
            self._end_when_drained(now)

    def tick(self, now: float) -> None:
        """Time passed: to be called at `next_at`, harmless at other times."""
        limits, asking = self._limits, self.asking
        asking.expire(now)
        if self.state in _IN_HANDSHAKE and now >= self._times.since + limits.handshake_s:
            self._end(Why.TIMEOUT, FailureKind.CONNECT, f"no handshake within {limits.handshake_s:g} s", now)
        elif self.state is LinkState.DRAINING and now >= self._times.since + limits.drain_s:
            self._end(None, FailureKind.LOST, f"not answered within {limits.drain_s:g} s of the goodbye", now)
        if self.state not in (LinkState.OPEN, LinkState.DRAINING):
            return
        if now >= self._times.heard_at + limits.silent_s:
            self._end(Why.TIMEOUT, FailureKind.LOST, f"silent for {limits.silent_s:g} s", now)
        elif now >= self._times.frame_at + limits.frame_s:
            self._breach(Why.TIMEOUT, Malformed(f"a frame that takes longer than {limits.frame_s:g} s"), now)
        elif asking.timeouts >= limits.timeouts_max or asking.late >= limits.in_flight_max:
            self._end(Why.TIMEOUT, FailureKind.LOST, "its requests are not answered", now)
        elif self.state is LinkState.OPEN and self.idle and now >= self._times.used_at + limits.idle_s:
            self.leave(Why.IDLE, now)
        elif now >= self._ping_at():
            self._times.pinged_at = now
            self._say(Ping(0))

    def next_at(self) -> float:
        """When `tick` is due; infinity when never."""
        limits, at = self._limits, self.asking.next_at()
        if self.state in _IN_HANDSHAKE:
            at = min(at, self._times.since + limits.handshake_s)
        elif self.state in (LinkState.OPEN, LinkState.DRAINING):
            at = min(at, self._times.heard_at + limits.silent_s, self._ping_at(), self._times.frame_at + limits.frame_s)
            if self.state is LinkState.DRAINING:
                at = min(at, self._times.since + limits.drain_s)
            elif self.idle:
                at = min(at, self._times.used_at + limits.idle_s)
        return at

    # Requests

    def request(self, message: Request, now: float, deadline: float, node_id: bytes | None = None) -> int | Failure:
        """Ask the peer: the number under which an answer or a failure will come, or a failure at once.

        Also while the connection is still being made. With `node_id` only
        that node is asked.
        """
        if self.state in (LinkState.DRAINING, LinkState.CLOSED):
            return Failure(FailureKind.PARTED, "the connection is ending", sent=False)
        there = self._identity.claimed
        if there is not None and node_id not in (None, there.node_id):
            return Failure(FailureKind.NODE, f"{there.node_id.hex()} listens there", sent=False)
        self._times.used_at = now
        try:
            return self.asking.request(message, deadline, node_id)
        except TooLong as error:
            return Failure(FailureKind.TOO_LONG, str(error), sent=False)

    def forget(self, request_id: int) -> None:
        """No caller waits for this request any longer: no event will come for it."""
        self.asking.forget(request_id)

    def reply(self, request_id: int, message: Reply, now: float) -> None:
        """Answer the peer. Nothing happens where the connection has ended meanwhile."""
        frame = self.answering.reply(request_id, message)
        if frame is not None:
            self._outbox.append(frame)
            self._times.used_at = now
            self._end_when_drained(now)

    def has_room(self, lane: Lane) -> bool:
        """Whether a caller should ask now, or rather wait."""
        return self.asking.queued_bytes(lane) < self._limits.queue_high_bytes

    @property
    def idle(self) -> bool:
        """Nothing is asked, either way."""
        return not self.asking.waiting and not len(self.answering)

    # What the shell asks for

    def take_events(self) -> list[Event]:
        """What has happened since the last call."""
        if not self._events:
            return []
        events = self._events.copy()
        self._events.clear()
        return events

    def take_bytes(self) -> bytes:
        """Bytes to be sent now; to be called while the transport takes them, until there are none.

        Requests leave their lanes here, and credit is given back here: a peer
        that does not read gets neither.
        """
        if self.state in _SENDING:
            if self._said.pong is not None:
                self._say(Pong(self._said.pong))
                self._said.pong = None
            if self.answering.unread_bytes and (credit := self.answering.grant()) is not None:
                self._say(credit)
            self._outbox += self.asking.take(self._limits.chunk_bytes)
        if not self._outbox:
            return b""
        data = b"".join(self._outbox)
        self._outbox.clear()
        return data

    # Frames

    def _on_frame(self, kind: int, body: Body, now: float) -> None:
        if kind < FIRST_REQUEST:
            self._on_signal(parse_signal(kind, unpack(body)), now)
            return
        if self.state in _IN_HANDSHAKE:
            raise Malformed(_EXPECTED[self.state])
        request_id, message = decode(kind, body)
        if kind >= FIRST_REPLY:
            self.asking.answered(request_id, kind, message)
            self._times.used_at = now
            return
        if self._said.goodbye_heard:
            raise Malformed("a request after the goodbye")
        assert not isinstance(message, Reply)
        if not self.answering.take(request_id, kind, len(body) + 1, message):
            self._breach(Why.CREDIT, Malformed("it sent more than it had credit for"), now)
        elif message is None:
            self.reply(request_id, Refused("unknown", f"kind {kind:#04x}"), now)
        else:
            self._times.used_at = now
            self._events.append(Asked(request_id, message))

    def _on_signal(self, signal: Signal | None, now: float) -> None:
        if self.state in _IN_HANDSHAKE:
            self._on_greeting(signal, now)
        elif isinstance(signal, Hello | Proof):
            raise Malformed("a second HELLO" if isinstance(signal, Hello) else "a PROOF out of place")
        elif isinstance(signal, Goodbye):
            self._said.goodbye_heard = True
            self._part(Goodbye(Why.LEAVING), _said(signal), now)
        elif isinstance(signal, Credit):
            self.asking.earn(signal.lanes)
        elif isinstance(signal, Ping) and not isinstance(signal, Pong):
            self._said.pong = signal.number

    def _on_greeting(self, signal: Signal | None, now: float) -> None:
        if isinstance(signal, Goodbye):
            self._end(None, _REFUSALS.get(signal.reason, FailureKind.PARTED), _said(signal), now)
        elif self.state is LinkState.GREETED and isinstance(signal, Hello):
            self._on_hello(signal, now)
        elif self.state is LinkState.PROVING and isinstance(signal, Proof):
            if self._identity.holds(self.hello, signal):
                self._on_proven(now)
            else:
                self._end(Why.IDENTITY, FailureKind.NODE, "it has not the key of the node that it names", now)
        else:
            raise Malformed(_EXPECTED[self.state])

    def _on_hello(self, peer: Hello, now: float) -> None:
        ours = self.hello
        version = ours.version_with(peer)
        if version is None:
            versions = f"{ours.version_min} to {ours.version_max} here, {peer.version_min} to {peer.version_max} there"
            self._end(Why.VERSION, FailureKind.VERSION, f"versions {versions}", now)
        elif peer.node_id == ours.node_id:
            self._end(Why.SELF, FailureKind.NODE, "we listen there ourselves", now)
        elif misfit := self._identity.misfit(peer):
            self._end(Why.IDENTITY, FailureKind.NODE, misfit, now)
        else:
            self._move(LinkStep.HELLO, now)
            self._identity.claimed = peer
            self._times.used_at = now
            self.asking.open(peer.windows, peer.node_id)
            if not self._identity.signs:
                self._on_proven(now)
            elif self._identity.dialed and not self.asking.waiting:
                # Our signature would be of use to one that passes it on, and to no caller.
                self._end(Why.IDLE, FailureKind.NODE, f"{peer.node_id.hex()} listens there, which is not asked", now)
            else:
                self._say(self._identity.proof(self.hello, peer))

    def _on_proven(self, now: float) -> None:
        peer = self._identity.claimed
        assert peer is not None, "it has said who it is"
        self._move(LinkStep.PROVEN, now)
        self.peer = peer
        self._decoder.limit = FRAME_BYTES_MAX
        self._events.append(Opened(peer))

    # The end

    def _part(self, goodbye: Goodbye, detail: str, now: float) -> None:
        """Say goodbye, once; what has not been sent will not be."""
        self._move(LinkStep.GOODBYE, now)
        if not self._said.goodbye:
            self._said.goodbye = True
            self._say(goodbye)
        self.asking.fail_queued(FailureKind.PARTED, detail)

    def _end_when_drained(self, now: float) -> None:
        said_and_heard = self._said.goodbye and self._said.goodbye_heard
        if self.state is LinkState.DRAINING and said_and_heard and self.idle:
            self._end(None, FailureKind.PARTED, "after a goodbye", now)

    def _end(self, why: Why | None, kind: FailureKind, detail: str, now: float) -> None:
        """Close; with `why` the peer is told."""
        if self._ended:
            return
        if why is not None and self.state is not LinkState.CONNECTING and not self._said.goodbye:
            self._say(Goodbye(why, detail[:TEXT_CHARS_MAX]))
        self._move(LinkStep.ENDED, now)
        self.asking.fail_all(kind, detail)
        self.answering.clear()
        self._events.append(Ended(Failure(kind, detail)))

    def _breach(self, why: Why, fault: Malformed, now: float) -> None:
        """The peer does what the protocol does not allow."""
        self._decoder.fault = fault
        self._end(why, FailureKind.PROTOCOL, str(fault), now)

    def _say(self, signal: Signal) -> None:
        self._outbox.append(encode_signal(signal))

    @property
    def _ended(self) -> bool:
        return self.state is LinkState.CLOSED

    def _ping_at(self) -> float:
        return max(self._times.heard_at, self._times.pinged_at) + self._limits.keepalive_s

    def _move(self, step: LinkStep, now: float) -> None:
        """The one place where the state changes."""
        before, self.state = self.state, TRANSITIONS[self.state, step]
        if self.state is not before:
            self._times.since = now


def _said(goodbye: Goodbye) -> str:
    return f"the peer said goodbye: {goodbye.reason}, {goodbye.detail}".rstrip(", ")


_EXPECTED = {
    LinkState.GREETED: "the first frame is no HELLO",
    LinkState.PROVING: "the frame behind HELLO is no PROOF",
}

# What a goodbye instead of a HELLO means for those who wanted to ask.
_REFUSALS: dict[str, FailureKind] = {
    Why.VERSION: FailureKind.VERSION,
    Why.SELF: FailureKind.NODE,
    Why.FULL: FailureKind.BUSY,
    Why.IDENTITY: FailureKind.NODE,
    Why.TIMEOUT: FailureKind.CONNECT,
    Why.GARBAGE: FailureKind.PROTOCOL,
}
