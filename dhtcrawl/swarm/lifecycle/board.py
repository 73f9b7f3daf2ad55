"""What a crawl's coordinator and its page blocks see of one node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from dhtcrawl.rpc.peers.port import Peers
from dhtcrawl.standing import Obstacle
from dhtcrawl.storage.store.crawl_record import DIGEST_BYTES, CrawlRecord
from dhtcrawl.swarm.calls.lifecycle import ALWAYS_COUNTED, CrawlStanding
from dhtcrawl.swarm.calls.words import NODES_TOLD_MAX, obstacle_row, row_of
from dhtcrawl.swarm.lifecycle.waves import view_fingerprint


class PageNeed(NamedTuple):
    """What a node could spend pages on: fetched or in flight (`used`), and to be started now or soon (`queued`)."""

    used: int
    queued: int


class RunReport(NamedTuple):
    """How a crawl stands on one node at one moment, as its run there tells it."""

    incarnation: int
    activity: int  # grows with everything that could be, or bring, work for a node
    waiting: Mapping[str, int]  # what makes it not idle, by the words of `standing.OWED`
    counters: Mapping[str, int | float]  # for limits and for people: seconds, bytes, pages …
    obstacle: Obstacle | None = None  # what keeps the crawl from going on here
    awaited: Sequence[Obstacle] = ()  # nodes that are gone, and how many pages of ours lie only there


class Board(Protocol):
    """What a coordinator needs of its node. No method but `audit` and `update` may take time."""

    def record(self) -> CrawlRecord:
        """The crawl's record as this node has it."""
        ...

    def report(self) -> RunReport:
        """How the crawl stands here at this moment."""
        ...

    async def audit(self) -> tuple[int, int]:
        """How many links of the pages here no owner knows, and how many pages sent links again. May be cancelled."""
        ...

    async def update(self, record: CrawlRecord) -> None:
        """Merge a record into the stored one, never replace it, and act on what it says; durable on return."""
        ...

    def believed(self, record: CrawlRecord, teller: bytes) -> CrawlRecord:
        """What counts of a record that another node tells; the same object where all does."""
        ...

    def signed(self, record: CrawlRecord) -> CrawlRecord:
        """The record with this node as the maker of what is new in it."""
        ...

    def need(self) -> PageNeed:
        """What this node could spend pages on."""
        ...

    def granted(self) -> None:
        """Note that more pages may be started than before."""
        ...


def standing_of(
    peers: Peers, record: CrawlRecord | None, report: RunReport, *, idle: bool, figures: Mapping[str, int | float]
) -> CrawlStanding:
    """The answer to `crawl_report`: what the run tells, `figures` besides its counters, and what the node knows."""
    counted = {name: count for name, count in report.counters.items() if count or name in ALWAYS_COUNTED}
    return CrawlStanding(
        incarnation=report.incarnation,
        knows=record is not None,
        idle=idle,
        activity=report.activity,
        view=view_fingerprint(peers.view),
        record=bytes(DIGEST_BYTES) if record is None else record.digest,
        state_version=0 if record is None else record.version,
        waiting=report.waiting,
        counters={**counted, **figures},
        obstacle=row_of(report.obstacle),
        awaited=tuple(map(obstacle_row, report.awaited[:NODES_TOLD_MAX])),
    )


def report_without_run(peers: Peers, record: CrawlRecord | None, incarnation: int) -> CrawlStanding:
    """The answer to `crawl_report` where the crawl does not run: it is unknown here, or has ended by this record."""
    idle = record is not None and bool(record.ended)
    return standing_of(peers, record, RunReport(incarnation, 0, {}, {}), idle=idle, figures={})
