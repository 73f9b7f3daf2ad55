"""A node's side of a crawl, as the crawl's coordinator and its page desk see it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.storage.store.crawl_record import DIGEST_BYTES, CrawlRecord, record_digest
from dhtcrawl.swarm.calls import CrawlStanding
from dhtcrawl.swarm.lifecycle.waves import CrawlReport, view_fingerprint


class PageNeed(NamedTuple):
    """What a node has: pages fetched or in flight, and tasks that could be started now or soon."""

    used: int
    queued: int


class Board(Protocol):
    """All that a coordinator needs of its node. No method but `audit` and `update` may take time."""

    def record(self) -> CrawlRecord:
        """The crawl's record as this node has it."""
        ...

    def report(self) -> CrawlReport:
        """How the crawl stands here at this moment; what the asker adds (`filled_in`) may be left out."""
        ...

    async def audit(self) -> tuple[int, int]:
        """Links of the pages here that no owner knows, and how many were sent again. It may be cancelled."""
        ...

    async def update(self, record: CrawlRecord) -> None:
        """Merge a record into the stored one, never replace it, and act on what it says; durable on return."""
        ...

    def need(self) -> PageNeed:
        """What there is to spend pages on."""
        ...

    def granted(self) -> None:
        """More pages may be started than before."""
        ...


def filled_in(report: CrawlReport, peers: Peers, record: CrawlRecord | None) -> CrawlReport:
    """A report with what a node knows besides the crawl: itself, its view and the crawl's record."""
    return replace(
        report,
        node=peers.node_id,
        view=view_fingerprint(peers.view),
        knows=record is not None,
        record=bytes(DIGEST_BYTES) if record is None else record_digest(record),
        state_version=0 if record is None else record.version,
    )


def report_without_run(peers: Peers, record: CrawlRecord | None, incarnation: int) -> CrawlStanding:
    """What to answer to `crawl_report` where the crawl does not run: unknown here, or ended by this record."""
    report = CrawlReport(incarnation, idle=record is not None and bool(record.ended), activity=0)
    return filled_in(report, peers, record).standing()
