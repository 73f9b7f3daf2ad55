"""Thirty nodes in memory know of one another: who came, who went, and who only seemed to."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

import pytest

from dhtcrawl.errors import BootstrapUnreachable
from dhtcrawl.rpc.discovery.datagram import DATAGRAM_BYTES_MAX
from dhtcrawl.rpc.membership.gossip import Gossip
from dhtcrawl.rpc.membership.hello import MemberRecord, NodeState
from dhtcrawl.rpc.membership.member_exchange import TaskPlane
from dhtcrawl.rpc.membership.view import MemberState, View
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.sim.net import Weather
from dhtcrawl.sim.trace import Trace
from rpc.gossip_swarm import Swarm, join, states_of, swarm
from rpc.records import own
from rpc.routing_swarm import CALM, PORT, host, simulate

JOINING, ACTIVE, LEFT = NodeState.JOINING, NodeState.ACTIVE, NodeState.LEFT


def total(s: Swarm, counter: str) -> int:
    return sum(getattr(gossip.counters, counter) for gossip in s.nodes.values())


def rejoin_after(s: Swarm, seconds: float) -> None:
    """Whoever is declared dead is active again a little later, as a node that has synced."""
    for gossip in s.nodes.values():
        gossip.on_declared_dead.append(partial(s.later, seconds, gossip.set_state, ACTIVE))


@pytest.mark.parametrize(("loss", "seed"), [(0.0, 1), (0.01, 2), (0.1, 3)])
async def test_thirty_nodes_agree_nobody_dies_of_loss_and_six_that_are_killed_are_dead_within_eleven_seconds(
    loss: float, seed: int
) -> None:
    async with swarm(seed, Weather(loss=loss)) as s:
        await s.grow(30)
        assert await s.until_agreed(5) <= 2.0
        await asyncio.sleep(40)
        assert s.agreed(30)
        assert (total(s, "deaths"), s.declared_dead) == (0, [])
        for name in Random(seed).sample(sorted(s.nodes), 6):
            s.crash(name)
        await asyncio.sleep(1)
        assert not s.agreed(24)
        assert await s.until_agreed(20) <= 11.0 - 1
        await asyncio.sleep(10)
        assert s.agreed(24)
        assert s.declared_dead == []
        assert s.world.net.largest_bytes <= DATAGRAM_BYTES_MAX


async def test_an_idle_member_costs_about_four_datagrams_a_second() -> None:
    async with swarm() as s:
        await s.grow(20)
        await asyncio.sleep(30)
        before = s.world.net.sent
        await asyncio.sleep(60)
        assert 3.5 <= (s.world.net.sent - before) / 20 / 60 <= 4.5


async def test_everybody_can_join_through_one_node_at_once_also_in_bad_weather() -> None:
    async with swarm(4, Weather(loss=0.05)) as s:
        gossips = [await s.start(number) for number in range(1, 31)]
        gossips[0].set_state(ACTIVE)
        async with asyncio.TaskGroup() as group:
            for gossip in gossips[1:]:
                group.create_task(join(gossip, host(1)))
        for gossip in gossips[1:]:
            assert gossip.members.me.state is JOINING
            gossip.set_state(ACTIVE)
        await s.until_agreed(10)


async def test_a_newcomer_is_joining_until_it_says_otherwise_and_knows_everybody_when_it_has_joined() -> None:
    async with swarm() as s:
        old = await s.grow(8)
        new = await s.start(9)
        await new.join([(host(3), PORT)])
        assert len(new.view.members) == 9
        await asyncio.sleep(2)
        assert {states_of(gossip)[host(9)] for gossip in s.nodes.values()} == {MemberState.JOINING}
        assert old[0].mark_active(new.members.me.id, 1)
        assert [states_of(gossip)[host(9)] for gossip in old].count(MemberState.ACTIVE) == 1
        new.set_state(ACTIVE)
        await s.until_agreed(3)


async def test_who_knows_nobody_that_answers_is_told_so() -> None:
    async with swarm() as s:
        lonely = await s.start(1)
        with pytest.raises(BootstrapUnreachable):
            await lonely.join([(host(7), PORT)])
        assert lonely.view.members[0].id == lonely.members.me.id


async def test_a_restarted_node_is_back_at_once_joining_and_then_active() -> None:
    async with swarm() as s:
        nodes = await s.grow(10)
        await asyncio.sleep(5)
        for downtime_s, incarnation in ((1.0, 2), (20.0, 3)):
            s.crash(host(4))
            await asyncio.sleep(downtime_s)
            again = await s.start(4, incarnation=incarnation)
            await again.join([(host(1), PORT)])
            await asyncio.sleep(2)
            assert {states_of(gossip)[host(4)] for gossip in s.nodes.values()} == {MemberState.JOINING}
            again.set_state(ACTIVE)
            await s.until_agreed(3)
            assert nodes[0].members.get(again.members.me.id) == again.members.me
        assert s.declared_dead == []


async def test_a_node_that_was_cut_off_hears_that_it_was_declared_dead_and_comes_back_joining() -> None:
    async with swarm() as s:
        nodes = await s.grow(12)
        await asyncio.sleep(5)
        s.cut([host(5)])
        await asyncio.sleep(20)
        assert all(host(5) not in states_of(gossip) for gossip in nodes if gossip is not s.nodes[host(5)])
        s.heal()
        await asyncio.sleep(15)
        assert s.declared_dead == [host(5)]
        assert {states_of(gossip)[host(5)] for gossip in nodes} == {MemberState.JOINING}
        s.nodes[host(5)].set_state(ACTIVE)
        await s.until_agreed(5)


async def test_a_node_that_did_not_run_knows_it_before_anybody_tells_it() -> None:
    async with swarm() as s:
        slept_s = [0.0]
        server = await s.world.node("ours", host(1))

        async def nobody(*_args: Any) -> None:
            return None

        gossip = Gossip(
            server,
            own(MemberRecord.newcomer(server.node.id, (host(1), PORT), 1)),
            clock=VirtualClock(s.world.loop),
            rng=Random(1),
            tasks=TaskPlane(nobody, lambda _: None),
            boottime=lambda: s.world.loop.time() + slept_s[0],
        )
        heard: list[NodeState] = []
        gossip.on_declared_dead.append(lambda: heard.append(gossip.members.me.state))
        gossip.set_state(ACTIVE)
        s.nodes[host(1)] = gossip
        assert s.world.group is not None
        s.world.group.create_task(gossip.run())
        await asyncio.sleep(3)
        slept_s[0] = 4.0
        await asyncio.sleep(3)
        assert heard == []
        slept_s[0] = 10.0
        assert gossip.check_paused()
        assert heard == [JOINING]
        await asyncio.sleep(3)
        assert heard == [JOINING]
        slept_s[0] = 20.0
        await asyncio.sleep(1)
        assert heard == [JOINING, JOINING]


async def test_a_node_that_stalls_for_two_seconds_is_not_even_suspected() -> None:
    async with swarm() as s:
        await s.grow(10)
        await asyncio.sleep(5)
        for _ in range(5):
            resume = stall(s, host(3))
            await asyncio.sleep(2)
            resume()
            await asyncio.sleep(5)
        assert total(s, "suspicions") == 0
        assert s.agreed(10)


async def test_a_node_that_stalls_for_six_seconds_is_suspected_and_refutes() -> None:
    async with swarm() as s:
        nodes = await s.grow(10)
        await asyncio.sleep(5)
        resume = stall(s, host(3))
        await asyncio.sleep(6)
        assert states_of(nodes[0])[host(3)] is MemberState.SUSPECTED
        resume()
        await s.until_agreed(2)
        assert total(s, "refutations") >= 1
        assert (total(s, "deaths"), s.declared_dead) == (0, [])


@pytest.mark.parametrize(("stood_still_s", "suspicions"), [(0.0, 1), (3.0, 0)])
async def test_a_node_that_stood_still_itself_asks_again_before_it_blames_another(
    stood_still_s: float, suspicions: int
) -> None:
    async with swarm() as s:
        clock = Stopwatch(s.world.loop)
        one, _ = await s.start(1, clock=clock), await s.start(2)
        await one.join([(host(2), PORT)])
        resume = stall(s, host(2))
        await asyncio.sleep(1)
        clock.ahead_s += stood_still_s  # its timers will look late
        await asyncio.sleep(2.5)
        resume()
        await asyncio.sleep(2)
        assert one.counters.suspicions == suspicions
        assert (one.counters.pauses, one.counters.deaths) == (0, 0)


class Stopwatch(VirtualClock):
    """A clock that a test sets ahead."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


