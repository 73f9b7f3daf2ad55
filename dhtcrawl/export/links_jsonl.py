"""Every link of every archived page, as JSON Lines.

The bodies are read again, and links taken out of them as the crawl did
(`dhtcrawl.crawl.analysis`), those that it did not follow included. Each row also tells
what came of the link's target, so that broken links and the pages with them are
the rows that a search for a status finds.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

from dhtcrawl.config import Config
from dhtcrawl.crawl.analysis import REDIRECTS, PageLink, page_links
from dhtcrawl.crawl.recovery import parse_head
from dhtcrawl.errors import StorageError
from dhtcrawl.export.collection import ArchivedPage, Collection
from dhtcrawl.export.form import ExportFormat, ExportReport

# docs/outputs.md lists them.
FIELDS = ("from", "to", "kind", "rel", "status", "reason")


def write(collection: Collection, file: BinaryIO, report: ExportReport) -> None:
    """Write a row for each link: on a page once for each target, kind and `rel`."""
    html_bytes_max = Config().fetch.html_bytes_max
    for page in collection.pages():
        for link in _links(collection, page, html_bytes_max, report):
            file.write(_line(page, link, collection.outcome(link.to)))
            report.written += 1


def _links(collection: Collection, page: ArchivedPage, html_bytes_max: int, report: ExportReport) -> list[PageLink]:
    if page.member is None or not (page.is_html or page.may_be_sitemap or page.status in REDIRECTS):
        return []
    try:
        # By one byte more it is seen that something is cut off.
        record = collection.read(page.member, html_bytes_max + 1)
    except StorageError as error:
        report.problem(str(error))
        return []
    headers = parse_head(record.head)
    return page_links(page.url, page.status, headers, record.payload, html_bytes_max=html_bytes_max)


def _line(page: ArchivedPage, link: PageLink, outcome: int | str | None) -> bytes:
    status, reason = (outcome, None) if isinstance(outcome, int) else (None, outcome)
    values: tuple[Any, ...] = (page.url, *link, status, reason)
    row = dict(zip(FIELDS, values, strict=True))
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


LINKS = ExportFormat("links", ".links.jsonl", "links", streams=True, suffix_matters=False, write=write)
