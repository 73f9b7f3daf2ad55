"""A node that owns all tasks of a crawl and lends them, in a world of three nodes played by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from crawl import by_hand
from harness.bench import Bench

from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.crawl.rounds import Kill
from dhtcrawl.policy.choice import Choice
from dhtcrawl.policy.guard import Guard
from dhtcrawl.policy.seam import (
    AssignmentTerms,
    Candidate,
    Outcome,
    Policy,
    PolicyTask,
    Settings,
    TaskResult,
    failed_last,
)
from dhtcrawl.storage.store.records import Task as Record
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.swarm.assignment.assigner import Assigner, Decide
from dhtcrawl.swarm.assignment.assigner_state import AssignerState
from dhtcrawl.swarm.assignment.failures import Failures, undecided
from dhtcrawl.swarm.assignment.orphan_check import OrphanCheck
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.assignment.wire import to_rows
from dhtcrawl.swarm.calls.assignment import Lend, Recall, ReportLent
from dhtcrawl.swarm.claim import KeyClaim
from swarm.fake_peers import node, view_of

CRAWL = bytes(16)
OWN, B, C = node(0), node(1), node(2)
# The wire checks how long keys are.
TASKS = [each._replace(key=bytes([number]) * 20) for number, each in enumerate(by_hand.stored(40))]


class Favours(Policy):
    """Ranks these first."""

    name = "favours"

    def __init__(self, *first: bytes, terms: AssignmentTerms = AssignmentTerms(batch=5, budget_s=30.0)) -> None:  # noqa: B008
        super().__init__(Settings(OWN))
        self.first = first
        self.given = terms
        self.heard_of: list[tuple[bytes, TaskResult]] = []

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        nodes = [each.node for each in candidates]
        return failed_last(sorted(nodes, key=lambda each: each not in self.first), task.failed)

    def terms(self, node: bytes, host: str) -> AssignmentTerms:
        return self.given

    def heard(self, outcome: Any, now: float) -> None:
        self.heard_of.append((outcome.node, outcome.result))


class Only(Favours):
    """Ranks nobody else."""

    def rank(self, task: PolicyTask, candidates: Sequence[Candidate], now: float) -> list[bytes]:
        return [each.node for each in candidates if each.node in self.first]


class AssignerBench(Bench):
    """A node 0 that owns all tasks, with two others."""

    crawl_id = CRAWL
    lends = True

    def __init__(self, policy: Policy, group: asyncio.TaskGroup, decide: Decide | None = None) -> None:
        super().__init__()
        self.peers.calls[Lend.terms.name] = lambda args: {}
        self.peers.calls[Recall.terms.name] = lambda args: {"keys": tuple(args["keys"])}
        self.incarnations: dict[bytes, int] = {OWN: 1, B: 1, C: 1}
        guard, failures = Guard(policy), Failures()
        waiting = undecided(guard, failures)
        self.frontier: by_hand.ByHand = by_hand.make(parallel=100, waits=lambda key: key in waiting)
        self.killed: list[Kill] = []
        self.requeued: list[bytes] = []
        self.unheard: list[bytes] = []
        self.tasks = {task.key: task for task in TASKS}  # as they are stored
        self.before_choice: Callable[[], None] = lambda: None
        self.told = 0  # how often there was something to start, or to read
        self.next_round: Any = self
        alone, queues = view_of([0]), cast(Any, self)
        self.ownership = SwarmOwnership(KeyClaim(OWN, alone, alone), waiting)
        self.lent = self.ownership.lent
        self.lender = Assigner(
            AssignerState(OWN, guard, failures, self.ownership, self.frontier, self.incarnations.get),
            queues,
            self.peers,
            self.clock,
            group,
            decide=decide or self._decide,
            orphans=OrphanCheck(
                group, self.ownership.asked, self._compare, lambda keys: self.lender.others_answered(keys)
            ),
        )

    async def _decide(self, work: Callable[[], Choice]) -> Choice | None:
        self.before_choice()
        await asyncio.sleep(0)
        return work()

    def add(self, *tasks: Queued) -> None:
        self.tasks |= {task.key: task for task in tasks}
        self.frontier.add(tasks, self.clock.monotonic())
        self.lender.wanted()

    def lent_to(self, number: int) -> list[bytes]:
        """What a node was told that it may fetch."""
        rows = [
            args["keys"] for peer, name, args in self.peers.called if name == Lend.terms.name and peer == node(number)
        ]
        return [key for keys in rows for key in keys]

    def started(self) -> list[str]:
        return by_hand.urls(self.frontier, self.clock.monotonic())

    async def report(self, worker: int | bytes, *given: TaskOutcome) -> None:
        worker = worker if isinstance(worker, bytes) else node(worker)
        await self.lender.on_report(worker, ReportLent(CRAWL, to_rows(given)))

    def heard(self) -> list[tuple[Outcome, float]]:
        """What the policy would be told at its next choice, which has it then."""
        return list(self.lender.state.ask([], self.peers.view, self.clock.monotonic()).heard)

    def owns(self, keys: Collection[bytes]) -> None:
        """The view changes: only these are its own."""
        claim: Any = SimpleNamespace(owns=keys.__contains__, mine=keys.__contains__)
        self.ownership.reclaim(claim)
        self.lender.view_changed()

    # Queues

    def decided(self) -> None:
        self.told += 1

    async def write_lent(self, keys: list[bytes]) -> list[TaskReplica]:
        await asyncio.sleep(0)
        by_key = {task.key: task for task in TASKS}
        return [TaskReplica(key, Record(by_key[key].url, 0, by_key[key].order, "")) for key in keys]

    async def requeue(self, keys: list[bytes]) -> None:
        self.requeued += keys
        self.add(*(task for key, task in self.tasks.items() if key in keys))

    async def _compare(self, keys: Sequence[bytes]) -> bool:
        self.unheard += keys
        return True

    async def requeue_held(self, keys: list[bytes]) -> None:
        self.add(*(task for key, task in self.tasks.items() if key in keys))

    async def merged(self, records: Sequence[TaskReplica], worker: bytes) -> Merged:
        raise AssertionError("no worker knows better")

    def kill(self, kill: Kill) -> None:
        self.killed.append(kill)


@asynccontextmanager
async def a_world(policy: Policy, decide: Any = None) -> AsyncIterator[AssignerBench]:
    async with asyncio.TaskGroup() as group:
        world = AssignerBench(policy, group, decide)
        running = group.create_task(world.lender.run())
        yield world
        running.cancel()


def failed(task: Queued, result: TaskResult = TaskResult.FAILED, detail: str = "it hangs") -> TaskOutcome:
    return TaskOutcome(task.key, "a", result, 1.0, detail=detail)
