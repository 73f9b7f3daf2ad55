"""What to do after a fetch that did not bring a page: two tables.

A failure is the host's (nothing answers there: leave the host alone, and give
it up in the end) or the page's (this one request went wrong: try it again
later, go on with the others). An answer is kept whatever its status; a few
statuses ask for another try first, and only the last answer is kept.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import NamedTuple

from dhtcrawl.fetch.http import FetchFailureKind, Truncated


class Blame(Enum):
    """What a failure is counted against."""

    HOST = "host"
    PAGE = "page"
    NEITHER = "neither"  # asking again would bring the same


FAILURES: dict[FetchFailureKind, Blame] = {
    FetchFailureKind.DNS: Blame.HOST,
    FetchFailureKind.CONNECT: Blame.HOST,
    FetchFailureKind.TLS: Blame.HOST,
    FetchFailureKind.TIMEOUT: Blame.PAGE,
    FetchFailureKind.DISCONNECTED: Blame.PAGE,
    FetchFailureKind.PROTOCOL: Blame.PAGE,
    FetchFailureKind.HEADERS: Blame.NEITHER,
    FetchFailureKind.PRIVATE_ADDRESS: Blame.NEITHER,
}


class Again(NamedTuple):
    """Another try is worth it; `hold_host` where the host asked to be left alone."""

    hold_host: bool


# Those whose cause will not change soon, registered with IANA: not implemented, version, negotiation, storage, loop,
# extension, network login.
_LASTING = frozenset((501, 505, 506, 507, 508, 510, 511))
# RFC 9110, 15.5.9 and 15.6; RFC 6585, 4 (429). What is not registered is a 500 (RFC 9110, 15), such as a proxy's 522.
STATUSES: dict[int, Again] = {
    **{status: Again(hold_host=False) for status in range(500, 600) if status not in _LASTING},
    408: Again(hold_host=False),
    429: Again(hold_host=True),
    503: Again(hold_host=True),
}

# A body that broke off may come whole the next time; one that is too long or
# too slow will be so again.
TRUNCATIONS: dict[Truncated, Again] = {Truncated.DISCONNECT: Again(hold_host=False)}


def retry_after_s(value: str, now: datetime, limit_s: float) -> float | None:
    """Seconds that a Retry-After header asks for (RFC 9110, 10.2.3), at most `limit_s`.

    `now` is the instant of the answer: the header may carry an instant, too. None where it is
    malformed.
    """
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text.lstrip("0")[:12] or "0"), limit_s)
    at = instant_of(text)
    return None if at is None else min(max(0.0, (at - now).total_seconds()), limit_s)


def instant_of(value: str) -> datetime | None:
    """The instant of a date in a header (RFC 9110, 5.6.7); None where it is malformed."""
    try:
        at = parsedate_to_datetime(value.strip())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at
