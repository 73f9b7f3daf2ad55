"""The exact split is exact, and what the swarm of particles finds is a split."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.policy.bp_pso.pso import paper_pso, repaired_pso
from dhtcrawl.policy.bp_pso.split import Array, Counts, Times, equal_split, exact_split, largest_remainder

# Seconds a task and seconds to begin, of each node.
speeds = st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 50)), min_size=1, max_size=4)


def affine(rows: list[tuple[float, float]], bends: float = 1.0) -> Times:
    a, b = np.array(rows).T
    return lambda counts: np.where(counts > 0, b + a * counts**bends, 0.0)


@settings(max_examples=60)
@given(speeds, st.integers(0, 12), st.sampled_from([0.8, 1.0, 1.3]))
def test_no_split_ends_earlier_than_the_exact_one(rows: list[tuple[float, float]], total: int, bends: float) -> None:
    times = affine(rows, bends)
    found = exact_split(times, total, len(rows))
    assert found.sum() == total
    assert (found >= 0).all()
    every = (each for each in product(range(total + 1), repeat=len(rows)) if sum(each) == total)
    best = min(float(times(np.array(each)).max()) for each in every)
    assert float(times(found).max()) <= best * (1 + 1e-6) + 1e-9


def test_a_large_cluster_is_split_so_that_all_end_together() -> None:
    rng = np.random.default_rng(1)
    times = affine(list(zip(np.exp(rng.normal(0, 1, 500)), rng.uniform(0, 5, 500), strict=True)))
    seconds = times(exact_split(times, 50_000, 500))
    assert seconds.max() - seconds.min() < 30, "one task of the slowest"


@pytest.mark.parametrize("total", [500, 10**8, 10**15])
def test_a_node_is_asked_for_its_time_no_more_often_however_many_tasks_there_are(total: int) -> None:
    times, asked = affine([(1.0 / (1.0 + 0.37 * n), 0.0) for n in range(5)]), 0

    def counted(counts: Counts) -> Array:
        nonlocal asked
        asked += 1
        assert asked < 5_000
        return times(counts)

    found = exact_split(counted, total, 5)
    assert found.sum() == total
    assert found[4] / found[0] == pytest.approx(2.48, rel=0.02)


def test_equal_and_proportional_splits_sum_up() -> None:
    assert equal_split(11, 4).tolist() == [3, 3, 3, 2]
    assert largest_remainder(np.array([1.0, 1.0, 2.0]), 10).tolist() == [3, 2, 5]
    assert largest_remainder(np.array([0.0, 1.0]), 3).tolist() == [0, 3]


@pytest.mark.parametrize("search", [paper_pso, repaired_pso])
@pytest.mark.parametrize(("nodes", "total"), [(1, 7), (5, 500), (20, 15)])
def test_particles_find_a_split(search: object, nodes: int, total: int) -> None:
    rng = np.random.default_rng(2)
    times = affine([(1.0 + n, 0.0) for n in range(nodes)])
    found = search(times, total, nodes, rng, rounds=20)  # type: ignore[operator]
    assert found.sum() == total
    assert (found >= 0).all()
    assert len(found) == nodes


def test_repaired_particles_come_close_where_the_papers_do_not() -> None:
    rng = np.random.default_rng(3)
    times = affine([(float(a), 1.0) for a in np.exp(rng.uniform(-2, 2, 50))])
    best = float(times(exact_split(times, 5000, 50)).max())
    repaired = float(times(repaired_pso(times, 5000, 50, np.random.default_rng(4), rounds=100)).max())
    papers = float(times(paper_pso(times, 5000, 50, np.random.default_rng(4), rounds=100)).max())
    assert best <= repaired <= 1.1 * best
    assert papers > repaired
