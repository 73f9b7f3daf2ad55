"""What a crawl left in its `--out`, as a script of a user's would read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Row = dict[str, Any]


class Outputs:
    """The files under `out`, read anew at each call."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.node = out.with_name(f"{out.name}.node")  # what goes on with them

    def pages(self) -> list[Row]:
        return _rows(self.out, "pages/*.jsonl")

    def skipped(self) -> list[Row]:
        return _rows(self.out, "reports/skipped.jsonl")

    def summary(self) -> Row:
        return _object((self.out / "summary.json").read_text())

    def warcs(self) -> list[Path]:
        return sorted(self.out.glob("archive/*.warc.gz"))

    def html(self) -> dict[str, Row]:
        """The rows with status 200 and type HTML by path, none of them twice."""
        rows = [row for row in self.pages() if row["status"] == 200 and is_html(row)]
        by_path = {path_of(row["url"]): row for row in rows}
        assert len(by_path) == len(rows), "a page is listed twice"
        return by_path

    def cdxj(self) -> list[str]:
        return [line for file in sorted(self.out.glob("indexes/*.cdxj")) for line in file.read_text().splitlines()]


def is_html(row: Row) -> bool:
    """Whether a page's row has the type text/html, whatever its parameters."""
    kind = row["content_type"] or ""
    return kind.partition(";")[0].strip().lower() == "text/html"


def path_of(url: str) -> str:
    """Path and query, as in a server's log."""
    parts = urlsplit(url)
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _rows(out: Path, pattern: str) -> list[Row]:
    return [_object(line) for file in sorted(out.glob(pattern)) for line in file.read_text().splitlines()]


def _object(text: str) -> Row:
    value = json.loads(text)
    assert isinstance(value, dict), text
    return value
