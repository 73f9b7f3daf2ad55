"""Bodies of requests: who waits for whom when some are slow."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NoReturn

import pytest
from aiohttp import web

from dhtcrawl.web import bodies
from dhtcrawl.web.api import ApiError
from dhtcrawl.web.bodies import BEGIN_BYTES, BEGIN_S, LARGE_AT_ONCE, PIECE_BYTES, PIECE_S, WAIT_S, BodyReader

FOREVER = 1e9


class Sent:
    """A body as it arrives: each part some seconds after the one before."""

    def __init__(self, parts: Sequence[tuple[float, bytes]]) -> None:
        self._parts = deque(parts)
        self.read_bytes = 0

    async def read(self, n: int, /) -> bytes:
        if not self._parts:
            return b""
        wait_s, part = self._parts[0]
        await asyncio.sleep(wait_s)
        self._parts.popleft()
        if len(part) > n:
            self._parts.appendleft((0.0, part[n:]))
        self.read_bytes += min(n, len(part))
        return part[:n]

    def at_eof(self) -> bool:
        return not self._parts


async def read(reader: BodyReader, stream: Sent) -> bytes:
    async with reader.reading(stream) as body:
        return bytes(body)


async def refused(reader: BodyReader, stream: Sent) -> int:
    with pytest.raises(ApiError) as caught:
        await read(reader, stream)
    return caught.value.status


def whole(length: int) -> Sent:
    return Sent([(0.0, b"x" * length)] if length else [])


def stalled(length: int) -> Sent:
    """What sends so much, and then nothing."""
    return Sent([*([(0.0, b"x" * length)] if length else []), (FOREVER, b"x")])


@pytest.mark.parametrize("length", [0, 1, BEGIN_BYTES - 1, BEGIN_BYTES, BEGIN_BYTES + 1, 3 * PIECE_BYTES, 10_000_001])
async def test_a_body_comes_whole_however_long(length: int) -> None:
    assert len(await read(BodyReader(), whole(length))) == length
    in_bits = Sent([(0.001, b"abc")] * 100)
    assert await read(BodyReader(), in_bits) == b"abc" * 100


@pytest.mark.parametrize("error", [ConnectionResetError("lost"), web.RequestPayloadError("no gzip")])
async def test_a_body_that_cannot_be_read_on_is_refused(error: Exception) -> None:
    class Broken(Sent):
        async def read(self, n: int, /) -> bytes:
            return await super().read(n) or _raised(error)

        def at_eof(self) -> bool:
            return False

    assert await refused(BodyReader(), Broken([(0.0, b"abc")])) == 400


def _raised(error: Exception) -> NoReturn:
    raise error


async def test_a_body_that_does_not_come_is_given_up() -> None:
    assert await refused(BodyReader(), stalled(0)) == 408
    # A byte now and then does not help: the beginning has one deadline.
    assert await refused(BodyReader(), Sent([(BEGIN_S / 4, b"x")] * 100)) == 408


async def test_only_bodies_that_are_large_wait_for_large_ones() -> None:
    reader = BodyReader()
    async with asyncio.TaskGroup() as group:
        slow = [
            Sent([(0.0, b"x" * BEGIN_BYTES), *[(PIECE_S / 2, b"x" * PIECE_BYTES)] * 8]) for _ in range(LARGE_AT_ONCE)
        ]
        reading = [group.create_task(read(reader, stream)) for stream in slow]
        await asyncio.sleep(PIECE_S)
        assert await read(reader, whole(BEGIN_BYTES)) == b"x" * BEGIN_BYTES
        waiting = whole(PIECE_BYTES)
        third = group.create_task(read(reader, waiting))
        await asyncio.sleep(PIECE_S)
        assert (waiting.read_bytes, third.done()) == (BEGIN_BYTES, False)  # no more of it is in memory
    assert [len(task.result()) for task in (*reading, third)] == [BEGIN_BYTES + 8 * PIECE_BYTES] * 2 + [PIECE_BYTES]


async def test_a_body_that_stalls_loses_its_place() -> None:
    reader = BodyReader()
    async with asyncio.TaskGroup() as group:
        held = [group.create_task(refused(reader, stalled(BEGIN_BYTES + 1))) for _ in range(LARGE_AT_ONCE)]
        await asyncio.sleep(0)
        assert len(await read(reader, whole(5 * PIECE_BYTES))) == 5 * PIECE_BYTES
    assert [task.result() for task in held] == [408] * LARGE_AT_ONCE
    # Nor does a byte now and then keep one.
    assert await refused(reader, Sent([(0.0, b"x" * BEGIN_BYTES), *[(1.0, b"x")] * 100])) == 408
    assert len(await read(reader, whole(PIECE_BYTES))) == PIECE_BYTES


async def test_a_place_is_held_until_its_body_is_done_with() -> None:
    reader = BodyReader()
    async with reader.reading(whole(PIECE_BYTES)), reader.reading(whole(PIECE_BYTES)):
        started = asyncio.get_running_loop().time()
        assert await refused(reader, whole(PIECE_BYTES)) == 503
        assert asyncio.get_running_loop().time() - started == pytest.approx(WAIT_S)
    assert len(await read(reader, whole(PIECE_BYTES))) == PIECE_BYTES


async def test_a_place_is_free_again_when_its_reader_is_cancelled() -> None:
    reader = BodyReader()
    for _ in range(2 * LARGE_AT_ONCE):
        task = asyncio.create_task(read(reader, stalled(PIECE_BYTES)))
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(await read(reader, whole(PIECE_BYTES))) == PIECE_BYTES


async def test_a_body_that_is_too_long_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_BYTES_MAX", 4 * PIECE_BYTES)
    stream = Sent([(0.0, b"x" * PIECE_BYTES)] * 100)
    assert await refused(BodyReader(), stream) == 413
    assert stream.read_bytes <= 6 * PIECE_BYTES
