"""The services that a crawl is given: clock, chance, network, disk and ports."""

from __future__ import annotations

import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from dhtcrawl.clock import Clock
from dhtcrawl.config import Config
from dhtcrawl.crawl.ports import CrawlPorts
from dhtcrawl.fetch.host_access import HostAccess, UnleasedHosts
from dhtcrawl.fetch.http import HttpClient
from dhtcrawl.fetch.politeness import HostBook
from dhtcrawl.storage.archive.archive import Archive
from dhtcrawl.storage.store.committer import Committer


class Observer(Protocol):
    """Is told of events: the simulator's trace, a progress line."""

    def event(self, name: str, **fields: object) -> None:
        """Take the next event; the events come in their order."""
        ...


class Silent:
    """An `Observer` that ignores all events."""

    def event(self, name: str, **fields: object) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Services:
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
    gate: HostAccess = field(default_factory=UnleasedHosts)
    observer: Observer = field(default_factory=Silent)

    def new_record_id(self) -> str:
        """A new WARC-Record-ID."""
        return f"urn:uuid:{uuid.UUID(int=self.rng.getrandbits(128), version=4)}"
