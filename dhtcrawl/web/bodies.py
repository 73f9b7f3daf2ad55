"""Reads the bodies of requests, so that no client holds memory or a place by being slow.

    begin ──16 KiB have come──▶ wait for a place ──▶ go on, a piece at a time ──▶ handler ──▶ place free
      │ all has come                                   │ a piece does not come in time
      ▼                                                ▼
    handler                                          408, place free

Most bodies are small and need no place, so they never wait for others. A large one gets one of `LARGE_AT_ONCE` places,
not by what it announces, but once its beginning is there; it keeps it only while it brings `PIECE_BYTES` in every
`PIECE_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from aiohttp import web

from dhtcrawl.web.api import ApiError

BODY_BYTES_MAX = 64 << 20  # a million seeds
LARGE_AT_ONCE = 2  # each may hold such a body in memory
# Of every connection that sends a body; aiohttp itself keeps as much of each.
BEGIN_BYTES = 16 << 10
BEGIN_S = 10.0
PIECE_BYTES = 256 << 10
PIECE_S = 5.0  # 50 KiB/s: a tunnel over a mobile line
WAIT_S = 60.0  # for a place


class BodyStream(Protocol):
    """What a body comes from: `aiohttp.StreamReader`."""

    async def read(self, n: int, /) -> bytes:
        """Up to `n` bytes, at least one; b"" at the end."""
        ...

    def at_eof(self) -> bool:
        """Whether all was read, as far as that is known."""
        ...


class BodyReader:
    """Reads the bodies that come to one node."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(LARGE_AT_ONCE)

    @asynccontextmanager
    async def reading(self, stream: BodyStream) -> AsyncIterator[bytearray]:
        """The whole body; a large one keeps its place until this is left.

        Raises:
            ApiError: 400, it is not coded as its headers say, or breaks off; 408, it does not come, or too slowly; 413,
                it is longer than `BODY_BYTES_MAX`; 503, there is no place for it.
        """
        body = bytearray()
        async with AsyncExitStack() as held:
            at_end = await _read_up_to(stream, body, BEGIN_BYTES, BEGIN_S)
            if not at_end:
                await self._take_place()
                held.callback(self._places.release)
            while not at_end:
                at_end = await _read_up_to(stream, body, len(body) + PIECE_BYTES, PIECE_S)
                if len(body) > BODY_BYTES_MAX:
                    raise ApiError(413, f"more than {BODY_BYTES_MAX >> 20} MiB of URLs; submit them in parts")
            yield body

    async def _take_place(self) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                await self._places.acquire()
        except TimeoutError:
            raise ApiError(503, f"{LARGE_AT_ONCE} other large bodies are being read; send it again later") from None


async def _read_up_to(stream: BodyStream, body: bytearray, length: int, within_s: float) -> bool:
    """Read until `body` has `length` bytes or is whole; return whether it is.

    Raises:
        ApiError: 400, no more of it can be read; 408, that took longer than `within_s`.
    """
    try:
        async with asyncio.timeout(within_s):
            while len(body) < length:
                piece = await stream.read(length - len(body))
                if not piece:
                    return True
                body += piece
    except TimeoutError:
        raise ApiError(
            408, f"the body came too slowly: {len(body)} bytes, and not the next within {within_s:g} s; send it again"
        ) from None
    except web.RequestPayloadError:
        raise ApiError(400, "the body is not coded as its headers say; send it as it is, without a coding") from None
    except ConnectionError:
        raise ApiError(400, f"the connection was lost after {len(body)} bytes of the body") from None
    return stream.at_eof()
