"""A crawl that every node of a swarm has forgotten, one after the other, leaves nothing behind."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from dhtcrawl.config import load
from dhtcrawl.node import swarm_node
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.swarm import SimHost, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store import catalog, keys
from dhtcrawl.storage.store.txn import Txn

from .test_forged_numbers import all_active, until
from .test_open_files import over


def forget(host: SimHost, crawl: bytes, at_once: int = 10_000, *, killed: bool = False) -> None:
    """As `dhtcrawl forget` does with the store of a node that does not run; `killed` after its first records."""
    engine, step = host.disk.engine, catalog.DropStep()
    writes: dict[bytes, bytes | None] = {}
    catalog.put_closed(Txn(engine, writes), crawl)
    while step.cursor is not None:
        step = catalog.forget(Txn(engine, writes), crawl, at_once, step.cursor)
        engine.write(writes, sync=True)
        writes = {}
        if killed:
            return


def left(host: SimHost, crawl: bytes) -> set[bytes]:
    """The kinds of records that a host has of a crawl."""
    return {kind for kind in keys.KINDS if any(host.disk.engine.scan(*keys.bounds(kind, crawl)))}


async def crawled(group: asyncio.TaskGroup, count: int) -> tuple[list[SimHost], bytes]:
    """So many nodes that have a crawl behind them, and its id."""
    config = load(flags={"crawl.delay_s": "0"})
    web = SimWeb(1, WebShape(hosts=3, pages=30, flaky=0.0))
    swarm = SimSwarm(group, 1, config, web, Trace(asyncio.get_running_loop().time))
    hosts = [swarm.add() for _ in range(count)]
    for number, host in enumerate(hosts):
        await host.start(hosts[:number])
    await until(lambda: all_active(hosts))
    record = await hosts[0].submit(make_spec(web.seeds(), config.crawl), bytes(16))
    await until(partial(over, hosts, record.crawl_id), 900.0)
    return hosts, record.crawl_id


async def test_what_others_send_of_a_forgotten_crawl_is_dropped_again_until_all_have_forgotten_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(swarm_node, "FORGOTTEN_EVERY_S", 120.0)
    async with asyncio.TaskGroup() as group:
        hosts, crawl = await crawled(group, 3)
        for host in hosts:
            await host.stop()
            forget(host, crawl)
            await host.start([other for other in hosts if other is not host])
            await until(partial(all_active, hosts))
            if host is hosts[0]:
                assert left(host, crawl) == {keys.TASK}, "the others have it still, and make sure that this one has"
        await until(lambda: not any(left(host, crawl) for host in hosts))
        for host in hosts:
            await host.stop()


async def test_a_crawl_of_which_a_part_is_forgotten_is_forgotten_whole_by_the_next_start() -> None:
    async with asyncio.TaskGroup() as group:
        (host,), crawl = await crawled(group, 1)
        await host.stop()
        forget(host, crawl, 5, killed=True)
        assert keys.CRAWL in left(host, crawl)
        swarm = await host.start([])
        assert (left(host, crawl), swarm.crawls.get(crawl)) == (set(), None)
        await host.stop()
