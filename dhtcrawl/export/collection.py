"""A crawl's directory, read for an export: pages with the places of their bodies.

Only what people may copy is read, never the store: `pages.jsonl` says which pages
there are, the index where they lie. The directory may be that of a crawl that was
killed: then index and archive do not end at the same page, and what the index does not
have is looked for in the rest of the archive files. What is half written is left out.

What a running crawl adds meanwhile does not count: lines and archive files are read up
to where they ended when the collection was opened. Memory is bounded, whatever the size.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from dhtcrawl.errors import UsageError
from dhtcrawl.export.lines import Fields, WholeLines, is_page, is_skip, object_of, summary_of
from dhtcrawl.export.places import Places, ResponsePlace, mark_of, places
from dhtcrawl.fetch.charset import looks_like_html
from dhtcrawl.fetch.sitemap import may_be_sitemap
from dhtcrawl.storage.archive.warcread import WarcRecord, read_beginning
from dhtcrawl.storage.archive.warcscan import GzipMember, scan
from dhtcrawl.storage.outputs import cdxj
from dhtcrawl.storage.outputs.outputs import (
    ARCHIVE_DIR,
    INDEX_FILE,
    INDEXES_DIR,
    PAGES_DIR,
    PAGES_FILE,
    REPORTS_DIR,
    SKIPPED_FILE,
)
from dhtcrawl.storage.store.engine import storage_error

_READ_BYTES = 1024 * 1024  # at once, of a record
_ARCHIVES = "*.warc.gz"
_STAMP_DIGITS = 14  # of an index line: to the second


class ArchivedPage(NamedTuple):
    """A line of pages.jsonl, and where its response lies; None if it is not in the archive."""

    fields: Fields
    member: ResponsePlace | None

    @property
    def url(self) -> str:
        return str(self.fields["url"])

    @property
    def status(self) -> int:
        """The HTTP status; 0 where the line has none."""
        status = self.fields.get("status")
        return status if isinstance(status, int) and 0 <= status < 1000 else 0

    @property
    def is_html(self) -> bool:
        """Whether the page is one that the crawl looked for links in: XML has a charset only where it was one."""
        media_type = self.fields.get("content_type")
        named = isinstance(media_type, str) and looks_like_html(media_type, b"")
        return 200 <= self.status < 300 and (named or isinstance(self.fields.get("charset"), str))

    @property
    def may_be_sitemap(self) -> bool:
        """Whether its body tells if the crawl took links from it as from a sitemap."""
        media_type = self.fields.get("content_type")
        return 200 <= self.status < 300 and isinstance(media_type, str) and may_be_sitemap(media_type, self.url)


class Collection:
    """What `collection` opened."""

    def __init__(self, root: Path, places: Places, stack: ExitStack) -> None:
        self.root = root
        self.unreadable_lines = self.without_body = 0  # counted by `pages`
        self._places = places
        self._pages = WholeLines(root / PAGES_DIR / PAGES_FILE, stack)
        self._index = WholeLines(root / INDEXES_DIR / INDEX_FILE, stack)
        # After the lines: a body is in the archive before its page has one.
        self.archives = {path.name: path.stat().st_size for path in sorted((root / ARCHIVE_DIR).glob(_ARCHIVES))}
        self._outcomes_known = False
        ends = self._read_index()
        if self._read_rest(ends):
            self._place_rest(ends)

    # -- what a format asks for --

    def pages(self) -> Iterator[ArchivedPage]:
        """The pages in the order of pages.jsonl, which is that of their fetching once the crawl's run has ended."""
        self.unreadable_lines = self.without_body = 0
        for page in self._all_pages():
            if page is None:
                self.unreadable_lines += 1
            else:
                self.without_body += page.member is None
                yield page

    def index_lines(self) -> Iterator[bytes]:
        """The lines of a sorted CDXJ index of what is in the archive, with their newlines."""
        known = (line + b"\n" for line in self._index if self._entry(line) is not None)
        return heapq.merge(known, self._places.lines())

    def read(self, member: ResponsePlace, payload_bytes_max: int) -> WarcRecord:
        """Read a response, with at most so many bytes of its payload.

        Raises:
            StorageError: it cannot be read, or is damaged.
        """
        return read_response(self.root, member, payload_bytes_max)

    def outcome(self, url: str) -> int | str | None:
        """What came of a URL: the HTTP status of its page, why it was skipped, or None where neither is known."""
        if not self._outcomes_known:
            self._outcomes_known = True
            self._places.put_outcomes((page.url, page.status) for page in self._all_pages() if page is not None)
            self._places.put_outcomes(self._skipped())
        return self._places.outcome(url)

    def summary(self) -> Fields:
        """The fields of summary.json; empty where there is none that can be read."""
        return summary_of(self.root)

    # -- opening --

    def _all_pages(self) -> Iterator[ArchivedPage | None]:
        """The pages, and None for each line that is none."""
        for line in self._pages:
            fields = object_of(line)
            if fields is None or not is_page(fields):
                yield None
            else:
                yield ArchivedPage(fields, self._places.get(_mark_of_page(fields)))

    def _skipped(self) -> Iterator[tuple[str, str]]:
        with ExitStack() as stack:
            for line in WholeLines(self.root / REPORTS_DIR / SKIPPED_FILE, stack):
                fields = object_of(line)
                if fields is not None and is_skip(fields):
                    yield fields["url"], fields["reason"]

    def _read_index(self) -> dict[str, int]:
        """Put the places that the index has into the tables; return where it ends in each archive file."""
        ends = dict.fromkeys(self.archives, 0)
        for line in self._index:
            entry = self._entry(line)
            if entry is not None:
                mark, member = entry
                self._places.put(mark, member)
                ends[member.file] = max(ends[member.file], member.offset + member.length)
        return ends

    def _entry(self, line: bytes) -> tuple[int, ResponsePlace] | None:
        """The mark and the place of an index line; None if it is none, or its record is not here."""
        parts = line.split(b" ", 2)
        fields = object_of(parts[2]) if len(parts) == 3 else None
        if fields is None:
            return None
        try:
            member = ResponsePlace(fields["filename"], int(fields["offset"]), int(fields["length"]))
            mark = mark_of(fields["url"], parts[1].decode("ascii"), fields["digest"])
        except (KeyError, TypeError, ValueError):
            return None
        size = self.archives.get(member.file) if isinstance(member.file, str) else None
        there = size is not None and member.offset >= 0 and 0 < member.length <= size - member.offset
        return (mark, member) if there else None

    def _read_rest(self, ends: dict[str, int]) -> int:
        """Look for responses behind the last one that the index has; return how many there are.

        An archive file that ends in the middle of a record is taken to end before it.
        """
        found = 0
        for name, end in ends.items():
            path = self.root / ARCHIVE_DIR / name
            try:
                with path.open("rb") as stream:
                    stream.seek(end)
                    for member in scan(stream):
                        if _ends_torn(member, self.archives[name]):
                            self.archives[name] = member.offset
                            break
                        if member.type == "response" and not member.problems:
                            found += 1
                            stamp = "".join(char for char in member.headers["warc-date"] if char.isdigit())
                            mark = mark_of(member.url, stamp[:_STAMP_DIGITS], member.payload_digest)
                            self._places.put(mark, ResponsePlace(name, member.offset, member.length))
            except OSError as error:
                raise storage_error(error, f"cannot read {path}") from error
        return found

    def _place_rest(self, ends: dict[str, int]) -> None:
        """Make index lines for the pages behind the ends of the index."""
        for page in self._all_pages():
            if page is not None and page.member is not None and page.member.offset >= ends[page.member.file]:
                line = _index_line(page, page.member)
                if line is not None:
                    self._places.put_line(line)


