"""Which parts of a range are exchanged, pushed or compared again. What comes of it is in test_sync.py."""

from __future__ import annotations

from dhtcrawl.rpc.tasks.rows import ITEMS_MAX
from dhtcrawl.storage.store.ranges import FIRST, LAST, Digests, Part
from dhtcrawl.swarm.records.range_sync import BITS, GAP_RECORDS_MAX, Act, plan


def digest_row(digests: dict[int, int]) -> bytes:
    return b"".join(digests.get(n, 0).to_bytes(8, "big") for n in range(1 << BITS))


def key_in(part: int) -> bytes:
    return bytes([part]) + bytes(19)


def parts(**counts: int) -> Digests:
    return Digests({int(n[1:]): Part(1, count, key_in(int(n[1:])), b"\xff" * 20) for n, count in counts.items()}, None)


def test_parts_with_few_records_go_together_with_few_equal_ones_between_them() -> None:
    ours = parts(_3=10, _5=1, _7=10, _9=64)
    steps = plan(FIRST, LAST, ours, digest_row({2: 5, 5: 1, 7: 2, 9: 2}))
    assert [(step.act, step.first[0], step.last[0], step.ours) for step in steps] == [(Act.EXCHANGE, 2, 9, 85)]


def test_many_equal_records_do_not_move_for_what_differs_beside_them() -> None:
    most = GAP_RECORDS_MAX
    ours = parts(_1=8, _3=10, _5=most - 1, _6=2, _7=10, _9=most, _11=3, _13=1)
    steps = plan(FIRST, LAST, ours, digest_row({1: 1, 3: 5, 5: 1, 6: 1, 7: 2, 9: 1, 11: 2, 13: 1}))
    assert [(step.act, step.first[0], step.last[0], step.ours) for step in steps] == [
        (Act.EXCHANGE, 3, 3, 10),
        (Act.EXCHANGE, 7, 11, 10 + most + 3),
    ]


def test_equal_records_never_make_an_exchange_longer_than_a_frame() -> None:
    ours = parts(**{f"_{number}": 60 if number % 2 else GAP_RECORDS_MAX for number in range(12)})
    steps = plan(FIRST, LAST, ours, digest_row({number: 1 + number % 2 for number in range(12)}))
    assert {number for step in steps for number in range(step.first[0], step.last[0] + 1)} >= set(range(1, 12, 2))
    assert max(step.ours for step in steps) <= ITEMS_MAX


def test_parts_with_many_records_are_compared_again_or_pushed() -> None:
    steps = plan(FIRST, LAST, parts(_3=65, _4=65), digest_row({4: 9}))
    assert [(step.act, step.first[0], step.last[0]) for step in steps] == [(Act.PUSH, 3, 3), (Act.COMPARE, 4, 4)]


def test_a_host_with_many_records_is_compared_by_itself_and_what_is_beside_it_too() -> None:
    host = b"\x04" * 20
    ours = Digests({4: Part(1, 500, host + bytes(20), host + b"\xff" * 20)}, None)
    steps = plan(FIRST, LAST, ours, digest_row({4: 9}))
    assert [(step.act, step.first, step.last) for step in steps] == [
        (Act.EXCHANGE, b"\x04" + bytes(19), b"\x04" * 19 + b"\x03"),
        (Act.COMPARE, host, host),
        (Act.EXCHANGE, b"\x04" * 19 + b"\x05", b"\x04" + b"\xff" * 19),
    ]
    inside = plan(host, host, parts(_0=3, _4=500), digest_row({0: 7, 4: 9}))
    assert [(step.act, step.after, step.until) for step in inside] == [
        (Act.EXCHANGE, host, host + b"\x00" + b"\xff" * 19),
        (Act.EXCHANGE, host + b"\x03" + b"\xff" * 19, host + b"\x04" + b"\xff" * 19),
    ]
