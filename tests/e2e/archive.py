"""WARC files judged by other people's tools: warcio, warctools, fastwarc, cdxj-indexer."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fastwarc import ArchiveIterator, WarcRecordType

_TIMEOUT_S = 120

# urlkey, timestamp, offset, digest
IndexEntry = tuple[str, str, int, str]


@dataclass(frozen=True, slots=True)
class Archived:
    """A response or revisit record; `body` is empty for a revisit."""

    url: str
    kind: WarcRecordType
    digest: str
    body: bytes


def sha1_of(data: bytes) -> str:
    """A digest as WARC writes it."""
    return "sha1:" + base64.b32encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode()


def assert_valid(warcs: list[Path]) -> None:
    """`warcio check` and `warcvalid` find nothing, and fastwarc reads each record's own digests."""
    assert warcs, "no WARC was written"
    _tool("warcio", "check", *warcs)
    _tool("warcvalid", *warcs)
    read_archive(warcs)


def read_archive(warcs: Iterable[Path]) -> list[Archived]:
    """All response and revisit records, their digests checked."""
    found = []
    for path in warcs:
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, strict_mode=True):
                if record.record_type not in (WarcRecordType.response, WarcRecordType.revisit):
                    record.consume()
                    continue
                digest = record.headers["WARC-Payload-Digest"] or ""
                body = record.reader.read()
                if record.record_type is WarcRecordType.response:
                    assert sha1_of(body) == digest, record.headers["WARC-Target-URI"]
                url = record.headers["WARC-Target-URI"] or ""
                found.append(Archived(url, record.record_type, digest, body))
    return found


def payloads(archived: list[Archived]) -> dict[str, list[bytes]]:
    """The payloads stored for each URL; a revisit's is that of the response with its digest."""
    bodies = {record.digest: record.body for record in archived if record.kind is WarcRecordType.response}
    found: dict[str, list[bytes]] = {}
    for record in archived:
        assert record.digest in bodies, f"a revisit of nothing: {record.url}"
        found.setdefault(record.url, []).append(bodies[record.digest])
    return found


def index_of(warcs: list[Path]) -> set[tuple[str, IndexEntry]]:
    """(file, entry) for each record that cdxj-indexer finds in `warcs`."""
    return parse_index(_tool("cdxj-indexer", *warcs).splitlines())


def parse_index(lines: Iterable[str]) -> set[tuple[str, IndexEntry]]:
    """(file, entry) for each line of a CDXJ file, none of them twice."""
    entries = []
    for line in lines:
        urlkey, timestamp, fields = line.split(" ", 2)
        values = json.loads(fields)
        digest = values["digest"].removeprefix("sha1:")
        entries.append((Path(values["filename"]).name, (urlkey, timestamp, int(values["offset"]), digest)))
    assert len(set(entries)) == len(entries), "a record is indexed twice"
    return set(entries)


def _tool(name: str, *argv: str | Path) -> str:
    # Installed beside the interpreter, which need not be on PATH.
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert path is not None, f"{name} is missing: pip install '.[dev]'"
    done = subprocess.run([path, *map(str, argv)], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{name}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
