"""No address takes all of a node's memory or connections, and one that breaks the protocol waits ever longer."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.rpc.tasks import loads
from dhtcrawl.rpc.tasks.frame import HEADER, Kind
from dhtcrawl.rpc.tasks.link import LinkLimits
from dhtcrawl.rpc.tasks.loads import Loads
from dhtcrawl.rpc.tasks.messages import Ack, encode
from dhtcrawl.rpc.tasks.signals import encode_signal
from dhtcrawl.rpc.tasks.transport import TransportLimits
from rpc.wire import hello, task
from rpc.worlds import Stranger, Wires

FRAME = 1024 * 1024


# The core


def test_an_address_has_so_many_connections_a_network_of_ipv6_too_and_loopback_all_that_there_are() -> None:
    kept = Loads()
    assert all(kept.accept(number, "10.0.0.9") for number in range(loads.ACCEPTED_A_SOURCE_MAX))
    assert not kept.accept("more", "10.0.0.9")
    assert not kept.accept("more", "::ffff:10.0.0.9")
    assert kept.accept("other", "10.0.0.8")
    kept.close(0)
    assert kept.accept("again", "10.0.0.9")
    for number in range(loads.ACCEPTED_A_SOURCE_MAX):
        assert kept.accept(("v6", number), f"2001:db8::{number:x}")
    assert not kept.accept("more", "2001:db8::ffff")
    assert all(kept.accept(("own", number), "127.0.0.1") for number in range(500))


def test_of_an_address_that_begins_too_much_the_connection_that_went_too_far_is_cut() -> None:
    kept = Loads()
    for number in range(8):
        assert kept.unfinished(number, "10.0.0.9", FRAME) is None
    assert kept.unfinished(8, "10.0.0.9", 1) == 8
    kept.close(8)
    assert kept.unfinished(3, "10.0.0.9", 0) is None
    assert kept.unfinished(9, "10.0.0.9", FRAME) is None


def test_where_all_begin_too_much_the_heaviest_gives_way_with_what_it_began_first() -> None:
    kept = Loads()
    assert kept.unfinished("honest", "10.0.1.1", FRAME) is None
    for source in range(4):
        for number in range(8 if source else 7):
            assert kept.unfinished((source, number), f"10.0.0.{source}", FRAME) is None
    assert kept.unfinished("late", "10.0.1.2", FRAME) == (1, 0)
    kept.close((1, 0))
    assert kept.unfinished_bytes == loads.UNFINISHED_BYTES_MAX


def test_the_pause_doubles_with_each_breach_up_to_five_minutes_and_is_forgotten() -> None:
    kept, now, pauses = Loads(), 0.0, []
    for _ in range(11):
        kept.breached("10.0.0.9", now)
        pauses.append(kept.pause_s("10.0.0.9", now))
        now += pauses[-1]
        assert kept.pause_s("10.0.0.9", now) == 0
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert kept.breaches("10.0.0.9", now) == 11
    assert (kept.breaches("10.0.0.8", now), kept.pause_s("10.0.0.8", now)) == (0, 0.0)
    assert kept.breaches("10.0.0.9", now + loads.FORGOTTEN_S) == 0
    kept.breached("10.0.0.9", now + loads.FORGOTTEN_S)
    assert kept.pause_s("10.0.0.9", now + loads.FORGOTTEN_S) == 1
    kept.breached("127.0.0.1", now)
    assert kept.pause_s("127.0.0.1", now) == 0, "programs of this machine are not told apart by their address"


def test_so_many_addresses_are_remembered_and_no_more() -> None:
    kept = Loads()
    for number in range(loads.BREACHES_KEPT_MAX + 1):
        kept.breached(f"10.1.{number // 250}.{number % 250}", 0.0)
    assert kept.breaches("10.1.0.0", 0.0) == 0
    assert kept.breaches("10.1.0.1", 0.0) == 1


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3), st.sampled_from([0, 5, FRAME])), max_size=120))
def test_what_is_counted_is_what_is_held(steps: list[tuple[int, int, int]]) -> None:
    kept, held = Loads(), dict[int, int]()
    host: dict[int, str] = {}
    for connection, source, held_bytes in steps:
        where = host.setdefault(connection, f"10.0.0.{source}")
        held[connection] = held_bytes
        cut = kept.unfinished(connection, where, held_bytes)
        if isinstance(cut, int):
            kept.close(cut)
            held[cut] = 0
        assert kept.unfinished_bytes == sum(held.values()) <= loads.UNFINISHED_BYTES_MAX
    for connection in held:
        kept.close(connection)
    assert kept.unfinished_bytes == 0


# Whole connections

on_virtual = pytest.mark.loops("virtual")


def half_a_frame(size: int) -> bytes:
    return encode_signal(hello(9)) + HEADER.pack(size, Kind.STORE_TASK) + bytes(size // 2)


@on_virtual
async def test_three_hundred_half_frames_cost_no_more_than_the_bound_and_an_honest_peer_nothing() -> None:
    world = Wires()
    async with world.node(1) as a, world.node(2) as b:
        address = await a.listen(world.host(1), 0)
        strangers: list[Stranger] = []
        for number in range(300):
            strangers.append(await world.stranger(address, half_a_frame(FRAME), host=50 + number % 10))
        await asyncio.sleep(5)
        assert await b.request(address, task()) == Ack(b"\0")
        held = sum(connection.link.held_bytes for connection in a.connections)
        assert 0 < held <= loads.UNFINISHED_BYTES_MAX
        assert sum(not stranger.ended.done() for stranger in strangers) <= held // (FRAME // 2) + 1
        for stranger in strangers:
            stranger.transport.abort()
        await asyncio.sleep(5)
        assert [connection.link.held_bytes for connection in a.connections] == [0]
    world.check()


@on_virtual
async def test_a_frame_that_drips_is_cut_also_while_it_still_comes() -> None:
    world = Wires()
    limits = TransportLimits(link=LinkLimits(frame_s=20.0))
    async with world.node(1, limits=limits) as a:
        address = await a.listen(world.host(1), 0)
        stranger = await world.stranger(address, half_a_frame(FRAME))
        for _ in range(18):
            await asyncio.sleep(1)
            stranger.transport.write(b"x")
        assert not stranger.ended.done()
        for _ in range(10):
            await asyncio.sleep(1)
            stranger.transport.write(b"x")
        assert stranger.ended.done()
        assert b"takes longer than 20 s" in stranger.heard
        assert a.breaches(world.host(99))[0] == 1
    world.check()


@on_virtual
async def test_frames_one_after_the_other_are_not_taken_for_one_that_drips() -> None:
    world = Wires()
    limits = TransportLimits(link=LinkLimits(frame_s=3.0))
    async with world.node(1, limits=limits) as a:
        address = await a.listen(world.host(1), 0)
        stranger = await world.stranger(address, encode_signal(hello(9)))
        whole = encode(1, task())
        for number in range(20):
            frame = encode(number, task())
            stranger.transport.write((whole if number else b"")[len(whole) // 2 :] + frame[: len(frame) // 2])
            whole = frame
            await asyncio.sleep(1)
        assert not stranger.ended.done()
        stranger.transport.abort()
        await asyncio.sleep(1)
    world.check()


@on_virtual
async def test_who_breaks_the_protocol_is_let_in_again_after_a_pause_and_others_at_once() -> None:
    world = Wires()
    async with world.node(1) as a, world.node(2) as b:
        address = await a.listen(world.host(1), 0)
        garbage = encode_signal(hello(9)) + HEADER.pack(4, Kind.STORE_TASK) + b"abc"
        for breaches, pause_s in ((1, 1.0), (2, 2.0), (3, 4.0)):
            bad = await world.stranger(address, garbage)
            await bad.ended
            count, left_s = a.breaches(world.host(99))
            assert count == breaches
            assert pause_s - 0.5 < left_s <= pause_s
            again = await world.stranger(address, encode_signal(hello(9)))
            await again.ended
            assert b"paused" in again.heard
            assert await b.request(address, task()) == Ack(b"\0")
            await asyncio.sleep(pause_s)
        late = await world.stranger(address, encode_signal(hello(9)))
        await asyncio.sleep(1)
        assert not late.ended.done()
        late.transport.abort()
        await asyncio.sleep(1)
    world.check()


@on_virtual
async def test_one_address_takes_a_quarter_of_the_connections_and_no_more() -> None:
    world = Wires()
    async with world.node(1) as a, world.node(2) as b:
        address = await a.listen(world.host(1), 0)
        strangers = [await world.stranger(address, encode_signal(hello(9))) for _ in range(80)]
        await asyncio.sleep(5)
        kept = [stranger for stranger in strangers if not stranger.ended.done()]
        assert len(kept) == loads.ACCEPTED_A_SOURCE_MAX
        assert b"full" in strangers[-1].heard
        assert await b.request(address, task()) == Ack(b"\0")
        for stranger in kept:
            stranger.transport.abort()
        await asyncio.sleep(1)
    world.check()


class _Deaf(Stranger):
    """Does not hang up when the other end has."""

    def eof_received(self) -> bool:
        return True


@on_virtual
async def test_who_is_turned_away_and_does_not_go_holds_no_place_meanwhile() -> None:
    world = Wires()
    async with world.node(1) as a, world.node(2) as b:
        address, loop = await a.listen(world.host(1), 0), asyncio.get_running_loop()

        async def come() -> asyncio.Transport:
            transport, _ = await loop.create_connection(_Deaf, *address, local_addr=(world.host(99), 0))
            transport.write(encode_signal(hello(9)))
            return transport

        assert await b.request(address, task()) == Ack(b"\0")
        strangers = [
            stranger for _ in range(6) for stranger in await asyncio.gather(*(come() for _ in range(60)))
        ]  # faster than the last words to each are over
        assert len(a) == loads.ACCEPTED_A_SOURCE_MAX + 1
        assert (a.refused, len(b)) == (0, 1)
        for stranger in strangers:
            stranger.abort()
        await asyncio.sleep(1)
    world.check()
