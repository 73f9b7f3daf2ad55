"""Whom Yu et al. (2014) are compared with: policies that know less than `dynamic`, and one that knows all. Pure.

Each is a policy like the product's, and `dynamic` is the product's. Candidates
are the nodes with a free slot: a policy that names none of them lets the task wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from dhtcrawl.keyspace import distance, host_key, placement
from dhtcrawl.policy.dynamic import Dynamic
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import Candidate, Outcome, Policy, PolicyTask, Settings, TaskResult, failed_last
from policy_bench.sites_world import PolicyOf, World

SETTINGS = Settings(bytes(20))


class AtRandom(Policy):
    """Anybody."""

    def __init__(self, seed: int) -> None:
        super().__init__(SETTINGS)
        self._rng = Random(seed)

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return self._rng.sample([each.node for each in candidates], len(candidates))


class FixedOwner(Policy):
    """A site has one node, whatever comes of it."""

    def __init__(self, nodes: Sequence[bytes], hands_off: bool) -> None:
        super().__init__(SETTINGS)
        self._nodes = nodes
        self._hands_off = hands_off  # a task that failed goes to the next
        self._ranked: dict[str, list[bytes]] = {}

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        if task.host not in self._ranked:
            self._ranked[task.host] = rendezvous(host_key(task.host), self._nodes, {})
        ranked = self._ranked[task.host]
        first = (failed_last(ranked, task.failed) if self._hands_off else ranked)[0]
        return [each.node for each in candidates if each.node == first]


class Completion(Policy):
    """The paper's table of pages fetched of those asked for, and nothing else; who was never asked is perfect."""

    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self._asked: Counter[tuple[bytes, str]] = Counter()
        self._fetched: Counter[tuple[bytes, str]] = Counter()

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        # The paper says nothing of equals: by a hash of the task, so that no node is favoured.
        ranked = rendezvous(task.key, [each.node for each in candidates], {})
        return failed_last(sorted(ranked, key=lambda node: -self._rate(node, task.host)), task.failed)

    def _rate(self, node: bytes, site: str) -> float:
        asked = self._asked[node, site]
        return self._fetched[node, site] / asked if asked else 1.0

    def heard(self, outcome: Outcome, now: float) -> None:
        self._asked[outcome.node, outcome.host] += 1
        self._fetched[outcome.node, outcome.host] += outcome.result is TaskResult.PAGE


class Oracle(Policy):
    """Knows from the start what each pair brings; greedy, so that it is no bound."""

    def __init__(self, world: World) -> None:
        super().__init__(SETTINGS)
        self._world = world

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return sorted((each.node for each in candidates), key=lambda node: -self._world.rate(node, task.host))


def owners(world: World, key_of: Callable[[PolicyTask], bytes]) -> PolicyOf:
    """Nobody sees all outcomes: each node has a `dynamic` of its own, and decides about the tasks closest to it."""
    policies = {node: Dynamic(Settings(node)) for node in world.nodes}
    owner_of: dict[bytes, bytes] = {}

    def policy_of(task: PolicyTask) -> Policy:
        key = placement(key_of(task))
        if key not in owner_of:
            owner_of[key] = min(world.nodes, key=lambda node: distance(node, key))
        return policies[owner_of[key]]

    return policy_of


def alone(policy: Policy) -> PolicyOf:
    """One policy that decides everything and hears everything, as the paper's scheduler does."""
    return lambda task: policy


SCHEDULES: dict[str, Callable[[World, int], PolicyOf]] = {
    "random": lambda world, seed: alone(AtRandom(seed)),
    "fixed owner": lambda world, seed: alone(FixedOwner(world.nodes, hands_off=False)),
    "owner with hand-off": lambda world, seed: alone(FixedOwner(world.nodes, hands_off=True)),
    "completion only": lambda world, seed: alone(Completion()),
    "mode=paper": lambda world, seed: alone(Dynamic(Settings(bytes(20), {"mode": "paper"}))),
    "dynamic": lambda world, seed: alone(Dynamic(SETTINGS)),
    "oracle": lambda world, seed: alone(Oracle(world)),
    "dynamic, an owner a site": lambda world, seed: owners(world, lambda task: host_key(task.host)),
    "dynamic, an owner a page": lambda world, seed: owners(world, lambda task: task.key),
}
