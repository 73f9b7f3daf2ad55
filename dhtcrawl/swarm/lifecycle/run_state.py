"""Whether a crawl may start anything at this node: what its record, the view and the node's life say. No I/O."""

from __future__ import annotations

from dhtcrawl.rpc.membership.view import View
from dhtcrawl.storage.store.crawl_record import RUNNING, CrawlRecord
from dhtcrawl.swarm.claim import KeyClaim


class RunState:
    """What decides whether one crawl may start anything at one node."""

    def __init__(self, record: CrawlRecord, node: bytes, view: View) -> None:
        self.record = record
        self.view = view
        self.settled: View | None = None  # the last view that this node has synced with its neighbours about
        self.is_over = False  # nothing more is started: the run ends, and its crawl begins anew here
        self.held_back = False  # nothing is started: the node joins once more, or is about to leave
        self._node = node

    @property
    def held(self) -> bool:
        """Whether nothing is started."""
        return self.leaving or self.record.state != RUNNING

    @property
    def leaving(self) -> bool:
        """Whether nothing more is begun here, whatever the record says."""
        return self.held_back or self.is_over or self.settled is None

    @property
    def owning(self) -> bool:
        """Whether this node may fetch, or assign, the tasks that it owns."""
        return not self.held

    def claim(self) -> KeyClaim:
        """The claim to keys by the present view and the settled one."""
        return KeyClaim(self._node, self.view, self.settled)

    def settle(self, view: View | None) -> None:
        """Let what is this node's own by `view` be fetched; None: nothing."""
        self.settled = self.view if view is not None and view.alike(self.view) else view