@pytest.mark.parametrize("at_s", [10, 20, 40, 80, 160])  # sums of floats round differently in each
@pytest.mark.parametrize("count", [2, 3, 5])
async def test_in_a_small_swarm_who_is_killed_is_dead_as_soon_whatever_the_time(count: int, at_s: float) -> None:
    async with swarm() as s:
        await s.grow(count)
        await asyncio.sleep(at_s - s.world.loop.time())
        s.crash(host(2))
        assert await s.until_agreed(20) <= 10.0


def stall(s: Swarm, name: str) -> Any:
    """Datagrams wait in the socket of a node until what is returned is called."""
    plane = s.world.nodes[name].plane
    received, waiting = plane.datagram_received, list[tuple[bytes, Any]]()
    plane.datagram_received = lambda data, addr: waiting.append((data, addr))

    def resume() -> None:
        plane.datagram_received = received
        for data, addr in waiting:
            received(data, addr)

    return resume


async def test_a_member_that_only_some_can_reach_stays() -> None:
    async with swarm() as s:
        nodes = await s.grow(6)
        await asyncio.sleep(5)
        cut, apart = s.world.net.wires.cut, {host(1), host(2)}

        def cut_or_apart(source: str, target: str) -> bool:
            return {source, target} == apart or cut(source, target)

        s.world.net.wires.cut = cut_or_apart  # type: ignore[method-assign]
        await asyncio.sleep(60)
        assert s.agreed(6)
        assert total(s, "suspicions") == 0
        assert nodes[0].counters.hellos > 100


