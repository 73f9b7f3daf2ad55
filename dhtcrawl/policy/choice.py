"""Who is to fetch which tasks: a policy's ranks, and the first of each that has room. Pure.

A task goes to the best-ranked node that has not its batch of this host full,
nor `TASKS_A_NODE_MAX` of all hosts, nor, if the host has no delay, as many of
such hosts as its terms allow: those wait for the node, and the others for their
hosts. Where no node has room it waits: it may go to the node that is best
later, while an assigned task stays for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dhtcrawl.policy.seam import TASKS_A_NODE_MAX, AssignmentTerms, Candidate, Outcome, Policy, PolicyTask


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
    polite: Container[str] = (),
) -> Choice:
    """Decide for these tasks. `lent` counts what each node has of each host already; `polite` hosts have a delay."""
    choice, rooms = Choice(), _Rooms(lent, polite)
    for task in tasks:
        nodes = candidates_of(task)
        if rooms.none_at(nodes, task.host):
            choice.waiting += 1
            continue
        ranked = policy.rank(task, rooms.candidates(nodes), now)
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
            if rooms.takes(node, task.host, terms):
                choice.keys.setdefault(node, {}).setdefault(task.host, []).append(task.key)
                break
        else:
            choice.waiting += 1
            if len(able) == len(nodes) and not policy.pinned:
                rooms.none_left(nodes, task.host)
    return choice


class _Rooms:
    """How much each node has, and which have no room left: that does not change before the choice is over."""

    def __init__(self, lent: Mapping[tuple[bytes, str], int], polite: Container[str]) -> None:
        self._polite = polite
        self._at = Counter(lent)
        self._of: Counter[bytes] = Counter()
        self._at_work: Counter[bytes] = Counter()
        for (node, host), count in lent.items():
            self._of[node] += count
            self._at_work[node] += 0 if host in polite else count
        self._busy: set[bytes] = set()  # nodes that have all they may of hosts without a delay
        self._none_at: dict[str, Sequence[bytes]] = {}  # by host, candidates none of which has room

    def candidates(self, nodes: Sequence[bytes]) -> list[Candidate]:
        """The nodes, with what each of them has."""
        return [Candidate(node, self._of[node], self._at_work[node]) for node in nodes]

    def takes(self, node: bytes, host: str, terms: AssignmentTerms) -> bool:
        """Give a node a task of a host, if it has room on these terms."""
        works = host not in self._polite
        if works and self._at_work[node] >= terms.at_work_max:
            self._busy.add(node)
            return False
        if self._at[node, host] >= terms.batch or self._of[node] >= TASKS_A_NODE_MAX:
            return False
        self._at[node, host] += 1
        self._of[node] += 1
        self._at_work[node] += works
        return True

    def none_left(self, nodes: Sequence[bytes], host: str) -> None:
        """None of these nodes has room for a task of a host, whichever it is."""
        self._none_at[host] = nodes

    def none_at(self, nodes: Sequence[bytes], host: str) -> bool:
        """Whether it is known that none of these nodes has room for a task of a host."""
        if self._none_at.get(host) is nodes:
            return True
        return bool(nodes) and host not in self._polite and self._busy.issuperset(nodes)


def learn_and_choose(
    policy: Policy,
    table: Mapping[str, Any] | None,
    heard: Iterable[tuple[Outcome, float]],
    tasks: Sequence[PolicyTask],
    candidates_of: Callable[[PolicyTask], Sequence[bytes]],
    lent: Mapping[tuple[bytes, str], int],
    now: float,
    polite: Container[str] = (),
) -> Choice:
    """The same after the policy was given a new plan, and told the outcomes of earlier tasks, and when."""
    if table is not None:
        policy.adopt(table)
    for outcome, at in heard:
        policy.heard(outcome, at)
    return choose(policy, tasks, candidates_of, lent, now, polite)
