"""Judges whether nodes know how many of their pages have too few copies (I11, `--copies`).

A node keeps a count of them, `pages_undercopied`, so that it need not look
through its disk: rounds add to it and copies that were made anew take from it,
each while the other goes on. Whenever a node has nothing of the kind under way,
and at the end, its count is what the holders noted on its disk come to.
"""

from __future__ import annotations

from collections.abc import Sequence

from dhtcrawl.keyspace import KEY_BYTES
from dhtcrawl.sim.scene import Scene
from dhtcrawl.sim.swarm import SimHost
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import unpack


class CopyCounts:
    """The counts of all nodes, for one crawl."""

    def __init__(self, scene: Scene, crawl: bytes, copies: int) -> None:
        """`copies` is how many nodes are to have each body."""
        self._scene = scene
        self._crawl = crawl
        self._copies = copies
        self._wrong: dict[tuple[SimHost, int], None] = {}  # in which of its lives; it is told once

    def look(self) -> None:
        for host in self._scene.awake if self._copies > 1 else ():
            counted = self._counted(host)
            if counted is not None:
                self._compare(host, counted)

    def at_the_end(self, hosts: Sequence[SimHost]) -> None:
        for host in hosts if self._copies > 1 else ():
            value = host.disk.engine.get(keys.key(keys.COUNTERS, self._crawl))
            if value is not None:
                self._compare(host, unpack(value).get("pages_undercopied", 0))

    def _counted(self, host: SimHost) -> int | None:
        """What a node counts; None while that may be about to change, and where the crawl does not run."""
        run = None if host.swarm is None or not host.swarm.ready.is_set() else host.swarm.runs.of(self._crawl)
        if run is None or run.copying.under_way or not run.parts.writer.state.idle:
            return None
        return run.parts.counters.pages_undercopied

    def _compare(self, host: SimHost, counted: int) -> None:
        noted = host.disk.engine.scan(*keys.bounds(keys.HOLDERS, self._crawl))
        short = sum(len(holders) // KEY_BYTES < self._copies - 1 for _, holders in noted)
        if short != counted and (host, host.starts) not in self._wrong:
            self._wrong[host, host.starts] = None
            self._scene.broken("I11", f"{host.name} counts {counted} pages with too few copies; its disk has {short}")
