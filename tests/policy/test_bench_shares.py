"""What the shares of `xor` and `balanced` are measured with, and that it sees an unfair one."""

from __future__ import annotations

from random import Random

import pytest
from policy_bench import shares
from policy_bench.report import Options
from policy_bench.shares import Case, fullest, measure, moved, owner_of, swarm, ways


def ids(*first_bytes: int) -> list[bytes]:
    return [bytes([first]) + bytes(19) for first in first_bytes]


def test_the_fullest_node_is_told_over_the_mean_by_weight() -> None:
    a, b = ids(1, 2)
    assert fullest({a: 3, b: 1}, {a: 1.0, b: 1.0}) == 1.5
    assert fullest({a: 3, b: 1}, {a: 3.0, b: 1.0}) == 1.0
    assert fullest({a: 4}, {a: 1.0, b: 1.0}) == 2.0, "one without a task counts"


def test_the_owner_is_the_closest_by_xor() -> None:
    low, high = ids(0b0001, 0b1000)
    assert owner_of([low, high], ids(0b0111)[0]) == low
    assert owner_of([low, high], ids(0b1111)[0]) == high


def test_weights_go_round_from_one_to_four() -> None:
    chance = Random(1)
    assert list(swarm(5, mixed=True, chance=chance).values()) == [1.0, 2.0, 3.0, 4.0, 1.0]
    assert set(swarm(5, mixed=False, chance=chance).values()) == {1.0}


@pytest.mark.parametrize(("mixed", "moves"), [(False, 1.5), (True, 1.0)])
def test_a_leave_moves_the_leavers_tasks_where_owners_fetch_and_some_more_where_they_share(
    mixed: bool, moves: float
) -> None:
    assert leave(mixed=mixed) == {"xor": 1.0, "balanced": moves}


def leave(*, mixed: bool) -> dict[str, float]:
    """What those move who have the first tasks of 200 nodes."""
    chance = Random(2)
    weights = swarm(200, mixed=mixed, chance=chance)
    keys = [chance.randbytes(20) for _ in range(150)]
    had = {name: [*map(assign, keys)] for name, assign in ways(weights, list(weights)).items()}
    return moved(weights, keys, had, list(dict.fromkeys(had["balanced"]))[:2])


def test_balanced_is_about_as_even_as_a_lottery_and_xor_is_not() -> None:
    case = Case(nodes=10, mixed=False, tasks=3_000, leave_tasks=0, seed=1)
    found = measure(case).fullest
    assert found["balanced"] < 1.2
    assert found["xor"] > 1.5
    assert measure(case).fullest == found, "chance comes from the seed"


def test_the_quick_run_has_two_rows_a_swarm_and_judges_none() -> None:
    (experiment,) = shares.EXPERIMENTS
    rows = experiment.run(Options(quick=True))
    assert {row.paper for row in rows} == {"P4"}
    assert {row.met for row in rows} == {None}
    sizes = [f"{nodes} nodes, weights {weights}" for nodes in (5, 50, 200) for weights in ("1", "1 to 4")]
    whats = ("fullest node over the mean", "tasks that one leave moves over those the leaver had")
    assert [row.what for row in rows] == [f"{what}, {size}" for size in sizes for what in whats]
