"""How long each node takes for so many tasks, by one of three models, and how far each is off on unseen batches.

    rates   pages a second of the node's latest batches
    net     a few nets of logarithms, their predictions averaged; what a page costs is asked of them only for as many
            tasks as the node has had in one batch, and beyond that stays what it is at the nearest such number
    paper   the paper's net, asked for any number, as the paper does

The error of a model is the mean of |predicted − taken| / taken over each node's
latest quarter of batches, by a model that was made from the earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dhtcrawl.policy.bp_pso.nets import LogNet, PaperNet
from dhtcrawl.policy.bp_pso.split import Array, Counts, Times

Indices: TypeAlias = NDArray[np.int64]

# Nets that start elsewhere agree where there are batches, and differ where there are none: their mean swings less.
ENSEMBLE = 3
RATE_BATCHES = 4  # as `dhtcrawl.swarm.assignment.pace` takes a rate: the latest, each length once
HELD_OUT = 4  # one batch in so many, the latest
SAMPLES_MAX = 1_000  # what is learned from at once, so that a plan of hundreds of nodes ends within seconds


@dataclass(frozen=True, slots=True)
class Batches:
    """Finished batches, each node's in their order: (b,) each."""

    whose: Indices  # the node's place in the list of all nodes
    pages: Array
    seconds: Array

    def __len__(self) -> int:
        return len(self.whose)

    def where(self, chosen: NDArray[np.bool_]) -> Batches:
        return Batches(self.whose[chosen], self.pages[chosen], self.seconds[chosen])

    def from_end(self) -> Indices:
        """How many batches of the same node come after each (b,)."""
        counts = np.bincount(self.whose, minlength=1)
        places = np.arange(len(self)) - (np.cumsum(counts) - counts)[self.whose]
        return np.asarray(counts[self.whose] - 1 - places)

    def latest(self, total: int) -> Batches:
        """About `total` of them at most, as many of each node as of any other that has so many."""
        nodes = len(np.unique(self.whose))
        return self.where(self.from_end() < max(total // max(nodes, 1), 1))

    def parted(self) -> tuple[Batches, Batches]:
        """Those to learn from, and each node's latest quarter, to judge by."""
        held = self.from_end() < (np.bincount(self.whose, minlength=1) // HELD_OUT)[self.whose]
        return self.where(~held), self.where(held)


class Model(Protocol):
    """Predicts how long nodes take."""

    def predict(self, whose: Indices, pages: Array) -> Array:
        """Seconds of the nodes at the places `whose` (b,) for so many `pages` (b,), each at least 1."""
        ...


class RatesModel:
    """Each page of a node takes as long as any other."""

    def __init__(self, rates: Array) -> None:
        """Pages a second (m,), 0 where not known: there the slowest of the others is expected. Not all are 0."""
        self._page_s = 1 / np.where(rates > 0, rates, rates[rates > 0].min())

    @classmethod
    def of(cls, batches: Batches, nodes: int) -> RatesModel:
        """By each node's latest batches; there is at least one batch."""
        latest = batches.where(batches.from_end() < RATE_BATCHES)
        pages = np.bincount(latest.whose, latest.pages, nodes)
        seconds = np.bincount(latest.whose, latest.seconds, nodes)
        return cls(np.divide(pages, seconds, out=np.zeros(nodes), where=seconds > 0))

    def predict(self, whose: Indices, pages: Array) -> Array:
        return np.asarray(self._page_s[whose] * pages)


class NetModel:
    """Trained once, when it is made."""

    def __init__(self, vectors: Array, batches: Batches, rng: np.random.Generator) -> None:
        """From the nodes' `vectors` (m, 5), all positive, and at least one batch."""
        self._vectors = vectors
        samples = np.column_stack([vectors[batches.whose], batches.pages])
        self._nets = [LogNet(samples, batches.seconds, rng, starts=1) for _ in range(ENSEMBLE)]
        # A node without batches may have as many tasks as any other had.
        self._low = np.full(len(vectors), batches.pages.min())
        self._high = np.full(len(vectors), batches.pages.max())
        for node in np.unique(batches.whose):
            own = batches.pages[batches.whose == node]
            self._low[node], self._high[node] = own.min(), own.max()

    def predict(self, whose: Indices, pages: Array) -> Array:
        seen = np.clip(pages, self._low[whose], self._high[whose])
        samples = np.column_stack([self._vectors[whose], seen])
        logs = np.mean([np.log(net.predict(samples)) for net in self._nets], axis=0)
        return np.asarray(np.exp(logs) * pages / seen)


class PaperModel:
    """The paper's net, trained once, when it is made."""

    def __init__(self, vectors: Array, batches: Batches, rng: np.random.Generator) -> None:
        """From the nodes' `vectors` (m, 5) and at least one batch."""
        self._vectors = vectors
        self._net = PaperNet(np.column_stack([vectors[batches.whose], batches.pages]), batches.seconds, rng)

    def predict(self, whose: Indices, pages: Array) -> Array:
        return self._net.predict(np.column_stack([self._vectors[whose], pages]))


def learned(name: str, vectors: Array, batches: Batches, rng: np.random.Generator) -> Model:
    """The model `net` or `paper`, trained from the nodes' `vectors` (m, 5), all positive, and at least one batch."""
    return (PaperModel if name == "paper" else NetModel)(vectors, batches, rng)


def error_of(model: Model, held: Batches) -> float:
    """The mean of |predicted − taken| / taken over at least one batch."""
    predicted = model.predict(held.whose, held.pages)
    return float(np.mean(np.abs(predicted - held.seconds) / held.seconds))


def times_of(model: Model, nodes: int) -> Times:
    """A model as splits ask for it."""
    everyone = np.arange(nodes)

    def times(counts: Counts) -> Array:
        return np.where(counts > 0, model.predict(everyone, np.maximum(counts, 1).astype(float)), 0.0)

    return times
