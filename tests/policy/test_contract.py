"""Every policy keeps the contract; and each part of the contract catches one that does not."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import cycle
from random import Random
from typing import Any

import pytest

from dhtcrawl.policy import contract
from dhtcrawl.policy.contract import ContractError, settings
from dhtcrawl.policy.registry import OURS, load
from dhtcrawl.policy.rendezvous import rendezvous
from dhtcrawl.policy.seam import AssignmentTerms, Candidate, Outcome, Policy, PolicyTask, Settings, failed_last

# What an owner gives away depends on what all others own: a node that comes changes that for several of them.
NOT_KEPT = dict.fromkeys(("balanced", "dspider"), (contract.fair_to_change,))


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
    with pytest.raises(ContractError, match="1 of 7 parts"):
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


class Twice(Policy):
    """Not total, either."""

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        ids = sorted(each.node for each in candidates)
        return ids + ids[:1]


class Endless(Policy):
    """Never comes to an end."""

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return cycle(each.node for each in candidates)  # type: ignore[return-value]


class Itself(Policy):
    """Ranks a node that is no candidate."""

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return [*sorted(each.node for each in candidates), self.settings.own]


class InHex(Policy):
    """Answers with something that is no id."""

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return [each.node.hex() for each in candidates]  # type: ignore[misc]


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


class Picky(Forgetful):
    """Takes only plans that have weights."""

    def adopt(self, table: Mapping[str, Any]) -> None:
        table["weights"].items()


class OnlyKnown(Forgetful):
    """Hears only of what it ranked before."""

    def heard(self, outcome: Outcome, now: float) -> None:
        raise LookupError(outcome.host)


class FirstOnly(Forgetful):
    """Cannot do without candidates."""

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        candidates[0]
        return super().rank(task, candidates, now)


class Idle(Policy):
    """Ranks no node."""

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return []


class Greedy(Forgetful):
    """Wants more than there may be."""

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        return AssignmentTerms(batch=10**6)


class Unready(Forgetful):
    """Has no terms for a host that it does not know."""

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        raise KeyError(host)


class Many(Forgetful):
    """Says nonsense of itself."""

    candidates_max = "all"  # type: ignore[assignment]


class Unset(Forgetful):
    """Forgets its settings."""

    def __init__(self, settings: Settings) -> None:
        self.slow = set[bytes]()


class Own(Forgetful):
    """Keeps its own where its settings are."""

    def __init__(self, settings: Settings) -> None:
        self.settings = {"batch": 10}  # type: ignore[assignment]


BROKEN: list[tuple[contract.Part, type[Policy], str, str, str]] = [
    (
        contract.deterministic, ByChance,
        r"ranked task 0 \(http://site-0.test/0\) as \[[0-9a-f, ]+, and 6 more\], and as",
        "the same calls in the same order to bring the same ranks", "take chance from the task's key",
    ),
    (
        contract.stable, ByOrder, "ranked task 0 .* when the same candidates were given in another order",
        "whatever the order of the candidates", "sort by something that is the node's own",
    ),
    (
        contract.total, Short, "left out .* 10 candidates, after it had heard 300 outcomes",
        "each candidate once, and no other node", "does not help where the others have no room",
    ),
    (
        contract.total, Twice, r"ranked twice \[[0-9a-f]{8}\], for task 0 .* and 1 candidates",
        "each candidate once, and no other node", "3 times in a row is not asked any more: xor decides",
    ),
    (
        contract.total, Endless, r"ranked twice \[[0-9a-f]{8}\], for task 0 .* and 1 candidates",
        "each candidate once, and no other node", "3 times in a row is not asked any more: xor decides",
    ),
    (
        contract.total, Itself, r"ranked, though no candidate: \[00000000\]",
        "each candidate once, and no other node", "3 times in a row is not asked any more: xor decides",
    ),
    (
        contract.total, InHex, "ranked '[0-9a-f]{40}' for task 0",
        "node ids, which are bytes: `candidate.node`", "xor decides",
    ),
    (
        contract.total, FirstOnly, "raised IndexError: .* in rank, for task 1 .* and 0 candidates",
        "ranks for any task and candidates", "xor decides",
    ),
    (
        contract.fair_to_change, ByRemainder,
        "gave 1[0-9]{3} of 2000 tasks to another node when an eleventh came, which got",
        r"at most [0-9]+ to move", r"rendezvous hashing .* check\(make, but=\(fair_to_change,\)\)",
    ),
    (
        contract.fair_to_change, Idle, "ranked no node for task 0 .*, of 10 that may fetch it",
        "a node for each task", "waits",
    ),
    (
        contract.failed_nodes_last, Forgetful, r"ranked task 0 .*, which \[[0-9a-f, ]+\] had failed, as",
        "to be the last, in this order", r"failed_last\(ranked, task.failed\)",
    ),
    (
        contract.forgiving, Picky, r"raised KeyError: 'weights' in adopt\({}\)",
        "adopt to take any table", "over the wire",
    ),
    (
        contract.forgiving, OnlyKnown, "raised LookupError: nowhere.test in heard\\(Outcome",
        "any outcome to be taken", "xor decides",
    ),
    (
        contract.forgiving, Greedy, r"answered terms with AssignmentTerms\(batch=1000000",
        "a batch of 1 to 1000", "how many tasks a node gets",
    ),
    (
        contract.forgiving, Unready,
        "raised KeyError: 'site-1.test' in terms, for a node and a host that it has not heard of",
        "AssignmentTerms", "how many tasks a node gets",
    ),
    (
        contract.well_formed, Many, "candidates_max is 'all'",
        "whole numbers from 1 on", "as if the crawl had none",
    ),
    (
        contract.well_formed, Own, "says of itself: policy : settings is of type dict",
        "its settings", "as if the crawl had none",
    ),
    (
        contract.well_formed, Unset, "cannot be asked: AttributeError: 'Unset' object has no attribute 'settings'",
        r"let __init__ call super\(\).__init__\(settings\)", "as if the crawl had none",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("part", "broken", "did", "expected", "why"), BROKEN)
def test_what_breaks_the_contract_is_told_with_what_was_expected_and_why(
    part: contract.Part, broken: type[Policy], did: str, expected: str, why: str
) -> None:
    with pytest.raises(ContractError) as caught:
        part(lambda: broken(settings()))
    first, second, third = str(caught.value).splitlines()
    assert re.match(rf"{broken.__name__} .*{did}", first), first
    assert re.match(rf"  expected    .*{expected}", second), second
    assert re.match(rf"  because     .*{why}", third), third


def test_every_part_of_the_contract_catches_something() -> None:
    assert {part for part, *_ in BROKEN} == set(contract.PARTS)


def test_all_that_is_broken_is_told_at_once() -> None:
    with pytest.raises(ContractError) as caught:
        contract.check(lambda: ByChance(settings()))
    first, *rest = str(caught.value).split("\n\n")
    assert first == "4 of 7 parts of the contract (dhtcrawl.policy.contract) do not hold"
    assert [text.partition(":")[0] for text in rest] == [
        "deterministic", "stable", "fair_to_change", "failed_nodes_last",
    ]  # fmt: skip


def test_what_is_no_policy_is_told_so() -> None:
    class Lonely:
        name = "lonely"

    with pytest.raises(ContractError, match=r"Lonely object at .* is no policy"):
        contract.well_formed(Lonely)  # type: ignore[arg-type]
    for make in (Lonely, object, lambda: None, lambda: Forgetful):
        with pytest.raises(ContractError, match=r"^.* is no policy\n  expected    an object of .*Policy$"):
            contract.check(make)  # type: ignore[arg-type]


def test_the_contract_needs_no_test_framework() -> None:
    program = "import sys, dhtcrawl.policy.contract; print(sorted({'pytest', 'random', 'numpy'} & sys.modules.keys()))"
    # Without asserts, as with PYTHONOPTIMIZE, it finds the same.
    catches = (
        "from dhtcrawl.policy.contract import *\nfrom dhtcrawl.policy.seam import Policy\n"
        "try: check(lambda: Policy(settings()))\nexcept ContractError as error: print(str(error).splitlines()[0][:6])"
    )
    for code, said in ((program, "[]"), (catches, "6 of 7")):
        ended = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True)
        assert ended.stdout.strip() == said
