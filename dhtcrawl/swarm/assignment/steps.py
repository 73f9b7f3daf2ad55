"""What an owner's decisions about its tasks have the shell do, each a value. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dhtcrawl.policy.choice import Choice, choose, learn_and_choose
from dhtcrawl.policy.guard import DECIDES_WITHIN_S, Guard
from dhtcrawl.policy.seam import Outcome, PolicyTask
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.swarm.assignment.assigned import TaskAssignment


@dataclass(frozen=True, slots=True)
class ChoiceAsk:
    """What a policy is asked, with what it is to learn before."""

    policy: Guard
    tasks: Sequence[PolicyTask]
    nodes: Callable[[PolicyTask], Sequence[bytes]]  # which may be asked now
    lent: Mapping[tuple[bytes, str], int]  # how many tasks each node has of each host
    now: float
    table: Mapping[str, Any] | None  # a plan that the policy has not been given yet
    heard: Sequence[tuple[Outcome, float]]
    polite: Container[str] = ()  # hosts that have a delay

    def answer(self) -> Choice:
        """The policy's choice; it may take long, or never end."""
        return learn_and_choose(
            self.policy, self.table, self.heard, self.tasks, self.nodes, self.lent, self.now, self.polite
        )

    def answer_without(self) -> Choice:
        """The choice after the policy did not answer in time: it is not asked any more."""
        self.policy.hung(DECIDES_WITHIN_S)
        return choose(self.policy, self.tasks, self.nodes, self.lent, self.now, self.polite)


@dataclass(frozen=True, slots=True)
class StartHere:
    """The frontier may start these tasks of a host."""

    host: str
    keys: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class TakeOut:
    """These tasks of a host leave the frontier: another node has them."""

    host: str
    keys: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class PutBack:
    """A task that its owner could not fetch waits again for a choice."""

    host: str
    task: Queued


@dataclass(frozen=True, slots=True)
class Send:
    """Take these out of the stored queues, send their records to a node, and then offer it the tasks."""

    node: bytes
    tasks: Mapping[bytes, TaskAssignment]
    connect_s: Mapping[str, float]  # how long each host may take to connect


@dataclass(frozen=True, slots=True)
class Offer:
    """What a node is told that it may fetch; for those in `patient` no other node is left."""

    keys: tuple[bytes, ...]
    patient: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Recall these tasks, which a node has not begun, or is late with."""

    node: bytes
    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class MakeForget:
    """A node that was cut off is back: it has to forget what it had, as other nodes have it now."""

    node: bytes


@dataclass(frozen=True, slots=True)
class Requeue:
    """Put tasks that are no longer assigned back into their queues."""

    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class AskOthers:
    """Requeue tasks whose worker will not report, once the other nodes have said what they know of them."""

    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Write that a task has failed for good, or that a person is to decide about it."""

    host: str
    key: bytes
    detail: str  # what each node said
    attempt: int
    reason: str = SkipReason.FAILED


Effect = StartHere | TakeOut | PutBack | Send | TakeBack | MakeForget | Requeue | AskOthers | GiveUp
Effects = Sequence[Effect]
