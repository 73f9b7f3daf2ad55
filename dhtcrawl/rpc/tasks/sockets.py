"""How connections of the task plane come about: plain in an open swarm, through TLS in a closed one.

    accepted   TCP ─▶ may it begin? ─▶ TLS handshake ─▶ the node's protocol
    dialed     TCP ──────────────────▶ TLS handshake ─▶ the node's protocol

Which handshakes of others may begin, and which of them are cut, says `HandshakeGate`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from dhtcrawl.rpc.tasks.handshakes import HandshakeGate
from dhtcrawl.rpc.tasks.tls_stream import TlsStream

log = logging.getLogger(__name__)

_NOT_YET_VALID, _EXPIRED = 9, 10  # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and _HAS_EXPIRED
_UNKNOWN_CA = "UNKNOWN_CA"  # of an alert (RFC 8446, section 6.2)

BACKLOG = 128
# Of both families, as a datagram socket is there. What asyncio and uvloop open for it takes IPv6 alone.
EVERY_ADDRESS = "::"


class PeerProof(Protocol):
    """What TLS has proven of the other end."""

    @property
    def node_id(self) -> bytes:
        """Of its key."""

    @property
    def secret(self) -> str:
        """The name of the secret by which it is a member."""


class TlsContexts(Protocol):
    """`dhtcrawl.closed.tls.SwarmTls`, whose imports an open swarm is spared."""

    @property
    def server(self) -> ssl.SSLContext:
        """For connections that others make."""

    @property
    def client(self) -> ssl.SSLContext:
        """For ours."""

    def peer(self, connection: ssl.SSLObject) -> PeerProof | None:
        """Who is at the other end; None where it is no member."""


class HandshakeLimits(NamedTuple):
    """Of TLS handshakes that others begin."""

    most: int
    seconds: float


class Sockets:
    """Listens and dials for one node. `source` is the local address that dialing begins at, where that matters."""

    def __init__(self, source: str | None, tls: TlsContexts | None, limits: HandshakeLimits) -> None:
        self.tls = tls
        self.refused = 0  # handshakes of others that came to nothing
        self._source = source
        self._limits = limits
        self._gate = HandshakeGate(limits.most)
        self._server: asyncio.Server | None = None
        self._arrivals: dict[asyncio.Transport, _Arrival] = {}
        self._told: set[str] = set()  # why certificates were refused: OpenSSL has a few dozen reasons

    async def listen(self, host: str, port: int, accept: Callable[[], asyncio.BaseProtocol]) -> tuple[str, int]:
        """Accept connections, each with what `accept` makes, in a closed swarm once the other end is a member.

        Raises:
            OSError: the address is taken, or not ours.
        """
        loop = asyncio.get_running_loop()

        def arrive() -> asyncio.BaseProtocol:
            return accept() if self.tls is None else _Doorstep(partial(self._arrives, accept))

        if host == EVERY_ADDRESS:
            dual_stack = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
            self._server = await loop.create_server(arrive, sock=dual_stack, backlog=BACKLOG)
        else:
            self._server = await loop.create_server(arrive, host, port, backlog=BACKLOG)
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    async def dial(self, protocol: asyncio.BaseProtocol, host: str, port: int) -> None:
        """Connect.

        Raises:
            OSError: it came to nothing; `ssl.SSLError` where the other end is no member.
            ValueError, OverflowError: the host or port is none.
        """
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {} if self._source is None else {"local_addr": (self._source, 0)}
        if self.tls is None:
            await loop.create_connection(lambda: protocol, host, port, **options)
            return
        greeted: asyncio.Future[OSError | None] = loop.create_future()

        def done(_stream: TlsStream, error: OSError | None) -> None:
            if not greeted.done():
                greeted.set_result(error)

        broken = partial(self._tell_of_alert, host, port)
        stream = TlsStream(self.tls.client, lambda: protocol, done, server_side=False, broken=broken)
        try:
            await loop.create_connection(lambda: stream, host, port, **options)
            error = await greeted
        except BaseException:
            stream.abort()
            raise
        if isinstance(error, ssl.SSLCertVerificationError):
            of_time = error.verify_code in (_NOT_YET_VALID, _EXPIRED)
            text = "the certificate of the node at %s port %d is refused (%s); %s"
            self._tell(text, host, port, error.verify_message, of_time=of_time)
        if error is not None:
            raise error
        self._gate.meet(host)

    def peer(self, transport: asyncio.BaseTransport) -> PeerProof | None:
        """Who is at the other end of a connection, where TLS has proven it."""
        if self.tls is None:
            return None
        connection = transport.get_extra_info("ssl_object")
        return None if connection is None else self.tls.peer(connection)

    def stop(self) -> None:
        """No more connections of others."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for arrival in list(self._arrivals.values()):
            arrival.stream.abort()

    def _tell_of_alert(self, host: str, port: int, error: ssl.SSLError) -> None:
        """Tell of what the other end says of our certificate."""
        reason = error.reason or ""
        if "ALERT" in reason and ("CERTIFICATE" in reason or _UNKNOWN_CA in reason):
            text = "the node at %s port %d refuses the certificate of this one (%s); %s"
            said = reason.replace("_", " ").lower()
            self._tell(text, host, port, said, of_time=_UNKNOWN_CA not in reason)

    def _tell(self, text: str, host: str, port: int, reason: str, *, of_time: bool) -> None:
        if reason not in self._told:
            self._told.add(reason)
            asked = "are the clocks of both machines right?" if of_time else "has it another secret than this node?"
            log.warning(text, host, port, reason, asked)

    def _arrives(self, accept: Callable[[], asyncio.BaseProtocol], transport: asyncio.Transport) -> None:
        """A connection is there: its handshake begins, or it is cut before anything is kept for it."""
        loop, peername = asyncio.get_running_loop(), transport.get_extra_info("peername")
        assert self.tls is not None, "a closed swarm does not become an open one"
        host = peername[0] if peername else ""
        entrance = self._gate.begin(transport, host, loop.time())
        if not entrance.open:
            transport.abort()
            return
        if entrance.cut is not None:
            self._arrivals[cast(asyncio.Transport, entrance.cut)].stream.abort()
        stream = TlsStream(self.tls.server, accept, partial(self._arrived, transport), server_side=True)
        self._arrivals[transport] = _Arrival(stream, host, loop.call_later(self._limits.seconds, stream.abort))
        transport.set_protocol(stream)
        stream.connection_made(transport)

    def _arrived(self, transport: asyncio.Transport, stream: TlsStream, error: OSError | None) -> None:
        arrival = self._arrivals.pop(transport)
        arrival.timer.cancel()
        member = error is None and self.peer(stream) is not None
        self._gate.end(transport, arrival.host, asyncio.get_running_loop().time(), member=member)
        if error is not None:
            self.refused += 1
            log.debug("a TLS handshake came to nothing: %s", error)


class _Arrival(NamedTuple):
    """A handshake that another node began."""

    stream: TlsStream
    host: str
    timer: asyncio.TimerHandle


class _Doorstep(asyncio.Protocol):
    """A connection of which nothing is known yet, not even where it comes from."""

    def __init__(self, arrives: Callable[[asyncio.Transport], None]) -> None:
        self._arrives = arrives

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._arrives(cast(asyncio.Transport, transport))
