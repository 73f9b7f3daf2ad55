"""A target of a seed's redirect counts from who owns or fetched the seed, and from the crawl's author."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import replace
from typing import Any

import pytest
from harness.bench import Bench
from storage.stores import SPEC

from dhtcrawl.keyspace import distance, placement
from dhtcrawl.node_key import NodeKey
from dhtcrawl.rpc.peers.port import CallRegistry
from dhtcrawl.rpc.tasks.messages import Call, Refused, Reply, Result
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.sim.pages import Response
from dhtcrawl.storage.store import keys, redirect_targets
from dhtcrawl.storage.store.crawl_record import (
    ALIASES_MAX,
    COMPLETE,
    CrawlRecord,
    from_wire,
    merge_crawls,
    new_record,
    to_wire,
)
from dhtcrawl.storage.store.records import Place, State, Task
from dhtcrawl.swarm.lifecycle.crawl_authority import TARGETS_A_RECORD, CrawlAuthority
from dhtcrawl.swarm.lifecycle.crawl_records import CrawlRecords
from dhtcrawl.swarm.lifecycle.redirect_trust import AGAIN_S, RedirectTrust, undecided
from dhtcrawl.url import host_of
from swarm.fake_peers import GONE, node, view_of
from swarm.story import Story, a_world

MEMBERS = (0, 1, 2, 3)
AUTHOR = SimKey(node(9))
CRAWL = new_record(SPEC, bytes(16), AUTHOR)
SEED = SPEC.seeds[0]
KEY = SPEC.key_of(SEED)
RANKED = sorted(MEMBERS, key=lambda n: distance(node(n), placement(KEY)))
OWNER, OWN, OTHER, _ = RANKED
URL = "http://b.example/"


def told(by: NodeKey, url: str = URL, source: str = SEED, crawl: CrawlRecord = CRAWL) -> CrawlRecord:
    target = redirect_targets.made(by, crawl.crawl_id, source, url)
    return replace(crawl, targets={**crawl.targets, target.name: target.packed()})


class TrustBench(Bench):
    def __init__(self, own: int = OWN) -> None:
        super().__init__(view_of(MEMBERS))
        self.peers.node_id = node(own)
        self.given: set[tuple[bytes, bytes, bytes]] = set()
        authority = CrawlAuthority(SimKey(node(own)), lambda: self.peers.view, lambda _: True)
        self.records = CrawlRecords(self.peers, self.registry, self.committer, authority)
        self.trust = RedirectTrust(
            self.peers, self.registry, self.committer, self.records, lambda *asked: asked in self.given
        )
        self.fetched: bool | None = None
        self.peers.calls["crawl_fetched"] = lambda _: {"fetched": bool(self.fetched)}

    async def hear(self, record: CrawlRecord) -> list[str]:
        """The aliases that are believed once another node has told the record."""
        await self.records.learn(CRAWL)
        await self.records.hear(from_wire(to_wire(record)), node(OTHER))
        await self.trust.look(CRAWL.crawl_id)
        return self.aliases

    @property
    def aliases(self) -> list[str]:
        known = self.records.get(CRAWL.crawl_id)
        assert known is not None
        return known.aliases


@pytest.mark.parametrize("who", [AUTHOR, SimKey(node(OWNER))], ids=["author", "owner"])
async def test_author_and_owner_of_the_seed_are_believed_at_once(who: NodeKey) -> None:
    bench = TrustBench()
    assert await bench.hear(told(who)) == [URL]
    assert bench.peers.called == []


async def test_another_is_believed_once_the_owner_says_that_it_fetched_the_seed() -> None:
    bench = TrustBench()
    assert await bench.hear(told(SimKey(node(OTHER)))) == []
    assert [(to, name, args["node"]) for to, name, args in bench.peers.called] == [
        (node(OWNER), "crawl_fetched", node(OTHER))
    ]
    await bench.trust.look(CRAWL.crawl_id)
    assert len(bench.peers.called) == 1, "it has just been asked"
    bench.fetched = True
    running = asyncio.ensure_future(bench.trust.run())
    await asyncio.sleep(2 * AGAIN_S + 0.1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert bench.aliases == [URL]


async def test_before_a_task_dies_or_a_crawl_is_complete_the_owner_is_asked_once_more_however_lately_it_was() -> None:
    """Else a crawl could end before its scope had grown, where the owner did not answer, or did not know yet."""
    bench = TrustBench()
    assert await bench.trust.settled(CRAWL.crawl_id), "of a crawl that is not known here nothing is open"
    assert await bench.hear(told(SimKey(node(OTHER)))) == []
    assert await bench.trust.settled(CRAWL.crawl_id)
    assert bench.aliases == [], "it says that another had the task"
    bench.peers.calls["crawl_fetched"] = lambda _: GONE
    assert not await bench.trust.settled(CRAWL.crawl_id)
    bench.peers.calls["crawl_fetched"] = lambda _: {"fetched": True}
    assert await bench.trust.settled(CRAWL.crawl_id)
    assert bench.aliases == [URL]
    asked = len(bench.peers.called)
    assert await bench.trust.settled(CRAWL.crawl_id)
    assert len(bench.peers.called) == asked


async def test_an_owner_knows_to_whom_it_gave_the_task_and_who_is_named_by_the_record_of_the_page() -> None:
    bench = TrustBench(OWNER)
    await bench.records.learn(CRAWL)

    async def says(number: int) -> Any:
        call = Call("crawl_fetched", {"crawl": CRAWL.crawl_id, "key": KEY, "node": node(number)})
        async with asyncio.TaskGroup() as group:
            reply = bench.registry.answer(node(OTHER), call, group)
            reply = await reply if isinstance(reply, asyncio.Future) else reply
        assert isinstance(reply, Result)
        return reply.value["fetched"]

    assert not await says(OTHER)
    bench.given.add((CRAWL.crawl_id, KEY, node(OTHER)))
    assert await says(OTHER)
    bench.given.clear()
    page = Task(SEED, 0, 1, "", State.FETCHED, seed=True, place=Place(node(OTHER).hex(), "x", 0, 1))
    bench.engine.write({keys.TASK + CRAWL.crawl_id + KEY: page.pack()}, sync=False)
    assert await says(OTHER)
    assert not await says(7)
    assert await bench.hear(told(SimKey(node(OTHER)))) == [URL], "it asks nobody but itself"
    assert bench.peers.called == []


async def test_what_is_behind_a_page_that_is_no_seed_is_believed_of_nobody_and_behind_a_target_it_is() -> None:
    bench, owner = TrustBench(), SimKey(node(OWNER))
    record = told(AUTHOR, "http://c.example/", source=URL)
    assert await bench.hear(record) == []
    assert undecided(record) == []
    assert await bench.hear(told(owner, crawl=record)) == [URL, "http://c.example/"]


async def test_no_crawl_that_has_ended_and_none_without_author_asks_for_anything() -> None:
    record = told(SimKey(node(OTHER)))
    assert undecided(record)
    assert undecided(replace(record, ended=COMPLETE)) == undecided(replace(record, author=None)) == []


async def test_a_word_that_its_node_has_not_signed_is_kept_by_nobody() -> None:
    bench, owner = TrustBench(), SimKey(node(OWNER))
    target = redirect_targets.made(owner, CRAWL.crawl_id, SEED, URL)
    for forged in (
        target._replace(url="http://c.example/"),
        target._replace(node_id=node(OTHER)),
        redirect_targets.made(owner, bytes(16), SEED, URL),
    ):
        assert await bench.hear(replace(CRAWL, targets={forged.name: forged.packed()})) == []
        known = bench.records.get(CRAWL.crawl_id)
        assert known is not None
        assert known.targets == {}
    assert bench.records.authority.forged == 3


async def test_thousands_of_targets_are_verified_in_steps_and_the_rest_is_heard_again() -> None:
    bench, packed = TrustBench(), {}
    for number in range(TARGETS_A_RECORD + 10):
        target = redirect_targets.made(SimKey(node(OTHER)), CRAWL.crawl_id, f"{SEED}{number}", URL)
        packed[target.name] = target.packed()
    record = replace(CRAWL, targets=packed)
    for expected in (TARGETS_A_RECORD, TARGETS_A_RECORD + 10):
        await bench.hear(record)
        known = bench.records.get(CRAWL.crawl_id)
        assert known is not None
        assert len(known.targets) == expected
    latest = bench.records.get(CRAWL.crawl_id)
    assert latest is not None
    assert latest.digest == record.digest


async def test_what_a_node_believes_is_its_own_and_two_that_believe_differently_have_one_record() -> None:
    record = told(SimKey(node(OTHER)))
    believer = replace(record, aliases=[URL])
    assert believer.digest == record.digest
    assert from_wire(to_wire(believer)).aliases == []
    assert merge_crawls(record, believer).aliases == [URL]


async def test_a_node_that_believes_as_many_targets_as_a_record_has_places_for_asks_about_no_more() -> None:
    """It believed the next one again and again, without a pause, and did nothing else any more."""
    bench = TrustBench()
    full = [f"http://a.example/{number:04}" for number in range(ALIASES_MAX)]
    await bench.records.learn(replace(CRAWL, aliases=full))
    honest, learned = bench.records.learn, 0

    async def learn(record: CrawlRecord, *, free_bytes: int = 0) -> CrawlRecord:
        nonlocal learned
        learned += 1
        assert learned < 10, "it goes round in a circle"
        return await honest(record)

    bench.records.learn = learn  # type: ignore[method-assign]
    assert await bench.hear(told(AUTHOR, "http://z.example/")) == full
    assert await bench.trust.settled(CRAWL.crawl_id)
    assert bench.aliases == full
    assert bench.peers.called == []


async def test_who_fetches_a_seed_again_says_so_too_and_says_it_once() -> None:
    bench = TrustBench()
    bench.peers.calls["crawl_tell"] = lambda _: {}
    await bench.hear(told(SimKey(node(OWNER))))
    for _ in range(2):
        await bench.records.announce(CRAWL.crawl_id, SEED, URL)
    known = bench.records.get(CRAWL.crawl_id)
    assert known is not None
    assert len(known.targets) == 2
    assert [name for _, name, _ in bench.peers.called].count("crawl_tell") == len(MEMBERS) - 1


# In a swarm


async def moved(world: Story, policy: str) -> tuple[bytes, set[str], str]:
    """A crawl whose one seed redirects to another host; what it is to fetch, and the target."""
    from_host, to_host = (host_of(url) for url in world.spec.seeds[:2])
    seed, target = f"http://{from_host}/moved", f"http://{to_host}/"
    honest = world.web.respond

    def respond(url: str, attempt: int = 1) -> Any:
        if url != seed:
            return honest(url, attempt)
        return Response(301, [("Location", target)], b"")

    world.web.respond = respond  # type: ignore[method-assign]
    settings = dataclasses.replace(world.spec.settings, policy=policy, delay_s=0.2)
    spec = dataclasses.replace(world.spec, seeds=(seed,), settings=settings)
    crawl = await world.crawl(spec)
    return crawl, set(world.web.truth([seed, target])), seed


def fetched(world: Story, *, but_by: bytes = b"") -> set[str]:
    """The pages that nodes have fetched, those of one left out."""
    theirs = {host.name for host in world.hosts if host.id == but_by}
    ours = (visit for visit in world.web.visits if visit.status == 200 and visit.client not in theirs)
    return {visit.url for visit in ours if not visit.url.endswith("/robots.txt")}


@pytest.mark.parametrize("policy", ["xor", "balanced"])
async def test_a_swarm_follows_its_seed_to_another_host_and_no_member_to_a_third(policy: str) -> None:
    async with a_world(pages=60, nodes=4) as world:
        crawl, truth, seed = await moved(world, policy)
        swarms = [host.swarm for host in world.hosts if host.swarm is not None]
        owner = world.owner_of(world.spec.key_of(seed))
        await world.until(lambda: all(swarm.crawls.get(crawl) is not None for swarm in swarms))
        bad = next(swarm for swarm in swarms[1:] if swarm is not owner)
        false = world.spec.seeds[2]
        if policy == "xor":
            await bad.crawls.announce(crawl, seed, false)
        await world.until(lambda: world.ended(crawl))
        assert sorted(fetched(world, but_by=bad.id) - truth) == sorted(truth - fetched(world)) == []
        if policy == "xor":
            known = [swarm.crawls.get(crawl) for swarm in swarms if swarm is not bad]
            assert all(record is not None and len(record.targets) == 2 for record in known), (
                "all have what it has signed"
            )
            assert not any(record is not None and false in record.aliases for record in known)


async def test_nothing_dies_for_the_scope_while_an_owner_does_not_answer_who_fetched_the_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One task died for it, the redirect's target, and the crawl failed."""
    asked: list[float] = []
    honest = CallRegistry.answer

    def late(self: CallRegistry, asker: bytes, call: Call, group: asyncio.TaskGroup) -> Reply | asyncio.Future[Reply]:
        now = asyncio.get_running_loop().time()
        if call.name == "crawl_fetched":
            asked.append(now)
            if now - asked[0] < 1.5:
                return Refused("internal")
        return honest(self, asker, call, group)

    monkeypatch.setattr(CallRegistry, "answer", late)
    async with a_world(pages=60, nodes=4) as world:
        crawl, truth, _ = await moved(world, "dspider")
        await world.until(lambda: world.ended(crawl))
        assert len(asked) > 1
        assert sorted(truth - fetched(world)) == []


async def test_who_joins_once_the_fetcher_of_the_seed_is_gone_comes_to_believe_it_too() -> None:
    async with a_world(pages=80, nodes=4, swarm__holder_grace_s="20s") as world:
        crawl, truth, _ = await moved(world, "balanced")
        await world.until(lambda: len(world.web.visits) > 12)
        record = world.hosts[0].swarm.crawls.get(crawl)  # type: ignore[union-attr]
        assert record is not None
        (target,) = redirect_targets.targets_of(record.targets)
        gone = next(host for host in world.hosts if host.id == target.node_id)
        others = [host for host in world.hosts if host is not gone]
        await gone.crash()
        newcomer = world.sim.add()
        swarm = await newcomer.start(others)
        await world.until(lambda: (known := swarm.crawls.get(crawl)) is not None and known.aliases == [target.url])
        at = world.hosts.index(others[0])
        await world.until(lambda: world.ended(crawl, at))
        assert sorted(fetched(world) ^ truth) == []
