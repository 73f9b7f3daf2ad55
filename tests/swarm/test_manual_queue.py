"""What was given up is listed, tried again or dropped, over a whole swarm and after its end."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from dhtcrawl.fetch.http import Exchange, FetchFailure, FetchFailureKind, HttpRequest
from dhtcrawl.node.swarm_node import SwarmNode
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.sim.web import SimClient
from dhtcrawl.storage.store import counters, keys
from dhtcrawl.storage.store.records import SkipReason, State, Task, merge, unpack, unpack_task
from dhtcrawl.swarm.calls.lifecycle import DROP, RELEASE, DecideGivenUp
from dhtcrawl.swarm.lifecycle.roll import added_up
from dhtcrawl.url import host_of
from swarm.fake_peers import answered

from .story import Story, a_world


class Broken:
    """Some pages of a web break off until somebody mends it."""

    def __init__(self, world: Story, count: int) -> None:
        self.urls = sorted(url for url in world.web.truth() if "private" not in url)[-count:]
        self.mended = False
        world.web.breaks_off = lambda url, attempt: not self.mended and url in self.urls  # type: ignore[method-assign]


def swarm_of(world: Story, number: int) -> SwarmNode:
    swarm = world.hosts[number].swarm
    assert swarm is not None
    return swarm


def records(world: Story, crawl: bytes, url: str) -> list[Task]:
    """The copies of a record, on all disks."""
    full = keys.TASK + crawl + world.spec.key_of(url)
    return [unpack_task(value) for host in world.hosts if (value := host.disk.engine.get(full)) is not None]


def policies(*names: str) -> Callable[[Any], Any]:
    return pytest.mark.parametrize("policy", names)


async def crawled(world: Story, policy: str) -> bytes:
    settings = dataclasses.replace(world.spec.settings, policy=policy)
    world.spec = dataclasses.replace(world.spec, settings=settings)
    crawl = await world.crawl(world.spec)
    await world.until(lambda: world.ended(crawl))
    return crawl


@policies("xor", "balanced")
async def test_any_node_lists_what_was_given_up_and_says_why(policy: str) -> None:
    async with a_world(pages=60, nodes=4) as world:
        broken = Broken(world, 3)
        crawl = await crawled(world, policy)
        for number in (0, 2):
            listed = await swarm_of(world, number).given_up.listed(crawl)
            failed = {row.url: row for row in listed.tasks}
            assert set(broken.urls) <= failed.keys()
            assert [row.url for row in listed.tasks] == sorted(failed)
            assert "closed the connection" in failed[broken.urls[0]].detail
            assert (listed.silent, listed.cut) == ([], False)


@policies("xor", "balanced")
async def test_of_a_host_that_nobody_reaches_one_record_at_least_says_what_every_node_said(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async with a_world(pages=60, nodes=4) as world:
        pages: dict[str, list[str]] = {}
        for url in sorted(world.web.truth()):
            pages.setdefault(host_of(url), []).append(url)
        gone = max(pages, key=lambda host: len(pages[host]))
        exchange = SimClient.exchange

        async def refuse(self: SimClient, request: HttpRequest) -> Exchange | FetchFailure:
            asked.append(host_of(request.url))
            if asked[-1] != gone:
                return await exchange(self, request)
            now = asyncio.get_running_loop().time()
            return FetchFailure(FetchFailureKind.CONNECT, "nobody is there", now, now)

        monkeypatch.setattr(SimClient, "exchange", refuse)
        world.spec = dataclasses.replace(world.spec, seeds=tuple(world.web.truth()))
        crawl = await crawled(world, policy)
        listed = await swarm_of(world, 0).given_up.listed(crawl)
        details = [row.detail for row in listed.tasks if host_of(row.url) == gone]
        assert len(details) >= len(pages[gone])
        assert max(detail.count("nobody is there") for detail in details) == len(world.hosts)
        assert asked.count(gone) < len(details), "each node tries a few times, and not for each page"


@policies("xor", "balanced")
async def test_what_is_released_after_the_end_is_fetched_and_the_rest_is_left_alone(policy: str) -> None:
    async with a_world(pages=60, nodes=4) as world:
        broken = Broken(world, 3)
        crawl = await crawled(world, policy)
        again, *others = broken.urls
        broken.mended = True
        asked = len(world.web.visits)
        swarm = swarm_of(world, 1)
        assert await swarm.given_up.decide(crawl, RELEASE, [again, "http://nobody.test/knows"]) == (1, [])
        await world.until(lambda: {task.state for task in records(world, crawl, again)} == {State.DONE})
        await world.until(lambda: world.ended(crawl))
        assert [row.url for row in (await swarm.given_up.listed(crawl)).tasks if row.url in broken.urls] == others
        # The page, and what it links to where that was unknown: nothing that was fetched.
        visits = [visit.url for visit in world.web.visits[asked:] if not visit.url.endswith("/robots.txt")]
        assert again in visits
        assert not {visit.url for visit in world.web.visits[:asked] if visit.status == 200} & set(visits)


async def test_all_that_was_given_up_is_released_at_once_while_the_crawl_runs() -> None:
    async with a_world(pages=60, nodes=3) as world:
        broken = Broken(world, 4)
        slow = dataclasses.replace(world.spec.settings, delay_s=1.0)
        world.spec = dataclasses.replace(world.spec, settings=slow)
        crawl = await world.crawl(world.spec)

        def some_are_dead() -> bool:
            return any(task.state == State.DEAD for url in broken.urls for task in records(world, crawl, url))

        await world.until(some_are_dead)
        assert not world.ended(crawl)
        broken.mended = True
        decided = await swarm_of(world, 0).given_up.decide(crawl, RELEASE, None)
        assert decided.tasks >= 1
        await world.until(lambda: world.ended(crawl))
        listed = await swarm_of(world, 0).given_up.listed(crawl)
        assert not {row.url for row in listed.tasks} & set(broken.urls)


async def test_an_origin_that_was_given_up_is_asked_again_when_its_pages_are_released() -> None:
    async with a_world(pages=60, nodes=3) as world:
        host = sorted(world.web.truth())[0].split("/")[2]
        gone = [True]
        world.web.breaks_off = lambda url, attempt: gone[0] and f"//{host}/" in url  # type: ignore[method-assign]
        crawl = await world.crawl(world.spec)
        await world.until(lambda: world.ended(crawl))
        given_up = swarm_of(world, 0).given_up
        dead = [row.url for row in (await given_up.listed(crawl)).tasks if f"//{host}/" in row.url]
        assert dead
        gone[0] = False
        await given_up.decide(crawl, RELEASE, dead)

        def over() -> bool:
            found = [task for url in dead for task in records(world, crawl, url)]
            return all(task.state == State.DONE or task.reason == SkipReason.ROBOTS for task in found)

        await world.until(over)


async def test_what_is_dropped_is_off_the_list_on_every_copy_and_is_not_asked_for_again() -> None:
    async with a_world(pages=60, nodes=4) as world:
        broken = Broken(world, 2)
        crawl = await crawled(world, "xor")
        gone, left = broken.urls
        given_up = swarm_of(world, 2).given_up
        assert await given_up.decide(crawl, DROP, [gone]) == (1, [])

        def dropped() -> bool:
            return {task.reason for task in records(world, crawl, gone)} == {SkipReason.DROPPED}

        await world.until(dropped)
        asked = len(world.web.visits)
        assert await given_up.decide(crawl, RELEASE, [gone]) == (0, [])
        listed = [row.url for row in (await given_up.listed(crawl)).tasks]
        assert left in listed
        assert gone not in listed
        assert len(world.web.visits) == asked
        assert {task.gen for task in records(world, crawl, gone)} == {1}


def dead_records(world: Story, crawl: bytes) -> dict[str, str]:
    """The URLs that are given up in the end, and why, by all copies of their records merged."""
    found: dict[bytes, Task] = {}
    for host in world.hosts:
        for full, value in host.disk.engine.scan(*keys.bounds(keys.TASK, crawl)):
            task = unpack_task(value)
            found[full] = merge(found[full], task) if full in found else task
    return {task.url: task.reason for task in found.values() if task.state == State.DEAD}


def figures_of(world: Story, crawl: bytes) -> dict[str, int | float]:
    """The sum of what the nodes' disks have, as a command is told it."""
    values = [host.disk.engine.get(keys.key(keys.COUNTERS, crawl)) for host in world.hosts]
    return added_up(counters.told(unpack(value)) for value in values if value is not None)


