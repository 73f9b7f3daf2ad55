"""Tasks of ours that other nodes fetch, and tasks of others that we fetch. For one crawl.

    held      by whoever owned them when it began (`dhtcrawl.swarm.assignment.inherited`)
    lent      by whoever the policy ranks first (`dhtcrawl.swarm.assignment.assigner`)
    borrowed  by us, for their owner (`dhtcrawl.swarm.assignment.worker`)
    asked     held or lent by who will not tell any more (`dhtcrawl.swarm.assignment.orphan_check`)

What is held, lent or asked is in no queue of ours in memory; what is borrowed is. A record
that says that a task is fetched, or dead, ends all of this.
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
from dhtcrawl.swarm import calls
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

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
# What came of loans by a sync, and not by a message, is found by looking at some of them.
LENT_A_LOOK = 500
ASKED_BACK_TIMES = 10


@loop_state
class Assignments:
    """See above."""

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
        """`policy`: None where it cannot be had here. `merge` is for what a worker knew better.

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
        self._doubtful: list[bytes] = []  # what came of these may be known by now
        self._doubts = asyncio.Event()
        self._loans = asyncio.Event()  # there was one, or a task waits for one
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
        """Tasks wait to be assigned."""
        if self.lender is not None:
            self._loans.set()
            self.lender.wanted()

    def brought(self, given: TaskOutcome) -> None:
        """A page came."""
        self._facts.answered(given.host, given.seconds)
        if not self.borrower.over(given) and self.lender is not None:
            self.lender.brought_here(given)

    def passes_on(self, task: Queued, given: TaskOutcome) -> bool:
        """A task came to nothing here; whether it is for others to go on with."""
        if given.result is TaskResult.UNREACHABLE and self.borrower.borrowed.is_patient(task.key):
            return False
        if not self.borrower.over(given):
            return self.lender is not None and self.lender.failed_here(task, given)
        self._run.parts.frontier.written(given.host, task.key, self._clock.monotonic())
        self._group.create_task(self.desk.requeue([task.key]))
        return True

    def killed(self, key: bytes) -> None:
        """A task is given up here, for a reason that is the same everywhere: its record says so."""
        self.borrower.borrowed.give_back(key)

    def is_borrowed(self, key: bytes) -> bool:
        """Whether its owner lets this node fetch a task: it has to keep the record meanwhile."""
        return key in self.borrower.borrowed

    def released(self, key: bytes) -> None:
        """A task that was in flight when another node became its owner came to nothing here."""
        self._ownership.releasing += 1
        self._group.create_task(self._release(key))

    def connect_s(self, host: str) -> float | None:
        """How long a connection to a host may take, where its owner says so."""
        return self.borrower.connect_s.get(host)

    # What others say

    def heard(self, found: Sequence[TaskReplica]) -> None:
        """Copies came: what is over is nobody's any more."""
        lender = self.lender
        if lender is not None and (lender.busy or len(self.borrower.borrowed)):
            self.over([copy.key for copy in found if copy.task.state >= State.FETCHED])

    def over(self, keys: Sequence[bytes]) -> None:
        """What came of these is known; what is held is looked at every second."""
        lender, borrowed = self.lender, self.borrower.borrowed
        # A tombstone of an earlier generation ends no loan: our own record has to say so.
        if lender is not None and (lender.busy or len(borrowed)):
            self._doubtful += [key for key in keys if key in lender.lent or key in borrowed]
            self._doubts.set()

    def hold_for(self, node: bytes, keys: Sequence[bytes]) -> None:
        """`node` began these before we owned them; those that wait here wait for what comes of it."""
        now = self._clock.monotonic()
        self._held.hold(node, self._incarnation_of(node), keys, now)
        if keys:
            self._run.parts.frontier.disown(lambda key: key not in self._held, now)

    def hold_lent(self, worker: bytes, keys: Sequence[bytes]) -> None:
        """The former owner had lent these; those that the worker has not begun are ours to give to whomever."""
        self.hold_for(worker, keys)
        self._group.create_task(self._ask_back(worker, list(keys)))

    def given_back(self, keys: Sequence[bytes]) -> None:
        """Nothing came of these, where they were held."""
        self._requeue(self._held.let_go(keys))

    def in_hand(self, node: bytes) -> list[bytes]:
        """Tasks that `node` owns by now, and that we have in flight or may begin for it at any time."""
        view = self._peers.view
        owners = ((key, view.owner(placement(key))) for key in self._run.parts.open_tasks())
        flying = [key for key, owner in owners if owner is not None and owner.id == node]
        return list(dict.fromkeys([*flying, *self.borrower.in_hand(node)]))

    # What owners and workers say

    async def on_lend(self, asker: bytes, args: calls.Lend) -> calls.Done | Refused:
        """An owner lends us tasks."""
        self._loans.set()
        if self.plans is not None:
            self.plans.newer(args.epoch)
        return await self.borrower.on_lend(asker, args)

    async def on_recall(self, asker: bytes, args: calls.Recall) -> calls.LetGo | Refused:
        """An owner takes tasks back from us."""
        return await self.borrower.on_recall(asker, args)

    def on_in_hand(self, asker: bytes, args: calls.InHand) -> calls.Done:
        """A worker has tasks in flight that are ours."""
        self.hold_for(asker, [key for key in args.keys if self._ownership.owns(key)])
        return calls.Done()

    def on_release(self, _asker: bytes, args: calls.Release) -> calls.Done:
        """Nothing came of tasks that were in flight when they became ours."""
        self.given_back(args.keys)
        return calls.Done()

    async def on_report(self, asker: bytes, args: calls.ReportLent) -> calls.Done | Refused:
        """A worker says what came of our tasks."""
        if self.lender is None:
            return Refused("no-policy")
        await self.lender.on_report(asker, from_rows(args.given))
        return calls.Done()

    def on_plan(self, asker: bytes, args: calls.ReportPlan) -> calls.PlanTable | Refused:
        """A member asks for the crawl's plan."""
        return Refused("no-policy") if self.plans is None else self.plans.on_report(asker, args)

    # What happens around it

    def view_changed(self) -> None:
        """Other keys are ours than before."""
        self._tell_owners(self.borrower.forget_void())
        if self.lender is not None:
            self.lender.disowned(self._ownership.owns)
            for node in self.lender.lent.back(self._incarnation_of):
                self.lender.candidates.avoid(node, inf)
                self._group.create_task(self._recall_from(self.lender, node))

    def stop(self) -> None:
        """Nothing more is begun here, nor lent."""
        self.borrower.give_all_back()
        if self.lender is not None and self.lender.busy:
            self._group.create_task(self.lender.recall_all())

    @property
    def lending(self) -> bool:
        """Whether another node has a task of ours."""
        return self.lender is not None and self.lender.busy

    def lent(self) -> dict[bytes, bytes]:
        """Who has which task of ours: loans, then those since before they were ours, of which we have but been told."""
        lent = self._ownership.lent
        loans = {key: loan.node for key in lent if (loan := lent.get(key)) is not None}
        return loans | {key: node for key, node in self._held.holders().items() if key not in loans}

    @property
    def waiting(self) -> int:
        """Tasks of ours that another node has, or had until a moment ago, and what an owner is to hear."""
        lent = 0 if self.lender is None else len(self.lender.lent) - self.frozen
        # What was ours for a moment only, as when many join at once, is for its owner to wait for: nobody tells us.
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
        """Tasks of which their worker says whether they may be started: not for this node to count as work."""
        return 0 if self.lender is None else self.lender.lent.begun(self._incarnation_of)

    async def run(self) -> None:
        """Look after all of it, until cancelled."""
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
        """Loans, from the first one on: where owners try first there may never be one."""
        await self._loans.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(lender.run())
            group.create_task(self.borrower.run())
            group.create_task(self._resolve(lender))

    async def _look(self) -> None:
        """Let go of what has come by a sync, and of what its holder will not tell of any more."""
        self._held.let_go(await self.desk.settled(list(self._held)))
        self._asked.ask(self._held.given_up(self._incarnation_of, self._clock.monotonic()))

    async def _resolve(self, lender: Assigner) -> None:
        """End loans whose record says what came of the task; those that come by a sync are looked for."""
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
            asked = calls.Recall(self._run.crawl_id, tuple(keys[: calls.KEYS_MAX]))
            answer = await self._peers.call(worker, asked)
            if not isinstance(answer, Failure):
                self.given_back(answer.keys)
                return
            await asyncio.sleep(LOOK_EVERY_S)  # it does not know yet that we own them

    async def _recall_from(self, lender: Assigner, node: bytes) -> None:
        """What a node has of ours since before it was cut off is with others by now."""
        for _ in range(ASKED_BACK_TIMES):
            answer = await self._peers.call(node, calls.Recall(self._run.crawl_id, ()))
            if not isinstance(answer, Failure):
                break
            await asyncio.sleep(LOOK_EVERY_S)
        lender.candidates.avoid(node, self._clock.monotonic())

    def _tell_owners(self, void: Iterable[bytes]) -> None:
        """Those who own by now what we have in flight, for others: it is not for them to begin."""
        by_owner: dict[bytes, list[bytes]] = {}
        for key in void:
            owner = self._peers.view.owner(placement(key)) if self._run.parts.has_open(key) else None
            if owner is not None and owner.id != self._peers.node_id:
                by_owner.setdefault(owner.id, []).append(key)
        for node, keys in by_owner.items():
            self._telling += 1
            self._group.create_task(self._tell(node, keys[: calls.KEYS_MAX]))

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
                log.info("release: %s", reply.detail)  # its owner takes it back in a while by itself
        finally:
            self._ownership.releasing -= 1


class AssigningRun(Protocol):
    """A crawl that runs here."""

    @property
    def assignments(self) -> Assignments: ...


def serve(registry: CallRegistry, run_of: Callable[[bytes], AssigningRun | None]) -> None:
    """Answer the calls of this room for all crawls."""
    registry.serve(calls.Lend, by_crawl(run_of, lambda run: run.assignments.on_lend))
    registry.serve(calls.Recall, by_crawl(run_of, lambda run: run.assignments.on_recall))
    registry.serve(calls.InHand, by_crawl(run_of, lambda run: run.assignments.on_in_hand))
    registry.serve(calls.Release, by_crawl(run_of, lambda run: run.assignments.on_release))
    registry.serve(calls.ReportLent, by_crawl(run_of, lambda run: run.assignments.on_report))
    registry.serve(calls.ReportPlan, by_crawl(run_of, lambda run: run.assignments.on_plan))
