"""The values of a crawl's rounds: counters, what arrived, what one transaction writes and returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from dhtcrawl.fetch.http import Body
from dhtcrawl.loop_state import loop_state
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.archive.item import ArchiveItem
from dhtcrawl.storage.store.counters import is_of_release, told
from dhtcrawl.storage.store.outcomes import (
    OTHER,
    counter_of,
    errors_by_kind,
    ok_pages,
    skip_counter_of,
    skipped_by_reason,
)
from dhtcrawl.storage.store.ownership import OwnershipSnapshot
from dhtcrawl.storage.store.plan_counters import counts_plans
from dhtcrawl.storage.store.records import pack, unpack
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import FetchedPage, Link, Queued


@loop_state
@dataclass(slots=True)
class CrawlCounters:
    """Counts what a crawl has done on this node, earlier runs included; transactions are given `figures`."""

    pages: int = 0
    pages_ok: int = 0  # those that are neither a redirect nor an error
    fetches: int = 0
    refetches: int = 0
    retried: int = 0  # requests that may have reached the host, brought no page, and were followed by another try
    redirects: int = 0
    errors: int = 0
    dead: int = 0
    body_bytes: int = 0
    urls_seen: int = 0
    links: int = 0  # that pages fetched here have, and that are followed: each page's own, once
    pages_reopened: int = 0  # pages that this node owns and had fetched anew, for the node that had them is gone
    pages_undercopied: int = 0  # pages here with too few copies; goes down when further copies were made
    robots_fetches: int = 0
    probes: int = 0  # small requests that only timed a site, for policies that place sites
    policy_faults: int = 0  # answers of the crawl's policy that were no use, or errors that it raised
    politeness_violations: int = 0
    politeness_exceptions: int = 0  # requests that ended while their host was leased to another node
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)  # errors by `outcomes.ERROR_KINDS`, those that happened
    skipped: dict[str, int] = field(default_factory=dict)  # URLs not followed or given up here, by `SkipReason`
    plans: dict[str, float] = field(default_factory=dict)  # that this node made, by names of `plan_counters`
    released: dict[str, int] = field(default_factory=dict)  # to be taken off others, by names of `counters`

    @property
    def queued(self) -> int:
        """URLs that are known here and neither fetched nor given up."""
        told = self.told()
        return max(0, round(told["urls_seen"] - told["pages"] - told["dead"]))

    @property
    def retried_in_all(self) -> int:
        """`retried`, and the last requests of given-up tasks that were released."""
        return int(self.told()["retried"])

    def told(self) -> dict[str, int | float]:
        """The counters as they are sent to other nodes: without what was released."""
        return told(self.figures())

    def figures(self) -> dict[str, int | float]:
        """All counters by name, as stored; of kinds and reasons those that happened."""
        figures: dict[str, int | float] = dict(zip(_NAMES, _counts_of(self), strict=True))
        figures |= {counter_of(kind): count for kind, count in self.kinds.items()}
        return (
            figures
            | {skip_counter_of(reason): count for reason, count in self.skipped.items()}
            | self.plans
            | self.released
        )

    def add(self, counted: Mapping[str, int]) -> None:
        """Add the counts of a transaction, by name."""
        for name, count in counted.items():
            if name in _NAMES:
                setattr(self, name, getattr(self, name) + count)
            elif is_of_release(name):
                self.released[name] = self.released.get(name, 0) + count
        for kind, count in errors_by_kind(counted).items():
            self.kinds[kind] = self.kinds.get(kind, 0) + count
        for reason, count in skipped_by_reason(counted).items():
            self.skipped[reason] = self.skipped.get(reason, 0) + count

    def heard(self, stored: Mapping[str, int]) -> None:
        """Take the counters of `counters.count` as they are in the store, for a release or what a user dropped."""
        for name, count in stored.items():
            if is_of_release(name):
                self.released[name] = max(count, self.released.get(name, 0))
        for reason, count in skipped_by_reason(stored).items():
            self.skipped[reason] = max(count, self.skipped.get(reason, 0))

    def pack(self) -> bytes:
        """The stored value."""
        return pack(self.figures())

    @classmethod
    def unpack(cls, value: bytes | None) -> CrawlCounters:
        """The counters in a stored value; all 0 if it is None.

        Raises:
            StoreTooNew: a later version wrote it.
            StorageError: it is damaged.
        """
        stored: dict[str, Any] = {} if value is None else unpack(value)
        named = {name: stored[name] for name in _NAMES if name in stored}
        plans = {name: count for name, count in stored.items() if counts_plans(name)}
        released = {name: count for name, count in stored.items() if is_of_release(name)}
        kinds, skipped = errors_by_kind(stored), skipped_by_reason(stored)
        counters = cls(**named, kinds=kinds, skipped=skipped, plans=plans, released=released)
        # An earlier version counted neither content nor kinds.
        counters.pages_ok = int(ok_pages(stored))
        unknown = counters.errors - sum(counters.kinds.values())
        if unknown > 0:
            counters.kinds[OTHER] = counters.kinds.get(OTHER, 0) + unknown
        return counters


_NAMES = tuple(
    field.name for field in fields(CrawlCounters) if field.name not in ("kinds", "skipped", "plans", "released")
)
_counts_of = attrgetter(*_NAMES)


class CrawlStart(NamedTuple):
    """The stored state from which a crawl starts or goes on."""

    spec: CrawlSpec
    crawl_id: bytes
    counters: CrawlCounters
    aliases: list[str]
    owed: dict[str, float]  # seconds to leave hosts alone before the first request
    begun_depth: int | None = None  # the depth limit that it began with, if that was ever changed

    @property
    def depth_limit(self) -> int | None:
        """What is noted with a page: the limit within which its links are sent, -1: none; None where nothing is."""
        limit = self.spec.settings.depth
        return limit if limit >= 0 or self.begun_depth is not None else None


@dataclass(eq=False, slots=True)
class Fetched:
    """A response that is not written yet: a `page`, or, if it is none, `extra`, its index entry."""

    host: str
    item: ArchiveItem
    body: Body
    page: FetchedPage | None = None
    attempt: int = 0
    extra: dict[str, Any] | None = None


class Kill(NamedTuple):
    """A task that will have no page."""

    host: str
    key: bytes
    reason: str
    detail: str
    attempt: int
    depth: int = 0  # that the task had, if it is given up for that


class Relinked(NamedTuple):
    """The links of a page that was analysed again."""

    link_keys: bytes  # the task keys of its links
    depth: int  # the page's, for which they go out
    skipped: list[tuple[str, str]]
    depth_limit: int | None = None  # of `CrawlStart`


class Round(NamedTuple):
    """What one transaction writes, with the counters and the ownership of the moment at which it was gathered."""

    fetched: list[Fetched]
    kills: list[Kill]
    links: list[Link]
    done: list[bytes]
    aliases: list[str] | None  # all aliases, if there are new ones
    relinked: dict[bytes, Relinked]
    owed: dict[str, float]  # seconds for which a restart must leave hosts alone; 0: no longer
    copied: dict[bytes, tuple[bytes, ...]]  # pages in `done` to the nodes that have copies
    counters: dict[str, int | float]  # by name
    ownership: OwnershipSnapshot
    settled: frozenset[bytes] = frozenset()  # pages in `fetched` whose links were all acked before: done at once


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round's transaction found and changed, to be applied on the event loop."""

    queued: list[Queued] = field(default_factory=list)
    resend: list[bytes] = field(default_factory=list)
    refetched: set[bytes] = field(default_factory=set)
    counted: Counter[str] = field(default_factory=Counter)  # to be added to the counters of the crawl, by name
    lines: list[dict[str, Any]] = field(default_factory=list)  # of `pages.jsonl`
    changed: list[TaskReplica] = field(default_factory=list)  # new, or found at a smaller depth
    arrived: list[TaskReplica] = field(default_factory=list)
    over: list[TaskReplica] = field(default_factory=list)  # done or dead
    spared: list[bytes] = field(default_factory=list)  # to be given up for their depths, but found at smaller ones


class Listener(Protocol):
    """Is told of the tasks that a round wrote and queued."""

    def written(self, tasks: list[tuple[str, bytes]]) -> None:
        """The outcomes of these tasks, by host and key, are in the store."""
        ...

    def spared(self) -> None:
        """Tasks of the last `written` are in their queues after all."""
        ...

    def expected(self, tasks: list[Queued]) -> None:
        """New tasks are in the store, and not yet on the backups."""
        ...

    def queued(self, tasks: list[Queued]) -> None:
        """Tasks that were `expected` are on the backups, too."""
        ...

    def settled(self) -> None:
        """A round, or the replication of its tombstones, is through; the crawl may be over."""
        ...
