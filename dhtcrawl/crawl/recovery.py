"""Going on from what the store and the archive have: transactions and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dhtcrawl.crawl.analysis import Analysis, analyse
from dhtcrawl.crawl.discovery import Discovery, Found
from dhtcrawl.fetch.heads import header_pairs
from dhtcrawl.keyspace import host_key
from dhtcrawl.storage import tasks
from dhtcrawl.storage.archive import Archive
from dhtcrawl.storage.committer import Txn
from dhtcrawl.storage.records import Task
from dhtcrawl.storage.warc import Record

key_of_host = host_key


@dataclass(frozen=True, slots=True)
class StoredPage:
    """A fetched page: its task, its line, and what the archive holds."""

    task: Task
    fields: dict[str, Any]
    record: Record


def read_page(txn: Txn, *, crawl: bytes, key: bytes, archive: Archive) -> StoredPage:
    """A fetched page with its body.

    Raises:
        StorageError: the archive does not hold what the record says.
    """
    task, fields = tasks.get_task(txn, crawl, key), tasks.get_page(txn, crawl, key)
    assert task is not None, "a page marked as fetched has a task"
    assert fields is not None, "and a page record"
    return StoredPage(task, fields, archive.read(fields["place"]))


def links_of(page: StoredPage, discovery: Discovery, html_bytes_max: int) -> Found:
    """The links of a stored page, as when it arrived, at the depth it has now."""
    analysis: Analysis = analyse(
        page.task.url,
        page.fields["status"],
        parse_head(page.record.head),
        page.record.payload,
        html_bytes_max=html_bytes_max,
    )
    return discovery.discover(page.task.url, analysis, depth=page.task.depth, hops=page.task.hops, seed=page.task.seed)


def parse_head(head: bytes) -> list[tuple[str, str]]:
    """The headers of a stored HTTP head, names in lower case."""
    pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:] if b":" in line)
    # Decoded as when they arrived: a redirect leads to the same place.
    return header_pairs([(name.strip(), value) for name, _, value in pairs])


def kill_queue(txn: Txn, *, crawl: bytes, host: str, reason: str, detail: str, limit: int) -> int:
    """Give up the first `limit` tasks of a host's queue; how many there were."""
    queued, _ = tasks.host_queue(txn, crawl, host_key(host), limit)
    for task in queued:
        tasks.kill(txn, crawl, task.key, reason, detail, 0)
    return len(queued)
