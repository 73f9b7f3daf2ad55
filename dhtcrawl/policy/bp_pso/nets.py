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

Array: TypeAlias = NDArray[np.float64]

INPUTS = ("cores", "mhz", "memory_bytes", "net_bytes_per_s", "disk_bytes_per_s", "n")
PAPER_HIDDEN = 13  # Zhang et al. 2019, equation 3
HIDDEN = 8
PENALTY = 1e-3
STARTS = 3
_OPTIONS = {"maxiter": 500}


class PaperLayer:
    """The paper's layer of tanh neurons, with one output."""

    def __init__(self, inputs: int, hidden: int, rng: np.random.Generator) -> None:
        self.w1 = rng.uniform(-0.5, 0.5, (hidden, inputs))
        self.b1 = np.zeros(hidden)
        self.w2 = rng.uniform(-0.5, 0.5, hidden)
        self.b2 = 0.0

    def learn(self, x: Array, wanted: float, rate: float) -> float:
        """One step of back-propagation for a sample `x` (inputs,); ½(Y − O)² before it."""
        hidden = np.tanh(self.w1 @ x + self.b1)
        off = float(self.w2 @ hidden + self.b2 - wanted)
        back = off * self.w2 * (1 - hidden**2)
        self.w2 -= rate * off * hidden
        self.b2 -= rate * off
        self.w1 -= rate * np.outer(back, x)
        self.b1 -= rate * back
        return off * off / 2

    def output(self, inputs: Array) -> Array:
        """The outputs (s,) for samples (s, inputs)."""
        return np.asarray(np.tanh(inputs @ self.w1.T + self.b1) @ self.w2 + self.b2)


class PaperNet:
    """Trained once, when it is made."""

    layer_class = PaperLayer

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
        self._layer = self.layer_class(samples.shape[1], hidden, rng)
        for _ in range(rounds):
            error = 0.0
            for index in rng.permutation(len(inputs)):
                error += self._layer.learn(inputs[index], wanted[index], rate)
            if error / len(inputs) < threshold:
                break

    def predict(self, samples: Array) -> Array:
        """Seconds for each sample; never below a thousandth of what was seen."""
        output = self._layer.output((samples - self._low) / self._span)
        return np.asarray(np.maximum(output * self._out_span + self._out_low, 1e-3))


class LogNet:
    """Trained once, when it is made: the best of a few starts."""

    def __init__(
        self, samples: Array, seconds: Array, rng: np.random.Generator, *, hidden: int = HIDDEN, starts: int = STARTS
    ) -> None:
        """`samples` (s, 6), `seconds` (s,), all positive."""
        # Here, as plans by rates and the paper's net are made where scipy is missing.
        from scipy.optimize import minimize

        logs = np.log(samples)
        self._mean, self._scale = logs.mean(axis=0), np.maximum(logs.std(axis=0), 1e-6)
        inputs = (logs - self._mean) / self._scale
        wanted = np.log(seconds / samples[:, -1])
        self._out_mean, self._out_scale = float(wanted.mean()), float(max(wanted.std(), 1e-6))
        wanted = (wanted - self._out_mean) / self._out_scale
        self._hidden = hidden
        size = weights_of(hidden, samples.shape[1])
        # Not L-BFGS: at each step it solves small systems with LAPACK, which wakes threads for them; on two cores that
        # took seven times the CPU. With some 70 weights the whole matrix is cheap, and fewer steps are needed.
        found = [
            minimize(loss, rng.normal(0, 0.3, size), (hidden, inputs, wanted), "BFGS", jac=True, options=_OPTIONS)
            for _ in range(starts)
        ]
        self._weights: Array = min(found, key=lambda each: float(each.fun)).x

    def predict(self, samples: Array) -> Array:
        w1, b1, w2, line, b2 = _parts(self._weights, self._hidden, samples.shape[1])
        inputs = (np.log(samples) - self._mean) / self._scale
        logs = (np.tanh(inputs @ w1.T + b1) @ w2 + inputs @ line + b2) * self._out_scale + self._out_mean
        return np.asarray(np.exp(np.clip(logs, -30, 30)) * samples[:, -1])


def weights_of(hidden: int, inputs: int) -> int:
    """How many weights `LogNet` has."""
    return hidden * (inputs + 2) + inputs + 1


def loss(weights: Array, hidden: int, inputs: Array, wanted: Array) -> tuple[float, Array]:
    """How far `LogNet` is off with `weights` (w,), and the gradient (w,); `inputs` (s, i), `wanted` (s,), scaled."""
    # A straight line beside the hidden layer: most of what there is to learn are powers of the resources.
    w1, b1, w2, line, b2 = _parts(weights, hidden, inputs.shape[1])
    bent = np.tanh(inputs @ w1.T + b1)
    off = bent @ w2 + inputs @ line + b2 - wanted
    count = len(wanted)
    back = off[:, None] * w2 * (1 - bent**2) / count
    gradient = np.concatenate([
        (back.T @ inputs).ravel(), back.sum(axis=0), bent.T @ off / count, inputs.T @ off / count, [off.mean()],
    ])  # fmt: skip
    penalized = slice(0, hidden * (inputs.shape[1] + 2))
    found = float(off @ off / count / 2 + PENALTY / 2 * weights[penalized] @ weights[penalized])
    gradient[penalized] += PENALTY * weights[penalized]
    return found, gradient


def _parts(weights: Array, h: int, i: int) -> tuple[Array, Array, Array, Array, float]:
    """The weights of `h` hidden neurons and of the line, with `i` inputs."""
    w1 = weights[: h * i].reshape(h, i)
    b1, w2 = weights[h * i : h * (i + 1)], weights[h * (i + 1) : h * (i + 2)]
    return w1, b1, w2, weights[h * (i + 2) : h * (i + 2) + i], float(weights[-1])


def _range(values: Array) -> tuple[Array, Array]:
    low = values.min(axis=0)
    return low, np.maximum(values.max(axis=0) - low, 1e-9)
