"""The task plane of a closed swarm on sockets: who gets a connection, and what becomes of those who do not."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rpc.wire import answer_to, backup, hello, task
from rpc.worlds import Slow, Wires, take_all, until

from dhtcrawl.closed.secret import Ring
from dhtcrawl.rpc.tasks import handshakes
from dhtcrawl.rpc.tasks.connection import Address
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.handshakes import SOURCE
from dhtcrawl.rpc.tasks.link import LinkLimits
from dhtcrawl.rpc.tasks.signals import MAGIC, Hello, encode_signal
from dhtcrawl.rpc.tasks.tls_stream import HANDSHAKE_BYTES_MAX
from dhtcrawl.rpc.tasks.transport import Handler, TaskTransport, TransportLimits

from .members import OTHER, OTHERS, RING, SECRET, Member

HOST = "127.0.0.1"
SHORT = TransportLimits(
    connect_s=1.0, request_s=1.0, close_s=1.0, greeting_max=4, link=LinkLimits(handshake_s=0.3, drain_s=0.3)
)
on_both = pytest.mark.loops("asyncio", "uvloop")


@pytest.fixture
async def world() -> AsyncIterator[Wires]:
    made = Wires()
    yield made
    made.check()


class Swarm:
    """Members on loopback."""

    def __init__(self, directory: Path) -> None:
        self.members = [Member(directory, number) for number in (1, 2, 3)]

    def node(
        self, number: int, ring: Ring | None = RING, handler: Handler = take_all, says: bytes | None = None
    ) -> TaskTransport:
        member = self.members[number - 1]
        said = Hello(says or member.id, 7, "active")
        tls = None if ring is None else member.tls(ring)
        return TaskTransport(lambda: said, handler, limits=SHORT, source=HOST, tls=tls)


@pytest.fixture
def swarm(tmp_path: Path) -> Swarm:
    return Swarm(tmp_path)


def kind_of(result: object) -> FailureKind:
    assert isinstance(result, Failure), result
    return result.kind


async def everything(address: Address, data: bytes) -> bytes:
    """What comes back until the other end closes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@on_both
async def test_members_ask_each_other_both_ways_over_one_connection(world: Wires, swarm: Swarm) -> None:
    async with swarm.node(1) as a, swarm.node(2) as b:
        there, here = await b.listen(HOST, 0), await a.listen(HOST, 0)
        for message in (task(200, 5000), backup(3)):
            assert await a.request(there, message, node_id=swarm.members[1].id) == answer_to(message)
        assert await b.request(here, task(), node_id=swarm.members[0].id) == answer_to(task())
        assert (len(a), len(b)) == (1, 1)


