"""The tasks of one crawl that are not fetched by their owner: ours at other nodes, and those of others here.

    inherited  in flight at the node that owned them before (`dhtcrawl.swarm.assignment.inherited`)
    lent       assigned to the node that the policy ranks first (`dhtcrawl.swarm.assignment.assigner`)
    borrowed   assigned to us by their owner (`dhtcrawl.swarm.assignment.worker`)
    asked      their worker or holder will not report any more (`dhtcrawl.swarm.assignment.orphan_check`)

The borrowed ones are in our queues in memory, the others are not. A record that says that a task is fetched, or dead,
ends all of this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Protocol

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.keyspace import placement
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.guard import Guard
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.rpc.peers.port import CallRegistry, Peers, by_crawl
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.records import State
from dhtcrawl.storage.store.replicas import Merged, TaskReplica
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.swarm.assignment.assigner import Assigner, CrawlPolicy
from dhtcrawl.swarm.assignment.facts import PlannerFacts
from dhtcrawl.swarm.assignment.failures import Failures
from dhtcrawl.swarm.assignment.orphan_check import OrphanCheck
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.assignment.plans import Plans
from dhtcrawl.swarm.assignment.policies import Policies
from dhtcrawl.swarm.assignment.queues import AssignmentQueues, QueuesRun
from dhtcrawl.swarm.assignment.wire import from_rows
from dhtcrawl.swarm.assignment.worker import Worker
from dhtcrawl.swarm.calls import assignment as calls
from dhtcrawl.swarm.calls.words import KEYS_MAX, Done

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
# Records that came by a sync are found by looking at so many assignments at a time.
LENT_A_LOOK = 500
ASKED_BACK_TIMES = 10


@loop_state
class Assignments:
    """Decides which node fetches the tasks of one crawl: the crawl's port `Assignment`, and the calls about it."""

    def __init__(
        self,
        run: QueuesRun,
        ownership: SwarmOwnership,
        peers: Peers,
        clock: Clock,
        committer: Committer,
        group: asyncio.TaskGroup,
        *,
        incarnation_of: Callable[[bytes], int | None],
        policy: Guard | None,
        failures: Failures,
        policies: Policies,
        merge: Callable[[bytes, list[TaskReplica]], Awaitable[Merged]],
        facts: PlannerFacts,
        compare: Callable[[bytes, Sequence[bytes]], Awaitable[bool]],
    ) -> None:
        """`policy`: None where it cannot be made here. `merge` takes records that a worker knew better.

        `compare(crawl, keys)` learns what the others who keep these records know; False: one did not answer.
        """
        self._run = run
        self._peers = peers
        self._clock = clock
        self._group = group
        self._incarnation_of = incarnation_of
        self._ownership = ownership
        self._held = ownership.inherited
        self._asked = OrphanCheck(group, ownership.asked, partial(compare, run.crawl_id), self._let_go)
        self._facts = facts
        self._telling = 0
        self._looked = 0
        self._looked_borrowed = 0
        self._doubtful: list[bytes] = []  # these may have ended
        self._doubts = asyncio.Event()
        self._loans = asyncio.Event()  # set at the first assignment, or when a task waits for one
        self.desk = AssignmentQueues(
            run, clock, committer, ownership=ownership, merge=merge, ask=self._asked.ask, lending=policy is not None
        )  # fmt: skip
        self.borrower = Worker(self.desk, peers, clock, ownership.borrowed, incarnation_of=incarnation_of)
        self.lender = None
        self.plans = None
        if policy is not None:
            ranking = CrawlPolicy(policy, failures, policies.decide)
            self.lender = Assigner(self.desk, peers, clock, ranking, ownership.lent, incarnation_of=incarnation_of)
            planner = policies.planner_of(policy)
            if planner is not None:
                adopt, aside = self.lender.adopt, policies.aside
                self.plans = Plans(run.crawl_id, peers, clock, planner, facts=facts.report, adopt=adopt, aside=aside)

    # What the crawl asks

    def assign(self) -> None:
        """Note that tasks wait to be assigned."""
        if self.lender is not None:
            self._loans.set()
            self.lender.wanted()

    def brought(self, given: TaskOutcome) -> None:
        """Note that this node fetched a task's page."""
        self._facts.answered(given.host, given.seconds)
        if not self.borrower.over(given) and self.lender is not None:
            self.lender.brought_here(given)

    def passes_on(self, task: Queued, given: TaskOutcome) -> bool:
        """Whether others go on with a task that this node could not fetch; then it has left the frontier."""
        if given.result is TaskResult.UNREACHABLE and self.borrower.borrowed.is_patient(task.key):
            return False
        if not self.borrower.over(given):
            return self.lender is not None and self.lender.failed_here(task, given)
        self._run.parts.frontier.written(given.host, task.key, self._clock.monotonic())
        self._group.create_task(self.desk.requeue([task.key]))
        return True

    def killed(self, key: bytes) -> None:
        """Note that a task is given up here, for a reason that is the same at every node: its record says so."""
        self.borrower.borrowed.give_back(key)

    def is_borrowed(self, key: bytes) -> bool:
        """Whether a task is assigned to this node by its owner: its record has to stay meanwhile."""
        return key in self.borrower.borrowed

    def released(self, key: bytes) -> None:
        """Tell the owner that this node could not fetch a task which it began when it owned it."""
        self._ownership.releasing += 1
        self._group.create_task(self._release(key))

    def connect_s(self, host: str) -> float | None:
        """How long a connection to a host may take, where an owner has said so."""
        return self.borrower.connect_s.get(host)

    # What records and other nodes say

    def heard(self, found: Sequence[TaskReplica]) -> None:
        """Note records that came: those that are fetched or dead may end assignments."""
        lender = self.lender
        if lender is not None and (lender.busy or len(self.borrower.borrowed)):
            self.over([copy.key for copy in found if copy.task.state >= State.FETCHED])

    def over(self, keys: Sequence[bytes]) -> None:
        """Look soon whether these have ended; inherited tasks are looked at every second anyway."""
        lender, borrowed = self.lender, self.borrower.borrowed
        # A tombstone of an earlier generation ends no assignment: our own record has to say so.
        if lender is not None and (lender.busy or len(borrowed)):
            self._doubtful += [key for key in keys if key in lender.lent or key in borrowed]
            self._doubts.set()

    def hold_for(self, node: bytes, keys: Sequence[bytes]) -> None:
        """Hold tasks that `node` began before we owned them: they leave our queues until their outcome is known."""
        now = self._clock.monotonic()
        self._held.hold(node, self._incarnation_of(node), keys, now)
        if keys:
            self._run.parts.frontier.disown(lambda key: key not in self._held, now)

    def hold_lent(self, worker: bytes, keys: Sequence[bytes]) -> None:
        """Hold tasks that the former owner assigned to `worker`, and ask it for those that it has not begun."""
        self.hold_for(worker, keys)
        self._group.create_task(self._ask_back(worker, list(keys)))

    def given_back(self, keys: Sequence[bytes]) -> None:
        """Queue inherited tasks again that their holder did not fetch."""
        self._requeue(self._held.let_go(keys))

    def in_hand(self, node: bytes) -> list[bytes]:
        """Tasks that `node` owns now, and that we have in flight or may begin for it at any time."""
        view = self._peers.view
        owners = ((key, view.owner(placement(key))) for key in self._run.parts.open_tasks())
        flying = [key for key, owner in owners if owner is not None and owner.id == node]
        return list(dict.fromkeys([*flying, *self.borrower.in_hand(node)]))

    # What owners and workers say

    async def on_lend(self, asker: bytes, args: calls.Lend) -> Done | Refused:
        """Take tasks that their owner assigns to this node."""
        self._loans.set()
        if self.plans is not None:
            self.plans.newer(args.epoch)
        return await self.borrower.on_lend(asker, args)

    async def on_recall(self, asker: bytes, args: calls.Recall) -> calls.LetGo | Refused:
        """Give back tasks that their owner recalls."""
        return await self.borrower.on_recall(asker, args)

    def on_in_hand(self, asker: bytes, args: calls.InHand) -> Done:
        """Hold tasks of ours that a worker has in flight."""
        self.hold_for(asker, [key for key in args.keys if self._ownership.owns(key)])
        return Done()

    def on_release(self, _asker: bytes, args: calls.Release) -> Done:
        """Queue tasks again that were in flight at a former owner when they became ours, and were not fetched."""
        self.given_back(args.keys)
        return Done()

    async def on_report(self, asker: bytes, args: calls.ReportLent) -> Done | Refused:
        """Take a worker's report about tasks of ours."""
        if self.lender is None:
            return Refused("no-policy")
        await self.lender.on_report(asker, from_rows(args.given))
        return Done()

    def on_plan(self, asker: bytes, args: calls.ReportPlan) -> calls.PlanTable | Refused:
        """Answer a member that asks for the crawl's plan.

        Raises:
            BadArguments: the member's report is no packed map.
        """
        return Refused("no-policy") if self.plans is None else self.plans.on_report(asker, args)

    # What happens to the node

    def view_changed(self) -> None:
        """Act on a new view, by which other keys may be ours."""
        self._tell_owners(self.borrower.forget_void())
        if self.lender is not None:
            self.lender.disowned(self._ownership.owns)
            for node in self.lender.lent.back(self._incarnation_of):
                self.lender.candidates.avoid(node, inf)
                self._group.create_task(self._recall_from(self.lender, node))

    def stop(self) -> None:
        """Give back and take back what is not begun: nothing more is begun or assigned here."""
        self.borrower.give_all_back()
        if self.lender is not None and self.lender.busy:
            self._group.create_task(self.lender.recall_all())

    @property
    def any_assigned(self) -> bool:
        """Whether another node has a task of ours."""
        return self.lender is not None and self.lender.busy

    def lent(self) -> dict[bytes, bytes]:
        """Which node has which task of ours. What we assigned ourselves goes before what others have told us of."""
        lent = self._ownership.lent
        loans = {key: loan.node for key in lent if (loan := lent.get(key)) is not None}
        return loans | {key: node for key, node in self._held.holders().items() if key not in loans}

    @property
    def waiting(self) -> int:
        """How many tasks of ours other nodes have, or had a moment ago, and what an owner is still to hear from us."""
        lent = 0 if self.lender is None else len(self.lender.lent) - self.frozen
        # What was ours for a moment only, as when many join at once, is its owner's to wait for: we are not told.
        return (
            sum(map(self._ownership.owns, self._held))
            + len(self._ownership.asked)
            + lent
            + self.desk.moving
            + self._telling
            + self.borrower.busy
        )

    @property
    def frozen(self) -> int:
        """Tasks that this node does not count as work: their worker says whether they may be started."""
        return 0 if self.lender is None else self.lender.lent.begun(self._incarnation_of)

    async def run(self) -> None:
        """Run what assigns, works and plans, and look at inherited tasks; until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self.lender is not None:
                group.create_task(self._look_after(self.lender))
            if self.plans is not None:
                group.create_task(self.plans.run())
            while True:
                await asyncio.sleep(LOOK_EVERY_S)
                crawl = self._run.parts
                busy = bool(len(crawl.frontier) or crawl.open_tasks())
                counters, now = crawl.counters, self._clock.monotonic()
                self._facts.pace.look(counters.pages, counters.body_bytes, busy, now)
                if len(self._held) or (self.lender is not None and self.lender.busy):
                    await self._look()

    async def _look_after(self, lender: Assigner) -> None:
        """Run assigner and worker from the first assignment on: where owners try first there may never be one."""
        await self._loans.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(lender.run())
            group.create_task(self.borrower.run())
            group.create_task(self._resolve(lender))

    async def _look(self) -> None:
        """Let go of inherited tasks that a sync has ended; ask others about those whose holder will not report."""
        self._held.let_go(await self.desk.settled(list(self._held)))
        self._asked.ask(self._held.given_up(self._incarnation_of, self._clock.monotonic()))

    async def _resolve(self, lender: Assigner) -> None:
        """End assignments whose record says how the task ended. Records that came by a sync are looked for."""
        borrowed = self.borrower.borrowed
        while True:
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._doubts.wait()
            except TimeoutError:
                lent = list(lender.lent)
                self._looked = self._looked + LENT_A_LOOK if self._looked + LENT_A_LOOK < len(lent) else 0
                last = self._looked_borrowed + LENT_A_LOOK
                self._looked_borrowed = last if last < len(borrowed) else 0
                self._doubtful += lent[self._looked : self._looked + LENT_A_LOOK]
                self._doubtful += borrowed.some(self._looked_borrowed, LENT_A_LOOK)
            self._doubts.clear()
            doubtful, self._doubtful = self._doubtful, []
            over = await self.desk.settled(doubtful) if doubtful else []
            lender.over(over)
            for key in over:
                borrowed.give_back(key)

    async def _ask_back(self, worker: bytes, keys: list[bytes]) -> None:
        for _ in range(ASKED_BACK_TIMES):
            asked = calls.Recall(self._run.crawl_id, tuple(keys[:KEYS_MAX]))
            answer = await self._peers.call(worker, asked)
            if not isinstance(answer, Failure):
                self.given_back(answer.keys)
                return
            await asyncio.sleep(LOOK_EVERY_S)  # the worker does not know yet that we own them

    async def _recall_from(self, lender: Assigner, node: bytes) -> None:
        """Recall all that a node has had since before it was cut off: other nodes have it now."""
        for _ in range(ASKED_BACK_TIMES):
            answer = await self._peers.call(node, calls.Recall(self._run.crawl_id, ()))
            if not isinstance(answer, Failure):
                break
            await asyncio.sleep(LOOK_EVERY_S)
        lender.candidates.avoid(node, self._clock.monotonic())

    def _tell_owners(self, void: Iterable[bytes]) -> None:
        """Tell the owners of these tasks which of them we have in flight, so that they do not begin them."""
        by_owner: dict[bytes, list[bytes]] = {}
        for key in void:
            owner = self._peers.view.owner(placement(key)) if self._run.parts.has_open(key) else None
            if owner is not None and owner.id != self._peers.node_id:
                by_owner.setdefault(owner.id, []).append(key)
        for node, keys in by_owner.items():
            self._telling += 1
            self._group.create_task(self._tell(node, keys[:KEYS_MAX]))

    async def _tell(self, node: bytes, keys: list[bytes]) -> None:
        try:
            await self._peers.call(node, calls.InHand(self._run.crawl_id, tuple(keys)))
        finally:
            self._telling -= 1

    # Inside

    def _requeue(self, keys: list[bytes]) -> None:
        if keys:
            self._group.create_task(self._let_go(keys))

    async def _let_go(self, keys: list[bytes]) -> None:
        self._run.parts.intake.let_go(await self.desk.requeued(keys))

    async def _release(self, key: bytes) -> None:
        try:
            owner = self._peers.view.owner(placement(key))
            if owner is None:
                return
            reply = await self._peers.call(owner.id, calls.Release(self._run.crawl_id, (key,)))
            if isinstance(reply, Failure):
                log.info("release: %s", reply.detail)  # its owner takes it back by itself after `HELD_S`
        finally:
            self._ownership.releasing -= 1


class AssigningRun(Protocol):
    """A crawl that runs here."""

    @property
    def assignments(self) -> Assignments: ...


def serve(registry: CallRegistry, run_of: Callable[[bytes], AssigningRun | None]) -> None:
    """Answer the calls about assignments for all crawls; `run_of(crawl)` is None for one that does not run."""
    registry.serve(calls.Lend, by_crawl(run_of, lambda run: run.assignments.on_lend))
    registry.serve(calls.Recall, by_crawl(run_of, lambda run: run.assignments.on_recall))
    registry.serve(calls.InHand, by_crawl(run_of, lambda run: run.assignments.on_in_hand))
    registry.serve(calls.Release, by_crawl(run_of, lambda run: run.assignments.on_release))
    registry.serve(calls.ReportLent, by_crawl(run_of, lambda run: run.assignments.on_report))
    registry.serve(calls.ReportPlan, by_crawl(run_of, lambda run: run.assignments.on_plan))
