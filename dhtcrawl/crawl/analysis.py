"""Reads type, charset, title, links and redirect out of a response. Pure.

A page is analysed when it arrives, and again from the archive when a restart
finds that its links were not all acknowledged: both times the links are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import is_
from typing import NamedTuple

from dhtcrawl.encodings import decode
from dhtcrawl.fetch import charset, header_fields, links
from dhtcrawl.fetch.coded_body import decoded_body
from dhtcrawl.fetch.sitemap import LongSitemap, Sitemap, may_be_sitemap, sitemap_of
from dhtcrawl.query_charset import UTF_8, in_charset
from dhtcrawl.url import canonicalize

NOWHERE = "redirects nowhere"  # no Location, or none that is a web address, or a status that leads to none
CHOICES = 300  # a redirect with a Location, else its HTML names the choices (RFC 9110, 15.4.1)
REDIRECTS = frozenset((CHOICES, 301, 302, 303, 307, 308))
HREF_SHOWN_CHARS = 500  # of what is no URL


class LongPage(Exception):
    """A page is too long to be read here."""


class Unparsed(NamedTuple):
    """The links of a page that was not parsed, because what is new on it was clear without."""

    link_keys: bytes
    links: list[tuple[bytes, str]]  # key and URL of those to send, as their owner has not acknowledged them
    skipped: list[tuple[str, str]]  # (url, reason), new ones only
    under_way: list[bytes]  # keys of those that were sent for another page, and are not acknowledged yet


# Asked with a page in UTF-8, and the charset that it was in: its links, or None if it has to be parsed.
WithoutParser = Callable[[bytes, str], Unparsed | None]


class PageRecords(NamedTuple):
    """What rules find on a page: its records as they are stored, and its links, since it was read for them."""

    stored: str
    follow: frozenset[str] | None  # the links that are followed, as written; None: all
    links: links.PageLinks | None  # None: they have to be looked for


# Asked with a page in UTF-8, and the charset that it was in.
FindRecords = Callable[[bytes, str], PageRecords]


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a page says. `base` is the URL that its links are relative to.

    `hrefs`, `nofollow` and `left`, which rules leave out, are as written, but for queries, which are in the page's
    charset. `query_charset` names it where that changed one of them, so that they come out the same when the page is
    analysed again. With `unparsed` the page was not parsed, and there are no hrefs.
    """

    content_type: str = ""
    charset: str | None = None
    title: str | None = None
    base: str = ""
    hrefs: list[str] = field(default_factory=list)
    nofollow: list[str] = field(default_factory=list)
    redirect: str | None = None  # the Location of a redirect, as the server wrote it; a long one without its fragment
    error: str | None = None
    query_charset: str | None = None
    unparsed: Unparsed | None = None
    records: str | None = None  # what rules found on it, as it is stored; None: nothing was looked for
    left: list[str] = field(default_factory=list)


class PageLink(NamedTuple):
    """A link of a page, where it leads: `to` is what was written where that is no http(s) URL."""

    to: str
    kind: str  # the element, `meta-refresh`, or `redirect`
    rel: str


