"""Takes a node out of its swarm: awaits what `leave_state` decides, which has the diagram."""

from __future__ import annotations

import asyncio
import logging

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.discovery.server import together
from dhtcrawl.rpc.membership.gossip import Gossip
from dhtcrawl.swarm.bodies.adopt import Adoption
from dhtcrawl.swarm.lifecycle.crawl_runs import CrawlRuns
from dhtcrawl.swarm.membership import leave_state as steps
from dhtcrawl.swarm.membership.join import Join
from dhtcrawl.swarm.membership.join_steps import Pause
from dhtcrawl.swarm.records.replicate import Replicator
from dhtcrawl.swarm.records.sync import HandedOver, Syncer

log = logging.getLogger(__name__)


@loop_state
class Leave:
    """The shell of leaving: `run` it once."""

    def __init__(
        self,
        settings: steps.LeaveSettings,
        gossip: Gossip,
        runs: CrawlRuns,
        syncer: Syncer,
        replicator: Replicator,
        adoption: Adoption,
        join: Join,
    ) -> None:
        self._settings = settings
        self._gossip = gossip
        self._runs = runs
        self._crawls = runs.records
        self._syncer = syncer
        self._replicator = replicator
        self._adoption = adoption
        self._join = join
        self._state = steps.LeaveState(settings)
        self._handed = HandedOver()

    def hasten(self) -> None:
        """Wait for nothing but what is being given: the rest stays in this node's store, or with who would give it."""
        self._state.hasten()
        self._adoption.break_off()

    async def drain(self) -> bool:
        """Start nothing more, and do not leave; whether all that was begun is over, and its backups know."""
        state = steps.LeaveState(self._settings)
        while (step := self._next(state)) is not None and state.phase is steps.LeavePhase.DRAINING:
            await self._do(step)
        return state.drained

    async def run(self) -> HandedOver:
        """Leave; how many of the records that others are to have were handed over."""
        while (step := self._next(self._state)) is not None:
            await self._do(step)
        return self._handed

    def _next(self, state: steps.LeaveState) -> steps.LeaveStep | None:
        unfinished = self._runs.draining or self._replicator.busy
        needed = self._join.state.active and not all(record.ended for record in self._crawls)
        return state.next(steps.Situation(self._gossip.view, unfinished, needed), asyncio.get_running_loop().time())

    async def _do(self, step: steps.LeaveStep) -> None:
        match step:
            case steps.StartNothing() | steps.EndRuns():
                await self._quieten(step)
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case steps.Notice(text, warning):
                log.log(logging.WARNING if warning else logging.INFO, text)
            case steps.StopAdopting(wait_s):
                await self._adoption.close(wait_s)
                self._state.bequeath(self._estates())
            case steps.Bequeath() | steps.KeepPages():
                await self._settle(step)
            case steps.Disown():
                self._join.leave()
            case steps.Greet(nodes):
                await together(self._gossip.exchange(node) for node in nodes)
            case steps.PushRecords() | steps.KeepRecords():
                await self._dispose(step)
            case steps.SayGoodbye():
                await self._gossip.leave()

    async def _quieten(self, step: steps.StartNothing | steps.EndRuns) -> None:
        if isinstance(step, steps.StartNothing):
            self._runs.start_no_more()
        else:
            await self._runs.stop()

    async def _settle(self, step: steps.Bequeath | steps.KeepPages) -> None:
        crawl = step.estate.crawl
        if isinstance(step, steps.KeepPages):
            await self._adoption.keep(crawl)
        else:
            self._state.given(step, await self._adoption.give(step.heir, crawl, copies=step.estate.copies))

    async def _dispose(self, step: steps.PushRecords | steps.KeepRecords) -> None:
        if isinstance(step, steps.KeepRecords):
            self._handed = HandedOver(self._handed.pushed, self._handed.dropped)
        else:
            self._handed = await self._syncer.hand_over(self._gossip.view)
            self._state.pushed(left_over=bool(self._handed.refused or self._handed.needed))

    def _estates(self) -> list[steps.Estate]:
        own, found = self._settings.own.hex(), []
        for record in self._crawls:
            # Who takes part is written down by the coordinator's next wave, which may come after the first pages.
            takes_part = own in record.participants or self._runs.of(record.crawl_id) is not None
            if not record.ended and takes_part:
                settings = record.settings
                found.append(steps.Estate(record.crawl_id, settings.copies > 1, settings.depth >= 0))
        return found
