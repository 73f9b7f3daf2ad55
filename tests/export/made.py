"""A collection on disk, made of a few pages, and exported."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from storage.warcs import DATE, HEAD, NAME, begin, item

from dhtcrawl.clock import iso8601
from dhtcrawl.export.collection import collection
from dhtcrawl.export.form import ExportReport
from dhtcrawl.export.formats import FORMATS
from dhtcrawl.storage.archive.warc import append_exchange
from dhtcrawl.storage.outputs import cdxj
from dhtcrawl.storage.store.files import DiskDirectory

NODE = "ab" * 20


class Made(NamedTuple):
    """A page; `fields` change its line of pages.jsonl."""

    url: str
    body: bytes = b"<title>T</title>"
    status: int = 200
    head: bytes = HEAD
    fields: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it


def redirect(url: str, location: str) -> Made:
    """A 301 to `location`."""
    head = b"HTTP/1.1 301 Moved\r\nLocation: %b\r\n\r\n" % location.encode()
    return Made(url, b"", 301, head, {"content_type": "", "charset": None, "title": None})


def make(
    root: Path, pages: Iterable[Made], *, skipped: Iterable[dict[str, Any]] = (), indexed: int | None = None
) -> Path:
    """Write a collection of `pages`, a second after one another; its index has the first `indexed` of them."""
    for name in ("archive", "indexes", "pages", "reports"):
        (root / name).mkdir(parents=True)
    file = DiskDirectory(root / "archive").open(NAME, 0)
    begin(file)
    lines, index = [], []
    for number, page in enumerate(pages):
        at = DATE + timedelta(seconds=number)
        head = page.head.replace(b" 200 OK", b" %d OK" % page.status, 1)
        exchange = item(page.url, page.body, head=head, number=number + 1)
        written = append_exchange(file, exchange._replace(date=at), "urn:uuid:1")
        fields: dict[str, Any] = {
            "url": page.url,
            "status": page.status,
            "depth": 1 if number else 0,
            "referrer": None,
            "final_url": page.url,
            "content_type": "text/html",
            "charset": "utf-8",
            "title": "T",
            "bytes": len(page.body),
            "payload_digest": written.payload_digest,
            "fetched_at": iso8601(at),
            "node": NODE,
            "error": None,
        } | page.fields
        lines.append(json.dumps(fields) + "\n")
        index.append(
            cdxj.line(
                url=page.url,
                date=at,
                content_type="text/html",
                status=page.status,
                digest=written.payload_digest,
                length=written.length,
                offset=written.offset,
                filename=NAME,
            )
        )
    file.close()
    (root / "pages/pages.jsonl").write_text("".join(lines))
    if indexed != 0:
        (root / "indexes/index.cdxj").write_text("".join(sorted(index[:indexed])))
        (root / "summary.json").write_text(json.dumps({"crawl": "c" * 32}))
    (root / "reports/skipped.jsonl").write_text("".join(json.dumps(row) + "\n" for row in skipped))
    return root


def export(root: Path, name: str) -> tuple[bytes, ExportReport]:
    """What a format writes, and what it tells."""
    file, report = io.BytesIO(), ExportReport()
    with collection(root) as opened:
        FORMATS[name].write(opened, file, report)
    return file.getvalue(), report


def links(root: Path) -> list[dict[str, Any]]:
    """The rows of the links of a collection."""
    return [json.loads(line) for line in export(root, "links")[0].splitlines()]
