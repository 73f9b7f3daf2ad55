"""The reference clusters of the `bp-pso` bench are as they are said to be, and its experiments bring their rows."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
from policy_bench import machines, prediction, split
from policy_bench.report import Experiment, Options, Row

from dhtcrawl.policy.bp_pso import pso
from dhtcrawl.policy.bp_pso.planner import MODES
from dhtcrawl.policy.bp_pso.split import equal_split

QUICK = Options(quick=True)
PARTICLES = ("paper_pso", "repaired_pso")
# 1 core, 2.5 GHz, 1 GB, 0.25 MB/s, 2.5 MB/s: a page is 0.2 s of CPU, 1 s of network and 0.1 s of disk.
SLOW = np.array([[1.0, 2500.0, 1e9, 0.25e6, 2.5e6]])


def quick_rows(experiment: Experiment) -> list[Row]:
    rows = experiment.run(QUICK)
    assert all(row.paper == experiment.paper == "P1" for row in rows)
    assert all(row.met is None and row.measured for row in rows), "small runs are not judged"
    return rows


@pytest.fixture
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Particles that give up early: what they find does not matter here."""
    for name in PARTICLES:
        short = partial(getattr(pso, name), rounds=3)
        monkeypatch.setattr(pso, name, short)  # the planner's
        monkeypatch.setattr(split, name, short)


def test_a_page_takes_what_its_slowest_part_does_and_a_share_of_the_others() -> None:
    assert machines.true_seconds(SLOW, np.array([1.0])) == pytest.approx(1.09 * 1.001)


def test_pages_that_are_kept_make_the_others_slower() -> None:
    assert machines.true_seconds(SLOW, np.array([100.0])) == pytest.approx(109 * 1.1)
    assert machines.true_seconds(SLOW, np.array([0.0])) == 0


def test_four_cores_halve_only_what_they_share() -> None:
    busy = SLOW * [1, 1, 1, 1000, 1000]  # nothing but CPU to speak of
    four = busy * [4, 1, 1, 1, 1]
    one_page = np.array([1.0])
    ratio = machines.true_seconds(four, one_page) / machines.true_seconds(busy, one_page)
    assert ratio == pytest.approx(0.625, abs=0.01)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_optimum_is_that_of_all_splits(seed: int) -> None:
    nodes = machines.draw(3, np.random.default_rng(seed))
    every = (each for each in product(range(10), repeat=3) if sum(each) == 9)
    best_s = min(float(machines.true_seconds(nodes, np.array(each, dtype=float)).max()) for each in every)
    assert machines.optimum_s(nodes, 9) == pytest.approx(best_s)


def test_nodes_are_drawn_from_the_ranges_and_a_seed() -> None:
    nodes = machines.draw(1000, np.random.default_rng(1))
    assert (nodes == machines.draw(1000, np.random.default_rng(1))).all()
    cores, mhz, memory, net, disk = nodes.T
    assert set(cores.tolist()) == set(machines.CORES)
    assert set(mhz.tolist()) == set(machines.MHZ)
    ranges = (machines.MEMORY_BYTES, machines.NET_BYTES_PER_S, machines.DISK_BYTES_PER_S)
    for values, (low, high) in zip((memory, net, disk), ranges, strict=True):
        assert low <= values.min() < 1.01 * low
        assert 0.99 * high < values.max() <= high


def test_a_cluster_can_be_as_uneven_as_the_papers() -> None:
    nodes = machines.as_uneven_as(split.PAPER_RATIO, 5, 500, np.random.default_rng(1))
    equal_s = float(machines.times_of(nodes)(equal_split(500, 5)).max())
    assert machines.optimum_s(nodes, 500) / equal_s == pytest.approx(134 / 233, abs=0.01)


def test_batches_are_off_by_a_few_percent() -> None:
    samples, seconds = machines.history(2000, np.random.default_rng(1))
    off = np.log(seconds / machines.true_seconds(samples[:, :-1], samples[:, -1]))
    assert off.std() == pytest.approx(machines.NOISE, rel=0.1)
    assert abs(off.mean()) < 0.005
    assert (samples[:, -1].min(), samples[:, -1].max()) == (1, machines.BATCH_PAGES_MAX)


def test_batches_that_a_clock_ends_are_the_first_as_long_as_it_says() -> None:
    samples, seconds = machines.timed_history(np.repeat(SLOW, 20, axis=0), np.random.default_rng(1), (10.0,))
    assert (seconds >= 10).all()
    assert (seconds < 10 + 1.5).all(), "not a page more"
    assert set(samples[:, -1].tolist()) <= {9.0, 10.0}


def test_the_net_as_printed_has_the_printed_gradient() -> None:
    net = prediction.PrintedLayer(6, 13, np.random.default_rng(2))
    w1, w2 = net.w1.copy(), net.w2.copy()
    x = np.array([0.5, 1.0, 0.0, 0.2, 0.3, 0.7])
    hidden = np.tanh(w1 @ x)
    off = float(w2 @ hidden) - 0.4
    assert net.learn(x, 0.4, 0.1) == pytest.approx(off**2 / 2)
    assert net.w1 == pytest.approx(w1 - 0.1 * off * np.outer(w2 * hidden * (1 - hidden), x))
    assert net.w2 == pytest.approx(w2 - 0.1 * off * hidden)
    assert not net.b1.any()
    assert net.b2 == 0


def test_the_nets_bring_their_rows() -> None:
    rows = quick_rows(prediction.EXPERIMENTS[0])
    assert [row.target for row in rows] == ["≤ 6 %", "", "", "", ""]
    assert "24: " in rows[3].measured


def test_the_factors_bring_a_row_each() -> None:
    rows = quick_rows(prediction.EXPERIMENTS[1])
    assert [row.claim for row in rows] == ["slower", "faster", "faster", "faster", "faster", "slower"]
    assert rows[-1].measured.startswith("slower in 1 of 1")
    assert rows[0].note.startswith("not reproduced")


@pytest.mark.usefixtures("few_rounds")
def test_the_splits_bring_their_rows() -> None:
    rows = quick_rows(split.EXPERIMENTS[0])
    assert [bool(row.target) for row in rows] == [False, False, False, True, True, True, True, True]
    assert "worst 1.000" in rows[4].measured, "bisection finds the least possible makespan"


def test_a_target_is_judged_by_the_median_but_exactness_by_the_worst() -> None:
    names = (split.EQUAL, split.SPEEDS, split.PAPER, split.REPAIRED, split.EXACT, split.OWN, split.OTHERS)
    found = {split.Cluster(50, seed): dict.fromkeys(names, 1.0) for seed in (1, 2, 3)}
    found[split.Cluster(50, 3)] = dict.fromkeys(names, 1.2)
    assert [row.met for row in split.split_rows(found, Options())] == [None, None, None, True, False, True, True]


@pytest.mark.usefixtures("few_rounds")
def test_five_nodes_get_all_tasks_in_every_mode() -> None:
    rows = quick_rows(split.EXPERIMENTS[1])
    assert len(rows) == len(MODES) + 1, "exact is net; rates, and batches by a clock, are more rows"
    for row in rows:
        counts = row.measured.rpartition(" ")[2].split("/")
        assert (len(counts), sum(map(int, counts))) == (split.NODES, split.TASKS)
