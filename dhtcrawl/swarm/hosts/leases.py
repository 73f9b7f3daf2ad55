"""The values that gatekeepers and nodes that want hosts send to each other.

A *lease* gives a host to one node for a time, after Gray & Cheriton 1989
(Leases, SOSP), whose rule for clocks that only drift is kept:

    holder       from the moment it ASKED, for ttl less a margin
    gatekeeper   from the moment it GRANTED, for ttl

Asking comes before granting, so the holder's end comes before the gatekeeper's
however long messages take, and neither needs the other's clock. Other durations
are counted so that a late message does no harm: a wait from when it is received,
an age up to when it is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NO_LEASE = b""

# Two clocks, one 1 % fast and one 1 % slow, differ by less than this: 0.98 / 0.99 < 1 / 1.01. Quartz
# drifts by 0.01 %, NTP slews by 0.05 %; what is left is for timers that fire late.
CLOCK_MARGIN = 0.02


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How long and for how much a host is leased, the same in the whole swarm."""

    # A crashed holder costs the host this long; a slow answer wants one renewal for each half of it.
    ttl_s: float = 10.0
    # Other nodes get their turn after so many, also where the delay is a few milliseconds.
    requests: int = 64

    @property
    def early_s(self) -> float:
        """How long before a host may be asked it is granted: the hand-over happens within the delay."""
        return self.ttl_s / 4


def no_crawls() -> float:
    """The longest delay of crawls where there are none."""
    return 0.0


@dataclass(frozen=True, slots=True)
class RestLimits:
    """The longest that a host rests because a node says so, in seconds.

    A delay counts up to `delay_s`, or as long as a crawl that is known here asks for, `delay_of_crawls()`, if that is
    longer: then a person may have wanted it. What a host itself has asked for, or a backoff, counts up to `hold_s`.
    """

    delay_s: float = 60.0
    hold_s: float = 3600.0
    delay_of_crawls: Callable[[], float] = no_crawls

    @property
    def delay_max_s(self) -> float:
        return max(self.delay_s, self.delay_of_crawls())


@dataclass(frozen=True, slots=True)
class Granted:
    """The host is leased to the asker.

    `ttl_s` counts from the asking, `not_before_s` from the reading of this. `delay_s`
    is the least time between two requests, `requests` how many more may begin: 0 in
    a renewal only to finish the one under way.
    """

    lease_id: bytes
    ttl_s: float
    requests: int
    not_before_s: float
    delay_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet: the asker gets an offer when its turn comes. Without one it asks again after `after_s`."""

    after_s: float


@dataclass(frozen=True, slots=True)
class LeaseAsk:
    """A node asks for a host, or with `lease_id` for more time to finish there.

    `delay_s` is what it keeps between requests, `hold_s` how long the host is to
    be left alone (Retry-After, a backoff).
    """

    host: str
    delay_s: float
    hold_s: float = 0.0
    lease_id: bytes = NO_LEASE


@dataclass(frozen=True, slots=True)
class GiveBack:
    """A lease that its holder does not need any more; instants on the holder's clock."""

    host: str
    lease_id: bytes
    ended_at: float | None  # the last byte of the last response; None: nothing was requested
    hold_until: float
    tries: int = 0

    def since_end_s(self, now: float) -> float | None:
        """How long ago the last byte came; None: nothing was requested."""
        return None if self.ended_at is None else max(0.0, now - self.ended_at)

    def hold_s(self, now: float) -> float:
        """How long the host is still to be left alone."""
        return max(0.0, self.hold_until - now)


@dataclass(frozen=True, slots=True)
class HostState:
    """What one gatekeeper tells the next of a host that is leased or rests."""

    host: str
    node: bytes  # its holder; empty: none
    lease_id: bytes
    left_s: float
    delay_s: float
    next_in_s: float
