"""Who may begin a TLS handshake: so many strangers, by address, by network and all together; members as they please."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random

from dhtcrawl.rpc.tasks.handshakes import KEPT_MAX, MET_SOURCE, NETWORK, SOURCE, STRANGERS, HandshakeGate

MANY = 1_000


def fail(gate: HandshakeGate, host: str, now: float) -> bool:
    """A stranger's handshake, begun and refused at once; whether it was let begin."""
    handshake = object()
    entered = gate.begin(handshake, host, now).open
    if entered:
        gate.end(handshake, host, now, member=False)
    return entered


def failing(gate: HandshakeGate, hosts: list[str], now: float) -> int:
    return sum(fail(gate, host, now) for host in hosts)


def test_an_address_that_fails_has_a_burst_and_then_so_many_a_second() -> None:
    gate = HandshakeGate(64)
    assert failing(gate, ["10.0.0.9"] * MANY, 0.0) == SOURCE.burst
    assert failing(gate, ["::ffff:10.0.0.9"] * MANY, 10.0) == 10 * SOURCE.per_s
    assert failing(gate, ["10.0.0.8"] * 5, 10.0) == 5
    assert gate.turned_away == 2 * MANY - SOURCE.burst - 10 * SOURCE.per_s


def test_a_network_and_all_strangers_together_have_theirs() -> None:
    gate = HandshakeGate(64)
    network = [f"10.0.0.{number}" for number in range(1, 200)]
    assert failing(gate, network, 0.0) == NETWORK.burst
    assert failing(gate, [f"2001:db8:0:{number:x}::1" for number in range(200)], 0.0) == NETWORK.burst
    assert (
        failing(gate, [f"10.{number}.0.1" for number in range(MANY % 256)], 0.0) == STRANGERS.burst - 2 * NETWORK.burst
    )
    assert failing(gate, [f"10.{number}.1.1" for number in range(200)], 1.0) == STRANGERS.per_s


def test_members_come_back_as_often_as_they_like_and_while_strangers_are_turned_away() -> None:
    gate = HandshakeGate(64)
    gate.meet("192.0.2.7")
    assert failing(gate, [f"10.{number // 256}.{number % 256}.1" for number in range(MANY)], 0.0) == STRANGERS.burst
    for host in ("192.0.2.7", "127.0.0.1"):
        for number in range(MANY):
            assert gate.begin(number, host, 0.0).open
            gate.end(number, host, 0.0, member=True)
    # Strangers beside a member: they take from a larger bucket, and it fills faster.
    assert failing(gate, ["192.0.2.7"] * MANY, 0.0) == MET_SOURCE.burst
    assert failing(gate, ["192.0.2.7"] * MANY, 1.0) == MET_SOURCE.per_s


def test_a_newcomer_gets_its_token_back_so_that_a_hundred_on_one_machine_can_begin_again_and_again() -> None:
    gate = HandshakeGate(256)
    for _ in range(5):
        for number in range(50):
            assert gate.begin(number, "10.0.0.9", 0.0).open
        for number in range(50):
            gate.end(number, "10.0.0.9", 0.0, member=True)
    assert len(gate) == 0


def test_too_many_under_way_cut_the_first_of_the_address_with_most_and_never_a_members() -> None:
    gate = HandshakeGate(8)
    gate.meet("192.0.2.7")
    for number in range(3):
        assert gate.begin(("member", number), "192.0.2.7", 0.0).cut is None
    for number in range(4):
        assert gate.begin(("drips", number), "10.0.0.9", 0.0).cut is None
    assert gate.begin("one", "10.0.0.1", 0.0).cut is None
    cut = [gate.begin(("more", number), f"10.0.1.{number}", 0.0).cut for number in range(3)]
    assert cut == [("drips", 0), ("drips", 1), ("drips", 2)]
    assert gate.begin(("member", 3), "192.0.2.7", 0.0).cut == ("drips", 3)
    for handshake, host in (*((("drips", number), "10.0.0.9") for number in range(4)), ("one", "10.0.0.1")):
        gate.end(handshake, host, 0.0, member=False)
    for number in range(3):
        gate.end(("more", number), f"10.0.1.{number}", 0.0, member=False)
    # Members alone: a stranger waits, and of members the first gives way.
    for number in range(4, 8):
        assert gate.begin(("member", number), "192.0.2.7", 0.0).cut is None
    assert not gate.begin("late", "10.0.0.1", 0.0).open
    assert gate.begin(("member", 8), "192.0.2.7", 0.0).cut == ("member", 0)


def test_whatever_comes_what_is_kept_is_bounded_and_what_is_under_way_too() -> None:
    gate, rng, under_way = HandshakeGate(16), Random(1), dict[Hashable, str]()
    for number in range(20_000):
        host = f"{rng.randrange(1, 200)}.{rng.randrange(256)}.{rng.randrange(256)}.1"
        entered = gate.begin(number, host, number / 10)
        if entered.cut is not None:
            gate.end(entered.cut, under_way.pop(entered.cut), number / 10, member=False)
        if entered.open:
            under_way[number] = host
        if under_way and rng.random() < 0.5:
            over = rng.choice(list(under_way))
            gate.end(over, under_way.pop(over), number / 10, member=rng.random() < 0.1)
        assert len(gate) == len(under_way) <= 16
    assert gate.kept == KEPT_MAX
