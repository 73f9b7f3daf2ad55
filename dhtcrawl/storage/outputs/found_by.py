"""Which searches led to a page: its own where it is a page of results, otherwise those of the page that led to it."""

from __future__ import annotations

from typing import Any

from dhtcrawl.searches import named
from dhtcrawl.spec import CrawlSpec
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.records import shown_task
from dhtcrawl.storage.store.txn import Txn
from dhtcrawl.url import has_host

KNOWN_MAX = 100_000  # pages


class FoundBy:
    """Follows the links that first led to the pages of a crawl back to its pages of results."""

    def __init__(self, txn: Txn, crawl: bytes, spec: CrawlSpec) -> None:
        self._txn = txn
        self._crawl = crawl
        self._key_of = spec.key_of
        self._searches = spec.searches
        self._known: dict[str, list[dict[str, Any]]] = {}

    def of(self, url: str) -> list[dict[str, Any]]:
        """Task, engine, site and page of results of each search that led to `url`; empty where none did."""
        way: dict[str, None] = {}
        found: list[dict[str, Any]] | None = None
        while url and url not in way and found is None:
            found = [named(search) for search in self._searches.of(url)] or self._known.get(url)
            way[url] = None
            url = self._referrer(url) if found is None else ""
        if len(self._known) + len(way) > KNOWN_MAX:
            self._known.clear()
        self._known.update(dict.fromkeys(way, found or []))
        return found or []

    def _referrer(self, url: str) -> str:
        value = self._txn.get(keys.TASK + self._crawl + self._key_of(url))
        referrer = "" if value is None else shown_task(value).referrer
        return referrer if has_host(referrer) else ""
