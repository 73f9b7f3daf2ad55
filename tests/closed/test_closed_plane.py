"""The routing plane of a closed swarm, in memory: members find each other, and nobody else gets a datagram back."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import msgpack
import pytest
from rpc.routing_swarm import PORT, Raw, host, request, table_of, world

from dhtcrawl.closed.replay import WINDOW
from dhtcrawl.closed.sealing import SEAL_BYTES, Sealer
from dhtcrawl.closed.secret import Ring
from dhtcrawl.errors import BootstrapUnreachable
from dhtcrawl.rpc.discovery.pending import TRIES
from dhtcrawl.rpc.discovery.sealed import UNHEARD_MAX
from dhtcrawl.sim.net import Weather

from .members import OTHER, OTHERS, RING, SECRET


class Sniffer:
    """Keeps what the network carries."""

    def __init__(self, net: Any) -> None:
        self.seen: list[tuple[bytes, tuple[str, int], tuple[str, int]]] = []
        self._send = net.send
        net.send = self._keep

    def _keep(self, data: bytes, source: tuple[str, int], target: tuple[str, int]) -> None:
        self.seen.append((data, source, target))
        self._send(data, source, target)

    def between(self, source: str, target: str) -> list[bytes]:
        return [data for data, at, to in self.seen if (at[0], to[0]) == (source, target)]


async def test_members_find_each_other_and_every_key_and_nothing_can_be_read() -> None:
    async with world(seed=5, weather=Weather(loss=0.01)) as w:
        sniffer = Sniffer(w.net)
        for number in range(1, 13):
            server = await w.node("ours", host(number), ring=RING)
            if number > 1:
                await server.bootstrap([(host(1), PORT)])
        ids = [server.node.id for server in w.nodes.values()]
        for number in range(20):
            key = Random(number).randbytes(20)
            owner = await w.nodes[host(number % 12 + 1)].find_owner(key)
            assert owner.id == min(ids, key=lambda i: int.from_bytes(i) ^ int.from_bytes(key))
        await w.nodes[host(1)].set("key", "a value for members")
        assert await w.nodes[host(7)].get("key") == "a value for members"
        assert w.net.largest_bytes <= 1232
        assert {data[0] for data, _, _ in sniffer.seen} == {0x10, 0x11}
        assert not any(b"members" in data or b"find_node" in data for data, _, _ in sniffer.seen)


@pytest.mark.parametrize("ring", [OTHERS, None], ids=["another secret", "no secret"])
async def test_a_stranger_gets_no_datagram_and_leaves_nothing(ring: Ring | None) -> None:
    async with world() as w:
        server = await w.node("ours", host(1), ring=RING)
        stranger = await w.node("ours", host(2), ring=ring)
        sniffer = Sniffer(w.net)
        with pytest.raises(BootstrapUnreachable):
            await stranger.bootstrap([(host(1), PORT)])
        for message in (request("stun"), request("ping", bytes(20)), request("store", bytes(20), bytes(20), b"x")):
            stranger.transport.sendto(message, (host(1), PORT))
        await asyncio.sleep(5)
        assert sniffer.between(host(1), host(2)) == []
        assert (table_of(server), len(server.storage)) == ([], 0)
        assert server.plane.counters.unsealed == len(sniffer.between(host(2), host(1))) > 3


async def test_a_recording_does_nothing_also_after_a_restart() -> None:
    async with world() as w:
        one = await w.node("ours", host(1), ring=RING)
        two = await w.node("ours", host(2), ring=RING)
        await two.bootstrap([(host(1), PORT)])
        sniffer = Sniffer(w.net)
        await two.plane.store((host(1), PORT), two.node.id, bytes(20), "recorded")
        recorded = sniffer.between(host(2), host(1))
        assert len(one.storage) == 1
        w.crash(host(1))
        w.seed = 2  # it draws another session
        again = await w.node("ours", host(1), one.node.id, ring=RING)
        for source in (host(2), "10.9.9.9"):
            for data in recorded * 3:
                w.net.send(data, (source, PORT), (host(1), PORT))
        await asyncio.sleep(5)
        assert len(again.storage) == 0
        # Whoever plays it elsewhere is asked who it is, and gets no more bytes than it sent.
        answers = sniffer.between(host(1), "10.9.9.9")
        assert 0 < sum(map(len, answers)) <= sum(map(len, recorded * 3))
        # Meanwhile the one that was recorded has proven itself, and is heard.
        happened, stored = await two.plane.store((host(1), PORT), two.node.id, bytes(20), "now")
        assert (happened, stored, len(again.storage)) == (True, True, 1)
        for data in recorded:
            w.net.send(data, (host(2), PORT), (host(1), PORT))
        await asyncio.sleep(1)
        assert again.storage.get(bytes(20)) == "now"


async def test_a_member_whose_counters_another_has_overtaken_is_heard_again_once_it_is_asked() -> None:
    async with world() as w:
        one = await w.node("ours", host(1), ring=RING)
        two = await w.node("ours", host(2), ring=RING)
        await two.bootstrap([(host(1), PORT)])
        sniffer = Sniffer(w.net)
        await two.plane.store((host(1), PORT), two.node.id, bytes(20), "recorded")
        recorded = sniffer.between(host(2), host(1))
        forger = Sealer(RING, two.node.id, recorded[0][22:38])  # its session, which everybody sees
        for _ in range(4 * WINDOW):
            forged = forger.seal(b"\x01" + bytes(20) + msgpack.packb(None), one.node.id)  # an answer to no question
        w.net.send(forged, (host(3), PORT), (host(1), PORT))
        await asyncio.sleep(1)
        assert await two.plane.store((host(1), PORT), two.node.id, bytes(20), "lost") == (False, None)
        # That its recordings are behind now lets none of them in.
        one.storage[bytes(20)] = "kept"
        for data in recorded:
            w.net.send(data, (host(2), PORT), (host(1), PORT))
        await asyncio.sleep(1)
        assert one.storage.get(bytes(20)) == "kept"
        assert await one.plane.ping((host(2), PORT), one.node.id) == (True, two.node.id)
        assert await two.plane.store((host(1), PORT), two.node.id, bytes(20), "heard") == (True, True)
        for data in recorded:
            w.net.send(data, (host(2), PORT), (host(1), PORT))
        await asyncio.sleep(1)
        assert one.storage.get(bytes(20)) == "heard"


async def test_so_is_one_whose_next_thousand_counters_another_has_used() -> None:
    async with world() as w:
        one = await w.node("ours", host(1), ring=RING)
        two = await w.node("ours", host(2), ring=RING)
        await two.bootstrap([(host(1), PORT)])
        sniffer = Sniffer(w.net)
        await two.plane.store((host(1), PORT), two.node.id, bytes(20), "recorded")
        (recorded,) = sniffer.between(host(2), host(1))
        forger = Sealer(RING, two.node.id, recorded[22:38])
        for _ in range(WINDOW):
            forged = forger.seal(b"\x01" + bytes(20) + msgpack.packb(None), one.node.id)
            w.net.send(forged, (host(3), PORT), (host(1), PORT))
        await asyncio.sleep(1)
        unsealed = one.plane.counters.unsealed
        assert await two.plane.store((host(1), PORT), two.node.id, bytes(20), "lost") == (False, None)
        assert one.plane.counters.unsealed == unsealed + TRIES  # as recordings are
        assert await one.plane.ping((host(2), PORT), one.node.id) == (True, two.node.id)
        assert await two.plane.store((host(1), PORT), two.node.id, bytes(20), "heard") == (True, True)
        w.net.send(recorded, (host(2), PORT), (host(1), PORT))
        await asyncio.sleep(1)
        assert one.storage.get(bytes(20)) == "heard"


async def test_a_first_question_takes_two_round_trips_and_no_timeout() -> None:
    async with world() as w:
        await w.node("ours", host(1), ring=RING)
        two = await w.node("ours", host(2), ring=RING)
        began_at = w.loop.time()
        assert await two.plane.store((host(1), PORT), two.node.id, bytes(20), "hello") == (True, True)
        assert w.loop.time() - began_at <= 0.05  # a way takes 10 ms
        assert two.plane.counters.retries == 0


async def test_another_node_at_the_address_of_one_that_is_gone_is_reached() -> None:
    async with world() as w:
        one = await w.node("ours", host(1), ring=RING)
        await w.node("ours", host(2), ring=RING)
        await one.bootstrap([(host(2), PORT)])
        w.crash(host(2))
        other = await w.node("ours", host(2), Random("other").randbytes(20), ring=RING)
        for _ in range(UNHEARD_MAX + 1):
            happened, value = await one.plane.ping((host(2), PORT), one.node.id)
        assert (happened, value) == (True, other.node.id)


async def test_a_rotation_in_three_steps_interrupts_nobody() -> None:
    old, new = Ring.of((SECRET,)), Ring.of((OTHER,))
    steps = [Ring.of((SECRET, OTHER)), Ring.of((OTHER, SECRET)), new]
    async with world() as w:
        nodes = [await w.node("ours", host(number), ring=old) for number in range(1, 6)]
        for node in nodes[1:]:
            await node.bootstrap([(host(1), PORT)])
        sealers: list[Sealer] = [node.plane.sealed.sealer for node in nodes]
        for ring in steps:
            for node, sealer in zip(nodes, sealers, strict=True):
                sealer.use(ring)
                for asker in nodes:
                    for asked in nodes:
                        if asker is not asked:
                            answer = await asker.plane.ping(asked.address, asker.node.id)
                            assert answer == (True, asked.node.id), (ring, node)
        assert {name for sealer in sealers for name in sealer.secrets_used().values()} == {new.used.name}
        assert all(node.plane.counters.timeouts == 0 for node in nodes)
        late = await w.node("ours", host(9), ring=old)
        with pytest.raises(BootstrapUnreachable):
            await late.bootstrap([(host(1), PORT)])


async def test_the_seal_is_62_bytes_and_a_stranger_that_only_listens_hears_none() -> None:
    async with world() as w:
        one = await w.node("ours", host(1), ring=RING)
        raw = Raw(w, (host(3), PORT))
        assert await one.plane.ping((host(3), PORT), one.node.id) == (False, None)
        assert [len(data) for data, _ in raw.received] == [len(request("ping", bytes(20))) + SEAL_BYTES] * 2
        assert raw.requests == []
        raw.transport.sendto(b"\x01" + bytes(20) + msgpack.packb(bytes(20)), (host(1), PORT))
        await asyncio.sleep(1)
        assert one.plane.counters.unsealed == 1
