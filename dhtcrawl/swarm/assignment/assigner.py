"""An owner's side of who fetches: runs the crawl's policy, and carries out what `AssignerState` decides.

frontier ──tasks──▶ AssignerState ──▶ StartHere, TakeOut, PutBack ──▶ frontier
▲    │     └───▶ Send, TakeBack, MakeForget ──▶ `dhtcrawl.swarm.assignment.worker_calls`
reports, time ───┘    └─────────▶ Requeue, AskOthers, GiveUp ──▶ the crawl's queues and records
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from dhtcrawl.clock import Clock
from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.crawl.rounds import Kill
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.choice import Choice
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.storage.store.tasks import Queued
from dhtcrawl.swarm.assignment import steps
from dhtcrawl.swarm.assignment.assigner_state import AssignerState
from dhtcrawl.swarm.assignment.orphan_check import OrphanCheck
from dhtcrawl.swarm.assignment.queues import AssignmentQueues
from dhtcrawl.swarm.assignment.wire import from_rows
from dhtcrawl.swarm.assignment.worker_calls import WorkerCalls
from dhtcrawl.swarm.calls import assignment as calls
from dhtcrawl.swarm.calls.words import Done

log = logging.getLogger(__name__)

TASKS_A_LOOK = 512
TASKS_A_HOST = 64
# The pause after a choice that left tasks without a node: at least so long, and so many times what the choice took.
PAUSE_S = 0.2
PAUSE_TIMES = 10.0
# The least pause, so many times what the choice took, once this node has done half of what it had, not to run dry.
LOW_TIMES = 1.0
IN_VAIN_MAX = 300  # choices in a row that moved nothing, a minute at least: then it is logged
LOOK_EVERY_S = 1.0

Decide = Callable[[Callable[[], Choice]], Awaitable["Choice | None"]]


@loop_state
class Assigner:
    """Assigns the tasks of a crawl that this node owns."""

    def __init__(
        self,
        state: AssignerState,
        queues: AssignmentQueues,
        peers: Peers,
        clock: Clock,
        group: asyncio.TaskGroup,
        *,
        decide: Decide,
        orphans: OrphanCheck,
    ) -> None:
        """`decide` runs a choice off the event loop; None where that takes too long."""
        self.state = state
        self._queues = queues
        self._peers = peers
        self._clock = clock
        self._group = group
        self._decide = decide
        self._orphans = orphans
        self._calls = WorkerCalls(state, queues, peers, clock, partial(self._carry_out, group=group))
        self._work = asyncio.Event()
        self._low = asyncio.Event()  # set once this node has done half of what it had after the last choice
        self._until_low = 0  # tasks
        self._in_vain = 0

    def wanted(self) -> None:
        """Note that there may be tasks to assign."""
        self._work.set()

    def brought_here(self, given: TaskOutcome) -> None:
        """Note that this node fetched a task of its own."""
        self.state.brought_here(given, self._clock.monotonic())
        self._one_less()

    def failed_here(self, task: Queued, given: TaskOutcome) -> bool:
        """Note that this node failed a task of its own; False where the crawl has to go on with it here."""
        effects = self.state.failed_here(task, given, self._peers.view, self._clock.monotonic())
        if effects:
            log.debug("%s is for other nodes from here on: %s", task.url, given.detail, extra={"url": task.url})
        for effect in effects:
            self._apply(effect, self._group)
        self._one_less()
        return bool(effects)

    def view_changed(self) -> None:
        """Act on a new view."""
        for effect in self.state.view_changed():
            self._apply(effect, self._group)

    def stop(self) -> None:
        """Take back all tasks that are not begun, when no more are assigned."""
        if len(self.state.lent):
            self._group.create_task(self._recall_all())

    async def others_answered(self, keys: list[bytes]) -> None:
        """Go on with tasks whose worker did not report, now that the others have said what they know of them."""
        over = self.state.recalled_too_often(keys)
        for effect in over:
            self._apply(effect, self._group)
        given_up = {each.key for each in over}
        await self._queues.requeue_held([key for key in keys if key not in given_up])

    async def on_report(self, worker: bytes, args: calls.ReportLent) -> Done:
        """Take a worker's report about tasks of ours."""
        told, now = from_rows(args.given), self._clock.monotonic()
        await self._carry_out(self.state.reported(worker, told, self._peers.view, now), self._group)
        return Done()

    async def run(self) -> None:
        """Assign tasks and take back those that are late, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_after())
            while True:
                await self._work.wait()
                self._work.clear()
                while self._queues.lends and (tasks := self._queues.frontier.unassigned(TASKS_A_HOST, TASKS_A_LOOK)):
                    began_at = self._clock.monotonic()
                    if await self._assign(tasks, group) < len(tasks):
                        await self._pause(self._clock.monotonic() - began_at)

    async def _pause(self, took_s: float) -> None:
        """Leave most of the time to other work, however long a choice takes, unless there is little left to do."""
        frontier = self._queues.frontier
        here = sum(frontier.load(host.name) for host in frontier.hosts())
        self._low.clear()
        self._until_low = here - here // 2
        least_s = LOW_TIMES * took_s
        await asyncio.sleep(least_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(max(PAUSE_S, PAUSE_TIMES * took_s) - least_s):
                await self._low.wait()

    def _one_less(self) -> None:
        self._until_low -= 1
        if not self._until_low:
            self._low.set()

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self._work.set()
            if len(self.state.lent):
                await self._complete(self.state.look(self._clock.monotonic()))

    async def _assign(self, tasks: list[Queued], group: asyncio.TaskGroup) -> int:
        """Choose nodes for these tasks; return how many have got one."""
        ask = self.state.ask(tasks, self._peers.view, self._clock.monotonic())
        choice = await self._decide(ask.answer)
        effects = self.state.chosen(tasks, choice or ask.answer_without(), self._clock.monotonic())
        for effect in effects:
            self._apply(effect, group)
        self._queues.decided()
        moved = sum(len(each.keys) for each in effects if isinstance(each, steps.StartHere | steps.TakeOut))
        self._in_vain = 0 if moved or len(self.state.lent) else self._in_vain + 1
        if self._in_vain and self._in_vain % IN_VAIN_MAX == 0:
            policy = self.state.policy.inner.name
            log.warning("policy %s has found no node for %s for a while", policy, tasks[0].url)
        return moved

    # What is decided

    async def _carry_out(self, effects: steps.Effects, group: asyncio.TaskGroup) -> None:
        for effect in effects:
            if isinstance(effect, steps.Requeue):
                await self._queues.requeue(list(effect.keys))
            else:
                self._apply(effect, group)

    async def _recall_all(self) -> None:
        await self._complete(self.state.stop())

    async def _complete(self, effects: steps.Effects) -> None:
        async with asyncio.TaskGroup() as group:
            await self._carry_out(effects, group)

    def _apply(self, effect: steps.Effect, group: asyncio.TaskGroup) -> None:
        now, frontier = self._clock.monotonic(), self._queues.frontier
        match effect:
            case steps.StartHere(host, started):
                frontier.assign(host, started, now)
            case steps.TakeOut(host, taken):
                frontier.lend(host, taken, now)
            case steps.PutBack(host, task):
                frontier.put_back(host, task, now)
                self.wanted()
            case steps.GiveUp(host, key, detail, attempt, reason):
                self._queues.next_round.kill(Kill(host, key, reason, detail, attempt))
            case steps.AskOthers(keys):
                self._orphans.ask(keys)
            case steps.Send():
                fields = {"peer": effect.node.hex()}
                log.debug("%d tasks go to node %s", len(effect.tasks), effect.node.hex()[:12], extra=fields)
                group.create_task(self._calls.send(effect))
            case steps.TakeBack():
                fields = {"peer": effect.node.hex()}
                log.debug("%d tasks come back from node %s", len(effect.keys), effect.node.hex()[:12], extra=fields)
                group.create_task(self._calls.take_back(effect))
            case steps.MakeForget(node):
                group.create_task(self._calls.make_forget(node))
