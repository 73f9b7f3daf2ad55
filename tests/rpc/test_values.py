"""The values of STORE are bounded in number and bytes, in all and by sender, and a forged sender stores none."""

from __future__ import annotations

import asyncio
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.clock import Clock
from dhtcrawl.rpc.contact import source_of
from dhtcrawl.rpc.discovery import datagram, values
from dhtcrawl.rpc.discovery.values import ValueStore
from dhtcrawl.sim.net import Weather
from rpc.routing_swarm import PORT, Raw, host, request, world


class Stopped:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def store(**bounds: int) -> ValueStore:
    return ValueStore(cast(Clock, Stopped()), **bounds)


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


def test_a_sender_has_so_many_values_and_bytes_and_may_change_those_that_it_has() -> None:
    kept = store()
    taken = [kept.put(key(n), "small", "10.0.0.1") for n in range(values.SENDER_VALUES_MAX + 2)]
    assert taken.count(False) == 2
    assert kept.put(key(0), "other", "10.0.0.1")
    assert kept[key(0)] == "other"
    assert kept.put(b"x" * 20, "small", "10.0.0.2")
    large = store()
    taken = [large.put(key(n), b"v" * 1_000, "10.0.0.1") for n in range(4_000)]
    assert 1_500 < taken.count(True) < 2_000
    assert large.bytes <= values.SENDER_BYTES_MAX


def test_in_all_the_value_that_was_stored_longest_ago_gives_way_by_number_and_by_bytes() -> None:
    by_number, by_bytes = store(values_max=3), store(bytes_max=3_000)
    for number in range(5):
        assert by_number.put(key(number), "v", f"10.0.0.{number}")
        assert by_bytes.put(key(number), b"v" * 600, f"10.0.0.{number}")
    assert [k for k, _ in by_number] == [key(2), key(3), key(4)]
    assert [k for k, _ in by_bytes] == [key(2), key(3), key(4)]
    assert by_number.put(b"y" * 20, "v", "10.0.0.0"), "what gave way counts no more"


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), st.integers(0, 900)), max_size=80))
def test_what_is_counted_is_what_is_there(puts: list[tuple[int, str, int]]) -> None:
    kept = store(values_max=6, bytes_max=4_000)
    for number, sender, size in puts:
        kept.put(key(number), b"v" * size, sender)
        kept[key(number)] = b"w" * size  # as republishing does
    assert len(kept) <= 6
    assert kept.bytes == sum(datagram.packed_bytes(value) + 256 for _, value in kept) <= 4_000


def test_a_network_of_64_bits_is_one_sender() -> None:
    assert source_of("2001:db8::1") == source_of("2001:db8::2:1") != source_of("2001:db8:0:9::1")
    assert source_of("10.0.0.1") != source_of("10.0.0.2")


async def test_a_sender_that_does_not_answer_stores_nothing_and_one_that_does_is_told_so() -> None:
    async with world(seed=2, weather=Weather()) as w:
        node = await w.node("ours", host(1))
        forged = Raw(w, (host(8), PORT))
        honest = Raw(w, (host(9), PORT), lambda name, _: b"g" * 20)
        for number in range(50):
            forged.transport.sendto(request("store", b"f" * 20, key(number), "v"), (host(1), PORT))
        honest.transport.sendto(request("store", b"g" * 20, key(99), "v"), (host(1), PORT))
        await asyncio.sleep(5)
        assert [k for k, _ in node.storage] == [key(99)]
        assert True in [
            m.value for data, _ in honest.received if isinstance(m := datagram.decode(data), datagram.DatagramReply)
        ]