class Relay:
    """Passes bytes on between two nodes, and keeps them."""

    def __init__(self, target: Address) -> None:
        self.seen = bytearray()
        self._target = target

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pass(reader, there_writer))
            group.create_task(self._pass(there_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            self.seen += data
            writer.write(data)
        writer.close()


@pytest.mark.loops("asyncio")
async def test_who_listens_on_the_way_reads_no_url(world: Wires, swarm: Swarm) -> None:
    seen = {}
    for ring in (RING, None):
        async with swarm.node(1, ring) as a, swarm.node(2, ring) as b:
            relay = Relay(await b.listen(HOST, 0))
            server = await asyncio.start_server(relay.serve, HOST, 0)
            between = server.sockets[0].getsockname()[:2]
            assert await a.request(between, task(50), node_id=swarm.members[1].id) == answer_to(task(50))
            server.close()
        seen[ring] = bytes(relay.seen)
    assert b"http://a.example/" in seen[None]
    assert b"a.example" not in seen[RING]
    assert MAGIC.encode() not in seen[RING]


@on_both
async def test_who_leaves_says_so_and_what_was_asked_is_answered(world: Wires, swarm: Swarm) -> None:
    slow = Slow()
    async with swarm.node(1) as a, swarm.node(2, handler=slow) as b, asyncio.TaskGroup() as group:
        address = await b.listen(HOST, 0)
        asking = group.create_task(a.request(address, task()))
        await slow.has(1)
        closing = group.create_task(a.close())
        await asyncio.sleep(0)
        slow.answer_all()
        assert await asking == answer_to(task())
        await closing
        await until(lambda: len(b) == 0)
        assert set(a.endings) == set(b.endings) == {FailureKind.PARTED}


@on_both
async def test_another_secret_and_none_get_no_byte_through(world: Wires, swarm: Swarm) -> None:
    heard: list[Hello] = []

    def listen(peer: Hello, message: object) -> object:
        heard.append(peer)
        raise AssertionError

    async with swarm.node(1, handler=listen) as a, swarm.node(2, OTHERS) as b, swarm.node(3, None) as c:  # type: ignore[arg-type]
        address = await a.listen(HOST, 0)
        for stranger in (b, c):
            assert isinstance(await stranger.request(address, task()), Failure)
        assert MAGIC.encode() not in await everything(address, encode_signal(hello(9)))
        assert not heard
        assert (len(a), sum(a.endings.values())) == (0, 0)
        assert kind_of(await a.request(await c.listen(HOST, 0), task())) is FailureKind.CONNECT


@on_both
async def test_a_member_cannot_greet_as_another(world: Wires, swarm: Swarm) -> None:
    one = swarm.members[0].id
    async with swarm.node(2, says=one) as b, swarm.node(3) as c:
        address = await b.listen(HOST, 0)
        assert kind_of(await c.request(address, task(), node_id=one)) is FailureKind.NODE
        assert isinstance(await b.request(await c.listen(HOST, 0), task()), Failure)
        assert set(c.endings) == {FailureKind.NODE}


@on_both
async def test_who_is_silent_in_the_handshake_is_cut_and_displaces_no_member(world: Wires, swarm: Swarm) -> None:
    async with swarm.node(1) as a, swarm.node(2) as b:
        address = await a.listen(HOST, 0)
        silent = [await world.stranger(address, b"\x16\x03\x01\x02\x00"[: number % 6]) for number in range(8)]
        assert await b.request(address, task()) == answer_to(task())
        for stranger in silent:
            await stranger.ended
        assert [bytes(stranger.heard) for stranger in silent] == [b""] * 8
        assert len(a) == 1


@on_both
async def test_a_handshake_that_has_no_end_is_cut_after_16_kib(world: Wires, swarm: Swarm) -> None:
    async with swarm.node(1) as a:
        # A record that begins a client's first message of 16 MB, and goes on for ever.
        endless = b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(HANDSHAKE_BYTES_MAX)
        stranger = await world.stranger(await a.listen(HOST, 0), endless[:9])
        stranger.transport.write(endless)
        await stranger.ended
        assert len(a) == 0


@on_both
async def test_a_stranger_that_fails_too_often_is_cut_before_the_handshake_and_a_member_gets_in(
    world: Wires, swarm: Swarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "is_own_machine", lambda host: host == HOST)
    monkeypatch.setattr(handshakes, "SOURCE", SOURCE._replace(per_s=0.0))  # however long it takes
    async with swarm.node(1) as a, swarm.node(2) as b:
        address = await a.listen(HOST, 0)
        for number in range(SOURCE.burst + 3):
            stranger = await world.stranger(address, b"\x16\x03\x01\x00\x04\x63\x00\x00\x00", host="127.0.0.9")
            await stranger.ended
            assert bool(stranger.heard) == (number < SOURCE.burst)  # an alert
        assert await b.request(address, task()) == answer_to(task())


@on_both
async def test_when_a_secret_is_dropped_its_connections_are_cut(world: Wires, swarm: Swarm) -> None:
    old, both, new = Ring.of((SECRET, OTHER)), Ring.of((OTHER, SECRET)), OTHERS
    one = swarm.members[0]
    async with swarm.node(1, both) as a, swarm.node(2, old) as b, swarm.node(3, both) as c:
        address = await a.listen(HOST, 0)
        for node in (b, c):
            assert await node.request(address, task()) == answer_to(task())
        a.use_tls(one.tls(new))
        await until(lambda: len(a) == 1)
        assert await c.request(address, task()) == answer_to(task())
        assert isinstance(await b.request(address, task()), Failure)


@on_both
async def test_a_banned_node_is_cut_and_gets_no_other_connection(world: Wires, swarm: Swarm) -> None:
    one, two, _ = swarm.members
    async with swarm.node(1) as a, swarm.node(2) as b, swarm.node(3) as c:
        address = await a.listen(HOST, 0)
        for node in (b, c):
            assert await node.request(address, task()) == answer_to(task())
        a.use_tls(one.tls(Ring.of((SECRET,), {two.id})))
        await until(lambda: len(a) == 1)
        assert isinstance(await b.request(address, task()), Failure)
        assert await c.request(address, task()) == answer_to(task())
        assert [peer.node_id for _, peer in a.peers()] == [swarm.members[2].id]


@pytest.mark.loops("asyncio")
async def test_a_stranger_sees_a_certificate_and_nothing_else(world: Wires, swarm: Swarm) -> None:
    async with swarm.node(1) as a:
        address = await a.listen(HOST, 0)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(*address, ssl=context)
        heard = b""
        with contextlib.suppress(ssl.SSLError, ConnectionResetError):
            heard = await reader.read()
        assert heard == b""
        writer.close()
