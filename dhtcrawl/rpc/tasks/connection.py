"""The asyncio shell around one `PeerLink`: a Protocol that carries its bytes and wakes the callers that wait.

No task a frame: what comes in is handled in `data_received`, an answer that
takes time arrives through its future's callback, and all that was written in
one turn of the loop leaves in one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from dhtcrawl.rpc.contact import canonical_host
from dhtcrawl.rpc.tasks.events import Answered, Asked, Ended, Event, Failure, FailureKind, Opened, RequestFailed
from dhtcrawl.rpc.tasks.link import LinkState, PeerLink
from dhtcrawl.rpc.tasks.messages import Answer, Lane, Refused, Reply, Request
from dhtcrawl.rpc.tasks.signals import Hello, Why
from dhtcrawl.rpc.tasks.sockets import PeerProof

Address = tuple[str, int]
# Answers with a value, or a future of one; it is called from the loop and must not block.
Handler = Callable[[Hello, Request], "Reply | asyncio.Future[Reply]"]
# How long the peer may take to read our last bytes and go, before the connection is cut.
CLOSE_S = 2.0
WRITE_BUFFER_BYTES = 256 * 1024
_LANES = tuple(Lane)  # an enum takes its time to list its members


class NoMember(Exception):
    """What is at the other end of a connection is no member of the swarm."""


class Owner(Protocol):
    """Keeps the connections, and hears what becomes of them."""

    def proven(self, transport: asyncio.BaseTransport) -> PeerProof | None:
        """The member at the other end; None where it need not be one.

        Raises:
            NoMember: it is none, and needs to be.
        """

    def made(self, connection: Connection) -> Why | None:
        """It is connected, and its `remote_host` known; why it is to end at once, if it is."""

    def holds(self, connection: Connection, held_bytes: int) -> None:
        """So much of a frame that has not ended is kept of it now."""

    def opened(self, connection: Connection, hello: Hello) -> None:
        """The handshake is done."""

    def ended(self, connection: Connection, failure: Failure) -> None:
        """No request will come or go any more."""

    def closed(self, connection: Connection) -> None:
        """Its socket is gone."""


class _LinkTimer:
    """Calls `due(now)` when the link's next tick is, or other code once the link is closed."""

    __slots__ = ("_due", "_handle", "_link", "_loop", "armed_for", "at")

    def __init__(self, link: PeerLink, loop: asyncio.AbstractEventLoop, due: Callable[[float], None]) -> None:
        self.at = float("inf")
        self.armed_for = link.state
        self._link = link
        self._loop = loop
        self._due = due
        self._handle: asyncio.TimerHandle | None = None

    def arm(self) -> None:
        self.armed_for = self._link.state
        at = self._link.next_at()
        if at == self.at:
            return
        self.disarm()
        if at < float("inf"):
            self.at = at
            self._handle = self._loop.call_at(at, self._fire)

    def disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle, self.at = None, float("inf")

    def call_instead(self, after_s: float, function: Callable[[], None]) -> None:
        self.disarm()
        self._handle = self._loop.call_later(after_s, function)

    def _fire(self) -> None:
        # A loop may call a little early, by its clock's resolution.
        now = max(self._loop.time(), self.at)
        self._handle, self.at = None, float("inf")
        self._due(now)


