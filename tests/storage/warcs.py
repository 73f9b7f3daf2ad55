"""Exchanges and archive files to test with."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from dhtcrawl.storage.archive.item import ArchiveItem
from dhtcrawl.storage.archive.warc import Written, append_exchange, warcinfo
from dhtcrawl.storage.archive.warcscan import GzipMember, scan
from dhtcrawl.storage.store.files import AppendFile, MemoryDirectory

NAME = "a.warc.gz"
DATE = datetime(2026, 1, 31, 12, 0, 5, 999_000, tzinfo=UTC)
HEAD = b"HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
INFO_ID = f"urn:uuid:{UUID(int=1)}"


def item(
    url: str = "http://example.org/",
    body: bytes = b"<p>hello</p>",
    *,
    head: bytes = HEAD,
    request: bytes = b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
    number: int = 1,
    spooled: bool = False,
    truncated: str | None = None,
    remote_ip: str = "192.0.2.1",
) -> ArchiveItem:
    """An exchange; `number` makes its record ids."""

    def chunks() -> Iterator[bytes]:
        return (body[at : at + 1000] for at in range(0, len(body), 1000))

    return ArchiveItem(
        url=url,
        date=DATE,
        remote_ip=remote_ip,
        request_head=request,
        response_head=head,
        body_size=len(body),
        chunks=chunks,
        body=None if spooled else body,
        truncated=truncated,
        response_id=f"urn:uuid:{UUID(int=2 * number)}",
        request_id=f"urn:uuid:{UUID(int=2 * number + 1)}",
    )


def begin(file: AppendFile) -> None:
    """Write the record that an archive file begins with."""
    warcinfo(file, filename=file.name, date=DATE, record_id=INFO_ID, fields={"software": "dhtcrawl", "robots": "obey"})


def archive(*items: ArchiveItem) -> tuple[MemoryDirectory, list[Written]]:
    """A directory with one archive file that holds `items`."""
    directory = MemoryDirectory()
    file = directory.open(NAME, 0)
    begin(file)
    return directory, [append_exchange(file, one, INFO_ID) for one in items]


def scan_file(path: Path) -> list[GzipMember]:
    """All members of a file."""
    with path.open("rb") as stream:
        return list(scan(stream))


def tool(name: str, *argv: str | Path) -> str:
    """What another project's command prints; it must end with 0."""
    # Installed beside the interpreter, which need not be on PATH.
    path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert path is not None, f"{name} is missing: pip install '.[dev]'"
    done = subprocess.run([path, *map(str, argv)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
