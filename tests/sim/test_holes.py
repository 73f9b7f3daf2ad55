"""What strangers once did to three nodes with one call each, tried by a member and by a stranger in one crawl.

In an open swarm and in one whose datagrams are sealed. SECURITY.md has the list; what needs sockets or processes
stands elsewhere.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest

from dhtcrawl.closed.secret import Ring
from dhtcrawl.config import load
from dhtcrawl.keyspace import INCARNATION_MAX
from dhtcrawl.rpc.membership.hello import EPOCH_MAX, MemberRecord, NodeState
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers
from dhtcrawl.rpc.membership.row_proofs import RowProofs
from dhtcrawl.rpc.peers.port import NOT_A_MEMBER, call_of
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.messages import Refused, Request, StoreTask
from dhtcrawl.rpc.tasks.rows import LinkRow
from dhtcrawl.rpc.tasks.schema import CallArgs
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.sim.loop import run
from dhtcrawl.sim.pages import WebShape
from dhtcrawl.sim.swarm import SimConditions, SimHost, SimSwarm
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimWeb
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store.crawl_record import VERSION_MAX, CrawlRecord, new_record, to_wire
from dhtcrawl.swarm.calls.hosts import SPAN_MS_MAX, AskHosts, AskRow, TellRobots
from dhtcrawl.swarm.calls.lifecycle import ListCrawls, TellCrawl
from dhtcrawl.url import host_of

STRANGER = Hello(b"s" * 20, 1, "active", ("xor",))
INVENTED = 512
SALT = bytes(16)
# What a day's rest that somebody names comes to here, and what the crawl may take in all: 18 s where nobody lies, and
# the lies are told twice.
REST_S, IN_ALL_S = 5.0, 60.0
BEYOND = ("http://169.254.169.254/latest/", "http://10.0.0.1/", "http://elsewhere.test/", "http://127.0.0.1:80/admin")


@dataclass
class Ended:
    """What came of a crawl."""

    fetched: set[str] = field(default_factory=set)
    truth: set[str] = field(default_factory=set)
    took_s: float = 0.0
    members: list[int] = field(default_factory=list)  # that each honest node saw at most, at any time
    stranger: list[tuple[Request, object]] = field(default_factory=list)
    incarnations: list[int] = field(default_factory=list)  # of all nodes, started once more after it


def invented(count: int) -> list[MemberRecord]:
    rng = Random(5)
    made = [
        MemberRecord(rng.randbytes(20), f"10.9.{n // 250}.{n % 250}", 9, 1, 1, NodeState.ACTIVE, True)
        for n in range(count)
    ]
    return sorted(made, key=lambda record: record.id)


def lies(hosts: list[SimHost], spec_hosts: list[str], crawl: CrawlRecord) -> list[CallArgs[Any]]:
    """What a member may say to each of the others, by call."""
    said: list[CallArgs[Any]] = []
    for host in hosts[:3]:
        assert host.swarm is not None
        dead = host.swarm.gossip.members.me.turned(NodeState.DEAD)
        for life in ((2**24, 0), (INCARNATION_MAX, EPOCH_MAX)):  # holes 3, 3b, 4
            forged = replace(dead, incarnation=life[0], epoch=life[1])
            said.append(ExchangeMembers((forged.row(),), b"", 9))
    bare = invented(INVENTED)
    signed = [RowProofs(SimKey(record.id)).signed(record) for record in bare]
    said += [ExchangeMembers(tuple(record.row() for record in rows), b"", 9) for rows in (bare, signed)]  # hole 5
    said.append(AskHosts(tuple(AskRow(host, SPAN_MS_MAX, SPAN_MS_MAX, b"") for host in spec_hosts)))  # hole 6
    nothing = b"User-agent: *\nDisallow: /\n"
    said += [TellRobots(f"http://{host}", "dhtcrawl", "rules", nothing) for host in spec_hosts]  # hole 7
    said.append(TellCrawl(to_wire(replace(crawl, version=VERSION_MAX))))  # hole 9
    return said


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(1200):
        while not true():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.2)


async def crawled(ring: Ring | None) -> Ended:
    config = load(
        flags={
            "crawl.delay_s": "0.1",
            "fetch.concurrency": 4,
            "politeness.retry_after_max_s": f"{REST_S:.0f}s",
            "politeness.backoff_max_s": f"{REST_S:.0f}s",
            "politeness.crawl_delay_max_s": "0.2s",
        }
    )
    web, ended, handlers = SimWeb(3, WebShape(hosts=3, pages=40, flaky=0.0, broken=0.0)), Ended(), dict[str, Handler]()

    def keep(host: SimHost, handler: Handler) -> Handler:
        handlers[host.name] = handler
        return handler

    async with asyncio.TaskGroup() as group:
        conditions = SimConditions(ring=ring, handler_of=keep)
        swarm = SimSwarm(group, 3, config, web, Trace(asyncio.get_running_loop().time), conditions)
        hosts = [swarm.add() for _ in range(4)]
        for number, host in enumerate(hosts):
            await host.start(hosts[:number])
        await asyncio.sleep(5)
        spec, bad = make_spec(web.seeds(), config.crawl), hosts[3]
        assert hosts[0].swarm is not None
        record = new_record(spec, SALT, hosts[0].swarm.node.ports.key)
        names = sorted({host_of(seed) for seed in spec.seeds})
        beyond = tuple(LinkRow(spec.key_of(url), url, 1, spec.seeds[0]) for url in BEYOND)  # hole 10

        async def attack() -> None:
            assert bad.swarm is not None
            for host in hosts[:3]:
                requests: list[Request] = [
                    *map(call_of, lies(hosts, names, record)),
                    StoreTask(record.crawl_id, beyond),
                    call_of(ListCrawls(b"")),
                ]
                ended.stranger += [(request, handlers[host.name](STRANGER, request)) for request in requests]
                for request in requests:
                    await bad.swarm.peers.ask(host.id, request, timeout_s=5.0)

        async def watch() -> None:
            while True:
                ended.members += [len(host.swarm.gossip.view.members) for host in hosts[:3] if host.swarm is not None]
                await asyncio.sleep(0.1)

        watching = group.create_task(watch())
        await attack()
        began_at = swarm.loop.time()
        await hosts[0].submit(spec, SALT)
        await asyncio.sleep(1)
        await attack()

        def over() -> bool:
            known = [host.swarm.crawls.get(record.crawl_id) for host in hosts if host.swarm is not None]
            return all(each is not None and each.ended for each in known)

        await until(over)
        ended.took_s = swarm.loop.time() - began_at
        ended.fetched = {
            visit.url for visit in web.visits if visit.status == 200 and not visit.url.endswith("/robots.txt")
        }
        ended.truth = set(web.truth())
        watching.cancel()
        for host in hosts:
            before = host.swarm.gossip.members.me.incarnation  # type: ignore[union-attr]
            await host.crash()
            await host.start([other for other in hosts if other is not host])
            ended.incarnations.append(host.swarm.gossip.members.me.incarnation - before)  # type: ignore[union-attr]
        for host in hosts:
            await host.stop()
    return ended


@functools.cache
def came(closed: bool) -> Ended:
    return run(crawled(Ring.of((bytes(range(32)),)) if closed else None))


swarms = pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])


@swarms
def test_a_crawl_ends_whole_whatever_a_member_says_of_others_of_hosts_and_of_the_crawl(closed: bool) -> None:
    ended = came(closed)
    assert ended.fetched == ended.truth
    assert len(ended.truth) > 30
    assert ended.took_s <= IN_ALL_S


@swarms
def test_forged_numbers_take_no_member_away_and_keep_no_node_from_its_next_start(closed: bool) -> None:
    ended = came(closed)
    assert min(ended.members) >= 4
    assert ended.incarnations == [1] * 4


@swarms
def test_of_512_invented_members_no_more_than_eight_are_counted(closed: bool) -> None:
    assert max(came(closed).members) <= 4 + 8


@swarms
def test_a_stranger_is_refused_whatever_it_says_but_who_is_there(closed: bool) -> None:
    said = came(closed).stranger
    assert len(said) > 60
    for request, reply in said:
        if getattr(request, "name", "") != "members":
            assert isinstance(reply, Refused)
            assert reply.reason == NOT_A_MEMBER
