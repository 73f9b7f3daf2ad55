"""Membership among strangers: a stock node, datagrams that mean harm, records by the page, real sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.clock import SystemClock
from dhtcrawl.keyspace import INCARNATION_MAX
from dhtcrawl.rpc.discovery import datagram
from dhtcrawl.rpc.discovery.server import RoutingServer
from dhtcrawl.rpc.membership.gossip import Gossip
from dhtcrawl.rpc.membership.gossip_settings import GossipSettings
from dhtcrawl.rpc.membership.hello import EPOCH_MAX, MemberRecord, NodeState
from dhtcrawl.rpc.membership.member_exchange import TaskPlane
from dhtcrawl.rpc.membership.member_rows import ExchangeMembers
from dhtcrawl.rpc.peers.port import CallRegistry
from dhtcrawl.rpc.tasks.messages import Call, Refused, Reply, Request
from dhtcrawl.rpc.tasks.schema import BadArguments
from dhtcrawl.rpc.tasks.signals import Hello
from dhtcrawl.rpc.tasks.transport import TaskTransport
from dhtcrawl.sim.net import Weather
from dhtcrawl.swarm.membership.peer_store import ask_members
from rpc.gossip_swarm import states_of, swarm
from rpc.records import own, signed
from rpc.routing_swarm import PORT, Raw, host, request, simulate

JOINING, ACTIVE, DEAD = NodeState.JOINING, NodeState.ACTIVE, NodeState.DEAD


async def test_a_stock_node_is_asked_once_in_five_minutes_and_is_never_a_member() -> None:
    async with swarm(2, Weather()) as s:
        first = await s.start(1)
        first.set_state(ACTIVE)
        stock = await s.world.node("stock", host(50))
        await stock.bootstrap([(host(1), PORT)])
        asked = Asked(stock.protocol)
        nodes = [first]
        for number in range(2, 7):
            nodes.append(await s.start(number))
            await nodes[-1].join([(host(50), PORT) if number % 2 else (host(1), PORT)])
            nodes[-1].set_state(ACTIVE)
        await s.until_agreed(10)
        assert all(stock.node.id in [contact.id for contact in s.world.nodes[n].plane.table] for n in s.nodes)
        await asyncio.sleep(250)
        assert s.agreed(6)
        assert len(asked.by) == 6
        assert max(asked.by.values()) <= 4  # the join itself, and once from the table; each sent twice
        assert await stock.set("key", "value")


class Asked:
    """Counts who says hello to a stock node."""

    def __init__(self, protocol: Any) -> None:
        self.by: dict[str, int] = {}
        received = protocol.datagram_received

        def datagram_received(data: bytes, addr: tuple[str, int]) -> None:
            message = datagram.decode(data)
            if getattr(message, "name", "") == "hello":
                self.by[addr[0]] = self.by.get(addr[0], 0) + 1
            received(data, addr)

        protocol.datagram_received = datagram_received


@pytest.mark.parametrize("members_max", [30, 1200])
async def test_the_exchange_of_all_records_goes_page_by_page_in_both_directions(members_max: int) -> None:
    async with swarm() as s:
        settings_ = GossipSettings(members_max=2000)
        one, two = await s.start(1, settings=settings_), await s.start(2, settings=settings_)
        made = [
            signed(MemberRecord(Random(f"{n}").randbytes(20), "10.9.0.1", 1 + n, 1, 1, ACTIVE, True))
            for n in range(members_max)
        ]
        one.members.learn(made[: members_max // 6], 0.0, news=False)
        two.members.learn(made[members_max // 6 :], 0.0, news=False)
        one.members.learn([two.members.me], 0.0, news=False)
        two.members.learn([one.members.me], 0.0, news=False)
        for gossip, other in ((one, two), (two, one)):
            s.asked_members = 0
            assert await gossip.exchange(other.members.me.id)
            assert s.asked_members == 1 + members_max // 512
            assert len(one.view.members) == len(two.view.members) == members_max + 2
        assert one.fingerprint() == two.fingerprint()
        one.stop()
        two.stop()


@pytest.mark.parametrize("args", [{}, {"rows": 7}, {"rows": (), "cursor": 7}, {"rows": (), "cursor": b"x"}])
def test_nonsense_instead_of_records_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(BadArguments):
        ExchangeMembers.parse(args)


anything = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.text("ab", max_size=4), st.binary(max_size=21)
    ),
    lambda inner: st.lists(inner, max_size=11),
    max_leaves=40,
)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["hello", "hello_for", "hello_from"]), st.lists(anything, max_size=3)), max_size=5
    )
)
def test_datagrams_with_anything_in_them_change_nothing_and_raise_nothing(calls: list[tuple[str, list[Any]]]) -> None:
    async def main() -> None:
        async with swarm() as s:
            node, _ = await s.grow(2)
            await asyncio.sleep(1)
            hostile = Raw(
                s.world,
                (host(9), PORT),
                lambda name, _: b"h" * 20 if name == "ping" else calls[0][1] if calls else None,
            )
            before = states_of(node)
            for name, args in calls:
                hostile.transport.sendto(request(name, *args), (host(1), PORT))
                node.answer_members(b"h" * 20, ExchangeMembers(tuple(args), b"", 0))
            await asyncio.sleep(2)
            assert s.world.nodes[host(1)].plane.counters.handler_errors == 0
            assert states_of(node) == before

    simulate(main)


async def test_who_names_other_numbers_of_us_is_not_believed_and_who_buries_us_costs_us_our_place_and_no_more() -> None:
    async with swarm() as s:
        node, other = await s.grow(2)
        await asyncio.sleep(2)
        me = node.members.me
        hostile = Raw(s.world, (host(9), PORT), lambda name, _: b"h" * 20)
        hostile.transport.sendto(request("ping", b"h" * 20), (host(1), PORT))
        await asyncio.sleep(1)
        its_own = signed(MemberRecord.newcomer(b"h" * 20, (host(9), PORT), 1)).row()
        for incarnation, epoch, state in ((1, 9, DEAD), (7, 0, ACTIVE), (INCARNATION_MAX, EPOCH_MAX, DEAD)):
            for extra in ((), me.extra):
                row = MemberRecord(
                    me.id, me.host, me.port, incarnation, epoch, state, True, me.features, extra=extra
                ).row()
                hostile.transport.sendto(large("hello", its_own, 9, [row] * 70), (host(1), PORT))
                hostile.transport.sendto(request("hello", row, 9, [me.turned(DEAD).row()]), (host(1), PORT))
                await asyncio.sleep(1)
                assert node.members.me == me
        hostile.transport.sendto(request("hello", its_own, 9, [me.turned(DEAD).row()] * 2), (host(1), PORT))
        await asyncio.sleep(1)
        assert (node.members.me.state, node.members.me.life) == (JOINING, (1, me.epoch + 1))
        assert len(s.declared_dead) == 1
        assert s.world.nodes[host(1)].plane.counters.handler_errors == 0
        assert node.counters.bad_rows >= 16
        assert node.counters.unsigned >= 9
        assert other.members.get(me.id) == node.members.me


async def test_a_node_says_once_that_another_process_has_its_key(caplog: pytest.LogCaptureFixture) -> None:
    async with swarm() as s:
        node, other = await s.grow(2)
        await asyncio.sleep(1)
        assert node.counters.doubles == 0
        for port in (7, 8):
            twin = signed(dataclasses.replace(node.members.me, port=port, epoch=node.members.me.epoch + port))
            other.members.learn([twin], s.world.loop.time())
            await asyncio.sleep(60)
            assert node.counters.doubles == 1
            assert node.members.me.life > twin.life
    said = [record.message for record in caplog.records if "also at" in record.message]
    assert said == [
        f"this node is also at {host(1)}:7, or was before its data directory was restored: two processes must not have "
        "copies of one; if both run, stop one of them, and start it with an empty --data-dir"
    ]


async def test_what_a_stranger_says_counts_once_its_address_has_answered() -> None:
    async with swarm() as s:
        node = await s.start(1)
        forged = signed(MemberRecord.newcomer(b"f" * 20, (host(9), PORT), 1)).row()
        silent = Raw(s.world, (host(9), PORT))
        silent.transport.sendto(request("hello", forged, 0, [forged]), (host(1), PORT))
        await asyncio.sleep(5)
        assert len(node.view.members) == 1
        sizes = [len(data) for data, _ in silent.received]
        assert sum(sizes[:3]) <= 3 * len(request("hello", forged, 0, [forged])) + 50
        honest = Raw(s.world, (host(8), PORT), lambda name, _: b"g" * 20 if name == "ping" else None)
        record = signed(MemberRecord.newcomer(b"g" * 20, (host(8), PORT), 1))
        honest.transport.sendto(request("hello", record.row(), 0, []), (host(1), PORT))
        await asyncio.sleep(1)
        assert node.members.get(b"g" * 20) == record


async def test_who_is_no_member_where_it_asks_from_is_told_no_news_and_uses_none_up() -> None:
    async with swarm() as s:
        nodes = await s.grow(8)
        await s.until_agreed(30)
        await asyncio.sleep(60)
        told, stranger = nodes[0].members.rumours, Raw(s.world, ("10.9.9.9", PORT))
        assert len(told) == 0
        nodes[0].set_state(NodeState.JOINING)
        unknown = MemberRecord.newcomer(b"f" * 20, ("10.9.9.9", PORT), 1)
        for row in (unknown.row(), nodes[1].members.me.row()):
            for _ in range(50):
                stranger.transport.sendto(request("hello", row, 0, []), nodes[0].members.me.address)
        await asyncio.sleep(0.1)
        assert len(told) == 1
        replies = [msgpack.unpackb(data[21:]) for data, _ in stranger.received if data[:1] == b"\x01"]
        assert max(map(len, replies)) == 2  # its own row, and how many it sees


async def test_nobody_can_make_a_node_ask_an_address_of_their_choice() -> None:
    async with swarm() as s:
        node, other = await s.grow(2)
        await asyncio.sleep(2)
        asker = Raw(s.world, (host(9), PORT), lambda name, _: b"h" * 20)
        asker.transport.sendto(request("hello_for", other.members.me.id), node.members.me.address)
        asker.transport.sendto(request("ping", b"h" * 20), node.members.me.address)
        await asyncio.sleep(1)
        asker.transport.sendto(request("hello_for", other.members.me.id), node.members.me.address)
        asker.transport.sendto(request("hello_for", b"x" * 20), node.members.me.address)
        await asyncio.sleep(1)
        answers = [
            m.value for data, _ in asker.received if isinstance(m := datagram.decode(data), datagram.DatagramReply)
        ]
        assert answers == [False, node.members.me.id, True, False]
        assert [args[0][0] for name, args in asker.requests if name == "hello_from"] == [other.members.me.id]


def large(name: str, *args: Any) -> bytes:
    """A request longer than we would ever write one."""
    written: bytes = b"\x00" * 21 + msgpack.packb([name, args])
    return written


async def on_sockets(number: int, group: asyncio.TaskGroup, stack: AsyncExitStack) -> Gossip:
    """A node with both planes on one port of this machine, as the program wires it."""
    registry = CallRegistry()

    def handler(asker: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
        return registry.answer(asker.node_id, message, group) if isinstance(message, Call) else Refused("unknown")

    node_id = Random(number).randbytes(20)
    transport = TaskTransport(lambda: Hello(node_id, 1, "joining", (), transport.port), handler)
    await stack.enter_async_context(transport)
    address = await transport.listen("127.0.0.1", 0)
    server = RoutingServer(node_id, clock=SystemClock(), rng=Random(number))
    await server.listen(address[1], "127.0.0.1")

    tasks = TaskPlane(partial(ask_members, transport), lambda _: None)

    me = own(MemberRecord.newcomer(node_id, address, 1))
    gossip = Gossip(server, me, clock=SystemClock(), rng=Random(number), tasks=tasks)
    registry.serve(ExchangeMembers, gossip.answer_members)
    for task in (server.run(), gossip.run()):
        group.create_task(task)
    stack.callback(server.stop)
    stack.callback(gossip.stop)
    return gossip


@pytest.mark.loops("asyncio")
async def test_members_find_one_another_and_leave_on_real_sockets() -> None:
    changed = asyncio.Event()

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            changed.clear()
            await changed.wait()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group, AsyncExitStack() as stack:
        nodes = [await on_sockets(number, group, stack) for number in range(4)]
        for node in nodes:
            node.on_change.append(lambda _view: changed.set())
        for node in nodes[1:]:
            await node.join([nodes[0].members.me.address])
            assert node.counters.exchanges == 1
        for node in nodes:
            node.set_state(ACTIVE)
        await until(lambda: all(node.view.active == 4 for node in nodes))
        assert len({node.fingerprint() for node in nodes}) == 1
        await nodes[2].leave()
        await until(lambda: all(node.view.active == 3 for node in nodes))


def test_the_page_names_every_constant_with_its_value_and_every_state_with_its_number() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol-members.md").read_text("utf-8")
    said: dict[str, str] = {}
    for names, values in re.findall(
        r"^\| (`\w+`(?:, `\w+`)*) \| ((?:[\d.,]+(?: s| h)?(?:, )?)+) \|", page, re.MULTILINE
    ):
        said.update(zip(names.replace("`", "").split(", "), values.split(", "), strict=True))
    hours = {"1 h": "3600 s", "24 h": "86400 s"}
    read = {name: float(hours.get(value, value).replace(",", "").removesuffix(" s")) for name, value in said.items()}
    assert read == {field.name: field.default for field in dataclasses.fields(GossipSettings)}
    states = re.findall(r"^\| (\d) ([A-Z]+) \|", page, re.MULTILINE)
    assert [(int(number), name) for number, name in states] == [(state.value, state.name) for state in NodeState]
