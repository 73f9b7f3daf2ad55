"""Whether a body comes fast enough to be worth its place. Pure.

A server that sends a byte now and then never stands still, so that no limit on
pauses ends it, and holds a request's place as long as a body may take. So time
is lent: `slow_s` of it with the first byte, and a second more for each second's
worth of bytes, but never more than `slow_s` ahead. Who sends at the least rate
or faster never runs out of it, and a pause shorter than `slow_s` after as much
is no fault either: a server may compute within a body, and a line be slow.
Before the first byte no time runs here, for that is a server's own business
within the other limits.

Times are seconds on the caller's monotonic clock.
"""

from __future__ import annotations

import math


class BodyRate:
    """The time lent to one body; it is to be cut at `ends_at`, infinity before its first byte."""

    __slots__ = ("_bytes_per_s", "_slow_s", "ends_at")

    def __init__(self, bytes_per_s: int, slow_s: float) -> None:
        """With 0 `bytes_per_s` no body is too slow."""
        self._bytes_per_s = bytes_per_s
        self._slow_s = slow_s
        self.ends_at = math.inf

    def came(self, size: int, now: float) -> None:
        """Note that so many bytes came."""
        if self._bytes_per_s:
            longest = now + self._slow_s
            self.ends_at = min(self.ends_at + size / self._bytes_per_s, longest)

    def excuse(self, seconds: float) -> None:
        """Leave out time in which we read nothing."""
        self.ends_at += seconds
