"""Which tasks of a crawl this node owns, has on disk and its backups have too, as far as memory says. No I/O.

    a link ──▶ on disk ──▶ on the backups ──▶ acked, and noted here ──▶ a further link to it is known
                                                  │
                                the node owns other keys than before ──▶ all are forgotten

A link to such a task, found no nearer, changes nothing and waits for nobody: it is known without a look into the store,
and without a turn of the committer's thread. What is not noted is looked up there.

A record is dropped here only after another node has come to own its key (`dhtcrawl.swarm.records.sync`), so
whatever is noted is on disk. What was under way when the keys changed is not noted either.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dhtcrawl.loop_state import loop_state
from dhtcrawl.storage.store.known_depths import SALTS, DepthTable, salt_of
from dhtcrawl.storage.store.tasks import Link

_STEP: Final = 0x9E3779B97F4A7C15  # odd, so that no salt comes again


@loop_state
class SafeTasks:
    """The safe tasks of one crawl, in a table that all crawls of a node share."""

    def __init__(self, table: DepthTable, crawl: bytes) -> None:
        self.era = 0  # grows when all are forgotten
        self._table = table
        self._first_salt = self._salt = salt_of(crawl)
        self._claim: object = None

    def claimed(self, claim: object) -> None:
        """Note which keys this node owns now; forget all tasks if they are others than before."""
        if claim != self._claim:
            self._claim = claim
            self.era += 1
            # What was noted is not found with another salt, and gives its place to what comes.
            self._salt = (self._first_salt + self.era * _STEP) % SALTS

    def unknown(self, links: Sequence[Link]) -> list[Link]:
        """Those of the links whose tasks are not known to be safe at their depth."""
        kept = self._table.find([link.key for link in links], self._salt)
        return [link for link, depth in zip(links, kept, strict=True) if depth > link.depth]

    def add(self, links: Sequence[Link]) -> None:
        """Note the tasks of these links, which are safe at their depths or smaller ones."""
        self._table.keep([link.key for link in links], [link.depth for link in links], self._salt)
