"""The services that a crawl is given: clock, chance, network, disk and ports."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from dhtcrawl.clock import Clock
from dhtcrawl.config import Config
from dhtcrawl.crawl.ports import CrawlPorts
from dhtcrawl.crawl.slot_shares import NodeShares
from dhtcrawl.fetch.host_access import HostAccess
from dhtcrawl.fetch.http import HttpClient
from dhtcrawl.fetch.politeness import HostBook
from dhtcrawl.storage.archive.archive import Archive
from dhtcrawl.storage.store.committer import Committer
from dhtcrawl.storage.store.known_depths import DepthTable

# Of a random UUID's bits those that are not chance: version 4, variant 0b10.
_UUID4_FIXED = 4 << 76 | 2 << 62
_UUID4_CHANCE = (1 << 128) - 1 & ~(0xF << 76 | 3 << 62)


class Observer(Protocol):
    """Is told of events: the simulator's trace, a progress line."""

    def event(self, name: str, **fields: object) -> None:
        """Take the next event; the events come in their order."""
        ...


class Silent:
    """An `Observer` that ignores all events."""

    def event(self, name: str, **fields: object) -> None:
        pass


class Services(NamedTuple):
    """One node's services, and one crawl's archive and ports on it."""

    config: Config
    clock: Clock
    rng: random.Random
    http: HttpClient
    committer: Committer
    archive: Archive
    hosts: HostBook
    node: str  # node id, hex
    incarnation: int
    # Runs a function that takes long (a big page) off the event loop.
    offload: Callable[[Callable[[], Any]], Awaitable[Any]]
    ports: CrawlPorts
    gate: HostAccess
    observer: Observer
    crawls: NodeShares  # of the node: they share its connections
    safe_tasks: DepthTable  # of all its crawls

    def new_record_id(self) -> str:
        """A new WARC-Record-ID: a random UUID (RFC 9562, 5.4), written here for a third of what `uuid.UUID` takes."""
        digits = f"{self.rng.getrandbits(128) & _UUID4_CHANCE | _UUID4_FIXED:032x}"
        return f"urn:uuid:{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