async def test_after_a_partition_all_see_all_again_and_only_the_smaller_side_had_lost_its_place() -> None:
    async with swarm(5, Weather()) as s:
        await s.grow(20)
        rejoin_after(s, 1.0)
        left, right = ([host(n) for n in range(1, 7)], [host(n) for n in range(7, 21)])
        s.cut(left)
        await asyncio.sleep(120)
        for side in (left, right):
            assert {frozenset(states_of(s.nodes[name])) for name in side} == {frozenset(side)}
        s.heal()
        assert await s.until_agreed(120) <= 40.0
        assert set(s.declared_dead) == set(left)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("lasts_s", [11, 16, 30])
async def test_also_while_the_news_of_the_dead_is_fresh_only_the_smaller_side_loses_its_place(
    lasts_s: float, seed: int
) -> None:
    async with swarm(seed, Weather()) as s:
        await s.grow(10)
        rejoin_after(s, 3.0)
        few, many = ([host(n) for n in range(1, 4)], [host(n) for n in range(4, 11)])
        s.cut(few, many)
        await asyncio.sleep(lasts_s)
        s.heal()
        await s.until_agreed(60)
        assert set(s.declared_dead) == set(few)


async def test_after_a_partition_into_halves_all_see_all_again() -> None:
    async with swarm(6, Weather(loss=0.02)) as s:
        await s.grow(20)
        rejoin_after(s, 1.0)
        s.cut([host(n) for n in range(1, 11)])
        await asyncio.sleep(60)
        s.heal()
        await s.until_agreed(60)
        await asyncio.sleep(60)
        assert s.agreed(20)