class Connection(asyncio.Protocol):
    """One connection, from before it is made; `address` is where we dialed, None for one we accepted."""

    def __init__(self, link: PeerLink, handler: Handler, owner: Owner, address: Address | None) -> None:
        self.link = link
        self.address = address
        self.remote_host = ""
        self._handler = handler
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._writable = False
        self._answers: dict[int, asyncio.Future[Answer | Failure]] = {}
        self._waiters: tuple[deque[asyncio.Future[None]], ...] = tuple(deque() for _ in _LANES)
        self._scheduled = False
        self._timer = _LinkTimer(link, self._loop, self._tick)
        self._timer.arm()

    @property
    def usable(self) -> bool:
        """Whether requests can be given to it."""
        return self.link.state not in (LinkState.DRAINING, LinkState.CLOSED)

    # What callers ask

    async def request(self, message: Request, deadline: float, node_id: bytes | None) -> Answer | Failure:
        """The peer's answer. Waits while the lane is full; a caller may be cancelled at any time."""
        lane = message.lane
        if (self._waiters[lane] or not self.link.has_room(lane)) and not await self._room(lane, deadline):
            return Failure(FailureKind.BUSY, "waited for the peer to take more until its deadline", sent=False)
        request_id = self.link.request(message, self._loop.time(), deadline, node_id)
        if isinstance(request_id, Failure):
            self._wake(lane)
            return request_id
        future: asyncio.Future[Answer | Failure] = self._loop.create_future()
        self._answers[request_id] = future
        self._schedule()
        if deadline < self._timer.at:
            self._timer.arm()
        try:
            return await future
        finally:
            if self._answers.pop(request_id, None) is not None:
                self.link.forget(request_id)
                self._schedule()

    def leave(self, why: Why) -> None:
        """Part in peace."""
        self.link.leave(why, self._loop.time())
        self._drive()

    def failed(self, detail: str) -> None:
        """Note that the connection was not made."""
        self.link.lost(detail, self._loop.time(), FailureKind.CONNECT)
        self._drive()
        self._owner.closed(self)

    def abort(self) -> None:
        """Cut it, whatever is unsent."""
        self.link.lost("cut", self._loop.time())
        self._drive()
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_members(self) -> bool:
        """Whether the peer is still a member, or nobody has to be one."""
        if self._transport is None:
            return True
        try:
            self._owner.proven(self._transport)
        except NoMember:
            return False
        return True

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.link.state is LinkState.CLOSED:
            self._transport.abort()
            return
        try:
            peer = self._owner.proven(transport)
        except NoMember:
            self.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        peername = transport.get_extra_info("peername")
        # To a socket of both families an IPv4 address is written as an IPv6 one.
        self.remote_host = (canonical_host(peername[0]) or peername[0]) if peername else ""
        self._writable = True
        self.link.connected(self._loop.time(), None if peer is None else peer.node_id)
        why = self._owner.made(self)
        if why is not None:
            self.link.leave(why, self._loop.time())
        self._drive()

    def data_received(self, data: bytes) -> None:
        self.link.receive(data, self._loop.time())
        self._owner.holds(self, self.link.held_bytes)
        self._drive()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._drive()

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable = False
        self._transport = None
        self.link.lost(f"lost: {exc}" if exc is not None else "closed by the peer", self._loop.time())
        self._drive()
        self._timer.disarm()
        self._owner.closed(self)

    # Between the two

    def _drive(self) -> None:
        """Carry out what the link decided: events, then bytes, then its end."""
        self._scheduled = False
        link = self.link
        self._dispatch()
        while self._writable and (data := link.take_bytes()):
            assert self._transport is not None
            self._transport.write(data)
        # What left the lanes made room; what was given up left no bytes.
        for lane in _LANES:
            if self._waiters[lane]:
                self._wake(lane)
        if link.state is not self._timer.armed_for:
            self._timer.arm()
            if link.state is LinkState.CLOSED:
                self._close()

    def _dispatch(self) -> None:
        while events := self.link.take_events():
            for event in events:
                self._on_event(event)

    def _on_event(self, event: Event) -> None:
        match event:
            case Asked(request_id, message):
                self._ask(request_id, message)
            case Answered(request_id, result) | RequestFailed(request_id, result):
                future = self._answers.pop(request_id, None)
                if future is not None and not future.done():
                    future.set_result(result)
            case Opened(hello):
                self._owner.opened(self, hello)
            case Ended(failure):
                self._owner.ended(self, failure)

    def _ask(self, request_id: int, message: Request) -> None:
        assert self.link.peer is not None, "requests come after the handshake"
        try:
            answer = self._handler(self.link.peer, message)
        except Exception as error:
            answer = self._report(error)
        if isinstance(answer, asyncio.Future):
            answer.add_done_callback(partial(self._on_answer, request_id))
        else:
            self.link.reply(request_id, answer, self._loop.time())

    def _on_answer(self, request_id: int, future: asyncio.Future[Reply]) -> None:
        if future.cancelled():
            answer: Reply = Refused("cancelled")
        else:
            error = future.exception()
            answer = future.result() if error is None else self._report(error)
        self.link.reply(request_id, answer, self._loop.time())
        self._schedule()

    def _report(self, error: BaseException) -> Refused:
        """A handler failed: the peer gets an answer, and the loop's exception handler the error."""
        self._loop.call_exception_handler({"message": "a request's handler failed", "exception": error})
        return Refused("failed", type(error).__name__)

    def _schedule(self) -> None:
        """Drive once in the next turn, however many ask for it in this one."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._drive)

    async def _room(self, lane: Lane, deadline: float) -> bool:
        """Wait for one's turn and for room in the lane; whether that came before the deadline."""
        waiters = self._waiters[lane]
        waiter: asyncio.Future[None] = self._loop.create_future()
        waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except BaseException as error:
            if waiter in waiters:
                waiters.remove(waiter)
            elif waiter.done():
                # Woken and cancelled in one turn: the turn is the next one's.
                self._wake(lane)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def _wake(self, lane: Lane) -> None:
        """Let the longest waiting caller go on if there is room; it then schedules us, and we the next."""
        waiters = self._waiters[lane]
        while waiters and (self.link.has_room(lane) or not self.usable):
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                # After the end all go on, to be told so.
                if self.usable:
                    return

    def _tick(self, now: float) -> None:
        self.link.tick(now)
        self._drive()
        self._timer.arm()

    def _close(self) -> None:
        """The link has ended: send its last bytes, and go when the peer has gone.

        Closing while the peer still sends would reset the connection, and it
        would never read why.
        """
        transport = self._transport
        if transport is None:
            return
        data = self.link.take_bytes()
        if data:
            transport.write(data)
        self._timer.disarm()
        try:
            if transport.can_write_eof():
                transport.write_eof()
            else:
                transport.close()
        except OSError:
            # It went before we noticed, and asyncio shuts down a socket that is no longer connected.
            transport.abort()
            return
        self._timer.call_instead(CLOSE_S, transport.abort)
