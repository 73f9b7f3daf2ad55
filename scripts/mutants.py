"""Bytes and messages that are made from valid ones by chance: what a hostile or broken peer would send. Pure.

Bytes are flipped, cut, lengthened, overwritten, joined with others, or get the head of a long msgpack value in their
middle. Of a message one place anywhere in it gets another value, is left out, comes twice, changes its place with its
neighbour (two columns of a row, two fields of a map), or is wrapped into lists; a list is made too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

# Heads of msgpack that announce much: arrays, maps, text, bytes and extensions of 2**16 or 2**32, and what is none.
HEADS = (b"\xdc\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xde\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
         b"\xc6\xff\xff\xff\xff", b"\xc9\xff\xff\xff\xff\x01", b"\xc1", b"\x9f", b"\x8f")  # fmt: skip
NESTED = 200
TOO_MANY = 600
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**31, 2**53, 2**63 - 1, 2**64 - 1, -(2**63), 0.5, float("nan"), float("inf"), 1e300,
    "", "x", "x" * 9000, "\x00", "é" * 40, "http://127.0.0.1/",
    b"", b"x", bytes(20), bytes(16), b"\xff" * 40, bytes(2000), (), {}, {"a": 1}, {1: 2},
)  # fmt: skip


def mutant(data: bytes, others: Sequence[bytes], rng: Random) -> bytes:
    """Other bytes than `data`, made from it, and now and then from one of the others."""
    while True:
        made = rng.choice(_OF_BYTES)(bytearray(data), others, rng)
        if made != data:
            return made


def _flipped(data: bytearray, _others: Sequence[bytes], rng: Random) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _cut(data: bytearray, _others: Sequence[bytes], rng: Random) -> bytes:
    return bytes(data[: rng.randrange(len(data))])


def _longer(data: bytearray, _others: Sequence[bytes], rng: Random) -> bytes:
    return bytes(data) + rng.randbytes(rng.randint(1, 40))


def _overwritten(data: bytearray, _others: Sequence[bytes], rng: Random) -> bytes:
    at = rng.randrange(len(data))
    data[at : at + rng.randint(1, 8)] = rng.randbytes(rng.randint(0, 8))
    return bytes(data)


def _joined(data: bytearray, others: Sequence[bytes], rng: Random) -> bytes:
    at = rng.randrange(len(data))
    return bytes(data[:at]) + rng.choice(others)[at:]


def _announcing(data: bytearray, _others: Sequence[bytes], rng: Random) -> bytes:
    head, at = rng.choice(HEADS), rng.randrange(len(data))
    data[at : at + rng.choice((1, len(head)))] = head
    return bytes(data)


_OF_BYTES: tuple[Callable[[bytearray, Sequence[bytes], Random], bytes], ...] = (
    _flipped, _cut, _longer, _overwritten, _joined, _announcing,
)  # fmt: skip


def mutant_map(fields: dict[Any, Any], rng: Random) -> dict[Any, Any]:
    """A map like this one in which one place is another; the map itself stays as it is."""
    if not fields:
        return {rng.choice(("a", 1, b"k")): rng.choice(STRANGE)}
    key = rng.choice(list(fields))
    made = dict(fields)
    what = rng.randrange(8)
    if what == 0:
        del made[key]
    elif what == 1:
        other = rng.choice(list(fields))
        made[key], made[other] = fields[other], fields[key]
    else:
        made[key] = _mutant_value(fields[key], rng)
    return made


def _mutant_value(value: Any, rng: Random) -> Any:
    """Another value: changed somewhere within it mostly, where it has an inside."""
    within = rng.random() < 0.8
    if within and isinstance(value, dict):
        return mutant_map(value, rng)
    if within and isinstance(value, tuple) and value:
        return _mutant_items(value, rng)
    if within and isinstance(value, bytes) and value:
        return mutant(value, (value,), rng)
    if rng.random() < 0.1:
        for _ in range(rng.choice((1, 3, NESTED))):
            value = (value,)
        return value
    return rng.choice(STRANGE)


def _mutant_items(items: tuple[Any, ...], rng: Random) -> tuple[Any, ...]:
    at, made = rng.randrange(len(items)), list(items)
    what = rng.randrange(8)
    if what == 0:
        del made[at]
    elif what == 1:
        made.insert(at, made[at])
    elif what == 2 and len(made) > 1:
        other = (at + 1) % len(made)
        made[at], made[other] = made[other], made[at]
    elif what == 3:
        made += [made[at]] * TOO_MANY
    else:
        made[at] = _mutant_value(made[at], rng)
    return tuple(made)
