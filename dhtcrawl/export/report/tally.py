"""What a report counts of a crawl's lines, one after the other. Pure; memory is bounded, whatever the size."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar

from dhtcrawl.export.report.timeline import Timeline
from dhtcrawl.url import has_host, host_of

HOSTS_MAX: Final = 100_000  # beyond them the rest is counted together
KINDS_MAX: Final = 1_000  # of anything else: a site may give each page a type of its own
LARGEST: Final = 10
BROKEN_MAX: Final = 200
SEEDS_MAX: Final = 20
# Of links only; older versions told no page that has them.
_OF_LINKS: Final = frozenset(("out-of-scope", "nofollow", "depth", "rules", "not-a-url"))
_SECONDS_MAX: Final = 1e12
_TEXT_MAX: Final = 2_000  # of what a page told, and of what a reader looks at

Fields = dict[str, Any]


@dataclass(slots=True)
class Share:
    """The part of the pages, or of the URLs without one, that have something in common."""

    count: int = 0
    bytes: int = 0
    failed: int = 0
    example: str = ""  # the first URL

    def add(self, url: str, size: int = 0, failed: bool = False) -> None:
        self.count += 1
        self.bytes += size
        self.failed += failed
        self.example = self.example or url[:_TEXT_MAX]


class Groups:
    """Groups by name: the first `most` names, and all others together."""

    def __init__(self, most: int = KINDS_MAX) -> None:
        self._most = most
        self._named: dict[str, Share] = {}
        self.others = Share()

    def __len__(self) -> int:
        return len(self._named)

    def of(self, name: str) -> Share:
        """The group of this name, or that of all others."""
        name = name[:_TEXT_MAX]
        group = self._named.get(name)
        if group is None:
            if len(self._named) >= self._most:
                return self.others
            group = self._named[name] = Share()
        return group

    def count(self, name: str) -> int:
        group = self._named.get(name)
        return group.count if group is not None else 0

    def largest(self) -> list[tuple[str, Share]]:
        """The named groups, the one with the most first."""
        return sorted(self._named.items(), key=lambda item: (-item[1].count, item[0]))

    def by_name(self) -> list[tuple[str, Share]]:
        return sorted(self._named.items())


class Broken(NamedTuple):
    """A URL that brought no page as it should, and the page that leads there; "" for a seed."""

    url: str
    what: str
    found_on: str


class LargePage(NamedTuple):
    """In the order of their bodies."""

    bytes: int
    url: str
    content_type: str


T = TypeVar("T")


class Firsts(Generic[T]):
    """The first `most` of what there is, and how much there is."""

    def __init__(self, most: int) -> None:
        self.items: list[T] = []
        self.total = 0
        self._most = most

    def add(self, item: T) -> None:
        self.total += 1
        if len(self.items) < self._most:
            self.items.append(item)


class Tally:
    """The figures of a crawl, from its pages and what it skipped."""

    def __init__(self) -> None:
        self.pages = Share()
        self.answers = Groups()  # by status
        self.types = Groups()
        self.hosts = Groups(HOSTS_MAX)
        self.depths = Groups()
        self.cut = Groups()  # pages that are there, but not whole, by why
        self.skipped = Groups()  # by reason
        self.broken = Firsts[Broken](BROKEN_MAX)
        self.seeds = Firsts[str](SEEDS_MAX)
        self.timeline = Timeline()
        self._largest: list[LargePage] = []

    def page(self, fields: Fields) -> None:
        """Count a line of pages.jsonl that `is_page`."""
        url, size, status = fields["url"], count_of(fields.get("bytes")), count_of(fields.get("status"))
        kind, error = text_of(fields.get("content_type")), text_of(fields.get("error"))
        failed = status >= 400
        self.pages.add(url, size, failed)
        self.answers.of(str(status)).add(url, size, failed)
        self.types.of(kind).add(url, size, failed)
        self.hosts.of(host_of(url)).add(url, size, failed)
        self.depths.of(str(count_of(fields.get("depth")))).add(url, size, failed)
        self._note_seed(fields, url)
        at = _moment(fields["fetched_at"])
        if at is not None:
            self.timeline.add(at)
        if failed:
            self._note_broken(url, str(status), fields)
        elif error:
            self.cut.of(error).add(url, size)
        self._keep_if_large(LargePage(size, url[:_TEXT_MAX], kind))

    def skip(self, fields: Fields) -> None:
        """Count a line of skipped.jsonl that `is_skip`."""
        url, reason = text_of(fields.get("url")), text_of(fields.get("reason"))
        self.skipped.of(reason).add(url)
        if reason not in _OF_LINKS:
            self._note_seed(fields, url)
        if reason == "failed":
            self._note_broken(url, text_of(fields.get("detail")) or "no answer", fields)
            if has_host(url):
                self.hosts.of(host_of(url)).failed += 1  # it may have no page at all

    def largest_pages(self) -> list[LargePage]:
        return sorted(self._largest, reverse=True)

    def _note_seed(self, fields: Fields, url: str) -> None:
        if not count_of(fields.get("depth")) and not fields.get("referrer") and has_host(url):
            self.seeds.add(url[:_TEXT_MAX])

    def _note_broken(self, url: str, what: str, fields: Fields) -> None:
        self.broken.add(Broken(url[:_TEXT_MAX], what, text_of(fields.get("referrer"))))

    def _keep_if_large(self, page: LargePage) -> None:
        if len(self._largest) < LARGEST:
            heapq.heappush(self._largest, page)
        else:
            heapq.heappushpop(self._largest, page)


def count_of(value: object) -> int:
    """A number that counts something; 0 for anything else that may stand there."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else 0


def seconds_of(value: object) -> float:
    """A number of seconds; 0 for anything else that may stand there."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0.0
    return float(value) if 0 <= value < _SECONDS_MAX else 0.0


def text_of(value: object) -> str:
    """A text, cut where it is too long; "" for anything else that may stand there."""
    return value[:_TEXT_MAX] if isinstance(value, str) else ""


def _moment(instant: str) -> float | None:
    """Seconds since 1970; None where the text has the shape of an instant, and the calendar has no such day."""
    try:
        return datetime.fromisoformat(instant).timestamp()
    except ValueError:
        return None
