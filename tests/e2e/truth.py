"""What a crawl of a directory of files must find, worked out without a crawler.

A breadth-first walk over the files themselves, with the standard library's
HTML parser and `urljoin`, and a model of nginx: directory index, redirect of a
directory without its slash, doubled slashes merged, 404 for the rest. Nothing
here is shared with what it checks. What was worked out of a directory is kept
in `build/truth`, for the other processes of a run, until one of its files or
this one changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import pickle
import re
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit

_ORIGIN = "http://site"
_HTML = frozenset({".html", ".htm", ".shtml"})  # as nginx's mime.types has it
KEPT_IN = Path(__file__).parents[2] / "build" / "truth"
_SOURCES = {"a": "href", "area": "href", "frame": "src", "iframe": "src"}


@dataclass(slots=True)
class Truth:
    """The site as paths (with query) of requests that bring a page, a redirect, another file or a 404."""

    pages: dict[str, Path] = field(default_factory=dict)
    redirects: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    links: dict[str, int] = field(default_factory=dict)  # http(s) links on each page, repeats counted

    @property
    def page_count(self) -> int:
        """The pages, the start page counted once where links call it `/` as well as `/index.html`."""
        return len({"/index.html" if path == "/" else path for path in self.pages})

    @property
    def requests(self) -> set[str]:
        """All that a crawl must ask the server for, but for robots.txt."""
        return self.pages.keys() | self.redirects | self.files | self.broken


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.base: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(reversed(attrs))  # of a repeated attribute the first counts
        if tag == "base" and self.base is None:
            self.base = values.get("href")
        link = values.get(_SOURCES.get(tag, ""))
        if link is not None:
            self.found.append(link)


def _links(file: Path, url: str, encoding: str) -> list[str]:
    parser = _Links()
    parser.feed(file.read_bytes().decode(encoding, "replace"))
    parser.close()
    base = urljoin(url, parser.base) if parser.base else url
    # Browsers read a backslash as a slash: lang_expr.html of sqlite3-doc has `<a href="\">`.
    return [urljoin(base, link.strip().replace("\\", "/")) for link in parser.found]


@cache
def truth_of(root: Path, start: str = "/index.html", encoding: str = "utf-8") -> Truth:
    """Everything reachable from `start` in the files under `root`, worked out by one process for all."""
    KEPT_IN.mkdir(parents=True, exist_ok=True)
    file = KEPT_IN / f"{_fingerprint(root, start, encoding)}.pickle"
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            written = file.with_suffix(".new")
            written.write_bytes(pickle.dumps(walked(root, start, encoding)))
            written.rename(file)
        truth = pickle.loads(file.read_bytes())
    assert isinstance(truth, Truth)
    return truth


def _fingerprint(root: Path, start: str, encoding: str) -> str:
    """Another one once anything has changed that a walk depends on."""
    files = sorted((str(path), path.stat()) for path in root.rglob("*") if path.is_file())
    seen = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in files]
    return hashlib.sha256(repr((Path(__file__).read_text(), str(root), start, encoding, seen)).encode()).hexdigest()


def walked(root: Path, start: str = "/index.html", encoding: str = "utf-8") -> Truth:
    """Everything reachable from `start` in the files under `root`."""
    truth = Truth()
    queue = deque([start])
    seen = {start}
    while queue:
        path = queue.popleft()
        for link in _visit(truth, root, path, encoding):
            if link not in seen:
                seen.add(link)
                queue.append(link)
    return truth


def _visit(truth: Truth, root: Path, path: str, encoding: str) -> list[str]:
    """File `path` where it belongs; the paths on this site it leads to."""
    name = re.sub("/+", "/", unquote(urlsplit(path).path))
    file = root / name.lstrip("/")
    if file.is_dir() and not name.endswith("/"):
        truth.redirects.add(path)
        directory, mark, query = path.partition("?")
        return [f"{directory}/{mark}{query}"]
    if name.endswith("/"):
        file /= "index.html"
    if not file.is_file():
        truth.broken.add(path)
        return []
    if file.suffix not in _HTML:
        truth.files.add(path)
        return []
    truth.pages[path] = file
    links = _links(file, _ORIGIN + path, encoding)
    truth.links[path] = sum(link.startswith(("http://", "https://")) for link in links)
    return [_request_path(link) for link in links if urlsplit(link)[:2] == ("http", "site")]


def _request_path(url: str) -> str:
    _, _, path, query, _ = urlsplit(url)
    return quote(path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{query}" if query else "")
