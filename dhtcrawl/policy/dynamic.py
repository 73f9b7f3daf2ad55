"""`dynamic`: the node that does best at a site gets its tasks, and others are tried now and then (Yu et al. 2014).

The paper keeps two tables, completion (pages fetched of those asked for) and
efficiency (seconds a page), and gives tasks to nodes high in both. It names no
formula, and a node that was once bad at a site is never tried again. Here, for
each (node, site):

    a, b ← 0.9 (a, b) + (good, bad)          the results of its attempts, the latest count most
    e    ← 0.7 e + 0.3 seconds               an attempt's
    score = min(1, (a + 1.5) / (a + b + 2) + 0.5 √(ln T / (a + b + 1))) / e

an upper confidence bound on completion (Auer et al. 2002), divided by the time
an attempt takes; T counts the site's attempts. Where a pair has no e yet, the
node's and the site's effects say what to expect.

The paper's nodes are of types, and a task goes to nodes of its type only: with
the option `type=NAME` the crawl's tasks go to nodes that were started with
`--label type=NAME`. The coordinator tells the owners which those are.

A node that brings no page of a site for a minute has its tasks of that site
recalled. A task that was recalled five times so is left to a person.

Batches follow additive increase, multiplicative decrease (Chiu & Jain 1989):
20 tasks, 5 more when 85 % are done, half when fewer than 50 % are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Any, ClassVar, TypeVar

from dhtcrawl.policy.node_types import Types, types_in
from dhtcrawl.policy.seam import (
    AssignmentTerms,
    Candidate,
    Outcome,
    Policy,
    PolicyTask,
    Settings,
    TaskResult,
    failed_last,
)

FADES, E_KEEPS = 0.9, 0.7
EXPLORES = 0.5
BATCH_FIRST, BATCH_MIN, BATCH_MAX = 20, 5, 100
BATCH_MORE, DONE_WELL, DONE_BADLY = 5, 0.85, 0.5
BUDGET_TIMES, BUDGET_MIN_S, BUDGET_MAX_S = 2.5, 20.0, 600.0
IDLE_S = 60.0  # the paper's: without a page for so long, a batch is recalled
SECONDS_UNKNOWN = 1.0
PAIRS_MAX = 100_000

K = TypeVar("K")
V = TypeVar("V")


@dataclass(slots=True)
class _Pair:
    """One node at one site."""

    good: float = 0.0
    bad: float = 0.0
    seconds: float | None = None  # an attempt's
    batch: float = BATCH_FIRST
    in_batch: int = 0  # outcomes since the batch was last looked at
    good_in_batch: int = 0


@dataclass(slots=True)
class _Site:
    """A site, over all nodes that ask it."""

    attempts: int = 0
    effect: float | None = None  # the logarithm of what an attempt takes


class Dynamic(Policy):
    """Learns from the outcomes of its owner's loans."""

    name = "dynamic"
    about = "the node that does best at a site fetches: pages brought of those tried, and seconds a page"
    options: ClassVar = {"type": ()}
    recalls_max = 5  # the paper's

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._type = settings.options.get("type")
        self.planner = None if self._type is None else Types
        self._types: Mapping[bytes, object] = {}
        self._pairs: dict[tuple[bytes, str], _Pair] = {}  # the least recently used first
        self._sites: dict[str, _Site] = {}
        self._nodes: dict[bytes, float] = {}  # by how much the logarithm is more or less than the site's

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        # Who has a full batch comes after those who have room, by the same order.
        able = [each for each in candidates if self._type is None or self._types.get(each.node) == self._type]
        scored = [
            (each.lent >= self.terms(each.node, task.host).batch, -self.score(each.node, task.host), each.node)
            for each in able
        ]
        return failed_last([node for *_, node in sorted(scored)], task.failed)

    def adopt(self, table: Mapping[str, Any]) -> None:
        self._types = types_in(table)

    def score(self, node: bytes, host: str) -> float:
        """How well a node does at a site, or may do: pages a second, at most."""
        pair = self._pairs.get((node, host), _NEW_PAIR)
        tried = pair.good + pair.bad
        hope = EXPLORES * sqrt(log(max(self._sites.get(host, _NEW_SITE).attempts, 1)) / (tried + 1))
        return min(1.0, (pair.good + 1.5) / (tried + 2) + hope) / self.seconds(node, host)

    def seconds(self, node: bytes, host: str) -> float:
        """What an attempt takes, or is to be expected to."""
        pair = self._pairs.get((node, host), _NEW_PAIR)
        if pair.seconds is not None:
            return pair.seconds
        effect = self._sites.get(host, _NEW_SITE).effect
        return exp((log(SECONDS_UNKNOWN) if effect is None else effect) + self._nodes.get(node, 0.0))

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        batch = int(self._pairs.get((node, host), _NEW_PAIR).batch)
        budget_s = min(max(BUDGET_TIMES * batch * self.seconds(node, host), BUDGET_MIN_S), BUDGET_MAX_S)
        return AssignmentTerms(batch, budget_s, idle_s=IDLE_S)

    def heard(self, outcome: Outcome, now: float) -> None:
        pair = self._pair(outcome.node, outcome.host)
        good = outcome.result is TaskResult.PAGE
        pair.good = FADES * pair.good + good
        pair.bad = FADES * pair.bad + (not good)
        site = _recent(self._sites, outcome.host, _Site)
        site.attempts += 1
        self._time(pair, site, outcome)
        pair.in_batch += 1
        pair.good_in_batch += good
        if pair.in_batch >= pair.batch:
            self._next_batch(pair)

    def _time(self, pair: _Pair, site: _Site, outcome: Outcome) -> None:
        seconds = max(outcome.seconds, 1e-3)
        pair.seconds = _blend(pair.seconds, seconds)
        if site.effect is not None:
            of_node = self._nodes.get(outcome.node)
            self._nodes[outcome.node] = _blend(of_node, log(seconds) - site.effect)
        site.effect = _blend(site.effect, log(seconds))

    def _next_batch(self, pair: _Pair) -> None:
        done = pair.good_in_batch / pair.in_batch
        if done >= DONE_WELL:
            pair.batch = min(pair.batch + BATCH_MORE, BATCH_MAX)
        elif done < DONE_BADLY:
            pair.batch = max(pair.batch / 2, BATCH_MIN)
        pair.in_batch = pair.good_in_batch = 0

    def _pair(self, node: bytes, host: str) -> _Pair:
        return _recent(self._pairs, (node, host), _Pair)


_NEW_PAIR, _NEW_SITE = _Pair(), _Site()


def _blend(before: float | None, now: float) -> float:
    return now if before is None else E_KEEPS * before + (1 - E_KEEPS) * now


def _recent(known: dict[K, V], key: K, make: Callable[[], V]) -> V:
    """The entry of a key, the most recently used now; the least recently used one goes where there are too many."""
    value = known.pop(key, None)
    known[key] = value = make() if value is None else value
    if len(known) > PAIRS_MAX:
        del known[next(iter(known))]
    return value
