"""Whatever a policy does, the crawl goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import pytest
from harness.policies import Speechless

from dhtcrawl.errors import ConfigError
from dhtcrawl.policy import contract
from dhtcrawl.policy.choice import choose
from dhtcrawl.policy.contract import node, nodes, settings, task
from dhtcrawl.policy.dynamic import Dynamic
from dhtcrawl.policy.guard import FAULTS_MAX, Guard
from dhtcrawl.policy.seam import AssignmentTerms, Candidate, Outcome, Policy, PolicyTask, TaskResult, failed_last
from dhtcrawl.policy.xor import Xor

OUTCOME = Outcome(node(1), "a.test", TaskResult.PAGE, 1.0)


class Odd(Policy):
    """Answers whatever a test wants."""

    name = "odd"

    def __init__(self, answer: Callable[[PolicyTask, Sequence[Candidate]], Any]) -> None:
        super().__init__(settings())
        self.answer = answer
        self.asked = 0

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        self.asked += 1
        found: list[bytes] = self.answer(task, candidates)
        return found


def throws(*_: object) -> list[bytes]:
    raise KeyError("nothing")


def exits(*_: object) -> list[bytes]:
    raise SystemExit(3)


def is_cancelled(*_: object) -> list[bytes]:
    raise asyncio.CancelledError


def is_speechless(*_: object) -> list[bytes]:
    raise Speechless


@pytest.mark.parametrize(
    "answer",
    [
        throws,
        exits,
        is_cancelled,
        is_speechless,
        lambda task, candidates: None,
        lambda task, candidates: 3,
        lambda task, candidates: [None],
        lambda task, candidates: [b"nobody"],
        lambda task, candidates: [candidates[0].node] * 2,
        lambda task, candidates: cycle(each.node for each in candidates),
        lambda task, candidates: [candidate.node.hex() for candidate in candidates],
    ],
)
def test_a_policy_that_throws_or_ranks_nonsense_is_replaced_and_that_is_said(
    answer: Callable[[PolicyTask, Sequence[Candidate]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    odd = Odd(answer)
    guard = Guard(odd)
    xor = Xor(settings())
    with caplog.at_level(logging.WARNING):
        for number in range(10):
            assert guard.rank(task(number), nodes(5), 0.0) == xor.rank(task(number), nodes(5), 0.0)
    assert odd.asked == FAULTS_MAX
    assert guard.given_up
    assert sum("goes on under xor" in line for line in caplog.messages) == 1


def test_now_and_then_a_fault_is_forgiven() -> None:
    odd = Odd(lambda task, candidates: [each.node for each in candidates] if odd.asked % 3 else throws())
    guard = Guard(odd)
    for number in range(30):
        guard.rank(task(number), nodes(5), 0.0)
    assert odd.asked == 30
    assert guard.faults == 10
    assert not guard.given_up


def test_to_leave_candidates_out_is_no_fault() -> None:
    guard = Guard(Odd(lambda task, candidates: []))
    assert guard.rank(task(1), nodes(5), 0.0) == []
    assert not guard.faults


class TakesOut(Policy):
    """Ranks nodes by taking one after the other out of what it is given."""

    name = "takes-out"

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        left: Any = candidates
        left.sort(key=lambda each: each.node)
        return failed_last([left.pop(0).node for _ in range(len(left))], task.failed)


def test_a_policy_may_use_up_the_list_of_candidates() -> None:
    guard, there = Guard(TakesOut(settings())), nodes(5)
    assert guard.rank(task(1), there, 0.0) == sorted(each.node for each in there)
    assert (guard.faults, len(there)) == (0, 5)
    contract.total(lambda: TakesOut(settings()))


@pytest.mark.parametrize("name", ["candidates_max", "failures_max"])
@pytest.mark.parametrize("value", ["many", 0, -1, None, 2.5, True])
def test_a_policy_that_asks_for_nonsense_is_not_made(name: str, value: object) -> None:
    odd = Odd(lambda task, candidates: [])
    setattr(odd, name, value)
    with pytest.raises(ConfigError, match=f"{name} is {value!r}; it has to be a whole number from 1 on"):
        Guard(odd)


def test_a_policy_that_keeps_its_own_under_the_name_of_its_settings_is_not_made() -> None:
    odd: Any = Odd(lambda task, candidates: [])
    odd.settings = {"batch": 10}
    with pytest.raises(ConfigError, match=r"policy odd: settings is of type dict; .* keep your own under another name"):
        Guard(odd)


@pytest.mark.parametrize("value", ["many", 0, -1, 2.5, True])
def test_a_number_of_recalls_is_a_number_or_there_is_none(value: Any) -> None:
    odd = Odd(lambda task, candidates: [])
    assert Guard(odd).recalls_max is None
    odd.recalls_max = value
    with pytest.raises(ConfigError, match=f"recalls_max is {value!r}; it has to be a whole number from 1 on"):
        Guard(odd)


@pytest.mark.parametrize("value", ["long", 0, -1.0, None, True, float("nan")])
def test_after_how_long_a_recall_counts_is_a_number_of_seconds(value: Any) -> None:
    odd = Odd(lambda task, candidates: [])
    odd.recall_idle_s = value
    with pytest.raises(ConfigError, match=f"recall_idle_s is {value!r}; it has to be a number of seconds"):
        Guard(odd)


def test_what_came_of_tasks_is_kept_only_for_a_policy_that_learns() -> None:
    odd = Odd(lambda task, candidates: [])
    assert not Guard(odd).learns
    odd.heard = lambda outcome, now: None  # type: ignore[method-assign]
    assert Guard(odd).learns
    assert Guard(Dynamic(settings())).learns


def test_a_policy_that_hangs_is_not_asked_again() -> None:
    odd = Odd(lambda task, candidates: [each.node for each in candidates])
    guard = Guard(odd)
    guard.hung(5.0)
    assert guard.rank(task(1), nodes(5), 0.0) == Xor(settings()).rank(task(1), nodes(5), 0.0)
    guard.heard(OUTCOME, 0.0)
    assert odd.asked == 0
    assert "5 s" in guard.given_up
    assert guard.new_faults() == 1
    guard.hung(5.0)
    assert guard.new_faults() == 0, "of one that is not asked any more"


def test_where_xor_goes_on_for_a_policy_no_task_waits_for_a_node_that_begins_none() -> None:
    class Pinned(Xor):
        pinned = True

    guard = Guard(Pinned(settings()))
    stuck = guard.rank(task(1), nodes(5), 0.0)[0]
    again = task(1)._replace(recalled=(stuck,))

    def chosen() -> list[bytes]:
        return list(choose(guard, [again], lambda task: [each.node for each in nodes(5)], {}, 0.0).keys)

    assert chosen() == [stuck]
    guard.hung(5.0)
    assert chosen() != [stuck]


@pytest.mark.parametrize(
    "terms",
    [
        None,
        3,
        AssignmentTerms(batch=0),
        AssignmentTerms(batch=10**9),
        AssignmentTerms(budget_s=0),
        AssignmentTerms(budget_s=float("nan")),
        AssignmentTerms(connect_timeout_s=-1.0),
        AssignmentTerms(idle_s=0.0),
        AssignmentTerms(batch=True),
        AssignmentTerms(budget_s="x"),  # type: ignore[arg-type]
    ],
)
def test_senseless_terms_are_replaced(terms: Any) -> None:
    class Hasty(Xor):
        def terms(self, node: bytes, host: str) -> AssignmentTerms:
            found: AssignmentTerms = terms
            return found

    assert Guard(Hasty(settings())).terms(node(1), "a.test") == AssignmentTerms()


def test_what_a_policy_is_told_never_comes_back_as_an_error() -> None:
    class Deaf(Xor):
        def heard(self, outcome: Outcome, now: float) -> None:
            raise ValueError("no")

    guard = Guard(Deaf(settings()))
    guard.heard(OUTCOME, 0.0)
    assert guard.faults == 1


@pytest.mark.parametrize("method", ["terms", "heard", "adopt"])
def test_a_method_that_always_throws_ends_the_policy_though_its_rankings_are_sound(
    method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    odd = Odd(lambda task, candidates: [each.node for each in candidates])
    monkeypatch.setattr(odd, method, throws)
    guard, told = Guard(odd), []
    asked: dict[str, Callable[[], object]] = {
        "terms": lambda: guard.terms(node(1), "a.test"),
        "heard": lambda: guard.heard(OUTCOME, 0.0),
        "adopt": lambda: guard.adopt({}),
    }
    for number in range(2 * FAULTS_MAX):
        guard.rank(task(number), nodes(5), 0.0)
        asked[method]()
        told.append(guard.new_faults())
    assert told == [1] * FAULTS_MAX + [0] * FAULTS_MAX
    assert guard.given_up == f"{method}: KeyError: 'nothing'"
    assert sum("goes on under xor" in line for line in caplog.messages) == 1


def test_a_guarded_policy_keeps_the_contract() -> None:
    contract.check(lambda: Guard(Xor(settings())))
