"""The limits of a crawl: pages, bytes, time. Pure: callers pass what the crawl has used."""

from __future__ import annotations

from collections.abc import Awaitable
from enum import Enum
from typing import Final, NamedTuple, Protocol

from dhtcrawl.config import CrawlSettings
from dhtcrawl.errors import Exit
from dhtcrawl.storage.store.crawl_record import COMPLETE
from dhtcrawl.storage.store.records import SkipReason


class Stop(Enum):
    """Why a crawl ended before it was complete: (word, exit code, skip reason of the tasks that are left)."""

    INTERRUPTED = ("interrupted", Exit.INTERRUPTED, "")
    PAGE_LIMIT = ("page limit", Exit.PAGE_LIMIT, SkipReason.PAGE_LIMIT)
    TIME_LIMIT = ("time limit", Exit.TIME_LIMIT, SkipReason.TIME_LIMIT)
    SIZE_LIMIT = ("size limit", Exit.SIZE_LIMIT, SkipReason.SIZE_LIMIT)
    DISK_LIMIT = ("disk limit", Exit.DISK_LIMIT, SkipReason.DISK_LIMIT)

    def __init__(self, word: str, exit_code: Exit, reason: str) -> None:
        self.word = word
        self.exit_code = exit_code
        self.reason = reason


# The setting behind each end that a higher limit undoes.
LIMIT_OF: Final = {
    Stop.PAGE_LIMIT.word: "max_pages",
    Stop.TIME_LIMIT.word: "time_limit_s",
    Stop.SIZE_LIMIT.word: "size_limit_bytes",
}


def is_raised(ended: str, before: CrawlSettings, after: CrawlSettings) -> bool:
    """Whether the limit that ended a crawl is higher `after`, or none; `ended` is the word of the end.

    A disk limit is a node's own: each node looks again. A crawl that is complete is so within its depth.
    """
    if ended == Stop.DISK_LIMIT.word:
        return True
    if ended == COMPLETE:
        return 0 <= before.depth < after.depth or after.depth < 0 <= before.depth
    name = LIMIT_OF.get(ended)
    if name is None:
        return False
    limit: float = getattr(after, name)
    return limit == 0 or limit > getattr(before, name)


class DiskLimit(Protocol):
    """The disk limit of a node, as a crawl and a node that leaves its pages ask for it."""

    def __call__(self, more_bytes: int = 0, /) -> Awaitable[bool]:
        """Whether it is reached, or would be with so many bytes more."""
        ...


class CrawlLimits(NamedTuple):
    """What a crawl on one node may use in all."""

    settings: CrawlSettings

    def exceeded(self, *, pages: int, seconds: float, size_bytes: int) -> Stop | None:
        """The limit that is reached, or None."""
        settings = self.settings
        if settings.max_pages and pages >= settings.max_pages:
            return Stop.PAGE_LIMIT
        if settings.size_limit_bytes and size_bytes >= settings.size_limit_bytes:
            return Stop.SIZE_LIMIT
        if settings.time_limit_s and seconds >= settings.time_limit_s:
            return Stop.TIME_LIMIT
        return None
