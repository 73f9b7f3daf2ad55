"""A server that sends exactly the bytes a test wants, and remembers what arrived.

It runs in the test's own event loop. `Peer.after_reads` lets the client read
what was sent before more is sent: loopback delivers at once, so a few turns of
the loop suffice, and no test sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from typing import cast

_TURNS = 20


class Peer(asyncio.Protocol):
    """One connection: `script` is called with it at every complete request head."""

    def __init__(self, server: RawServer) -> None:
        self.server = server
        self.request_head = b""
        self.closed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()  # by what
        self.resume: Callable[[], None] | None = None
        self.paused = False
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self.server.connections += 1
        self.server.open.add(self)
        if self.server.greeting:
            self.send(self.server.greeting)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while b"\r\n\r\n" in self._received:
            head, _, self._received = self._received.partition(b"\r\n\r\n")
            self.request_head = head + b"\r\n\r\n"
            self.server.requests.append(self.request_head)
            self.server.script(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.open.discard(self)
        self.closed.set_result(exc)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.resume is not None:
            self.resume()

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def close(self) -> None:
        self.transport.close()

    def after_reads(self, action: Callable[[], None], turns: int = _TURNS) -> None:
        """Call `action` once the client has had time to read what was sent."""
        if self.transport.is_closing():
            return
        if turns == 0:
            action()
        else:
            asyncio.get_running_loop().call_soon(self.after_reads, action, turns - 1)


class RawServer:
    """Where it listens, what arrived and who is connected."""

    def __init__(self, script: Callable[[Peer], None], greeting: bytes = b"") -> None:
        self.script = script
        self.greeting = greeting
        self.requests: list[bytes] = []
        self.connections = 0
        self.open: set[Peer] = set()
        self.port = 0

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str = "/") -> str:
        return f"http://{self.host}{path}"


def page(body: bytes = b"hello", *headers: bytes, status: bytes = b"200 OK") -> bytes:
    """A complete response."""
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def sends(*parts: bytes, close: bool = False) -> Callable[[Peer], None]:
    """A script that sends `parts`, each once the one before was read, and then may close."""

    def script(peer: Peer, rest: tuple[bytes, ...] = parts) -> None:
        if rest:
            peer.send(rest[0])
            peer.after_reads(lambda: script(peer, rest[1:]))
        elif close:
            peer.close()

    return script


@contextlib.asynccontextmanager
async def serving(
    script: Callable[[Peer], None],
    *,
    address: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
    greeting: bytes = b"",
) -> AsyncIterator[RawServer]:
    """A server on a free port of `address`; `greeting` is sent before anybody asked."""
    raw = RawServer(script, greeting)
    server = await asyncio.get_running_loop().create_server(lambda: Peer(raw), address, 0, ssl=tls)
    raw.port = server.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        server.close()
        for peer in list(raw.open):
            peer.transport.abort()
