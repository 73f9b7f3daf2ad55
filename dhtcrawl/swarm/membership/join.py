"""A node joins the swarm, and keeps up with the view.

What it does next is decided in `join_state`, which has the diagram; here it is
awaited. No node owns before it knows, and every neighbour knows before it
fetches (design invariants I4, I5, I12).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from dhtcrawl.clock import Clock
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.discovery.server import together
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.swarm.calls import membership as calls
from dhtcrawl.swarm.membership import join_steps as steps
from dhtcrawl.swarm.membership.join_state import JoinState
from dhtcrawl.swarm.membership.keeping_up import PAUSE_S
from dhtcrawl.swarm.membership.neighbourhood import SILENT_S
from dhtcrawl.swarm.membership.ports import Membership, OwnedCrawls, OwnerPorts
from dhtcrawl.swarm.records.sync import Syncer
from dhtcrawl.swarm.replica_sets import Span

log = logging.getLogger(__name__)


@loop_state
class Join:
    """The shell of joining: one for each node; `state` says what the node is at."""

    def __init__(
        self,
        peers: Peers,
        membership: Membership,
        syncer: Syncer,
        crawls: OwnedCrawls,
        clock: Clock,
        settings: steps.JoinSettings,
        ports: OwnerPorts,
    ) -> None:
        self._peers = peers
        self._membership = membership
        self._syncer = syncer
        self._crawls = crawls
        self._clock = clock
        self._ports = ports
        self._changed = asyncio.Event()
        self.state = JoinState(settings, clock.monotonic())

    def view_changed(self) -> None:
        """Look at the view again."""
        self._do(self.state.view_changed(self._membership.view))

    def rejoin(self) -> None:
        """Own nothing until it is known again what happened: the others have taken over, or may have."""
        effects = self.state.rejoin(self._clock.monotonic())
        if effects:
            log.info("this node was taken for dead, or stood still: it joins again")
        self._do(effects)

    async def run(self) -> None:
        """Join, then keep up with the view, until cancelled or until the node leaves."""
        while (step := self.state.next(self._membership.view, self._clock.monotonic())) is not None:
            self._do(step.effects)
            await self._await(step.then)

    def _do(self, effects: steps.Effects) -> None:
        for effect in effects:
            match effect:
                case steps.Become(state):
                    log.info("this node is %s", state.name.lower())
                    self._membership.become(state)
                case steps.Own(owning):
                    self._ports.owning(owning)
                case steps.Hold(hold):
                    self._crawls.hold(hold)
                case steps.Settle(view):
                    self._crawls.settled(view)
                case steps.EndLeases():
                    self._ports.reunited()
        if self.state.changed:
            self._changed.set()
        else:
            self._changed.clear()

    async def _await(self, what: steps.Awaited | None) -> None:
        match what:
            case steps.Pause(seconds):
                await asyncio.sleep(seconds)
            case steps.Meet(nodes, within):
                await together(self._meet(node, within) for node in nodes)
            case steps.Tell(nodes):
                await together(self._tell(node) for node in nodes)
            case steps.AwaitChange(seconds):
                await self._await_change(seconds)
            case steps.HandOver():
                await self._hand_over()

    async def _await_change(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds) as limit:
                await self._changed.wait()
        self._do(self.state.waited(limit.expired(), self._membership.view, self._clock.monotonic()))

    async def _meet(self, node: bytes, within: Sequence[Span]) -> None:
        """Once this returns, `node` knows us and we have what it had for us in some ranges; or it is gone."""
        while self.state.wants(node, began := self._membership.view):
            # It must know of us before we pull, so that its later writes come to us, too.
            if await self._membership.exchange(node) and await self._ports.pull(node):
                result = await self._syncer.sync(node, self._membership.view, within)
                if not isinstance(result, Failure):
                    log.debug("node %s has told what it knows of our keys", node.hex()[:12], extra={"peer": node.hex()})
                    self.state.met(node, began, self._membership.view)
                    return
            self._no_answer(node, "to tell what it knows of our keys")
            await asyncio.sleep(PAUSE_S)

    async def _tell(self, node: bytes) -> None:
        """Once this returns, `node` knows that we are active and starts none of our tasks; or it is gone."""
        while self.state.wants(node, self._membership.view):
            answer = await self._peers.call(node, calls.Activate(self._membership.incarnation))
            if not isinstance(answer, Failure):
                self._ports.hold_for(node, answer.held)
                self._ports.adopt(answer.hosts)
                # Others may have come to it while we joined: whom it knows, we have to know.
                if await self._membership.exchange(node):
                    log.debug("node %s knows that we are active", node.hex()[:12], extra={"peer": node.hex()})
                    self.state.told(node)
                    return
            self._no_answer(node, "to learn that we are active")
            await asyncio.sleep(PAUSE_S)

    def _no_answer(self, node: bytes, what: str) -> None:
        name, fields = node.hex()[:12], {"peer": node.hex()}
        if self.state.no_answer(node, self._clock.monotonic()):
            text = (
                "node %s, a member, has not answered this node for %d s, and has %s: once an owner has answered, this"
                " node goes on without it; look whether TCP connections from here reach it"
            )
            log.warning(text, name, SILENT_S, what, extra=fields)
        else:
            log.debug("node %s does not answer, and has %s; asked again", name, what, extra=fields)

    async def _hand_over(self) -> None:
        """Hand over, until something changes.

        Many records go slowly, and to a node that hangs not at all; a change
        of the view cannot wait, as no node may own some keys meanwhile.
        """
        async with asyncio.TaskGroup() as group:
            handing = group.create_task(self._syncer.hand_over())
            watching = group.create_task(self._changed.wait())
            watching.add_done_callback(lambda _: handing.cancel())
            handing.add_done_callback(lambda _: watching.cancel())
        if handing.cancelled():
            self.state.interrupted()
        else:
            handed = handing.result()
            self.state.handed_over(needed=bool(handed.needed), refused=bool(handed.refused))

    def leave(self) -> None:
        """Own nothing any more, and let `run` end. What was in flight must be over, and written."""
        self._do(self.state.leave())
