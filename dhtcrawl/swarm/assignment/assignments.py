"""Who fetches the tasks of a crawl: the crawl's port `Assignment`, and the parts that it is made of.

queues       the crawl's frontier and stored queues
assigner     ours, that the policy has others fetch; None without a policy, as plans are
worker       those that their owners have assigned to us
changes      in flight while their owner changes
ended        records that say how a task ended end all of this
plans, facts what the policy goes by
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.guard import Guard
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.rpc.peers.port import CallRegistry, Peers, by_crawl
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.swarm.assignment.assigned import IncarnationOf
from dhtcrawl.swarm.assignment.assigner import Assigner
from dhtcrawl.swarm.assignment.assigner_state import AssignerState
from dhtcrawl.swarm.assignment.ended_tasks import EndedTasks
from dhtcrawl.swarm.assignment.facts import PlannerFacts
from dhtcrawl.swarm.assignment.failures import Failures
from dhtcrawl.swarm.assignment.orphan_check import OrphanCheck
from dhtcrawl.swarm.assignment.owner_changes import OwnerChanges
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.assignment.plans import Plans, Table
from dhtcrawl.swarm.assignment.policies import Policies
from dhtcrawl.swarm.assignment.queues import AssignmentQueues, QueuesRun
from dhtcrawl.swarm.assignment.site_places import Measures, SitePlaces
from dhtcrawl.swarm.assignment.worker import Worker
from dhtcrawl.swarm.calls import assignment as calls
from dhtcrawl.swarm.calls.words import Done

LOOK_EVERY_S = 1.0
NO_POLICY = Refused("no-policy")


@dataclass(frozen=True, slots=True)
class AssignmentServices:
    """What the assignments of all crawls of a node share."""

    peers: Peers
    clock: Clock
    committer: Committer
    group: asyncio.TaskGroup
    incarnation_of: IncarnationOf
    policies: Policies
    merge: Callable[[bytes, list[TaskReplica], bytes], Awaitable[Merged]]  # (crawl, what a worker knew better, worker)
    # (crawl, task keys): learn what the others who keep these records know; False: one did not answer.
    compare: Callable[[bytes, Sequence[bytes]], Awaitable[bool]]


@loop_state
@dataclass(frozen=True, slots=True)
class Assignments:
    """Decides which node fetches the tasks of a crawl."""

    services: AssignmentServices
    crawl: QueuesRun
    ownership: SwarmOwnership
    queues: AssignmentQueues
    assigner: Assigner | None
    worker: Worker
    changes: OwnerChanges
    ended: EndedTasks
    plans: Plans | None
    facts: PlannerFacts
    places: SitePlaces | None  # of sites, where the policy goes by them
    needed: asyncio.Event  # set at the first assignment, or when a task waits for one

    # What the crawl asks

    def assign(self) -> None:
        """Note that tasks wait to be assigned."""
        if self.assigner is not None:
            self.needed.set()
            self.assigner.wanted()

    def brought(self, given: TaskOutcome) -> None:
        """Note that this node fetched a task's page."""
        if not self.worker.over(given) and self.assigner is not None:
            self.assigner.brought_here(given)

    def passes_on(self, task: Queued, given: TaskOutcome) -> bool:
        """Whether others go on with a task that this node could not fetch; then it has left the frontier."""
        if given.result is TaskResult.UNREACHABLE and self.ownership.borrowed.is_patient(task.key):
            return False
        if not self.worker.over(given):
            return self.assigner is not None and self.assigner.failed_here(task, given)
        self.queues.frontier.written(given.host, task.key, self.services.clock.monotonic())
        self.services.group.create_task(self.queues.requeue([task.key]))
        return True

    def killed(self, key: bytes) -> None:
        """Note that a task is given up here, for a reason that is the same at every node: its record says so."""
        self.ownership.borrowed.give_back(key)

    def released(self, key: bytes) -> None:
        """Tell the owner that this node could not fetch a task which it began when it owned it."""
        self.changes.released(key)

    def holder(self, key: bytes) -> bytes | None:
        """Which other node has a task of this one."""
        return self.ownership.holder(key)

    def connect_s(self, host: str) -> float | None:
        """How long a connection to a host may take, where an owner has said so."""
        return self.worker.connect_s.get(host)

    # What happens to the node

    def view_changed(self) -> None:
        """Act on a new view, by which other keys may be ours."""
        self.changes.view_changed(self.worker.forget_void())
        if self.assigner is not None:
            self.assigner.view_changed()

    def stop(self) -> None:
        """Give back and take back what is not begun: nothing more is begun or assigned here."""
        self.worker.give_all_back()
        if self.assigner is not None:
            self.assigner.stop()

    @property
    def waiting(self) -> int:
        """How many tasks of ours other nodes have, or had a moment ago, and what an owner is still to hear from us."""
        owned = self.ownership
        # What was ours for a moment only, as when many join at once, is its owner's to wait for: we are not told.
        inherited = sum(map(owned.owns, owned.inherited))
        lent = len(owned.lent) - self.frozen
        return inherited + len(owned.asked) + lent + self.queues.moving + self.changes.telling + self.worker.busy

    @property
    def frozen(self) -> int:
        """Tasks that this node does not count as work: their worker says whether they may be started."""
        return self.ownership.lent.begun(self.services.incarnation_of)

    async def run(self) -> None:
        """Run what assigns, works and plans, and look at inherited tasks; until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self.assigner is not None:
                group.create_task(self._look_after(self.assigner))
            if self.plans is not None:
                group.create_task(self.plans.run())
            if self.places is not None:
                group.create_task(self.places.run())
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                self._measure()
                if len(self.ownership.inherited) or len(self.ownership.lent):
                    await self.changes.look()

    def _measure(self) -> None:
        crawl = self.crawl.parts
        if self.assigner is not None:
            crawl.counters.policy_faults += self.assigner.state.policy.new_faults()
        if self.plans is not None:
            for name, more in self.plans.collect().items():
                crawl.counters.plans[name] = crawl.counters.plans.get(name, 0) + more
        busy = bool((self.crawl.may_start and len(crawl.frontier)) or crawl.open_tasks())
        self.facts.pace.look(crawl.counters.pages, crawl.counters.body_bytes, busy, self.services.clock.monotonic())

    async def _look_after(self, assigner: Assigner) -> None:
        """Run assigner and worker from the first assignment on: where owners try first there may never be one."""
        await self.needed.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(assigner.run())
            group.create_task(self.worker.run())
            group.create_task(self.ended.run())

    # What workers and members ask of a node that may lack the policy

    async def on_report(self, asker: bytes, args: calls.ReportLent) -> Done | Refused:
        """Take a worker's report about tasks of ours."""
        return NO_POLICY if self.assigner is None else await self.assigner.on_report(asker, args)

    def on_plan(self, asker: bytes, args: calls.ReportPlan) -> calls.PlanTable | Refused:
        """Answer a member that asks for the crawl's plan.

        Raises:
            BadArguments: the member's report is no packed map.
        """
        return NO_POLICY if self.plans is None else self.plans.on_report(asker, args)

    def on_want_places(self, asker: bytes, args: calls.WantPlaces) -> Done | Refused:
        """Take what an owner wants to know of hosts whose gatekeeper this node is."""
        return NO_POLICY if self.places is None else self.places.on_want(asker, args)

    def on_time_sites(self, asker: bytes, args: calls.TimeSites) -> Done | Refused:
        """Time hosts for their gatekeeper."""
        return NO_POLICY if self.places is None else self.places.on_time(asker, args)


