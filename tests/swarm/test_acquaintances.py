"""How a node finds the swarm again, and whom it greets."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from crawl.fake_peers import node, play, view_of

from dhtcrawl.errors import BootstrapUnreachable
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.rows import Peer
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.storage.committer import GroupRunner, LoopCommitter
from dhtcrawl.storage.memory import MemoryEngine
from dhtcrawl.swarm.acquaintances import GREET_AGAIN_S, Acquaintances

OWN = ("10.0.0.1", 1)


class FakeGossip:
    def __init__(self) -> None:
        self.view = view_of([0, 1, 2])
        self.members: Any = _Members()
        self.joined: list[Address] = []
        self.greeted: list[bytes] = []
        self.there = True

    async def join(self, addresses: Sequence[Address]) -> None:
        self.joined = list(addresses)
        if not self.there:
            raise BootstrapUnreachable("nobody")

    def greet(self, address: Address, node_id: bytes) -> None:
        self.greeted.append(node_id)


class _Members(dict[bytes, Any]):
    me = SimpleNamespace(id=node(0))


def tell(story: Callable[[FakeGossip, Callable[[], Acquaintances]], Any]) -> None:
    async def main(group: asyncio.TaskGroup) -> None:
        gossip: Any = FakeGossip()
        committer = LoopCommitter(GroupRunner(MemoryEngine(), sync=False))
        await story(gossip, lambda: Acquaintances(gossip, committer, VirtualClock(asyncio.get_running_loop()), OWN))

    play(main)


def test_a_node_without_a_past_that_is_told_of_nobody_begins_a_swarm() -> None:
    async def story(gossip: FakeGossip, start: Callable[[], Acquaintances]) -> None:
        assert not await start().find([])
        assert gossip.joined == []

    tell(story)


def test_members_of_the_last_time_are_asked_too_and_each_once() -> None:
    async def story(gossip: FakeGossip, start: Callable[[], Acquaintances]) -> None:
        await start().remember()
        assert await start().find([("10.0.0.1", 2)])
        assert gossip.joined == [("10.0.0.1", 2), ("10.0.0.1", 3)]

    tell(story)


def test_nobody_that_was_named_answers_is_an_error_that_names_them() -> None:
    async def story(gossip: FakeGossip, start: Callable[[], Acquaintances]) -> None:
        gossip.there = False
        with pytest.raises(BootstrapUnreachable, match=re.escape("10.0.0.9:9")):
            await start().find([("10.0.0.9", 9)])

    tell(story)


def test_a_node_whose_old_swarm_is_gone_does_not_begin_another_one_at_once() -> None:
    async def story(gossip: FakeGossip, start: Callable[[], Acquaintances]) -> None:
        await start().remember()
        gossip.there = False
        assert await start().find([])

    tell(story)


def test_who_is_named_again_and_again_is_greeted_once_in_a_while() -> None:
    async def story(gossip: FakeGossip, start: Callable[[], Acquaintances]) -> None:
        acquaintances, stranger = start(), Peer(node(9), "10.0.0.9", 9)
        gossip.members[node(1)] = object()
        for _ in range(3):
            acquaintances.greet(stranger)
            acquaintances.greet(Peer(node(1), "10.0.0.1", 2))
        assert gossip.greeted == [node(9)]
        await asyncio.sleep(GREET_AGAIN_S)
        acquaintances.greet(stranger)
        assert gossip.greeted == [node(9), node(9)]

    tell(story)
