"""A node that is back says which pages it has, and what it lacks is fetched again (I11)."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from storage.stores import CRAWL

from dhtcrawl.rpc.peers.port import UNKNOWN_CALL
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.sim.swarm import SimHost
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import unpack_task
from dhtcrawl.swarm.bodies.held_pages import Lacking, ask_held
from dhtcrawl.swarm.calls.words import KEYS_MAX
from swarm.fake_peers import GONE, FakePeers, node, view_of

from .story import Story, a_world

PAGES = [number.to_bytes(20, "big") for number in range(KEYS_MAX + 1)]
BACK = node(1).hex()


async def asked(answer: Any, pages: list[bytes] = PAGES, holder: str | None = BACK) -> tuple[Lacking, int]:
    """What a node that is back lacks by its `answer`, and how often it was asked."""
    peers = FakePeers(view_of([0, 1]))
    peers.calls["held_pages"] = answer
    return await ask_held(peers, CRAWL, {BACK: pages}, lambda _: holder), len(peers.called)


def has_even(args: dict[str, Any]) -> dict[str, Any]:
    return {"held": bytes(key[-1] % 2 == 0 for key in args["keys"])}


async def test_a_node_is_asked_for_many_pages_at_once_and_lacks_those_that_it_does_not_have() -> None:
    assert await asked(has_even) == (Lacking({BACK: [key for key in PAGES if key[-1] % 2]}, set()), 2)
    assert await asked(has_even, PAGES[::2]) == (Lacking({}, set()), 1)


async def test_who_does_not_answer_has_to_be_asked_again_and_who_cannot_say_has_them() -> None:
    for answer in (lambda _: GONE, lambda _: Refused("unknown-crawl"), lambda _: {"held": b"\1"}):
        assert await asked(answer) == (Lacking({}, {BACK}), 1)
    assert await asked(lambda _: Refused(UNKNOWN_CALL, "held_pages")) == (Lacking({}, set()), 1)
    assert await asked(has_even, holder=None) == (Lacking({}, {BACK}), 0)


def lacked_at(world: Story, host: SimHost, crawl: bytes) -> set[str]:
    """The pages that others know to lie at a node, and that it does not have."""
    pages, found = host.disk.engine, set[str]()
    for other in world.hosts:
        for full, value in other.disk.engine.scan(*keys.bounds(keys.TASK, crawl)):
            task = unpack_task(value)
            there = task.place is not None and task.place.node == host.id.hex()
            if there and pages.get(keys.PAGE + crawl + keys.suffix(full)) is None:
                found.add(task.url)
    return found


@pytest.mark.parametrize("policy", ["xor", "dynamic"])
async def test_pages_that_a_node_had_before_its_disk_was_restored_are_fetched_again(policy: str) -> None:
    """Under `dynamic` most of them are owned by others, which see it start anew and not that it was gone."""
    async with a_world(pages=120, nodes=4) as world:
        settings = dataclasses.replace(world.spec.settings, delay_s=0.1, policy=policy)
        slow = dataclasses.replace(world.spec, settings=settings)
        crawl, restored = await world.crawl(slow), world.hosts[3]
        await world.until(lambda: len(world.web.visits) > 30)
        await restored.stop()
        older = copy.deepcopy(restored.disk)
        await restored.start(world.hosts[:1])
        await world.until(lambda: len(world.web.visits) > 120)
        await restored.crash()
        newer, restored.disk = restored.disk, older
        assert lacked_at(world, restored, crawl)
        before, older_files = (set(disk.outputs.archive.names()) for disk in (newer, older))
        await restored.start(world.hosts[:1])
        await world.until(lambda: world.ended(crawl))
        assert lacked_at(world, restored, crawl) == set()
        anew = set(restored.disk.outputs.archive.names()) - older_files
        assert anew
        assert not anew & before, "who has taken files of before knows them by name"
