"""One job from the frontier: a request, and what its outcome means.

The outcome of a page goes to the corridor; when the host may be asked again,
and whether the page is tried again, is decided by `dhtcrawl.fetch.politeness`
and `dhtcrawl.fetch.retry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from dhtcrawl.clock import iso8601
from dhtcrawl.crawl.analysis import analyse
from dhtcrawl.crawl.discovery import Discovery
from dhtcrawl.crawl.frontier import Frontier, Job
from dhtcrawl.crawl.origins import Origins
from dhtcrawl.crawl.ports import TaskOutcome
from dhtcrawl.crawl.robots_fetcher import RobotsFetcher, item_of, shown
from dhtcrawl.crawl.round_writer import RoundWriter
from dhtcrawl.crawl.rounds import Fetched, Kill
from dhtcrawl.crawl.services import Services
from dhtcrawl.fetch import retry
from dhtcrawl.fetch.host_access import LeaseLost
from dhtcrawl.fetch.http import Exchange, FetchFailure, FetchFailureKind, HttpRequest, Limits
from dhtcrawl.fetch.robots_book import RobotsBook
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.storage.store.tasks import FetchedPage, Queued

# A larger page is parsed off the loop: a megabyte of HTML takes about 10 ms.
INLINE_BYTES_MAX = 512 << 10
NO_ROBOTS = "robots.txt answers with errors, so nothing may be fetched (RFC 9309, 2.3.1.4)"


class Fetcher:
    """Runs the jobs of one crawl."""

    def __init__(
        self,
        services: Services,
        spec: CrawlSpec,
        frontier: Frontier,
        corridor: RoundWriter,
        discovery: Discovery,
        robots: RobotsBook,
        owed: Mapping[str, float],
    ) -> None:
        """`owed` is what the store has of hosts that asked for longer waits than the delay, in seconds."""
        self._s = services
        self._spec = spec
        self._frontier = frontier
        self._corridor = corridor
        self._discovery = discovery
        self._robots = robots
        self.origins = Origins(services, spec, corridor, robots, owed)
        config = services.config
        self._retries_max = config.fetch.retries_max
        self._html_bytes_max = config.fetch.html_bytes_max
        self._private_hosts = spec.private_hosts
        headers = [("User-Agent", spec.user_agent), ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")]
        if config.fetch.accept_language:
            headers.append(("Accept-Language", config.fetch.accept_language))
        headers.append(("Accept-Encoding", "gzip, deflate, br, zstd"))
        self._headers = tuple(headers)
        self._limits = Limits(
            connect_s=config.fetch.connect_timeout_s,
            head_s=config.fetch.head_timeout_s,
            body_s=config.fetch.body_timeout_s,
            idle_s=config.fetch.idle_timeout_s,
            head_bytes_max=config.fetch.head_bytes_max,
            body_bytes_max=config.fetch.body_bytes_max,
        )
        self._robots_fetcher = RobotsFetcher(
            services, spec, frontier, corridor, robots, self.origins, self._headers, self._limits, self.delay_s
        )

    async def run(self, job: Job) -> None:
        """Do one job to its end."""
        if job.task is None:
            await self._robots_fetcher.run(job)
        else:
            await self._fetch_page(job, job.task)

    async def _fetch_page(self, job: Job, task: Queued) -> None:
        clock = self._s.hosts.clock(job.host)
        hopeless = self.origins.without_hope(job.origin)
        if hopeless is not None:
            clock.cancel()
            now = self._s.clock.monotonic()
            self._frontier.finish(job, now)
            self._give_up(job, task, hopeless.reason, hopeless.detail, hopeless.result, now=now)
            return
        if not self._spec.settings.ignore_robots and not self._robots.allows(job.origin, task.url):
            clock.cancel()
            self._frontier.finish(job, self._s.clock.monotonic())
            unread = self._robots.unreachable(job.origin)
            self._kill(job, task, SkipReason.ROBOTS, NO_ROBOTS if unread else "robots.txt disallows it")
            return
        await self._corridor.room()
        begun_at, connect_s = self._s.clock.monotonic(), self._s.ports.assignment.connect_s(job.host)
        limits = self._limits if connect_s is None else replace(self._limits, connect_s=connect_s)
        request = HttpRequest(task.url, self._headers, limits, self._private_hosts)
        outcome = await self._s.gate.within_lease(job.host, lambda: self._s.http.exchange(request))
        clock.end(outcome.ended_at)
        now = self._s.clock.monotonic()
        if isinstance(outcome, LeaseLost):
            self._again(job, task, now, now, counts=False)
            return
        self._corridor.counters.fetches += 1
        if isinstance(outcome, FetchFailure):
            self._s.observer.event("failure", url=task.url, kind=outcome.kind.value)
            self._failed(job, task, outcome, begun_at)
            return
        self._s.observer.event("response", url=task.url, status=outcome.status)
        self.origins.note_answer(job.origin, outcome)
        again = retry.STATUSES.get(outcome.status) or (
            retry.TRUNCATIONS.get(outcome.truncated) if outcome.truncated is not None else None
        )
        wait_s = self.origins.wait_s(outcome, job.attempt) if again is not None else 0.0
        if again is not None and again.hold_host:
            clock.hold(now, wait_s)
            self.origins.owe(job.host, wait_s)
        elif clock.hold_until <= now:
            self.origins.owe(job.host, 0.0)
        if again is not None and job.attempt < self._retries_max:
            outcome.body.close()
            self._again(job, task, now, now + wait_s)
            return
        self._frontier.finish(job, now)
        took_s = outcome.ended_at - outcome.started_at
        self._s.ports.assignment.brought(
            TaskOutcome(task.key, job.host, TaskResult.PAGE, took_s, bytes=outcome.body.size)
        )
        await self._process(job, task, outcome)

    def _failed(self, job: Job, task: Queued, failure: FetchFailure, begun_at: float) -> None:
        now, blame = self._s.clock.monotonic(), retry.FAILURES[failure.kind]
        detail = f"{failure.kind}: {failure.detail}"
        if blame is retry.Blame.HOST:
            self.origins.lost(job.origin, failure, now)
            given = TaskOutcome(task.key, job.host, TaskResult.UNREACHABLE, now - begun_at, detail=detail)
            if self._s.ports.assignment.passes_on(task, given):
                self._frontier.finish(job, now)
                return
            self._again(job, task, now, now)
            return
        if blame is retry.Blame.PAGE:
            self.origins.fell_silent(job.origin, detail)
        if blame is retry.Blame.PAGE and job.attempt < self._retries_max:
            self._again(job, task, now, now + self.origins.backoff.wait_s(job.attempt + 1))
        else:
            self._frontier.finish(job, now)
            refused = failure.kind is FetchFailureKind.PRIVATE_ADDRESS
            reason = SkipReason.PRIVATE_ADDRESS if refused else SkipReason.FAILED
            self._give_up(job, task, reason, detail, TaskResult.FAILED, now=begun_at)

    def _again(self, job: Job, task: Queued, now: float, retry_at: float, *, counts: bool = True) -> None:
        """Try a task again at `retry_at`; or leave that to whoever owns it by now, or has it in flight, too."""
        ports = self._s.ports
        if ports.ownership.stays(task.key):
            self._frontier.finish(job, now, retry_at=retry_at, counts=counts)
            return
        self._frontier.finish(job, now)
        self._frontier.written(job.host, task.key, now)
        if not ports.ownership.owns(task.key):
            ports.assignment.released(task.key)

    def _give_up(self, job: Job, task: Queued, reason: str, detail: str, result: TaskResult, *, now: float) -> None:
        """Nothing more is to be tried here; `now` is when the last try began."""
        given = TaskOutcome(task.key, job.host, result, self._s.clock.monotonic() - now, detail=detail)
        if reason == SkipReason.FAILED and self._s.ports.assignment.passes_on(task, given):
            return
        # Nobody else is left who might connect: that was all that could be tried.
        all_tried = given._replace(result=TaskResult.FAILED)
        if result is TaskResult.UNREACHABLE and self._s.ports.assignment.passes_on(task, all_tried):
            return
        self._kill(job, task, reason, detail)

    def _kill(self, job: Job, task: Queued, reason: str, detail: str) -> None:
        self._s.ports.assignment.killed(task.key)
        self._corridor.kill(Kill(job.host, task.key, reason, detail, job.attempt))

    async def _process(self, job: Job, task: Queued, exchange: Exchange) -> None:
        """Take a response apart and hand it to the corridor."""
        content = exchange.body
        look = partial(analyse, task.url, exchange.status, exchange.headers, html_bytes_max=self._html_bytes_max)
        if content.size <= INLINE_BYTES_MAX and not content.spooled:
            analysis = look(content.data)
        else:
            analysis = await self._s.offload(lambda: look(content.head(self._html_bytes_max)))
        found = self._discovery.discover(task.url, analysis, depth=task.depth, hops=task.hops, seed=task.seed)
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
            "mime": shown(exchange.header("content-type")),
        }
        alias = found.alias
        if alias is not None and not self._s.ports.ownership.alone:
            # Before anybody meets a link of the new scope, everybody is to know it.
            await self._s.ports.record.announce([alias])
            alias = None
        page = FetchedPage(task.key, task.depth, fields, found.link_keys, found.skipped)
        self._corridor.page(
            Fetched(job.host, item_of(self._s, task.url, exchange), content, page, job.attempt), found.links, alias
        )

    def may_ask(self, origin: str) -> bool:
        """Whether it is known what may be asked of `origin`."""
        return self.origins.may_ask(origin)

    def delay_s(self, host: str) -> float:
        """What lies between two requests to `host`: the crawl's delay, or the host's wish."""
        if self._spec.settings.ignore_robots:
            return self._spec.settings.delay_s
        return max(self._spec.settings.delay_s, self._robots.crawl_delay_s(host))
