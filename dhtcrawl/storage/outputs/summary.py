"""Writes summary.json, a crawl's figures. Scripts rely on the names."""

from __future__ import annotations

import json
from typing import NamedTuple

from dhtcrawl.storage.outputs.outputs import SUMMARY_FILE
from dhtcrawl.storage.store.files import Directory


class NodeShare(NamedTuple):
    """One node's part of the figures."""

    node: str
    pages: int
    bytes: int
    cpu_seconds: float
    rss_bytes_max: int


class Summary(NamedTuple):
    """A crawl's figures; `docs/outputs.md` explains each."""

    crawl: str
    complete: bool
    nodes: int
    seconds: float
    pages: int
    pages_ok: int
    fetches: int
    refetches: int
    retried: int
    redirects: int
    errors: int
    errors_by_kind: dict[str, int]
    skipped: dict[str, int]
    records: dict[str, int]
    rejected: dict[str, int]
    bytes: int
    urls_seen: int
    links: int
    lost: int
    pages_missing: int
    pages_undercopied: int
    politeness_violations: int
    politeness_exceptions: int
    storage_sync: bool
    policy: str
    plans: dict[str, dict[str, float | None]]
    key: str
    copies: int
    per_node: list[NodeShare]

    def to_json(self, *, indent: int | None = None) -> str:
        told = self._asdict() | {"per_node": [share._asdict() for share in self.per_node]}
        return json.dumps(told, indent=indent, ensure_ascii=False)


def write_summary(root: Directory, summary: Summary) -> None:
    """Write summary.json, replacing an older one.

    Raises:
        StorageError: it cannot be written; the old one stays.
    """
    root.replace(SUMMARY_FILE, [summary.to_json(indent=2).encode() + b"\n"])
