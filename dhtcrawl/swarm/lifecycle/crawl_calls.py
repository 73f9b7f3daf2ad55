"""Answers the calls about a crawl as a whole: its report in a wave, its figures, its audit, its page blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dhtcrawl.rpc.peers.port import UNKNOWN_CRAWL, CallRegistry, Peers, by_crawl
from dhtcrawl.rpc.tasks.messages import Refused
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.swarm.bodies.exports import counters_of
from dhtcrawl.swarm.calls import lifecycle as calls
from dhtcrawl.swarm.calls.words import row_of
from dhtcrawl.swarm.lifecycle.board import report_without_run
from dhtcrawl.swarm.lifecycle.crawl_runs import CrawlRuns


@dataclass(frozen=True, slots=True)
class CrawlCalls:
    """Answers for all crawls of one node."""

    peers: Peers
    committer: Committer
    runs: CrawlRuns
    incarnation: int

    def serve(self, registry: CallRegistry) -> None:
        """Register the handlers."""
        run_of = self.runs.of
        registry.serve(calls.ReportCrawl, self._on_report)
        registry.serve(calls.AskProgress, self._on_progress)
        registry.serve(calls.AuditCrawl, by_crawl(run_of, lambda run: run.coordinator.on_audit))
        registry.serve(calls.ClaimPages, by_crawl(run_of, lambda run: run.coordinator.desk.on_claim))
        registry.serve(calls.NotePages, by_crawl(run_of, lambda run: run.coordinator.desk.on_note))
        registry.serve(calls.AskPages, by_crawl(run_of, lambda run: run.coordinator.desk.on_ask))

    def _on_report(self, asker: bytes, args: calls.ReportCrawl) -> calls.CrawlStanding:
        run = self.runs.of(args.crawl)
        if run is not None:
            return run.coordinator.on_report(asker, args)
        return report_without_run(self.peers, self.runs.records.get(args.crawl), self.incarnation)

    async def _on_progress(self, asker: bytes, args: calls.AskProgress) -> calls.CrawlFigures | Refused:
        """Answer with a crawl's figures for people; unlike `crawl_report` this is no part of a wave."""
        if self.runs.records.get(args.crawl) is None:
            return Refused(UNKNOWN_CRAWL)
        run = self.runs.of(args.crawl)
        if not args.here:
            return Refused("not-coordinator") if run is None else await run.coordinator.on_progress(asker, args)
        if run is None:
            return calls.CrawlFigures(await self.committer.submit(partial(counters_of, crawl=args.crawl)), {})
        report = run.board.report()
        return calls.CrawlFigures(report.counters, report.waiting, obstacle=row_of(report.obstacle))
