"""Fetching robots.txt and putting its rules in force (RFC 9309, 2.3); in a swarm, once for all its nodes."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from dhtcrawl.clock import iso8601
from dhtcrawl.config import FetchSettings
from dhtcrawl.crawl.frontier import Job
from dhtcrawl.crawl.origins import log_hold
from dhtcrawl.crawl.parts import CrawlParts
from dhtcrawl.crawl.rounds import Fetched
from dhtcrawl.crawl.services import Services
from dhtcrawl.fetch import header_fields
from dhtcrawl.fetch.coded_body import decoded_body
from dhtcrawl.fetch.host_access import LeaseLost, RobotsFetch, RobotsWait
from dhtcrawl.fetch.http import Exchange, FetchFailure, FetchFailureKind, HttpRequest, Limits, Truncated
from dhtcrawl.fetch.politeness import HoldReason
from dhtcrawl.fetch.robots import (
    ALLOW_ALL,
    DISALLOW_ALL,
    Robots,
    RobotsVerdict,
    product_token,
    verdict_for_status,
    whole_lines,
)
from dhtcrawl.loop_state import loop_state
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.standing import Cause
from dhtcrawl.storage.archive.item import ArchiveItem
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.url import canonicalize, host_of

log = logging.getLogger(__name__)

ROBOTS_REDIRECTS_MAX = 5  # RFC 9309, 2.3.1.2
ROBOTS_BYTES_MAX = 512_000  # RFC 9309, 2.5: at least 500 KiB
HEADER_SHOWN_CHARS = 200
# How much longer than the job's wait a host that its robots.txt redirects to is kept, so that the job finds it.
EXPECTED_S = 1.0


class PageRequests(NamedTuple):
    """What all page requests of a crawl have in common."""

    headers: tuple[tuple[str, str], ...]
    limits: Limits
    private_hosts: frozenset[str]  # found by a look at all seeds: once for a crawl

    @classmethod
    def of(cls, fetch: FetchSettings, spec: CrawlSpec) -> PageRequests:
        """What the settings and the spec ask for."""
        headers = [("User-Agent", spec.user_agent), ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")]
        if fetch.accept_language:
            headers.append(("Accept-Language", fetch.accept_language))
        headers.append(("Accept-Encoding", "gzip, deflate, br, zstd"))
        limits = Limits(
            connect_s=fetch.connect_timeout_s,
            head_s=fetch.head_timeout_s,
            body_s=fetch.body_timeout_s,
            idle_s=fetch.idle_timeout_s,
            bytes_per_s_min=fetch.body_bytes_per_s_min,
            slow_s=fetch.body_slow_s,
            head_bytes_max=fetch.head_bytes_max,
            body_bytes_max=fetch.body_bytes_max,
        )
        return cls(tuple(headers), limits, spec.private_hosts)


@loop_state
class RobotsFetcher:
    """Runs a crawl's robots.txt jobs."""

    def __init__(self, services: Services, spec: CrawlSpec, parts: CrawlParts, requests: PageRequests) -> None:
        """`requests` says what a page request is; of a robots.txt less is read."""
        self._s = services
        self._spec = spec
        self._frontier = parts.frontier
        self._parts = parts
        self._robots = parts.robots
        self._origins = parts.origins
        self._requests = requests._replace(limits=requests.limits._replace(body_bytes_max=ROBOTS_BYTES_MAX))
        self._token = product_token(spec.settings.user_agent)
        self._paths: dict[str, tuple[str, int]] = {}  # redirected ones to go on with: url, hop
        self._failures: dict[str, int] = {}

    async def run(self, job: Job) -> None:
        """Fetch an origin's robots.txt, or be told of it by another node, and put its rules in force."""
        begins = job.origin not in self._paths and not self._robots.doubted(job.origin)
        if begins and await self._told_robots(job):
            return
        url, hop = self._paths.pop(job.origin, (f"{job.origin}/robots.txt", 0))
        if hop:
            # The frontier began a request to the origin's host; this one may go to another host.
            self._s.hosts.clock(job.host).cancel()
        while True:
            if hop:
                rules = self._robots.rules_at(url)
                if rules is not None:
                    await self._tell(job)  # the text is not kept, so the next node that asks reads it itself
                    break
                if not self._begin_elsewhere(url, hop, job):
                    return
            outcome = await self._ask_robots(url, job)
            if outcome is None:
                return
            self._parts.next_round.archive(self._extra(job, url, outcome))
            # Of several the first: rules that are perhaps ours are worth a request.
            locations = header_fields.locations(outcome.headers) if 300 <= outcome.status < 400 else []
            target = canonicalize(locations[0], url) if locations else None
            if target is not None and hop < ROBOTS_REDIRECTS_MAX:
                url, hop = target, hop + 1
                continue
            verdict, data, fault = _read(outcome)
            wait_s = self._origins.wait_s(outcome, self._failures.get(job.origin, 0))
            why = HoldReason(Cause.RETRY_AFTER, fault)
            if verdict is RobotsVerdict.DISALLOW_ALL and self._try_robots_later(job, wait_s, why):
                await self._tell(job)
                return
            rules = await self._rules(verdict, data)
            await self._tell(job, verdict, data)
            break
        self._put_robots(job, rules)

    async def _told_robots(self, job: Job) -> bool:
        """Whether another node fetches this robots.txt, or has fetched it; then the job ends without a request."""
        answer = await self._s.gate.robots(job.origin, self._token)
        if isinstance(answer, RobotsFetch):
            return False
        clock = self._s.hosts.clock(job.host)
        clock.cancel()
        if isinstance(answer, RobotsWait):
            now = self._s.clock.monotonic()
            self._s.hosts.step_back(job.host, now, now + answer.after_s)
            log.debug("another node fetches robots.txt of %s; asked again in %.3g s", job.origin, answer.after_s)
            self._frontier.finish(job, now)
        else:
            rules = await self._rules(answer.verdict, answer.body)
            self._put_robots(job, rules, answer.age_s, told=True)
            if not self._robots.known(job.origin):
                # The gatekeeper keeps them for longer than this node does, which would be told the same again at once.
                self._robots.doubt(job.origin)
        return True

    async def _tell(self, job: Job, verdict: RobotsVerdict | None = None, data: bytes = b"") -> None:
        """Tell the others what a fetch came to; None: to nothing. What was read in doubt nobody has asked for."""
        if not self._robots.doubted(job.origin):
            await self._s.gate.robots_tell(job.origin, self._token, verdict, data)

    def _put_robots(self, job: Job, rules: Robots, age_s: float = 0.0, *, told: bool = False) -> None:
        # What was read a day ago, or by another node, is better than nothing (2.4).
        self._log_rules(job, rules, self._robots.put(job.origin, rules, age_s, told=told))
        self._failures.pop(job.origin, None)
        self._parts.owe(job.host, 0.0)
        self._frontier.finish(job, self._s.clock.monotonic())

    def _log_rules(self, job: Job, rules: Robots, in_force: Robots) -> None:
        """Log what a robots.txt says to this crawl, louder where it explains why little or nothing is fetched."""
        if not log.isEnabledFor(logging.INFO):
            return
        delay_s = self._robots.crawl_delay_s(job.host)
        if rules is DISALLOW_ALL and in_force is not rules:
            says, level = "answers with errors, so what it said before counts", logging.INFO
        elif rules is DISALLOW_ALL:
            says, level = "allows nothing, for it answers with errors", logging.INFO
        elif rules is ALLOW_ALL:
            says, level = "allows everything, for there is none", logging.DEBUG
        elif not rules.allows(f"{job.origin}/", self._token):
            says, level = "does not allow the home page", logging.INFO
        else:
            says, level = "allows the home page", logging.DEBUG
        if delay_s > self._spec.settings.delay_s:
            says, level = f"{says}, and asks for {delay_s:g} s between two requests", logging.INFO
        log.log(level, "robots.txt of %s %s", job.origin, says, extra={"host": job.host})

    def _begin_elsewhere(self, url: str, hop: int, job: Job) -> bool:
        """Begin a request to the target of a robots.txt redirect; return False if its host is not ready.

        Then the job ends for now and no fetcher waits: the job comes back when
        its own host has been left alone for as long.
        """
        host = host_of(url)
        clock, delay_s, now = self._s.hosts.clock(host), self._origins.delay_s(host), self._s.clock.monotonic()
        ready_at = clock.ready_at(delay_s, self._s.config.fetch.concurrency if delay_s == 0 else 1)
        if ready_at <= now:
            clock.begin(now, delay_s)
            return True
        self._paths[job.origin] = (url, hop)
        # Infinite while another request to that host is under way.
        wait_s = ready_at - now if ready_at < math.inf else max(delay_s, 0.1)
        self._s.hosts.step_back(job.host, now, now + wait_s)
        self._s.hosts.expect(host, now + wait_s + EXPECTED_S)
        self._frontier.finish(job, now)
        return False

    async def _ask_robots(self, url: str, job: Job) -> Exchange | None:
        """Send one request, which was begun, for a robots.txt; None if the job is over."""
        host = host_of(url)
        requests = self._requests
        request = HttpRequest(url, requests.headers, requests.limits, requests.private_hosts)
        outcome = await self._s.gate.within_lease(host, lambda: self._s.http.exchange(request))
        self._s.hosts.clock(host).end(outcome.ended_at)
        now = self._s.clock.monotonic()
        if isinstance(outcome, LeaseLost):
            log.debug("the lease of %s ended before %s was fetched", host, url)
            await self._tell(job)
            self._frontier.finish(job, now)
            return None
        self._parts.counters.robots_fetches += 1
        if host != job.host:
            # The frontier may have found that host busy meanwhile, and has to look at it again.
            self._frontier.host_free(host, now)
        if not isinstance(outcome, FetchFailure):
            self._s.observer.event("robots", url=url, status=outcome.status)
            log_outcome(log, self._parts, url, outcome)
            if url == f"{job.origin}/robots.txt":
                self._origins.note_robots(job.origin, outcome)
            else:
                self._origins.note_answer(job.origin, outcome)
            self._parts.shares.located(host, outcome.remote_ip)
            return outcome
        self._s.observer.event("failure", url=url, kind=outcome.kind.value)
        log_outcome(log, self._parts, url, outcome)
        if url != f"{job.origin}/robots.txt":
            await self._tell(job)
            self._lost_elsewhere(job, url, outcome)
            return None
        if outcome.kind is FetchFailureKind.PRIVATE_ADDRESS:
            self._origins.give_up(job.origin, SkipReason.PRIVATE_ADDRESS, f"{outcome.kind}: {outcome.detail}")
        else:
            # Whatever kind of failure: an origin whose robots.txt cannot be had is not
            # crawled (2.3.1.4), so it is asked again later, or given up.
            self._origins.lost(job.origin, outcome, now)
        await self._tell(job)
        self._frontier.finish(job, self._s.clock.monotonic())
        return None

    def _lost_elsewhere(self, job: Job, url: str, failure: FetchFailure) -> None:
        """Ask again later, or no more: the origin answers, but where its robots.txt redirects to nobody does.

        The origin's health says nothing of that: it is well after each redirect.
        """
        detail = f"robots.txt redirects to {url}: {failure.kind}: {failure.detail}"
        wait_s = self._origins.backoff.wait_s(self._failures.get(job.origin, 0) + 1)
        private = failure.kind is FetchFailureKind.PRIVATE_ADDRESS
        if private or not self._try_robots_later(job, wait_s, HoldReason(Cause.FAILING, detail)):
            former = None if private else self._robots.former(job.origin)
            if former is not None:
                self._put_robots(job, former)
                return
            self._failures.pop(job.origin, None)
            self._origins.give_up(job.origin, SkipReason.ROBOTS, detail)
            self._frontier.finish(job, self._s.clock.monotonic())

    def _try_robots_later(self, job: Job, wait_s: float, why: HoldReason) -> bool:
        """Ask once more for a robots.txt that cannot be had; return False if there were enough attempts."""
        failures = self._failures.get(job.origin, 0)
        if failures >= self._s.config.fetch.retries_max:
            return False
        self._failures[job.origin] = failures + 1
        now = self._s.clock.monotonic()
        self._s.hosts.clock(job.host).hold(now, wait_s, why)
        log_hold(log, job.host, wait_s, why.detail)
        self._parts.owe(job.host, wait_s)
        self._frontier.finish(job, now)
        return True

    async def _rules(self, verdict: RobotsVerdict, data: bytes) -> Robots:
        return await parsed_rules(verdict, data, self._token, self._s.offload)

    def _extra(self, job: Job, url: str, exchange: Exchange) -> Fetched:
        """The `Fetched` of a response that is archived and indexed, but is no page."""
        fields = {
            "url": url,
            "status": exchange.status,
            "fetched_at": iso8601(exchange.fetched_at),
            "mime": shown(header_fields.content_type(exchange.headers)),
        }
        return Fetched(job.host, item_of(self._s, url, exchange), exchange.body, extra=fields)


