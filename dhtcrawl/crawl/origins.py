"""Tracks which origins are worth asking, and which waits their hosts asked for, for one crawl on one node.

An origin without hope is given up: its tasks die as soon as the frontier offers
them. `dhtcrawl.fetch.politeness` decides how long a host is left alone.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from dhtcrawl.clock import Clock
from dhtcrawl.config import CrawlSettings, PolitenessSettings
from dhtcrawl.fetch import retry
from dhtcrawl.fetch.header_fields import lines_of
from dhtcrawl.fetch.http import Exchange, FetchFailure, FetchFailureKind
from dhtcrawl.fetch.own_line import AGAIN_S, OwnLine
from dhtcrawl.fetch.politeness import Backoff, HealthBook, HoldReason, HostBook
from dhtcrawl.fetch.robots_book import RobotsBook
from dhtcrawl.loop_state import loop_state
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.standing import Cause
from dhtcrawl.storage.store.outcomes import again_and_again, answers_only
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.url import host_of

log = logging.getLogger(__name__)

LONG_HOLD_S = 10.0  # a wait that people may ask about, and so be told of without asking for every wait
GIVEN_UP_MAX = 100_000  # origins remembered as dead
TIMED_MAX = 10_000
OWED_MAX = 100_000  # hosts whose longer waits a restart will know of


class Hopeless(NamedTuple):
    """Why an origin was given up: a `SkipReason`, an explanation, and the result told to a task's owner."""

    reason: str
    detail: str
    result: TaskResult


class Beginning(NamedTuple):
    """How a crawl stands as its run begins."""

    owed: Mapping[str, float]  # seconds, by the hosts that asked for longer waits than the delay
    has_pages: bool
    alone: bool  # no other node has a part in the crawl


