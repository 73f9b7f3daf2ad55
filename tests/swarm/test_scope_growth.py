"""A task that died beyond the scope is opened again once the scope reaches it, whoever queued it."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import suppress

from harness.bench import Bench
from storage.stores import CRAWL

from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.fetcher import BEYOND
from dhtcrawl.crawl.scope import Scope
from dhtcrawl.keyspace import placement, url_key
from dhtcrawl.rpc.tasks.messages import Ack, StoreBackup
from dhtcrawl.storage.store import given_up, keys
from dhtcrawl.storage.store.given_up import GivenUp, OpenedAgain
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.records import SkipReason, State, Task, unpack_task
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.lifecycle.scope_growth import ScopeGrowth
from dhtcrawl.swarm.records import wire
from dhtcrawl.url import host_of
from swarm.story import Story, a_world

SEED, TARGET, BESIDE, ELSEWHERE = "http://a.test/", "http://b.test/home", "http://b.test/x", "http://c.test/x"


def dead(url: str, reason: str = SkipReason.OUT_OF_SCOPE) -> TaskReplica:
    return TaskReplica(url_key(url), Task(url, 1, 7, "", State.DEAD, 0, 0, 0, False, reason, BEYOND))


class GrowthBench(Bench):
    def __init__(self, *records: TaskReplica) -> None:
        super().__init__()
        self.engine.write({keys.TASK + CRAWL + key: task.pack() for key, task in records}, sync=False)
        self.scope = Scope([SEED], CrawlSettings())
        self.mine = {key for key, _ in records}
        self.opened: list[TaskReplica] = []
        self.queued: list[str] = []
        snapshot = OwnershipSnapshot(self.mine.__contains__)
        self.growth = ScopeGrowth(self.committer, CRAWL, self._reaches, lambda _=None: snapshot, self._opened)

    def _reaches(self, task: GivenUp) -> bool:
        return self.scope.rules_out(task.url) is None

    def _opened(self, again: OpenedAgain) -> None:
        self.opened += again.opened
        self.queued += [task.url for task in again.merged.queued]

    def state(self, url: str) -> tuple[State, int]:
        value = self.engine.get(keys.TASK + CRAWL + url_key(url))
        assert value is not None
        task = unpack_task(value)
        return task.state, task.gen

    async def looked(self) -> None:
        assert not self.growth.busy
        self.growth.look()
        assert self.growth.busy
        running = asyncio.ensure_future(self.growth.run())
        await asyncio.sleep(1)
        assert not self.growth.busy
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_what_the_scope_reaches_by_now_is_opened_and_nothing_else() -> None:
    bench = GrowthBench(
        *map(dead, (TARGET, BESIDE, ELSEWHERE)),
        dead("http://b.test/failed", SkipReason.FAILED),
        dead("http://b.test/2"),
    )
    bench.mine.discard(url_key("http://b.test/2"))
    await bench.looked()
    assert bench.opened == []
    bench.scope.extend(TARGET)
    await bench.looked()
    assert {copy.task.url for copy in bench.opened} == set(bench.queued) == {TARGET, BESIDE}
    assert bench.state(TARGET) == bench.state(BESIDE) == (State.PENDING, 1)
    for url in (ELSEWHERE, "http://b.test/failed", "http://b.test/2"):
        assert bench.state(url) == (State.DEAD, 0), url
    await bench.looked()
    assert len(bench.opened) == 2


async def test_a_store_of_many_dead_tasks_is_looked_through_to_its_end() -> None:
    urls = [f"http://b.test/{number}" for number in range(950)]
    bench = GrowthBench(*map(dead, urls))
    bench.scope.extend(TARGET)
    await bench.looked()
    assert sorted(bench.queued) == sorted(urls)


def test_what_failed_is_released_by_people_and_not_for_the_scope() -> None:
    assert given_up.is_beyond(dead(TARGET).task)
    assert given_up.is_beyond(dead(TARGET, SkipReason.EXCLUDED).task)
    assert not given_up.is_beyond(dead(TARGET, SkipReason.FAILED).task)
    assert not given_up.is_beyond(dead(TARGET, SkipReason.ROBOTS).task)


def records(world: Story, crawl: bytes, url: str) -> list[Task]:
    found = (host.disk.engine.get(keys.TASK + crawl + url_key(url)) for host in world.hosts)
    return [unpack_task(value) for value in found if value is not None]


async def test_in_a_swarm_a_forged_link_beyond_the_scope_is_fetched_once_a_seed_leads_there() -> None:
    async with a_world(pages=40, nodes=3) as world:
        seed, *others = world.spec.seeds
        slow = dataclasses.replace(world.spec.settings, delay_s=1.0)
        crawl = await world.crawl(dataclasses.replace(world.spec, seeds=(seed,), settings=slow))
        beyond = next(
            url for url in sorted(world.web.truth()) if host_of(url) == host_of(others[0]) and url not in others
        )
        bad = world.hosts[1].swarm
        assert bad is not None
        await world.until(lambda: bad.crawls.get(crawl) is not None and world.web.visits != [])
        owner = bad.peers.view.owner(placement(url_key(beyond)))
        assert owner is not None
        # As a link it would be refused; a record that is handed over is not.
        forged = StoreBackup(crawl, (wire.record_of(TaskReplica(url_key(beyond), Task(beyond, 1, 7, seed))),))
        assert isinstance(await bad.peers.ask(owner.id, forged), Ack)
        await world.until(lambda: any(task.reason == SkipReason.OUT_OF_SCOPE for task in records(world, crawl, beyond)))
        assert not world.ended(crawl)
        first = world.owner_of(world.spec.key_of(seed))
        assert first is not bad, "a member that neither owns nor fetched the seed"
        await bad.crawls.announce(crawl, seed, others[0])
        await asyncio.sleep(10.0)
        assert {task.state for task in records(world, crawl, beyond)} == {State.DEAD}
        known = first.crawls.get(crawl)
        assert known is not None
        assert others[0] not in known.aliases
        await first.crawls.announce(crawl, seed, others[0])
        await world.until(lambda: {task.state for task in records(world, crawl, beyond)} == {State.DONE})
        await world.until(lambda: world.ended(crawl))
        assert [visit.url for visit in world.web.visits].count(beyond) == 1
