"""Members that were only named are asked before their turn: those that nobody has met are gone in half a minute."""

from __future__ import annotations

import asyncio
from random import Random

from dhtcrawl.rpc.membership.hello import MemberRecord
from dhtcrawl.rpc.membership.member_parts import AskingOrder
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers
from dhtcrawl.sim.net import Weather
from rpc.gossip_swarm import swarm
from rpc.records import ACTIVE, members, node

INVENTED = 300


def invented() -> tuple[MemberRecord, ...]:
    rng = Random(7)
    made = (
        MemberRecord(rng.randbytes(20), f"10.9.{n // 250}.{n % 250}", 9, 1, 1, ACTIVE, True) for n in range(INVENTED)
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


async def test_hundreds_of_invented_members_are_gone_in_half_a_minute_and_the_true_ones_stay() -> None:
    async with swarm(1, Weather()) as s:
        nodes = await s.grow(4)
        await s.until_agreed(10)
        await asyncio.sleep(5)
        rows = ExchangeMembers(tuple(record.row() for record in invented()), b"", 3)
        nodes[0].answer_members(nodes[1].members.me.id, rows)
        assert len(nodes[0].view.members) == 4 + INVENTED
        await asyncio.sleep(30)
        assert s.agreed(4), [len(each.view.members) for each in nodes]
        assert s.declared_dead == []
