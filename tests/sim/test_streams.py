"""TCP in memory keeps TCP's promises: once, in order, or the end; and breaks when it is told to."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from dhtcrawl.sim.loop import VirtualLoop
from dhtcrawl.sim.streams import Streams, StreamWeather


class End(asyncio.Protocol):
    """Writes down what it hears and when."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.heard = bytearray()
        self.pieces = 0
        self.events: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.pieces += 1

    def eof_received(self) -> None:
        self.events.append("eof")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost" if exc is None else type(exc).__name__)


def streams_on_the_loop(weather: StreamWeather | None = None) -> Streams:
    """What stands in for TCP on the loop that runs the test."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.streams = streams = Streams(loop, 1, weather)
    return streams


async def pair() -> tuple[End, End]:
    """Both ends of a connection from a to b."""
    loop = asyncio.get_running_loop()
    made: list[End] = []

    def factory() -> End:
        made.append(End())
        return made[0]

    server = await loop.create_server(factory, "b", 80)
    _, near = await loop.create_connection(End, "b", 80, local_addr=("a", 0))
    server.close()
    return near, made[0]


DATA = bytes(index % 251 for index in range(1_000_000))


async def test_bytes_arrive_once_and_in_order_in_many_pieces() -> None:
    streams_on_the_loop()
    near, far = await pair()
    for at in range(0, len(DATA), 10_007):
        near.transport.write(DATA[at : at + 10_007])
    near.transport.close()
    await asyncio.sleep(10)
    assert far.heard == DATA
    assert far.pieces > 20
    assert far.events == ["made", "eof", "lost"]
    assert near.events[-1] == "lost"


async def test_bandwidth_takes_its_time() -> None:
    streams_on_the_loop(StreamWeather(bytes_per_s=100_000.0))
    near, far = await pair()
    near.transport.write(DATA)
    await asyncio.sleep(9)
    assert len(far.heard) < len(DATA)
    await asyncio.sleep(2)
    assert far.heard == DATA


async def test_a_reader_that_pauses_stops_the_writer() -> None:
    streams_on_the_loop()
    near, far = await pair()
    far.transport.pause_reading()
    near.transport.write(DATA)
    await asyncio.sleep(100)
    assert not far.heard
    assert near.events == ["made", "pause"]
    assert near.transport.get_write_buffer_size() == len(DATA) - StreamWeather().window_bytes
    far.transport.resume_reading()
    await asyncio.sleep(100)
    assert far.heard == DATA
    assert near.events == ["made", "pause", "resume"]


async def test_half_a_connection_may_be_closed() -> None:
    streams_on_the_loop()
    near, far = await pair()
    far.eof_received = lambda: True  # type: ignore[method-assign,assignment]
    near.transport.write_eof()
    await asyncio.sleep(1)
    far.transport.write(b"still here")
    far.transport.close()
    await asyncio.sleep(1)
    assert near.heard == b"still here"
    assert near.events[-1] == far.events[-1] == "lost"


async def test_an_abort_resets_the_other_end_and_so_does_writing_to_a_closed_one() -> None:
    streams_on_the_loop()
    near, far = await pair()
    near.transport.abort()
    await asyncio.sleep(1)
    assert (near.events[-1], far.events[-1]) == ("lost", "ConnectionResetError")
    near, far = await pair()
    near.transport.close()
    far.transport.write(b"too late")
    await asyncio.sleep(1)
    assert far.events[-1] in ("lost", "ConnectionResetError")


async def test_nobody_there_refuses_and_nobody_home_lets_wait() -> None:
    streams = streams_on_the_loop()
    loop = asyncio.get_running_loop()
    with pytest.raises(ConnectionRefusedError):
        await loop.create_connection(End, "b", 80)
    assert loop.time() < 1.0
    streams.crash("b")
    with pytest.raises(TimeoutError):
        await loop.create_connection(End, "b", 80)
    assert loop.time() > 60.0


async def test_a_port_is_taken_once() -> None:
    streams_on_the_loop()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(End, "b", 80)
    with pytest.raises(OSError, match="in use"):
        await loop.create_server(End, "b", 80)
    server.close()
    await loop.create_server(End, "b", 80)


async def test_a_crash_is_silent_until_the_host_is_back() -> None:
    streams = streams_on_the_loop()
    near, far = await pair()
    streams.crash("b")
    near.transport.write(b"hello?")
    await asyncio.sleep(1000)
    assert (near.events, far.events, bytes(far.heard)) == (["made"], ["made"], b"")
    streams.restart("b")
    await asyncio.sleep(1)
    assert near.events == ["made", "ConnectionResetError"]
    assert far.events == ["made"]


async def test_a_partition_holds_bytes_back_until_it_heals() -> None:
    streams = streams_on_the_loop()
    near, far = await pair()
    streams.wires.partition(["a"])
    near.transport.write(b"one")
    await asyncio.sleep(10)
    near.transport.write(b"two")
    await asyncio.sleep(10)
    assert not far.heard
    streams.heal()
    await asyncio.sleep(1)
    assert far.heard == b"onetwo"
