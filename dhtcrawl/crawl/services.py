"""What a crawl is given: everything that touches the world comes in here."""

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
    """Who is told what happens: the simulator's trace, a progress line."""

    def event(self, name: str, **fields: object) -> None:
        """Something happened, in the order in which it did."""
        ...


class Silent:
    """Nobody listens."""

    def event(self, name: str, **fields: object) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Services:
    """The ports of one node, and of one crawl's archive on it."""

    config: Config
    clock: Clock
    rng: random.Random
    http: HttpClient
    committer: Committer
    archive: Archive
    hosts: HostBook
    node: str  # node id, hex
    incarnation: int
    # Runs a function that takes long (a big page) where it blocks nobody.
    offload: Callable[[Callable[[], Any]], Awaitable[Any]]
    ports: CrawlPorts
    gate: HostAccess = field(default_factory=UnleasedHosts)
    observer: Observer = field(default_factory=Silent)

    def new_record_id(self) -> str:
        """A WARC-Record-ID."""
        return f"urn:uuid:{uuid.UUID(int=self.rng.getrandbits(128), version=4)}"
