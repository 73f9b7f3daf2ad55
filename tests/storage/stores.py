"""A store in memory, and what to put into it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from storage.warcs import DATE, item

from dhtcrawl.clock import iso8601
from dhtcrawl.config import CrawlSettings
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.archive.archive import Archive
from dhtcrawl.storage.archive.item import ArchiveItem
from dhtcrawl.storage.archive.names import ArchiveSeries
from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.catalog import DropStep
from dhtcrawl.storage.store.committer import Participant
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.fsck import Findings, check
from dhtcrawl.storage.store.memory import MemoryEngine
from dhtcrawl.storage.store.records import Place, Task
from dhtcrawl.storage.store.tasks import Accepted, FetchedPage, Link
from dhtcrawl.storage.store.txn import Batch, Engine, Txn

T = TypeVar("T")

CRAWL = bytes(range(16))
SPEC = make_spec(["http://a.example/"], CrawlSettings())
NODE = "ab" * 20
PLACE = Place(NODE, "a.warc.gz", 0, 10)


class Store:
    """Transactions on one crawl, each a group of its own."""

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = engine if engine is not None else MemoryEngine()
        self.orders = itertools.count(1)
        self.participants: list[Participant] = []

    def run(self, function: Callable[[Txn], T]) -> T:
        writes: dict[bytes, bytes | None] = {}
        value = function(Txn(self.engine, writes))
        if writes:
            for participant in self.participants:
                participant.prepare(Txn(self.engine, writes))
            self.engine.write(writes, sync=False)
        return value

    def drop_all(self, drop: Callable[..., DropStep]) -> Iterator[int]:
        """How many records each step drops, until none is left."""
        step = DropStep()
        while step.cursor is not None:
            step = self.run(partial(drop, cursor=step.cursor))
            yield step.dropped

    def stored_keys(self) -> list[bytes]:
        return [key for key, _ in self.engine.scan(b"", b"\xff")]

    def accept(self, *links: Link, depth_matters: bool = True) -> Accepted:
        return self.run(lambda txn: tasks.accept(txn, CRAWL, links, self.orders, depth_matters=depth_matters))

    def fetched(self, page: FetchedPage, place: Place = PLACE, attempt: int = 0) -> tuple[bool, bool]:
        arrival = self.run(lambda txn: tasks.fetched(txn, CRAWL, page, place, attempt))
        return arrival.again, arrival.resend

    def settle(self, url: str) -> None:
        self.run(lambda txn: tasks.settle(txn, CRAWL, SPEC.key_of(url)))

    def kill(self, url: str, reason: str = "failed", detail: str = "") -> bool:
        return self.run(lambda txn: tasks.kill(txn, CRAWL, SPEC.key_of(url), reason, detail, 1)) is not None

    def skip(self, *skipped: tuple[str, str]) -> None:
        self.run(lambda txn: tasks.skip(txn, CRAWL, skipped, "http://a.example/"))

    def task(self, url: str) -> Task:
        found = self.run(lambda txn: tasks.get_task(txn, CRAWL, SPEC.key_of(url)))
        assert found is not None
        return found

    def put(self, key: bytes, value: bytes | None) -> None:
        """Plant a record, or take one away."""
        self.engine.write({key: value}, sync=False)

    def fsck(self, archive: Directory | None = None) -> Findings:
        return self.run(lambda txn: check(txn, CRAWL, SPEC, archive))


class NoPassing(MemoryEngine):
    """Scans pass nothing that was removed, as LevelDB would for a long time."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: set[bytes] = set()

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        assert not [key for key in self.gone if start <= key < stop]
        return super().scan(start, stop)

    def write(self, batch: Batch, *, sync: bool) -> None:
        self.gone.update(key for key, value in batch.items() if value is None)
        super().write(batch, sync=sync)


def link(url: str, depth: int = 1, referrer: str = "http://a.example/", *, hops: int = 0, seed: bool = False) -> Link:
    return Link(SPEC.key_of(url), url, depth, referrer, hops, seed)


def page(
    url: str,
    depth: int = 1,
    links: Iterable[str] = (),
    skipped: Iterable[tuple[str, str]] = (),
    *,
    second: int = 0,
    **fields: Any,
) -> FetchedPage:
    """What the fetch of `url` brought, `second` seconds after the first."""
    known: dict[str, Any] = {
        "url": url,
        "status": 200,
        "depth": depth,
        "bytes": 5,
        "payload_digest": "sha1:X",
        "fetched_at": iso8601(DATE + timedelta(seconds=second)),
        "mime": "text/html; charset=utf-8",
    }
    return FetchedPage(SPEC.key_of(url), depth, known | fields, b"".join(map(SPEC.key_of, links)), list(skipped))


def archive_in(
    directory: Directory,
    *,
    crawl: bytes = CRAWL,
    node: str = NODE,
    bytes_max: int = 1 << 30,
    sync: bool = False,
    series: str = "",
    first: int = 0,
) -> Archive:
    info = {"software": "dhtcrawl", "robots": "obey"}
    files = ArchiveSeries(crawl, node, series, first)
    return Archive(directory, files, bytes_max=bytes_max, sync=sync, wall=lambda: DATE, info=info)


def exchanges(url: str = "http://a.example/", *, spooled: bool = False) -> Iterator[ArchiveItem]:
    """Exchanges without end, each with a body and record ids of its own."""
    return (item(url, b"<p>%d</p>" % n, number=n, spooled=spooled) for n in itertools.count(1))
