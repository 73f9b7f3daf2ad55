"""A host's clock that runs only while the host is leased to us; without I/O.

The frontier and the fetcher use it like any `HostClock`. Where the delay is 0 it
is one, and no lease is needed. `dhtcrawl.swarm.hosts.lease_holder` owns the leases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dhtcrawl.fetch.politeness import GRANULARITY_S, WAITS_FOR_ROBOTS, HoldReason, HostClock, PolitenessTally
from dhtcrawl.standing import GATEKEEPER_NEW, GATEKEEPER_SILENT, Cause, Obstacle

IDLE_S = 1.0
LINGER_MAX_S = 0.5
# Fractions of the ttl. No request begins in the last 5 %, so that there is time to renew. The lease is renewed
# past half of it, unless the request has just begun; near the end in any case; and tried again soon.
LAST_START = 0.05
RENEW_FROM = 0.5
RENEW_SLOW = 0.125
RENEW_LATEST = 0.2
RENEW_AGAIN = 0.05
# Or with so few of its requests left: where the delay is short, they are used up before its time is.
RENEW_LOW = 0.2


@dataclass(eq=False, slots=True)
class Renewal:
    """When the holder of a lease asks for more time, and what waits for the answer; instants on its clock."""

    ttl_s: float
    low: int  # so few requests left
    from_at: float  # for a request under way, not before
    began_at: float = field(default=-math.inf, init=False)  # the last request
    resting_from_at: float = field(default=-math.inf, init=False)  # without one, not before; infinity: others wait
    asked: bool = field(default=False, init=False)
    awaited_s: float | None = field(default=None, init=False)  # the delay of a crawl that can only begin after it
    offers: bool = field(default=False, init=False)  # it was renewed, and the crawls have not been told

    @property
    def refused(self) -> bool:
        """Whether the lease ends as it was granted, since other nodes wait for the host."""
        return self.resting_from_at == math.inf


@dataclass(eq=False, slots=True)
class Lease:
    """A host in hand; instants on our clock."""

    id: bytes
    deadline: float
    last_start_at: float  # no request begins at or after this
    requests: int
    not_before: float
    delay_s: float
    renewal: Renewal
    ended_at: float | None = field(default=None, init=False)
    wanted: bool = field(default=False, init=False)  # some crawl has looked at the clock
    quiet: bool = field(default=False, init=False)
    overdue: bool = field(default=False, init=False)

    @property
    def renew_at(self) -> float:
        """When to ask for more time for the request under way."""
        renewal = self.renewal
        slow_at = renewal.began_at + RENEW_SLOW * renewal.ttl_s
        return max(renewal.from_at, min(slow_at, self._latest_at))

    @property
    def renew_resting_at(self) -> float:
        """When to ask for more time without a request under way; infinity where no crawl wants it, or it was asked."""
        renewal = self.renewal
        if renewal.asked or not self.wanted:
            return math.inf
        return max(renewal.resting_from_at, -math.inf if self.requests <= renewal.low else self._latest_at)

    @property
    def _latest_at(self) -> float:
        return self.deadline - RENEW_LATEST * self.renewal.ttl_s


@dataclass(eq=False, slots=True)
class Wish:
    """The wish of some crawl for a lease of a host."""

    delay_s: float
    ask_at: float = -math.inf  # infinity while an answer is awaited
    again: bool = False  # an offer came meanwhile
    unanswered: bool = False  # the gatekeeper did not answer the last ask


@dataclass(eq=False, slots=True)
class _HostRequests:
    """What is known of the requests to a host that are under way."""

    leased: bool = False  # one began under a lease, or should have
    beside: bool = False  # one began without, and all that have been beside it are not over
    kept_waiting: bool = False  # a crawl has looked meanwhile, and would not look again by itself


class Away(NamedTuple):
    """Until when a node leaves a host to other nodes by its own choice, and why."""

    until: float
    why: HoldReason


class Leases(Protocol):
    """What a clock needs of its `LeaseHolder`."""

    def now(self) -> float:
        """The clock that all instants are on."""
        ...

    def lease_for(self, clock: LeasedClock, delay_s: float) -> Lease | None:
        """A lease under which another request may begin; None: there is none, and the host is wished for."""
        ...

    def former_until(self, host: str) -> float:
        """Until when a lease that a former gatekeeper of a host gave may last; minus infinity: there was none."""
        ...

    def began(self, clock: LeasedClock) -> None:
        """Note that a request is under way."""
        ...

    def rested(self, clock: LeasedClock) -> None:
        """Note that no request is under way any more."""
        ...

    def came_free(self, clock: LeasedClock) -> None:
        """Offer the host to all crawls: one has waited for requests of another without a lease, which are over."""
        ...


class LeasedClock(HostClock):
    """One host's politeness state, with its lease or the wish for one."""

    __slots__ = ("_leases", "_requests", "away", "expected_until", "host", "lease", "wish")

    def __init__(self, leases: Leases, host: str, last_end_at: float, tally: PolitenessTally) -> None:
        super().__init__(last_end_at, tally)
        self._leases = leases
        self.host = host
        self.lease: Lease | None = None
        self.wish: Wish | None = None
        self._requests = _HostRequests()
        self.expected_until = -math.inf
        self.away = Away(-math.inf, WAITS_FOR_ROBOTS)

    @property
    def leased(self) -> bool:
        """Whether what is under way began under a lease, or should have."""
        return self._requests.leased

    def ready_at(self, delay_s: float, parallel: int = 1) -> float:
        """As `HostClock`; infinity without a lease, which is then wished for."""
        if delay_s <= 0:
            if self.in_flight >= parallel:
                self._requests.kept_waiting = True
            return max(super().ready_at(delay_s, parallel), self.away.until)
        if self.in_flight >= parallel:
            self._requests.kept_waiting |= self._requests.beside
            if self.lease is not None:
                self.lease.wanted = True
            return math.inf
        if self.away.until > self._leases.now():
            return self.away.until
        lease = self._leases.lease_for(self, delay_s)
        if lease is None:
            return math.inf
        own_at = self.own_at(max(delay_s, lease.delay_s))
        # A lease that was granted just now has begun, though the caller has read the clock a moment before: else it
        # would go on to the next host, and the next, and lease them all to start one request.
        return own_at if lease.not_before <= self._leases.now() else max(lease.not_before, own_at)

    def own_at(self, delay_s: float) -> float:
        """The earliest next request by what this node alone knows."""
        return max(self.hold_until, self.last_end_at + delay_s)

    def start_at(self, lease: Lease, delay_s: float) -> float:
        """The earliest next request under a lease, whenever that ends."""
        return max(lease.not_before, self.own_at(max(delay_s, lease.delay_s)))

    def begin(self, now: float, delay_s: float) -> None:
        """As `HostClock`. A request outside of a lease counts as a violation, too."""
        if delay_s <= 0:
            self._requests.beside = True
            super().begin(now, delay_s)
            return
        lease, counted = self.lease, self.tally.violations
        super().begin(now, delay_s if lease is None else max(delay_s, lease.delay_s))
        self._requests.leased = True
        # `now` may be from before the process was suspended.
        now = max(now, self._leases.now())
        if lease is None or not lease.requests or not lease.not_before - GRANULARITY_S <= now < lease.deadline:
            self.tally.violations = counted + 1
        if lease is not None:
            lease.requests = max(0, lease.requests - 1)
            lease.renewal.began_at = now
            self._leases.began(self)

    def end(self, now: float) -> None:
        """As `HostClock`."""
        super().end(now)
        if self._leased_ended():
            assert self.lease is not None
            self.lease.ended_at = now
            self._leases.rested(self)
        if self._requests.beside and not self.in_flight:
            self._beside_over()

    def cancel(self) -> None:
        """As `HostClock`."""
        super().cancel()
        if self._leased_ended():
            assert self.lease is not None
            self.lease.requests += 1
            self._leases.rested(self)
        if self._requests.beside and not self.in_flight:
            self._beside_over()

    def idle(self, now: float, delay_s: float) -> bool:
        """As `HostClock`; a clock with a lease or a wish is not idle."""
        return not self.in_flight and self.lease is None and self.wish is None and self.own_at(delay_s) <= now

    def obstacle(self, host: str, now: float, delay_s: float) -> Obstacle | None:
        """As `HostClock`; where nothing else does, its gatekeeper, the lease or the robots.txt keeps it back."""
        own = super().obstacle(host, now, delay_s)
        if own is not None or delay_s <= 0 or self.in_flight:
            return own
        if self.away.until > now:
            return Obstacle(self.away.why.cause, host, self.away.why.detail, left_s=self.away.until - now)
        if self.wish is not None and self.wish.unanswered:
            return Obstacle(Cause.GATEKEEPER, host, GATEKEEPER_SILENT)
        if self.lease is not None and self.lease.renewal.awaited_s is not None:
            return Obstacle(Cause.LEASE, host)
        if self.lease is not None and self.lease.not_before <= now:
            return None
        # A gatekeeper that has taken over lets the delay pass after the last lease of the former one.
        former_until = self._leases.former_until(host) + delay_s
        if former_until > now:
            return Obstacle(Cause.GATEKEEPER, host, GATEKEEPER_NEW, left_s=former_until - now)
        if self.lease is None:
            return Obstacle(Cause.LEASE, host)
        return Obstacle(Cause.DELAY, host, left_s=self.lease.not_before - now)

    def due_at(self) -> float:
        """When the `LeaseHolder` has to look at this clock."""
        lease = self.lease
        if lease is None:
            return math.inf if self.wish is None else self.wish.ask_at
        if self.leased:
            return math.inf if lease.overdue else min(lease.renew_at, lease.deadline)
        return min(lease.renew_resting_at, self.unused_at(lease))

    def unused_at(self, lease: Lease) -> float:
        """When a lease without a request under way has to be given back."""
        if not lease.requests:
            return -math.inf
        if not lease.quiet:
            idle_at = self.start_at(lease, 0.0) + IDLE_S
        elif lease.ended_at is None:
            idle_at = -math.inf
        else:
            idle_at = lease.ended_at + min(lease.delay_s / 2, LINGER_MAX_S)
        # Not before somebody who is expected has come: a crawl without work there says so whenever it is asked.
        return min(max(idle_at, self.expected_until), lease.deadline)

    def _beside_over(self) -> None:
        waited = self._requests.kept_waiting
        self._requests.beside = self._requests.kept_waiting = False
        if waited:
            self._leases.came_free(self)

    def _leased_ended(self) -> bool:
        if self.in_flight or not self.leased:
            return False
        self._requests.leased = False
        return self.lease is not None
