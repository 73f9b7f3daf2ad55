"""The task plane of a node: a server, and connections to peers that are made when needed and used again.

    async with TaskTransport(hello, handler) as transport:
        await transport.listen("127.0.0.1", 8468)
        result = await transport.request(("127.0.0.1", 8469), StoreTask(crawl, links))

`request` answers with the peer's reply or a `Failure`, never with an
exception. At most `connections_max` connections are open, least recently used
idle ones go first (design, "Decided early"); requests to more peers at once
wait for their turn, for a while. As many more may be ending: requests that a
peer sent before it heard our goodbye are answered. A connection that a peer
made carries our requests too when the peer listens where it came from, and of
two connections made at once the one dialed by the lower node id stays.

Peers are told apart by their address; with `node_id` a request goes to that
node or nowhere. With `tls` a peer is who the key of its certificate says, with
`key` who has signed its HELLO, and what it says of itself has to agree; without
either nothing here is authenticated.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self, cast

from dhtcrawl.node_key import NodeKey
from dhtcrawl.rpc.tasks.connection import Address, Connection, Handler, NoMember
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.identity_check import IdentityCheck
from dhtcrawl.rpc.tasks.link import LinkLimits, LinkState, PeerLink
from dhtcrawl.rpc.tasks.messages import Answer, Request
from dhtcrawl.rpc.tasks.pool import ConnectionPool, listening_address
from dhtcrawl.rpc.tasks.signals import Goodbye, Hello, Why, encode_signal
from dhtcrawl.rpc.tasks.sockets import HandshakeLimits, PeerProof, Sockets, TlsContexts
from dhtcrawl.units import format_address

log = logging.getLogger(__name__)

__all__ = ["Address", "Failure", "FailureKind", "Handler", "TaskTransport", "TransportLimits"]

# A request that was never sent is tried again: at most our own dialing, the peer's and one more can meet.
ATTEMPTS = 4
# So many requests may wait for a connection to become free.
WAITING_MAX = 4096


@dataclass(frozen=True, slots=True)
class TransportLimits:
    """Times in seconds."""

    connections_max: int = 256  # design, "Decided early"
    greeting_max: int = 64  # accepted connections without a handshake: strangers displace only each other
    room_s: float = 5.0  # for a connection to become free, when all are in use
    connect_s: float = 10.0
    request_s: float = 30.0
    close_s: float = 10.0  # for what was asked to be answered when we stop
    link: LinkLimits = field(default_factory=LinkLimits)


class TaskTransport:
    """All connections of a node. `source` is the local address that dialing begins at, where that matters."""

    def __init__(
        self,
        hello: Callable[[], Hello],
        handler: Handler,
        *,
        limits: TransportLimits | None = None,
        source: str | None = None,
        tls: TlsContexts | None = None,
        key: NodeKey | None = None,
    ) -> None:
        """`key` is this node's; it proves itself by it, and asks others to, where there is no `tls`."""
        self.endings: Counter[FailureKind] = Counter()  # how connections ended
        self.refused = 0  # accepted and closed at once, for want of room
        self._greeting = _Greeting(hello, None if tls is not None else key)
        self._handler = handler
        self._limits = limits or TransportLimits()
        handshakes = HandshakeLimits(self._limits.greeting_max, self._limits.link.handshake_s)
        self._sockets = Sockets(source, tls, handshakes)
        self._pool = ConnectionPool(self._limits.connections_max)
        self._waiting: deque[asyncio.Future[None]] = deque()  # for a connection to become free
        self._group = asyncio.TaskGroup()
        self._closing = False
        self._empty = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self.close()
        finally:
            self._closing = True
            self._sockets.stop()
            for connection in self._pool.all():
                connection.abort()
            await self._group.__aexit__(kind, error, trace)

    async def listen(self, host: str, port: int) -> Address:
        """Accept connections; where.

        Raises:
            OSError: the address is taken, or not ours.
        """
        bound = await self._sockets.listen(host, port, self._accept)
        self._greeting.port = bound[1]
        return bound

    async def request(
        self, address: Address, message: Request, *, node_id: bytes | None = None, timeout_s: float | None = None
    ) -> Answer | Failure:
        """Ask the node at an address, an IP address and a port, over the connection there is or a new one."""
        deadline = asyncio.get_running_loop().time() + (self._limits.request_s if timeout_s is None else timeout_s)
        for _ in range(ATTEMPTS):
            connection = self._connection_to(address, node_id)
            connection = connection or await self._free_connection_to(address, node_id, deadline)
            if connection is None:
                return self._no_connection()
            try:
                result = await connection.request(message, deadline, node_id)
            finally:
                self._wake()
            # It ended as we came (idle, or the lesser of two), which says nothing about the peer.
            if not (isinstance(result, Failure) and result.kind is FailureKind.PARTED and not result.sent):
                break
        return result

    async def request_back(
        self, node_id: bytes, message: Request, *, timeout_s: float | None = None
    ) -> Answer | Failure:
        """Ask a node that does not listen, over the connection that it has made."""
        connection = self._pool.made_by(node_id)
        if connection is None:
            return Failure(FailureKind.CONNECT, "it listens nowhere, and has made no connection", sent=False)
        deadline = asyncio.get_running_loop().time() + (self._limits.request_s if timeout_s is None else timeout_s)
        try:
            return await connection.request(message, deadline, node_id)
        finally:
            self._wake()

    def heard_s(self, node_id: bytes) -> float | None:
        """The seconds since a node that does not listen was heard over its connection; None without one."""
        connection = self._pool.made_by(node_id)
        return None if connection is None else asyncio.get_running_loop().time() - connection.link.heard_at

    async def close(self) -> None:
        """Stop listening, part from every peer, and cut what has not parted after a while."""
        self._closing = True
        self._sockets.stop()
        while self._waiting:
            self._wake()
        for connection in self._pool.open():
            connection.leave(Why.LEAVING)
        try:
            async with asyncio.timeout(self._limits.close_s):
                while self._pool.all():
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            for connection in self._pool.all():
                connection.abort()

    def give_up(self, node_id: bytes, address: Address, *, before: int | None = None) -> None:
        """A node is taken for dead: requests to it fail now, not at their deadlines.

        Or it has begun anew, and those fail that it was asked `before` this incarnation: a machine that lost its power
        has said nothing of its connections.
        """
        for connection in self._pool.open():
            peer = connection.link.peer
            if before is not None and (peer is None or peer.incarnation >= before):
                continue
            if peer.node_id == node_id if peer is not None else connection.address == address:
                connection.abort()

    def use_tls(self, tls: TlsContexts) -> None:
        """From here on connections are made with this, and those are cut whose peers are no members by it."""
        self._sockets.tls = tls
        for connection in self._pool.all():
            if not connection.is_members:
                connection.abort()

    def part_from_all(self) -> None:
        """Our own address has changed: what is on connections that began at the old one is lost, so it fails now."""
        for connection in self._pool.open():
            connection.abort()

    def peers(self) -> Iterator[tuple[Address | None, Hello]]:
        """The connected peers: the address where each is asked (None: it does not listen), and its HELLO."""
        for connection in self._pool.open():
            if connection.link.state is LinkState.OPEN and connection.link.peer is not None:
                yield listening_address(connection), connection.link.peer

    @property
    def port(self) -> int:
        """Where it listens; 0 before."""
        return self._greeting.port

    @property
    def connections_max(self) -> int:
        """How many connections there may be."""
        return self._limits.connections_max

    def breaches(self, host: str) -> tuple[int, float]:
        """How often a host has broken the protocol lately, and for how many seconds it is not let in for it."""
        now, loads = asyncio.get_running_loop().time(), self._pool.loads
        return loads.breaches(host, now), loads.pause_s(host, now)

    def is_connected(self, address: Address) -> bool:
        """Whether a request to an address needs no new connection."""
        return self._pool.serving(address) is not None

    @property
    def connections(self) -> list[Connection]:
        """Those that count, in the order they were made."""
        return self._pool.open()

    def __len__(self) -> int:
        return len(self._pool)

    # Connections come

    def _connection_to(self, address: Address, node_id: bytes | None) -> Connection | None:
        """The connection for requests to an address; None when we may have no further one."""
        connection = self._pool.serving(address, node_id)
        if connection is not None:
            return connection
        if self._closing or not self._make_room():
            return None
        connection = self._new(address)
        self._group.create_task(self._dial(connection, address))
        return connection

    async def _free_connection_to(self, address: Address, node_id: bytes | None, deadline: float) -> Connection | None:
        """The same, as soon as there is room for a further one; None when there was none for too long."""
        if self._closing or len(self._waiting) >= WAITING_MAX:
            return None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(min(deadline, loop.time() + self._limits.room_s)):
                while (connection := self._connection_to(address, node_id)) is None and not self._closing:
                    await self._turn(loop)
        except TimeoutError:
            return None
        return connection

    async def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        waiter = loop.create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            else:
                self._wake()  # the turn is the next one's
            raise

    def _wake(self) -> None:
        """A connection may be free: the caller that has waited longest looks."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _no_connection(self) -> Failure:
        if self._closing:
            return Failure(FailureKind.CLOSED, "this node is stopping", sent=False)
        return Failure(FailureKind.BUSY, f"all {self._limits.connections_max} connections are in use", sent=False)

    async def _dial(self, connection: Connection, address: Address) -> None:
        try:
            async with asyncio.timeout(self._limits.connect_s):
                await self._sockets.dial(connection, *address)
        except TimeoutError:
            connection.failed(f"no connection within {self._limits.connect_s:g} s")
        except (OSError, ValueError, OverflowError) as error:
            # The last two: a peer told us of a name or a port that is none.
            connection.failed(f"no connection: {error}")

    def _accept(self) -> asyncio.BaseProtocol:
        greeting = self._pool.greeting()
        if len(greeting) >= self._limits.greeting_max:
            greeting[0].abort()
        if self._closing or not self._make_room():
            self.refused += 1
            return _Refuse()
        return self._new(None)

    def _new(self, address: Address | None) -> Connection:
        identity = IdentityCheck(self._greeting.key, dialed=address is not None)
        link = PeerLink(self._greeting.now(), self._limits.link, asyncio.get_running_loop().time(), identity)
        connection = Connection(link, self._handler, self, address)
        self._pool.add(connection)
        return connection

    def _make_room(self) -> bool:
        """Whether there may be one more connection, if need be instead of the least recently used idle one."""
        if self._pool.has_room:
            return True
        least = self._pool.take_least_used()
        if least is None:
            return False
        # The place is free now. What the peer asks meanwhile, not knowing, is answered: its goodbye comes after it.
        self._part_with(least)
        least.leave(Why.IDLE)
        return True

    def _part_with(self, connection: Connection) -> None:
        """Give its place away; where too many are ending already, the one that has been for the longest is cut."""
        longest = self._pool.part_with(connection)
        if longest is not None:
            longest.abort()
        self._wake()

    # Connections change; called by them

    def proven(self, transport: asyncio.BaseTransport) -> PeerProof | None:
        """See `Owner`."""
        peer = self._sockets.peer(transport)
        if peer is None and self._sockets.tls is not None:
            raise NoMember
        return peer

    def made(self, connection: Connection) -> Why | None:
        """See `Owner`. An address has so many connections, and none while it pauses for a breach."""
        host, loads = connection.remote_host, self._pool.loads
        if connection.address is not None:
            return None
        if loads.pause_s(host, asyncio.get_running_loop().time()) > 0:
            return Why.PAUSED
        return None if loads.accept(connection, host) else Why.FULL

    def holds(self, connection: Connection, held_bytes: int) -> None:
        """See `Owner`."""
        cut = self._pool.loads.unfinished(connection, connection.remote_host, held_bytes)
        if isinstance(cut, Connection):
            cut.abort()

    def opened(self, connection: Connection, hello: Hello) -> None:
        """See `Owner`. From here on the connection may serve for our own requests."""
        for doubled in self._pool.opened(connection, hello.node_id):
            doubled.leave(Why.DUPLICATE)

    def ended(self, connection: Connection, failure: Failure) -> None:
        """See `Owner`. It holds no place while its last bytes are sent, or who is told `full` would fill the rest."""
        self.endings[failure.kind] += 1
        if connection in self._pool:
            self._part_with(connection)
        if connection.link.breached:
            self._pool.loads.breached(connection.remote_host, asyncio.get_running_loop().time())
        if log.isEnabledFor(logging.DEBUG):
            address = listening_address(connection)
            where = connection.remote_host if address is None else format_address(address)
            log.debug("the connection with %s ended, %s: %s", where, failure.kind, failure.detail)

    def closed(self, connection: Connection) -> None:
        """See `Owner`."""
        self._pool.forget(connection)
        self._wake()
        if not self._pool.all():
            self._empty.set()


class _Greeting:
    """What we say of ourselves, with the port at which we listen, and by which `key` we prove it, if by any."""

    def __init__(self, hello: Callable[[], Hello], key: NodeKey | None) -> None:
        self.port = 0  # until we listen
        self.key = key
        self._hello = hello
        self._said: tuple[Hello, Hello] | None = None  # what we were told to say last, and the same with our port

    def now(self) -> Hello:
        """The HELLO of a connection that begins."""
        hello = self._hello()
        if self._said is None or self._said[0] is not hello or self._said[1].port != self.port:
            public = b"" if self.key is None else self.key.public
            self._said = hello, replace(hello, port=self.port, key=public)
        said = self._said[1]
        return said if self.key is None else replace(said, nonce=self.key.nonce())


class _Refuse(asyncio.Protocol):
    """A connection that there is no room for."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        writer = cast(asyncio.WriteTransport, transport)
        writer.write(encode_signal(Goodbye(Why.FULL)))
        writer.close()