def analyse(
    url: str,
    status: int,
    headers: header_fields.Headers,
    raw: bytes,
    *,
    html_bytes_max: int,
    token: str = "",
    here_bytes_max: int | None = None,
    query_charset: str | None = None,
    without_parser: WithoutParser | None = None,
    find_records: FindRecords | None = None,
) -> Analysis:
    """Analyse a response; `raw` is its body as sent. Queries are in `query_charset`; None: in the page's charset.

    `token` is the crawl's product token, by which a page may tell it to follow no link.
    `without_parser` is asked first, if there is one, whether a page has to be parsed for its links.

    Links are taken from HTML of 2xx and 300 only: the links of an error page are, at best,
    the site's navigation once more. Records are taken from 2xx only.

    Raises:
        LongPage: there are more than `here_bytes_max` of decoded HTML; nothing was looked for in them.
    """
    content_type = header_fields.content_type(headers)
    media_type = charset.media_type_of(content_type)
    if not 200 <= status < 300:
        without_page = _without_page(url, status, media_type, headers)
        if without_page is not None:
            return without_page
        find_records = None
    beside_type = header_fields.beside_type(headers)
    refreshes, shy = _refreshes(url, beside_type), _is_shy(beside_type, token)
    html, name, error = _html_of(content_type, media_type, beside_type, raw, html_bytes_max, here_bytes_max)
    if html is None:
        listed = _listed(url, content_type, beside_type, raw, html_bytes_max, here_bytes_max)
        if listed is not None:
            followed, kept = (refreshes, listed.locs) if shy else (refreshes + listed.locs, [])
            error = error or listed.error or (_cut(listed.beyond) if listed.beyond else None)
            return Analysis(media_type, base=url, hrefs=followed, nofollow=kept, error=error)
        nowhere = NOWHERE if status == CHOICES else None
        return Analysis(media_type, base=url, hrefs=refreshes, error=error or nowhere)
    xhtml = charset.is_read_as_xml(media_type)
    records, follow, page = _by_rules(find_records, html, name, xhtml)
    if without_parser is not None and page is None and follow is None and not (xhtml or refreshes or shy):
        html = links.utf_8(html)
        unparsed = without_parser(html, name)
        if unparsed is not None:
            title = links.title_of(html)
            return Analysis(
                charset.type_of_html(media_type), name, title, url, error=error, unparsed=unparsed, records=records
            )
    if page is None:
        page = links.extract(html, xhtml=xhtml)
    if page.cut:
        error = error or _cut(f"{links.LINKS_MAX} tags")
    shy = shy or any(links.concerns(name, token) for name in page.nofollow_for)
    written = _written(page, follow, refreshes, shy=shy)
    found = written.in_charset(query_charset or name)
    return Analysis(
        charset.type_of_html(media_type),
        name,
        page.title,
        (canonicalize(found.base[0], url) if found.base else None) or url,
        found.hrefs,
        found.nofollow,
        error=error,
        query_charset=None if found is written else query_charset or name,
        records=records,
        left=found.left,
    )


def _cut(first: str) -> str:
    return f"only the first {first} were read for links"


def _by_rules(
    find_records: FindRecords | None, html: bytes | str, charset: str, xhtml: bool
) -> tuple[str | None, frozenset[str] | None, links.PageLinks | None]:
    """The fields of the page's `PageRecords`; of XHTML, which rules read as HTML, without its links."""
    if find_records is None:
        return None, None, None
    found = find_records(links.utf_8(html), charset)
    return found._replace(links=None) if xhtml else found


def _listed(
    url: str,
    content_type: str | None,
    headers: header_fields.Headers,
    raw: bytes,
    bytes_max: int,
    here_bytes_max: int | None = None,
) -> Sitemap | None:
    """What a response lists that is a sitemap; None for any other.

    Raises:
        LongPage: it is one of more than `here_bytes_max`.
    """
    if not may_be_sitemap(charset.media_type_of(content_type), url):
        return None
    try:
        return sitemap_of(content_type, headers, raw, bytes_max=bytes_max, here_bytes_max=here_bytes_max)
    except LongSitemap:
        raise LongPage from None


def _without_page(url: str, status: int, media_type: str, headers: header_fields.Headers) -> Analysis | None:
    """What a response that is not 2xx says; None if its body does."""
    if status not in REDIRECTS:
        return Analysis(media_type, base=url, error=NOWHERE if 300 <= status < 400 else None)
    targets = header_fields.locations(headers)
    return _redirect(url, media_type, targets) if targets or status != CHOICES else None


def _redirect(url: str, media_type: str, targets: list[str]) -> Analysis:
    if len(targets) > 1:
        return Analysis(media_type, base=url, error=f"{len(targets)} different Location headers, none is followed")
    target = targets[0] if targets else None
    nowhere = target is None or canonicalize(target, url) is None
    return Analysis(media_type, base=url, redirect=target, error=NOWHERE if nowhere else None)


def page_html(
    status: int, headers: header_fields.Headers, raw: bytes, *, html_bytes_max: int
) -> tuple[bytes, str] | None:
    """The HTML of a response in UTF-8, and the charset that it was in; None for what has no records."""
    if not 200 <= status < 300:
        return None
    content_type = header_fields.content_type(headers)
    beside_type = header_fields.beside_type(headers)
    html, name, _ = _html_of(content_type, charset.media_type_of(content_type), beside_type, raw, html_bytes_max)
    return None if html is None else (links.utf_8(html), name)


class _Links(NamedTuple):
    """The links of a page, its base if it has one, and the links that rules leave out."""

    hrefs: list[str]
    nofollow: list[str]
    base: list[str]
    left: list[str]

    def in_charset(self, charset: str) -> _Links:
        """These links with their queries in `charset`; the same object where that changes none."""
        if charset == UTF_8:
            return self
        encoded = [in_charset(links, charset) for links in self]
        return self if all(map(is_, encoded, self)) else _Links(*encoded)


