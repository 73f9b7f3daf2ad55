"""The worlds in which coordinates are measured, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from bench_policies import main
from policy_bench import coordinates, throughput
from policy_bench.coordinates import Accuracy, accuracy, time_ratio
from policy_bench.latency import Array, Job, World, drawn, read
from policy_bench.placing import RANDOM_PROBES, Ranked, crawler, ours, predicted, site, spread
from policy_bench.report import Options, Row
from policy_bench.throughput import by_chance, by_load, by_policy, by_table, demand, simulate, single

from dhtcrawl.errors import ConfigError


def line(*places: float) -> dict[str, dict[object, list[float]]]:
    """A table of three crawlers at 0, 1 and 2, and sites at these places."""
    return {
        "nodes": {crawler(number): [float(number)] for number in range(3)},
        "sites": {site(number): [place] for number, place in enumerate(places)},
    }


def test_a_triangle_is_read_in_units_of_10_us(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", rtt_10us=np.array([100, 200, 0], dtype=np.uint16), n=3)
    assert read(tmp_path / "m.npz").between == pytest.approx(
        np.array([[0, 0.001, 0.002], [0.001, 0, 0.0001], [0.002, 0.0001, 0]])
    )


def test_samples_become_their_median_in_the_mean_of_both_directions(tmp_path: Path) -> None:
    there, back = [10, 20, 900], [0, 40, 50]
    samples = np.array([[[0, one], [other, 0]] for one, other in zip(there, back, strict=True)], dtype=np.uint16)
    np.savez(tmp_path / "m.npz", rtt_ms=samples)
    assert read(tmp_path / "m.npz").between == pytest.approx(np.array([[0, 0.03], [0.03, 0]]))


def test_between_clients_is_the_shortest_way_over_a_service(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", rt_ms=np.array([[10, 100], [300, 20]]))
    found = read(tmp_path / "m.npz")
    assert found.between == pytest.approx(np.array([[0, 0.12], [0.12, 0]]))
    world = found.world(np.random.default_rng(1), 2, 1)
    assert sorted(world.to[:, 0]) in (pytest.approx([0.01, 0.3]), pytest.approx([0.02, 0.1]))


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": np.ones(3)},
        {"rtt_10us": np.ones(4), "n": 3},
        {"rtt_ms": np.ones((3, 3))},
        {"rt_ms": np.ones(3)},
        {"rt_ms": np.array([[1.0, np.nan]])},
    ],
)
def test_a_file_that_is_none_of_these_is_refused_by_its_name(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "m.npz", **arrays)
    with pytest.raises(ConfigError, match=r"m\.npz.*use an \.npz with rtt_10us"):
        read(tmp_path / "m.npz")


@pytest.mark.parametrize("content", [None, b"", b"no archive", b"PK\x03\x04no archive"])
def test_the_program_ends_with_one_line_where_there_are_no_latencies(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "m.npz").write_bytes(content)
    with pytest.raises(SystemExit, match=r"^bench_policies: --latency-matrix .*m\.npz: "):
        main(["--quick", "--experiment", "choice", "--latency-matrix", str(tmp_path / "m.npz")])


def test_some_percent_of_the_drawn_triangles_are_none() -> None:
    rtts = drawn(np.random.default_rng(1)).between
    assert rtts.shape == (490, 490)
    assert (rtts == rtts.T).all()
    rng, none = Random(1), 0
    for _ in range(5_000):
        one, two, three = rng.sample(range(490), 3)
        short, middle, long = sorted([rtts[one, two], rtts[two, three], rtts[one, three]])
        none += long > short + middle
    assert 0.01 < none / 5_000 < 0.1
    assert (drawn(np.random.default_rng(1)).between == rtts).all()


def test_no_node_is_a_crawler_and_a_site() -> None:
    world = drawn(np.random.default_rng(1), 40).world(np.random.default_rng(2), 30, 203)
    assert world.between.shape == (30, 30)
    assert world.to.shape == (30, 10), "as many as there are"
    assert world.to.min() > 0


def test_each_cluster_has_its_middle_as_a_landmark() -> None:
    places = np.array([0.0, 1.0, 2.0, 50.0, 51.0, 52.0, 99.0])
    assert sorted(spread(np.abs(places[:, None] - places[None]), 3)) == [1, 4, 6]


def test_a_site_is_measured_by_five_crawlers_and_then_by_near_ones() -> None:
    rng = np.random.default_rng(3)
    crawlers, sites = rng.uniform(0, 0.2, (20, 2)), rng.uniform(0, 0.2, (6, 2))

    def apart(others: Array) -> Array:
        found: Array = np.sqrt(((crawlers[:, None] - others) ** 2).sum(axis=2))
        return found

    world = World(apart(crawlers), apart(sites))
    table, probed = ours(world, np.random.default_rng(0))
    assert all(len(seen) == len(set(seen)) == 9 for seen in probed)
    first, then = (
        np.mean([world.to[who, where] for where, seen in enumerate(probed) for who in seen[part]])
        for part in (slice(RANDOM_PROBES), slice(RANDOM_PROBES, None))
    )
    assert then < 0.6 * first
    assert accuracy(predicted(table, world.to.shape), world.to).error < 0.1


def test_accuracy_by_eye() -> None:
    real = np.full(10, 0.1)
    said = real * (1 + np.array([0, 0.1, -0.1, 0.2, -0.2, 0.3 - 1e-9, -0.4, 0.5, 1.0, 2.0]))
    assert accuracy(said, real) == pytest.approx(Accuracy(0.6, 0.25, 1 - 1.3 / 7, 1 - 1.8 / 8))


def test_a_choice_is_compared_with_the_mean_over_all_crawlers() -> None:
    to = np.array([[0.1, 0.3], [0.2, 0.2], [0.3, 0.1]])
    world = World(np.zeros((3, 3)), to)
    assert time_ratio(world, [[0, 1, 2], [2, 1, 0]]) == pytest.approx(0.5)
    assert time_ratio(world, [[0, 1, 2], [2, 1, 0]], 2) == pytest.approx(0.75)


def test_the_policy_takes_the_least_loaded_of_the_three_nearest() -> None:
    ranked = Ranked(line(1.9, 0.1), 3)
    assert [ranked.idle(where) for where in (0, 1)] == [[2, 1, 0], [0, 1, 2]]
    assert ranked.rank(0, [5, 1, 2])[0] == 1


def test_a_site_alone_gives_a_page_each_two_round_trips_and_a_turn_of_the_link() -> None:
    to = np.array([[0.1]])
    assert demand(to) == pytest.approx(5)
    assert simulate(to, by_load, 20.0, Random(1), end_s=504) == pytest.approx(4, abs=0.01)
    assert simulate(to, by_load, 20.0, Random(1), delay_s=0.75, end_s=504) == pytest.approx(1, abs=0.01)


def test_sites_wait_for_a_link_that_they_share() -> None:
    assert simulate(np.full((1, 50), 0.1), by_load, 20.0, Random(1), end_s=104) == pytest.approx(20, abs=0.1)
    assert simulate(np.full((2, 50), 0.1), by_load, 20.0, Random(1), end_s=104) == pytest.approx(40, abs=0.2)


def test_the_nearest_alone_is_only_as_fast_as_its_link() -> None:
    to = np.array([[0.01] * 20, [0.02] * 20, [0.03] * 20])
    table = line(*[0.0] * 20)
    first = simulate(to, by_table(table, 3, Random(1), 1), 20.0, Random(1), end_s=54)
    spread_out = simulate(to, by_policy(table, 3), 20.0, Random(1), end_s=54)
    assert first == pytest.approx(20, abs=0.5)
    assert spread_out == pytest.approx(60, abs=1.5)


def test_an_owner_knows_only_what_it_lent_itself() -> None:
    told: list[int] = []

    def choose(where: int, lent: Sequence[int]) -> int:
        told.append(sum(lent))
        return 0

    simulate(np.full((1, 9), 0.1), choose, 1000.0, Random(1), end_s=6)
    assert max(told) == 8
    told.clear()
    simulate(np.full((1, 9), 0.1), choose, 1000.0, Random(1), owners=100, end_s=6)
    assert max(told) < 3


def test_chance_takes_all_and_top3_the_three_nearest() -> None:
    table = {"nodes": {crawler(n): [float(n)] for n in range(6)}, "sites": {site(0): [5.0]}}
    chance, near = by_chance(Random(1), 6), by_table(table, 6, Random(1), 3)
    assert {chance(0, [0] * 6) for _ in range(100)} == set(range(6))
    assert {near(0, [0] * 6) for _ in range(100)} == {3, 4, 5}


def test_a_single_site_gains_what_the_way_is_shorter() -> None:
    # Ways of 0.1, 0.2 and 0.6 s, and of 0.3 s in the mean: 0.6 + 0.2 s by chance, 0.2 + 0.2 s from the nearest.
    assert single(np.array([[0.1], [0.2], [0.6]]), line(0.0), 5.0) == pytest.approx(2.0)


def test_quick_runs_say_all_and_judge_nothing(tmp_path: Path) -> None:
    options = Options(quick=True, plots=tmp_path)
    found: dict[str, list[Row]] = {
        each.name: each.run(options) for each in (*coordinates.EXPERIMENTS, *throughput.EXPERIMENTS)
    }
    assert {name: len(rows) for name, rows in found.items()} == {
        "coordinates": 6,
        "choice": 6,
        "estimators": 3,
        "throughput": 16,
    }
    rows = [row for each in found.values() for row in each]
    assert all(row.paper == "P3" and row.met is None and row.seeds == 1 and row.measured for row in rows)
    assert [row.target for row in rows if row.target] == [
        "at least 0.88",
        "at least 0.88",
        "at most 0.15",
        "3-D more than 2-D",
        "9 more than 7 more than 5",
        "at most 0.30",
        "at most 0.38",
        "at most 0.27",
        "at least 1.25 × random",
        "never below random",
    ]
    assert (tmp_path / "coordinates.svg").read_text().startswith("<svg")


def test_a_target_is_met_or_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {f"9/{size}": Accuracy(0.9, 0.1, 0.9, 0.8) for size in (2, 3, 5)}
    said |= {"7/5": Accuracy(0.8, 0.2, 0.8, 0.7), "5/5": Accuracy(0.7, 0.3, 0.85, 0.6)}
    said["ours"] = said["9/5"]
    monkeypatch.setattr(coordinates, "accuracies", lambda job: said)
    rows = coordinates.run_coordinates(Options(seeds=1))
    assert [row.met for row in rows] == [True, True, True, False, False, None], "equal is not more; 5 is above 7"


def test_lower_half_is_off_least_where_spikes_are() -> None:
    errors = coordinates.estimates(Job(1, None, True))
    middles = [float(np.median(errors[name])) for name in ("lower-half", "median", "swa")]
    assert all(less < more for less, more in pairwise(middles))
