"""The gate: nodes share hosts through their gatekeepers, over a network, and nobody is asked too soon."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from harness.world import Said

from dhtcrawl.fetch.host_access import LeaseLost, RobotsFetch, RobotsKnown, RobotsWait, UnleasedHosts
from dhtcrawl.fetch.politeness import HoldReason
from dhtcrawl.fetch.robots import PARSED_BYTES_MAX, RobotsVerdict
from dhtcrawl.rpc.membership.view import MemberState
from dhtcrawl.rpc.tasks.messages import Call, Result
from dhtcrawl.swarm.calls.hosts import (
    SPAN_MS_MAX,
    AskHosts,
    AskRobots,
    AskRow,
    BackRow,
    GiveHostsBack,
    RobotsAnswered,
    RobotsTold,
    TellRobots,
)
from dhtcrawl.swarm.hosts.host_leases import RETRY_S, HostLeases
from dhtcrawl.swarm.hosts.lease_holder import NO_SUCH_LEASE
from dhtcrawl.swarm.hosts.leases import Granted, LeaseAsk, LeaseTerms

from .gate_swarm import GateNode, Gates, Server

IDS = [bytes([number * 40 + 10]) + bytes(19) for number in range(6)]
A, B, C = IDS[:3]
DELAY_S = 0.2


@asynccontextmanager
async def running(*gates: HostLeases) -> AsyncIterator[None]:
    # No test takes so long, in virtual time; one that never ended would otherwise go on for ever.
    async with asyncio.timeout(1000.0), asyncio.TaskGroup() as group:
        tasks = [group.create_task(gate.run()) for gate in gates]
        yield
        for task in tasks:
            task.cancel()


def swarm_of(count: int, *, rtt_s: float = 0.001, **kwargs: Any) -> tuple[Gates, list[GateNode]]:
    swarm = Gates(rtt_s=rtt_s)
    swarm.join(*IDS[:count])
    return swarm, [GateNode(swarm, id_, **kwargs) for id_ in IDS[:count]]


# -- sharing a host --


@pytest.mark.parametrize("rtt_s", [0.001, 0.1])
async def test_five_nodes_keep_a_host_busy_and_none_of_them_comes_too_soon(rtt_s: float) -> None:
    swarm, nodes = swarm_of(5, rtt_s=rtt_s)
    server = Server()
    async with running(*(node.gate for node in nodes)), asyncio.TaskGroup() as group:
        for node in nodes:
            group.create_task(node.fetch("h.example", DELAY_S, 100, server))
    assert all(node.gate.book.violations == 0 for node in nodes)
    seconds, calls = max(end for _, end in server.served), len(swarm.said)
    assert len(server.served) == 500
    assert server.shortest_gap_s() >= DELAY_S - 1e-6
    ideal_s = 500 * (DELAY_S + server.seconds)
    assert seconds <= ideal_s / (0.9 if rtt_s < 0.01 else 0.8)
    assert calls < 500


@pytest.mark.parametrize(
    ("delay_s", "seconds", "pages"),
    [(1.0, 0.05, 60), (1.0, 0.16, 60), (1.0, 0.24, 60), (5.0, 0.05, 20), (0.05, 0.02, 300)],
)
async def test_who_has_a_host_alone_keeps_its_delay_and_no_more_though_the_gatekeeper_is_far_away(
    delay_s: float, seconds: float, pages: int
) -> None:
    swarm, nodes = swarm_of(2, rtt_s=0.24)
    server, host = Server(seconds), swarm.host_of(B)
    async with running(*(node.gate for node in nodes)):
        await nodes[0].fetch(host, delay_s, pages, server)
    gaps = [after[0] - before[1] for before, after in pairwise(server.served)]
    assert gaps == pytest.approx([delay_s] * (pages - 1))
    assert len(swarm.calls("host_ask")) <= 2 + max(server.served)[1] / 3
    assert len(swarm.calls("host_give_back")) <= 1


async def test_who_waits_for_a_host_has_it_when_a_lease_of_the_other_is_over_however_long_that_had_it() -> None:
    swarm, nodes = swarm_of(3, rtt_s=0.24)
    host, servers, waits_from = swarm.host_of(C), {A: Server(0.05), B: Server(0.05)}, 33.0
    ttl_s = LeaseTerms().ttl_s
    async with running(*(node.gate for node in nodes)), asyncio.TaskGroup() as group:
        group.create_task(nodes[0].fetch(host, 1.0, 60, servers[A]))
        await asyncio.sleep(waits_from)
        group.create_task(nodes[1].fetch(host, 1.0, 20, servers[B]))
    first_at = min(servers[B].served)[0]
    assert first_at <= waits_from + ttl_s + 1.0 + 0.5
    both = Server()
    both.served = servers[A].served + servers[B].served
    assert both.shortest_gap_s() >= 1.0 - 1e-6
    # While both want it they have it in turns, of which neither is longer than a lease.
    last_at = max(servers[B].served)[0]
    turns = [at for at, _ in servers[A].served if first_at < at < last_at]
    assert max(after - before for before, after in pairwise([first_at, *turns])) <= ttl_s + 2.0
    assert max(end for _, end in both.served) <= 80 * 1.05 / 0.93


async def test_nodes_whose_work_comes_in_drops_share_a_host() -> None:
    _, nodes = swarm_of(4)
    server = Server()

    async def drip(node: GateNode) -> None:
        for _ in range(20):
            await node.fetch("h.example", DELAY_S, 1, server)

    async with running(*(node.gate for node in nodes)), asyncio.TaskGroup() as group:
        for node in nodes:
            group.create_task(drip(node))
    seconds = max(end for _, end in server.served)
    assert len(server.served) == 80
    assert server.shortest_gap_s() >= DELAY_S - 1e-6
    assert seconds < 80 * (DELAY_S + server.seconds) / 0.9


async def test_a_node_alone_asks_nobody_and_waits_for_no_turn_of_the_loop() -> None:
    swarm, (node,) = swarm_of(1, terms=LeaseTerms(requests=2))
    clock, now = node.gate.book.clock("h.example"), 0.0
    node.gate.book.now = lambda: now
    for _ in range(7):
        ready_at = clock.ready_at(1.0)
        assert ready_at < math.inf, "the gate is not running, and is not needed"
        now = max(now, ready_at)
        clock.begin(now, 1.0)
        clock.end(now)
    assert len(swarm.said) == 0
    assert now == 6.0


async def test_hosts_of_one_gatekeeper_are_asked_for_together() -> None:
    swarm, (a, _) = swarm_of(2)
    hosts = [host for number in range(600) if swarm.owner(host := f"h{number}.example") == B]
    assert len(hosts) > 200
    async with running(*(node.gate for node in swarm.nodes.values())), asyncio.TaskGroup() as group:
        for host in hosts:
            group.create_task(a.fetch(host, 1.0, 1, Server()))
    assert len(swarm.calls("host_ask")) <= 4
    assert len(swarm.calls("host_give_back")) <= 4


async def test_who_waits_for_a_host_does_not_look_for_it_again_and_again() -> None:
    swarm, (a, b) = swarm_of(2)
    host = swarm.host_of(A)
    async with running(a.gate, b.gate), asyncio.TaskGroup() as group:
        group.create_task(a.fetch(host, 1.0, 1, Server(60.0)))
        await asyncio.sleep(1.0)
        group.create_task(b.fetch(host, 1.0, 1, Server()))
    assert b.turns < 40
    assert len(swarm.calls("host_ask")) < 12


async def test_a_host_that_was_wished_for_in_vain_goes_back_at_once() -> None:
    swarm, (a, b) = swarm_of(2)
    host = swarm.host_of(A)
    async with running(a.gate, b.gate):
        b.gate.book.clock(host).ready_at(1.0)
        await asyncio.sleep(0.1)
        explained = a.gate.explain(host)
        assert explained["gatekeeper"] == A.hex()
        assert explained["as_gatekeeper"]["holder"] is None
        assert explained["as_gatekeeper"]["next_in_s"] == 0.0
    assert len(swarm.calls("host_give_back")) == 1


# -- requests and leases --


async def test_a_slow_answer_is_waited_for_and_nobody_else_begins_meanwhile() -> None:
    swarm, (a, b, _) = swarm_of(3)
    host, slow = swarm.host_of(C), Server(45.0)
    given_up: list[float] = []
    async with running(*(node.gate for node in swarm.nodes.values())), asyncio.TaskGroup() as group:
        fetches = [group.create_task(a.fetch(host, 1.0, 1, slow, given_up=given_up))]
        await asyncio.sleep(2.0)
        fetches.append(group.create_task(b.fetch(host, 1.0, 1, slow, given_up=given_up)))
        await asyncio.sleep(100.0)
        assert all(fetch.done() for fetch in fetches)
    assert given_up == []
    slow = slow
    assert [end - begin for begin, end in slow.served] == pytest.approx([45.0, 45.0])
    assert slow.served[1][0] == pytest.approx(46.0, abs=0.1)


async def test_a_request_whose_lease_cannot_be_prolonged_is_given_up_before_the_next_may_begin() -> None:
    swarm, (a, b, _) = swarm_of(3)
    host, server = swarm.host_of(C), Server(30.0)
    given_up: list[float] = []
    async with running(*(node.gate for node in swarm.nodes.values())), asyncio.TaskGroup() as group:
        first = group.create_task(a.fetch(host, 1.0, 1, server, given_up=given_up))
        await asyncio.sleep(1.0)
        server.seconds = 0.5
        group.create_task(b.fetch(host, 1.0, 1, server))
        await asyncio.sleep(1.0)
        swarm.down.add(A)
        await asyncio.sleep(10.0)
        first.cancel()
    (_, aborted_at), (next_at, _) = sorted(server.served)
    assert given_up == [aborted_at]
    assert aborted_at == pytest.approx(9.8, abs=0.01)
    assert next_at == pytest.approx(11.0, abs=0.05)


async def test_a_request_does_not_begin_when_its_lease_is_over() -> None:
    swarm, (a, b) = swarm_of(2)
    host = swarm.host_of(B)
    async with running(a.gate, b.gate):
        clock = a.gate.book.clock(host)
        clock.ready_at(1.0)
        a.looks[host] = 1.0
        a.freed[host] = asyncio.Event()
        await a.freed[host].wait()
        clock.begin(a.clock.monotonic(), 1.0)
        swarm.down.add(B)
        await asyncio.sleep(11.0)
        server = Server()
        assert await a.gate.within_lease(host, server) == LeaseLost(a.clock.monotonic())
        assert server.served == []
        clock.end(a.clock.monotonic())


async def test_what_is_under_way_is_given_up_when_the_node_learns_that_it_was_taken_for_dead() -> None:
    swarm, (a, b) = swarm_of(2)
    host, server = swarm.host_of(B), Server(5.0)
    given_up: list[float] = []
    async with running(a.gate, b.gate), asyncio.TaskGroup() as group:
        group.create_task(a.fetch(host, 1.0, 1, server, given_up=given_up))
        await asyncio.sleep(1.0)
        a.gate.void()
    assert len(given_up) == 1
    assert given_up[0] == pytest.approx(1.0, abs=0.01)


async def test_requests_of_a_crawl_without_a_delay_run_beside_one_under_a_lease_which_ends_with_that() -> None:
    swarm, (a, b) = swarm_of(2)
    host, clock = swarm.host_of(B), a.gate.book.clock(swarm.host_of(B))
    given_up: list[float] = []
    async with running(a.gate, b.gate), asyncio.TaskGroup() as group:
        group.create_task(a.fetch(host, 1.0, 1, Server(5.0), given_up=given_up))
        await asyncio.sleep(0.5)
        for _ in range(2):
            clock.begin(a.clock.monotonic(), 0.0)
        beside = group.create_task(a.gate.within_lease(host, Server(2.0)))
        assert await a.gate.within_lease(host, Server(0.1)) is None
        clock.end(a.clock.monotonic())
        a.gate.void()
        await asyncio.sleep(0.1)
        assert len(given_up) == 1, "its lease is over"
        assert await beside is None, "it needs none"
        clock.end(a.clock.monotonic())


@pytest.mark.parametrize("how", ["ends", "is not sent"])
@pytest.mark.parametrize("delay_s", [0.0, 1.0])
async def test_a_crawl_has_its_turn_at_a_host_once_requests_of_one_without_a_delay_are_over(
    how: str, delay_s: float
) -> None:
    swarm, (a, b) = swarm_of(2)
    host, server = swarm.host_of(B), Server()
    clock = a.gate.book.clock(host)
    async with running(a.gate, b.gate), asyncio.TaskGroup() as group:
        for _ in range(2):
            clock.begin(a.clock.monotonic(), 0.0)
        fetch = group.create_task(a.fetch(host, delay_s, 2, server))
        await asyncio.sleep(0.1)
        clock.end(a.clock.monotonic())
        await asyncio.sleep(9.0)
        assert server.served == []
        if how == "ends":
            clock.end(a.clock.monotonic())
        else:
            clock.cancel()
        await asyncio.sleep(9.0)
        assert fetch.done(), "nothing else would tell it"
    assert server.shortest_gap_s() >= delay_s


async def test_without_a_lease_a_request_just_runs() -> None:
    _, (node,) = swarm_of(1)
    server = Server()
    node.gate.book.clock("h.example").begin(0.0, 0.0)
    assert await node.gate.within_lease("h.example", server) is None
    assert await UnleasedHosts().within_lease("h.example", server) is None
    assert len(server.served) == 2


async def test_a_node_that_stood_still_begins_no_request_that_was_decided_on_before() -> None:
    fit = True
    _, (node,) = swarm_of(1, fit=lambda: fit)
    server = Server()
    node.gate.book.clock("h.example").begin(0.0, 0.0)
    fit = False
    assert await node.gate.within_lease("h.example", server) == LeaseLost(node.clock.monotonic())
    assert server.served == []


async def test_a_gatekeeper_counts_requests_that_ended_within_the_lease_of_another_node() -> None:
    _, (node,) = swarm_of(1)
    keeper = node.gate.office.keeper
    late = keeper.ask(LeaseAsk("h.example", 1.0, 0.0), B, 0.0)
    keeper.ask(LeaseAsk("h.example", 1.0, 0.0), C, 20.0)
    assert isinstance(late, Granted)
    assert node.gate.exceptions == 0
    keeper.give_back("h.example", B, late.lease_id, 0.5, 0.0, 21.0)
    assert node.gate.exceptions == 1


async def test_a_hold_that_one_node_was_told_is_kept_by_the_others() -> None:
    swarm, (a, b, _) = swarm_of(3)
    host, server = swarm.host_of(C), Server()
    async with running(*(node.gate for node in swarm.nodes.values())), asyncio.TaskGroup() as group:
        await a.fetch(host, 1.0, 1, server)
        a.gate.book.clock(host).hold(a.clock.monotonic(), 40.0, HoldReason("retry-after", "429"))
        group.create_task(b.fetch(host, 1.0, 1, server))
    assert server.shortest_gap_s() == pytest.approx(40.0, abs=0.1)


# -- failures and changes --


@pytest.mark.parametrize(("fails", "gap_s_max"), [("at once", 0.3), ("in the end", 1.5)])
async def test_an_offer_that_does_not_arrive_goes_to_the_next(fails: str, gap_s_max: float) -> None:
    swarm, (a, b, c, _) = swarm_of(4)
    host, server = swarm.host_of(IDS[3]), Server()
    async with running(*(node.gate for node in swarm.nodes.values())), asyncio.TaskGroup() as group:
        first = group.create_task(a.fetch(host, DELAY_S, 10, server))
        await asyncio.sleep(0.5)
        dead = group.create_task(b.fetch(host, DELAY_S, 10, server))
        await asyncio.sleep(0.1)
        group.create_task(c.fetch(host, DELAY_S, 10, server))
        (swarm.closed if fails == "at once" else swarm.down).add(B)
        await first
        await asyncio.sleep(5.0)
        dead.cancel()
    served = sorted(server.served)
    assert len(served) >= 20
    assert max(after[0] - before[1] for before, after in pairwise(served[:20])) < gap_s_max


async def test_a_node_that_wants_a_host_to_rest_for_a_day_is_not_believed_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    swarm, nodes = swarm_of(2)
    host = swarm.host_of(A)
    async with running(*(node.gate for node in nodes)):
        for _ in range(3):
            await nodes[1].call(A, AskHosts((AskRow(host, SPAN_MS_MAX, SPAN_MS_MAX, b""),)))
            await nodes[1].call(A, GiveHostsBack((BackRow(host, bytes(8), 0, SPAN_MS_MAX),)))
        state = nodes[0].gate.office.keeper.explain(host, nodes[0].clock.monotonic())
    assert state is not None
    assert 3590 < state["next_in_s"] <= 3600
    assert nodes[0].gate.office.keeper.shortened == 9
    assert [f"wants {host} to rest for longer than" in message for message in caplog.messages] == [True]


async def test_a_gatekeeper_that_names_a_wait_of_a_day_is_asked_again_within_a_minute() -> None:
    swarm, (a, b) = swarm_of(2)
    host, server, lies = swarm.host_of(A), Server(), [{"answers": [[2, SPAN_MS_MAX]]}]
    honest = a.registry.answer

    def answer(asker: bytes, call: Call, group: asyncio.TaskGroup) -> Any:
        if call.name == "robots_ask":
            return Result({"wait_ms": SPAN_MS_MAX})
        return Result(lies.pop()) if call.name == "host_ask" and lies else honest(asker, call, group)

    a.registry.answer = answer  # type: ignore[method-assign]
    async with running(a.gate, b.gate), asyncio.timeout(60.0):
        await b.fetch(host, 1.0, 1, server)
        assert await b.gate.robots(f"http://{host}", "bot") == RobotsWait(1.0)
    assert not lies


async def test_a_gatekeeper_that_names_no_wait_is_not_asked_again_at_once() -> None:
    swarm, (a, b) = swarm_of(2)
    host = swarm.host_of(A)

    def answer(asker: bytes, call: Call, group: asyncio.TaskGroup) -> Any:
        return Result({"wait_ms": 0} if call.name == "robots_ask" else {"answers": [[2, 0]]})

    a.registry.answer = answer  # type: ignore[method-assign]
    async with running(a.gate, b.gate):
        waits = asyncio.create_task(b.fetch(host, 1.0, 1, Server()))
        await asyncio.sleep(9.0)
        waits.cancel()
        assert len(swarm.calls("host_ask")) == 5
        assert await b.gate.robots(f"http://{host}", "bot") == RobotsWait(0.5)


@pytest.mark.parametrize("grant", [(0, 4, 0, 1000), (10_000, 4, SPAN_MS_MAX, 1000), (10_000, 4, 0, SPAN_MS_MAX)])
async def test_a_gatekeeper_whose_leases_are_of_no_use_is_not_asked_again_at_once(grant: tuple[int, ...]) -> None:
    """The time that a lease lasts, its requests, the time until the first, and the delay between two."""
    swarm, (a, b) = swarm_of(2)
    host = swarm.host_of(A)

    def answer(asker: bytes, call: Call, group: asyncio.TaskGroup) -> Any:
        return Result({"answers": [[1, bytes(8), *grant]]} if call.name == "host_ask" else {"taken": b"\1"})

    a.registry.answer = answer  # type: ignore[method-assign]
    async with running(a.gate, b.gate):
        waits = asyncio.create_task(b.fetch(host, 1.0, 9, Server()))
        await asyncio.sleep(9.0)
        waits.cancel()
    assert len(swarm.calls("host_ask")) < 25


async def test_who_waits_for_a_host_asks_the_new_gatekeeper_as_soon_as_there_is_one() -> None:
    swarm, (a, b, c) = swarm_of(3)
    host, server = swarm.host_of(C), Server()
    async with running(*(node.gate for node in swarm.nodes.values())), asyncio.TaskGroup() as group:
        await a.fetch(host, DELAY_S, 1, server)
        # Who said so is gone, too.
        c.gate.office.keeper.give_back(host, IDS[3], NO_SUCH_LEASE, None, 40.0, c.clock.monotonic())
        await asyncio.sleep(1.0)
        group.create_task(b.fetch(host, DELAY_S, 1, server))
        await asyncio.sleep(1.0)
        swarm.down.add(C)
        swarm.leave(C)
        swarm.tell()
        died_at = a.clock.monotonic()
    assert server.served[1][0] == pytest.approx(died_at + 10.0 + DELAY_S, abs=0.1)


async def test_a_swarm_in_which_calls_get_lost_stays_polite_and_gets_on() -> None:
    swarm, nodes = swarm_of(3, rtt_s=0.01)
    count = 0

    def lost(_: Said) -> bool:
        nonlocal count
        count += 1
        return count % 7 == 0

    swarm.loses_request, server = lost, Server()
    async with running(*(node.gate for node in nodes)), asyncio.TaskGroup() as group:
        for node in nodes:
            group.create_task(node.fetch("h.example", DELAY_S, 200, server))
    assert swarm.failures > 0
    seconds = max(end for _, end in server.served)
    assert len(server.served) == 600
    assert server.shortest_gap_s() >= DELAY_S - 1e-6
    assert seconds < 2 * 600 * 0.22


async def test_the_successor_of_a_gatekeeper_that_died_leaves_its_hosts_alone_until_its_leases_must_be_over() -> None:
    swarm, (a, b, _) = swarm_of(3)
    taken, own = swarm.host_of(C), swarm.host_of(A)
    server, other = Server(), Server()
    async with running(*(node.gate for node in swarm.nodes.values())), asyncio.TaskGroup() as group:
        group.create_task(b.fetch(taken, DELAY_S, 2, server))
        await asyncio.sleep(1.0)
        swarm.down.add(C)
        swarm.leave(C)
        swarm.tell()
        died_at = a.clock.monotonic()
        group.create_task(a.fetch(taken, DELAY_S, 2, server))
        group.create_task(b.fetch(own, DELAY_S, 2, other))
        await asyncio.sleep(1.0)
        assert len(other.served) == 2, "what was ours before needs no rest"
    assert len(server.served) == 4
    assert sorted(server.served)[2][0] >= died_at + 10.0 + DELAY_S - 1e-6
    assert sorted(server.served)[2][0] < died_at + 10.0 + DELAY_S + 0.1


async def test_what_a_host_has_asked_for_is_told_to_its_new_gatekeeper_by_the_node_that_knows_it() -> None:
    """Who was told has nothing more to fetch there, and so asks for it no more; the new gatekeeper asked it in 11 s."""
    swarm, (a, b, _) = swarm_of(3)
    host, server = swarm.host_of(C), Server()
    async with running(*(node.gate for node in swarm.nodes.values())), asyncio.TaskGroup() as group:
        await a.fetch(host, 1.0, 1, server)
        a.gate.book.clock(host).hold(a.clock.monotonic(), 40.0, HoldReason("retry-after", "429"))
        await asyncio.sleep(1.0)
        swarm.down.add(C)
        swarm.leave(C)
        swarm.tell()
        group.create_task(b.fetch(host, 1.0, 1, server))
    assert server.shortest_gap_s() == pytest.approx(40.0, abs=1.1)


@pytest.mark.parametrize("own", [True, False], ids=["its own request", "another's, which is gone"])
async def test_a_gatekeeper_that_leaves_hands_on_what_its_hosts_have_asked_for(own: bool) -> None:
    swarm, (a, b, c) = swarm_of(3)
    host, server, asker = swarm.host_of(C), Server(), c if own else a
    async with running(*(node.gate for node in swarm.nodes.values())), asyncio.TaskGroup() as group:
        await asker.fetch(host, 1.0, 1, server)
        asker.gate.book.clock(host).hold(a.clock.monotonic(), 40.0, HoldReason("retry-after", "429"))
        await asyncio.sleep(1.0)
        if not own:
            swarm.down.add(A)
            swarm.leave(A)
            swarm.tell()
        swarm.become(C, MemberState.JOINING)
        c.own_view = swarm.view
        c.gate.view_changed(swarm.view, True)  # the others hear of it a moment later
        releasing = group.create_task(c.gate.release())
        await asyncio.sleep(0.3)
        swarm.tell()
        await releasing
        swarm.down.add(C)
        group.create_task(b.fetch(host, 1.0, 1, server))
    assert server.shortest_gap_s() == pytest.approx(40.0, abs=1.1)


async def test_two_sides_of_a_partition_together_keep_the_pace_of_one() -> None:
    server = Server()
    one, (a, b) = swarm_of(2)
    other, (c, d) = swarm_of(2)
    async with running(*(node.gate for node in (a, b, c, d))), asyncio.TaskGroup() as group:
        for side in (one, other):
            side.tell(crawling=False, dead=2)
        for node in (a, b, c, d):
            group.create_task(node.fetch("h.example", DELAY_S, 50, server))
    server = server
    assert len(server.served) == 200
    assert server.served[-1][1] >= 0.95 * 200 * DELAY_S, "each takes half of the pace"


async def test_a_host_rests_no_longer_for_nodes_that_nobody_reaches_whether_they_are_there_or_gone() -> None:
    for outbound in ((), IDS[2:4]):
        swarm, (a, b) = swarm_of(2)
        for node in outbound:
            swarm.join(node, state=MemberState.OUTBOUND)
        swarm.tell(crawling=False, dead=1)
        assert [node.gate.office.keeper.delay_factor for node in (a, b)] == [1.5, 1.5]


async def test_a_lease_outlives_its_gatekeeper_when_the_newcomer_is_told_of_it() -> None:
    swarm, (a, b) = swarm_of(2)
    newcomer = GateNode(swarm, C)
    swarm.join(C, state=MemberState.JOINING)
    swarm.tell()
    swarm.become(C, MemberState.ACTIVE)
    host = swarm.host_of(C)
    server = Server(30.0)
    async with running(a.gate, b.gate, newcomer.gate), asyncio.TaskGroup() as group:
        given_up: list[float] = []
        group.create_task(b.fetch(host, 1.0, 1, server, given_up=given_up))
        await asyncio.sleep(1.0)
        group.create_task(a.fetch(host, 1.0, 1, server))
        await asyncio.sleep(1.0)
        old = swarm.nodes[b.gate.office.of(host) or b""]
        old.own_view = swarm.view
        while rows := old.gate.office.export(lambda host: swarm.owner(host) == C):
            newcomer.gate.office.adopt(rows)
        swarm.tell(crawling=False)  # or the newcomer would leave the host alone for a while
    assert given_up == []
    server = server
    assert [end - begin for begin, end in server.served] == pytest.approx([30.0, 30.0])
    assert server.shortest_gap_s() == pytest.approx(1.0, abs=0.2)


async def test_a_node_that_is_not_yet_gatekeeper_sends_askers_away_and_they_come_again() -> None:
    swarm, (a, b) = swarm_of(2)
    host, server = swarm.host_of(B), Server()
    b.fit = False
    async with running(a.gate, b.gate), asyncio.TaskGroup() as group:
        group.create_task(a.fetch(host, 1.0, 1, server))
        await asyncio.sleep(1.8)
        assert server.served == []
        b.fit = True
    result = server.served[0][0], len(swarm.calls("host_ask"))
    began_at, asked = result
    assert began_at == pytest.approx(4 * RETRY_S, abs=0.1)
    assert asked == 5


async def test_a_node_that_is_not_fit_is_not_its_own_gatekeeper_either() -> None:
    fit = False
    _, (node,) = swarm_of(1, fit=lambda: fit)
    server = Server()
    async with running(node.gate), asyncio.TaskGroup() as group:
        group.create_task(node.fetch("h.example", 1.0, 1, server))
        await asyncio.sleep(1.2)
        assert server.served == []
        fit = True
    assert len(server.served) == 1


async def test_a_node_that_leaves_gives_its_hosts_back() -> None:
    swarm, (a, b) = swarm_of(2)
    host, server = swarm.host_of(A), Server()
    async with running(a.gate, b.gate):
        await b.fetch(host, 1.0, 1, server)
        await b.gate.release()
        assert a.gate.explain(host)["as_gatekeeper"]["holder"] is None
        b.gate.book.clock(host).ready_at(1.0)
        await asyncio.sleep(5.0)
        assert a.gate.explain(host)["as_gatekeeper"]["holder"] is None


# -- robots.txt --


async def test_one_node_fetches_a_robots_txt_for_all_however_long_it_is() -> None:
    swarm, nodes = swarm_of(3)
    host = swarm.host_of(B)
    origin, body = f"https://{host}", b"x" * (PARSED_BYTES_MAX + 10)
    asker, keeper, other = nodes[0].gate, nodes[1].gate, nodes[2].gate
    assert isinstance(await asker.robots(origin, "bot"), RobotsFetch)
    assert isinstance(await other.robots(origin, "bot"), RobotsWait)
    assert isinstance(await keeper.robots(origin, "bot"), RobotsWait)
    await asker.robots_tell(origin, "bot", RobotsVerdict.PARSE, body)
    await asyncio.sleep(5.0)
    for gate in (asker, other, keeper):
        known = await gate.robots(origin, "bot")
        assert isinstance(known, RobotsKnown)
        assert (known.verdict, known.body) == (RobotsVerdict.PARSE, body[:PARSED_BYTES_MAX])
        assert known.age_s == pytest.approx(5.0, abs=0.1)
    assert len(swarm.calls("robots_ask")) == 2 + 2 + 2, "a long body is asked for twice"
    assert keeper.explain(host)["robots"][origin] == {"bot": "parse"}
    assert isinstance(await UnleasedHosts().robots(origin, "bot"), RobotsFetch)


async def test_rules_that_nobody_was_told_to_fetch_are_not_believed_and_strangers_are_not_told_to() -> None:
    swarm, (a, keeper, stranger) = swarm_of(3)
    swarm.leave(C)
    origin = f"http://{swarm.host_of(B)}"
    swarm.tell()
    forged = TellRobots(origin, "bot", RobotsVerdict.DISALLOW_ALL.value, b"")
    assert await stranger.call(B, AskRobots(origin, "bot", 100)) == RobotsAnswered(wait_ms=1000)
    assert await stranger.call(B, forged) == RobotsTold()
    assert isinstance(await a.gate.robots(origin, "bot"), RobotsFetch), "there is no claim, and nothing is known"
    await stranger.call(B, forged)
    await a.gate.robots_tell(origin, "bot", RobotsVerdict.PARSE, b"rules")
    await stranger.call(B, forged)
    for gate in (a.gate, keeper.gate):
        known = await gate.robots(origin, "bot")
        assert isinstance(known, RobotsKnown)
        assert (known.verdict, known.body) == (RobotsVerdict.PARSE, b"rules")


async def test_a_robots_txt_that_failed_is_for_the_next_and_an_absent_gatekeeper_is_waited_for() -> None:
    swarm, (a, b, c) = swarm_of(3)
    origin = f"http://{swarm.host_of(B)}"
    assert isinstance(await a.gate.robots(origin, "bot"), RobotsFetch)
    await a.gate.robots_tell(origin, "bot", None)
    assert isinstance(await c.gate.robots(origin, "bot"), RobotsFetch)
    b.fit = False
    assert await a.gate.robots(origin, "bot") == RobotsWait(RETRY_S)
    swarm.down.add(B)
    assert await a.gate.robots(origin, "bot") == RobotsWait(RETRY_S)
    await a.gate.robots_tell(origin, "bot", RobotsVerdict.ALLOW_ALL)