def _refreshes(url: str, headers: header_fields.Headers) -> list[str]:
    """Where Refresh headers lead, whatever base the page names (HTML, "create and initialize a Document object")."""
    found = []
    for name, value in headers:
        if name == header_fields.REFRESH and (target := links.refresh_target(value)) is not None:
            found.append(canonicalize(target, url) or target)
    return found


def _is_shy(headers: header_fields.Headers, token: str) -> bool:
    """Whether an X-Robots-Tag says what a `<meta name="robots" content="nofollow">` would."""
    return any(name == header_fields.ROBOTS and links.header_says_nofollow(value, token) for name, value in headers)


def _written(page: links.PageLinks, follow: frozenset[str] | None, refreshes: list[str], *, shy: bool) -> _Links:
    """The links of a page as they are written, and `refreshes` from elsewhere; `follow` as in `PageRecords`.

    A page that is `shy` has told this crawler to follow none, but for refreshes.
    """
    hrefs, nofollow = page.hrefs, page.nofollow
    if shy:
        hrefs, nofollow = [], hrefs + nofollow
    left = [] if follow is None else [href for href in hrefs if href not in follow]
    if follow is not None:
        hrefs = [href for href in hrefs if href in follow]
    if page.refreshes or refreshes:
        hrefs = hrefs + page.refreshes + refreshes
    return _Links(hrefs, nofollow, [page.base] if page.base is not None else [], left)


def page_links(
    url: str, status: int, headers: header_fields.Headers, raw: bytes, *, html_bytes_max: int
) -> list[PageLink]:
    """Every link that `analyse` finds, followed or not, then what the page embeds; each once a kind and `rel`."""
    targets = header_fields.locations(headers) if status in REDIRECTS else []
    if targets:
        return [PageLink(_target(targets[0], url), "redirect", "")] if len(targets) == 1 else []
    if not 200 <= status < 300 and status != CHOICES:
        return []
    content_type = header_fields.content_type(headers)
    media_type = charset.media_type_of(content_type)
    beside_type = header_fields.beside_type(headers)
    refreshes = [PageLink(_target(href, url), "meta-refresh", "") for href in _refreshes(url, beside_type)]
    html, name, _ = _html_of(content_type, media_type, beside_type, raw, html_bytes_max)
    if html is None:
        listed = _listed(url, content_type, beside_type, raw, html_bytes_max)
        locs = [] if listed is None else [PageLink(_target(loc, url), "loc", "") for loc in listed.locs]
        return list(dict.fromkeys(refreshes + locs))
    xhtml = charset.is_read_as_xml(media_type)
    base, written = links.written_links(html, xhtml=xhtml)
    written += links.embedded_links(html, xhtml=xhtml)
    found = _Links([link.href for link in written], [], [base] if base is not None else [], []).in_charset(name)
    start = (canonicalize(found.base[0], url) if found.base else None) or url
    pairs = zip(written, found.hrefs, strict=True)
    on_page = [PageLink(_target(href, start), link.kind, link.rel) for link, href in pairs]
    return list(dict.fromkeys(refreshes + on_page))


def _target(href: str, base: str) -> str:
    return canonicalize(href, base) or href[:HREF_SHOWN_CHARS]


def _html_of(
    content_type: str | None,
    media_type: str,
    headers: header_fields.Headers,
    raw: bytes,
    html_bytes_max: int,
    here_bytes_max: int | None = None,
) -> tuple[bytes | str | None, str, str | None]:
    """A page's HTML, as UTF-8 or text, and its charset; None for what is no HTML; and what broke while decoding.

    `headers` are those beside the type.

    Raises:
        LongPage: there are more than `here_bytes_max`.
    """
    if not raw:
        return None, "", None
    if not charset.may_be_html(media_type):
        return None, "", None
    limit = html_bytes_max if here_bytes_max is None else min(here_bytes_max, html_bytes_max)
    if headers:
        data, cut, error = decoded_body(headers, raw, limit)
    else:
        data, cut, error = raw[:limit], len(raw) > limit, None
    if not charset.looks_like_html(media_type, data):
        return None, "", error
    if cut and limit < html_bytes_max:
        raise LongPage
    if cut:
        error = error or _cut(f"{html_bytes_max} bytes (fetch.html_bytes_max)")
    name = charset.charset_of(data, content_type, xml=charset.is_read_as_xml(media_type))
    return data if name == "utf-8" else decode(data, name), name, error
