"""Every policy keeps the contract; and each part of the contract catches one that does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from dhtcrawl.policy.balanced import Balanced
from dhtcrawl.policy.bp_pso.policy import BpPso
from dhtcrawl.policy.dspider import DSpider
from dhtcrawl.policy.dynamic import Dynamic
from dhtcrawl.policy.gnp.policy import Gnp
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import Candidate, Policy, PolicyTask
from dhtcrawl.policy.xor import Xor

from . import contract
from .contract import settings


@pytest.mark.parametrize("policy", [Xor, Balanced, Dynamic, DSpider, BpPso, Gnp])
def test_a_policy_keeps_the_contract(policy: type[Policy]) -> None:
    contract.check(lambda: policy(settings()))


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
