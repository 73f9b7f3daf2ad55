"""How long a node takes for n tasks, learned from finished batches: the paper's net, and a better posed one.

    PaperNet   Zhang et al. 2019, section 3.2: one tanh layer, min-max scaling, back-propagation of ½(Y − O)² sample
               by sample, until the mean error is below a threshold. Three of its equations cannot be as printed: with
               tanh the derivative is 1 − H², not H(1 − H); the biases are updated, too; the hidden size is a setting
               (the text says 6, its equation 3 gives 13).
    LogNet     the same inputs as logarithms, and log(seconds / n) as the output: seconds span decades, and a page's
               cost is what changes least; all samples at once by BFGS, with a weight penalty

A sample is (cores, MHz, memory, network, disk, n): any units, as long as they stay the same.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array: TypeAlias = NDArray[np.float64]

INPUTS = ("cores", "mhz", "memory_bytes", "net_bytes_per_s", "disk_bytes_per_s", "n")
PAPER_HIDDEN = 13  # Zhang et al. 2019, equation 3
HIDDEN = 8
PENALTY = 1e-3
STARTS = 3


class PaperNet:
    """Trained once, when it is made."""

    def __init__(
        self,
        samples: Array,
        seconds: Array,
        rng: np.random.Generator,
        *,
        hidden: int = PAPER_HIDDEN,
        rate: float = 0.05,
        rounds: int = 300,
        threshold: float = 1e-4,
    ) -> None:
        """`samples` (s, 6), `seconds` (s,); `threshold`: the mean of ½(Y − O)², scaled, at which to stop."""
        self._low, self._span = _range(samples)
        self._out_low, self._out_span = float(seconds.min()), float(max(np.ptp(seconds), 1e-9))
        inputs = (samples - self._low) / self._span
        wanted = (seconds - self._out_low) / self._out_span
        self._w1 = rng.uniform(-0.5, 0.5, (hidden, samples.shape[1]))
        self._b1 = np.zeros(hidden)
        self._w2 = rng.uniform(-0.5, 0.5, hidden)
        self._b2 = 0.0
        for _ in range(rounds):
            error = 0.0
            for index in rng.permutation(len(inputs)):
                error += self._learn(inputs[index], wanted[index], rate)
            if error / len(inputs) < threshold:
                break

    def _learn(self, x: Array, wanted: float, rate: float) -> float:
        hidden = np.tanh(self._w1 @ x + self._b1)
        off = float(self._w2 @ hidden + self._b2 - wanted)
        back = off * self._w2 * (1 - hidden**2)
        self._w2 -= rate * off * hidden
        self._b2 -= rate * off
        self._w1 -= rate * np.outer(back, x)
        self._b1 -= rate * back
        return off * off / 2

    def predict(self, samples: Array) -> Array:
        """Seconds for each sample; never below a thousandth of what was seen."""
        hidden = np.tanh((samples - self._low) / self._span @ self._w1.T + self._b1)
        return np.asarray(np.maximum((hidden @ self._w2 + self._b2) * self._out_span + self._out_low, 1e-3))


class LogNet:
    """Trained once, when it is made: the best of a few starts."""

    def __init__(self, samples: Array, seconds: Array, rng: np.random.Generator, *, hidden: int = HIDDEN) -> None:
        """`samples` (s, 6), `seconds` (s,), all positive."""
        logs = np.log(samples)
        self._mean, self._scale = logs.mean(axis=0), np.maximum(logs.std(axis=0), 1e-6)
        inputs = (logs - self._mean) / self._scale
        wanted = np.log(seconds / samples[:, -1])
        self._out_mean, self._out_scale = float(wanted.mean()), float(max(wanted.std(), 1e-6))
        wanted = (wanted - self._out_mean) / self._out_scale
        self._hidden, self._inputs = hidden, samples.shape[1]
        size = hidden * (self._inputs + 2) + self._inputs + 1
        # Not L-BFGS: at each step it solves small systems with LAPACK, which wakes threads for them; on two cores that
        # took seven times the CPU. With some 70 weights the whole matrix is cheap, and fewer steps are needed.
        found = [
            minimize(self._loss, rng.normal(0, 0.3, size), (inputs, wanted), "BFGS", jac=True, options={"maxiter": 500})
            for _ in range(STARTS)
        ]
        self._weights: Array = min(found, key=lambda each: float(each.fun)).x

    def _parts(self, weights: Array) -> tuple[Array, Array, Array, Array, float]:
        h, i = self._hidden, self._inputs
        w1 = weights[: h * i].reshape(h, i)
        b1, w2 = weights[h * i : h * (i + 1)], weights[h * (i + 1) : h * (i + 2)]
        return w1, b1, w2, weights[h * (i + 2) : h * (i + 2) + i], float(weights[-1])

    def _loss(self, weights: Array, inputs: Array, wanted: Array) -> tuple[float, Array]:
        # A straight line beside the hidden layer: most of what there is to learn are powers of the resources.
        w1, b1, w2, line, b2 = self._parts(weights)
        hidden = np.tanh(inputs @ w1.T + b1)
        off = hidden @ w2 + inputs @ line + b2 - wanted
        count = len(wanted)
        back = off[:, None] * w2 * (1 - hidden**2) / count
        gradient = np.concatenate([
            (back.T @ inputs).ravel(), back.sum(axis=0), hidden.T @ off / count, inputs.T @ off / count, [off.mean()],
        ])  # fmt: skip
        bent = slice(0, self._hidden * (self._inputs + 2))
        loss = float(off @ off / count / 2 + PENALTY / 2 * weights[bent] @ weights[bent])
        gradient[bent] += PENALTY * weights[bent]
        return loss, gradient

    def predict(self, samples: Array) -> Array:
        w1, b1, w2, line, b2 = self._parts(self._weights)
        inputs = (np.log(samples) - self._mean) / self._scale
        logs = (np.tanh(inputs @ w1.T + b1) @ w2 + inputs @ line + b2) * self._out_scale + self._out_mean
        return np.asarray(np.exp(np.clip(logs, -30, 30)) * samples[:, -1])


def _range(values: Array) -> tuple[Array, Array]:
    low = values.min(axis=0)
    return low, np.maximum(values.max(axis=0) - low, 1e-9)
