"""A hundred nodes in memory: they find each other, and whoever is left after a fifth is gone, at once."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from kademlia.utils import digest

from dhtcrawl.errors import BootstrapUnreachable
from dhtcrawl.rpc.contact import Contact
from dhtcrawl.rpc.discovery.rtt import INITIAL_S
from dhtcrawl.rpc.discovery.verify import VERIFYING_HOST_MAX, VERIFYING_NETWORK_MAX
from dhtcrawl.sim.net import Weather
from dhtcrawl.sim.trace import Trace
from rpc.routing_swarm import PORT, Plane, Raw, host, request, simulate, table_of, world, xor


async def look_up(w: Plane, count: int, within_s: float, seed: int) -> tuple[float, float]:
    """The share of look-ups for an owner that were right, and the median of their times."""
    live = [w.nodes[name] for name in sorted(w.nodes)]
    rng, right, times = Random(seed), list[bool](), list[float]()

    async def one(server: Any, key: bytes, at: float) -> None:
        await asyncio.sleep(at)
        began_at = w.loop.time()
        owner = await server.find_owner(key)
        times.append(w.loop.time() - began_at)
        right.append(owner.id == min((node.node.id for node in live), key=lambda i: xor(i, key)))

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one(rng.choice(live), rng.randbytes(20), rng.uniform(0, within_s)))
    return sum(right) / count, sorted(times)[count // 2]


def calls(w: Plane) -> tuple[int, int]:
    counters = [server.plane.counters for server in w.nodes.values()]
    return sum(c.lookup_calls for c in counters), sum(c.lookups for c in counters)


@pytest.mark.parametrize("loss", [0.0, 0.01])
async def test_look_ups_are_right_within_ten_seconds_of_a_fifth_dying(loss: float) -> None:
    async with world(seed=3, weather=Weather(loss=loss)) as w:
        await w.swarm("ours", 100)
        assert w.net.sent < 100 * 230  # datagrams a join
        right, _ = await look_up(w, 200, 10, seed=1)
        assert right >= 0.99
        for name in Random(1).sample(sorted(w.nodes), 20):
            w.crash(name)
        asked_before, lookups_before = calls(w)
        right, median_s = await look_up(w, 400, 10, seed=2)
        assert right >= 0.99
        assert median_s < 0.3  # two round trips
        asked, lookups = calls(w)
        assert (asked - asked_before) / (lookups - lookups_before) <= 6
        right, _ = await look_up(w, 200, 10, seed=3)
        assert right >= 0.99
        assert w.net.largest_bytes <= 1200


def run(seed: int) -> tuple[str, int]:
    async def main() -> tuple[str, int]:
        loop = asyncio.get_running_loop()
        trace = Trace(loop.time)
        weather = Weather(loss=0.02, duplication=0.02)
        async with world(seed, weather, trace) as w:
            await w.swarm("ours", 25)
            for name in Random(1).sample(sorted(w.nodes), 5):
                w.crash(name)
            await look_up(w, 30, 5, seed=2)
            await next(iter(w.nodes.values())).set("key", "value")
        return trace.hash, trace.events

    return simulate(main)


def test_the_same_seed_is_the_same_run_to_the_byte() -> None:
    (first, events), (second, _), (other, _) = run(1), run(1), run(2)
    assert events > 1000
    assert first == second
    assert first != other


async def test_everybody_can_join_through_one_node_at_once() -> None:
    async with world(seed=4, weather=Weather()) as w:
        servers = [await w.node("ours", host(number)) for number in range(1, 31)]
        async with asyncio.TaskGroup() as group:
            for server in servers[1:]:
                group.create_task(server.bootstrap([(host(1), PORT)]))
        await asyncio.sleep(5)
        right, _ = await look_up(w, 100, 5, seed=1)
        assert right == 1.0


async def test_after_a_partition_both_sides_find_each_other_again() -> None:
    async with world(seed=5, weather=Weather()) as w:
        await w.swarm("ours", 20)
        w.net.wires.partition([host(number) for number in range(1, 11)])
        await asyncio.sleep(120)
        w.net.wires.heal()
        await asyncio.sleep(70)  # a probe of everybody, PROBE_MAX_S at the latest
        right, _ = await look_up(w, 100, 5, seed=1)
        assert right == 1.0


async def test_a_node_that_is_cut_off_keeps_its_contacts() -> None:
    async with world(seed=5, weather=Weather()) as w:
        nodes = await w.swarm("ours", 10)
        w.net.wires.partition([host(1)])
        await asyncio.sleep(60)
        assert await nodes[0].find_closest(bytes(20)) == []
        w.net.wires.heal()
        assert await nodes[0].find_closest(bytes(20)) != []  # the last resort: all are suspected


async def test_garbage_is_counted_and_changes_nothing() -> None:
    async with world() as w:
        node, other = await w.swarm("ours", 2)
        before, rng = table_of(node), Random(1)
        ours = request("find_node", b"x" * 20, b"y" * 20)
        for number in range(500):
            data = rng.randbytes(rng.randrange(60)) if number % 2 else bytes(rng.choice(ours) for _ in ours)
            w.net.send(data, (host(99), PORT), node.address)
        w.net.send(bytes(60_000), (host(99), PORT), node.address)
        await asyncio.sleep(5)
        assert node.plane.counters.garbage > 250
        assert node.plane.counters.handler_errors == 0
        assert table_of(node) == before == [Contact(other.node.id, *other.address)]


async def test_a_reply_from_elsewhere_is_none() -> None:
    async with world() as w:
        node = await w.node("ours", host(1))
        asked = Raw(w, (host(2), PORT))
        async with asyncio.TaskGroup() as group:
            call = group.create_task(node.plane.call((host(2), PORT), "ping", node.node.id))
            await asyncio.sleep(0.1)
            forged = b"\x01" + asked.received[0][0][1:21] + b"\xc4\x14" + b"f" * 20
            w.net.send(forged, (host(3), PORT), (host(1), PORT))
        assert call.result() == (False, None)
        assert node.plane.counters.stray_replies == 1


async def test_a_node_that_answers_from_another_address_than_was_asked_is_told_as_that() -> None:
    async with world() as w:
        node = await w.node("ours", host(1))
        asked = Raw(w, (host(2), PORT))
        joining = asyncio.ensure_future(node.bootstrap([(host(2), PORT)]))
        await asyncio.sleep(0.1)
        answer = b"\x01" + asked.received[0][0][1:21] + b"\xc4\x14" + b"2" * 20
        w.net.send(answer, (host(3), PORT), (host(1), PORT))
        with pytest.raises(BootstrapUnreachable, match=f"answered from {host(3)}:{PORT}.*--listen {host(2)}:{PORT}$"):
            await joining


async def test_somebody_who_uses_the_id_of_a_contact_that_answers_does_not_get_its_place() -> None:
    async with world() as w:
        node, true = await w.swarm("ours", 2)
        thief = Raw(w, (host(9), PORT), lambda name, _: true.node.id)
        thief.transport.sendto(request("ping", true.node.id), node.address)
        await asyncio.sleep(5)
        assert table_of(node) == [(true.node.id, *true.address)]
        assert node.plane.counters.address_conflicts == 1


async def test_another_node_at_the_address_of_a_contact_takes_its_place() -> None:
    async with world() as w:
        node, old = await w.swarm("ours", 2)
        w.crash(host(2))
        new = await w.node("ours", host(2), b"n" * 20)
        await new.bootstrap([node.address])
        await asyncio.sleep(5)
        assert table_of(node) == [(new.node.id, host(2), PORT)]
        assert old.node.id != new.node.id


async def test_an_rpc_of_somebody_else_can_be_registered_and_a_node_without_it_says_so_at_once() -> None:
    async with world() as w:
        node, other = await w.swarm("ours", 2)
        began_at = w.loop.time()
        assert await node.plane.call(other.address, "hello", {"v": 1}) == (True, None)
        assert w.loop.time() - began_at < 0.1
        other.plane.register("hello", lambda sender, fields: {"v": 2, "heard": fields, "from": sender[0]}, 1)
        happened, reply = await node.plane.call(other.address, "hello", {"v": 1})
        assert happened
        assert reply == {"v": 2, "heard": {"v": 1}, "from": host(1)}


async def test_an_rpc_may_be_answered_later_or_never_and_says_nothing_of_the_round_trip() -> None:
    async with world() as w:
        node, other = await w.swarm("ours", 2)
        rtt_s = node.plane.calls.rtt.measured_s(other.address)
        answers: list[Any] = []
        other.plane.register("slow", lambda answer, sender, word: answers.append((answer, word)), 1, later=True)
        async with asyncio.TaskGroup() as group:
            call = group.create_task(node.plane.call(other.address, "slow", "x", timeout_s=5.0, timed=False))
            await asyncio.sleep(3.0)
            assert [word for _, word in answers] == ["x"]
            answers[0][0]("y")
        assert call.result() == (True, "y")
        assert node.plane.calls.rtt.measured_s(other.address) == rtt_s
        assert await node.plane.call(other.address, "slow", "x", tries=1) == (False, None)
        assert await node.plane.call(other.address, "slow") == (True, None), "too few arguments"


async def test_what_nobody_stored_for_an_hour_is_stored_again_at_all_that_are_closest_now() -> None:
    async with world(seed=6) as w:
        nodes, key = await w.swarm("ours", 5), digest("key")
        await asyncio.sleep(5)
        nodes[0].storage[key] = "value"
        await asyncio.sleep(3500)
        assert [node.storage.get(key) for node in nodes[1:]] == [None] * 4
        await asyncio.sleep(300)
        assert [node.storage.get(key) for node in nodes[1:]] == ["value"] * 4


async def test_somebody_who_answers_with_the_id_of_a_contact_does_not_get_its_place_either() -> None:
    # It gives an id of its own in requests, and another's when it is pinged.
    async with world() as w:
        node, true = await w.swarm("ours", 2)
        thief = Raw(w, (host(9), PORT), lambda name, _: true.node.id)
        thief.transport.sendto(request("ping", b"t" * 20), node.address)
        await asyncio.sleep(5)
        assert table_of(node) == [(true.node.id, *true.address)]


async def test_a_retry_waits_twice_as_long_and_its_reply_is_no_sample() -> None:
    async with world() as w:
        node = await w.node("ours", host(1))
        rtt = node.plane.calls.rtt
        began_at = w.loop.time()
        assert await node.plane.ping((host(2), PORT), node.node.id) == (False, None)
        assert w.loop.time() - began_at == pytest.approx(3 * INITIAL_S)
        slow = Raw(w, (host(2), PORT))
        async with asyncio.TaskGroup() as group:
            ping = group.create_task(node.plane.ping((host(2), PORT), node.node.id))
            await asyncio.sleep(1.5)
            slow.transport.sendto(b"\x01" + slow.received[0][0][1:21] + b"\xc0", node.address)
        assert ping.result() == (True, None)
        assert rtt.timeout_s((host(2), PORT)) == INITIAL_S


async def test_each_claim_is_worth_one_ping_so_the_second_makes_up_for_a_ping_that_was_lost() -> None:
    async with world() as w:
        node = await w.node("ours", host(1))
        once, twice = Raw(w, (host(2), PORT)), Raw(w, (host(3), PORT))
        once.transport.sendto(request("ping", b"1" * 20), node.address)
        for _ in range(2):
            twice.transport.sendto(request("ping", b"2" * 20), node.address)
        await asyncio.sleep(INITIAL_S / 2)
        assert [len(raw.requests) for raw in (once, twice)] == [1, 1]  # and neither answers
        twice.answer = lambda name, args: b"2" * 20
        await asyncio.sleep(10)
        assert [len(raw.requests) for raw in (once, twice)] == [1, 2]
        assert table_of(node) == [(b"2" * 20, host(3), PORT)]


async def test_who_goes_on_forging_an_address_does_not_keep_the_node_there_out() -> None:
    async with world() as w:
        node = await w.node("ours", host(1))
        victim = Raw(w, (host(2), PORT))  # not started yet
        for _ in range(600):
            victim.transport.sendto(request("ping", b"2" * 20), node.address)
            await asyncio.sleep(0.5)
        victim.answer = lambda name, args: b"2" * 20
        for _ in range(3):
            victim.transport.sendto(request("ping", b"2" * 20), node.address)
            await asyncio.sleep(2)
        assert table_of(node) == [(b"2" * 20, host(2), PORT)]


async def test_strangers_of_one_machine_or_network_leave_room_for_others() -> None:
    async with world() as w:
        node = await w.node("ours", host(1))

        async def asked_of(*places: tuple[str, int]) -> int:
            """How many of these, which all claim to be a node and none of which answers, are asked who they are."""
            raws = [Raw(w, place) for place in places]
            for number, raw in enumerate(raws):
                raw.transport.sendto(request("ping", number.to_bytes(20, "big")), node.address)
            await asyncio.sleep(INITIAL_S / 2)
            return sum(len(raw.requests) for raw in raws)

        machine = [("10.9.0.7", 1_000 + number) for number in range(200)]
        assert await asked_of(*machine) == VERIFYING_HOST_MAX
        network = [(f"10.9.0.{number}", PORT) for number in range(10, 210)]
        assert await asked_of(*network) == VERIFYING_NETWORK_MAX - VERIFYING_HOST_MAX
        assert await asked_of(("10.9.1.1", PORT)) == 1
        # Once those are given up, their places are free again.
        await asyncio.sleep(10)
        assert await asked_of(*((f"10.9.0.{number}", PORT + 1) for number in range(10, 30))) == 20


async def test_a_flood_of_forged_senders_keeps_no_contact_suspected() -> None:
    async with world() as w:
        node, other = await w.swarm("ours", 2)
        w.net.wires.partition([host(2)])
        assert await node.find_closest(other.node.id) == []
        assert node.plane.table.suspected(other.node.id)
        w.net.wires.heal()
        for turn in range(20):
            for number in range(300):  # in three networks
                ping = request("ping", turn.to_bytes(10, "big") + number.to_bytes(10, "big"))
                w.net.send(ping, (f"10.9.{number // 100}.{number % 100 + 1}", PORT), node.address)
            await asyncio.sleep(0.5)
        assert not node.plane.table.suspected(other.node.id)


async def test_a_lost_ping_to_a_stranger_hides_it_from_no_look_up() -> None:
    async with world() as w:
        asker, known, stranger = [await w.node("ours", host(number)) for number in (1, 2, 3)]
        await asker.bootstrap([known.address])
        w.net.wires.partition([host(1)])
        await stranger.bootstrap([known.address])
        asker.plane.verifier.heard(Contact(stranger.node.id, *stranger.address))
        await asyncio.sleep(5)
        w.net.wires.heal()
        assert await asker.find_owner(stranger.node.id) == Contact(stranger.node.id, *stranger.address)


async def test_a_cancelled_look_up_leaves_no_call_behind() -> None:
    async with world() as w:
        nodes = await w.swarm("ours", 10)
        w.net.wires.partition([host(1)])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await nodes[0].find_closest(bytes(20))
        assert len(nodes[0].plane.calls) == 0


async def test_a_look_up_goes_to_the_verified_address_whatever_a_third_party_says() -> None:
    async with world() as w:
        node, true = await w.swarm("ours", 2)
        bogus = (true.node.id, "10.6.6.6", PORT)
        Raw(w, (host(9), PORT), lambda name, _: b"l" * 20 if name == "ping" else [bogus])
        began_at = w.loop.time()
        found = await node.bootstrap([(host(9), PORT)])
        assert Contact(true.node.id, *true.address) in found
        assert w.loop.time() - began_at < 0.5  # and nobody waited for the bogus one


async def test_who_answers_a_look_up_with_a_mapping_does_not_end_it() -> None:
    async with world() as w:
        nodes, key = await w.swarm("ours", 8), digest("key")
        *_, closest, asker = sorted(nodes, key=lambda node: -xor(node.node.id, key))
        liar = key[:-1] + bytes([key[-1] ^ 1])  # closer than any other
        replies: list[Any] = []
        Raw(w, (host(99), PORT), lambda name, _: liar if name == "ping" else replies[-1])
        for node in nodes:
            await node.bootstrap_node((host(99), PORT))
        closest.storage[key] = "value"
        for reply in ({}, {"value": None}, {"value": ["no", "value"]}, {"other": 1}):
            replies.append(reply)
            found = await asker.find_closest(key)
            assert len(found) == len(nodes)  # the others and the liar
            assert asker.storage.get(key) is None
            assert await asker.get("key") == "value"


async def test_a_value_of_a_stock_node_that_fits_into_no_datagram_of_ours_is_found() -> None:
    async with world() as w:
        asker, *others = await w.swarm("ours", 5)
        value, key = "x" * 2_000, digest("key")
        furthest = bytes(byte ^ 0xFF for byte in key)
        Raw(w, (host(99), PORT), lambda name, _: furthest if name == "ping" else {"value": value})
        await asker.bootstrap_node((host(99), PORT))
        assert await asker.get("key") == value
        assert [other.storage.get(key) for other in others] == [None] * 4


async def test_a_value_that_was_found_is_left_at_the_closest_node_that_did_not_have_it() -> None:
    async with world() as w:
        nodes = await w.swarm("ours", 8)
        key = digest("key")
        *near, far, asker = sorted(nodes, key=lambda node: -xor(node.node.id, key))[::-1]
        far.storage[key] = "value"
        assert await asker.get("key") == "value"
        assert near[0].storage.get(key) == "value"


async def test_of_all_that_hold_a_value_one_hands_it_to_a_newcomer() -> None:
    async with world() as w:
        nodes, key = await w.swarm("ours", 5), digest("key")
        await asyncio.sleep(5)  # until they are no newcomers to each other
        for node in nodes:
            node.storage[key] = "value"
        newcomer = Raw(w, (host(9), PORT), lambda name, _: key if name == "ping" else True)
        for node in nodes:
            newcomer.transport.sendto(request("ping", key), node.address)
        await asyncio.sleep(5)
        assert [args for name, args in newcomer.requests if name == "store"] == [
            [min(nodes, key=lambda node: xor(node.node.id, key)).node.id, key, "value"]
        ]
