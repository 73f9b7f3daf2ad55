"""Whether a crawl may start anything at this node: what its record, the view and the node's life say. No I/O."""

from __future__ import annotations

from dhtcrawl.rpc.membership.view import View
from dhtcrawl.storage.store.crawl_record import RUNNING, CrawlRecord
from dhtcrawl.swarm.claim import KeyClaim


class RunState:
    """Of one crawl at one node."""

    def __init__(self, record: CrawlRecord, node: bytes, view: View) -> None:
        self.record = record
        self.view = view
        self.settled: View | None = None  # by which this node has learned what there is to know
        self.held_back = False  # nothing is started: joining once more, or about to leave
        self._node = node

    @property
    def held(self) -> bool:
        """Whether nothing is started."""
        return self.leaving or self.record.state != RUNNING

    @property
    def leaving(self) -> bool:
        """Whether nothing more is begun here, whatever the record says."""
        return self.held_back or self.settled is None

    @property
    def owning(self) -> bool:
        """Whether what is this node's own may be fetched, or lent."""
        return not self.held

    def claim(self) -> KeyClaim:
        """The claim to keys by the view of now, and by the one that is settled."""
        return KeyClaim(self._node, self.view, self.settled)

    def settle(self, view: View | None) -> None:
        """What is this node's own by `view` may be fetched."""
        self.settled = self.view if view is not None and view.alike(self.view) else view
