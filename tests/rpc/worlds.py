"""Where the transport is tested: on sockets with two loops, and in memory on the virtual one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from dhtcrawl.node_key import NodeKey
from dhtcrawl.rpc.tasks.connection import Address
from dhtcrawl.rpc.tasks.messages import Reply, Request
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.rpc.tasks.transport import Handler, TaskTransport, TransportLimits
from dhtcrawl.sim.loop import VirtualLoop
from dhtcrawl.sim.streams import Streams, StreamWeather
from rpc.wire import answer_to, hello

WORLDS = ("asyncio", "uvloop", "virtual")
# On real sockets a hanging test shall end; nothing is asserted about it.
PATIENCE_S = 20.0


class Wires:
    """Makes nodes and strangers on the loop that runs the test."""

    def __init__(self, weather: StreamWeather | None = None, seed: int = 1) -> None:
        loop = asyncio.get_running_loop()
        self.virtual = isinstance(loop, VirtualLoop)
        self.streams: Streams | None = None
        if isinstance(loop, VirtualLoop):
            loop.streams = self.streams = Streams(loop, seed, weather)
        else:
            loop.call_later(PATIENCE_S, _give_up)
        # A peer that does not read hangs on nothing else: collected, it would hang up.
        self.strangers: list[asyncio.Protocol] = []
        self._errors: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: self._errors.append(context))

    def check(self) -> None:
        """Fail if the loop was told of an error that nobody provoked."""
        unheard = [error for error in self._errors if "handler failed" not in error["message"]]
        # Not pytest's module: an assertion would not say what it found.
        if unheard:
            raise AssertionError(f"the loop was told of {unheard}")

    def host(self, number: int) -> str:
        return f"10.0.0.{number}" if self.virtual else "127.0.0.1"

    def node(
        self,
        number: int,
        handler: Handler | None = None,
        limits: TransportLimits | None = None,
        key: NodeKey | None = None,
    ) -> TaskTransport:
        source = self.host(number)
        return TaskTransport(lambda: hello(number), handler or take_all, limits=limits, source=source, key=key)

    async def stranger(self, address: Address, data: bytes = b"", host: int | str = 99) -> Stranger:
        """A peer that sends what the test says."""
        loop, source = asyncio.get_running_loop(), host if isinstance(host, str) else self.host(host)
        _, protocol = await loop.create_connection(Stranger, *address, local_addr=(source, 0))
        protocol.transport.write(data)
        return protocol

    async def strange_server(self, number: int, factory: Callable[[], asyncio.Protocol]) -> tuple[Any, Address]:
        def keep() -> asyncio.Protocol:
            self.strangers.append(factory())
            return self.strangers[-1]

        server = await asyncio.get_running_loop().create_server(keep, self.host(number), 0)
        return server, server.sockets[0].getsockname()[:2]


def _give_up() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


class Stranger(asyncio.Protocol):
    """Keeps what it hears, until the end."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.heard = bytearray()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def take_all(peer: Hello, message: Request) -> Reply:
    return answer_to(message)


class Slow:
    """A handler whose answers come when the test says so."""

    def __init__(self) -> None:
        self.open: list[tuple[Request, asyncio.Future[Reply]]] = []
        self.changed = asyncio.Event()

    def __call__(self, peer: Hello, message: Request) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.open.append((message, future))
        self.changed.set()
        return future

    async def has(self, count: int) -> None:
        """Until so many requests are open."""
        while len(self.open) < count:
            self.changed.clear()
            await self.changed.wait()

    def answer_all(self) -> None:
        for message, future in self.open:
            if not future.done():
                future.set_result(answer_to(message))
        self.open.clear()

    async def answer_until(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Answer what comes until these are done."""
        while not all(task.done() for task in tasks):
            self.answer_all()
            await asyncio.sleep(0.001)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)