def _read(exchange: Exchange) -> tuple[RobotsVerdict, bytes, str]:
    """What a robots.txt means, its text without what is past the limit, and what is wrong where it means nothing.

    Half a file is none: the rules behind the break may be the ones that
    forbid, and half a rule forbids too much. That is a network error by 2.3.1.4.
    """
    # Too many redirects count as "unavailable", too, as if there were no robots.txt (2.3.1.2).
    verdict = verdict_for_status(exchange.status)
    if verdict is not RobotsVerdict.PARSE:
        return verdict, b"", f"{exchange.status} for robots.txt"
    if exchange.truncated not in (None, Truncated.LENGTH):
        return RobotsVerdict.DISALLOW_ALL, b"", "robots.txt broke off"
    data = exchange.body.head(ROBOTS_BYTES_MAX)
    decoded = decoded_body(exchange.headers, data, ROBOTS_BYTES_MAX)
    # What has a coding that is none, such as utf-8, is read as it is.
    if decoded.error is not None and decoded.data != data:
        return RobotsVerdict.DISALLOW_ALL, b"", "robots.txt cannot be decoded"
    is_cut = exchange.truncated is not None or decoded.truncated
    return verdict, whole_lines(decoded.data) if is_cut else decoded.data, ""


async def parsed_rules(
    verdict: RobotsVerdict, data: bytes, token: str, offload: Callable[[Callable[[], Any]], Awaitable[Any]]
) -> Robots:
    """The rules of a robots.txt for a product token; `offload` runs what takes long off the event loop."""
    if verdict is not RobotsVerdict.PARSE:
        return ALLOW_ALL if verdict is RobotsVerdict.ALLOW_ALL else DISALLOW_ALL

    def parse() -> Robots:
        rules = Robots.parse(data)
        # Sorts our group's rules off the loop, too: it takes as long as parsing them.
        rules.crawl_delay_s(token)
        return rules

    parsed: Robots = await offload(parse)
    return parsed


