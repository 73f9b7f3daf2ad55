"""A collection as one file for replay: WACZ 1.1.1 (Webrecorder, "Web Archive Collection Zipped").

    archive/*.warc.gz          as they are, not compressed again, so that a reader can seek in them
    indexes/index.cdx.gz       the CDXJ index in gzip members of `_LINES_A_BLOCK` lines
    indexes/index.idx          the first line of each member, and where the member lies
    pages/pages.jsonl          the pages to begin from: HTML that was answered with 2xx
    datapackage.json           every file with its size and SHA-256
    datapackage-digest.json    the SHA-256 of datapackage.json

The two index files are what readers fetch a part of over HTTP ("ZipNum"). Everything
is copied as a stream: memory does not grow with the archive, but for one line of the
index a block. Beyond 4 GiB the file is ZIP64.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import IO, Any, BinaryIO

from dhtcrawl import __version__
from dhtcrawl.errors import StorageError
from dhtcrawl.export.collection import ArchivedPage, Collection
from dhtcrawl.export.form import ExportFormat, ExportReport
from dhtcrawl.storage.outputs.outputs import ARCHIVE_DIR, INDEXES_DIR, PAGES_DIR, PAGES_FILE
from dhtcrawl.storage.store.engine import storage_error
from dhtcrawl.url import host_of

VERSION = "1.1.1"
COMPRESSED_INDEX, INDEX_OF_INDEX = "index.cdx.gz", "index.idx"
_LINES_A_BLOCK = 3000  # as other tools write it: some 100 KB to fetch for a look-up
_CHUNK_BYTES = 1 << 20
_MANIFEST, _DIGEST = "datapackage.json", "datapackage-digest.json"
_PAGES_HEADER = {"format": "json-pages-1.0", "id": "pages", "title": "All Pages"}
_HEADER_BYTES_MAX = 100


class _Package:
    """A ZIP file that is being written, with a list of what is in it."""

    def __init__(self, file: BinaryIO, now: datetime) -> None:
        self.resources: list[dict[str, Any]] = []
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._date_time = (now.year, now.month, now.day, now.hour, now.minute, now.second)

    def add(self, path: str, chunks: Iterable[bytes], *, bytes_max: int, deflated: bool = False) -> str:
        """Add a file of at most `bytes_max` bytes, which decide on ZIP64, and list it; return its hash."""
        sha256, size = hashlib.sha256(), 0
        with self._entry(path, bytes_max, deflated) as entry:
            for chunk in chunks:
                sha256.update(chunk)
                size += len(chunk)
                entry.write(chunk)
        digest = f"sha256:{sha256.hexdigest()}"
        self.resources.append({"name": path.rpartition("/")[2].lower(), "path": path, "hash": digest, "bytes": size})
        return digest

    def add_small(self, path: str, content: bytes) -> str:
        """Add a file, and list it; return its hash."""
        return self.add(path, [content], bytes_max=len(content), deflated=True)

    def close(self) -> None:
        """Write the directory, which makes it a ZIP file."""
        self._zip.close()

    def abandon(self) -> None:
        """Write nothing more."""
        self._zip.fp = None

    @contextmanager
    def _entry(self, path: str, bytes_max: int, deflated: bool) -> Iterator[IO[bytes]]:
        info = zipfile.ZipInfo(path, self._date_time)
        info.compress_type = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
        info.external_attr = 0o644 << 16
        info.file_size = bytes_max
        with self._zip.open(info, "w") as entry:
            yield entry


def write(collection: Collection, file: BinaryIO, report: ExportReport) -> None:
    """Write the package.

    Raises:
        StorageError: the archive cannot be read, has no file at all, or one whose name cannot stand in a package.
    """
    if not collection.archives:
        raise StorageError(f"{collection.root} has no file in {ARCHIVE_DIR}/: there is nothing to replay")
    for name in collection.archives:
        if not name.isprintable():  # a byte that is no UTF-8 is a surrogate here
            where = f"{collection.root}/{ARCHIVE_DIR}/"
            raise StorageError(f"the name of {name!r} in {where} has bytes that are no text; rename the file")
    now = datetime.now(UTC).replace(microsecond=0)
    package = _Package(file, now)
    try:
        _fill(package, collection, report, now)
        package.close()
    except BaseException:
        package.abandon()
        raise


def _fill(package: _Package, collection: Collection, report: ExportReport, now: datetime) -> None:
    for name, size in collection.archives.items():
        package.add(f"{ARCHIVE_DIR}/{name}", _content(collection, name, size), bytes_max=size)
    _add_index(package, collection)
    pages = _PageList(report)
    path = f"{PAGES_DIR}/{PAGES_FILE}"
    # A line has less than the one that it is made of.
    bytes_max = (collection.root / path).stat().st_size + _HEADER_BYTES_MAX
    package.add(path, pages.lines(collection), bytes_max=bytes_max, deflated=True)
    about = {
        "profile": "data-package",
        "wacz_version": VERSION,
        **_description(collection, pages, report.written),
        "created": _rfc3339(now),
        "software": f"dhtcrawl {__version__}",
        "resources": package.resources,
    }
    digest = {"path": _MANIFEST, "hash": package.add_small(_MANIFEST, json.dumps(about, indent=2).encode() + b"\n")}
    package.add_small(_DIGEST, json.dumps(digest).encode() + b"\n")


def _content(collection: Collection, name: str, size: int) -> Iterator[bytes]:
    """The first `size` bytes of an archive file."""
    path = collection.root / ARCHIVE_DIR / name
    try:
        stream = path.open("rb")
    except OSError as error:
        raise storage_error(error, f"cannot read {path}") from error
    with stream:
        while size:
            try:
                chunk = stream.read(min(size, _CHUNK_BYTES))
            except OSError as error:
                raise storage_error(error, f"cannot read {path}") from error
            if not chunk:
                raise StorageError(f"{path} became shorter while it was read; leave the directory alone and try again")
            size -= len(chunk)
            yield chunk


def _add_index(package: _Package, collection: Collection) -> None:
    meta = json.dumps({"format": "cdxj-gzip-1.0", "filename": COMPRESSED_INDEX})
    firsts = [f"!meta 0 {meta}\n".encode()]

    def blocks() -> Iterator[bytes]:
        lines, offset = iter(collection.index_lines()), 0
        while block := list(islice(lines, _LINES_A_BLOCK)):
            data = gzip.compress(b"".join(block), mtime=0)
            key, stamp, _ = block[0].split(b" ", 2)
            place = {
                "offset": offset,
                "length": len(data),
                "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
                "filename": COMPRESSED_INDEX,
            }
            firsts.append(b"%b %b %b\n" % (key, stamp, json.dumps(place).encode()))
            offset += len(data)
            yield data

    # What a line says stands in the record that it leads to, too.
    package.add(f"{INDEXES_DIR}/{COMPRESSED_INDEX}", blocks(), bytes_max=sum(collection.archives.values()))
    package.add_small(f"{INDEXES_DIR}/{INDEX_OF_INDEX}", b"".join(firsts))


class _PageList:
    """The lines of pages/pages.jsonl, and what is told of them all."""

    def __init__(self, report: ExportReport) -> None:
        self._report = report
        self.main: ArchivedPage | None = None  # where to begin: the first seed, or else the first page
        self.first = self.last = ""  # instants

    def lines(self, collection: Collection) -> Iterator[bytes]:
        yield _json_line(_PAGES_HEADER)
        for page in collection.pages():
            if page.member is None or not page.is_html:
                continue
            at = page.fields["fetched_at"]
            self._report.written += 1
            self.first, self.last = min(self.first or at, at), max(self.last, at)
            if self.main is None or (_is_seed(page) and not _is_seed(self.main)):
                self.main = page
            title = page.fields.get("title")
            yield _json_line(
                {"id": _id_of(page), "url": page.url, "ts": _to_the_second(at)}
                | ({"title": title} if isinstance(title, str) else {})
            )


def _description(collection: Collection, pages: _PageList, written: int) -> dict[str, str]:
    host = host_of(pages.main.url) if pages.main is not None else ""
    crawl = collection.summary().get("crawl")
    text = f"{written} HTML pages"
    if pages.main is not None:
        text += f", fetched from {_to_the_second(pages.first)} to {_to_the_second(pages.last)}"
    if isinstance(crawl, str):
        text += f" in crawl {crawl}"
    about = {"title": f"Crawl of {host}" if host else "Crawl", "description": text}
    if pages.main is not None:
        about["mainPageUrl"] = pages.main.url
        about["mainPageDate"] = _to_the_second(pages.main.fields["fetched_at"])
    return about


def _is_seed(page: ArchivedPage) -> bool:
    return page.fields.get("depth") == 0


def _id_of(page: ArchivedPage) -> str:
    text = f"{page.url}\n{page.fields['fetched_at']}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:32]


def _to_the_second(instant: str) -> str:
    """An instant of pages.jsonl as the records of the archive have it."""
    return f"{instant.partition('.')[0].removesuffix('Z')}Z"


def _rfc3339(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%SZ")


def _json_line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


WACZ = ExportFormat("wacz", ".wacz", "pages", streams=False, suffix_matters=True, write=write)
