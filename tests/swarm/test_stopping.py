"""Whole nodes, on virtual time: how they stop, and what one crawl is to another."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter

from dhtcrawl.node.api import Api
from dhtcrawl.sim.scene import view_of
from dhtcrawl.sim.swarm import SimHost
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store import catalog
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.swarm.membership.join import Join
from dhtcrawl.swarm.membership.join_state import JoinPhase

from .story import a_world


def join_of(host: SimHost) -> Join:
    assert host.swarm is not None
    return host.swarm.join


async def test_a_node_stops_although_its_backups_have_crashed() -> None:
    async with a_world() as world:
        await world.crawl(world.spec)
        await world.until(lambda: len(world.web.visits) > 50)
        await world.hosts[1].crash()
        await world.hosts[2].crash()
        async with asyncio.timeout(60.0):
            await world.hosts[3].stop()


async def test_a_node_stops_while_it_is_still_looking_for_the_others() -> None:
    async with a_world(nodes=2) as world:
        newcomer = world.sim.add()
        newcomer.begin(world.hosts[:1])
        await world.until(lambda: newcomer.swarm is not None)
        await asyncio.sleep(0.03)
        async with asyncio.timeout(60.0):
            await newcomer.stop()


async def test_a_node_leaves_although_it_has_not_joined_yet() -> None:
    async with a_world(nodes=3) as world:
        crawl = await world.crawl(world.spec)
        await world.until(lambda: len(world.web.visits) > 30)
        newcomer = world.sim.add()
        newcomer.begin(world.hosts[:1])
        await world.until(lambda: newcomer.swarm is not None)
        await asyncio.sleep(0.05)
        async with asyncio.timeout(120.0):
            await newcomer.leave()
        await world.until(lambda: world.ended(crawl))


async def test_the_last_owner_leaves_when_those_who_join_have_heard_what_is_over() -> None:
    async with a_world(nodes=2) as world:
        crawl = await world.crawl(world.spec)
        await world.until(lambda: len(world.web.visits) > 40)
        first, other = world.hosts
        await other.crash()
        await world.until(lambda: len(world.web.visits) > 100)
        begun = {visit.url for visit in world.web.visits if visit.client == other.name}
        other.begin([first])
        await world.until(lambda: len(view_of(first).members) == 2 and len(view_of(first)) == 1)
        async with asyncio.timeout(60.0):
            await first.leave()
        await world.until(lambda: world.ended(crawl, at=1))
        pages = Counter(visit.url for visit in world.web.visits if visit.status == 200)
        assert {url for url, times in pages.items() if times > 1 and not url.endswith("/robots.txt")} <= begun


async def test_a_node_whose_disk_fails_while_it_is_joining_ends() -> None:
    async with a_world(nodes=1) as world:
        newcomer, first = world.sim.add(), world.hosts[0]
        newcomer.begin([first])
        await world.until(
            lambda: len(view_of(newcomer).members) == 2 and join_of(newcomer).state.phase is not JoinPhase.JOINING
        )
        first.pause()  # nobody takes it in, nor does it write anything
        try:
            await asyncio.sleep(0.2)
            assert not join_of(newcomer).state.active
            async with asyncio.timeout(1.0):
                await newcomer.fail_disk()
        finally:
            first.resume()


async def test_a_node_whose_disk_fails_while_it_leaves_has_not_left() -> None:
    async with a_world(nodes=2) as world:
        await world.crawl(world.spec)
        await world.until(lambda: len(world.web.visits) > 40)
        _, other = world.hosts
        await asyncio.gather(other.fail_disk(), other.leave())
        assert other.disk_full


async def test_a_node_that_has_left_had_a_disk() -> None:
    async with a_world(nodes=2) as world:
        await world.crawl(world.spec)
        await world.until(lambda: len(world.web.visits) > 40)
        _, other = world.hosts
        assert await other.leave()
        assert not other.disk_full


async def test_a_node_that_stands_still_asks_for_nothing_though_it_was_given_the_crawl() -> None:
    async with a_world(nodes=1) as world:
        await world.crawl(world.spec)
        await world.until(lambda: len(world.web.visits) > 20)
        first = world.hosts[0]
        first.pause()
        before = sum(visit.client == first.name for visit in world.web.visits)
        await asyncio.sleep(2.0)
        assert sum(visit.client == first.name for visit in world.web.visits) == before
        first.resume()
        await world.until(lambda: len(world.web.visits) > 100)
        assert sum(visit.client == first.name for visit in world.web.visits) > before


async def test_a_small_crawl_ends_while_a_large_one_goes_on() -> None:
    async with a_world(pages=800) as world:
        large = await world.crawl(world.spec)
        depth_0 = dataclasses.replace(world.spec.settings, depth=0)
        small = await world.crawl(make_spec(world.web.seeds()[:1], depth_0), b"n" * 16)
        await world.until(lambda: world.ended(small))
        assert not world.ended(large)
        assert len(world.web.visits) < 600


def forget(host: SimHost, crawl: bytes) -> None:
    """Have a node that is stopped forget a crawl, as `dhtcrawl forget` would if it let it."""
    writes: dict[bytes, bytes | None] = {}
    txn = Txn(host.disk.engine, writes)
    catalog.put_closed(txn, crawl)
    catalog.forget(txn, crawl, 10_000)
    host.disk.engine.write(writes, sync=True)


async def test_a_crawl_that_one_node_forgot_while_it_goes_on_does_not_end_while_that_node_is_there() -> None:
    """Why the command refuses it."""
    async with a_world(pages=40, nodes=4) as world:
        crawl, forgetful = await world.crawl(world.spec), world.hosts[3]
        await world.until(lambda: len(world.web.visits) > 10)
        await forgetful.stop()
        forget(forgetful, crawl)
        await forgetful.start(world.hosts[:1])
        await asyncio.sleep(120.0)
        assert not world.ended(crawl)
        await forgetful.leave()
        await world.until(lambda: world.ended(crawl))


async def test_a_crawl_that_was_ended_first_may_be_forgotten_and_no_other_waits_for_it() -> None:
    async with a_world(pages=40, nodes=4) as world:
        crawl, forgetful = await world.crawl(world.spec), world.hosts[3]
        await world.until(lambda: len(world.web.visits) > 10)
        first = world.hosts[0].swarm
        assert first is not None
        await Api(first, first.registry).control(crawl, "stop")
        await world.until(lambda: world.ended(crawl, 3))
        await forgetful.stop()
        forget(forgetful, crawl)
        await forgetful.start(world.hosts[:1])
        again = await world.crawl(world.spec, bytes(15) + b"\1")
        await world.until(lambda: all(world.ended(again, at) for at in range(4)))
        assert world.ended(crawl)
        assert forgetful.swarm is not None
        assert forgetful.swarm.crawls.get(crawl) is None
