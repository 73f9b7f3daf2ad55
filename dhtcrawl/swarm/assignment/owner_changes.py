"""Tasks that are in flight while their owner changes: the new owner leaves them alone, the former one tells it.

    former owner ──its answer to `activate`, or `in_hand`──▶ new owner, which holds them: no node begins them
    new owner ──`recall`, of what the former one had assigned──▶ its worker
    former owner ──a record, or `release`: it could not fetch them──▶ new owner

A holder that is gone, was restarted, or has said nothing for `HELD_S` is not waited for: all others are asked then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from dhtcrawl.clock import Clock
from dhtcrawl.keyspace import placement
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure
from dhtcrawl.swarm.assignment.assigned import IncarnationOf
from dhtcrawl.swarm.assignment.former_loans import FormerLoans
from dhtcrawl.swarm.assignment.orphan_check import OrphanCheck
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.assignment.queues import AssignmentQueues
from dhtcrawl.swarm.calls import assignment as calls
from dhtcrawl.swarm.calls.words import KEYS_MAX, Done
from dhtcrawl.swarm.replica_sets import NO_OWNER, by_owner, in_parts

log = logging.getLogger(__name__)

ASKED_BACK_TIMES, ASKED_BACK_EVERY_S = 10, 1.0


@loop_state
class OwnerChanges:
    """Holds tasks as their new owner until their outcome is known, and tells their owner as the former one."""

    def __init__(
        self,
        queues: AssignmentQueues,
        ownership: SwarmOwnership,
        peers: Peers,
        clock: Clock,
        group: asyncio.TaskGroup,
        orphans: OrphanCheck,
        incarnation_of: IncarnationOf,
    ) -> None:
        self.telling = 0  # calls under way by which new owners learn what is in flight here
        self._queues = queues
        self._ownership = ownership
        self._peers = peers
        self._clock = clock
        self._group = group
        self._orphans = orphans
        self._incarnation_of = incarnation_of
        self._view = peers.view  # by which owners were last told
        self._former = FormerLoans()

    # As the new owner

    def hold_for(self, node: bytes, keys: Sequence[bytes]) -> None:
        """Hold tasks that `node` began before we owned them: they leave our queues until their outcome is known."""
        inherited = self._ownership.inherited
        inherited.hold(node, self._incarnation_of(node), keys, self._clock.monotonic())
        if keys:
            self._queues.forget(inherited)

    def hold_lent(self, worker: bytes, keys: Sequence[bytes]) -> None:
        """Hold tasks that the former owner assigned to `worker`, and ask it for those that it has not begun."""
        self.hold_for(worker, keys)
        self._group.create_task(self._ask_back(worker, keys))

    def on_in_hand(self, asker: bytes, args: calls.InHand) -> Done:
        """Hold tasks of ours that a worker has in flight."""
        self.hold_for(asker, [key for key in args.keys if self._ownership.owns(key)])
        return Done()

    def on_release(self, asker: bytes, args: calls.Release) -> Done:
        """Queue tasks again that were in flight at a former owner when they became ours, and were not fetched."""
        self._given_back(asker, args.keys)
        return Done()

    async def look(self) -> None:
        """Let go of tasks that a sync has ended; ask others about those whose holder will not report."""
        inherited = self._ownership.inherited
        inherited.let_go(await self._queues.settled(list(inherited)))
        self._orphans.ask(inherited.given_up(self._incarnation_of, self._clock.monotonic()))

    async def _ask_back(self, worker: bytes, keys: Sequence[bytes]) -> None:
        asked = calls.Recall(self._queues.crawl_id, tuple(keys[:KEYS_MAX]))
        for _ in range(ASKED_BACK_TIMES):
            answer = await self._peers.call(worker, asked)
            if not isinstance(answer, Failure):
                self._given_back(worker, answer.keys)
                return
            await asyncio.sleep(ASKED_BACK_EVERY_S)  # the worker does not know yet that we own them

    def _given_back(self, node: bytes, keys: Sequence[bytes]) -> None:
        held = self._ownership.inherited.let_go_from(node, keys)
        if held:
            self._group.create_task(self._queues.requeue_held(held))

    # As the former owner

    def holders(self) -> dict[bytes, bytes]:
        """Which other node has which task that is ours, or was a moment ago."""
        return self._former.holders(self._clock.monotonic()) | self._ownership.holders()

    def in_hand(self, node: bytes) -> list[bytes]:
        """Tasks that `node` owns now, and that we have in flight or may begin for it at any time."""
        flying = [key for key in self._queues.open_tasks() if self._owner_of(key) == node]
        return list(dict.fromkeys([*flying, *self._ownership.borrowed.of(node)]))

    def view_changed(self, void: Iterable[bytes]) -> None:
        """Tell new owners which of their tasks we have in flight, so that they do not begin them.

        Called before our assignments of these tasks end: who has them is remembered.
        `void` are tasks that were assigned to us until now. Of those that we have fetched for an owner, and that are
        not on disk, their assignment has ended before.
        """
        before, self._view = self._view, self._peers.view
        lent, owns = self._ownership.lent, self._ownership.owns
        gone = {key: loan.node for key in lent if not owns(key) and (loan := lent.get(key)) is not None}
        self._former.add(gone, self._clock.monotonic())
        flying = dict.fromkeys(filter(self._queues.has_in_flight, void))
        if before is not self._view:
            flying |= dict.fromkeys(key for key in self._queues.open_tasks() if self._has_moved(key, before))
        for node, theirs in by_owner(self._peers.view, flying, lambda key: key).items():
            if node in (NO_OWNER, self._peers.node_id):
                continue
            for part in in_parts(theirs, KEYS_MAX):
                self.telling += 1
                self._group.create_task(self._tell(node, part))

    def _has_moved(self, key: bytes, before: View) -> bool:
        """Whether a task is another's now that owned before, and does not ask what is in flight as a newcomer does."""
        place = placement(key)
        was, now = before.owner(place), self._peers.view.owner(place)
        return now is not None and now.id in before.owning and (was is None or was.id != now.id)

    async def _tell(self, node: bytes, keys: tuple[bytes, ...]) -> None:
        try:
            await self._peers.call(node, calls.InHand(self._queues.crawl_id, keys))
        finally:
            self.telling -= 1

    def released(self, key: bytes) -> None:
        """Tell the owner that this node could not fetch a task which it began when it owned it."""
        self._ownership.releasing += 1
        self._group.create_task(self._release(key))

    async def _release(self, key: bytes) -> None:
        try:
            owner = self._owner_of(key)
            if owner is None:
                return
            reply = await self._peers.call(owner, calls.Release(self._queues.crawl_id, (key,)))
            if isinstance(reply, Failure):
                log.info("release: %s", reply.detail)  # its owner takes it back by itself after `HELD_S`
        finally:
            self._ownership.releasing -= 1

    def _owner_of(self, key: bytes) -> bytes | None:
        owner = self._peers.view.owner(placement(key))
        return None if owner is None else owner.id
