"""Nodes, sites, and pairs of them that do not get on: who is how fast where, and a run of it page by page. Pure.

Yu et al. 2014 name 4 nodes, 5 sites and no figures of them. This world is ours:

    a node          is up to 4 times as fast as another; it makes a few requests at a time
    a site          is up to 8 times as slow as another; it is asked by one node at a time, for one page
    a pair          has a bit of luck, log-normal with 0.3; of 50 attempts one fails
    a blocked pair  is one of five: 19 of 20 attempts end in a time-out

A page is tried until it comes, or until five nodes failed it, or all: then it is a
person's, as in the paper. Who is asked is decided by the product's own `choose`
among the nodes with a free slot. Events on a heap, chance from a seed.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from random import Random

from dhtcrawl.keyspace import url_key
from dhtcrawl.policy.choice import choose
from dhtcrawl.policy.seam import Outcome, Policy, PolicyTask, TaskResult

SLOTS = 10  # all in all twice as many as 60 sites can use
TIMEOUT_S = 10.0
FAILS, BLOCKED_FAILS = 0.02, 0.95
BLOCKED = 0.2
PAGES_MIN, PAGES_MAX = 60, 180
NODE_SPREAD, SITE_SPREAD, PAIR_SPREAD = 1.4, 2.1, 0.3  # exponents: 4 times, 8 times, and a standard deviation
NODE_FASTEST_S = 0.5

PolicyOf = Callable[[PolicyTask], Policy]


@dataclass(frozen=True, slots=True)
class World:
    """Who is how fast where."""

    nodes: list[bytes]
    pages: dict[str, int]  # of each site
    seconds: dict[tuple[bytes, str], float]  # an attempt that works, on average
    blocked: dict[tuple[bytes, str], None]  # in order, as a set is not

    def fails(self, node: bytes, site: str) -> float:
        """How often an attempt brings nothing."""
        return BLOCKED_FAILS if (node, site) in self.blocked else FAILS

    def rate(self, node: bytes, site: str) -> float:
        """Pages a second that come when this node alone asks."""
        fails = self.fails(node, site)
        return (1 - fails) / ((1 - fails) * self.seconds[node, site] + fails * TIMEOUT_S)

    def attempt(self, node: bytes, site: str, rng: Random) -> tuple[bool, float]:
        """Whether a page came, and how long that took."""
        if rng.random() < self.fails(node, site):
            return False, TIMEOUT_S
        return True, self.seconds[node, site] * rng.uniform(0.7, 1.3)


def draw(seed: int, nodes: int = 12, sites: int = 60) -> World:
    """The world of a seed; every site works from some node."""
    rng = Random(seed)
    ids = [rng.randbytes(20) for _ in range(nodes)]
    pages = {f"site-{number}.test": rng.randint(PAGES_MIN, PAGES_MAX) for number in range(sites)}
    of_node = {node: NODE_FASTEST_S * exp(rng.uniform(0, NODE_SPREAD)) for node in ids}
    of_site = {site: exp(rng.uniform(0, SITE_SPREAD)) for site in pages}
    pairs = [(node, site) for node in ids for site in pages]
    seconds = {(n, s): of_node[n] * of_site[s] * exp(rng.gauss(0, PAIR_SPREAD)) for n, s in pairs}
    blocked = {pair: None for pair in pairs if rng.random() < BLOCKED}
    for site in pages:
        if all((node, site) in blocked for node in ids):
            del blocked[rng.choice(ids), site]
    return World(ids, pages, seconds, blocked)


@dataclass(slots=True)
class Run:
    """What came of it."""

    makespan_s: float = 0.0
    pages: int = 0
    attempts: int = 0
    manual: int = 0  # left to a person


@dataclass(slots=True)
class _State:
    """Where everything is."""

    waiting: dict[str, deque[PolicyTask]]  # of each site
    idle: dict[str, None]  # sites that have tasks and are not asked, the longest idle first
    lent: Counter[tuple[bytes, str]]
    free: dict[bytes, int]


def simulate(world: World, policy_of: PolicyOf, seed: int, slots: int = SLOTS) -> Run:
    """All pages of all sites; each task has a policy that decides about it, and hears what came of it."""
    rng, run, now, turn = Random(seed), Run(), 0.0, 0
    state = _start(world, slots)
    events: list[tuple[float, int, bytes, PolicyTask, bool, float]] = []
    while True:
        for node, task in _begun(state, policy_of, now):
            good, took_s = world.attempt(node, task.host, rng)
            turn += 1
            heapq.heappush(events, (now + took_s, turn, node, task, good, took_s))
        if not events:
            return run
        now, _, node, task, good, took_s = heapq.heappop(events)
        state.free[node] += 1
        del state.lent[node, task.host]
        run.makespan_s = now
        run.attempts += 1
        policy_of(task).heard(
            Outcome(node, task.host, TaskResult.PAGE if good else TaskResult.UNREACHABLE, took_s), now
        )
        failed = tuple(dict.fromkeys((*task.failed, node)))
        if good:
            run.pages += 1
        elif len(failed) >= min(Policy.failures_max, len(world.nodes)):
            run.manual += 1
        else:
            state.waiting[task.host].append(task._replace(failed=failed))
        if state.waiting[task.host]:
            state.idle[task.host] = None


def _start(world: World, slots: int) -> _State:
    waiting = {
        site: deque(PolicyTask(url_key(f"http://{site}/{number}"), site) for number in range(count))
        for site, count in world.pages.items()
    }
    return _State(waiting, dict.fromkeys(world.pages), Counter(), dict.fromkeys(world.nodes, slots))


def _begun(state: _State, policy_of: PolicyOf, now: float) -> list[tuple[bytes, PolicyTask]]:
    """What can begin, site after site."""
    begun = []
    for site in list(state.idle):
        task = state.waiting[site][0]
        node = _chosen(state, policy_of(task), task, now)
        if node is not None:
            begun.append((node, state.waiting[site].popleft()))
            state.lent[node, site] += 1
            state.free[node] -= 1
            del state.idle[site]
    return begun


def _chosen(state: _State, policy: Policy, task: PolicyTask, now: float) -> bytes | None:
    """Who is to try a task now; None: it waits."""
    free = [node for node, slots in state.free.items() if slots]
    return next(iter(choose(policy, [task], lambda _: free, state.lent, now).keys), None) if free else None
