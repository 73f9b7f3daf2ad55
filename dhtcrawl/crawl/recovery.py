"""Reads fetched pages back from the store and the archive, to send their links again."""

from __future__ import annotations

from typing import Any, NamedTuple

from dhtcrawl.crawl.analysis import Analysis, FindRecords, analyse
from dhtcrawl.crawl.discovery import Discovery, Found
from dhtcrawl.fetch.heads import header_pairs
from dhtcrawl.query_charset import UTF_8
from dhtcrawl.storage.archive.archive import Archive
from dhtcrawl.storage.archive.warcread import WarcRecord
from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.records import Task
from dhtcrawl.storage.store.txn import Txn


class StoredPage(NamedTuple):
    """A fetched page: its task, its page record, and its response record in the archive."""

    task: Task
    fields: dict[str, Any]
    record: WarcRecord


def read_page(txn: Txn, *, crawl: bytes, key: bytes, archive: Archive, html_bytes_max: int) -> StoredPage:
    """Read a fetched page with as much of its body as was looked at when it arrived, in a transaction.

    Raises:
        StorageError: a record is damaged, or the archive does not hold the body it points at.
    """
    task, fields = tasks.get_task(txn, crawl, key), tasks.get_page(txn, crawl, key)
    assert fields is not None, "a page marked as fetched has a page record"
    if task is None:
        # In a swarm other nodes may have the task record while the page is here.
        task = Task(fields["url"], fields["depth"], 0, fields["referrer"] or "")
    # By one byte more it is seen that something is cut off.
    return StoredPage(task, fields, archive.read(fields["place"], html_bytes_max + 1))


def look_again(
    page: StoredPage, html_bytes_max: int, find_records: FindRecords | None = None, token: str = ""
) -> Analysis:
    """Analyse a stored page as when it arrived; takes long for a big page.

    `find_records` says which links rules leave out; `token` is the crawl's product token.
    """
    fields = page.fields
    return analyse(
        page.task.url,
        fields["status"],
        parse_head(page.record.head),
        page.record.payload,
        html_bytes_max=html_bytes_max,
        token=token,
        # Versions that knew no charset of queries wrote none, and had them all in UTF-8.
        query_charset=str(fields.get("query_charset") or UTF_8),
        find_records=find_records,
    )


async def links_of(page: StoredPage, analysis: Analysis, discovery: Discovery) -> Found:
    """The links of a stored page, at the depth it has now."""
    task = page.task
    return await discovery.discover(task.url, analysis, depth=task.depth, hops=task.hops, seed=task.seed)


def parse_head(head: bytes) -> list[tuple[str, str]]:
    """The headers of a stored HTTP head, names in lower case."""
    pairs = (line.partition(b":") for line in head.split(b"\r\n")[1:] if b":" in line)
    # Decoded as when they arrived, so that a redirect has the same target.
    return header_pairs([(name.strip(), value) for name, _, value in pairs])
