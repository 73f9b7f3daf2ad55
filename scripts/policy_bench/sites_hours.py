"""Five hours of four nodes and five sites that never run dry: batches, budgets, recalls, each of them on or off. Pure.

Yu et al. 2014 measured this on machines of theirs. Here the pairs are those of
`sites_world`, and besides, a site refuses a node for a while now and then, as
sites do that see too much of one address: about one time in four.

A site's pages are with one node at a time, in a batch. It ends when all its pages
were tried, when its time is over, or when it is recalled; then somebody is chosen
for the next. Handing over takes two seconds in which nobody asks this site.

    switch         on                                       off
    scheduling     `dynamic` ranks the nodes with room      one of them by chance
    modification   `dynamic` sets pages and seconds         20 pages, and as many seconds as `off_budget_s`
    recall         `dynamic`: 20 to 60 s without a page     nothing does
                   end a batch

What a batch did not try when its time was over is heard of as recalled, as the
product's lender does it.
"""

from __future__ import annotations

import heapq
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from dhtcrawl.keyspace import url_key
from dhtcrawl.policy.dynamic import BATCH_OF_PAPER, BUDGET_MAX_S, Dynamic
from dhtcrawl.policy.seam import AssignmentTerms, Candidate, Outcome, Policy, PolicyTask, TaskResult
from policy_bench.sites_schedules import SETTINGS, AtRandom
from policy_bench.sites_world import TIMEOUT_S, World

HOURS = 5
BUCKET_S = 600.0
SLOTS = 2  # batches a node works on at a time: eight for five sites, so that there is somebody to choose
HAND_OVER_S = 2.0
WORKS_S, REFUSES_S = 1800.0, 600.0  # means of exponential distributions


class Switches(NamedTuple):
    """What is on."""

    scheduling: bool = False
    modification: bool = False
    recall: bool = False


class Refusals:
    """When a site refuses a node for a while: the same in every run of a seed."""

    def __init__(self, world: World, seed: int, seconds: float) -> None:
        self._changes = {}
        for pair in world.seconds:
            rng, at, changes = Random(f"{seed} {pair[0].hex()} {pair[1]}"), 0.0, list[float]()
            while at < seconds:
                at += rng.expovariate(1 / (REFUSES_S if len(changes) % 2 else WORKS_S))
                changes.append(at)
            self._changes[pair] = changes

    def now(self, node: bytes, site: str, now: float) -> bool:
        """Whether it does."""
        return bisect(self._changes[node, site], now) % 2 == 1


@dataclass(slots=True)
class Hours:
    """What came of them."""

    pages: Counter[tuple[int, bytes, str]] = field(default_factory=Counter)  # of each bucket of time
    batches: int = 0
    recalled: int = 0  # batches that brought nothing for too long


@dataclass(slots=True)
class _Batch:
    """Some pages of a site at a node."""

    node: bytes
    site: str
    ends_at: float
    left: int
    begun_at: float
    page_at: float  # when the last page came, or it began