@policies("xor", "balanced")
async def test_what_was_released_and_then_fetched_is_counted_as_given_up_no_more(policy: str) -> None:
    async with a_world(pages=60, nodes=4) as world:
        broken = Broken(world, 4)
        crawl = await crawled(world, policy)
        gone, *others = broken.urls
        swarm = swarm_of(world, 1)
        assert figures_of(world, crawl)["errors_disconnected"] == len(broken.urls)
        await swarm.given_up.decide(crawl, RELEASE, others)  # in vain: given up once more
        await world.until(lambda: dead_records(world, crawl).keys() >= set(broken.urls) and world.ended(crawl))
        assert figures_of(world, crawl)["errors_disconnected"] == len(broken.urls)
        broken.mended = True
        await swarm.given_up.decide(crawl, RELEASE, others)
        await world.until(lambda: not dead_records(world, crawl).keys() & set(others))
        await world.until(lambda: world.ended(crawl, at=1))
        record = swarm.crawls.get(crawl)
        assert record is not None
        for figures in (record.totals, figures_of(world, crawl)):
            assert figures["dead"] == len(dead_records(world, crawl))
            assert figures["errors_disconnected"] == 1
            assert figures["skipped_failed"] == Counter(dead_records(world, crawl).values())[SkipReason.FAILED]
        asked = Counter(visit.url for visit in world.web.visits if not visit.url.endswith("/robots.txt"))
        # Where a node passes on what it failed, its last request counts at no node.
        passed_on = 0 if policy == "xor" else (len(world.hosts) - 1) * (len(broken.urls) + len(others))
        again = record.totals.get("refetches", 0) + record.totals["retried"] + passed_on
        assert asked.total() - len(asked) == again
        await swarm.given_up.decide(crawl, DROP, [gone])
        dropped = figures_of(world, crawl)
        assert (dropped["dead"], dropped["errors"]) == (record.totals["dead"], record.totals["errors"] - 1)
        assert dropped["skipped_dropped"] == 1


