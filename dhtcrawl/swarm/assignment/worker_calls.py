"""An owner's calls to its workers: it sends them tasks, takes tasks back, and tells `AssignerState` how that went."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from dhtcrawl.clock import Clock
from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.rpc.tasks.events import Failure, FailureKind
from dhtcrawl.rpc.tasks.messages import Ack, StoreBackup
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.swarm.assignment.assigner_state import AssignerState
from dhtcrawl.swarm.assignment.queues import AssignmentQueues
from dhtcrawl.swarm.assignment.steps import Effects, Send, TakeBack
from dhtcrawl.swarm.calls import assignment as calls
from dhtcrawl.swarm.calls.words import KEYS_MAX
from dhtcrawl.swarm.records import wire

KEYS_A_CALL = KEYS_MAX
RECALL_WITHIN_S = 5.0
FORGET_TIMES, FORGET_EVERY_S = 10, 1.0


class WorkerCalls:
    """Calls the workers of a crawl's tasks."""

    def __init__(
        self,
        state: AssignerState,
        queues: AssignmentQueues,
        peers: Peers,
        clock: Clock,
        carry_out: Callable[[Effects], Awaitable[None]],
    ) -> None:
        """`carry_out(effects)` does what the state decides about tasks that came back."""
        self._state = state
        self._queues = queues
        self._peers = peers
        self._clock = clock
        self._carry_out = carry_out

    async def send(self, send: Send) -> None:
        """Send records and assignments to a node; what it does not take is decided again."""
        records = await self._queues.write_lent(list(send.tasks))
        self._state.written(send, {copy.key for copy in records})
        for batch in wire.in_frames(records):
            part = replace(send, tasks={copy.key: send.tasks[copy.key] for copy in batch})
            if not await self._gives(part, batch):
                await self._queues.requeue(self._state.refused(part, self._clock.monotonic()))

    async def _gives(self, send: Send, batch: Sequence[TaskReplica]) -> bool:
        """Whether the node has these tasks, or may have them."""
        crawl = self._queues.crawl_id
        reply = await self._peers.ask(send.node, StoreBackup(crawl, tuple(map(wire.record_of, batch))))
        if not isinstance(reply, Ack):
            return False
        if reply.records:
            await self._queues.merged(wire.further_of(reply.records, batch), send.node)
        offer = self._state.offer(send, self._peers.view, self._clock.monotonic())
        if not offer.keys:
            return True
        lend = calls.Lend(crawl, offer.keys, offer.patient, send.connect_s, self._state.epoch)
        answer = await self._peers.call(send.node, lend)
        if isinstance(answer, Failure) and (not answer.sent or answer.kind is FailureKind.REFUSED):
            return False
        self._state.took(send, self._clock.monotonic())
        return True

    async def take_back(self, late: TakeBack) -> None:
        """Recall tasks; a node that does not answer loses them once it is silent or gone."""
        for first in range(0, len(late.keys), KEYS_A_CALL):
            asked = TakeBack(late.node, late.keys[first : first + KEYS_A_CALL])
            recall = calls.Recall(self._queues.crawl_id, tuple(asked.keys))
            answer = await self._peers.call(late.node, recall, timeout_s=RECALL_WITHIN_S)
            if isinstance(answer, Failure):
                return
            now = self._clock.monotonic()
            await self._carry_out(self._state.let_go(asked, answer.keys, frozenset(answer.kept_back), now))

    async def make_forget(self, node: bytes) -> None:
        """Have a node forget all that it had since before it was cut off."""
        for _ in range(FORGET_TIMES):
            answer = await self._peers.call(node, calls.Recall(self._queues.crawl_id, ()))
            if not isinstance(answer, Failure):
                break
            await asyncio.sleep(FORGET_EVERY_S)
        self._state.forgot(node, self._clock.monotonic())
