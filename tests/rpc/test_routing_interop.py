"""A stock kademlia 2.2.3 node in a swarm of ours: it joins, sets and gets, and cannot tell."""

from __future__ import annotations

import asyncio
import inspect
from random import Random
from typing import Any

import pytest
import umsgpack  # type: ignore[import-untyped]
from kademlia.network import Server
from kademlia.protocol import KademliaProtocol

from dhtcrawl.clock import SystemClock
from dhtcrawl.rpc.contact import Contact
from dhtcrawl.rpc.discovery.datagram import VALUE_BYTES_MAX, encode_reply, encode_request
from dhtcrawl.rpc.discovery.protocol import RoutingProtocol
from dhtcrawl.rpc.discovery.server import RoutingServer
from dhtcrawl.sim.net import Weather
from rpc.routing_swarm import PORT, Raw, host, request, table_of, world

LARGEST = b"x" * (VALUE_BYTES_MAX - 3)


@pytest.mark.parametrize("name", ["stun", "ping", "store", "find_node", "find_value"])
def test_the_remote_procedures_have_the_stock_signatures(name: str) -> None:
    ours, stock = (getattr(kind, f"rpc_{name}") for kind in (RoutingProtocol, KademliaProtocol))
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(stock).parameters)


@pytest.mark.parametrize(
    ("name", "args"),
    [("ping", [b"a" * 20]), ("store", [b"a" * 20, b"k" * 20, "text"]), ("find_node", [b"a" * 20, b"k" * 20])],
)
def test_a_request_is_what_the_library_writes(name: str, args: list[Any]) -> None:
    assert encode_request(b"m" * 20, name, args) == b"\x00" + b"m" * 20 + umsgpack.packb([name, tuple(args)])


@pytest.mark.parametrize(
    "value", [b"a" * 20, True, None, {"value": 1.5}, {"value": "é"}, [(b"a" * 20, "10.0.0.1", 65_535)]]
)
def test_a_reply_is_what_the_library_writes(value: Any) -> None:
    assert encode_reply(b"m" * 20, value) == b"\x01" + b"m" * 20 + umsgpack.packb(value)


@pytest.mark.parametrize("loss", [0.0, 0.01])
async def test_a_stock_node_joins_sets_and_gets_both_ways_in_memory(loss: float) -> None:
    async with world(seed=2, weather=Weather(loss=loss)) as w:
        ours = await w.swarm("ours", 6)
        stock = await w.node("stock", host(50))
        await stock.bootstrap([(host(1), PORT)])
        assert len(table_of(stock)) >= 5
        await asyncio.sleep(5)
        assert all(stock.node.id in [entry[0] for entry in table_of(node)] for node in ours)
        for number, value in enumerate(["text", b"bytes", 7, 1.5, True, LARGEST]):
            assert await stock.set(f"stock {number}", value)
            assert await ours[number].set(f"ours {number}", value)
        for number, value in enumerate(["text", b"bytes", 7, 1.5, True, LARGEST]):
            assert await ours[0].get(f"stock {number}") == value
            assert await stock.get(f"ours {number}") == value
        assert w.net.largest_bytes <= 1200


async def test_a_node_of_ours_joins_a_swarm_of_stock_nodes() -> None:
    async with world(seed=2, weather=Weather()) as w:
        stock = await w.swarm("stock", 12)
        node = await w.node("ours", host(50))
        await node.bootstrap([(host(3), PORT)])
        assert len(table_of(node)) == 12
        assert await node.set("key", "value")
        assert [await other.get("key") for other in stock] == ["value"] * 12


async def test_a_newcomer_gets_a_large_value_from_a_node_it_never_spoke_to() -> None:
    # Its address is verified first: the reply would be larger than thrice the request.
    async with world() as w:
        node = await w.node("ours", host(1))
        node.storage[b"k" * 20] = LARGEST
        stranger = Raw(w, (host(2), PORT), lambda name, _: b"s" * 20)
        stranger.transport.sendto(request("find_value", b"s" * 20, b"k" * 20), (host(1), PORT))
        await asyncio.sleep(1)
        assert [name for name, _ in stranger.requests] == ["ping"]
        (reply,) = [data for data, _ in stranger.received if data[:1] == b"\x01"]
        assert umsgpack.unpackb(reply[21:]) == {"value": LARGEST}


async def test_a_value_that_fits_into_no_datagram_is_refused() -> None:
    async with world() as w:
        node = await w.node("ours", host(1))
        with pytest.raises(ValueError, match="at most"):
            await node.set("key", LARGEST + b"x")
        with pytest.raises(TypeError):
            await node.set("key", [1])
        stock = await w.node("stock", host(2))
        await stock.bootstrap([(host(1), PORT)])
        happened, stored = await stock.protocol.store((host(1), PORT), stock.node.id, b"k" * 20, LARGEST + b"x")
        assert (happened, stored) == (True, False)


@pytest.mark.loops("asyncio")
async def test_a_stock_node_joins_sets_and_gets_both_ways_over_real_udp() -> None:
    ours = [RoutingServer(Random(n).randbytes(20), clock=SystemClock(), rng=Random(n)) for n in range(3)]
    stock = Server(node_id=Random(9).randbytes(20))
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for server in (*ours, stock):
            await server.listen(0, "127.0.0.1")
        for server in ours:
            group.create_task(server.run())
        await ours[1].bootstrap([ours[0].address])
        await ours[2].bootstrap([ours[0].address])
        await stock.bootstrap([ours[1].address])
        assert len(stock.bootstrappable_neighbors()) == 3
        assert await stock.set("theirs", "text")
        assert await ours[2].set("ours", LARGEST)
        assert await ours[0].get("theirs") == "text"
        assert await stock.get("ours") == LARGEST
        assert sorted(await ours[0].find_closest(bytes(20))) == sorted(
            Contact(server.node.id, *server.transport.get_extra_info("sockname")) for server in (*ours[1:], stock)
        )
        for server in (*ours, stock):
            server.stop()


async def test_a_dual_stack_socket_writes_to_ipv4_through_mapped_addresses() -> None:
    async with world() as w:
        node = await w.node("ours", host(1))
        written: list[tuple[str, int]] = []

        class Socket(asyncio.DatagramTransport):
            def sendto(self, data: Any, addr: Any = None) -> None:
                written.append(addr)

            def is_closing(self) -> bool:
                return False

        node.plane.connection_made(Socket({"sockname": ("::", PORT, 0, 0)}))
        node.plane.datagram_received(request("stun"), ("::ffff:10.0.0.7", 7, 0, 0))
        node.plane.datagram_received(request("stun"), ("2001:db8::1", 8, 0, 0))
        assert written == [("::ffff:10.0.0.7", 7), ("2001:db8::1", 8)]
