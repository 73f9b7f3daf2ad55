"""Distances of made-up points are found again."""

from __future__ import annotations

import numpy as np

from dhtcrawl.policy.gnp.space import Array, embed, landmarks, vivaldi


def world(count: int, seed: int, dimensions: int = 3) -> tuple[Array, Array]:
    """Points, and the times between them."""
    points = np.random.default_rng(seed).uniform(0, 0.2, (count, dimensions))
    return points, np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))


def error(estimated: Array, real: Array) -> float:
    """The median relative error."""
    return float(np.median(np.abs(estimated / real - 1)))


def test_landmarks_lie_as_far_apart_as_was_measured() -> None:
    _, rtts = world(9, 1)
    points = landmarks(rtts, np.random.default_rng(0), 3)
    above = np.triu_indices(9, 1)
    apart = np.sqrt(((points[above[0]] - points[above[1]]) ** 2).sum(axis=1))
    assert error(apart, rtts[above]) < 0.01


def test_a_point_is_embedded_by_its_distances_to_landmarks() -> None:
    _, rtts = world(40, 2)
    rng = np.random.default_rng(0)
    marks = landmarks(rtts[:9, :9], rng, 3)
    found = np.array([embed(marks, rtts[index, :9], rng) for index in range(9, 40)])
    one, other = np.triu_indices(31, 1)
    apart = np.sqrt(((found[one] - found[other]) ** 2).sum(axis=1))
    assert error(apart, rtts[9:, 9:][one, other]) < 0.02


def test_vivaldi_needs_no_landmarks_and_few_samples() -> None:
    _, rtts = world(40, 3)
    rng = np.random.default_rng(0)
    pairs = np.array([(i, j) for i in range(40) for j in rng.choice(40, 12, replace=False) if i != j])
    found = vivaldi(pairs, rtts[pairs[:, 0], pairs[:, 1]], 40, rng, 3)
    one, other = np.triu_indices(40, 1)
    apart = np.sqrt(((found[one] - found[other]) ** 2).sum(axis=1))
    assert error(apart, rtts[one, other]) < 0.1


def test_the_same_seed_brings_the_same_points() -> None:
    _, rtts = world(9, 1)
    first, second = (landmarks(rtts, np.random.default_rng(5)) for _ in range(2))
    assert (first == second).all()


def test_many_points_are_embedded_at_once() -> None:
    known = np.random.default_rng(4).uniform(0, 0.2, (50, 9, 3))
    real = np.random.default_rng(5).uniform(0, 0.2, (50, 3))
    found = embed(known, np.sqrt(((real[:, None] - known) ** 2).sum(axis=2)), np.random.default_rng(0))
    # The best of three starts: once in a while all of them end in a hollow beside the place.
    assert (np.sqrt(((found - real) ** 2).sum(axis=1)) < 1e-6).mean() > 0.9


def test_fewer_measurements_than_dimensions_are_kept_to_as_well() -> None:
    known = np.random.default_rng(4).uniform(0, 0.2, (50, 4, 5))
    rtts = np.random.default_rng(5).uniform(0.2, 0.3, (50, 4))
    found = embed(known, rtts, np.random.default_rng(0))
    apart = np.sqrt(((found[:, None] - known) ** 2).sum(axis=2))
    assert error(apart, rtts) < 0.001
