"""How a node finds the swarm again, and whom it greets."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dhtcrawl.errors import BootstrapUnreachable
from dhtcrawl.rpc.contact import Address
from dhtcrawl.rpc.membership.hello import NodeState
from dhtcrawl.rpc.membership.view import Member, View
from dhtcrawl.rpc.tasks.rows import PeerRow
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.sim.scene import view_of as members_of
from dhtcrawl.storage.store.committer import GroupRunner
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.swarm.membership.peer_store import GREET_AGAIN_S, NAMED_EVERY, REMEMBERED_MAX, SEEK_EVERY_S, PeerStore
from swarm.fake_peers import node, view_of

from . import story as whole

OWN = ("10.0.0.1", 1)


class FakeGossip:
    def __init__(self) -> None:
        self.view = view_of([0, 1, 2])
        self.members: Any = _Members()
        self.joined: list[Address] = []
        self.greeted: list[bytes] = []
        self.met: list[Address] = []
        self.there = True

    async def join(self, addresses: Sequence[Address]) -> None:
        self.joined = list(addresses)
        if not self.there:
            error = BootstrapUnreachable("nobody")
            error.also = "one answered from elsewhere"
            raise error

    def greet(self, address: Address, node_id: bytes) -> None:
        self.greeted.append(node_id)

    async def meet(self, address: Address) -> None:
        self.met.append(address)


class _Members(dict[bytes, Any]):
    def __init__(self) -> None:
        super().__init__()
        self.me = SimpleNamespace(id=node(0), state=NodeState.ACTIVE)


def gossip_and_store() -> tuple[FakeGossip, Callable[[], PeerStore]]:
    """Both on one store; the second opens it anew."""
    gossip: Any = FakeGossip()
    committer = LoopCommitter(GroupRunner(MemoryEngine(), sync=False))
    return gossip, lambda: PeerStore(gossip, committer, VirtualClock(asyncio.get_running_loop()), OWN)


async def test_a_node_without_a_past_that_is_told_of_nobody_begins_a_swarm() -> None:
    gossip, start = gossip_and_store()
    assert not await start().find([])
    assert gossip.joined == []


async def test_members_of_the_last_time_are_asked_too_and_each_once() -> None:
    gossip, start = gossip_and_store()
    await start().remember()
    assert await start().find([("10.0.0.1", 2)])
    assert gossip.joined == [("10.0.0.1", 2), ("10.0.0.1", 3)]


async def test_whom_it_remembers_is_known_before_they_answer() -> None:
    gossip, start = gossip_and_store()
    await start().remember()
    gossip.there = False
    again = start()
    assert again.addresses == []
    await again.find([])
    assert again.addresses == [("10.0.0.1", 2), ("10.0.0.1", 3)]


async def test_nobody_that_was_named_answers_is_an_error_that_names_them() -> None:
    gossip, start = gossip_and_store()
    gossip.there = False
    with pytest.raises(BootstrapUnreachable, match=r"10\.0\.0\.9:9.*; one answered from elsewhere$"):
        await start().find([("10.0.0.9", 9)])


async def test_a_node_whose_old_swarm_does_not_answer_either_is_told_how_one_goes_on() -> None:
    gossip, start = gossip_and_store()
    await start().remember()
    gossip.there = False
    with pytest.raises(
        BootstrapUnreachable, match=r"answer from 10\.0\.0\.9:9; .* started without --bootstrap goes on"
    ):
        await start().find([("10.0.0.9", 9)])


async def test_what_answers_and_is_no_member_is_not_taken_for_the_node_that_was_named() -> None:
    gossip, start = gossip_and_store()
    remembering = start()
    gossip.view = view_of([0])
    with pytest.raises(BootstrapUnreachable, match=r"bootstrap: 10\.0\.0\.9:9 answers, but not as a member"):
        await start().find([("10.0.0.9", 9)])
    gossip.view = view_of([0, 1, 2])
    await remembering.remember()
    gossip.view = view_of([0])
    with pytest.raises(BootstrapUnreachable, match="and the nodes that this one knew, none that answers is a member"):
        await start().find([("10.0.0.9", 9)])


async def test_a_node_whose_old_swarm_is_gone_does_not_begin_another_one_at_once() -> None:
    gossip, start = gossip_and_store()
    await start().remember()
    gossip.there = False
    assert await start().find([])


async def test_who_is_named_again_and_again_is_greeted_once_in_a_while() -> None:
    gossip, start = gossip_and_store()
    acquaintances, stranger = start(), PeerRow(node(9), "10.0.0.9", 9)
    gossip.members[node(1)] = object()
    for _ in range(3):
        acquaintances.greet(stranger)
        acquaintances.greet(PeerRow(node(1), "10.0.0.1", 2))
    assert gossip.greeted == [node(9)]
    await asyncio.sleep(GREET_AGAIN_S)
    acquaintances.greet(stranger)
    assert gossip.greeted == [node(9), node(9)]


async def asked(acquaintances: PeerStore, gossip: FakeGossip, turns: int) -> list[bytes]:
    """Whom it asks in so many turns."""
    gossip.greeted.clear()
    seeking = asyncio.create_task(acquaintances.seek())
    await asyncio.sleep(turns * SEEK_EVERY_S + 0.1)
    seeking.cancel()
    return gossip.greeted


async def test_who_is_not_there_is_remembered_and_asked_also_after_a_restart() -> None:
    gossip, start = gossip_and_store()
    first = start()
    await first.remember()
    gossip.view = view_of([0, 2, 3])
    await first.remember()
    gossip.view = view_of([0, 2])
    again = start()
    await again.find([])
    assert gossip.joined == [("10.0.0.1", 3), ("10.0.0.1", 4)], "whoever was there"
    await again.remember()
    assert await asked(again, gossip, 4) == [node(1), node(3), node(1), node(3)], "in turns"
    gossip.members[node(1)] = SimpleNamespace(state=NodeState.DEAD)
    assert await asked(again, gossip, 2) == [node(3), node(3)], "gossip asks those it takes for dead"


async def test_who_has_left_or_has_another_in_its_place_is_not_looked_for() -> None:
    gossip, start = gossip_and_store()
    acquaintances = start()
    gossip.view = view_of([0, 1, 2, 3])
    await acquaintances.remember()
    gossip.members[node(1)] = SimpleNamespace(state=NodeState.LEFT)
    (place,) = [member.address for member in gossip.view.members if member.id == node(2)]
    other = [dataclasses.replace(member, address=place) for member in view_of([9]).members]
    gossip.view = View([*view_of([0]).members, *other])
    await acquaintances.remember()
    del gossip.members[node(1)]
    assert await asked(acquaintances, gossip, 3) == [node(3)] * 3


async def test_who_was_taken_for_dead_and_turns_out_to_have_left_is_not_looked_for() -> None:
    gossip, start = gossip_and_store()
    acquaintances = start()
    await acquaintances.remember()
    gossip.members[node(1)] = SimpleNamespace(state=NodeState.DEAD)
    gossip.view = view_of([0, 2])
    await acquaintances.remember()
    gossip.members[node(1)] = SimpleNamespace(state=NodeState.LEFT)
    await acquaintances.remember()
    del gossip.members[node(1)]
    assert await asked(acquaintances, gossip, 2) == []


async def test_two_that_leave_at_once_do_not_forget_each_other() -> None:
    gossip, start = gossip_and_store()
    acquaintances = start()
    await acquaintances.remember()
    gossip.view = view_of([0, 2])
    await acquaintances.remember()
    gossip.members[node(2)] = SimpleNamespace(state=NodeState.LEFT)
    gossip.members.me.state = NodeState.LEFT
    gossip.view = view_of([0])
    await acquaintances.remember()
    gossip.members.clear()
    again = start()
    assert await again.find([])
    await again.remember()
    assert sorted(await asked(again, gossip, 2)) == [node(1), node(2)]


async def test_no_more_than_so_many_are_looked_for() -> None:
    gossip, start = gossip_and_store()
    acquaintances = start()
    for begin in range(1, 1 + 3 * REMEMBERED_MAX, 10):
        gossip.view = View([Member(n.to_bytes(20), ("10.0.0.1", n)) for n in range(begin, begin + 10)])
        await acquaintances.remember()
    turns = 2 * REMEMBERED_MAX
    assert len(set(await asked(acquaintances, gossip, turns))) == REMEMBERED_MAX
    gossip.view = View([Member(n.to_bytes(20), ("10.0.0.7", 7)) for n in range(500, 520)])
    await acquaintances.remember()
    gossip.view = view_of([0])
    await acquaintances.remember()
    names = await asked(acquaintances, gossip, turns)
    assert sum(int.from_bytes(name) >= 500 for name in set(names)) == 1, "one for each address"


async def test_who_was_named_is_asked_now_and_then() -> None:
    gossip, start = gossip_and_store()
    acquaintances, named = start(), [("10.0.0.8", 8), ("10.0.0.9", 9)]
    await acquaintances.find(named)
    await asked(acquaintances, gossip, 3 * NAMED_EVERY)
    assert gossip.met == [*named, named[0]]


async def test_two_that_went_on_without_each_other_meet_when_both_are_there() -> None:
    async with whole.a_world(nodes=2) as world:
        first, other = world.hosts
        await first.crash()
        await other.crash()
        first.begin([])
        newcomer = world.sim.add()
        newcomer.begin([first])
        await world.until(lambda: members_of(newcomer).members == members_of(first).members)
        await asyncio.sleep(5.0)  # it has noted who is there
        await first.crash()
        await newcomer.crash()
        other.begin([])
        await asyncio.sleep(5.0)
        first.begin([])
        newcomer.begin([first])
        await world.until(lambda: all(len(members_of(host).members) == 3 for host in world.sim.hosts))