class Run:
    """One run; `play` once."""

    def __init__(self, world: World, on: Switches, seed: int, hours: float = HOURS, off_budget_s: float = BUDGET_MAX_S):
        self.found = Hours()
        self._world, self._on, self._end_s = world, on, hours * 3600
        self._off = AssignmentTerms(BATCH_OF_PAPER, off_budget_s)
        self._rng = Random(seed)
        self.refusals = Refusals(world, seed, self._end_s)
        self._learns = Dynamic(SETTINGS)
        self._ranks: Policy = self._learns if on.scheduling else AtRandom(seed)
        self._lent: Counter[bytes] = Counter()  # pages
        self._busy: Counter[bytes] = Counter()  # slots
        self._last: dict[str, tuple[bytes, ...]] = {}  # who brought no page in the batch before
        # When, a number that makes it unique, the site, and what is under way there: None while it is handed over.
        self._events: list[tuple[float, int, str, _Batch | None, bool, float]] = []
        self._turn = 0

    def play(self) -> Hours:
        """All hours."""
        for site in self._world.pages:
            self._later(0.0, site)
        while self._events[0][0] < self._end_s:
            now, _, site, batch, good, took_s = heapq.heappop(self._events)
            if batch is None:
                self._hand_over(site, now)
            else:
                self._tried(batch, good, took_s, now)
        return self.found

    def _later(self, at: float, site: str, batch: _Batch | None = None, good: bool = False, took_s: float = 0) -> None:
        self._turn += 1
        heapq.heappush(self._events, (at, self._turn, site, batch, good, took_s))

    def _hand_over(self, site: str, now: float) -> None:
        free = [Candidate(node, self._lent[node]) for node in self._world.nodes if self._busy[node] < SLOTS]
        task = PolicyTask(url_key(f"http://{site}/{self._turn}"), site, self._last.get(site, ()))
        ranked = self._ranks.rank(task, free, now)
        node = ([each for each in ranked if each not in task.failed] or ranked)[0]
        terms = self._learns.terms(node, site) if self._on.modification else self._off
        self._busy[node] += 1
        self._lent[node] += terms.batch
        self.found.batches += 1
        self._try(_Batch(node, site, now + terms.budget_s, terms.batch, now, now), now)

    def _try(self, batch: _Batch, now: float) -> None:
        good, took_s = self._world.attempt(batch.node, batch.site, self._rng)
        if self.refusals.now(batch.node, batch.site, now):
            good, took_s = False, TIMEOUT_S
        self._later(now + took_s, batch.site, batch, good, took_s)

    def _tried(self, batch: _Batch, good: bool, took_s: float, now: float) -> None:
        self._hear(batch, TaskResult.PAGE if good else TaskResult.UNREACHABLE, took_s, now)
        batch.left -= 1
        self._lent[batch.node] -= 1
        if good:
            batch.page_at = now
            self.found.pages[int(now / BUCKET_S), batch.node, batch.site] += 1
        recalled = self._on.recall and now - batch.page_at >= self._idle_s(batch)
        self.found.recalled += recalled
        if batch.left and now < batch.ends_at and not recalled:
            self._try(batch, now)
        else:
            self._over(batch, now)

    def _idle_s(self, batch: _Batch) -> float:
        """After how long without a page a batch is recalled."""
        idle_s = self._learns.terms(batch.node, batch.site).idle_s
        assert idle_s is not None, "`dynamic` names it"
        return idle_s

    def _over(self, batch: _Batch, now: float) -> None:
        for _ in range(batch.left):
            self._hear(batch, TaskResult.RECALLED, now - batch.begun_at, now)
        self._lent[batch.node] -= batch.left
        self._busy[batch.node] -= 1
        # "Give to another node": not to the one that just brought nothing.
        self._last[batch.site] = (batch.node,) if batch.page_at == batch.begun_at else ()
        self._later(now + HAND_OVER_S, batch.site)

    def _hear(self, batch: _Batch, result: TaskResult, seconds: float, now: float) -> None:
        self._learns.heard(Outcome(batch.node, batch.site, result, seconds), now)


def at_home(world: World, pages: Counter[tuple[int, bytes, str]], buckets: Sequence[int]) -> dict[bytes, float]:
    """Of each node's pages in these buckets, the share from the site where it does best, compared with the others.

    A node that brought nothing is left out. "Compared": else the fastest site
    were everybody's best, and four nodes would have to share it.
    """
    mean = {site: sum(world.rate(node, site) for node in world.nodes) for site in world.pages}
    shares = {}
    for node in world.nodes:
        best = max(world.pages, key=lambda site: world.rate(node, site) / mean[site])
        brought = {site: sum(pages[bucket, node, site] for bucket in buckets) for site in world.pages}
        if total := sum(brought.values()):
            shares[node] = brought[best] / total
    return shares


def of_main_site(world: World, pages: Counter[tuple[int, bytes, str]], bucket: int) -> dict[bytes, float]:
    """Of each node's pages in this bucket, the share from the site that it brought most from; all sites alike: 0.2."""
    shares = {}
    for node in world.nodes:
        brought = [pages[bucket, node, site] for site in world.pages]
        if total := sum(brought):
            shares[node] = max(brought) / total
    return shares


def by_the_best(world: World, pages: Counter[tuple[int, bytes, str]], buckets: Sequence[int]) -> float:
    """Of all pages in these buckets, the share that the node which does best at their site brought."""
    best = {site: max(world.nodes, key=lambda node: world.rate(node, site)) for site in world.pages}
    brought = sum(pages[bucket, node, site] for bucket in buckets for site, node in best.items())
    return brought / max(sum(count for (bucket, *_), count in pages.items() if bucket in buckets), 1)