def item_of(services: Services, url: str, exchange: Exchange) -> ArchiveItem:
    """An exchange as the archive stores it."""
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
        truncated=exchange.truncated.in_warc if exchange.truncated is not None else None,
        response_id=services.new_record_id(),
        request_id=services.new_record_id(),
    )


def shown(header: str | None) -> str | None:
    """A header's value for the index, cut if it is long."""
    return None if header is None else header[:HEADER_SHOWN_CHARS]


def log_outcome(
    logger: logging.Logger, parts: CrawlParts, url: str, outcome: Exchange | FetchFailure, attempt: int = 0
) -> None:
    """Log what a request brought, at DEBUG; `attempt` counts from 0."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    took_s = outcome.ended_at - outcome.started_at
    fields: dict[str, object] = {"crawl": parts.start.crawl_id.hex(), "url": url, "attempt": attempt + 1}
    fields["seconds"] = round(took_s, 6)
    if isinstance(outcome, FetchFailure):
        text = "%s gave no answer after %.3f s, attempt %d, %s: %s"
        logger.debug(text, url, took_s, attempt + 1, outcome.kind, outcome.detail, extra=fields)
        return
    fields |= {"status": outcome.status, "bytes": outcome.body.size}
    cut = "" if outcome.truncated is None else f", cut ({outcome.truncated})"
    text = "%s answered %d with %d bytes%s after %.3f s, attempt %d"
    logger.debug(text, url, outcome.status, outcome.body.size, cut, took_s, attempt + 1, extra=fields)
