"""TCP in memory: seeded delay, bandwidth and cutting into pieces, partitions, crashes and resets, the same twice.

    streams = Streams(loop, seed=1, weather=StreamWeather(bytes_per_s=1e6))
    loop.streams = streams

What it promises is what TCP promises: bytes arrive once and in order, in
pieces of any size, or the connection ends. `write` takes any amount and asks
the protocol to pause; a reader that pauses stops the writer once the window is
full. A crashed host says nothing: a node that writes to it finds out by silence,
or by a reset once the host is back. A partition holds bytes back until it
heals. A connection to a closed port is refused, one to a host that is down or out of
reach times out. Each connection has a generator of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from errno import EADDRINUSE, ECONNREFUSED, ECONNRESET, ETIMEDOUT
from random import Random
from typing import Any, cast

from dhtcrawl.sim.loop import current_host
from dhtcrawl.sim.wires import Wires

Address = tuple[str, int]

_FIRST_EPHEMERAL_PORT = 49_152
_WILDCARDS = ("0.0.0.0", "::", "")
_HIGH_WATER_BYTES = 64 * 1024  # asyncio's default


@dataclass(frozen=True, slots=True)
class StreamWeather:
    """What the network does to streams."""

    delay_s: tuple[float, float] = (0.010, 0.080)  # one way, drawn once for each pair of hosts
    jitter_s: float = 0.005  # up to this much is added to each piece; it never overtakes
    bytes_per_s: float = 12_500_000.0  # each connection, each way
    window_bytes: int = 256 * 1024  # sent and not yet read
    piece_bytes_max: int = 64 * 1024
    connect_timeout_s: float = 60.0


class Streams:
    """All hosts of a simulation. `current_host` says which host unbound code runs on."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seed: object,
        weather: StreamWeather | None = None,
        wires: Wires | None = None,
    ) -> None:
        """`wires` count instead of the weather's `delay_s`, where they are given."""
        self.weather = weather or StreamWeather()
        self.wires = wires or Wires(seed, self.weather.delay_s)
        self.loop = loop
        self.connections_made = self.bytes_sent = 0
        self._seed = seed
        self._listeners: dict[Address, _Server] = {}
        self._ends: dict[StreamTransport, None] = {}  # in the order they were made
        self._down: dict[str, None] = {}
        self._next_port = _FIRST_EPHEMERAL_PORT

    # What the loop calls

    async def create_connection(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, local_addr: Any = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect: what the loop's `create_connection` does.

        Raises:
            OSError: nothing listens there, or it does not answer.
        """
        source = local_addr[0] if local_addr is not None and local_addr[0] not in _WILDCARDS else current_host.get()
        delay_s = self.delay(source, host)
        await asyncio.sleep(delay_s)
        if self.cut(source, host) or self.cut(host, source) or self.wires.is_hidden(host):
            await asyncio.sleep(max(0.0, self.weather.connect_timeout_s - delay_s))
            raise OSError(ETIMEDOUT, f"no answer from {host}:{port}")
        server = self._listeners.get((host, port))
        if server is None:
            await asyncio.sleep(delay_s)
            raise OSError(ECONNREFUSED, f"nobody listens on {host}:{port}")
        self.connections_made += 1
        name = f"{self._seed} stream {self.connections_made} {source} {host}"
        local = (source, self._next_port)
        self._next_port += 1
        near = StreamTransport(self, local, (host, port), Random(f"{name} near"))
        far = StreamTransport(self, (host, port), local, Random(f"{name} far"))
        near.peer, far.peer = far, near
        self._ends[near] = self._ends[far] = None
        self.loop.call_soon(far.accept, server.factory, context=far.context)
        try:
            await asyncio.sleep(delay_s)
        except asyncio.CancelledError:
            near.abort()
            raise
        near.start(protocol := factory())
        return near, protocol

    async def create_server(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str | None = None, port: int = 0, **_options: Any
    ) -> asyncio.Server:
        """Listen: what the loop's `create_server` does.

        Raises:
            OSError: the address is taken.
        """
        if host is None or host in _WILDCARDS:
            host = current_host.get()
        if port == 0:
            port = next(p for p in range(_FIRST_EPHEMERAL_PORT, 65_536) if (host, p) not in self._listeners)
        if (host, port) in self._listeners:
            raise OSError(EADDRINUSE, f"{host}:{port} is in use")
        server = self._listeners[host, port] = _Server(self, (host, port), factory)
        return cast(asyncio.Server, server)

    # What happens to hosts

    def crash(self, host: str) -> None:
        """The host is gone: its protocols hear nothing more, and no peer is told."""
        self._down[host] = None
        for address in [address for address in self._listeners if address[0] == host]:
            del self._listeners[address]
        for end in [end for end in self._ends if end.local[0] == host]:
            end.dead = True
            del self._ends[end]

    def restart(self, host: str) -> None:
        """The host is back and knows nothing of its old connections: it resets those who still send to them."""
        self._down.pop(host, None)
        for end in list(self._ends):
            if end.peer.dead and end.remote[0] == host and end.unread_bytes:
                self.loop.call_later(2 * self.delay(host, end.local[0]), end.reset, context=end.context)

    def heal(self) -> None:
        """End the partition: what was held back goes on its way again."""
        self.wires.heal()
        for end in list(self._ends):
            end.deliver_held()

    def stop_listening(self, server: _Server) -> None:
        if self._listeners.get(server.address) is server:
            del self._listeners[server.address]

    def forget(self, end: StreamTransport) -> None:
        self._ends.pop(end, None)

    def cut(self, source: str, target: str) -> bool:
        return source in self._down or target in self._down or self.wires.cut(source, target)

    def delay(self, source: str, target: str) -> float:
        return self.wires.delay(source, target)


# What goes over the wire beside bytes.
_FIN = b""
_RESET = None


@dataclass(slots=True)
class _Line:
    """The way to the peer."""

    rng: Random
    pieces: deque[bytes | None] = field(default_factory=deque)  # under way
    free_at: float = 0.0  # when the line has taken what was sent
    arrives_at: float = 0.0  # when the last piece arrives


@dataclass(slots=True)
class _Outgoing:
    """What is written, and not all sent or read yet."""

    buffer: bytearray = field(default_factory=bytearray)
    high: int = _HIGH_WATER_BYTES
    unread_bytes: int = 0  # sent, and not yet read by the peer, as far as we know
    eof: bool = False  # no more is written
    fin_sent: bool = False
    paused: bool = False


@dataclass(slots=True)
class _Incoming:
    """What has arrived, and is not all read yet."""

    pieces: deque[bytes | None] = field(default_factory=deque)
    reading: bool = True
    untold_bytes: int = 0  # what we have read, and the peer does not know of


class StreamTransport(asyncio.Transport):
    """One end of a connection."""

    peer: StreamTransport

    def __init__(self, streams: Streams, local: Address, remote: Address, rng: Random) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.local = local
        self.remote = remote
        self.context = streams.wires.context(local[0])
        self.dead = False  # its host has crashed
        self._streams = streams
        self._line = _Line(rng)
        self._out = _Outgoing()
        self._in = _Incoming()
        self._protocol: Any = None
        self._closing = self._over = False
        self._error: Exception | None = None

    @property
    def unread_bytes(self) -> int:
        """Sent, and not yet read by the peer, as far as we know."""
        return self._out.unread_bytes

    def accept(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        if not self.dead:
            self.start(factory())

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        if self.dead:
            return
        self._protocol = protocol
        protocol.connection_made(self)
        if self._over:
            self._streams.loop.call_soon(self._lost)
        self._read()

    # What the protocol calls

    def write(self, data: Any) -> None:
        if self._out.eof or self._over or self.dead:
            return
        self._out.buffer += data
        self._send()
        if len(self._out.buffer) > self._out.high and not self._out.paused:
            self._out.paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._out.eof:
            self._out.eof = True
            self._send()

    def close(self) -> None:
        if not self._closing:
            self._closing = self._out.eof = True
            self._send()

    def abort(self) -> None:
        self._closing = self._out.eof = True
        if not (self._over or self.dead):
            self._out.buffer.clear()
            self._ship(_RESET)
            self._end(None)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._in.reading = False

    def resume_reading(self) -> None:
        self._in.reading = True
        self._streams.loop.call_soon(self._read)

    def is_reading(self) -> bool:
        return self._in.reading and not self._closing

    def get_write_buffer_size(self) -> int:
        return len(self._out.buffer)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._out.high = _HIGH_WATER_BYTES if high is None else high

    # What the network does

    def reset(self) -> None:
        if not self.dead:
            self._end(ConnectionResetError(ECONNRESET, "Connection reset by peer"))

    def deliver_held(self) -> None:
        streams = self._streams
        delay_s = streams.delay(self.local[0], self.remote[0])
        streams.loop.call_later(delay_s, self._read, context=self.context)
        streams.loop.call_later(delay_s, self.peer.acknowledge, context=self.peer.context)

    def acknowledge(self) -> None:
        """Word comes of what the peer has read: the window moves on. In a partition it comes once that has healed."""
        if self._streams.cut(self.remote[0], self.local[0]):
            return
        self._out.unread_bytes -= self.peer.take_untold_bytes()
        if not self._over and not self.dead:
            self._send()

    def take_untold_bytes(self) -> int:
        """How many bytes were read that the peer does not know of; it knows now."""
        untold_bytes, self._in.untold_bytes = self._in.untold_bytes, 0
        return untold_bytes

    def take(self, piece: bytes | None) -> None:
        """A piece has arrived from the peer."""
        if self.dead:
            # No process is there; or a new one, which never heard of it.
            if not self._streams.cut(self.remote[0], self.local[0]):
                self._ship(_RESET)
        elif not self._over:
            self._in.pieces.append(piece)
            self._read()
        elif piece:
            # To a closed socket.
            self._ship(_RESET)

    def _send(self) -> None:
        weather, now = self._streams.weather, self._streams.loop.time()
        while self._out.buffer and self._out.unread_bytes < weather.window_bytes:
            size = min(
                self._line.rng.randint(1, weather.piece_bytes_max), weather.window_bytes - self._out.unread_bytes
            )
            piece = bytes(self._out.buffer[:size])
            del self._out.buffer[:size]
            self._out.unread_bytes += len(piece)
            self._streams.bytes_sent += len(piece)
            self._line.free_at = max(self._line.free_at, now) + len(piece) / weather.bytes_per_s
            self._ship(piece)
        if self._out.eof and not self._out.buffer and not self._out.fin_sent:
            self._out.fin_sent = True
            self._ship(_FIN)
        if self._closing and self._out.fin_sent:
            self._end(None)
        elif self._out.paused and len(self._out.buffer) <= self._out.high // 4:
            self._out.paused = False
            self._protocol.resume_writing()

    def _ship(self, piece: bytes | None) -> None:
        streams = self._streams
        delay_s = streams.delay(self.local[0], self.remote[0]) + self._line.rng.random() * streams.weather.jitter_s
        self._line.arrives_at = max(self._line.arrives_at, max(self._line.free_at, streams.loop.time()) + delay_s)
        # Timers of one moment fire in any order: each brings the next piece, whichever it is.
        self._line.pieces.append(piece)
        streams.loop.call_at(self._line.arrives_at, self._arrive, context=self.peer.context)

    def _arrive(self) -> None:
        self.peer.take(self._line.pieces.popleft())

    def _read(self) -> None:
        streams = self._streams
        while self._in.pieces and self._protocol is not None and not self._over and not self.dead:
            piece = self._in.pieces[0]
            if streams.cut(self.remote[0], self.local[0]) or (piece and not self._in.reading):
                return
            self._in.pieces.popleft()
            if piece is _RESET:
                self.reset()
            elif piece == _FIN:
                if not self._closing and not self._protocol.eof_received():
                    self.close()
            else:
                self._in.untold_bytes += len(piece)
                way_s = streams.delay(self.local[0], self.remote[0])
                streams.loop.call_later(way_s, self.peer.acknowledge, context=self.peer.context)
                if not self._closing:
                    self._protocol.data_received(piece)

    def _end(self, error: Exception | None) -> None:
        if self._over:
            return
        self._over = self._closing = self._out.eof = True
        self._error = error
        self._out.buffer.clear()
        self._streams.forget(self)
        if self._protocol is not None:
            self._streams.loop.call_soon(self._lost)

    def _lost(self) -> None:
        if not self.dead:
            self._protocol.connection_lost(self._error)


class _Socket:
    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        return self._address


class _Server:
    """What is used of `asyncio.Server`."""

    def __init__(self, streams: Streams, address: Address, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self.address = address
        self.factory = factory
        self.sockets = (_Socket(address),)
        self._streams = streams

    def close(self) -> None:
        self._streams.stop_listening(self)

    async def wait_closed(self) -> None:
        """Closed at once."""
