"""A policy that throws, or ranks nonsense, costs nothing but its advice: the crawl goes on under `xor`, and says so.

asked ──fine──▶ its answer
  └──threw, nonsense──▶ xor's answer; the third time in a row, or when it hung, xor's for good

Each of its methods is counted by itself: one that throws every time is noticed although the others answer between.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from dhtcrawl.errors import ConfigError
from dhtcrawl.policy.seam import (
    BATCH_MAX,
    TASKS_A_NODE_MAX,
    AssignmentTerms,
    Candidate,
    Outcome,
    Planner,
    Policy,
    PolicyTask,
    Settings,
)
from dhtcrawl.policy.xor import Xor

log = logging.getLogger(__name__)

FAULTS_MAX = 3
DECIDES_WITHIN_S = 5.0
BUDGET_MAX_S = 3600.0


class Guard(Policy):
    """Around any policy; never throws, and keeps the contract's `total`."""

    def __init__(self, inner: Policy) -> None:
        """Around `inner`.

        Raises:
            ConfigError: it says nonsense of itself.
        """
        super().__init__(_settings(inner))
        self.inner = inner
        self.made_planner: Planner | None = None  # made with it
        self.candidates_max = _count(inner, "candidates_max")
        self.failures_max = _count(inner, "failures_max")
        self.recalls_max = None if inner.recalls_max is None else _count(inner, "recalls_max")
        self.recall_idle_s = _seconds(inner, "recall_idle_s")
        self.given_up = ""  # why it is not asked any more; empty while it is
        self.faults = 0  # ever
        self._faults_told = 0
        self._in_a_row = Counter[str]()  # by method
        self._xor = Xor(self.settings)

    @property
    def pinned(self) -> bool:  # type: ignore[override]
        """Whether tasks wait for the first that it ranks; for the first of `xor`, which learns nothing, they do not."""
        return bool(self.inner.pinned) and not self.given_up

    @property
    def owner_first(self) -> bool:  # type: ignore[override]
        """Whether owners try first; they cannot try what is another type's."""
        return bool(self.inner.owner_first) and not self.settings.types

    @property
    def planner(self) -> type[Planner] | None:  # type: ignore[override]
        """What plans for it."""
        return self.inner.planner

    @property
    def learns(self) -> bool:
        """Whether it wants to hear of outcomes."""
        return getattr(self.inner.heard, "__func__", None) is not Policy.heard

    def new_faults(self) -> int:
        """How many faults there were since the last call."""
        before, self._faults_told = self._faults_told, self.faults
        return self._faults_told - before

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        if not self.given_up:
            try:
                # One that never ends, such as a cycle of the nodes, is nonsense as well. The list is its own to use up.
                ranked = list(islice(self.inner.rank(task, list(candidates), now), len(candidates) + 1))
            except BaseException as error:  # whatever another package's code throws
                self._fault("rank", error)
            else:
                wrong = _wrong(ranked, candidates)
                if not wrong:
                    self._in_a_row["rank"] = 0
                    return ranked
                self._fault("rank", wrong)
        return self._xor.rank(task, candidates, now)

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        if not self.given_up:
            try:
                terms = self.inner.terms(node, host)
                if sensible(terms):
                    self._in_a_row["terms"] = 0
                    return terms
                self._fault("terms", f"{terms!r}")
            except BaseException as error:
                self._fault("terms", error)
        return AssignmentTerms()

    def heard(self, outcome: Outcome, now: float) -> None:
        self._tell("heard", outcome, now)

    def adopt(self, table: Mapping[str, Any]) -> None:
        self._tell("adopt", table)

    def hung(self, seconds: float) -> None:
        """Ask the policy no more, as it did not answer in time."""
        self.faults += not self.given_up
        self._give_up(f"did not answer within {seconds:g} s")

    def _tell(self, what: str, *args: Any) -> None:
        if not self.given_up:
            try:
                getattr(self.inner, what)(*args)
                self._in_a_row[what] = 0
            except BaseException as error:
                self._fault(what, error)

    def _fault(self, what: str, why: object) -> None:
        self.faults += 1
        self._in_a_row[what] += 1
        text = said(why) if isinstance(why, BaseException) else str(why)
        if self._in_a_row[what] >= FAULTS_MAX:
            self._give_up(f"{what}: {text}")
        else:
            log.warning("policy %s: %s: %s; xor decides this time", self.inner.name, what, text[:200])

    def _give_up(self, why: str) -> None:
        if not self.given_up:
            self.given_up = why[:200]
            log.error(
                "policy %s is not asked any more (%s); the crawl goes on under xor", self.inner.name, self.given_up
            )


def _settings(policy: Policy) -> Settings:
    found: object = policy.settings
    if not isinstance(found, Settings):
        raise ConfigError(
            f"policy {policy.name}: settings is of type {type(found).__name__}; leave there what "
            "super().__init__(settings) puts there, and keep your own under another name"
        )
    return found


def _count(policy: Policy, name: str) -> int:
    value = getattr(policy, name)
    if type(value) is not int or value < 1:
        raise ConfigError(f"policy {policy.name}: {name} is {value!r}; it has to be a whole number from 1 on")
    return value


def _seconds(policy: Policy, name: str) -> float:
    value = getattr(policy, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= BUDGET_MAX_S:
        raise ConfigError(
            f"policy {policy.name}: {name} is {value!r}; it has to be a number of seconds, up to {BUDGET_MAX_S:g}"
        )
    return float(value)


def _wrong(ranked: list[Any], candidates: Sequence[Candidate]) -> str:
    """What is wrong with an answer; empty: nothing. To leave candidates out may be meant."""
    there = {candidate.node for candidate in candidates}
    if not all(isinstance(node, bytes) for node in ranked):
        return "it ranked something that is no node id"
    if not there.issuperset(ranked):
        return "it ranked a node that was no candidate"
    if len(set(ranked)) != len(ranked):
        return "it ranked a node twice"
    return ""


def sensible(terms: object) -> bool:
    """Whether these are terms on which a node may get tasks."""
    if not isinstance(terms, AssignmentTerms):
        return False
    optional = [1.0 if each is None else each for each in (terms.idle_s, terms.connect_timeout_s)]
    numbers = (terms.batch, terms.at_work_max, terms.budget_s, *optional)
    if any(isinstance(each, bool) or not isinstance(each, int | float) for each in numbers):
        return False
    if not (1 <= terms.batch <= BATCH_MAX and 0 <= terms.at_work_max <= TASKS_A_NODE_MAX):
        return False
    return all(0 < each <= BUDGET_MAX_S for each in numbers[2:])


def said(error: BaseException) -> str:
    """In words; an error of another package's code may not even have them."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:
        return type(error).__name__
