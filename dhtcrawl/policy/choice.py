"""Who is to fetch which tasks: a policy's ranks, and the first of each that has room. Pure.

A task goes to the best-ranked node that has not its batch of this host full,
nor `TASKS_A_NODE_MAX` of all hosts. Where no node has room it waits: it may
go to the node that is best later, while an assigned task stays for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dhtcrawl.policy.seam import AssignmentTerms, Candidate, Outcome, Policy, PolicyTask

TASKS_A_NODE_MAX = 2_000


@dataclass(slots=True)
class Choice:
    """What was decided: the keys for each node, by host, and on which terms."""

    keys: dict[bytes, dict[str, list[bytes]]] = field(default_factory=dict)
    terms: dict[tuple[bytes, str], AssignmentTerms] = field(default_factory=dict)
    waiting: int = 0  # tasks for which no node has room
    unranked: int = 0  # tasks for which the policy ranks no node


def choose(
    policy: Policy,
    tasks: Iterable[PolicyTask],
    candidates_of: Callable[[PolicyTask], Sequence[bytes]],
    lent: Mapping[tuple[bytes, str], int],
    now: float,
) -> Choice:
    """Decide for these tasks. `lent` counts what each node has of each host already."""
    choice = Choice()
    at = Counter(lent)
    of: Counter[bytes] = Counter()
    for (node, _), count in lent.items():
        of[node] += count
    for task in tasks:
        nodes = candidates_of(task)
        ranked = policy.rank(task, [Candidate(node, of[node]) for node in nodes], now)
        choice.unranked += not ranked
        # A node that failed has it again only where there is no other.
        able = [node for node in ranked if node not in task.failed] or ranked
        if task.recalled and not policy.pinned:
            # The next of the ranking, then the one that had it longest ago.
            able = sorted(able, key=lambda node: task.recalled.index(node) if node in task.recalled else -1)
        for node in able[:1] if policy.pinned else able:
            terms = choice.terms.get((node, task.host))
            if terms is None:
                terms = choice.terms[node, task.host] = policy.terms(node, task.host)
            if at[node, task.host] < terms.batch and of[node] < TASKS_A_NODE_MAX:
                at[node, task.host] += 1
                of[node] += 1
                choice.keys.setdefault(node, {}).setdefault(task.host, []).append(task.key)
                break
        else:
            choice.waiting += 1
    return choice


def learn_and_choose(
    policy: Policy,
    table: Mapping[str, Any] | None,
    heard: Iterable[tuple[Outcome, float]],
    tasks: Sequence[PolicyTask],
    candidates_of: Callable[[PolicyTask], Sequence[bytes]],
    lent: Mapping[tuple[bytes, str], int],
    now: float,
) -> Choice:
    """The same after the policy was given a new plan, and told the outcomes of earlier tasks, and when."""
    if table is not None:
        policy.adopt(table)
    for outcome, at in heard:
        policy.heard(outcome, at)
    return choose(policy, tasks, candidates_of, lent, now)
