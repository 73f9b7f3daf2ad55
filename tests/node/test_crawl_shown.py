"""What a node tells people of a crawl."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import re
from typing import Any

import pytest
from swarm.story import Story, a_world

from dhtcrawl.config import CrawlSettings
from dhtcrawl.node.api import Api
from dhtcrawl.spec import make_spec
from dhtcrawl.standing import OWED
from dhtcrawl.storage.store.crawl_record import RUNNING, STOPPING, changed, fits_the_wire, new_record
from dhtcrawl.swarm.calls.explain import ExplainHost, ExplainUrl, Explanation
from dhtcrawl.web.api import ApiError


async def test_the_hosts_of_a_crawl_are_told_with_what_keeps_them_back() -> None:
    async with a_world(pages=200, nodes=1) as world:
        swarm = world.hosts[0].swarm
        assert swarm is not None
        api = Api(swarm, swarm.registry)
        crawl = await world.crawl(dataclasses.replace(world.spec, settings=CrawlSettings(delay_s=5.0)))
        await world.until(lambda: api.metrics().get("pages_total", 0) > 10)
        told = await api.hosts(crawl)
        assert (told["node"], told["running"]) == (swarm.id.hex(), True)
        dead = [row for row in told["hosts"] if row["state"] == "dead"]
        assert all(row["text"] and row["host"].startswith("http") for row in dead)
        assert told["total"] == told["looked_at"] == sum(told["states"].values()) == len(told["hosts"]) - len(dead)
        waiting = [row for row in told["hosts"] if row["state"] == "waiting"]
        assert told["hosts"][: len(waiting) + len(dead)] == waiting + dead
        (delayed, *_) = (row for row in waiting if row["reason"] == "delay")
        assert delayed["says"] == f"the delay between requests to {delayed['host']}"
        assert 0 < delayed["left_s"] <= 5.0
        assert delayed["queued"] > 0
        await api.control(crawl, "stop")
        await world.until(lambda: world.ended(crawl) and swarm.runs.of(crawl) is None)
        told = await api.hosts(crawl)
        assert (told["running"], told["hosts"]) == (False, [])
        assert [row["crawl"] for row in await api.crawls(ended_max=1)] == [crawl.hex()]
        assert await api.crawls(ended_max=0) == []


async def test_what_a_crawl_waits_for_is_told_in_words_for_people() -> None:
    async with a_world(pages=100, nodes=1) as world:
        swarm = world.hosts[0].swarm
        assert swarm is not None
        api = Api(swarm, swarm.registry)
        crawl = await world.crawl(world.spec)
        await world.until(lambda: api.metrics().get("in_flight", 0) > 0)
        told: list[str] = []
        while not world.ended(crawl):
            told += (await api.crawl(crawl))["waiting_for"]
            await asyncio.sleep(0.5)
        assert {re.sub(r"[0-9a-f]{12}: [0-9]+ ", "", line) for line in told} <= set(OWED.values())
        assert any(line.endswith(OWED["in_flight"]) for line in told)
        await world.until(lambda: world.ended(crawl))


def apis(world: Story) -> list[Api]:
    """What each node tells."""
    swarms = [host.swarm for host in world.sim.up if host.swarm is not None]
    return [Api(swarm, swarm.registry) for swarm in swarms]


async def test_errors_by_kind_are_the_sum_over_all_nodes_and_refused_crawls_have_failed() -> None:
    async with a_world(pages=6, nodes=3, refuses=True) as world:
        crawl = await world.crawl(world.spec)
        await world.until(lambda: all(world.ended(crawl, at) for at in range(3)))
        told = [await api.crawl(crawl) for api in apis(world)]
        assert [each["ended"] for each in told] == ["failed"] * 3
        for each in told:
            counters, nodes = each["counters"], [row["counters"] for row in each["per_node"]]
            assert (counters["pages"], counters["pages_ok"], counters["errors"]) == (5, 0, 6)
            assert (counters["errors_403"], counters["errors_connect"]) == (5, 1)
            assert sum(node.get("errors_403", 0) for node in nodes) == 5


async def test_what_a_page_is_comes_from_the_node_that_has_it() -> None:
    """All pages lie with the first node; others come, and own some of their records."""
    async with a_world(pages=30, nodes=1) as world:
        crawl = await world.crawl(world.spec)
        await world.until(lambda: world.ended(crawl))
        for _ in range(3):
            await world.sim.add().start(world.hosts[:1])
        newest = apis(world)[-1]
        for url in world.web.truth():
            (answer,) = await newest.why(url, crawl)
            assert (answer["state"], answer["status"]) == ("done", 200)


async def test_a_limit_that_is_raised_holds_although_the_end_by_the_lower_one_was_on_its_way() -> None:
    async with a_world(nodes=1) as world:
        crawl = await world.crawl(dataclasses.replace(world.spec, settings=CrawlSettings(delay_s=5.0, max_pages=9)))
        (author,) = apis(world)
        swarm = world.hosts[0].swarm
        assert swarm is not None
        before = swarm.crawls.get(crawl)
        assert before is not None
        stopping = changed(before, STOPPING, cause="page limit")
        await author.control(crawl, "resume", {"max_pages": 8})
        lowered = swarm.crawls.get(crawl)
        assert lowered is not None
        assert lowered.version == before.version, "the end by a lower limit is right"
        await author.control(crawl, "resume", {"max_pages": 10})
        for over in (changed(before, RUNNING, ended="page limit"), changed(stopping, STOPPING, ended="page limit")):
            assert (await swarm.crawls.learn(over)).ended == ""
        await author.control(crawl, "stop")
        await world.until(lambda: world.ended(crawl))


async def test_what_a_person_wants_of_a_crawl_is_passed_on_to_its_author_on_one_machine_only() -> None:
    async with a_world(pages=60, nodes=3) as world:
        crawl = await world.crawl(dataclasses.replace(world.spec, settings=CrawlSettings(delay_s=5.0)))
        author, other, _ = nodes = apis(world)
        await world.until(lambda: all(host.swarm is not None and host.swarm.crawls.ids() for host in world.hosts))
        with pytest.raises(ApiError, match=r"was submitted at node \w{12} at .*; run this command there") as refused:
            await other.control(crawl, "pause")
        assert refused.value.status == 409
        assert world.hosts[1].swarm is not None

        world.hosts[1].swarm.crawls.authority.passed_on = True  # only where it is told; its author does not believe it
        with pytest.raises(ApiError, match="run this command there"):
            await other.control(crawl, "pause")
        assert {each["state"] for node in nodes for each in await node.crawls()} == {"running"}

        assert world.hosts[0].swarm is not None
        world.hosts[0].swarm.crawls.authority.passed_on = True
        assert (await other.control(crawl, "pause"))["state"] == "paused"
        assert {each["state"] for node in nodes for each in await node.crawls()} == {"paused"}
        await other.control(crawl, "resume", {"delay_s": 0.0})
        assert (await author.crawl(crawl))["spec"]["settings"]["delay_s"] == 0.0
        await other.control(crawl, "stop")
        await world.until(lambda: world.ended(crawl))
        with pytest.raises(ApiError, match="has ended: stopped"):
            await other.control(crawl, "pause")
        await world.hosts[0].crash()
        with pytest.raises(ApiError, match="it does not answer"):
            await other.control(crawl, "resume", {"delay_s": 1.0})


async def test_a_crawl_whose_record_leaves_no_room_for_what_is_to_come_is_refused() -> None:
    rng = random.Random(1)
    seeds = [f"http://a.example/{rng.randbytes(4_000).hex()}" for _ in range(195)]
    async with a_world(nodes=1) as world:
        swarm = world.hosts[0].swarm
        assert swarm is not None
        with pytest.raises(ApiError, match="195 seeds are too many"):
            await Api(swarm, swarm.registry).submit(make_spec(seeds, CrawlSettings()))
        assert not swarm.crawls.ids()
        assert fits_the_wire(new_record(make_spec(seeds, CrawlSettings()), bytes(16), swarm.node.ports.key))


async def test_a_node_that_knows_as_many_crawls_as_a_swarm_keeps_takes_no_further_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others refused it, and it never ended."""
    monkeypatch.setattr("dhtcrawl.node.answers.crawls.CRAWLS_MAX", 1)
    async with a_world(nodes=1) as world:
        swarm = world.hosts[0].swarm
        assert swarm is not None
        api = Api(swarm, swarm.registry)
        await api.submit(make_spec(["http://a.example/"], CrawlSettings()))
        with pytest.raises(ApiError, match="dhtcrawl forget CRAWL") as refused:
            await api.submit(make_spec(["http://b.example/"], CrawlSettings()))
        assert refused.value.status == 409
        assert len(swarm.crawls.ids()) == 1


@pytest.mark.parametrize("odd", [{}, [], ["x", {}]])
async def test_a_member_that_answers_with_no_text_where_one_belongs_does_not_keep_back_what_the_others_say(
    odd: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_world(pages=6, nodes=1) as world:
        swarm = world.hosts[0].swarm
        assert swarm is not None
        api = Api(swarm, swarm.registry)
        crawl = await world.crawl(world.spec)
        said = {"state": "done", "page_at": odd, "referrer": odd, "as_gatekeeper": {"holder": odd, "waiting": [odd]}}
        ask = swarm.peers.call

        async def call(node: bytes, args: Any, **options: Any) -> Any:
            explains = isinstance(args, ExplainUrl | ExplainHost)
            return Explanation.parse(dict(said)) if explains else await ask(node, args, **options)

        monkeypatch.setattr(swarm.peers, "call", call)
        (told,) = await api.why(world.spec.seeds[0], crawl)
        assert told["state"] == "done"
        assert (await api.explain_host("a.example"))["gatekeeper"] == swarm.id.hex()
