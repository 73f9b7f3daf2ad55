"""Times how far a site is from this node: the first byte of a small request (httpping, Liu et al. 2010).

The request is a HEAD of the origin's robots.txt, which every robot may ask for (RFC 9309, 2.2.2) and which costs the
site little; a node that has fetched the robots.txt itself knows the time already. It is a request to the host like any
other: it waits for the host's turn, delay and lease, and for the robots.txt that may ask for a longer delay. It goes
before pages, which are placed by it. What the site does for a page is not in its time, nor is its connection.
"""

from __future__ import annotations

import asyncio
import logging

from dhtcrawl.crawl.parts import CrawlParts
from dhtcrawl.crawl.robots_fetcher import PageRequests, log_outcome, parsed_rules
from dhtcrawl.crawl.services import Services
from dhtcrawl.fetch.host_access import LeaseLost, RobotsFetch, RobotsKnown
from dhtcrawl.fetch.http import FetchFailure, HttpRequest
from dhtcrawl.fetch.robots import product_token
from dhtcrawl.loop_state import loop_state
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.url import host_of

log = logging.getLogger(__name__)

WAIT_S = 30.0  # for the host's turn: a time that comes later helps little
LOOK_EVERY_S = 0.25


@loop_state
class SiteTimer:
    """Makes the small requests of one crawl on one node."""

    def __init__(self, services: Services, spec: CrawlSpec, parts: CrawlParts) -> None:
        requests = PageRequests.of(services.config.fetch, spec)
        self._s = services
        self._parts = parts
        self._requests = requests._replace(limits=requests.limits._replace(body_bytes_max=0))
        self._token = product_token(spec.settings.user_agent)
        self._waiting: dict[str, asyncio.Event] = {}  # by host: set when it may be this node's turn

    def may_time(self, origin: str) -> bool:
        """Whether the crawl's scope reaches an origin that it has not given up."""
        reaches = self._parts.scope.reaches(host_of(f"{origin}/"))
        return reaches and self._parts.origins.without_hope(origin) is None

    def host_free(self, host: str) -> None:
        """Note that a host may be asked: where a request waits for it, this says that it is wanted."""
        if host in self._waiting:
            self._ready_at(host)
            self._waiting[host].set()

    async def times(self, origin: str) -> list[float] | None:
        """Seconds to the first byte of a small request; none where the origin may not be asked now; None: it fails."""
        host, frontier = host_of(f"{origin}/"), self._parts.frontier
        if host in self._waiting or not await self._robots_known(origin):
            return []
        known = self._parts.origins.robots_s.get(origin)
        if known is not None:
            return [known]
        if host in self._waiting:
            return []  # for another origin of the host, which came first while the robots.txt was asked for
        self._waiting[host] = asyncio.Event()
        frontier.give_way(host, True, self._s.clock.monotonic())
        try:
            return await self._ask(origin, host) if await self._turn(host) else []
        finally:
            del self._waiting[host]
            frontier.give_way(host, False, self._s.clock.monotonic())
            self._s.hosts.quiet(host)
            self._parts.changed()

    async def _ask(self, origin: str, host: str) -> list[float] | None:
        """Send a request that has begun by the host's clock."""
        headers, limits, private_hosts = self._requests
        request = HttpRequest(f"{origin}/robots.txt", headers, limits, private_hosts, method="HEAD")
        clock = self._s.hosts.clock(host)
        ended_at = None
        try:
            outcome = await self._s.gate.within_lease(host, lambda: self._s.http.exchange(request))
            ended_at = outcome.ended_at
        finally:
            clock.end(self._s.clock.monotonic() if ended_at is None else ended_at)
        if isinstance(outcome, LeaseLost):
            return []
        self._parts.counters.probes += 1
        log_outcome(log, self._parts, request.url, outcome)
        if isinstance(outcome, FetchFailure):
            return None
        outcome.body.close()
        return [outcome.first_byte_s]

    async def _turn(self, host: str) -> bool:
        """Wait for the host's turn and begin a request by its clock; False where that takes too long."""
        until = self._s.clock.monotonic() + WAIT_S
        while True:
            now = self._s.clock.monotonic()
            ready_at = self._ready_at(host)
            if ready_at <= now:
                self._s.hosts.clock(host).begin(now, self._delay_s(host))
                return True
            if now >= until:
                return False
            event = self._waiting[host]
            event.clear()
            try:
                async with asyncio.timeout(max(1e-6, min(ready_at - now, LOOK_EVERY_S))):
                    await event.wait()
            except TimeoutError:
                continue

    async def _robots_known(self, origin: str) -> bool:
        """Whether the rules of an origin, which another node has fetched, are in force here: they may name a delay."""
        if self._parts.origins.may_ask(origin):
            return self._parts.origins.without_hope(origin) is None
        queue = self._parts.frontier.host(host_of(f"{origin}/"))
        if queue is not None and queue.robots_busy:
            return False  # a claim on it that is given up here would have another node fetch it, too
        answer = await self._s.gate.robots(origin, self._token)
        if isinstance(answer, RobotsFetch):
            await self._s.gate.robots_tell(origin, self._token, None)  # the next node that wants a page fetches it
        if not isinstance(answer, RobotsKnown):
            return False
        rules = await parsed_rules(answer.verdict, answer.body, self._token, self._s.offload)
        self._parts.robots.put(origin, rules, answer.age_s, told=True)
        return True

    def _delay_s(self, host: str) -> float:
        return self._parts.origins.delay_s(host)

    def _ready_at(self, host: str) -> float:
        delay_s = self._delay_s(host)
        return self._s.hosts.clock(host).ready_at(delay_s, self._s.config.fetch.concurrency if delay_s == 0 else 1)