@loop_state
class Origins:
    """Remembers failures, given-up origins and owed waits of a crawl; bounded."""

    def __init__(
        self,
        settings: CrawlSettings,
        polite: PolitenessSettings,
        robots: RobotsBook,
        hosts: HostBook,
        clock: Clock,
        beginning: Beginning,
        delays: Mapping[str, float],
    ) -> None:
        """`delays`, in seconds by host, are those other than the crawl's."""
        self.backoff = Backoff(
            polite.backoff_first_s,
            polite.backoff_max_s,
            polite.host_failures_max,
            polite.host_strikes_max,
            polite.host_silences_max,
        )
        self._settings = settings
        self._hosts = hosts
        self._clock = clock
        self._robots = robots
        self._retry_after_max_s = polite.retry_after_max_s
        self._given_up: OrderedDict[str, Hopeless] = OrderedDict()
        self.robots_s: OrderedDict[str, float] = OrderedDict()  # by origin: the first byte of its robots.txt
        self._health = HealthBook()
        # A node of a swarm that has joined has a line.
        worked = beginning.has_pages and beginning.alone
        self._line = OwnLine(polite.line_wait_max_s, worked=worked, alone=beginning.alone)
        self._owed = dict(beginning.owed)
        self._delays = delays

    def change(self, settings: CrawlSettings) -> None:
        """Go on with other settings of the crawl, from the next wait for a host on."""
        self._settings = settings

    def without_hope(self, origin: str) -> Hopeless | None:
        """Why an origin was given up, if it was."""
        return self._given_up.get(origin)

    def given_up(self, limit: int) -> list[tuple[str, Hopeless]]:
        """The origins that were given up last, at most so many, and why."""
        return list(islice(reversed(self._given_up.items()), limit))

    def may_ask(self, origin: str) -> bool:
        """Whether tasks of `origin` can be decided: its robots.txt is known, or it was given up."""
        return self._settings.ignore_robots or origin in self._given_up or self._robots.known(origin)

    def note_answer(self, origin: str, exchange: Exchange, *, again: bool = False) -> None:
        """Note an answer; one that says "not now" (429, 503) counts as silence of the origin, once for a page.

        `again`: the page has failed before.
        """
        self._reached(origin, exchange.ended_at)
        status, health = retry.STATUSES.get(exchange.status), self._health.of(origin)
        if status is None or not status.hold_host:
            health.succeeded()
        elif health.fell_silent(self.backoff, exchange.started_at, exchange.ended_at, again=again):
            self.give_up(origin, SkipReason.FAILED, answers_only(exchange.status))

    def note_robots(self, origin: str, exchange: Exchange) -> None:
        """Note the answer to a request for robots.txt, and how long its first byte took."""
        self.note_answer(origin, exchange)
        self.robots_s[origin] = exchange.first_byte_s
        if len(self.robots_s) > TIMED_MAX:
            self.robots_s.popitem(last=False)

    def give_up(self, origin: str, reason: str, detail: str, result: TaskResult = TaskResult.FAILED) -> None:
        """Send no more requests to an origin."""
        if origin not in self._given_up:
            log.info("%s gets no more requests from this crawl: %s", origin, detail)
        self._given_up[origin] = Hopeless(reason, detail, result)
        if len(self._given_up) > GIVEN_UP_MAX:
            # An origin that is forgotten and met again is tried again.
            self._given_up.popitem(last=False)

    def pardon(self, origin: str) -> None:
        """Send requests to an origin again that was given up because it was taken for one beyond the scope."""
        if origin in self._given_up and self._given_up[origin].reason == SkipReason.OUT_OF_SCOPE:
            del self._given_up[origin]

    def forgive(self) -> None:
        """Try all given-up origins again as if they were new, because a user asked for it."""
        for origin in self._given_up:
            self._health.forget(origin)
        self._given_up.clear()

    def lost(self, origin: str, failure: FetchFailure, now: float) -> None:
        """No connection was made: leave the host alone for a while, or give the origin up after too many failures.

        What fails while this machine's own line is down counts against no origin.
        """
        if self._fails_with_line(origin, failure, now):
            return
        health = self._health.of(origin)
        # A certificate that does not verify will not verify in a minute.
        hopeless = failure.kind is FetchFailureKind.TLS and not health.answered
        unproven = self._line.is_unproven
        if health.failed(self.backoff, failure.started_at, failure.ended_at, answered=unproven) or hopeless:
            self.give_up(origin, SkipReason.FAILED, f"{failure.kind}: {failure.detail}", TaskResult.UNREACHABLE)
        else:
            host, wait_s = host_of(f"{origin}/"), self.backoff.wait_s(health.failures)
            why = f"{failure.kind}: {failure.detail}"
            self._hosts.clock(host).hold(now, wait_s, HoldReason(Cause.FAILING, why))
            log_hold(log, host, wait_s, f"failure {health.failures} in a row, {why}")

    def _fails_with_line(self, origin: str, failure: FetchFailure, now: float) -> bool:
        """Note for the line that a request failed; where it is down, leave the host alone and return True."""
        if retry.FAILURES[failure.kind] is not retry.Blame.HOST or failure.kind is FetchFailureKind.TLS:
            if not failure.reused:
                self._reached(origin, failure.started_at)  # a connection was made
            return False
        line, host = self._line, host_of(f"{origin}/")
        was_down = line.is_down(now)
        line.lost(origin, failure.started_at, answered=self._health.of(origin).answered or line.is_unproven)
        if not line.is_down(now):
            return False
        why = f"{failure.kind}: {failure.detail}"
        if not was_down:
            log.warning("no host is reached any more, this machine's own line may be down; the last: %s, %s", host, why)
        # Other nodes may reach it.
        self._hosts.step_back(host, now, now + AGAIN_S, HoldReason(Cause.LINE, why))
        return True

    def _reached(self, origin: str, at: float) -> None:
        if self._line.reached(origin, at):
            log.warning("hosts are reached again")

    def delay_s(self, host: str) -> float:
        """The delay between two requests to `host`, in seconds: the crawl's or robots.txt's, whichever is longer."""
        own = self._own_delay_s(host)
        return own if self._settings.ignore_robots else max(own, self._robots.crawl_delay_s(host))

    def _own_delay_s(self, host: str) -> float:
        return self._delays.get(host, self._settings.delay_s)

    def asked_delay(self, host: str) -> bool:
        """Whether the delay is the one that robots.txt asks for, and not the crawl's own."""
        return not self._settings.ignore_robots and self._robots.crawl_delay_s(host) > self._own_delay_s(host)

    def owe(self, host: str, wait_s: float) -> float | None:
        """Remember a wait that is longer than the delay; 0 when it is over.

        Returns:
            The seconds for which a restart must leave the host alone; None if they did not change.
        """
        wait_s = max(wait_s, self._robots.crawl_delay_s(host))
        wait_s = wait_s if wait_s > self._own_delay_s(host) else 0.0
        if wait_s != self._owed.get(host, 0.0) and (host in self._owed or len(self._owed) < OWED_MAX):
            if wait_s:
                self._owed[host] = wait_s
            else:
                del self._owed[host]
            return wait_s
        return None

    def wait_s(self, exchange: Exchange, attempt: int) -> float:
        """How long to wait after an answer that says "not now", in seconds."""
        dates = map(retry.instant_of, lines_of(exchange.headers, "date"))
        # A date is told by the site's clock, and so is that of its answer: by ours, an hour fast, it would be over.
        now, limit_s = next(filter(None, dates), None) or self._clock.wall(), self._retry_after_max_s
        asked = [retry.retry_after_s(line, now, limit_s) for line in lines_of(exchange.headers, "retry-after")]
        # Of several the longest: a load balancer and what is behind it may each have said theirs.
        return max((wait_s for wait_s in asked if wait_s is not None), default=self.backoff.wait_s(attempt + 1))

    def fell_silent(self, origin: str, failure: FetchFailure, *, again: bool = False) -> None:
        """An origin accepted a connection, but did not answer; after too many pages of that it is given up.

        `again`: the page has failed before.
        """
        self._reached(origin, failure.started_at)
        if self._health.of(origin).fell_silent(self.backoff, failure.started_at, failure.ended_at, again=again):
            self.give_up(origin, SkipReason.FAILED, again_and_again(f"{failure.kind}: {failure.detail}"))


def log_hold(logger: logging.Logger, host: str, wait_s: float, why: str) -> None:
    """Log that a host is left alone for `wait_s` seconds, in the name of the module that decided it."""
    level = logging.INFO if wait_s >= LONG_HOLD_S else logging.DEBUG
    logger.log(level, "%s is left alone for %.3g s: %s", host, wait_s, why, extra={"host": host, "wait_s": wait_s})
