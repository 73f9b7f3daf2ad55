"""Tells whether it is this machine's own line that is down, and not each of the hosts that do not answer. Pure.

A host that nobody reaches is given up in the end, and its pages with it. While the line is down nobody reaches any
host: what fails then says nothing of them. Nobody can know it for certain from here. So it is taken for down when
several hosts in a row could not be reached and none was in between, and not for longer than a time that is set, for a
crawl of which only dead hosts are left has to end. Where no other node could go on with other hosts, it is enough that
none is left of those that have answered, be it a single one: there is nothing to be won by an early end.
"""

from __future__ import annotations

import math
from typing import Final

from dhtcrawl.loop_state import loop_state

# So many origins in a row that have answered before; of such that never have, among which some are dead, so many.
ANSWERED_MIN: Final = 3
NEW_MIN: Final = 20
AGAIN_S: Final = 60.0  # how long each host is left alone while the line is down


@loop_state
class OwnLine:
    """What is known of the line of one node; times are seconds on the caller's monotonic clock."""

    def __init__(self, wait_max_s: float, *, worked: bool, alone: bool) -> None:
        """`wait_max_s`: how long it may be taken for down; `worked`: an earlier run has reached hosts.

        `alone`: no other node has a part in the crawl.
        """
        self._wait_max_s = wait_max_s
        self._worked = worked
        self._alone = alone
        self._reached: set[str] = set()  # origins that were ever reached, as many as matter
        self._reached_at = -math.inf
        self._since = math.inf  # when the first request began that reached no host, since one did
        self._answered: set[str] = set()  # the origins that were not reached since then, as many as matter
        self._new: set[str] = set()

    @property
    def is_unproven(self) -> bool:
        """Whether hosts were reached in an earlier run, and none in this one."""
        return self._worked and self._reached_at == -math.inf

    def reached(self, origin: str, at: float) -> bool:
        """An origin's host was reached at `at`; return whether the line was taken for down until then."""
        if len(self._reached) < ANSWERED_MIN:
            self._reached.add(origin)
        self._reached_at = max(self._reached_at, at)
        if at < self._since:
            return False
        was_down = self.is_down(at)
        self._since = math.inf
        self._answered.clear()
        self._new.clear()
        return was_down

    def lost(self, origin: str, started_at: float, *, answered: bool) -> None:
        """A request that began at `started_at` found no connection; `answered`: the origin has answered before."""
        if started_at <= self._reached_at:
            return  # another host was reached meanwhile
        self._since = min(self._since, started_at)
        origins, enough = (self._answered, ANSWERED_MIN) if answered else (self._new, NEW_MIN)
        if len(origins) < enough:
            origins.add(origin)

    def is_down(self, now: float) -> bool:
        """Whether the line is taken for down."""
        if not self._worked and self._reached_at == -math.inf:
            return False  # nothing has shown that there is one
        answered_min = len(self._reached) if self._alone and self._reached else ANSWERED_MIN
        enough = len(self._answered) >= answered_min or len(self._new) >= NEW_MIN
        return enough and now - self._since < self._wait_max_s
