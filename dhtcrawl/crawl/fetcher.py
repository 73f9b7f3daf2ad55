"""One job from the frontier: a request, and what its outcome means.

The outcome of a page goes to the corridor; when the host may be asked again,
and whether the page is tried again, is decided by `dhtcrawl.fetch.politeness`
and `dhtcrawl.fetch.retry`.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from dhtcrawl.clock import iso8601
from dhtcrawl.crawl.analysis import analyse
from dhtcrawl.crawl.corridor import Corridor, Fetched, Kill
from dhtcrawl.crawl.discovery import Discovery
from dhtcrawl.crawl.frontier import Frontier, Job
from dhtcrawl.crawl.services import Services
from dhtcrawl.fetch import body, retry
from dhtcrawl.fetch.http import Exchange, Failure, FailureKind, Limits, Request
from dhtcrawl.fetch.politeness import Backoff, HealthBook
from dhtcrawl.fetch.robots import ALLOW_ALL, DISALLOW_ALL, Robots, Verdict, product_token, verdict_for_status
from dhtcrawl.fetch.robots_book import RobotsBook
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.records import SkipReason
from dhtcrawl.storage.tasks import Page, Queued
from dhtcrawl.storage.warc import ArchiveItem
from dhtcrawl.url import canonicalize, host_of

# A larger page is parsed off the loop: a megabyte of HTML takes about 10 ms.
INLINE_BYTES_MAX = 512 << 10
ROBOTS_REDIRECTS_MAX = 5  # RFC 9309, 2.3.1.2
ROBOTS_BYTES_MAX = 512_000  # RFC 9309, 2.5: at least 500 KiB
HEADER_SHOWN_CHARS = 200
GIVEN_UP_MAX = 100_000  # origins remembered as dead
OWED_MAX = 100_000  # hosts whose longer waits a restart will know of
NO_ROBOTS = "robots.txt answers with errors, so nothing may be fetched (RFC 9309, 2.3.1.4)"


class Fetcher:
    """Runs the jobs of one crawl."""

    def __init__(
        self,
        services: Services,
        spec: CrawlSpec,
        frontier: Frontier,
        corridor: Corridor,
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
        # Origins without hope: their tasks are dead as the frontier offers them.
        self._given_up: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._health = HealthBook()
        self._robots_paths: dict[str, tuple[str, int]] = {}  # redirected robots.txt to go on with: url, hop
        config = services.config
        self._retries_max = config.fetch.retries_max
        self._html_bytes_max = config.fetch.html_bytes_max
        polite = config.politeness
        self._retry_after_max_s = polite.retry_after_max_s
        self._backoff = Backoff(
            polite.backoff_first_s,
            polite.backoff_max_s,
            polite.host_failures_max,
            polite.host_strikes_max,
            polite.host_silences_max,
        )
        self._private_hosts = spec.private_hosts
        self._token = product_token(spec.settings.user_agent)
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
        self._robots_limits = replace(self._limits, body_bytes_max=ROBOTS_BYTES_MAX)
        self._robots_failures: dict[str, int] = {}
        self._owed = dict(owed)

    async def run(self, job: Job) -> None:
        """Do one job to its end."""
        if job.task is None:
            await self._fetch_robots(job)
        else:
            await self._fetch_page(job, job.task)

    async def _fetch_page(self, job: Job, task: Queued) -> None:
        clock = self._s.hosts.clock(job.host)
        if job.origin in self._given_up:
            clock.cancel()
            self._frontier.finish(job, self._s.clock.monotonic())
            self._kill(job, task, *self._given_up[job.origin])
            return
        if not self._spec.settings.ignore_robots and not self._robots.allows(job.origin, task.url):
            clock.cancel()
            self._frontier.finish(job, self._s.clock.monotonic())
            unread = self._robots.unreachable(job.origin)
            self._kill(job, task, SkipReason.ROBOTS, NO_ROBOTS if unread else "robots.txt disallows it")
            return
        await self._corridor.room()
        outcome = await self._s.http.exchange(Request(task.url, self._headers, self._limits, self._private_hosts))
        clock.end(outcome.ended_at)
        self._corridor.counters.fetches += 1
        now = self._s.clock.monotonic()
        if isinstance(outcome, Failure):
            self._s.observer.event("failure", url=task.url, kind=outcome.kind.value)
            self._failed(job, task, outcome, now)
            return
        self._s.observer.event("response", url=task.url, status=outcome.status)
        self._note_answer(job.origin, outcome)
        again = retry.STATUSES.get(outcome.status) or (
            retry.TRUNCATIONS.get(outcome.truncated) if outcome.truncated is not None else None
        )
        wait_s = self._wait_s(outcome, job.attempt) if again is not None else 0.0
        if again is not None and again.hold_host:
            clock.hold(now, wait_s)
            self._owe(job.host, wait_s)
        elif clock.hold_until <= now:
            self._owe(job.host, 0.0)
        if again is not None and job.attempt < self._retries_max:
            outcome.body.close()
            self._frontier.finish(job, now, retry_at=now + wait_s)
            return
        self._frontier.finish(job, now)
        await self._process(job, task, outcome)

    def may_ask(self, origin: str) -> bool:
        """Whether it is known what may be asked of `origin`: its robots.txt, or that it is given up."""
        return self._spec.settings.ignore_robots or origin in self._given_up or self._robots.known(origin)

    def _note_answer(self, origin: str, exchange: Exchange) -> None:
        """An answer that says "not now" is worth no more than none, if it is all there is."""
        again = retry.STATUSES.get(exchange.status)
        if again is None or not again.hold_host:
            self._health.of(origin).succeeded()
        elif self._health.of(origin).fell_silent(self._backoff):
            self._give_up(origin, SkipReason.FAILED, f"answers {exchange.status} to everything")

    def _give_up(self, origin: str, reason: str, detail: str) -> None:
        self._given_up[origin] = (reason, detail)
        if len(self._given_up) > GIVEN_UP_MAX:
            # One that is forgotten and met again is tried again.
            self._given_up.popitem(last=False)

    def _lost(self, origin: str, failure: Failure, now: float) -> None:
        """Nobody was reached: leave the host alone for a while, and give the origin up in the end."""
        health = self._health.of(origin)
        # A certificate that does not verify will not verify in a minute.
        hopeless = failure.kind is FailureKind.TLS and not health.answered
        if health.failed(self._backoff) or hopeless:
            self._give_up(origin, SkipReason.FAILED, f"{failure.kind}: {failure.detail}")
        else:
            self._s.hosts.clock(host_of(f"{origin}/")).hold(now, self._backoff.wait_s(health.failures))

    def _owe(self, host: str, wait_s: float) -> None:
        """Let a restart know of a wait that is longer than the delay; 0 when it is over."""
        wait_s = max(wait_s, self._robots.crawl_delay_s(host))
        wait_s = wait_s if wait_s > self._spec.settings.delay_s else 0.0
        if wait_s != self._owed.get(host, 0.0) and (host in self._owed or len(self._owed) < OWED_MAX):
            if wait_s:
                self._owed[host] = wait_s
            else:
                del self._owed[host]
            self._corridor.owe(host, wait_s)

    def _wait_s(self, exchange: Exchange, attempt: int) -> float:
        asked = retry.retry_after_s(exchange.header("retry-after"), self._s.clock.wall(), self._retry_after_max_s)
        return asked if asked is not None else self._backoff.wait_s(attempt + 1)

    def _failed(self, job: Job, task: Queued, failure: Failure, now: float) -> None:
        blame = retry.FAILURES[failure.kind]
        detail = f"{failure.kind}: {failure.detail}"
        if blame is retry.Blame.HOST:
            self._lost(job.origin, failure, now)
            self._frontier.finish(job, now, retry_at=now)
            return
        if blame is retry.Blame.PAGE and self._health.of(job.origin).fell_silent(self._backoff):
            self._give_up(job.origin, SkipReason.FAILED, f"{detail}, again and again")
        if blame is retry.Blame.PAGE and job.attempt < self._retries_max:
            self._frontier.finish(job, now, retry_at=now + self._backoff.wait_s(job.attempt + 1))
        else:
            self._frontier.finish(job, now)
            refused = failure.kind is FailureKind.PRIVATE_ADDRESS
            self._kill(job, task, SkipReason.PRIVATE_ADDRESS if refused else SkipReason.FAILED, detail)

    def _kill(self, job: Job, task: Queued, reason: str, detail: str) -> None:
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
            "mime": _shown(exchange.header("content-type")),
        }
        page = Page(task.key, task.depth, fields, found.link_keys, found.skipped)
        self._corridor.page(
            Fetched(job.host, self._item(task.url, exchange), content, page, job.attempt), found.links, found.alias
        )

    def _item(self, url: str, exchange: Exchange) -> ArchiveItem:
        content = exchange.body
        return ArchiveItem(
            url=url,
            date=exchange.fetched_at,
            remote_ip=exchange.remote_ip,
            request_head=exchange.request_head,
            response_head=exchange.response_head,
            body_size=content.size,
            chunks=content.chunks,
            body=None if content.spooled else content.data,
            truncated=exchange.truncated.value if exchange.truncated is not None else None,
            response_id=self._s.new_record_id(),
            request_id=self._s.new_record_id(),
            warcinfo_id="",
        )

    def _extra(self, job: Job, url: str, exchange: Exchange) -> Fetched:
        """What is archived and indexed, but is no page."""
        fields = {
            "url": url,
            "status": exchange.status,
            "fetched_at": iso8601(exchange.fetched_at),
            "mime": _shown(exchange.header("content-type")),
        }
        return Fetched(job.host, self._item(url, exchange), exchange.body, extra=fields)

    async def _fetch_robots(self, job: Job) -> None:
        """Fetch an origin's robots.txt and put its rules in force (RFC 9309, 2.3)."""
        url, hop = self._robots_paths.pop(job.origin, (f"{job.origin}/robots.txt", 0))
        if hop:
            # The frontier began a request to the host; this one may go elsewhere.
            self._s.hosts.clock(job.host).cancel()
        while True:
            if hop:
                rules = self._robots.rules_at(url)
                if rules is not None:
                    break
                if not self._begin_elsewhere(url, hop, job):
                    return
            outcome = await self._ask_robots(url, job)
            if outcome is None:
                return
            self._corridor.archive(self._extra(job, url, outcome))
            location = outcome.header("location") if 300 <= outcome.status < 400 else None
            target = canonicalize(location, url) if location is not None else None
            if target is not None and hop < ROBOTS_REDIRECTS_MAX:
                url, hop = target, hop + 1
                continue
            verdict = verdict_for_status(outcome.status)
            if verdict is Verdict.PARSE:
                rules = await self._read_robots(outcome)
            elif verdict is Verdict.ALLOW_ALL:
                # Too many redirects, too: "unavailable", as if there were none (2.3.1.2).
                rules = ALLOW_ALL
            elif self._try_robots_later(job, outcome):
                return
            else:
                rules = DISALLOW_ALL
            break
        self._robots.put(job.origin, rules)
        self._robots_failures.pop(job.origin, None)
        self._owe(job.host, 0.0)
        self._frontier.finish(job, self._s.clock.monotonic())

    def _begin_elsewhere(self, url: str, hop: int, job: Job) -> bool:
        """Begin a request that a robots.txt was redirected to; False where that host is not ready.

        Then the job is over for now, and no fetcher waits: it comes back when
        its own host has been left alone for as long.
        """
        host = host_of(url)
        clock, delay_s, now = self._s.hosts.clock(host), self.delay_s(host), self._s.clock.monotonic()
        ready_at = clock.ready_at(delay_s, self._s.config.fetch.concurrency if delay_s == 0 else 1)
        if ready_at <= now:
            clock.begin(now, delay_s)
            return True
        self._robots_paths[job.origin] = (url, hop)
        # Infinite while somebody else's request is under way there.
        wait_s = ready_at - now if ready_at < math.inf else max(delay_s, 0.1)
        self._s.hosts.clock(job.host).hold(now, wait_s)
        self._frontier.finish(job, now)
        return False

    async def _ask_robots(self, url: str, job: Job) -> Exchange | None:
        """One request, begun, on the way to a robots.txt; None where the job is over."""
        host = host_of(url)
        outcome = await self._s.http.exchange(Request(url, self._headers, self._robots_limits, self._private_hosts))
        self._s.hosts.clock(host).end(outcome.ended_at)
        self._corridor.counters.robots_fetches += 1
        now = self._s.clock.monotonic()
        if host != job.host:
            # The frontier may have looked at that host meanwhile, and found it busy.
            self._frontier.host_free(host, now)
        if not isinstance(outcome, Failure):
            self._s.observer.event("robots", url=url, status=outcome.status)
            self._note_answer(job.origin, outcome)
            return outcome
        self._s.observer.event("failure", url=url, kind=outcome.kind.value)
        if outcome.kind is FailureKind.PRIVATE_ADDRESS:
            self._give_up(job.origin, SkipReason.PRIVATE_ADDRESS, f"{outcome.kind}: {outcome.detail}")
        else:
            # Whatever the kind: an origin whose robots.txt cannot be had is not
            # crawled (2.3.1.4), so it is asked later, or given up.
            self._lost(job.origin, outcome, now)
        self._frontier.finish(job, now)
        return None

    def _try_robots_later(self, job: Job, exchange: Exchange) -> bool:
        """Whether a robots.txt that answers 429 or 5xx is asked for once more."""
        failures = self._robots_failures.get(job.origin, 0)
        if failures >= self._retries_max:
            return False
        self._robots_failures[job.origin] = failures + 1
        now = self._s.clock.monotonic()
        wait_s = self._wait_s(exchange, failures)
        self._s.hosts.clock(job.host).hold(now, wait_s)
        self._owe(job.host, wait_s)
        self._frontier.finish(job, now)
        return True

    def delay_s(self, host: str) -> float:
        """What lies between two requests to `host`: the crawl's delay, or the host's wish."""
        if self._spec.settings.ignore_robots:
            return self._spec.settings.delay_s
        return max(self._spec.settings.delay_s, self._robots.crawl_delay_s(host))

    async def _read_robots(self, exchange: Exchange) -> Robots:
        data = exchange.body.head(ROBOTS_BYTES_MAX)
        encoding = exchange.header("content-encoding")
        if encoding is not None:
            data = body.decode(data, encoding, ROBOTS_BYTES_MAX).data

        def parse() -> Robots:
            rules = Robots.parse(data)
            # Sorts the rules for us, which takes as long as reading them.
            rules.crawl_delay_s(self._token)
            return rules

        parsed: Robots = await self._s.offload(parse)
        return parsed


def _shown(header: str | None) -> str | None:
    return None if header is None else header[:HEADER_SHOWN_CHARS]
