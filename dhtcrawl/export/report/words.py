"""Figures and reasons as a person reads them. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

# docs/outputs.md says it at length.
REASONS: Final = {
    "out-of-scope": "beyond the crawl's scope",
    "excluded": "kept out by --include or --exclude",
    "depth": "found on a page at the depth limit",
    "nofollow": "every link to it asks not to be followed",
    "rules": "the rules follow other links only",
    "robots": "robots.txt disallows it, or could not be read",
    "failed": "no answer after all attempts",
    "recalled": "nodes took it and did not begin it",
    "private-address": "its host is at a private address",
    "redirect-limit": "behind too many redirects in a row",
    "not-a-url": "no http or https URL",
    "page-limit": "still queued when the page limit was reached",
    "time-limit": "still queued when the time limit was reached",
    "size-limit": "still queued when the size limit was reached",
    "disk-limit": "still queued when the disk limit was reached",
    "dropped": "taken off the list by a person",
}
_EPOCH: Final = datetime(1970, 1, 1)
_CALENDAR_S: Final = (-62_135_596_800, 253_402_300_799)  # from the first second of year 1 to the last of 9999


def many(count: int) -> str:
    """`1,234,567`."""
    return f"{count:,}"


def counted(count: int, one: str, several: str) -> str:
    """`1 page`, `2,000 pages`."""
    return f"{many(count)} {one if count == 1 else several}"


def share(part: int, whole: int) -> str:
    """`12 %`; `< 1 %` and `> 99 %` where it would be told as none or all."""
    if not whole:
        return ""
    percent = 100 * part / whole
    if part and percent < 1:
        return "< 1 %"
    return "> 99 %" if part < whole and percent > 99 else f"{percent:.0f} %"


def duration(seconds: float) -> str:
    """`3.2 s`, `4 min 5 s`, `1 h 2 min`, `3 d 4 h`."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    days, hours, minutes, rest = whole // 86_400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def moment(seconds: int) -> str:
    """`2026-01-31 12:00:00`, UTC."""
    first, last = _CALENDAR_S
    return (_EPOCH + timedelta(seconds=min(max(seconds, first), last))).isoformat(" ", "seconds")
