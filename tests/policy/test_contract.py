"""Every policy keeps the contract; and each part of the contract catches one that does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from dhtcrawl.policy.registry import OURS, load
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import Candidate, Policy, PolicyTask, Settings, failed_last

from . import contract
from .contract import settings

# What an owner gives away depends on what all others own: a node that comes changes that for several of them.
NOT_KEPT = {"balanced": (contract.fair_to_change,)}


@pytest.mark.parametrize("name", OURS)
def test_a_policy_keeps_the_contract(name: str) -> None:
    policy = load(name)
    contract.check(lambda: policy(settings()), but=NOT_KEPT.get(name, ()))


class InTurn(Policy):
    """Round robin: each task to the next node, whatever became of its place when a node came."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._ranked = 0

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        ids = sorted(each.node for each in candidates)
        self._ranked += 1
        start = self._ranked % len(ids) if ids else 0
        return failed_last(ids[start:] + ids[:start], task.failed)


def test_a_policy_that_remembers_keeps_the_contract_but_for_the_part_that_it_names() -> None:
    def make() -> Policy:
        return InTurn(settings())

    contract.check(make, but=(contract.fair_to_change,))
    with pytest.raises(AssertionError):
        contract.check(make)


class ByChance(Policy):
    """Not deterministic."""

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return Random().sample([each.node for each in candidates], len(candidates))


class ByOrder(Policy):
    """Not stable."""

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return [each.node for each in candidates]


class Short(Policy):
    """Not total."""

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return sorted(each.node for each in candidates)[:5]


class ByRemainder(Policy):
    """Not fair to change: nearly all tasks move when a node comes."""

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        ids = sorted(each.node for each in candidates)
        start = task.key[0] % len(ids) if ids else 0
        return ids[start:] + ids[:start]


class Forgetful(Policy):
    """Failed nodes are not last."""

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return rendezvous(task.key, [each.node for each in candidates], {})


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        (contract.deterministic, ByChance),
        (contract.stable, ByOrder),
        (contract.total, Short),
        (contract.fair_to_change, ByRemainder),
        (contract.failed_nodes_last, Forgetful),
    ],
)
def test_the_contract_catches(part: Callable[[contract.Make], None], broken: type[Policy]) -> None:
    with pytest.raises(AssertionError):
        part(lambda: broken(settings()))
