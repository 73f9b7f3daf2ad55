"""Nodes of the routing plane in memory, ours and the library's, for the tests beside this file."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, TypeVar

import msgpack
import pytest
from kademlia.crawling import NodeSpiderCrawl
from kademlia.network import Server
from kademlia.node import Node

from dhtcrawl.rpc.contact import Contact
from dhtcrawl.rpc.discovery.datagram import DatagramRequest, decode, encode_request
from dhtcrawl.rpc.discovery.server import RoutingServer
from dhtcrawl.sim.loop import VirtualClock, VirtualLoop, on_host
from dhtcrawl.sim.net import DatagramNetwork, Weather
from dhtcrawl.sim.trace import Trace

T = TypeVar("T")
PORT = 8468
CALM = Weather(delay_s=(0.01, 0.01), jitter_s=0.0)


class Plane:
    """One network and the nodes on it; `kind` is "ours" or "stock"."""

    def __init__(self, loop: VirtualLoop, seed: int, weather: Weather, trace: Trace | None = None) -> None:
        self.net = DatagramNetwork(loop, seed, weather, trace)
        loop.network = self.net
        self.loop = loop
        self.seed = seed
        self.nodes: dict[str, Any] = {}
        self.group: asyncio.TaskGroup | None = None
        random.seed(seed)  # what the library uses

    async def node(self, kind: str, host: str, node_id: bytes | None = None, **options: Any) -> Any:
        """A node that listens on `host`."""
        node_id = node_id or Random(f"{self.seed} id {host}").randbytes(20)
        with on_host(host):
            if kind == "stock":
                server: Any = Server(node_id=node_id, **options)
            else:
                rng = Random(f"{self.seed} node {host}")
                server = RoutingServer(node_id, clock=VirtualClock(self.loop), rng=rng, **options)
            await server.listen(PORT)
            if kind == "ours":
                assert self.group is not None
                self.group.create_task(server.run())
        self.nodes[host] = server
        return server

    async def swarm(self, kind: str, count: int, first: int = 1) -> list[Any]:
        """Nodes that join one after the other, each through one of those before it."""
        rng = Random(f"{self.seed} joins")
        servers: list[Any] = []
        for number in range(first, first + count):
            server = await self.node(kind, host(number))
            if servers:
                await server.bootstrap([(host(rng.randrange(first, number)), PORT)])
            servers.append(server)
        return servers

    def crash(self, name: str) -> None:
        """The node is gone, from one moment to the next."""
        self.net.crash(name)
        self.nodes.pop(name).stop()


def host(number: int) -> str:
    return f"10.0.{number // 250}.{number % 250 + 1}"


@asynccontextmanager
async def world(seed: int = 1, weather: Weather = CALM, trace: Trace | None = None) -> AsyncIterator[Plane]:
    """A world whose nodes are stopped at its end."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    made = Plane(loop, seed, weather, trace)
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        made.group = group
        try:
            yield made
        except Exception as error:  # not within the group, which would wrap it
            failure = error
        finally:
            for server in made.nodes.values():
                server.stop()
    if failure is not None:
        raise failure


def simulate(main: Callable[[], Awaitable[T]]) -> T:
    """Run on a virtual loop; what the library leaves behind is cancelled without a word."""
    loop = VirtualLoop()
    loop.set_exception_handler(lambda _loop, _context: None)
    try:
        result: T = loop.run_until_complete(main())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        return result
    finally:
        loop.close()


def table_of(server: Any) -> list[tuple[bytes, str, int]]:
    """The contacts in a node's table, of either kind."""
    if isinstance(server, RoutingServer):
        return list(server.plane.table)
    return [tuple(node) for bucket in server.protocol.router.buckets for node in bucket.get_nodes()]


def add(server: Any, contact: tuple[bytes, str, int]) -> None:
    """Put a contact into a table, as if it had been verified."""
    if isinstance(server, RoutingServer):
        server.plane.table.confirm(Contact(*contact), asyncio.get_running_loop().time())
    else:
        server.protocol.router.add_contact(Node(*contact))


def neighbours(server: Any, key: bytes) -> list[Any]:
    """The contacts in a node's table that are closest to a key, of either kind; each has an `id`."""
    if isinstance(server, RoutingServer):
        return list(server.plane.table.closest(key))
    return list(server.protocol.router.find_neighbors(Node(key), server.ksize))


async def ping(server: Any, contact: tuple[bytes, str, int]) -> None:
    """Ask a contact, so that the table learns from the outcome."""
    if not isinstance(server, RoutingServer):
        await server.protocol.call_ping(Node(*contact))
        return
    over = asyncio.get_running_loop().create_future()
    server.plane.begin(Contact(*contact), "ping", (server.node.id,), lambda *_: over.set_result(None))
    await over


def xor(a: bytes, b: bytes) -> int:
    return int.from_bytes(a, "big") ^ int.from_bytes(b, "big")


both = pytest.mark.parametrize("kind", ["stock", "ours"])


class Raw(asyncio.DatagramProtocol):
    """An endpoint that does only what a test tells it; `answer(name, args)` makes its replies."""

    def __init__(self, world_: Plane, address: tuple[str, int], answer: Callable[[str, list[Any]], Any] | None = None):
        self.received: list[tuple[bytes, tuple[str, int]]] = []
        self.requests: list[tuple[str, list[Any]]] = []
        self.answer = answer
        self.transport, _ = world_.net.open_datagram(lambda: self, address)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.received.append((data, addr))
        message = decode(data)
        if isinstance(message, DatagramRequest):
            self.requests.append((message.name, message.args))
            if self.answer is not None:
                reply = self.answer(message.name, message.args)
                self.transport.sendto(b"\x01" + message.message_id + msgpack.packb(reply), addr)


def spider(server: Any, key: bytes) -> Any:
    """A look-up for the nodes closest to a key, of either kind."""
    if isinstance(server, RoutingServer):
        return server.find_closest(key)
    return NodeSpiderCrawl(server.protocol, Node(key), neighbours(server, key), server.ksize, server.alpha).find()


def request(name: str, *args: Any) -> bytes:
    return encode_request(bytes(range(20)), name, args)
