"""What a node keeps of a crawl from one run of it to the next: what it heard of nodes that may be gone by then. Pure.

A crawl that has ended goes on where a limit is raised, or a node comes back with work. What a node that left had told
is told by nobody then, and its pages count for the limits and the figures as before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from dhtcrawl.loop_state import loop_state
from dhtcrawl.swarm.lifecycle.page_blocks import PageBook
from dhtcrawl.swarm.lifecycle.roll import Roll

KEPT_MAX: Final = 256  # crawls, those that ran last


@dataclass(frozen=True, slots=True)
class CrawlMemory:
    """Of one crawl at one node."""

    book: PageBook = field(default_factory=PageBook)
    roll: Roll = field(default_factory=Roll)
    bytes_seen: dict[bytes, float] = field(default_factory=dict)  # by node, those that are gone included


@loop_state
class CrawlMemories:
    """Those of all crawls at one node."""

    def __init__(self) -> None:
        self._memories: dict[bytes, CrawlMemory] = {}

    def of(self, crawl: bytes) -> CrawlMemory:
        """The memory for a run of a crawl that begins."""
        memory = self._memories.pop(crawl, None) or CrawlMemory()
        memory.roll.begin_again()
        self._memories[crawl] = memory
        if len(self._memories) > KEPT_MAX:
            del self._memories[next(iter(self._memories))]
        return memory
