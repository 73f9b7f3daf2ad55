"""Answers a peer only within its quotas (`dhtcrawl.rpc.peers.quotas`); the node itself has none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.peers.quotas import PeerQuotas
from dhtcrawl.rpc.tasks.connection import Handler
from dhtcrawl.rpc.tasks.messages import Ack, Code, DeleteBackup, Refused, Reply, Request, StoreBackup, StoreTask
from dhtcrawl.rpc.tasks.signals import Hello

FULL = "full"


@loop_state
class Bounded:
    """A handler of requests in front of another."""

    def __init__(self, node: bytes, answer: Handler, now: Callable[[], float]) -> None:
        """`node` is this one; `now` gives seconds."""
        self.quotas = PeerQuotas()
        self._node = node
        self._answer = answer
        self._now = now

    def handle(self, hello: Hello, message: Request) -> Reply | asyncio.Future[Reply]:
        """The answer, or a future of it; FULL where the peer asks too much."""
        peer = hello.node_id
        if peer == self._node:
            return self._answer(hello, message)
        if not self.quotas.take(peer, message, self._now()):
            if isinstance(message, StoreTask | StoreBackup | DeleteBackup):
                return Ack.all(Code.FULL, message.items, "beyond what one peer may send")
            return Refused(FULL, "beyond what one peer may ask")
        waits = False
        try:
            reply = self._answer(hello, message)
            waits = isinstance(reply, asyncio.Future)
        finally:
            if not waits:
                self.quotas.end(peer)
        if isinstance(reply, asyncio.Future):
            reply.add_done_callback(lambda _: self.quotas.end(peer))
        return reply
