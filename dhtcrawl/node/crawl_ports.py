"""The ports of a crawl on a node of a swarm, each implemented by parts of the swarm.

`Ownership` is `dhtcrawl.swarm.assignment.ownership`, `Assignment` is `dhtcrawl.swarm.assignment.assignments`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from dhtcrawl.crawl.ports import Copied
from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.storage.store.replicas import TaskReplica
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.assignment.ownership import SwarmOwnership
from dhtcrawl.swarm.bodies.absences import Absences
from dhtcrawl.swarm.bodies.copier import Copier
from dhtcrawl.swarm.lifecycle.page_blocks import PageAllowance
from dhtcrawl.swarm.lifecycle.participants import Participants
from dhtcrawl.swarm.lifecycle.run_state import RunState
from dhtcrawl.swarm.records.owner_news import OwnerNews
from dhtcrawl.swarm.records.replicate import Replicator
from dhtcrawl.swarm.records.send_links import LinkSender


@dataclass(frozen=True, slots=True)
class SwarmReplication:
    """`Replication` to owners, to backups, and to nodes with copies of bodies."""

    crawl: bytes
    replicator: Replicator
    owner_news: OwnerNews
    links: LinkSender
    copier: Copier
    ownership: SwarmOwnership

    @property
    def busy(self) -> bool:
        return self.links.busy or self.replicator.busy_with(self.crawl) or self.ownership.releasing > 0

    @property
    def joins(self) -> bool:
        return self.replicator.joins

    def send(self, links: Sequence[Link]) -> list[Link]:
        return self.links.send(links)

    def keep(self, copies: Sequence[TaskReplica], then: Callable[[], None], *, over: bool = False) -> None:
        self.replicator.keep(self.crawl, copies, then, over=over)

    def tell(self, copies: Sequence[TaskReplica]) -> None:
        self.owner_news.tell(self.crawl, copies)

    def when_kept(self, key: bytes, then: Callable[[], None]) -> bool:
        return self.replicator.when_kept(self.crawl, key, then)

    def unsafe(self, key: bytes) -> bool:
        return self.replicator.unsafe(self.crawl, key)

    def copy(self, pages: Sequence[bytes], copied: Copied, *, again: bool) -> None:
        self.copier.copy(pages, copied, again=again)


@dataclass(frozen=True, slots=True)
class SwarmBudget:
    """`Budget` by the page blocks that the coordinator gave to this node."""

    state: RunState
    awake: Callable[[], bool]  # False once this node learns that it did not run for a while
    allowance: PageAllowance
    counters: CrawlCounters

    def may_start(self, pages_open: int) -> bool:
        # A node that stood still may have been taken for dead: it syncs before it fetches (I12).
        return not self.state.held and self.awake() and self.allowance.may_start(self.counters.pages + pages_open)


@dataclass(frozen=True, slots=True)
class SwarmRecord:
    """`SharedRecord` by the crawl's record that all members have."""

    crawl: bytes
    tell: Callable[[bytes, str, str], Awaitable[None]]  # (crawl, what redirects, where to)
    ask: Callable[[bytes], Awaitable[bool]]  # (crawl): whether all answered that know of the scope
    room: Callable[[bytes], bool]  # (crawl)
    end: Callable[[bytes, str], Awaitable[None]]  # (crawl, cause)
    participants: Participants
    absences: Absences

    async def announce(self, source: str, alias: str) -> None:
        await self.tell(self.crawl, source, alias)

    async def catch_up(self) -> bool:
        return await self.ask(self.crawl)

    def has_room(self) -> bool:
        return self.room(self.crawl)

    def took_part(self, nodes: Sequence[str]) -> None:
        self.participants.met(nodes)
        self.absences.lie_at(nodes)

    async def stop(self, cause: str) -> None:
        await self.end(self.crawl, cause)
