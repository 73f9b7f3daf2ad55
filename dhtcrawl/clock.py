"""Time comes from outside: two clocks behind one port.

`monotonic` measures durations and deadlines and decides everything but one
thing; `wall` writes instants into outputs, and says how far off the date of a
`Retry-After` is where its answer has no `Date` of its own. A jump of the wall clock
therefore changes what is printed, and for how long such a host is left alone, up to
a limit.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

_OFFSET_CHARS = len("+00:00")  # `isoformat` takes a third of the time of `strftime`


class Clock(Protocol):
    """The two clocks of a node."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""

    def wall(self) -> datetime:
        """The current instant, in UTC: for outputs, and for dates that a server names."""


class SystemClock:
    """The clocks of the operating system."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> datetime:
        return datetime.now(UTC)


def iso8601(instant: datetime) -> str:
    """`2026-01-31T12:00:00.123Z`: the one form in which outputs write instants."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds")[:-_OFFSET_CHARS] + "Z"


def warc_date(instant: datetime) -> str:
    """`2026-01-31T12:00:00Z`: WARC-Date to the second (ISO 28500, 5.4)."""
    return instant.astimezone(UTC).isoformat(timespec="seconds")[:-_OFFSET_CHARS] + "Z"
