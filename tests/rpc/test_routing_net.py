"""UDP in memory does what UDP does, the same twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from dhtcrawl.sim.loop import on_host
from dhtcrawl.sim.net import Weather
from rpc.routing_swarm import Plane, Raw, world

A, B = ("10.0.0.1", 1), ("10.0.0.2", 2)


async def delivered(weather: Weather, seed: int = 1, before: Callable[[Plane], None] | None = None) -> list[bytes]:
    async with world(seed, weather) as w:
        a, b = Raw(w, A), Raw(w, B)
        if before is not None:
            before(w)
        for number in range(1000):
            a.transport.sendto(number.to_bytes(2, "big"), B)
        await asyncio.sleep(10)
        return [data for data, _ in b.received]


async def test_a_datagram_arrives_whole_and_late() -> None:
    async with world(weather=Weather(delay_s=(0.2, 0.2), jitter_s=0)) as w:
        a, b = Raw(w, A), Raw(w, B)
        a.transport.sendto(b"data", B)
        await asyncio.sleep(0.19)
        assert b.received == []
        await asyncio.sleep(0.02)
        assert b.received == [(b"data", A)]


async def test_some_are_lost_some_come_twice_and_some_overtake_others() -> None:
    assert 850 < len(await delivered(Weather(loss=0.1))) < 950
    assert 1050 < len(await delivered(Weather(duplication=0.1))) < 1150
    arrived = await delivered(Weather(jitter_s=0.01))
    assert arrived != sorted(arrived)
    assert sorted(arrived) == [number.to_bytes(2, "big") for number in range(1000)]


async def test_the_seed_decides() -> None:
    weather = Weather(loss=0.1, duplication=0.1)
    assert await delivered(weather) == await delivered(weather) != await delivered(weather, seed=2)


async def test_another_sender_does_not_reshuffle_the_rest() -> None:
    def talk(w: Plane) -> None:
        other = Raw(w, ("10.0.0.3", 3))
        for _ in range(100):
            other.transport.sendto(b"", ("10.0.0.4", 4))

    weather = Weather(loss=0.1, duplication=0.1)
    assert await delivered(weather) == await delivered(weather, before=talk)


async def test_neither_a_partition_nor_a_crash_lets_anything_through() -> None:
    assert await delivered(Weather(), before=lambda w: w.net.wires.partition([A[0]], [B[0]])) == []
    assert await delivered(Weather(), before=lambda w: w.net.wires.partition([A[0]])) == []
    assert len(await delivered(Weather(), before=lambda w: w.net.wires.partition([A[0], B[0]]))) == 1000
    assert await delivered(Weather(), before=lambda w: w.net.crash(A[0])) == []
    assert await delivered(Weather(), before=lambda w: w.net.crash(B[0])) == []


async def test_what_is_on_its_way_when_a_host_crashes_does_not_arrive_at_its_successor_unless_it_listens() -> None:
    async with world() as w:
        a, b = Raw(w, A), Raw(w, B)
        a.transport.sendto(b"1", B)
        w.net.crash(B[0])
        await asyncio.sleep(1)
        again = Raw(w, B)
        a.transport.sendto(b"2", B)
        await asyncio.sleep(1)
        assert (b.received, again.received) == ([], [(b"2", A)])


async def test_a_taken_address_is_refused_and_free_again_once_closed() -> None:
    async with world() as w:
        first = Raw(w, A)
        with pytest.raises(OSError, match="in use"):
            Raw(w, A)
        first.transport.close()
        Raw(w, A)


async def test_the_wildcard_address_is_the_host_whose_code_runs_and_port_0_is_any() -> None:
    async with world() as w:
        with on_host("10.0.0.9"):
            transport, _ = await w.loop.create_datagram_endpoint(asyncio.DatagramProtocol, ("0.0.0.0", 0))
        assert transport.get_extra_info("sockname") == ("10.0.0.9", 49_152)
