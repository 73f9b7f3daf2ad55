"""What lies between simulated hosts: who reaches whom, how long it takes, and what a host that stands still misses."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dhtcrawl.errors import ConfigError
from dhtcrawl.sim.loop import VirtualLoop
from dhtcrawl.sim.net import DatagramNetwork, Weather
from dhtcrawl.sim.streams import Streams, StreamWeather
from dhtcrawl.sim.wires import OneWay, Wires, read_matrix

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def wires() -> Wires:
    return Wires(1, (0.01, 0.08))


def test_sides_do_not_reach_each_other_and_those_not_named_are_a_side_too() -> None:
    between = wires()
    between.partition([A], [B])
    assert all(between.cut(one, other) for one in (A, B, C) for other in (A, B, C) if one != other)
    between.heal()
    assert not between.cut(A, B)


@pytest.mark.parametrize(("one_way", "lost", "heard"), [("out", (A, B), (B, A)), ("in", (B, A), (A, B))])
def test_a_one_way_partition_loses_what_one_side_sends(
    one_way: OneWay, lost: tuple[str, str], heard: tuple[str, str]
) -> None:
    between = wires()
    between.partition([A], one_way=one_way)
    assert between.cut(*lost)
    assert not between.cut(*heard)
    assert not between.cut(B, C)


def test_a_way_takes_as_long_back_as_there_and_a_slow_host_adds_to_each_of_its_own() -> None:
    between = wires()
    before = between.delay(A, B), between.delay(B, C)
    assert between.delay(B, A) == before[0]
    assert 0.01 <= before[0] <= 0.08
    between.slow_down(A, 0.5)
    assert between.delay(A, B) == before[0] + 0.5
    assert between.delay(B, C) == before[1]


def test_to_a_hidden_host_answers_alone_get_through_and_to_the_port_that_asked() -> None:
    between = wires()
    between.hide(A)
    assert between.is_hidden(A)
    assert not between.is_hidden(B)
    assert not between.lets_in((B, 1), (A, 1))
    between.sends((A, 1), (B, 1))
    assert between.lets_in((B, 1), (A, 1))
    assert not between.lets_in((B, 2), (A, 1))
    assert not between.lets_in((B, 1), (A, 2))
    assert between.lets_in((A, 2), (B, 2))


def test_measured_round_trips_are_halved(tmp_path: Path) -> None:
    path = tmp_path / "rtt.txt"
    path.write_text("0, 100, 30\n100\t0\t50\n30 50 0\n\n")
    between = Wires(1, (0.01, 0.08), read_matrix(path))
    ways = {between.delay(f"10.0.0.{one}", f"10.0.0.{other}") for one in range(30) for other in range(one)}
    assert ways == {0.0, 0.05, 0.015, 0.025}


def test_ways_that_follow_from_where_hosts_lie_count_instead_and_are_asked_for_once() -> None:
    asked = []

    def way_of(one: str, other: str) -> float:
        asked.append((one, other))
        return 0.2

    between = Wires(1, (0.01, 0.08), way_of=way_of)
    assert between.delay(A, B) == between.delay(B, A) == 0.2
    assert asked == [(A, B)]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("1 2\n3\n", "not a square"),
        ("", "not a square"),
        ("1 x\n2 3\n", "could not convert"),
        ("-1", "below 0"),
        ("nan", "below 0"),
    ],
)
def test_a_file_that_is_no_matrix_is_refused_by_name(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "rtt.txt"
    path.write_text(content)
    with pytest.raises(ConfigError, match=f"latency matrix .*rtt.txt: .*{told}"):
        read_matrix(path)


# Datagrams


class Mailbox(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.heard: list[tuple[float, bytes]] = []

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.heard.append((asyncio.get_running_loop().time(), data))


def running_loop() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop


async def sent(weather: Weather, count: int = 500) -> list[bytes]:
    """What arrives of numbered datagrams, in the order of arrival."""
    loop = running_loop()
    network = loop.network = DatagramNetwork(loop, 1, weather)
    box = Mailbox()
    network.open_datagram(lambda: box, (B, 1))
    source, _ = network.open_datagram(Mailbox, (A, 1))
    for number in range(count):
        source.sendto(b"%d" % number, (B, 1))
        await asyncio.sleep(0.01)
    await asyncio.sleep(10)
    return [data for _, data in box.heard]


async def test_late_datagrams_are_overtaken_and_none_is_lost() -> None:
    numbers = [int(data) for data in await sent(Weather(late_s=1.0))]
    assert sorted(numbers) == list(range(500))
    overtaken = sum(number < max(numbers[: position + 1]) for position, number in enumerate(numbers))
    assert 25 < overtaken < 75


async def test_what_is_sent_to_a_host_that_stands_still_arrives_when_it_goes_on() -> None:
    loop = running_loop()
    network = loop.network = DatagramNetwork(loop, 1, Weather())
    box = Mailbox()
    network.open_datagram(lambda: box, (B, 1))
    source, _ = network.open_datagram(Mailbox, (A, 1))
    loop.pause(B)
    source.sendto(b"one", (B, 1))
    await asyncio.sleep(5)
    assert box.heard == []
    loop.resume(B)
    await asyncio.sleep(1)
    assert box.heard == [(5.0, b"one")]


# Streams


class End(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self) -> None:
        self.heard = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data


async def connected(streams: Streams) -> tuple[End, End]:
    far = End()
    await streams.create_server(lambda: far, B, 1)
    _, near = await streams.create_connection(End, B, 1, local_addr=(A, 0))
    await asyncio.sleep(1)
    assert isinstance(near, End)
    return near, far


async def test_through_a_one_way_partition_a_window_of_bytes_gets_and_the_rest_when_it_has_healed() -> None:
    loop = running_loop()
    streams = loop.streams = Streams(loop, 1, StreamWeather(window_bytes=1000, piece_bytes_max=100))
    near, far = await connected(streams)
    streams.wires.partition([A], one_way="in")  # A is heard, and hears nothing: no word of what was read comes back
    near.transport.write(b"x" * 5000)
    await asyncio.sleep(30)
    assert len(far.heard) == 1000
    far.transport.write(b"y")
    await asyncio.sleep(1)
    assert near.heard == b""
    streams.heal()
    await asyncio.sleep(30)
    assert len(far.heard) == 5000
    assert near.heard == b"y"


async def test_a_host_that_stands_still_takes_connections_and_bytes_and_answers_later() -> None:
    loop = running_loop()
    streams = loop.streams = Streams(loop, 1)
    far = End()
    await streams.create_server(lambda: far, B, 1)
    loop.pause(B)
    _, near = await streams.create_connection(End, B, 1, local_addr=(A, 0))
    assert isinstance(near, End)
    near.transport.write(b"hello")
    await asyncio.sleep(10)
    assert far.heard == b""
    loop.resume(B)
    await asyncio.sleep(1)
    assert far.heard == b"hello"
