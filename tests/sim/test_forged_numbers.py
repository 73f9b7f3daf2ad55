"""A member that names absurd numbers of others: nobody is lost for it, and a crawl goes on, stops and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from dhtcrawl.config import load
from dhtcrawl.keyspace import INCARNATION_MAX, crawl_key
from dhtcrawl.rpc.membership.hello import EPOCH_MAX, MemberRecord, NodeState
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.swarm import SimHost, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store.crawl_record import (
    COMPLETE,
    PAUSED,
    RUNNING,
    STOPPED,
    STOPPING,
    VERSION_MAX,
    CrawlRecord,
    changed,
    signed,
    to_wire,
    with_settings,
)
from dhtcrawl.swarm.calls.lifecycle import TellCrawl


def gossip_of(host: SimHost) -> MemberRecord:
    assert host.swarm is not None
    return host.swarm.gossip.members.me


def gossip_view(host: SimHost) -> View:
    assert host.swarm is not None
    return host.swarm.gossip.view


async def until(true: Callable[[], bool], within_s: float = 300.0) -> None:
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)


def all_active(hosts: list[SimHost]) -> bool:
    return all(host.swarm is not None and host.swarm.gossip.view.active == len(hosts) for host in hosts)


async def test_forged_numbers_of_a_member_change_nothing_also_after_a_restart_and_a_crawl_ends() -> None:
    config = load(flags={"crawl.delay_s": "0", "fetch.concurrency": 4})
    web = SimWeb(1, WebShape(hosts=3, pages=30, flaky=0.0))
    async with asyncio.TaskGroup() as group:
        swarm = SimSwarm(group, 1, config, web, Trace(asyncio.get_running_loop().time))
        hosts = [swarm.add() for _ in range(3)]
        for number, host in enumerate(hosts):
            await host.start(hosts[:number])
        await until(lambda: all_active(hosts))
        victim, bad, _ = hosts
        assert bad.swarm is not None

        told = gossip_of(victim).incarnation
        forged = replace(gossip_of(victim).turned(NodeState.DEAD), incarnation=INCARNATION_MAX, epoch=EPOCH_MAX)
        for host in hosts:
            await bad.swarm.peers.call(host.id, ExchangeMembers((forged.row(),), b"", 9))
        await asyncio.sleep(5)
        assert gossip_of(victim).incarnation == told
        assert all_active(hosts), "nobody is lost for numbers that are not signed"
        await victim.crash()
        await victim.start([bad])
        assert gossip_of(victim).incarnation == told + 1
        await until(lambda: all_active(hosts))

        record = await victim.submit(make_spec(web.seeds(), config.crawl), b"n" * 16)
        owner = gossip_view(victim).owner(crawl_key(record.crawl_id))
        assert owner is not None
        # One that neither submitted the crawl nor coordinates it.
        liar = next(host for host in hosts[1:] if host.id != owner.id)
        assert liar.swarm is not None
        stopped = changed(record, STOPPING, cause=STOPPED)
        lies = [
            replace(record, version=VERSION_MAX, state=PAUSED),
            signed(stopped, record, liar.swarm.node.ports.key),
            changed(record, RUNNING, ended=COMPLETE),
            with_settings(record, replace(record.settings, max_pages=1)),
            CrawlRecord(record.spec.crawl_id(bytes(16)), record.spec, bytes(16)),
        ]
        for lie in lies:
            for host in hosts:
                await liar.swarm.peers.call(host.id, TellCrawl(to_wire(lie)))
        honest = [host for host in hosts if host is not liar]
        crawls = [host.swarm.crawls for host in honest if host.swarm is not None]

        def states() -> set[str]:
            return {known.state for each in crawls if (known := each.get(record.crawl_id)) is not None}

        assert states() == {RUNNING}
        for each in crawls:
            known = each.get(record.crawl_id)
            assert known is not None
            assert (known.ended, known.changes) == ("", None)
            assert each.ids() == [record.crawl_id], "nor is a crawl taken that nobody has signed"
        for state in (PAUSED, RUNNING):
            known = crawls[0].get(record.crawl_id)
            assert known is not None
            await crawls[0].publish(changed(known, state))
            await until(lambda: states() == {state})  # noqa: B023

        def ended() -> set[str]:
            return {known.ended for each in crawls if (known := each.get(record.crawl_id)) is not None}

        await until(lambda: ended() == {COMPLETE})
        for host in hosts:
            await host.stop()