async def test_what_a_node_that_ends_abruptly_had_released_stays_released() -> None:
    async with a_world(pages=60, nodes=3) as world:
        broken = Broken(world, 3)
        crawl = await crawled(world, "xor")
        decided = await swarm_of(world, 0).given_up.decide(crawl, RELEASE, broken.urls)
        for host in world.hosts:
            await host.crash()
        values = [host.disk.engine.get(keys.key(keys.COUNTERS, crawl)) for host in world.hosts]
        released = sum(unpack(value).get("released_dead", 0) for value in values if value is not None)
        again = {url for url in broken.urls for task in records(world, crawl, url) if task.gen == 1}
        assert released == len(again) == decided.tasks == 3


async def test_a_node_that_does_not_answer_is_named() -> None:
    async with a_world(pages=40, nodes=3) as world:
        Broken(world, 2)
        crawl = await crawled(world, "xor")
        await world.hosts[1].crash()
        given_up = swarm_of(world, 0).given_up
        listed, decided = await asyncio.gather(given_up.listed(crawl), given_up.decide(crawl, DROP, None))
        assert listed.silent == decided.silent == [world.hosts[1].id]


async def test_a_decision_about_a_crawl_that_is_not_known_is_refused() -> None:
    async with a_world(pages=10, nodes=1) as world:
        peers = swarm_of(world, 0).peers
        answer = await peers.call(world.hosts[0].id, DecideGivenUp(bytes(16), RELEASE, None))
        assert answer == Failure(FailureKind.REFUSED, "unknown-crawl")


@pytest.mark.parametrize(
    "answer",
    [
        {"rows": ((bytes(20), "http://a.test/", 0, 1),), "cursor": None},
        {"rows": "nonsense", "cursor": 7},
        {"rows": (), "cursor": b""},  # would go on for ever
        Failure(FailureKind.TIMEOUT, "no answer"),
    ],
)
async def test_what_a_member_says_is_not_believed_blindly(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_world(pages=10, nodes=1) as world:
        swarm = swarm_of(world, 0)

        async def call(_: bytes, args: Any, **__: Any) -> Any:
            return answered(args, answer)

        with monkeypatch.context() as patch:
            patch.setattr(swarm.peers, "call", call)
            assert (await swarm.given_up.listed(bytes(16))).tasks == []
            assert (await swarm.given_up.decide(bytes(16), DROP, None)).silent == [world.hosts[0].id]
