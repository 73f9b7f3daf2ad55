"""The demo site's pages: a small site with the troubles of real ones.

`build` makes the site, the same for the same seed; `expected` says what a right
crawl of it holds. `demo_site` serves it.

Each page is declared with the links that a right crawler follows from it, so
`expected` is computed from the declarations and not from anybody's parser.
"""

from __future__ import annotations

import gzip
import html
import random
import struct
import zlib
from collections import deque
from dataclasses import dataclass, field, replace
from urllib.parse import quote, unquote

from demo_text import STYLE, paragraphs, titles

ARTICLES = 90
SECTIONS = ("Harbour", "Garden", "Kitchen", "Workshop", "Weather", "Library")
DISALLOWED = ("/private/", "/calendar/")
ROBOTS = "User-agent: *\nDisallow: /private/\nDisallow: /calendar/\nCrawl-delay: 0\n"
EXTERNAL = "http://example.org/elsewhere"
BIG_PAGE_BYTES = 2_000_000
ISLAND = "/encodings/" + quote("島.html")  # a path is UTF-8 whatever the page's charset (WHATWG URL)
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Page:
    """What a path answers, and where a right crawler goes from there.

    `links` are paths of this site, resolved; a link that must not be followed
    (nofollow) is in the body only.
    """

    body: bytes
    title: str = ""
    status: int = 200
    content_type: str = HTML
    headers: tuple[tuple[str, str], ...] = ()
    links: tuple[str, ...] = ()
    external: tuple[str, ...] = ()
    busy_once: bool = False  # the first request gets a 503 with Retry-After
    on_front: bool = True  # linked from the first page


@dataclass(frozen=True, slots=True)
class Site:
    """All pages by path; the calendar's are made when asked for, without an end."""

    seed: int
    pages: dict[str, Page] = field(default_factory=dict)

    def page(self, path: str) -> Page:
        """What the server answers; a 404 page where there is nothing."""
        path = quote(unquote(path, errors="replace"))
        page = self.pages.get(path)
        if page is None and path.startswith("/calendar/"):
            page = _calendar(path)
        return page or _page("Nothing here", "<p>There is no such page.</p>", status=404)


def build(seed: int = 1) -> Site:
    """The site: about 120 pages, byte for byte the same for the same seed."""
    rng = random.Random(seed)
    site = Site(seed)
    _add_articles(site.pages, rng)
    specials = _redirects() | _encodings() | _link_kinds() | _bodies(rng)
    site.pages.update(specials)
    _add_front_page(site.pages, [path for path, page in specials.items() if page.on_front])
    return site


def expected(site: Site) -> dict[str, set[str]]:
    """What a right crawl from `/` meets: paths by outcome.

    `html` are the pages of status 200 and type HTML; `other` are 200 and
    something else; `redirects` are 3xx; `errors` are 4xx; `robots` are links
    that robots.txt forbids; `external` are whole URLs out of scope. Nothing
    else is ever requested, except `/robots.txt`.
    """
    found: dict[str, set[str]] = {
        name: set() for name in ("html", "other", "redirects", "errors", "robots", "external")
    }
    seen = {"/"}
    queue = deque(seen)
    while queue:
        path = queue.popleft()
        if path.startswith(DISALLOWED):
            found["robots"].add(path)
            continue
        page = site.page(path)
        found[_outcome(page)].add(path)
        found["external"].update(page.external)
        new = [link for link in dict.fromkeys(page.links) if link not in seen]
        seen.update(new)
        queue.extend(new)
    return found


def _outcome(page: Page) -> str:
    if page.status >= 300:
        return "errors" if page.status >= 400 else "redirects"
    return "html" if page.content_type.startswith("text/html") else "other"


def _page(title: str, content: str, *links: str, head: str = "", status: int = 200, hidden: bool = False) -> Page:
    """An HTML page in the site's dress; `links` are those of its content."""
    sections = " ".join(f'<a href="{_section(name)}">{name}</a>' for name in SECTIONS)
    text = (
        f'<!doctype html>\n<html lang="en"><head>{head}<title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
        f'<body><header><a href="/">The Island Almanac</a><nav>{sections}</nav></header>\n'
        f"<main><h1>{html.escape(title)}</h1>\n{content}\n</main>\n"
        '<footer>Made up, for trying out a crawler. <a href="mailto:nobody@example.org">Write to nobody</a>.</footer>'
        "</body></html>\n"
    )
    links = ("/", *map(_section, SECTIONS), *links)
    return Page(text.encode(), title, status, links=links, on_front=not hidden)


