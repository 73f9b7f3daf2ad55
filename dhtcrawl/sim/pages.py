"""A web that exists only as a seed.

Every page is derived from (seed, host, number) with a generator of its own,
so a page is the same whatever was asked before, and a web of a million pages
costs nothing until it is read. `truth` says what a correct crawler finds.
Sizes of hosts follow Zipf's law, as the sizes of real sites do (Adamic &
Huberman 2002). `dhtcrawl.sim.web` serves it.

What can be met: links in several spellings, within the host (90 %) and
across; broken links; redirects and a redirect loop; pages that answer 503 at
first; slow pages; pages in Latin-1 and Cyrillic; files that are no pages;
robots.txt with a disallowed part on every other host; one host that is down;
where they are asked for, hosts that are slow, connections that break off at
the first attempt, a calendar whose every page leads to the next day, and
searches in the charset of the page that leads to them; or a web that refuses
everything.
"""

from __future__ import annotations

import hashlib
import html
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import NamedTuple
from urllib.parse import quote

from dhtcrawl.url import host_of, path_of

DOWN_HOST = "down.test"
_CHILDREN = 4  # every page but the first is linked from page (n - 1) // 4


class Response(NamedTuple):
    """What a server answers."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


# What was derived is derived again when it is asked for later: a page takes longer to write than to keep.
_PAGES_KEPT_MAX = 65_536
_BODIES_KEPT_MAX = 4_096
_WORDS = 1_000

_WORD_IN = {"iso-8859-1": "Größe café", "windows-1251": "Привет мир", "utf-8": "Größe · 大小"}
_SEARCH = "/find?w="
_SEARCHED = frozenset(quote(word.encode(charset)) for charset, word in _WORD_IN.items())
_SEARCHES = 7  # different ones of a host and a charset

_FOUND = Response(200, [], b"")


class _Page(NamedTuple):
    kind: str  # "page", "private" (under /private/) or "file"
    charset: str
    charset_in: str  # "header" or "meta"
    flaky: bool
    slow: bool


@dataclass(frozen=True, slots=True)
class WebShape:
    """A web of `pages` pages on `hosts` hosts; times in seconds."""

    hosts: int = 5
    pages: int = 200
    links: int = 8  # of a page
    latency_s: float = 0.05  # until an answer begins, on average
    slow_s: float = 5.0  # how much later a slow answer begins
    broken: float = 0.1  # share of links
    flaky: float = 0.03  # share of pages
    page_bytes: int = 1_000
    slow_hosts: int = 0  # the last so many
    breaks: float = 0.0  # share of pages
    trap: bool = False  # the first host has a calendar without end, to be crawled with a depth limit
    searches: bool = False  # each page leads to a search for words in its charset
    refuses: bool = False  # every page answers 403


class Pages:
    """The pages of all hosts, and one more host that is down."""

    def __init__(self, seed: int, shape: WebShape | None = None) -> None:
        shape = shape or WebShape()
        self.seed = seed
        self.hosts = [f"site-{number}.test" for number in range(shape.hosts)]
        self._shape = shape
        self._slow_hosts = self.hosts[shape.hosts - shape.slow_hosts :]
        self._sizes = dict(zip(self.hosts, _zipf_sizes(shape.hosts, shape.pages), strict=True))
        self._ends = list(accumulate(self._sizes.values()))
        self._page = lru_cache(_PAGES_KEPT_MAX)(self._derive_page)
        self._html = lru_cache(_BODIES_KEPT_MAX)(self._write_html)

    def seeds(self) -> list[str]:
        """The first page of every host, that of the down host too."""
        return [f"http://{host}/" for host in (*self.hosts, DOWN_HOST)]

    def respond(self, url: str, attempt: int = 1) -> Response:
        """The answer to the `attempt`-th request for a canonical URL; pure."""
        host, path = host_of(url), path_of(url)
        if host not in self._sizes:
            return _not_found()
        if path == "/robots.txt":
            return self._robots(host)
        if self._shape.refuses:
            return Response(403, [("Content-Type", "text/html")], b"<!doctype html><title>Forbidden</title>")
        if path.startswith("/r/"):
            return self._redirect(host, path)
        if path in ("/loop/a", "/loop/b"):
            return _moved("/loop/b" if path == "/loop/a" else "/loop/a")
        if self._day_of(host, path) is not None:
            day = "".join(f'<a href="{link}">a day</a>' for link in self._outlinks(url, _FOUND))
            return Response(200, [("Content-Type", "text/html")], f"<!doctype html>{day}".encode())
        if self._is_search(path):
            return Response(200, [("Content-Type", "text/html")], b"<!doctype html><a href=/>found</a>")
        number = self._number_of(host, path)
        if number is None:
            return _not_found()
        return self._answer(host, number, attempt)

    def _answer(self, host: str, number: int, attempt: int) -> Response:
        page = self._page(host, number)
        if page.flaky and attempt == 1:
            return Response(503, [("Content-Type", "text/plain"), ("Retry-After", "2")], b"try again later")
        if page.kind == "file":
            data = self._random("file", host, number).randbytes(self._shape.page_bytes)
            return Response(200, [("Content-Type", "application/octet-stream")], data)
        content_type = "text/html" + (f"; charset={page.charset}" if page.charset_in == "header" else "")
        return Response(200, [("Content-Type", content_type)], self._html(host, number, page))

    def latency(self, url: str) -> float:
        """Seconds until the answer to a canonical URL begins; pure."""
        host = host_of(url)
        number = self._number_of(host, path_of(url)) if host in self._sizes else None
        base = self._shape.latency_s * (0.5 + self._random("latency", url).random())
        base += self._shape.slow_s if host in self._slow_hosts else 0.0
        return base + (self._shape.slow_s if number is not None and self._page(host, number).slow else 0.0)

    def breaks_off(self, url: str, attempt: int) -> bool:
        """Whether the connection ends before the answer to the `attempt`-th request for a canonical URL; pure."""
        return attempt == 1 and self._shape.breaks > 0 and self._random("breaks", url).random() < self._shape.breaks

    def disallows(self, url: str) -> bool:
        """Whether the host's robots.txt keeps every crawler from a canonical URL."""
        return self._has_rules(host_of(url)) and path_of(url).startswith("/private/")

    def truth(
        self,
        seeds: list[str] | None = None,
        *,
        obey_robots: bool = True,
        depth: int = -1,
        without: Callable[[str], bool] = lambda _: False,
    ) -> dict[str, int]:
        """The URLs that a crawl from `seeds` within their hosts finds with status 200, and how far from a seed.

        A redirect is no further than what led to it; `depth` -1 means any. What it is to do `without` leads nowhere.
        """
        todo = deque((url, 0) for url in (self.seeds() if seeds is None else seeds))
        scope = {host_of(url) for url, _ in todo}
        seen: set[str] = set()
        found: dict[str, int] = {}
        while todo:
            url, distance = todo.popleft()
            if url in seen or 0 <= depth < distance or (obey_robots and self.disallows(url)) or without(url):
                continue
            seen.add(url)
            # Attempts are not the crawler's fault: a flaky page counts as found.
            response = self.respond(url, attempt=2)
            if response.status == 200:
                found[url] = distance
            links = [link for link in self._outlinks(url, response) if host_of(link) in scope]
            if 300 <= response.status < 400:
                todo.extendleft((link, distance) for link in links)
            else:
                todo.extend((link, distance + 1) for link in links)
        return found

    def links_of(self, host: str, number: int) -> list[str]:
        """The targets of a page, in order, as canonical URLs."""
        random = self._random("links", host, number)
        size = self._sizes[host]
        first = number * _CHILDREN + 1
        links = [self._url(host, child) for child in range(first, min(first + _CHILDREN, size))]
        if number == 0:
            links += [f"http://{host}/loop/a", f"http://{DOWN_HOST}/"]
            if self._shape.trap and host == self.hosts[0]:
                links.append(f"http://{host}/day/1")
        while len(links) < self._shape.links:
            links.append(self._random_link(random, host))
        if self._shape.searches:
            octets = _word(self._page(host, number)).encode(self._page(host, number).charset)
            links.append(f"http://{host}{_SEARCH}{quote(octets)}&n={number % _SEARCHES}")
        return links

    def _random_link(self, random: Random, host: str) -> str:
        if random.random() < 0.1:
            # By page and not by host: large hosts get most links, as in the real web.
            host = self.hosts[bisect_right(self._ends, random.randrange(self._ends[-1]))]
        number = random.randrange(self._sizes[host])
        luck = random.random()
        if luck < self._shape.broken / 2:
            return f"http://{host}/missing/{number}.html"
        if luck < self._shape.broken:
            return f"http://{host}/r/{number}"
        return self._url(host, number)

    def _outlinks(self, url: str, response: Response) -> list[str]:
        host = host_of(url)
        for name, value in response.headers:
            if name == "Location":
                return [f"http://{host}{value}" if value.startswith("/") else value]
        day = self._day_of(host, path_of(url))
        if day is not None:
            return [f"http://{host}/day/{day + 1}", f"http://{host}/"]
        if self._is_search(path_of(url)) and host in self._sizes:
            return [f"http://{host}/"]
        number = self._number_of(host, path_of(url)) if host in self._sizes else None
        if number is None or response.status != 200 or self._page(host, number).kind == "file":
            return []
        return self.links_of(host, number)

    def _robots(self, host: str) -> Response:
        if not self._has_rules(host):
            return _not_found()
        rules = "User-agent: other-bot\nDisallow: /\n\nUser-agent: *\nDisallow: /private/\n"
        return Response(200, [("Content-Type", "text/plain")], rules.encode())

    def _has_rules(self, host: str) -> bool:
        return host in self._sizes and self.hosts.index(host) % 2 == 0

    def _redirect(self, host: str, path: str) -> Response:
        number = _to_int(path.removeprefix("/r/"))
        if number is None or number >= self._sizes[host]:
            return _not_found()
        target = self._url(host, number)
        return _moved(target if number % 2 else path_of(target))

    def _derive_page(self, host: str, number: int) -> _Page:
        random = self._random("page", host, number)
        kind, charset_luck, flaky, slow = random.random(), random.random(), random.random(), random.random()
        if number == 0:
            return _Page("page", "utf-8", "header", flaky=False, slow=False)
        charset, where = "utf-8", "header"
        if charset_luck < 0.1:
            charset = "iso-8859-1"
        elif charset_luck < 0.2:
            charset, where = "windows-1251", "meta"
        # Only a leaf may be a file: nothing leads on from one.
        leaf = number * _CHILDREN + 1 >= self._sizes[host]
        return _Page(
            "file" if kind < 0.04 and leaf else "private" if kind < 0.12 else "page",
            charset,
            where,
            flaky=flaky < self._shape.flaky,
            slow=slow < 0.02,
        )

    def _write_html(self, host: str, number: int, page: _Page) -> bytes:
        random = self._random("text", host, number)
        word = _word(page)
        meta = f'<meta charset="{page.charset}">' if page.charset_in == "meta" else ""
        links = "".join(
            f'<li><a href="{html.escape(self._spelling(random, host, link, word))}">link {position}</a></li>\n'
            for position, link in enumerate(self.links_of(host, number))
        )
        filler = " ".join(f"w{_below(random, _WORDS)}" for _ in range(self._shape.page_bytes // 5))
        text = (
            f"<!doctype html>\n<html><head>{meta}<title>{word} {host} {number}</title></head>\n"
            f"<body><p>{filler}</p>\n<ul>\n{links}</ul></body></html>\n"
        )
        return text.encode(page.charset)

    def _spelling(self, random: Random, host: str, link: str, word: str) -> str:
        if self._is_search(path_of(link)):
            # As an author writes it, in the page's charset like all of the page.
            return f"{_SEARCH}{word}{link[link.rindex('&') :]}"
        return _spelling(random, host, link)

    def _is_search(self, path: str) -> bool:
        """Whether a search has the octets of words in a charset that pages have; others find nothing."""
        if not self._shape.searches or not path.startswith(_SEARCH):
            return False
        words, _, number = path.removeprefix(_SEARCH).partition("&n=")
        at = _to_int(number)
        return at is not None and at < _SEARCHES and words in _SEARCHED

    def _url(self, host: str, number: int) -> str:
        return f"http://{host}{self._path(host, number)}"

    def _path(self, host: str, number: int) -> str:
        if number == 0:
            return "/"
        kind = self._page(host, number).kind
        return {"page": f"/p/{number}.html", "private": f"/private/{number}.html", "file": f"/f/{number}.bin"}[kind]

    def _day_of(self, host: str, path: str) -> int | None:
        if not self._shape.trap or host != self.hosts[0] or not path.startswith("/day/"):
            return None
        return _to_int(path.removeprefix("/day/"))

    def _number_of(self, host: str, path: str) -> int | None:
        if path == "/":
            return 0
        number = _to_int(path.rpartition("/")[2].partition(".")[0])
        if number is None or not 0 < number < self._sizes[host] or self._path(host, number) != path:
            return None
        return number

    def _random(self, *what: object) -> Random:
        # Not hash(): that of a string is another in every process.
        digest = hashlib.sha256("\x00".join(map(str, (self.seed, *what))).encode()).digest()
        return Random(int.from_bytes(digest[:8], "big"))


def _word(page: _Page) -> str:
    return _WORD_IN.get(page.charset, _WORD_IN["utf-8"])


def _zipf_sizes(hosts: int, pages: int) -> list[int]:
    """`pages` shared out so that the n-th host has about 1/n of the first's; at least one each."""
    weights = [1 / rank for rank in range(1, hosts + 1)]
    scale = max(pages - hosts, 0) / sum(weights)
    sizes = [1 + int(weight * scale) for weight in weights]
    sizes[0] += max(pages - sum(sizes), 0)
    return sizes


def _spelling(random: Random, host: str, link: str) -> str:
    """One of the ways in which authors write a link on a page of `host`."""
    spellings = [link, link + "#part", link.removeprefix("http:")]
    if host_of(link) == host:
        path = path_of(link)
        spellings += [path, path, path + "#top", "/./" + path[1:], "/x/.." + path]
    return random.choice(spellings)


def _below(random: Random, end: int) -> int:
    """What `random.randrange(end)` draws, in a third of the time: a body takes hundreds."""
    bits = end.bit_length()
    drawn = random.getrandbits(bits)
    while drawn >= end:
        drawn = random.getrandbits(bits)
    return drawn


def _not_found() -> Response:
    return Response(404, [("Content-Type", "text/html")], b"<!doctype html><title>Not found</title>")


def _moved(location: str) -> Response:
    return Response(301, [("Content-Type", "text/html"), ("Location", location)], b"moved")


def _to_int(text: str) -> int | None:
    # No sign, no leading zero: each number has one spelling.
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 12 and str(int(text)) == text else None
