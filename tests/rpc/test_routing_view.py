"""Ownership over members, against brute force."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.keyspace import distance
from dhtcrawl.rpc.membership.view import Member, MemberState, View

# Random ids, and crowded ones: an adversary may choose a prefix.
ids = st.binary(min_size=20, max_size=20) | st.integers(0, 255).map(lambda end: b"c" * 19 + bytes([end]))
members = st.dictionaries(ids, st.sampled_from(list(MemberState)), max_size=60).map(
    lambda states: [Member(node_id, ("10.0.0.1", 1), state) for node_id, state in states.items()]
)


def brute(all_members: list[Member], key: bytes, *, active: bool = False) -> list[Member]:
    left = {MemberState.ACTIVE} if active else {MemberState.ACTIVE, MemberState.SUSPECTED}
    return sorted((m for m in all_members if m.state in left), key=lambda m: distance(m.id, key))


@given(members, st.lists(ids, max_size=20), st.integers(1, 5))
def test_owners_are_the_closest_members_that_may_own(some: list[Member], keys: list[bytes], n: int) -> None:
    view = View(some)
    for key in [*keys, *keys]:  # the second time from what is kept
        expected = brute(some, key)
        assert view.owner(key) == (expected[0] if expected else None)
        assert view.closest(key, n) == expected[:n]
        assert view.closest_active(key, n) == brute(some, key, active=True)[:n]
    assert len(view) == len(brute(some, bytes(20)))
    assert View(some).owners([*keys, *keys]) == [view.owner(key) for key in [*keys, *keys]]


@given(members, st.binary(min_size=20, max_size=20))
def test_the_order_of_members_does_not_matter(some: list[Member], key: bytes) -> None:
    assert View(some).closest(key, 3) == View(reversed(some)).closest(key, 3)


@given(members, st.binary(min_size=20, max_size=20), st.data())
def test_a_member_that_leaves_gives_its_keys_to_the_next(some: list[Member], key: bytes, data: st.DataObject) -> None:
    view = View(some)
    if len(view) < 2:
        return
    gone = data.draw(st.sampled_from(some))
    after = View(m for m in some if m != gone)
    ranked = [m for m in view.closest(key, 2) if m != gone]
    assert after.owner(key) == ranked[0]


def test_a_joining_member_owns_nothing_and_a_suspected_one_still_does() -> None:
    joining, suspected, active = (
        Member(bytes([number]) * 20, ("10.0.0.1", number), state)
        for number, state in ((1, MemberState.JOINING), (3, MemberState.SUSPECTED), (7, MemberState.ACTIVE))
    )
    view = View([joining, suspected, active])
    assert view.owner(bytes(20)) == suspected
    assert view.closest(bytes(20), 9) == [suspected, active]
    assert view.closest_active(bytes(20), 9) == [active]
    assert View([joining]).owner(bytes(20)) is None


def test_a_key_costs_less_than_a_sort_of_all_members(monkeypatch: pytest.MonkeyPatch) -> None:
    # No clock decides here: how often members are compared does.
    rng, compared = Random(1), 0

    class Number(int):
        def __xor__(self, other: int) -> int:
            nonlocal compared
            compared += 1
            return int(self) ^ other

    monkeypatch.setattr(Member, "number", property(lambda member: Number.from_bytes(member.id, "big")))
    view = View(Member(rng.randbytes(20), ("10.0.0.1", 1)) for _ in range(1000))
    for _ in range(500):
        assert len(view.closest(rng.randbytes(20), 4)) == 4
    assert 4 <= compared / 500 < 8


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 5))
def test_keys_with_a_prefix_in_common_have_the_same_closest_in_one_order(seed: int, members: int, n: int) -> None:
    rng = Random(seed)
    view = View(Member(rng.randbytes(20), ("127.0.0.1", 1)) for _ in range(members))
    found: dict[int, list[Member]] = {}
    for _ in range(60):
        key = rng.randbytes(20)
        prefix = view.prefix_of(key, n)
        if prefix is not None:
            assert found.setdefault(prefix, view.closest(key, n)) == view.closest(key, n)