async def test_of_two_halves_one_joins_anew_as_soon_as_the_network_is_whole() -> None:
    async with swarm(7, Weather()) as s:
        await s.grow(12)
        rejoin_after(s, 3.0)
        halves = [host(n) for n in range(1, 7)], [host(n) for n in range(7, 13)]
        await asyncio.sleep(10)
        s.cut(*halves)
        await asyncio.sleep(60)
        s.heal()
        await asyncio.sleep(2)
        assert set(s.declared_dead) in map(set, halves)
        assert await s.until_agreed(60) <= 5.0


async def test_who_hears_that_one_was_not_dead_and_owned_all_the_time_is_told_that_they_were_apart() -> None:
    async with swarm() as s:
        one, *others = await s.grow(6)
        await s.until_agreed(10)
        reunited: list[bool] = []
        one.on_reunited.append(lambda: reunited.append(len(one.view) > 1))
        records = [one.members.get(other.members.me.id) for other in others]
        one.members.learn([record.turned(NodeState.DEAD) for record in records if record is not None], 0.0)
        await s.until_agreed(40)
        assert reunited == [True], "once, and the view has it"
        assert s.declared_dead == []


async def test_two_nodes_that_lost_sight_of_each_other_find_each_other_again() -> None:
    async with swarm() as s:
        await s.grow(2)
        rejoin_after(s, 1.0)
        s.cut([host(1)])
        await asyncio.sleep(60)
        assert [len(gossip.view.members) for gossip in s.nodes.values()] == [1, 1]
        s.heal()
        await s.until_agreed(60)
        assert len(s.declared_dead) == 1  # whoever heard it first, and then forgot what it thought of the other


async def test_when_two_thirds_are_killed_at_once_the_rest_knows_it_soon() -> None:
    async with swarm() as s:
        await s.grow(24)
        await asyncio.sleep(5)
        for number in range(3, 19):
            s.crash(host(number))
        assert await s.until_agreed(60) <= 30.0
        assert s.declared_dead == []


async def test_who_leaves_is_gone_for_all_at_once_and_was_never_dead() -> None:
    async with swarm(6, Weather(loss=0.05)) as s:
        nodes = await s.grow(15)
        await asyncio.sleep(5)
        began_at = s.world.loop.time()
        await nodes[3].leave()
        await nodes[3].leave()
        assert s.world.loop.time() - began_at <= 2.0
        assert host(4) not in states_of(nodes[3])
        s.crash(host(4))
        await s.until_agreed(3)
        assert {gossip.members.get(nodes[3].members.me.id).state for gossip in s.nodes.values()} == {LEFT}  # type: ignore[union-attr]
        await asyncio.sleep(60)
        assert (total(s, "suspicions"), total(s, "deaths")) == (0, 0)


async def test_leaving_takes_no_longer_than_it_may_also_when_nobody_answers() -> None:
    async with swarm() as s:
        nodes = await s.grow(5)
        s.cut([host(1)])
        began_at = s.world.loop.time()
        await nodes[0].leave()
        assert s.world.loop.time() - began_at <= 2.0


async def test_a_node_that_advertises_no_address_is_where_it_sends_from() -> None:
    async with swarm() as s:
        first = await s.start(1, address=("0.0.0.0", PORT))
        second = await s.start(2, address=("::", PORT))
        third = await s.start(3)
        await second.join([(host(1), PORT)])
        await third.join([(host(2), PORT)])
        await asyncio.sleep(5)
        for gossip in (first, second, third):
            others = {m.id: m.address for m in gossip.view.members if m.id != gossip.members.me.id}
            assert set(others.values()) == {(host(n), PORT) for n in (1, 2, 3)} - {
                (name, PORT) for name, node in s.nodes.items() if node is gossip
            }


async def test_a_node_that_moves_is_known_where_it_is_before_it_is_missed() -> None:
    async with swarm() as s:
        nodes = await s.grow(5)
        await asyncio.sleep(5)
        assert nodes[4].move(("2001:db8::5", PORT))
        await asyncio.sleep(2)
        mine = nodes[4].members.me.id
        for gossip in s.nodes.values():
            assert [m.address for m in gossip.view.members if m.id == mine] == [("2001:db8::5", PORT)]
        assert total(s, "deaths") == 0