def build(
    services: AssignmentServices,
    run: QueuesRun,
    ownership: SwarmOwnership,
    policy: Guard | None,
    failures: Failures,
    measures: Measures,
) -> Assignments:
    """The assignments of a crawl; `policy` is None where it cannot be made here."""
    peers, clock, group, incarnation_of = services.peers, services.clock, services.group, services.incarnation_of
    queues = AssignmentQueues(
        run, clock, services.committer, ownership=ownership, merge=services.merge, lending=policy is not None
    )
    compare = partial(services.compare, run.crawl_id)
    assigner, plans, places, needed = None, None, None, asyncio.Event()

    async def answered(keys: list[bytes]) -> None:
        await (queues.requeue_held if assigner is None else assigner.others_answered)(keys)

    orphans = OrphanCheck(group, ownership.asked, compare, answered)
    if policy is not None:
        frontier, policies = run.parts.frontier, services.policies
        planner = policies.planner_of(policy)
        wishes = measures.wishes(planner, frontier.delay_s)
        state = AssignerState(peers.node_id, policy, failures, ownership, frontier, incarnation_of, wishes)
        assigner = Assigner(state, queues, peers, clock, group, decide=policies.decide, orphans=orphans)
        if planner is not None:
            facts, aside = measures.facts, policies.aside

            def adopt(epoch: int, table: Table) -> None:
                state.adopt(epoch, table)
                if places is not None:
                    places.adopt(table)

            plans = Plans(run.crawl_id, peers, clock, planner, facts=facts.report, adopt=adopt, aside=aside)
            places = None if wishes is None else SitePlaces(queues, peers, clock, plans, wishes, measures)

    def lent_here(epoch: int) -> None:
        needed.set()
        if plans is not None:
            plans.newer(epoch)

    def over(keys: Sequence[bytes]) -> None:
        if assigner is not None:
            assigner.state.over(keys)

    return Assignments(
        services,
        run,
        ownership,
        queues,
        assigner,
        Worker(queues, peers, clock, ownership.borrowed, incarnation_of=incarnation_of, lent_here=lent_here),
        OwnerChanges(queues, ownership, peers, clock, group, orphans, incarnation_of),
        EndedTasks(queues, ownership, over),
        plans,
        measures.facts,
        places,
        needed,
    )


class AssigningRun(Protocol):
    """A crawl that runs here."""

    @property
    def assignments(self) -> Assignments: ...


def serve(registry: CallRegistry, run_of: Callable[[bytes], AssigningRun | None]) -> None:
    """Answer the calls about assignments for all crawls; `run_of(crawl)` is None for one that does not run."""
    registry.serve(calls.Lend, by_crawl(run_of, lambda run: run.assignments.worker.on_lend))
    registry.serve(calls.Recall, by_crawl(run_of, lambda run: run.assignments.worker.on_recall))
    registry.serve(calls.InHand, by_crawl(run_of, lambda run: run.assignments.changes.on_in_hand))
    registry.serve(calls.Release, by_crawl(run_of, lambda run: run.assignments.changes.on_release))
    registry.serve(calls.ReportLent, by_crawl(run_of, lambda run: run.assignments.on_report))
    registry.serve(calls.ReportPlan, by_crawl(run_of, lambda run: run.assignments.on_plan))
    registry.serve(calls.WantPlaces, by_crawl(run_of, lambda run: run.assignments.on_want_places))
    registry.serve(calls.TimeSites, by_crawl(run_of, lambda run: run.assignments.on_time_sites))
