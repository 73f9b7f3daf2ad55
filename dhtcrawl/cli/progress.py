"""What a person sees while a crawl runs, and at its end.

On a terminal one line that is rewritten, no wider than the terminal; piped, a
plain line now and then. All of it goes to stderr: stdout is for results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from dhtcrawl.cli.rate import Rate, Used, a_second, rough_end
from dhtcrawl.cli.screen import Screen
from dhtcrawl.cli.table import printable
from dhtcrawl.cli.words import clock, fitting, for_a_person, some, tally, with_reason
from dhtcrawl.crawl.budget import Stop
from dhtcrawl.node.single import RunningCrawl
from dhtcrawl.standing import sentence
from dhtcrawl.storage.outputs.record_files import RECORDS_DIR, RULES_FILE
from dhtcrawl.storage.outputs.summary import Summary
from dhtcrawl.storage.store.outcomes import end_of
from dhtcrawl.storage.store.plan_counters import in_words
from dhtcrawl.units import size


class CrawlProgress:
    """Shows a crawl's counters until it is left."""

    def __init__(self, running: RunningCrawl, *, resumed: bool, sync: bool) -> None:
        self._running = running
        self._crawl = crawl = running.crawl
        self._screen = Screen()
        self._resumed = resumed
        self._sync = sync
        self._rate = Rate(0.0, crawl.counters.pages)  # the crawl begins now

    def __enter__(self) -> CrawlProgress:
        verb = "going on with" if self._resumed else "crawling"
        unsafe = "" if self._sync else " (storage.sync is off)"
        self._screen.say(f"{verb} {some(self._crawl.parts.start.spec.all_seeds)}{unsafe}")
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self._screen.clear()

    async def tick(self) -> None:
        """Show the state again and again, until cancelled."""
        while True:
            await asyncio.sleep(self._screen.every_s)
            self._screen.show(self._line())

    def _line(self) -> str:
        crawl, counters = self._crawl, self._crawl.counters
        elapsed_s = crawl.elapsed_s
        rate = self._rate.after(elapsed_s, counters.pages)
        pages, queued = counters.pages, counters.queued
        if self._running.writing:
            written = f"{clock(elapsed_s)}  {pages} pages  {size(counters.body_bytes)}  writing the outputs"
            return fitting(written, self._screen.columns)
        figures = (
            f"{clock(elapsed_s)}  {pages} pages  {a_second(rate)}  {size(counters.body_bytes)}  "
            f"{queued} queued  {crawl.parts.frontier.in_flight} in flight  {counters.errors} errors"
        )
        obstacle = crawl.obstacle
        if obstacle is not None:
            return with_reason(figures, sentence(obstacle), self._screen.columns)
        settings = crawl.parts.start.spec.settings
        limits = Used(settings.max_pages, settings.time_limit_s, settings.size_limit_bytes)
        end = rough_end(queued, rate, Used(pages, elapsed_s, counters.body_bytes), limits)
        return fitting(f"{figures}  {end}" if end else figures, self._screen.columns)


def describe(summary: Summary, stopped: Stop | None, out: Path) -> str:
    """The end of a crawl in a few lines, none wider than 80 columns but for paths."""
    state = "incomplete" if stopped is None else f"stopped: {stopped.word}"
    state = end_of(summary.pages_ok) if summary.complete else state
    rate = summary.pages / summary.seconds if summary.seconds else 0.0
    retried = f", {summary.retried} tried again" if summary.retried else ""
    lines = [
        f"crawl {summary.crawl[:12]}  {state}  in {clock(summary.seconds)}",
        f"  pages      {summary.pages}  ({rate:.1f}/s, {size(summary.bytes)})",
        f"  requests   {summary.fetches}  ({summary.redirects} redirects, {summary.errors} errors{retried})",
        f"  urls seen  {summary.urls_seen}  ({summary.links} links lead there; lost: {summary.lost}, "
        f"fetched twice: {summary.refetches})",
    ]
    lines += counted("  errors     ", summary.errors_by_kind) + counted("  skipped    ", summary.skipped)
    lines += counted("  records    ", summary.records) + counted("  rejected   ", summary.rejected)
    lines += _unused_rules(summary, out)
    if summary.plans:
        lines.append(f"  plans by   {', '.join(in_words(summary.plans))}")
    lines += for_a_person(summary.skipped)
    if summary.pages_missing:
        lines.append(f"  MISSING    {summary.pages_missing} bodies are in no archive file")
    if summary.pages_undercopied:
        lines.append(f"  COPIES     {summary.pages_undercopied} pages lie on fewer than {summary.copies} nodes")
    if summary.politeness_violations:
        lines.append(f"  IMPOLITE   {summary.politeness_violations} requests began sooner than the delay")
    lines.append(f"  outputs    {out}/")
    return "\n".join(lines)


def _unused_rules(summary: Summary, out: Path) -> list[str]:
    if not (out / RECORDS_DIR / RULES_FILE).exists():
        return []
    from dhtcrawl.cli.rules_files import rules_without_pages  # few crawls have rules, and its imports take 0.1 s

    names = rules_without_pages(out, summary.records)
    return [f"  UNUSED     no page is of the sites of the rules {', '.join(names)}"] if names else []


def counted(head: str, counts: Mapping[str, int], width: int = 79) -> list[str]:
    """Counts by name, the greatest first, in lines of `width` below `head`; none where nothing was counted."""
    parts = [printable(part) for part in tally(counts)]  # other nodes give reasons, too
    if not parts:
        return []
    lines, current = [], head
    for index, part in enumerate(parts):
        piece = part + (", " if index < len(parts) - 1 else "")
        if len(current) + len(piece) > width and current.strip():
            lines.append(current.rstrip())
            current = " " * len(head)
        current += piece
    return [*lines, current]
