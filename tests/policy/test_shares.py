"""What owners keep and others lack: all of it is shared out, and little of it moves."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.keyspace import KEY_BYTES, distance
from dhtcrawl.policy.balanced import Balanced
from dhtcrawl.policy.seam import Candidate, Outcome, PolicyTask, Settings, TaskResult
from dhtcrawl.policy.shares import SPARE, owned, shares

sets = st.sets(st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES), min_size=1, max_size=40)


def ids(*first_bytes: int) -> list[bytes]:
    return [bytes([first]) + bytes(19) for first in first_bytes]


def key(first: int, lot: float) -> bytes:
    """A key that lies at a first byte, with a lot from 0 to 1 for whether its owner keeps it."""
    return bytes([first]) + bytes(11) + int(lot * 2**64).to_bytes(8, "big")


def test_at_each_fork_half_of_the_keys_go_either_way() -> None:
    a, b, c = ids(0b0000_0000, 0b1000_0000, 0b1100_0000)
    assert owned([b, c, a]) == {a: 0.5, b: 0.25, c: 0.25}
    assert owned([b, c]) == {b: 0.5, c: 0.5}
    assert owned([a]) == {a: 1.0}


def test_what_a_node_owns_is_what_keys_are_closest_to_it() -> None:
    chance = Random(1)
    nodes = [chance.randbytes(KEY_BYTES) for _ in range(6)]
    keys = [chance.randbytes(KEY_BYTES) for _ in range(4_000)]
    counts = Counter(min(nodes, key=lambda node: distance(each, node)) for each in keys)
    for node, part in owned(nodes).items():
        assert counts[node] / len(keys) == pytest.approx(part, abs=0.03)


@given(nodes=sets, seed=st.integers(0, 9))
def test_what_owners_give_away_is_what_others_lack_but_for_what_they_keep_to_spare(
    nodes: set[bytes], seed: int
) -> None:
    chance = Random(seed)
    weights = {node: chance.choice((0.1, 1.0, 4.0)) for node in sorted(nodes)}
    found, parts = shares(list(nodes), weights), owned(list(nodes))
    assert sum(parts.values()) == pytest.approx(1.0)
    total = sum(weights.values())
    for node, part in parts.items():
        target = weights[node] / total
        assert part * found.keeps[node] <= SPARE * target + 1e-9
        assert (node in found.lacks) == (part < target)
    away = sum(part * (1 - found.keeps[node]) for node, part in parts.items())
    assert away <= sum(found.lacks.values()) + 1e-9


# The policy: of these, the first owns half of all keys, and each of the others a quarter.
A, B, C = ids(0b0000_0000, 0b1000_0000, 0b1100_0000)


def rank(policy: Balanced, place: int, lot: float, **lent: int) -> list[bytes]:
    candidates = [Candidate(node, lent.get(name, 0)) for name, node in (("a", A), ("b", B), ("c", C))]
    return policy.rank(PolicyTask(key(place, lot), "a.test"), candidates, 0.0)


def test_an_owner_keeps_its_share_and_those_that_lack_tasks_get_the_rest() -> None:
    policy = Balanced(Settings(A))
    keeps = SPARE * 2 / 3
    assert rank(policy, 0, keeps - 0.01)[0] == A
    assert rank(policy, 0, keeps + 0.01)[0] in (B, C)
    for lot in (0.0, 0.5, 0.99):
        assert rank(policy, 0b1000_0000, lot)[0] == B, "it owns too little: all of it is its own"
    assert {rank(policy, place, 0.99)[0] for place in range(128)} == {B, C}


def test_who_is_not_among_the_first_gets_one_task_and_more_where_it_brings_it_at_once() -> None:
    policy = Balanced(Settings(B))
    assert set(rank(policy, 0b1000_0000, 0.5)) == {A, B, C}
    assert rank(policy, 0b1000_0000, 0.5, a=1, b=30, c=1) == [B], "it waits for its owner"
    for at in range(1, 20):
        policy.heard(Outcome(C, "a.test", TaskResult.PAGE, 0.05), at * 0.1)
    assert rank(policy, 0b1000_0000, 0.5, a=1, b=30, c=1) == [B, C]


def test_where_tasks_wait_as_long_elsewhere_no_more_than_one_leaves_its_owner() -> None:
    policy = Balanced(Settings(B))

    def heard(node: bytes, waited_s: float, now: float) -> None:
        policy.heard(Outcome(node, "a.test", TaskResult.PAGE, 0.05, held_s=0.05 + waited_s), now)

    for at in range(1, 20):
        heard(C, 0.0, at * 0.1)
    heard(B, 2.0, 2.5)
    assert rank(policy, 0b1000_0000, 0.5, a=1, b=30, c=1) == [B, C], "they do not wait there"
    for at in range(60):
        heard(C, 1.5, 3.0 + at)
    assert rank(policy, 0b1000_0000, 0.5, a=1, b=30, c=1) == [B]
    assert rank(policy, 0b1000_0000, 0.5, a=1, b=30) == [B, C]


def test_what_an_owner_gives_away_it_fetches_only_where_it_has_nothing_to_do() -> None:
    policy = Balanced(Settings(A))
    assert A not in rank(policy, 0, 0.99, a=1)
    assert rank(policy, 0, 0.99)[-1] == A
    assert rank(policy, 0, 0.0, a=50)[0] == A


def test_a_task_that_came_back_may_go_to_any_node() -> None:
    policy = Balanced(Settings(A))
    candidates = [Candidate(node, 50) for node in (A, B, C)]
    failed = PolicyTask(key(0b1000_0000, 0.5), "a.test", failed=(B,))
    assert sorted(policy.rank(failed, candidates, 0.0)) == [A, B, C]
    assert policy.rank(failed, candidates, 0.0)[-1] == B


def test_a_plan_says_what_each_node_is_to_fetch() -> None:
    policy = Balanced(Settings(A))
    policy.adopt({"weights": {A: 2.0, B: 1.0, C: 1.0}})
    assert [rank(policy, 0, lot)[0] for lot in (0.0, 0.5, 0.99)] == [A, A, A], "it owns half, and is to fetch half"
    policy.adopt({"weights": {A: 0.2, B: 1.0, C: 1.0}})
    assert [rank(policy, 0, lot)[0] == A for lot in (0.1, 0.25)] == [True, False]


def test_an_owner_starts_more_of_its_own_than_it_gives_another() -> None:
    policy = Balanced(Settings(A))
    assert policy.terms(A, "a.test").batch == 2 * policy.terms(B, "a.test").batch


def test_of_the_nearest_of_many_nodes_those_share_that_all_owners_among_them_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dhtcrawl.policy.shares.NEAREST", 3)
    policy = Balanced(Settings(B))
    # A is the nearest of more nodes that begin with 0: what it owns of all is not known here.
    assert rank(policy, 0b1000_0000, 0.99)[0] == B
    assert rank(policy, 0b1100_0000, 0.99)[0] == C
