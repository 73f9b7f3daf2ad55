"""What a net has seen it predicts; the gradient is right."""

from __future__ import annotations

import numpy as np
import pytest

from dhtcrawl.policy.bp_pso.nets import INPUTS, Array, LogNet, PaperNet, loss, weights_of


def batches(count: int, seed: int) -> tuple[Array, Array]:
    """Finished batches of nodes that are 4 times as fast as others, and the seconds they took."""
    rng = np.random.default_rng(seed)
    samples = np.exp(rng.uniform(0, np.log(16), (count, len(INPUTS))))
    samples[:, -1] = np.round(np.exp(rng.uniform(0, np.log(500), count)))
    cores, mhz, memory, net, disk, n = samples.T
    seconds = n * (1 / mhz + 2 / net + 0.5 / disk) * (1 + 0.2 * np.log(cores)) * (1 + n / (200 * memory))
    return samples, seconds


def mape(net: LogNet | PaperNet, samples: Array, seconds: Array) -> float:
    return float(np.mean(np.abs(net.predict(samples) / seconds - 1)))


def test_the_net_of_logarithms_predicts_what_it_has_not_seen() -> None:
    net = LogNet(*batches(300, 1), np.random.default_rng(0))
    assert mape(net, *batches(100, 2)) < 0.06


def test_the_papers_net_learns_but_less() -> None:
    seen, fresh = batches(150, 1), batches(100, 2)
    rng = np.random.default_rng(0)
    papers = PaperNet(*seen, rng, rounds=100)
    unlearned = PaperNet(*seen, rng, rounds=0)
    assert mape(papers, *fresh) < mape(unlearned, *fresh)
    assert mape(papers, *fresh) > mape(LogNet(*seen, rng), *fresh)


def test_a_net_of_one_batch_predicts_that_one() -> None:
    samples, seconds = batches(1, 1)
    assert LogNet(samples, seconds, np.random.default_rng(0)).predict(samples) == pytest.approx(seconds, rel=0.01)


def test_the_gradient_is_the_slope() -> None:
    rng = np.random.default_rng(1)
    weights, inputs, wanted = rng.normal(0, 0.5, weights_of(3, 6)), rng.normal(0, 1, (20, 6)), rng.normal(0, 1, 20)
    _, gradient = loss(weights, 3, inputs, wanted)
    for index in range(len(weights)):
        step = np.zeros_like(weights)
        step[index] = 1e-5
        slope = (loss(weights + step, 3, inputs, wanted)[0] - loss(weights - step, 3, inputs, wanted)[0]) / 2e-5
        assert gradient[index] == pytest.approx(slope, abs=1e-6)
