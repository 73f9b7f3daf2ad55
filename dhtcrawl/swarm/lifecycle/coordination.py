"""What the coordinator of a crawl decides after a wave, and what it remembers between two. Pure.

heard ──▶ over_limit: stop the crawl
      ──▶ judge ──▶ AUDIT: ask those `to_audit`, and give their answers to `audited`
                ──▶ FROZEN: `end_of_frozen`
                ──▶ COMPLETE: `end_of_complete`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dhtcrawl.crawl.budget import CrawlLimits, Stop
from dhtcrawl.loop_state import loop_state
from dhtcrawl.rpc.membership.view import View
from dhtcrawl.storage.store.crawl_record import COMPLETE, STOPPED, STOPPING, CrawlRecord, changed
from dhtcrawl.storage.store.outcomes import end_of, ok_pages
from dhtcrawl.swarm.calls.lifecycle import AuditResult, CrawlStanding
from dhtcrawl.swarm.lifecycle.waves import Judgement, Waves


@loop_state
class Coordination:
    """Decides for one crawl, from one wave to the next."""

    def __init__(self, bytes_seen: dict[bytes, float] | None = None) -> None:
        """`bytes_seen`: what was heard before, by node; it is kept up to date."""
        self.reasons: tuple[str, ...] = ()  # why the crawl goes on, for people
        self.reports: dict[bytes, CrawlStanding] = {}  # of the last wave, by node
        self._waves = Waves()
        self._bytes_seen = {} if bytes_seen is None else bytes_seen  # by node, those that are gone included
        self._audits_of = b""  # the state of stillness that is being audited
        self._audits: dict[bytes, tuple[int, int]] = {}  # by node: links missing, and pages that sent theirs again

    @property
    def still(self) -> bytes:
        """Names the state that the last wave found everything still in; empty while things move."""
        return self._waves.still

    def start_over(self) -> None:
        """Forget the waves so far: another node coordinates."""
        self._waves.start_over()

    def heard(self, reports: dict[bytes, CrawlStanding]) -> None:
        """Take the reports of a wave, of those that answered."""
        self.reports = reports
        for node, report in self.reports.items():
            if report.counters:  # where the crawl does not run yet, or any more, a node has no figures to tell
                self._bytes_seen[node] = report.counters.get("bytes", 0)

    def over_limit(self, record: CrawlRecord, seconds: float) -> CrawlRecord | None:
        """The record that stops the crawl, if all nodes together have used up its time or size.

        `seconds`: how long it has gone on.
        """
        if record.state == STOPPING or all(report.idle for report in self.reports.values()):
            return None  # a crawl that has nothing left is complete, not stopped
        stop = CrawlLimits(replace(record.settings, max_pages=0)).exceeded(
            pages=0,
            seconds=seconds,
            size_bytes=int(sum(self._bytes_seen.values())),
        )
        return None if stop is None else changed(record, STOPPING, cause=stop.word)

    def judge(self, members: Sequence[bytes], view: bytes, record: bytes, *, stopping: bool) -> Judgement:
        """The verdict on the wave, as `Waves.judge`."""
        judgement = self._waves.judge(members, view, record, self.reports, stopping=stopping)
        self.reasons = judgement.reasons
        return judgement

    def to_audit(self, members: Sequence[bytes]) -> list[bytes]:
        """The members whose audit of this stillness has no result yet."""
        if self._audits_of != self.still:
            self._audits_of, self._audits = self.still, {}
        return [node for node in members if node not in self._audits]

    def audited(self, members: Sequence[bytes], answers: Mapping[bytes, AuditResult]) -> None:
        """Take the answers of those that were `to_audit`; the waves are told once every member has a result."""
        for node, found in answers.items():
            if found.missing is not None and found.resent is not None:
                self._audits[node] = (found.missing, found.resent)
        if len(self._audits) < len(members):
            self.reasons = (f"{len(members) - len(self._audits)} nodes still look for lost links",)
            return
        missing, resent = map(sum, zip(*self._audits.values(), strict=True))
        self._waves.audited(self._audits_of, missing, resent)
        self._audits_of = b""

    def end_of_frozen(self, record: CrawlRecord, *, spent: bool) -> str | None:
        """How a frozen crawl ends; None: it may go on. `spent`: no page is left to start."""
        if record.state == STOPPING:
            return record.cause or STOPPED
        return Stop.PAGE_LIMIT.word if spent else None

    def end_of_complete(self, record: CrawlRecord, view: View) -> str:
        """How a crawl ends of which nothing is left: it has failed if no node fetched content, or may have."""
        members = {member.id.hex() for member in view.members}
        gone = any(node not in members for node in record.participants)
        return COMPLETE if gone else end_of(sum(ok_pages(report.counters) for report in self.reports.values()))
