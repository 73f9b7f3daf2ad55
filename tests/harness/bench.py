"""One part of one node, with what any part needs: the other nodes are functions that a test gives."""

from __future__ import annotations

import asyncio

from swarm.fake_peers import FakePeers, view_of

from dhtcrawl.rpc.membership.view import View
from dhtcrawl.rpc.peers.port import CallRegistry
from dhtcrawl.sim.committer import LoopCommitter
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.storage.store.committer import GroupRunner
from dhtcrawl.storage.store.memory import MemoryEngine


class Bench:
    """Node 0: a store in memory, a clock, a registry of calls, and `FakePeers`. Subclasses make the part.

    For several nodes of the same kind there is `harness.world`.
    """

    def __init__(self, view: View | None = None) -> None:
        """`view`: three active nodes unless given."""
        self.peers = FakePeers(view_of([0, 1, 2]) if view is None else view)
        self.registry = CallRegistry()
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.engine = MemoryEngine()
        self.committer = LoopCommitter(GroupRunner(self.engine, sync=False))
