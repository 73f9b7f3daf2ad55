"""Which id a newcomer takes: one that splits the largest section, by values and by what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.keyspace import KEY_BYTES, distance
from dhtcrawl.policy.shares import owned
from dhtcrawl.swarm.membership.sections import TRIES_MAX, Sections, best_of, together, tries_of


def node(bits: str) -> bytes:
    """An id that begins with these bits, and goes on with zeros."""
    return int(bits.ljust(8 * KEY_BYTES, "0"), 2).to_bytes(KEY_BYTES, "big")


FOUR_LESS_ONE = [node("00"), node("10"), node("11")]  # ½, ¼, ¼
nodes = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)


def ids(seed: int) -> Iterator[bytes]:
    rng = Random(seed)
    while True:
        yield rng.randbytes(KEY_BYTES)


@pytest.mark.parametrize(
    ("candidate", "section", "height"),
    [("01", 0.5, 159), ("001", 0.5, 158), ("101", 0.25, 158), ("1101", 0.25, 157), ("10", 0.0, 0)],
)
def test_a_newcomer_splits_the_section_that_its_id_falls_into(candidate: str, section: float, height: int) -> None:
    assert Sections(FOUR_LESS_ONE).split(node(candidate)) == (section, height)


def test_where_no_id_has_a_bit_a_newcomer_with_it_splits_the_sections_of_all_behind() -> None:
    # Both begin with 000: whoever begins with 1 owns half of all keys.
    assert Sections([node("0000"), node("0001")]).split(node("1")) == (0.5, 160)


def test_the_best_of_several_splits_the_largest_section_and_that_as_high_as_it_can() -> None:
    bits = ["101", "1101", "0001", "001", "01", "011"]
    assert best_of(map(node, bits), bytes, FOUR_LESS_ONE, 6) == node("01")
    assert best_of(map(node, bits), bytes, FOUR_LESS_ONE, 3) == node("0001")


def test_no_more_ids_are_drawn_than_it_takes_and_never_more_than_the_bound() -> None:
    drawn = iter([node("101"), node("01"), node("011")])
    assert best_of(drawn, bytes, FOUR_LESS_ONE, 3) == node("01")
    assert next(drawn) == node("011")
    numbers = count()
    assert best_of(numbers, lambda _: node("101"), FOUR_LESS_ONE, 9) == 0
    assert next(numbers) == 9


def test_who_begins_a_swarm_takes_the_first_id() -> None:
    drawn = count()
    assert best_of(drawn, lambda number: node(f"{number:b}"), [], 9) == 0
    assert next(drawn) == 1


@given(st.lists(nodes, min_size=1, max_size=9, unique=True), nodes)
def test_what_a_newcomer_owns_then_is_half_of_what_it_splits(members: list[bytes], newcomer: bytes) -> None:
    split = Sections(members).split(newcomer)
    if newcomer in members:
        assert split == (0.0, 0)
        return
    before, after = owned(members), owned([*members, newcomer])
    given_up = {member: before[member] for member in members if after[member] != before[member]}
    assert after[newcomer] == sum(given_up.values()) / 2
    assert split.section == max(given_up.values())
    # The key farthest below the fork that is still the newcomer's.
    edge = (int.from_bytes(newcomer, "big") ^ (1 << split.height - 1) - 1).to_bytes(KEY_BYTES, "big")
    assert min([*members, newcomer], key=lambda each: distance(each, edge)) == newcomer


def largest(nodes: list[bytes]) -> float:
    """The largest section over the mean."""
    return len(nodes) * max(owned(nodes).values())


def in_turn(size: int, seed: int) -> list[bytes]:
    drawn, there = ids(seed), list[bytes]()
    for _ in range(size):
        there.append(best_of(drawn, bytes, there, tries_of(there)))
    return there


@pytest.mark.parametrize("size", [8, 16])
def test_of_nodes_that_come_in_turn_none_owns_more_than_the_mean_in_most_swarms(size: int) -> None:
    assert median(largest(in_turn(size, seed)) for seed in range(20)) == 1.0
    assert sum(largest(in_turn(size, seed)) > 1.35 for seed in range(20)) <= 3
    assert median(largest(together(size, ids(seed), bytes, [])) for seed in range(20)) == 1.0
    assert median(largest([next(drawn) for _ in range(size)]) for drawn in map(ids, range(20))) >= 2.0


def test_many_that_come_at_once_and_see_one_node_are_as_even_as_by_chance() -> None:
    there = [node("0")]
    drawn, by_chance = ids(1), ids(1)
    for _ in range(15):
        assert best_of(drawn, bytes, there, tries_of(there)) == next(by_chance)
    assert [tries_of(there * count) for count in (0, 1, 5, 100)] == [1, 1, 16, TRIES_MAX]


def test_those_that_come_together_know_of_each_other_and_of_who_is_there() -> None:
    there = [node("0"), node("1")]
    both = together(2, ids(1), bytes, there)
    assert sorted(owned([*there, *both]).values()) == [0.25] * 4
