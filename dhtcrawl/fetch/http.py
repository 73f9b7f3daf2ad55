"""The one seam to the web: a request goes in, an exchange or a failure comes out.

Everything above this port (redirects, robots, politeness, retries, charsets)
is the same on real sockets and in the simulator. Two clients implement it and
pass the same contract suite: `aiohttp_client.AiohttpClient` and
`dhtcrawl.sim.web.SimClient`.

A website that misbehaves is an expected value here, never an exception.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import BinaryIO, Literal, NamedTuple, Protocol

CHUNK_BYTES = 256 * 1024


class FetchFailureKind(StrEnum):
    """Why no response came; `dhtcrawl.fetch.retry` says what to do about each."""

    DNS = "dns"  # the name does not resolve
    CONNECT = "connect"  # refused, unreachable, or no answer to SYN in time
    TLS = "tls"  # handshake or certificate
    TIMEOUT = "timeout"  # no complete head in time
    DISCONNECTED = "disconnected"  # closed before the head was complete
    PROTOCOL = "protocol"  # not HTTP, or malformed
    HEADERS = "headers"  # a head larger than the limit
    PRIVATE_ADDRESS = "private-address"  # the address guard refused


class Truncated(StrEnum):
    """Why a body is shorter than the server meant it; `in_warc` as WARC-Truncated says it (ISO 28500, 5.13)."""

    LENGTH = "length"
    TIME = "time"
    SLOW = "slow"  # it came, but at less than the least rate
    DISCONNECT = "disconnect"

    @property
    def in_warc(self) -> str:
        """The word that the standard has for it."""
        return Truncated.TIME.value if self is Truncated.SLOW else self.value


class Limits(NamedTuple):
    """What one exchange may cost; a body past a limit is cut, not lost."""

    connect_s: float = 10.0
    head_s: float = 30.0  # from the connection to the end of the head
    body_s: float = 300.0  # from the end of the head to the last byte
    idle_s: float = 30.0  # between two reads of the body
    bytes_per_s_min: int = 0  # a body that stays below it for `slow_s` is cut; 0: none is
    slow_s: float = 30.0
    head_bytes_max: int = 64 * 1024
    body_bytes_max: int = 256 * 1024 * 1024  # as sent, before decoding


class FetchFailure(NamedTuple):
    """No response. `detail` is one line for people."""

    kind: FetchFailureKind
    detail: str
    started_at: float  # monotonic
    ended_at: float
    reused: bool = False  # on a connection that was kept alive, and not a byte came: it may have been closed before


class Body:
    """A body as it came over the wire: in memory while small, else in a file.

    Transfer coding is undone, content coding is not.
    """

    __slots__ = ("_file", "data", "size")

    def __init__(self, data: bytes = b"", file: BinaryIO | None = None, size: int | None = None) -> None:
        self.data = data
        self._file = file
        self.size = len(data) if size is None else size

    @property
    def spooled(self) -> bool:
        return self._file is not None

    def chunks(self) -> Iterator[bytes]:
        """The bytes from the start, at most `CHUNK_BYTES` at a time; blocks on the disk."""
        source: BinaryIO = self._file if self._file is not None else io.BytesIO(self.data)
        source.seek(0)
        while chunk := source.read(CHUNK_BYTES):
            yield chunk

    def head(self, size: int) -> bytes:
        """The first `size` bytes; blocks on the disk where the body is spooled."""
        if self._file is None:
            return self.data if len(self.data) <= size else self.data[:size]
        self._file.seek(0)
        return self._file.read(size)

    def close(self) -> None:
        """Give the file back; the body may not be read afterwards."""
        if self._file is not None:
            self._file.close()


class Exchange(NamedTuple):
    """A response with the request that brought it.

    `request_head` and `response_head` are the bytes of both heads, up to and
    with the blank line, as a WARC record wants them. `headers` are the
    response's, names in lower case, values stripped, in order.
    """

    request_head: bytes
    response_head: bytes
    status: int
    headers: list[tuple[str, str]]
    body: Body
    remote_ip: str
    started_at: float  # monotonic, when the request began
    ended_at: float  # monotonic, the last byte of the body
    fetched_at: datetime  # wall, when the request began
    truncated: Truncated | None = None
    first_byte_s: float = 0.0  # from when the request was sent, on a connection that was there

    def header(self, name: str) -> str | None:
        """All lines of a header as one list (RFC 9110, 5.3); `header_fields` has those that are none."""
        return ", ".join([value for key, value in self.headers if key == name]) or None


class HttpRequest(NamedTuple):
    """A GET or HEAD of a canonical URL; `headers` are sent as given, after `Host`."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    limits: Limits = Limits()
    # Hosts (`hostname[:port]`) that may live on private addresses.
    private_hosts: frozenset[str] = frozenset()
    method: Literal["GET", "HEAD"] = "GET"


class HttpClient(Protocol):
    """What fetches."""

    async def exchange(self, request: HttpRequest) -> Exchange | FetchFailure:
        """One request, one response; redirects are not followed.

        Raises:
            StorageFull: a large body could not be spooled.
        """

    async def close(self) -> None:
        """Close all connections."""
