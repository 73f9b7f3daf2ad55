"""Runs one job of the frontier: sends a request and handles its outcome.

A page goes to the next round. `dhtcrawl.fetch.politeness` decides when the host may
be asked again, `dhtcrawl.fetch.retry` whether the page is tried again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from dhtcrawl.clock import iso8601
from dhtcrawl.crawl.analysis import REDIRECTS, Analysis, LongPage, analyse
from dhtcrawl.crawl.frontier import Job
from dhtcrawl.crawl.origins import log_hold
from dhtcrawl.crawl.parts import CrawlParts
from dhtcrawl.crawl.ports import Assignment, TaskOutcome
from dhtcrawl.crawl.record_finder import finder_of
from dhtcrawl.crawl.robots_fetcher import PageRequests, RobotsFetcher, item_of, log_outcome, shown
from dhtcrawl.crawl.rounds import Fetched, Kill
from dhtcrawl.crawl.scope_check import AGAIN_S, ScopeCheck
from dhtcrawl.crawl.services import Services
from dhtcrawl.fetch import retry
from dhtcrawl.fetch.header_fields import content_type, locations
from dhtcrawl.fetch.host_access import LeaseLost
from dhtcrawl.fetch.http import Body, Exchange, FetchFailure, FetchFailureKind, HttpRequest
from dhtcrawl.fetch.politeness import HoldReason
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.standing import Cause, span
from dhtcrawl.storage.store.depth_limits import reaches
from dhtcrawl.storage.store.records import DEPTH_LIMIT, SkipReason
from dhtcrawl.storage.store.tasks import FetchedPage, Queued

log = logging.getLogger(__name__)

# A page that is larger, as sent or decoded, is parsed off the loop: a megabyte of HTML takes about 10 ms, and fifty
# times as long where it is made for that.
INLINE_BYTES_MAX = 512 << 10
BEYOND = "another node queued it, and no member knows it to be within the crawl's scope"
TOO_DEEP = "the crawl's depth limit was lowered after it had been queued"
NO_ROBOTS = "robots.txt answers with errors, so nothing may be fetched (RFC 9309, 2.3.1.4)"


@loop_state
class Fetcher:
    """Runs a crawl's page jobs."""

    def __init__(self, services: Services, spec: CrawlSpec, parts: CrawlParts, assignment: Assignment) -> None:
        """`parts` are the parts of the crawl that the pages are fetched for."""
        self._s = services
        self._spec = spec
        self._frontier = parts.frontier
        self._parts = parts
        self._origins = parts.origins
        self._assignment = assignment
        fetch = services.config.fetch
        self._html_bytes_max = fetch.html_bytes_max
        self._depth_limit = parts.start.depth_limit
        self._finder = finder_of(spec)
        self._requests = PageRequests.of(fetch, spec)
        self._scope_check = ScopeCheck(parts.scope, services.ports.record, services.clock.monotonic)
        self._robots_fetcher = RobotsFetcher(services, spec, parts, self._requests)

    async def run(self, job: Job) -> None:
        """Do one job: fetch a page or a robots.txt."""
        if job.task is not None and not reaches(self._spec.settings.depth, job.task.depth):
            self._s.hosts.clock(job.host).cancel()
            self._drop(job, job.task, SkipReason.DEPTH, TOO_DEEP)
            return
        # A crawl without other nodes has only links that it found itself.
        if not self._s.ports.ownership.alone and await self._is_beyond(job):
            return
        if job.task is None:
            await self._robots_fetcher.run(job)
        else:
            await self._fetch_page(job, job.task)

    async def _is_beyond(self, job: Job) -> bool:
        """Whether a job is beyond the crawl's scope, or was until now; then it is over, or done again later."""
        if self._beyond(job) is None:
            # The scope may have grown since its origin was given up; then its robots.txt has not been asked for.
            self._origins.pardon(job.origin)
            if job.task is None or self._origins.may_ask(job.origin):
                return False
            self._s.hosts.clock(job.host).cancel()
            now = self._s.clock.monotonic()
            self._again(job, job.task, now, now, counts=False)
            return True
        self._s.hosts.clock(job.host).cancel()
        sure, reason = await self._scope_check.sure(), self._beyond(job)
        now = self._s.clock.monotonic()
        if job.task is None:
            if reason is not None and sure:
                self._origins.give_up(job.origin, reason, BEYOND)
            elif reason is not None:
                self._s.hosts.step_back(job.host, now, now + AGAIN_S)
            self._frontier.finish(job, now)
        elif reason is not None and sure:
            self._drop(job, job.task, reason, BEYOND)
        else:
            self._again(job, job.task, now, now if reason is None else now + AGAIN_S, counts=False)
        return True

    def _drop(self, job: Job, task: Queued, reason: str, detail: str) -> None:
        """Give a task up for which no request was made."""
        self._frontier.finish(job, self._s.clock.monotonic())
        self._kill(job, task, reason, detail)

    def _beyond(self, job: Job) -> str | None:
        if job.task is not None:
            return self._scope_check.rules_out(job.task.url)
        return None if self._scope_check.reaches(job.host) else SkipReason.OUT_OF_SCOPE

    async def _fetch_page(self, job: Job, task: Queued) -> None:
        clock = self._s.hosts.clock(job.host)
        hopeless = self._origins.without_hope(job.origin)
        if hopeless is not None:
            clock.cancel()
            now = self._s.clock.monotonic()
            self._frontier.finish(job, now)
            job.attempt = max(0, job.attempt - 1)  # the last one that was made, and not this one
            self._give_up(job, task, hopeless.reason, hopeless.detail, hopeless.result, now=now)
            return
        if not self._spec.settings.ignore_robots and not self._parts.robots.allows(job.origin, task.url):
            clock.cancel()
            now = self._s.clock.monotonic()
            if self._parts.robots.doubt(job.origin):
                self._again(job, task, now, now, counts=False)
                return
            self._frontier.finish(job, now)
            unread = self._parts.robots.unreachable(job.origin)
            self._kill(job, task, SkipReason.ROBOTS, NO_ROBOTS if unread else "robots.txt disallows it")
            return
        await self._parts.writer.room()
        begun_at, connect_s = self._s.clock.monotonic(), self._assignment.connect_s(job.host)
        limits = self._requests.limits if connect_s is None else self._requests.limits._replace(connect_s=connect_s)
        request = HttpRequest(task.url, self._requests.headers, limits, self._requests.private_hosts)
        outcome = await self._s.gate.within_lease(job.host, lambda: self._s.http.exchange(request))
        clock.end(outcome.ended_at)
        now = self._s.clock.monotonic()
        if isinstance(outcome, LeaseLost):
            log.debug("the lease of %s ended before %s was fetched", job.host, task.url)
            self._parts.counters.fetches += outcome.begun
            self._parts.counters.retried += outcome.begun
            self._again(job, task, now, now, counts=False)
            return
        self._parts.counters.fetches += 1
        if isinstance(outcome, FetchFailure):
            self._s.observer.event("failure", url=task.url, kind=outcome.kind.value)
            log_outcome(log, self._parts, task.url, outcome, job.attempt)
            self._failed(job, task, outcome, begun_at)
            return
        self._s.observer.event("response", url=task.url, status=outcome.status)
        log_outcome(log, self._parts, task.url, outcome, job.attempt)
        self._origins.note_answer(job.origin, outcome, again=job.failures > 0)
        self._parts.shares.located(job.host, outcome.remote_ip)
        again = _again(outcome)
        wait_s = self._origins.wait_s(outcome, job.failures) if again is not None else 0.0
        if again is not None and again.hold_host:
            clock.hold(now, wait_s, HoldReason(Cause.RETRY_AFTER, str(outcome.status)))
            self._parts.owe(job.host, wait_s)
            log_hold(log, job.host, wait_s, f"it answered {outcome.status}")
        elif clock.hold_until <= now:
            self._parts.owe(job.host, 0.0)
        if again is not None and job.failures < self._s.config.fetch.retries_max:
            outcome.body.close()
            broken = "" if outcome.truncated is None else f", and its body broke off ({outcome.truncated})"
            self._note(task, f"it answered {outcome.status}{broken}; tried again after {span(wait_s)}")
            self._parts.counters.retried += 1
            self._again(job, task, now, now + wait_s)
            return
        self._frontier.finish(job, now)
        took_s = outcome.ended_at - outcome.started_at
        self._assignment.brought(TaskOutcome(task.key, job.host, TaskResult.PAGE, took_s, bytes=outcome.body.size))
        await self._process(job, task, outcome)

    def _failed(self, job: Job, task: Queued, failure: FetchFailure, begun_at: float) -> None:
        now, blame = self._s.clock.monotonic(), retry.FAILURES[failure.kind]
        detail = f"{failure.kind}: {failure.detail}"
        self._note(task, detail)
        if blame is retry.Blame.HOST:
            self._origins.lost(job.origin, failure, now)
            given = TaskOutcome(task.key, job.host, TaskResult.UNREACHABLE, now - begun_at, detail=detail)
            if self._assignment.passes_on(task, given):
                self._frontier.finish(job, now)
                return
            self._again(job, task, now, now, unreached=True)
            return
        if blame is retry.Blame.PAGE and not failure.reused:
            self._origins.fell_silent(job.origin, failure, again=job.failures > 0)
        if blame is retry.Blame.PAGE and job.failures < self._s.config.fetch.retries_max:
            self._parts.counters.retried += 1
            self._again(job, task, now, now + self._origins.backoff.wait_s(job.failures + 1))
        else:
            self._frontier.finish(job, now)
            refused = failure.kind is FetchFailureKind.PRIVATE_ADDRESS
            reason = SkipReason.PRIVATE_ADDRESS if refused else SkipReason.FAILED
            self._give_up(job, task, reason, detail, TaskResult.FAILED, now=begun_at)

    def _note(self, task: Queued, what: str) -> None:
        self._parts.attempts.note(task.key, iso8601(self._s.clock.wall()), what)

    def _again(
        self, job: Job, task: Queued, now: float, retry_at: float, *, counts: bool = True, unreached: bool = False
    ) -> None:
        """Try a task again at `retry_at`, unless another node has become its owner or has it in flight, too."""
        ownership = self._s.ports.ownership
        if ownership.stays(task.key):
            if log.isEnabledFor(logging.DEBUG):
                wait_s = max(0.0, retry_at - now)
                fields = {"crawl": self._parts.start.crawl_id.hex(), "url": task.url, "wait_s": round(wait_s, 3)}
                log.debug("%s is to be tried again after %.3g s", task.url, wait_s, extra=fields)
            self._frontier.finish(job, now, retry_at=retry_at, counts=counts, unreached=unreached)
            return
        self._frontier.finish(job, now)
        self._frontier.written(job.host, task.key, now)
        if not ownership.owns(task.key):
            self._assignment.released(task.key)

    def _give_up(self, job: Job, task: Queued, reason: str, detail: str, result: TaskResult, *, now: float) -> None:
        """Make no further attempt here: pass the task on or kill it; `now` is when the last attempt began."""
        given = TaskOutcome(task.key, job.host, result, self._s.clock.monotonic() - now, detail=detail)
        if reason == SkipReason.FAILED and self._assignment.passes_on(task, given):
            return
        # No node is left that might reach the host: every attempt that was possible has been made.
        all_tried = given._replace(result=TaskResult.FAILED)
        if result is TaskResult.UNREACHABLE and self._assignment.passes_on(task, all_tried):
            return
        self._kill(job, task, reason, detail)

    def _kill(self, job: Job, task: Queued, reason: str, detail: str) -> None:
        if log.isEnabledFor(logging.DEBUG):
            fields = {"crawl": self._parts.start.crawl_id.hex(), "url": task.url}
            log.debug("%s will not be fetched (%s): %s", task.url, reason, detail, extra=fields)
        self._assignment.killed(task.key)
        self._parts.next_round.kill(Kill(job.host, task.key, reason, detail, job.attempt, task.depth))

    async def _process(self, job: Job, task: Queued, exchange: Exchange) -> None:
        """Analyse a response and give the page and its links to the next round."""
        content = exchange.body
        look = partial(
            analyse,
            task.url,
            exchange.status,
            exchange.headers,
            html_bytes_max=self._html_bytes_max,
            token=self._parts.discovery.token,
            find_records=None if self._finder is None else self._finder(task.url),
        )
        analysis = self._look_here(look, task, content)
        if analysis is None:
            # By one byte more it is seen that something is cut off.
            analysis = await self._s.offload(lambda: look(content.head(self._html_bytes_max + 1)))
        found = await self._parts.discovery.discover(
            task.url, analysis, depth=task.depth, hops=task.hops, seed=task.seed
        )
        fields: dict[str, Any] = {
            "url": task.url,
            "status": exchange.status,
            "depth": task.depth,
            "referrer": task.referrer or None,
            "final_url": found.final_url,
            "content_type": analysis.content_type,
            "charset": analysis.charset,
            "title": analysis.title,
            "bytes": content.size,
            "payload_digest": "",
            "fetched_at": iso8601(exchange.fetched_at),
            "node": self._s.node,
            "error": f"truncated: {exchange.truncated}" if exchange.truncated is not None else analysis.error,
            "mime": shown(content_type(exchange.headers)),
        }
        if analysis.query_charset is not None:
            fields["query_charset"] = analysis.query_charset
        if analysis.records is not None:
            fields["records"] = analysis.records
        if self._depth_limit is not None:
            fields[DEPTH_LIMIT] = self._depth_limit
        alias = found.alias
        if task.seed and analysis.redirect is not None and not self._s.ports.ownership.alone:
            # All nodes must know the wider scope before one of them gets a link that only it covers.
            await self._s.ports.record.announce(task.url, found.final_url)
            alias = None
        page = FetchedPage(task.key, task.depth, fields, found.link_keys, found.skipped)
        fetched = Fetched(job.host, item_of(self._s, task.url, exchange), content, page, job.attempt)
        self._parts.next_round.page(fetched, found.links, alias, found.under_way)

    def _look_here(self, look: Callable[..., Analysis], task: Queued, content: Body) -> Analysis | None:
        """Analyse a response at once; None for one that takes too long for the loop."""
        if content.spooled or content.size > INLINE_BYTES_MAX:
            return None
        without_parser = partial(self._parts.discovery.without_parser, url=task.url, depth=task.depth)
        try:
            return look(content.data, here_bytes_max=INLINE_BYTES_MAX, without_parser=without_parser)
        except LongPage:
            return None


def _again(exchange: Exchange) -> retry.Again | None:
    """Whether another try may bring more than this answer."""
    status = retry.STATUSES.get(exchange.status)
    if status is not None or exchange.truncated is None:
        return status
    if exchange.status in REDIRECTS and locations(exchange.headers):
        return None  # its head is all that is wanted of a redirect
    return retry.TRUNCATIONS.get(exchange.truncated)
