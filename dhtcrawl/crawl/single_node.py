"""The ports of a crawl on a node by itself, which owns every task and has no other node to tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from dhtcrawl.crawl.ports import Copied, CrawlPorts, TaskOutcome
from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.storage.store.ownership import EVERYTHING, OwnershipSnapshot
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import Link, Queued


class SoleOwnership:
    """`Ownership` of every task."""

    alone = True

    def owns(self, key: bytes) -> bool:
        return True

    def owned(self, keys: Iterable[bytes]) -> list[bytes]:
        return list(keys)

    def mine(self, key: bytes) -> bool:
        return True

    def held(self, key: bytes) -> bool:
        return False

    def stays(self, key: bytes) -> bool:
        return True

    def waits(self, key: bytes) -> bool:
        return False

    def awaited(self, key: bytes) -> bool:
        return False

    def snapshot(self, task_keys: Iterable[bytes] | None = None, /) -> OwnershipSnapshot:
        return EVERYTHING


class NoReplication:
    """`Replication` without other nodes: a record is safe once it is written here."""

    busy = False
    joins = False

    def send(self, links: Sequence[Link]) -> list[Link]:
        assert not links, "there is no other owner"
        return []

    def keep(self, copies: Sequence[TaskReplica], then: Callable[[], None], *, over: bool = False) -> None:
        then()

    def tell(self, copies: Sequence[TaskReplica]) -> None:
        raise AssertionError("there is no other owner")

    def when_kept(self, key: bytes, then: Callable[[], None]) -> bool:
        return False

    def unsafe(self, key: bytes) -> bool:
        return False

    def copy(self, pages: Sequence[bytes], copied: Copied, *, again: bool) -> None:
        for page in pages:
            copied(page, ())


class NoAssignment:
    """`Assignment` where this node fetches every task itself."""

    def assign(self) -> None:
        raise AssertionError("no task waits")

    def connect_s(self, host: str) -> float | None:
        return None

    def brought(self, given: TaskOutcome) -> None:
        return

    def passes_on(self, task: Queued, given: TaskOutcome) -> bool:
        return False

    def killed(self, key: bytes) -> None:
        return

    def released(self, key: bytes) -> None:
        raise AssertionError("no other node can have become its owner")


class SoleBudget(NamedTuple):
    """`Budget` that this node has to itself; `pages_max` 0 is no limit."""

    pages_max: int
    counters: CrawlCounters

    def may_start(self, pages_open: int) -> bool:
        return not self.pages_max or self.counters.pages + pages_open < self.pages_max


class OwnRecord:
    """`SharedRecord` that no other node reads."""

    async def announce(self, source: str, alias: str) -> None:
        return

    async def catch_up(self) -> bool:
        return True

    def has_room(self) -> bool:
        return True

    def took_part(self, nodes: Sequence[str]) -> None:
        raise AssertionError("no other node can have fetched a page")

    async def stop(self, cause: str) -> None:
        raise AssertionError("the crawl stops by itself")


PORTS = CrawlPorts(SoleOwnership(), NoReplication(), OwnRecord())
