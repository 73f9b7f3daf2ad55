"""Who is in a swarm, asked by one that has no id in it yet."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from closed.members import OTHERS, RING, Member
from rpc.records import DEAD, JOINING, LEFT, ME, members, node
from rpc.wire import hello
from rpc.worlds import Wires

from dhtcrawl.clock import SystemClock
from dhtcrawl.identity import NodeIdentity
from dhtcrawl.node.scout import member_ids
from dhtcrawl.rpc.membership.member_exchange import MemberExchange
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers
from dhtcrawl.rpc.membership.members import Members
from dhtcrawl.rpc.membership.probe import GossipCounters
from dhtcrawl.rpc.peers.port import CallRegistry
from dhtcrawl.rpc.tasks.messages import Call, Reply, Request
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.rpc.tasks.transport import TaskTransport
from dhtcrawl.sim.keys import SimKey

STRANGER, THERE = SimKey(b"s" * 20), SimKey(hello(2).node_id)


class Asked:
    """A member that answers `members` and keeps who asked."""

    def __init__(self, known: Members) -> None:
        nobody: Any = None
        self.known = known
        self.askers: list[bytes] = []
        exchange = MemberExchange(known, nobody, SystemClock(), GossipCounters(), lambda learned, sender: None)
        self._registry = CallRegistry()
        self._registry.serve(ExchangeMembers, exchange.answer)

    def __call__(self, peer: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
        self.askers.append(peer.node_id)
        assert isinstance(message, Call)
        group: Any = None
        return self._registry.answer(peer.node_id, message, group)


@pytest.mark.loops("virtual")
async def test_all_who_are_there_are_told_joining_ones_too_and_nobody_learns_of_the_asker() -> None:
    wires = Wires()
    gone = [node("l", LEFT), node("d", DEAD)]
    asked = Asked(members(node("a"), node("j", JOINING), *gone))
    async with wires.node(2, asked, key=THERE) as there:
        address = await there.listen(wires.host(2), 0)
        assert set(await member_ids([address], STRANGER)) == {ME.id, b"a" * 20, b"j" * 20}
        assert asked.askers == [STRANGER.node_id]
        assert STRANGER.node_id not in asked.known
    wires.check()


@pytest.mark.loops("virtual")
async def test_a_large_swarm_is_told_page_by_page() -> None:
    wires = Wires()
    many = [replace(node("a"), id=number.to_bytes(20, "big")) for number in range(1_200)]
    asked = Asked(members(*many))
    async with wires.node(2, asked, key=THERE) as there:
        address = await there.listen(wires.host(2), 0)
        assert set(await member_ids([address], STRANGER)) == {ME.id, *(record.id for record in many)}
        assert len(asked.askers) == 3


@pytest.mark.loops("virtual")
async def test_where_one_does_not_answer_the_next_is_asked_and_where_none_does_nobody_is_told() -> None:
    wires = Wires()
    async with wires.node(2, Asked(members(node("a"))), key=THERE) as there:
        address = await there.listen(wires.host(2), 0)
        silent = (wires.host(3), 9)
        assert set(await member_ids([silent, address], STRANGER)) == {ME.id, b"a" * 20}
        assert await member_ids([silent], STRANGER) == []
        assert await member_ids([], STRANGER) == []


@pytest.mark.loops("asyncio")
async def test_in_a_closed_swarm_who_has_the_secret_is_told(tmp_path: Path) -> None:
    member, newcomer = Member(tmp_path, 1), Member(tmp_path, 2)
    asked = Asked(members(node("a")))

    def own() -> Hello:
        return Hello(member.id, 1, "active", ("xor",))

    async with TaskTransport(own, asked, tls=member.tls()) as there:
        address = await there.listen("127.0.0.1", 0)
        assert set(await member_ids([address], NodeIdentity(newcomer.key), newcomer.tls(RING))) == {ME.id, b"a" * 20}
        assert await member_ids([address], NodeIdentity(newcomer.key), newcomer.tls(OTHERS)) == []
        assert await member_ids([address], NodeIdentity(newcomer.key)) == []
