"""What a crawl's coordinator and its page blocks see of one node."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.storage.store.crawl_record import DIGEST_BYTES, CrawlRecord, record_digest
from dhtcrawl.swarm.calls.lifecycle import CrawlStanding
from dhtcrawl.swarm.lifecycle.waves import CrawlReport, view_fingerprint


class PageNeed(NamedTuple):
    """What a node could spend pages on: fetched or in flight (`used`), and to be started now or soon (`queued`)."""

    used: int
    queued: int


class Board(Protocol):
    """What a coordinator needs of its node. No method but `audit` and `update` may take time."""

    def record(self) -> CrawlRecord:
        """The crawl's record as this node has it."""
        ...

    def report(self) -> CrawlReport:
        """How the crawl stands here at this moment; the fields that `filled_in` sets may be left out."""
        ...

    async def audit(self) -> tuple[int, int]:
        """How many links of the pages here no owner knows, and how many pages sent links again. May be cancelled."""
        ...

    async def update(self, record: CrawlRecord) -> None:
        """Merge a record into the stored one, never replace it, and act on what it says; durable on return."""
        ...

    def need(self) -> PageNeed:
        """What this node could spend pages on."""
        ...

    def granted(self) -> None:
        """Note that more pages may be started than before."""
        ...


def filled_in(report: CrawlReport, peers: Peers, record: CrawlRecord | None) -> CrawlReport:
    """The report with what the node knows besides: its id, its view and the crawl's record."""
    return replace(
        report,
        node=peers.node_id,
        view=view_fingerprint(peers.view),
        knows=record is not None,
        record=bytes(DIGEST_BYTES) if record is None else record_digest(record),
        state_version=0 if record is None else record.version,
    )


def report_without_run(peers: Peers, record: CrawlRecord | None, incarnation: int) -> CrawlStanding:
    """The answer to `crawl_report` where the crawl does not run: it is unknown here, or has ended by this record."""
    report = CrawlReport(incarnation, idle=record is not None and bool(record.ended), activity=0)
    return filled_in(report, peers, record).standing()
