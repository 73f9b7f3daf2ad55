"""One simulated node on a seeded web: run it, crash it, start it again.

The node is the real one (`dhtcrawl.node.single`); only its ports are made here. What
it keeps on disk, an engine and directories in memory, outlives a crash the way
a disk would: what was committed is whole, and of what was appended to a file
after the last commit a part of any length may be there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

from dhtcrawl.clock import Clock
from dhtcrawl.config import Config
from dhtcrawl.errors import Exit
from dhtcrawl.node.single import Ports, open_node
from dhtcrawl.sim.committer import CrashingCommitter
from dhtcrawl.sim.keys import SimKey
from dhtcrawl.sim.loop import VirtualClock
from dhtcrawl.sim.trace import Trace
from dhtcrawl.sim.web import SimClient, SimWeb
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.outputs.outputs import OutputDirs
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.committer import Committer, GroupRunner
from dhtcrawl.storage.store.files import MemoryDirectory
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.records import unpack


@dataclass(slots=True)
class SimDisk:
    """What a node leaves behind."""

    engine: MemoryEngine = field(default_factory=MemoryEngine)
    outputs: OutputDirs = field(default_factory=OutputDirs.in_memory)
    takes_nothing: bool = False  # it has failed, until its node is begun again

    def tear(self, rng: Random) -> None:
        """A crash: of what was appended and not committed, a part is left."""
        archive = self.outputs.archive
        assert isinstance(archive, MemoryDirectory)
        rows = self.engine.scan(keys.ARCHIVE, keys.after(keys.ARCHIVE))
        committed = {keys.suffix(key).decode(): unpack(value) for key, value in rows}
        for name in archive.names():
            length = committed.get(name, 0)
            data = archive.files[name]
            del data[rng.randint(length, max(length, len(data))) :]


class SimNode:
    """One node. Its randomness is its own, so that another node's does not change it."""

    def __init__(self, name: str, seed: int, config: Config, web: SimWeb, trace: Trace, *, commit_s: float) -> None:
        """`commit_s` is how long its disk takes for an fsync."""
        self.disk = SimDisk()
        self.id = Random(f"{seed} {name} id").randbytes(20)
        self._seed = seed
        self._name = name
        self._lives = 0
        self._rng = Random(f"{seed} {name}")
        self._config = config
        self._commit_s = commit_s
        self._web = web
        self._trace = trace
        self._committer: CrashingCommitter | None = None

    async def crawl(self, spec: CrawlSpec) -> tuple[Summary, Exit]:
        """Run the crawl to its end, from wherever the disk stands."""
        clock = VirtualClock(asyncio.get_running_loop())
        async with open_node(self._config, self._ports(clock)) as node:
            known = await node.crawls()
            record = known[0] if known else await node.create_crawl(spec)
            running = await node.prepare(record, self.disk.outputs, disk_used=never)
            return await running.run()

    async def crawl_until(self, spec: CrawlSpec, crash_after_s: float) -> tuple[Summary, Exit] | None:
        """The same, unless it takes longer: then the node crashes, and the result is None."""
        if crash_after_s == inf:
            return await self.crawl(spec)
        async with asyncio.TaskGroup() as group:
            crawling = group.create_task(self.crawl(spec))
            done, _ = await asyncio.wait([crawling], timeout=crash_after_s)
            if done:
                return crawling.result()
            if self._committer is not None:
                self._committer.crash()
            crawling.cancel()
        self.disk.tear(self._rng)
        self._trace.event("crash", node=self.id)
        return None

    def _ports(self, clock: Clock) -> Ports:
        def make_committer(runner: GroupRunner) -> Committer:
            self._lives += 1
            held = Random(f"{self._seed} {self._name} commits {self._lives}")
            self._committer = CrashingCommitter(runner, latency_s=self._commit_s, rng=held)
            return self._committer

        return Ports(
            clock=clock,
            rng=self._rng,
            http=SimClient(self._web, clock),
            engine=self.disk.engine,
            make_committer=make_committer,
            offload=offload,
            aside=offload,
            key=SimKey(self.id, self._lives),
            observer=self._trace,
        )


async def never(_more_bytes: int = 0, /) -> bool:
    """Whether the disk is used up: it is not."""
    return False


async def offload(function: Callable[[], Any]) -> Any:
    """Call a function that blocks, at another turn of the loop."""
    await asyncio.sleep(0)
    return function()
