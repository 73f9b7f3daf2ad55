"""A stock node of the `kademlia` package takes part in an open swarm of ours, and is never given a task."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import SystemRandom

import pytest
from kademlia.network import Server

from dhtcrawl.clock import SystemClock
from dhtcrawl.rpc.discovery.server import RoutingServer

from .conftest import Serve
from .crawler import Crawler
from .outputs import Outputs
from .sites import SMALL, START
from .swarm import CLEAN, Swarm, submitted

Address = tuple[str, int]
VALUES = ["text", b"bytes", 7, 1.5, True]


@pytest.mark.needs_nginx
@pytest.mark.loops("asyncio")
async def test_a_stock_node_sets_and_gets_and_is_never_given_a_task(
    tmp_path: Path, serve: Serve, crawler: Crawler, outputs: Outputs
) -> None:
    server = serve(SMALL)
    with Swarm(tmp_path / "swarm", "--open-swarm") as swarm:
        swarm.start(3)
        swarm.meet()
        calls: list[Address] = []

        def crawl() -> None:
            with submitted(crawler, swarm.nodes[-1], outputs, server.url + START, "--delay", "0") as crawl:
                crawl.finish(swarm, CLEAN | {"refetches": 0, "nodes": 3})

        through = [address_of(node.address) for node in swarm.nodes]
        async with stock_node(calls) as stock, our_node() as ours:
            assert await stock.bootstrap(through[:1])
            assert await ours.bootstrap(through[1:2])
            for number, value in enumerate(VALUES):
                assert await stock.set(f"stock {number}", value)
                assert await ours.set(f"ours {number}", value)
            for number, value in enumerate(VALUES):
                assert await ours.get(f"stock {number}") == value
                assert await stock.get(f"ours {number}") == value
            # All the while it is there, and would answer whoever asks it on the routing plane.
            await asyncio.to_thread(crawl)
        stock_id = bytes(stock.node.id).hex()
        for node in swarm.nodes:
            assert stock_id not in {peer["node"] for peer in node.ask("peers")}
        assert calls == [], "nobody speaks TCP with it"
        assert len(outputs.html()) == SMALL.page_count
        swarm.check()


@asynccontextmanager
async def stock_node(calls: list[Address]) -> AsyncIterator[Server]:
    """A node of the library, and behind the same port in TCP somebody who notes who calls."""

    def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(writer.get_extra_info("peername"))
        writer.close()

    listener = await asyncio.start_server(note, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    node = Server()
    await node.listen(port, "127.0.0.1")
    try:
        yield node
    finally:
        node.stop()
        listener.close()


@asynccontextmanager
async def our_node() -> AsyncIterator[RoutingServer]:
    """A node of ours, of the routing plane only."""
    async with asyncio.TaskGroup() as group:
        node = RoutingServer(os.urandom(20), clock=SystemClock(), rng=SystemRandom())
        await node.listen(0, "127.0.0.1")
        upkeep = group.create_task(node.run())
        try:
            yield node
        finally:
            node.stop()
            upkeep.cancel()


def address_of(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)
