"""Crawls whose depth limit changes, in a swarm on virtual time: what was withheld is sent, and no page comes twice."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter

import pytest

from dhtcrawl.node.crawl_run import CrawlRun
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.store.crawl_record import RUNNING, CrawlRecord, changed, with_settings
from dhtcrawl.storage.store.records import SkipReason, State, Task
from dhtcrawl.storage.store.replicas import End, TaskReplica
from swarm.story import Story, a_world


def fetched(world: Story) -> Counter[str]:
    """How often each page came whole."""
    return Counter(visit.url for visit in world.web.visits if visit.status == 200 and "robots.txt" not in visit.url)


def record_of(world: Story, crawl: bytes, at: int = 0) -> CrawlRecord:
    swarm = world.hosts[at].swarm
    record = None if swarm is None else swarm.crawls.get(crawl)
    assert record is not None
    return record


def within(world: Story, depth: int) -> CrawlSpec:
    return dataclasses.replace(world.spec, settings=dataclasses.replace(world.spec.settings, depth=depth))


async def deepen(world: Story, crawl: bytes, depth: int) -> None:
    """Go on with another limit, as its author wants it."""
    record, swarm = record_of(world, crawl), world.hosts[0].swarm
    after = with_settings(record, dataclasses.replace(record.settings, depth=depth))
    assert swarm is not None
    await swarm.crawls.publish(changed(after, RUNNING))


async def whole(world: Story, crawl: bytes, depth: int) -> None:
    """Wait for the end everywhere; each page within this limit has come, and none twice."""
    await world.until(lambda: all(world.ended(crawl, at) for at in range(len(world.hosts))))
    assert record_of(world, crawl).ended == "complete"
    came = fetched(world)
    assert world.web.truth(depth=depth).keys() <= came.keys()
    assert set(came.values()) == {1}


@pytest.mark.parametrize("depths", [(0, 1), (1, 3), (1, 2, -1)])
async def test_a_complete_crawl_goes_on_with_a_higher_limit(depths: tuple[int, ...]) -> None:
    async with a_world(nodes=3) as world:
        crawl = await world.crawl(within(world, depths[0]))
        await whole(world, crawl, depths[0])
        for depth in depths[1:]:
            await deepen(world, crawl, depth)
            await whole(world, crawl, depth)
            assert fetched(world).keys() == world.web.truth(depth=depth).keys()
            assert record_of(world, crawl).totals["skipped_depth"] > 0 or depth < 0


@pytest.mark.parametrize(
    ("depths", "policy"),
    [((1, 3), "xor"), ((3, 1), "balanced"), ((-1, 2), "dynamic"), ((2, -1), "balanced"), ((3, 0, 4), "dynamic")],
)
async def test_the_limit_changes_while_the_crawl_runs(depths: tuple[int, ...], policy: str) -> None:
    async with a_world(nodes=3, pages=200, crawl__policy=policy) as world:
        crawl = await world.crawl(within(world, depths[0]))
        await world.until(lambda: len(world.web.visits) > 30)
        for depth in depths[1:]:
            await deepen(world, crawl, depth)
            await asyncio.sleep(0.2)
        await whole(world, crawl, depths[-1])


async def test_of_two_copies_each_both_are_made_of_what_comes_later() -> None:
    async with a_world(nodes=4, crawl__copies=2) as world:
        crawl = await world.crawl(within(world, 1))
        await whole(world, crawl, 1)
        await deepen(world, crawl, 3)
        await whole(world, crawl, 3)
        assert record_of(world, crawl).totals.get("pages_undercopied", 0) == 0


async def test_a_node_that_was_killed_meanwhile_sends_what_its_pages_withheld() -> None:
    async with a_world(nodes=3) as world:
        crawl = await world.crawl(within(world, 1))
        await whole(world, crawl, 1)
        last = world.hosts[-1]
        await last.crash()
        await deepen(world, crawl, 3)
        await world.until(lambda: len(fetched(world)) > len(world.web.truth(depth=1)))
        last.begin_again()
        await last.joined()
        await whole(world, crawl, 3)


async def test_a_node_that_is_killed_as_it_begins_anew_begins_anew_once_more() -> None:
    async with a_world(nodes=3) as world:
        crawl = await world.crawl(within(world, 1))
        await whole(world, crawl, 1)
        await deepen(world, crawl, 2)
        for host in world.hosts[1:]:
            await host.crash()
            host.begin_again()
            await host.joined()
        await whole(world, crawl, 2)


@pytest.mark.parametrize("reason", [SkipReason.DEPTH, SkipReason.ROBOTS])
@pytest.mark.parametrize("changed_before", [True, False])
async def test_a_task_that_another_node_gave_up_for_its_depth_is_looked_at_within_the_own_limit(
    changed_before: bool, reason: str
) -> None:
    async with a_world(nodes=2, pages=400) as world:
        crawl = await world.crawl(within(world, 1))
        if changed_before:
            await whole(world, crawl, 1)
            await deepen(world, crawl, 2)
        await world.until(lambda: run_of(world, crawl) is not None and not busy(world, crawl))
        run, url = run_of(world, crawl), f"{world.spec.seeds[0]}deep"
        assert run is not None
        dead = Task(url, 2, 1, "", State.DEAD, 0, 0, 0, False, reason)
        run.heard([TaskReplica(world.spec.key_of(url), dead)])
        wanted = changed_before and reason == SkipReason.DEPTH
        assert run.growth.busy is wanted
        await world.until(lambda: not run.growth.busy)
        run.buried([End(world.spec.key_of(url), State.DEAD, 0, 0, reason, "", None)])
        assert run.growth.busy is wanted


def run_of(world: Story, crawl: bytes) -> CrawlRun | None:
    """The run of the first node, once it is by the limit that holds."""
    swarm = world.hosts[0].swarm
    run = None if swarm is None else swarm.runs.of(crawl)
    now = record_of(world, crawl).settings.depth
    return run if isinstance(run, CrawlRun) and run.parts.start.spec.settings.depth == now else None


def busy(world: Story, crawl: bytes) -> bool:
    run = run_of(world, crawl)
    return run is None or run.growth.busy
