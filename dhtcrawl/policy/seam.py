"""Which node fetches a task: what every assignment policy is, and what it may rely on. No I/O.

    owner        rank(task, candidates) ─▶ nodes, best first ─▶ the task is assigned to the first that has room
                 terms(node, host)      ─▶ how many tasks at once, and for how long
                 heard(outcome)         ◀─ the result of an assigned task
    coordinator  a planner makes a table of what all nodes report ─▶ adopt(table) at every owner

Each owner has a policy object of its own for each crawl. It is asked on one
thread, and never about two things at a time. What it promises, and
`dhtcrawl.policy.contract` checks for every policy:

    deterministic   the same calls in the same order bring the same ranks, whatever the hash seed
    total           every candidate that the task may go to now is ranked, once; no other node is
    stable          the order in which candidates are given means nothing
    fair to change  a node that comes, goes or changes its weight moves few tasks between the others
    forgiving       no plan, no history and unknown nodes are normal; the task's failed nodes come last

A policy that breaks them costs speed and nothing else: `dhtcrawl.policy.guard`
falls back to `xor`, and a task that its worker does not bring is recalled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple

BATCH = 50
BATCH_MAX = 1000
TASKS_A_NODE_MAX = 2_000
BUDGET_S = 60.0


class PolicyTask(NamedTuple):
    """What a policy may know of a task."""

    key: bytes  # the task key; its first 20 bytes place it
    host: str  # hostname[:non-default port]
    failed: tuple[bytes, ...] = ()  # nodes that had it and brought nothing, in this order
    recalled: tuple[bytes, ...] = ()  # nodes that had no time for it, the last at the end
    url: str = ""  # canonical
    depth: int = 0  # links from a seed, as known now; a redirect does not count


class Candidate(NamedTuple):
    """A node that might fetch it."""

    node: bytes  # its id
    lent: int = 0  # tasks that it has from this owner now
    at_work: int = 0  # of them, those of hosts without a delay: they wait for nothing but this node


class TaskResult(Enum):
    """The result of an assigned task."""

    PAGE = "page"  # whatever its status
    FAILED = "failed"  # the page's fault
    UNREACHABLE = "unreachable"  # this node cannot connect to the host
    RECALLED = "recalled"  # no result within the time that its terms gave


class Outcome(NamedTuple):
    """What an owner hears of one task."""

    node: bytes
    host: str
    result: TaskResult
    seconds: float  # what the attempt took, waiting for the host's delay left out
    connect_s: float | None = None  # of it, until the connection was there; None: one was there already
    bytes: int = 0
    held_s: float | None = None  # since it was given to the node; None: not known, or its host has a delay


@dataclass(frozen=True, slots=True)  # policies of others change one with `dataclasses.replace`
class AssignmentTerms:
    """On which terms a node gets tasks of a host."""

    batch: int = BATCH  # tasks that it has at a time
    budget_s: float = BUDGET_S  # for a batch; what brought nothing by then is recalled
    connect_timeout_s: float | None = None  # 1 to 60 s, what is beyond counts as that; None: the node's own setting
    idle_s: float | None = None  # what is not begun is recalled after so long without a page of the host; None: never
    at_work_max: int = TASKS_A_NODE_MAX  # tasks of all hosts without a delay that it has at a time; 0: none for now


@dataclass(frozen=True, slots=True)
class Settings:
    """What a policy is made with."""

    own: bytes  # the owner's id
    options: Mapping[str, str] = field(default_factory=dict)
    # By host, the type of nodes that alone may ask it: only they are candidates.
    types: Mapping[str, str] = field(default_factory=dict)
    # The least time between two requests to a host; robots.txt may ask for more.
    delay_s: float = 0.0


class Policy:
    """The least there is: every method but `rank` may be left as it is."""

    name: ClassVar[str] = ""
    # Which node fetches a task under it, in a line, for those who choose a policy.
    about: ClassVar[str] = ""
    # What may be asked of it, and the values that are good, the default first; no values: any, and none by default.
    options: ClassVar[Mapping[str, Sequence[str]]] = {}
    # Modules of other packages that it cannot do without on any node that may coordinate.
    needs: ClassVar[Sequence[str]] = ()
    # What makes the table that owners rank by; None where each of them learns for itself.
    planner: type[Planner] | None = None
    # Whether a task waits until the first of its ranking has room; otherwise it goes to the next that has.
    pinned: bool = False
    # Whether a task's owner tries first, and asks others only where it cannot connect; otherwise all are ranked.
    owner_first: bool = False
    # How many nodes may be asked for a task: those near its key, or near its host where it is `pinned`.
    candidates_max: int = 64
    # After how many nodes that connected, and brought nothing, a task is given up.
    failures_max: int = 5
    # After how many recalls from nodes that bring nothing a task is left to a person; None: it goes on for ever.
    recalls_max: int | None = None
    # A recall counts after so long without a page of the host: Yu et al. 2014.
    recall_idle_s: float = 60.0

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @classmethod
    def needs_with(cls, options: Mapping[str, str]) -> Sequence[str]:
        """Those of `needs` that it cannot do without when these options are asked of it."""
        return cls.needs

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        """The ids of the nodes that may fetch it, best first. Empty: none here may."""
        raise NotImplementedError

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        """On which terms `node` gets the next tasks of `host`."""
        return AssignmentTerms()

    def heard(self, outcome: Outcome, now: float) -> None:
        """Hear the result of an assigned task."""

    def adopt(self, table: Mapping[str, Any]) -> None:
        """What the planner made, as it came over the wire: anything may be missing or wrong in it."""


PLAN_TABLE_BYTES_MAX: Final = 256 << 10  # a longer table, packed, is sent to nobody


class Planner:
    """Makes the table that owners rank by, at the coordinator; `plan` runs off the loop."""

    wants: tuple[str, ...] = ()  # what it is to know of each node: see `dhtcrawl.swarm.assignment.facts`

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        self.options = options or {}

    def plan(self, nodes: Mapping[bytes, Mapping[str, Any]], before: Mapping[str, Any], now: float) -> dict[str, Any]:
        """A table from what each node reports; `before` is the last one, or empty.

        The same table again: nothing is published. Empty: no plan, and all nodes count the same.

        Raises:
            ConfigError: this node lacks a library that it takes.
        """
        raise NotImplementedError


def failed_last(ranked: Iterable[bytes], failed: Sequence[bytes]) -> list[bytes]:
    """The same with those that failed behind all others, who failed first in front."""
    ranked = list(ranked)
    behind = [node for node in failed if node in ranked]
    return [node for node in ranked if node not in behind] + list(dict.fromkeys(behind)) if behind else ranked


def number_in(table: Mapping[str, Any], name: str, key: bytes, default: float) -> float:
    """A positive number of a node in a table that came over the wire; `default` where there is none."""
    row = table.get(name)
    value = row.get(key) if isinstance(row, Mapping) else None
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12
    return float(value) if good else default  # type: ignore[arg-type]