def read_response(root: Path, member: ResponsePlace, payload_bytes_max: int) -> WarcRecord:
    """Read a response from the archive below `root`, with at most so many bytes of its payload.

    Raises:
        StorageError: it cannot be read, or is damaged.
    """
    path = root / ARCHIVE_DIR / member.file
    begins = range(0, member.length, _READ_BYTES)
    try:
        with path.open("rb") as file:
            file.seek(member.offset)
            pieces = (file.read(min(_READ_BYTES, member.length - at)) for at in begins)
            return read_beginning(pieces, payload_bytes_max, where=f"{path} at {member.offset}")
    except OSError as error:
        raise storage_error(error, f"cannot read {path}") from error


@contextmanager
def collection(root: Path) -> Iterator[Collection]:
    """Open the outputs below `root`.

    Raises:
        UsageError: there are none.
        StorageError: they cannot be read.
    """
    require_collection(root)
    with ExitStack() as stack:
        try:
            opened = Collection(root, stack.enter_context(places()), stack)
        except OSError as error:
            raise storage_error(error, f"cannot read {root}") from error
        yield opened


def require_collection(root: Path) -> None:
    """Refuse a directory without pages.

    Raises:
        UsageError: it has none; the message says what it has.
    """
    if (root / PAGES_DIR / PAGES_FILE).is_file():
        return
    if (root / ARCHIVE_DIR).is_dir():
        raise UsageError(
            f"{root} has no {PAGES_DIR}/{PAGES_FILE}: the crawl had no page yet, or its gathering broke off; "
            "repeat the command that wrote it"
        )
    raise UsageError(f"{root} holds no crawl: name the directory that was given to --out")


def has_ended(root: Path) -> bool:
    """Whether the last run of the crawl below `root` has ended: pages come while one is at work, a summary last."""
    summary = summary_of(root)
    pages = summary.get("pages")
    if not isinstance(pages, int):
        return bool(summary)
    with ExitStack() as stack:
        return sum(1 for _ in WholeLines(root / PAGES_DIR / PAGES_FILE, stack)) <= pages


def _mark_of_page(fields: Fields) -> int:
    """The mark of the index line for a page."""
    stamp = "".join(char for char in fields["fetched_at"] if char.isdigit())
    return mark_of(fields["url"], stamp[:_STAMP_DIGITS], str(fields.get("payload_digest")))


def _index_line(page: ArchivedPage, member: ResponsePlace) -> bytes | None:
    """The index line of a page, or None if its fields are not those of one."""
    try:
        line = cdxj.line(
            url=page.url,
            date=datetime.fromisoformat(page.fields["fetched_at"]),
            content_type=page.fields["content_type"] or None,
            status=page.status,
            digest=page.fields["payload_digest"],
            length=member.length,
            offset=member.offset,
            filename=member.file,
        )
    except (KeyError, TypeError, ValueError):
        return None
    return line.encode("utf-8", "replace")


def _ends_torn(member: GzipMember, size: int) -> bool:
    """Whether a member is the beginning of one that was being written, at the end of a file of `size` bytes."""
    end = member.offset + member.length
    return end > size or (end == size and any(problem.startswith("unreadable") for problem in member.problems))