def _section(name: str) -> str:
    return f"/{name.lower()}/"


def _article(number: int) -> str:
    return f"/articles/{number:03}.html"


def _list(items: list[tuple[str, str]]) -> str:
    return "<ul>" + "".join(f'<li><a href="{href}">{html.escape(text)}</a></li>\n' for href, text in items) + "</ul>"


def _add_articles(pages: dict[str, Page], rng: random.Random) -> None:
    names = titles(rng, ARTICLES)
    for number, title in enumerate(names):
        related = rng.sample(range(ARTICLES), 4)
        links = [_article(other) for other in related]
        # The same pages in other spellings: a crawler fetches each once.
        spelled = [links[0] + "#notes", f"../articles/{related[1]:03}.html", links[2].replace("art", "%61rt"), links[3]]
        items = [(href, names[other]) for href, other in zip(spelled, related, strict=True)]
        if number % 11 == 3:
            links.append(f"/articles/lost-{number}.html")
            items.append((links[-1], "A page that got lost"))
        if number % 9 == 4:
            old = f"/articles/{number // 2}"
            pages[old] = _redirect(_article(number // 2), 301)
            links.append(old)
            items.append((old, "An old address"))
        text = "".join(f"<p>{paragraph}</p>\n" for paragraph in paragraphs(rng, title))
        pages[_article(number)] = _page(title, f"{text}<h2>See also</h2>{_list(items)}", *links)
    for start, name in enumerate(SECTIONS):
        mine = range(start, ARTICLES, len(SECTIONS))
        content = _list([(f"../articles/{number:03}.html", names[number]) for number in mine])
        pages[_section(name)] = _page(name, content, *map(_article, mine))


def _add_front_page(pages: dict[str, Page], corners: list[str]) -> None:
    corners = [*corners, "/private/diary.html", "/calendar/2026/1"]
    content = (
        '<p><img src="/flag.png" alt="" width="32" height="32"> Notes from an island that is on no map.</p>'
        f"<h2>Odd corners</h2>{_list([(path, _name(pages, path)) for path in corners])}"
        f'<p><a href="{EXTERNAL}">Elsewhere</a></p>'
    )
    pages["/"] = replace(_page("The Island Almanac", content, *corners), external=(EXTERNAL,))
    pages["/robots.txt"] = Page(ROBOTS.encode(), content_type="text/plain")
    pages["/private/diary.html"] = _page("Diary", "<p>A polite crawler never reads this.</p>")
    pages["/orphan.html"] = _page("Orphan", "<p>Nobody links here.</p>")


def _name(pages: dict[str, Page], path: str) -> str:
    return (path in pages and pages[path].title) or path


def _calendar(path: str) -> Page | None:
    """A month, with a link to the next: the trap that robots.txt fences off."""
    try:
        year, month = (int(part) for part in path.removeprefix("/calendar/").split("/"))
    except ValueError:
        return None
    if not (1 <= month <= 12 and 0 <= year <= 9_999_999):
        return None
    following = f"/calendar/{year + month // 12}/{month % 12 + 1}"
    return _page(f"{year}-{month:02}", f'<p>Nothing planned. <a href="{following}">Next month</a></p>', following)


def _redirect(location: str, status: int, *, to: str = "", hidden: bool = False) -> Page:
    headers = (("Location", location),)
    return Page(b"moved\n", "", status, "text/plain", headers, links=(to or location,), on_front=not hidden)


def _redirects() -> dict[str, Page]:
    return {
        "/old/1": _redirect("/old/2", 301),
        "/old/2": _redirect("3", 302, to="/old/3", hidden=True),
        "/old/3": _redirect("/new/home.html", 308, hidden=True),
        "/new/home.html": _page("A new home", "<p>Only a chain of redirects leads here.</p>", hidden=True),
        "/loop/a": _redirect("/loop/b", 302),
        "/loop/b": _redirect("/loop/a", 302, hidden=True),
        "/loop/self": _redirect("/loop/self", 301),
        "/away": replace(_redirect(EXTERNAL, 302), links=(), external=(EXTERNAL,)),
    }


def _encodings() -> dict[str, Page]:
    """Pages whose charset stands in the header, in a meta element, or in a byte-order mark."""
    pages = {
        "/encodings/latin-1.html": ("Le café de la côte", "iso-8859-1", "text/html; charset=ISO-8859-1", ""),
        "/encodings/shift-jis.html": ("島の暦", "shift_jis", "text/html", '<meta charset="Shift_JIS">'),
        "/encodings/utf-16.html": ("Ünïcödé", "utf-16", "text/html", ""),
    }
    content = '<p>To <a href="/encodings/島.html">the island</a>.</p>'
    made = {ISLAND: _page("島", "<p>The path is UTF-8, whatever the page that links here is in.</p>", hidden=True)}
    for path, (title, charset, content_type, head) in pages.items():
        # ISO-8859-1 has no 島.
        page = _page(title, *(("<p>§</p>",) if charset == "iso-8859-1" else (content, ISLAND)), head=head)
        made[path] = replace(page, body=page.body.decode().encode(charset), content_type=content_type)
    return made


def _link_kinds() -> dict[str, Page]:
    """Every element that leads somewhere, and those that must not."""
    leaf = "<p>The end of the road.</p>"
    kinds = (
        '<iframe src="frame.html" title="a frame"></iframe><map name="m"><area href="area.html" alt="an area"></map>'
        '<p><a href="javascript:void(0)">script</a> <a href="tel:+0">phone</a> <a>nowhere</a> <a href="http://[">?</a></p>'
        '<!-- <a href="/links/never.html">in a comment</a> -->'
        "<script>const link = '<a href=\"/links/never.html\">in a script</a>';</script>"
    )
    base = '<base href="/links/deep/">'
    refresh = '<meta http-equiv="refresh" content="30; url=/links/after-refresh.html">'
    shy = '<meta name="robots" content="nofollow">'
    never = '<p><a href="/links/never.html"{}>Not this way</a></p>'
    return {
        "/links/kinds.html": _page("Kinds of links", kinds, "/links/frame.html", "/links/area.html"),
        "/links/base.html": _page("A base", '<p><a href="page.html">Deep</a></p>', "/links/deep/page.html", head=base),
        "/links/refresh.html": _page("In a moment", leaf, "/links/after-refresh.html", head=refresh),
        "/links/rel.html": _page("Rel nofollow", never.format(' rel="ugc nofollow"')),
        "/links/meta.html": replace(_page("Meta nofollow", never.format(""), head=shy), links=()),
        "/links/frame.html": _page("A frame", leaf, hidden=True),
        "/links/area.html": _page("An area", leaf, hidden=True),
        "/links/deep/page.html": _page("Deep", leaf, hidden=True),
        "/links/after-refresh.html": _page("After the refresh", leaf, hidden=True),
        "/links/never.html": _page("Never", "<p>Only nofollow, a comment and a script lead here.</p>", hidden=True),
    }


def _bodies(rng: random.Random) -> dict[str, Page]:
    zipped = _page("Compressed", "<p>This page came as gzip.</p>")
    sentence = f"<p>{' '.join(paragraphs(rng, 'A long story'))}</p>\n"
    story = sentence * (BIG_PAGE_BYTES // len(sentence.encode()) + 1)
    end = '<p><a href="/after-the-big-page.html">The end</a></p>'
    return {
        "/compressed.html": replace(
            zipped, body=gzip.compress(zipped.body, mtime=0), headers=(("Content-Encoding", "gzip"),)
        ),
        "/busy.html": replace(_page("Busy", "<p>The first visitor is asked to come back.</p>"), busy_once=True),
        "/big.html": _page("A long story", story + end, "/after-the-big-page.html"),
        "/after-the-big-page.html": _page("The end", "<p>Thank you for reading.</p>", hidden=True),
        "/flag.png": Page(_png(rng), content_type="image/png"),
        "/notes.txt": Page(b"Plain text, with http://example.org/ in it.\n", content_type="text/plain"),
        "/gone.html": _page("Gone", "<p>It was here once.</p>", status=410),
    }


def _png(rng: random.Random, side: int = 32) -> bytes:
    """A small patchwork flag."""
    colours = [bytes(rng.randrange(64, 224) for _ in range(3)) for _ in range(4)]
    rows = b"".join(
        b"\0" + b"".join(colours[2 * (y * 2 // side) + x * 2 // side] for x in range(side)) for y in range(side)
    )
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    parts = (struct.pack(">I", len(c)) + kind + c + struct.pack(">I", zlib.crc32(kind + c)) for kind, c in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
