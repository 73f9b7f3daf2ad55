"""Members that were only named are asked before their turn: those that nobody has met are gone in half a minute."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest

from dhtcrawl.rpc.membership.hello import MemberRecord, NodeState
from dhtcrawl.rpc.membership.member_parts import AskingOrder
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers
from dhtcrawl.rpc.membership.members import HEARSAY_MAX
from dhtcrawl.sim.net import Weather
from rpc.gossip_swarm import swarm
from rpc.records import ACTIVE, members, node, signed
from rpc.routing_swarm import PORT, Raw, host, request

INVENTED = 300


def invented() -> tuple[MemberRecord, ...]:
    rng = Random(7)
    made = (
        signed(MemberRecord(rng.randbytes(20), f"10.9.{n // 250}.{n % 250}", 9, 1, 1, ACTIVE, True))
        for n in range(INVENTED)
    )
    return tuple(sorted(made, key=lambda record: record.id))


def test_newcomers_are_asked_once_out_of_turn_in_the_order_in_which_they_came() -> None:
    order = AskingOrder(Random(1))
    live = {name: name.decode() for name in (b"a", b"b", b"c", b"d")}
    for name in live:
        order.comes(name)
    order.goes(b"b")
    del live[b"b"]
    assert [order.next_new(live, {b"a"}) for _ in range(3)] == ["c", "d", None]
    order.comes(b"e")
    live[b"e"] = "e"
    while order.next(live, ()) != "e":
        pass
    assert order.next_new(live, ()) is None, "its turn has come"


def test_a_member_is_asked_out_of_turn_when_it_comes_and_when_it_comes_back() -> None:
    known = members(node("a"))
    assert known.next_target(new=True) == node("a")
    assert known.next_target(new=True) is None
    known.learn([node("a").turned(ACTIVE)], 1.0)
    assert known.next_target(new=True) is None


def test_help_comes_from_those_that_have_answered_where_there_are_any() -> None:
    known = members(node("a"), node("b"), node("c"))
    assert len(known.some(3)) == 3
    known.met(node("b").id)
    assert known.some(3) == [node("b")]
    assert len(known.some(3, exclude=node("b").id)) == 2


def told_by_one() -> ExchangeMembers:
    return ExchangeMembers(tuple(record.row() for record in invented()), b"", 3)


async def test_of_hundreds_of_invented_members_few_are_believed_in_and_these_are_gone_in_half_a_minute() -> None:
    async with swarm(1, Weather()) as s:
        nodes = await s.grow(4)
        await s.until_agreed(10)
        await asyncio.sleep(5)
        nodes[0].answer_members(nodes[1].members.me.id, told_by_one())
        assert len(nodes[0].view.members) == 4 + HEARSAY_MAX
        assert nodes[0].members.rows.crowded == INVENTED - HEARSAY_MAX
        await asyncio.sleep(30)
        assert s.agreed(4), [len(each.view.members) for each in nodes]
        assert s.declared_dead == []


async def test_a_newcomer_believes_all_that_it_is_told_as_it_has_met_none_of_them() -> None:
    async with swarm(1, Weather()) as s:
        nodes = await s.grow(2)
        newcomer = await s.start(3)
        newcomer.answer_members(nodes[1].members.me.id, told_by_one())
        assert len(newcomer.view.members) == 1 + INVENTED


async def test_rows_without_their_nodes_key_admit_nobody_whoever_tells_them() -> None:
    async with swarm(1, Weather()) as s:
        nodes = await s.grow(3)
        await s.until_agreed(10)
        newcomer = await s.start(4)
        forged = [replace(record, extra=nodes[0].members.me.extra) for record in invented()[:20]]
        forged += [replace(record, extra=()) for record in invented()[:20]]
        forged += [replace(record, port=77) for record in invented()[:20]]
        for record in forged:
            for gossip in (*nodes, newcomer):
                gossip.answer_members(nodes[1].members.me.id, ExchangeMembers((record.row(),), b"", 3))
        assert [len(each.view.members) for each in nodes] == [3, 3, 3]
        assert len(newcomer.view.members) == 1
        assert newcomer.counters.unsigned == len(forged)


@pytest.mark.parametrize("state", [NodeState.SUSPECTED, NodeState.LEFT, NodeState.DEAD])
async def test_what_a_stranger_says_of_the_node_that_it_asks_changes_nothing_there(state: NodeState) -> None:
    async with swarm(1, Weather()) as s:
        nodes = await s.grow(3)
        await s.until_agreed(10)
        us, member = nodes[0], nodes[1].members.me.id
        before = us.members.me
        said = ExchangeMembers((before.turned(state).row(),), b"", 1_000)
        us.answer_members(b"stranger" + bytes(12), said)
        assert us.members.me == before
        assert s.declared_dead == []
        us.answer_members(member, said)
        assert us.members.me.epoch > before.epoch, "a member may say so, and is refuted"


async def test_one_socket_is_one_member_however_many_keys_it_has() -> None:
    async with swarm(1, Weather()) as s:
        nodes = await s.grow(3)
        await s.until_agreed(10)
        many = Raw(s.world, (host(9), PORT), lambda name, _: b"h" * 20)
        for number in range(40):
            own_row = signed(MemberRecord.newcomer(bytes([number]) * 20, (host(9), PORT), 1)).row()
            many.transport.sendto(request("hello", own_row, 9, []), (host(1), PORT))
            await asyncio.sleep(0.05)
        assert len(nodes[0].view.members) <= 3 + 1 + HEARSAY_MAX


async def test_who_crashed_counts_for_a_newcomer_as_it_counts_for_the_others() -> None:
    async with swarm(1, Weather()) as s:
        nodes = await s.grow(4)
        await s.until_agreed(10)
        crashed = nodes[3].members.me
        s.crash(host(4))
        newcomer = await s.start(5)
        await newcomer.join([(host(1), PORT)])
        for gossip in (nodes[0], newcomer):
            assert [member.id for member in gossip.view.closest(crashed.id, 1)] == [crashed.id]
        newcomer.set_state(ACTIVE)
        await s.until_agreed(30, 4)
