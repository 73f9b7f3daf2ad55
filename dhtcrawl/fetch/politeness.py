"""When a host may be asked again, without I/O.

The delay runs from the last byte of one response to the first byte of the next
request, by the holder's monotonic clock. A failure adds a wait that doubles,
`Retry-After` adds one that the host chose. One `HostClock` a host, shared by
all crawls of a node: politeness is towards the host, not towards a crawl.

After a restart the node does not know when a host was last asked, so a clock made by
`HostBook` begins as if the host had answered at the moment the node started.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from dhtcrawl.loop_state import loop_state
from dhtcrawl.standing import Cause, Obstacle

# Log lines and timers of an operating system are this coarse.
GRANULARITY_S = 0.001


class Backoff(NamedTuple):
    """How long to leave a failing host alone, and when to give an origin up."""

    first_s: float = 1.0
    max_s: float = 300.0
    failures_max: int = 12  # of an origin that has answered before
    strikes_max: int = 3  # of one that never has
    silences_max: int = 20  # pages in a row that brought no useful answer

    def wait_s(self, failures: int) -> float:
        """The wait after the `failures`-th failure in a row."""
        return min(self.max_s, self.first_s * 2.0 ** min(failures - 1, 30))


class HoldReason(NamedTuple):
    """Why a host is left alone: a word of `standing.CAUSES`, and for people what the host said or did."""

    cause: str
    detail: str = ""


WAITS_FOR_ROBOTS: Final = HoldReason(Cause.ROBOTS)


class PolitenessTally:
    """Broken promises, counted over all hosts."""

    __slots__ = ("violations",)

    def __init__(self) -> None:
        self.violations = 0


class HostClock:
    """One host's politeness state; times are seconds on the caller's monotonic clock."""

    __slots__ = ("held_for", "hold_until", "in_flight", "last_end_at", "tally")

    def __init__(self, last_end_at: float = -math.inf, tally: PolitenessTally | None = None) -> None:
        self.tally = tally if tally is not None else PolitenessTally()
        self.last_end_at = last_end_at
        self.hold_until = -math.inf
        self.held_for = HoldReason(Cause.RESTART)
        self.in_flight = 0

    def ready_at(self, delay_s: float, parallel: int = 1) -> float:
        """The earliest start of the next request; infinity while `parallel` are under way."""
        if self.in_flight >= parallel:
            return math.inf
        return max(self.hold_until, self.last_end_at + delay_s)

    def begin(self, now: float, delay_s: float) -> None:
        """A request starts. One that starts too soon is counted, not hidden."""
        overlaps = delay_s > 0 and self.in_flight > 0
        if overlaps or now < self.last_end_at + delay_s - GRANULARITY_S:
            self.tally.violations += 1
        self.in_flight += 1

    def end(self, now: float) -> None:
        self.in_flight -= 1
        self.last_end_at = max(self.last_end_at, now)

    def cancel(self) -> None:
        """The request that began was never sent."""
        self.in_flight -= 1

    def hold(self, now: float, duration_s: float, why: HoldReason) -> None:
        """No request for `duration_s` from `now`, whatever the delay."""
        if now + duration_s > self.hold_until:
            self.hold_until, self.held_for = now + duration_s, why

    def obstacle(self, host: str, now: float, delay_s: float) -> Obstacle | None:
        """What keeps the next request to `host`, as this clock is named, from beginning now; it asks for nothing."""
        delay_until = self.last_end_at + delay_s
        if self.hold_until > now and self.hold_until >= delay_until:
            return Obstacle(self.held_for.cause, host, self.held_for.detail, left_s=self.hold_until - now)
        return Obstacle(Cause.DELAY, host, left_s=delay_until - now) if delay_until > now else None

    def idle(self, now: float, delay_s: float) -> bool:
        """Whether forgetting this clock would lose nothing."""
        return not self.in_flight and self.ready_at(delay_s) <= now


class Health:
    """Whether an origin is worth asking: `scheme://host[:port]`, for a host may answer on one port only.

    What is in a row came one after another: of requests that were under way together, as many are without a delay, a
    moment's trouble ends all at once, and they tell no more than the first of them.
    """

    __slots__ = ("answered", "failed_at", "failures", "silences", "silent_at")

    def __init__(self) -> None:
        self.answered = False
        self.failures = 0  # connections in a row that failed
        self.silences = 0  # pages in a row without a useful answer
        self.failed_at = self.silent_at = 0.0  # when the last of each that counts had ended

    def succeeded(self) -> None:
        self.answered = True
        self.failures = self.silences = 0

    def failed(self, backoff: Backoff, started_at: float, ended_at: float, *, answered: bool = False) -> bool:
        """Count a connection that failed; whether the origin is to be given up.

        `answered`: it counts as one that has answered before.
        """
        if not self.failures or started_at >= self.failed_at:
            self.failures += 1
            self.failed_at = ended_at
        return self.failures >= (backoff.failures_max if self.answered or answered else backoff.strikes_max)

    def fell_silent(self, backoff: Backoff, started_at: float, ended_at: float, *, again: bool = False) -> bool:
        """A connection, but no answer, or only "not now"; whether the origin is to be given up.

        `again`: so it was for the page before, which says no more of the others.
        """
        self.failures = 0
        if not again and (not self.silences or started_at >= self.silent_at):
            self.silences += 1
            self.silent_at = ended_at
        return self.silences >= backoff.silences_max


@loop_state
class HealthBook:
    """The health of the origins met last; one that is forgotten is asked as if it were new."""

    def __init__(self, origins_max: int = 100_000) -> None:
        self._origins: OrderedDict[str, Health] = OrderedDict()
        self._origins_max = origins_max

    def of(self, origin: str) -> Health:
        health = self._origins.get(origin)
        if health is None:
            health = self._origins[origin] = Health()
            if len(self._origins) > self._origins_max:
                self._origins.popitem(last=False)
        return health

    def forget(self, origin: str) -> None:
        self._origins.pop(origin, None)


@loop_state
class HostBook:
    """All clocks of a node, bounded: idle ones are forgotten, oldest first."""

    def __init__(self, *, started_at: float, fresh: bool, clocks_max: int = 200_000) -> None:
        # A node that never ran before owes no host a wait.
        self._first_end_at = -math.inf if fresh else started_at
        self._clocks: OrderedDict[str, HostClock] = OrderedDict()
        self._clocks_max = clocks_max
        self._tally = PolitenessTally()

    def clock(self, host: str) -> HostClock:
        """The clock of `hostname[:port]`."""
        clock = self._clocks.get(host)
        if clock is None:
            clock = self._clocks[host] = self._new_clock(host)
        return clock

    def known(self, host: str) -> HostClock | None:
        """The clock of a host that was met; it makes none."""
        return self._clocks.get(host)

    def quiet(self, host: str) -> None:
        """A crawl has nothing to start there for now; matters where hosts are leased."""

    def expect(self, host: str, until: float) -> None:
        """A crawl that has just looked at the clock comes again before `until`; matters where hosts are leased."""

    def step_back(self, host: str, now: float, until: float, why: HoldReason = WAITS_FOR_ROBOTS) -> None:
        """Start nothing there before `until`: we have to wait for something that the host has no part in."""
        self.clock(host).hold(now, until - now, why)

    def _new_clock(self, host: str) -> HostClock:
        return HostClock(self._first_end_at, self._tally)

    def sweep(self, now: float, delay_of: Callable[[str], float]) -> None:
        """Forget idle clocks while there are too many; `delay_of(host)` is in seconds."""
        for _ in range(max(0, len(self._clocks) - self._clocks_max)):
            host, clock = self._clocks.popitem(last=False)
            if not clock.idle(now, delay_of(host)):
                self._clocks[host] = clock

    @property
    def violations(self) -> int:
        """Requests that began too soon, over all hosts; a promise broken if not 0."""
        return self._tally.violations