async def test_another_node_at_the_address_of_a_member_does_not_answer_for_it() -> None:
    async with swarm() as s:
        nodes = await s.grow(5)
        await asyncio.sleep(5)
        s.crash(host(2))
        s.world.seed = 99  # another identity
        stranger = await s.start(2)
        await stranger.join([(host(1), PORT)])
        stranger.set_state(ACTIVE)
        await s.until_agreed(15)
        assert nodes[1].members.me.id not in nodes[0].members
        assert stranger.members.me.id in nodes[0].members


async def test_listeners_hear_of_every_view_in_order_and_one_that_fails_stops_nobody() -> None:
    async with swarm() as s:
        first = await s.start(1)
        views: list[View] = []

        def fail(_view: View) -> None:
            raise RuntimeError

        first.on_change.extend(
            [
                fail,
                lambda view: first.set_state(ACTIVE) if len(view.members) == 2 else None,
                views.append,
            ]
        )
        second = await s.start(2)
        await second.join([(host(1), PORT)])
        await asyncio.sleep(2)
        second.set_state(ACTIVE)
        await asyncio.sleep(2)
        assert views[-1] is first.view
        assert [(len(view.members), view.active) for view in views] == [(2, 0), (2, 1), (2, 2)]


def run(seed: int) -> tuple[str, int]:
    async def main() -> tuple[str, int]:
        trace = Trace(asyncio.get_running_loop().time)
        async with swarm(seed, Weather(loss=0.05, duplication=0.05), trace) as s:
            await s.grow(8)
            s.crash(host(3))
            await asyncio.sleep(20)
            s.cut([host(1), host(2)])
            await asyncio.sleep(30)
            s.heal()
            await asyncio.sleep(60)
            await s.nodes[host(5)].leave()
            await asyncio.sleep(5)
            for name, gossip in s.nodes.items():
                trace.event("seen", by=name, members=sorted((k, v.value) for k, v in states_of(gossip).items()))
        return trace.hash, trace.events

    return simulate(main)


def test_the_same_seed_is_the_same_run_to_the_byte() -> None:
    (first, events), (second, _), (other, _) = run(1), run(1), run(2)
    assert events > 1000
    assert first == second
    assert first != other


async def test_a_node_that_is_stopped_ends_at_once_and_blames_nobody() -> None:
    async with swarm(weather=CALM) as s:
        nodes = await s.grow(4)
        s.cut([host(1)])
        await asyncio.sleep(0.8)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(nodes[1].run())
            await asyncio.sleep(0.8)
            nodes[0].stop()
            nodes[1].stop()
            nodes[1].stop()
        assert running.done()
        await asyncio.sleep(10)
        assert nodes[0].counters.suspicions == 0


async def test_a_node_that_nobody_reaches_is_a_member_as_long_as_its_connections_are_alive() -> None:
    async with swarm() as s:
        await s.grow(6)
        hidden = await s.start(7, outbound=True)
        for number in range(1, 7):
            s.connections[host(number), hidden.members.me.id] = 1.0
        await hidden.join([(host(1), PORT)])
        others = [gossip for name, gossip in s.nodes.items() if name != host(7)]
        await asyncio.sleep(40)
        assert {states_of(gossip)[host(7)] for gossip in s.nodes.values()} == {MemberState.OUTBOUND}
        assert len(hidden.view) == 6, "it sees all"
        tables = [s.world.nodes[host(number)].plane.table for number in range(1, 7)]
        assert all(host(7) not in {contact.address[0] for contact in table} for table in tables)
        del s.connections[host(3), hidden.members.me.id]
        await asyncio.sleep(20)
        assert (total(s, "suspicions"), total(s, "deaths")) == (0, 0), "who has no connection asks who has one"
        for number in range(1, 7):
            s.connections[host(number), hidden.members.me.id] = hidden.settings.connection_s + 1
        s.crash(host(7))
        await asyncio.sleep(15)
        assert all(host(7) not in states_of(gossip) for gossip in others)
