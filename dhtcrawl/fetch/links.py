"""What a page says about where to go: links, base, refresh, title, robots.

The crawl's hottest path, and pure. A small page is parsed by lexbor, which
sees what a browser sees. HTML's rules let a page grow far beyond its size as
a tree, so what could grow too far is scanned instead (`dhtcrawl.fetch.tags`);
both ways find the same links. Nothing here resolves or canonicalises: hrefs
are as written, without the white space around them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import partial
from itertools import islice
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from dhtcrawl.fetch.candidates import begins_hiding, tag_of
from dhtcrawl.fetch.open_elements import OpenElements
from dhtcrawl.fetch.tags import scan, scan_for
from dhtcrawl.possessive import compile_pattern

_Tag = tuple[str, Mapping[str, str | None]]

LINKS_MAX = 100_000  # tags looked at on a page; the largest honest index pages have tens of thousands
TITLE_CHARS_MAX = 500

# Unclosed formatting elements are opened again in every paragraph, so t tags
# can make (t/2)² nodes of 370 bytes (1,024 tags: 100 MB and 0.3 s), and each
# attribute is compared with all before it (64 KiB in one tag: 0.2 s). Pages
# within both bounds are most pages; for the others scanning costs no more.
TREE_TAGS_MAX = 1_024
TREE_BYTES_MAX = 64 * 1024

# Lexbor tries each alternative on every element: four short ones and a look
# at the tag cost less than seven exact ones.
_SELECTED = "[href],[src],meta,title,template"
_TAGS = frozenset(("a", "area", "iframe", "frame", "meta"))
_LEADS_IN = {"a": "href", "area": "href", "iframe": "src", "frame": "src"}  # which attribute leads on
# What else names another resource; only exports ask for it.
_EMBEDS = {
    **dict.fromkeys(("audio", "embed", "img", "input", "script", "source", "track", "video"), "src"),
    "link": "href",
}
_SPACE = " \t\n\f\r"
_NOT_FETCHED = ("#", "javascript:", "mailto:", "tel:", "data:")
_NOT_FETCHED_LETTERS = "#jJmMtTdD"
# HTML, "shared declarative refresh steps": a time, then perhaps a URL, perhaps after `url=`.
_REFRESH = compile_pattern(
    r"[ \t\n\f\r]*+(?:[0-9]++[0-9.]*+|\.[0-9.]*+)(?:[ \t\n\f\r]*+[;,][ \t\n\f\r]*+|[ \t\n\f\r]++)"
    r"(?:url[ \t\n\f\r]*+=[ \t\n\f\r]*+)?+(?:\"([^\"]*+)|'([^']*+)|(.*+))",
    re.IGNORECASE | re.DOTALL,
)
_ALL_ROBOTS = "robots"  # the name that is every crawler's, besides its product token
_TITLE = re.compile(rb"<title[ \t\n\f\r/>]", re.IGNORECASE)
# A title behind nothing that could hide it, as most stand; a letter in it that stands for another is left to the scan.
_PLAIN_TITLE = compile_pattern(
    rb"(?:[ \t\n\f\r]++|<(?:\?xml|!doctype) [^<>]*+>"
    rb"|<(?:html|head|meta|link)(?: [a-z:-]++(?:=\"[^\"]*+\")?+)*+ ?+/?+>)*+<title>([^<&\0]*+)</title>",
    re.IGNORECASE,
)
_NOFOLLOW = frozenset(("nofollow", "none"))
_SEPARATORS = re.compile(r"[\s,]+")
# In an X-Robots-Tag, the name of a crawler; a colon stands behind these, too.
_AGENT = re.compile(r"\s*([^\s:]+)\s*:")
_WITH_VALUE = frozenset(("unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"))


class PageLinks(NamedTuple):
    """What one page says.

    `hrefs` and `nofollow` are in document order, without doubles and without
    fragments, scripts and mail addresses; a link that is to be followed
    somewhere on the page is in `hrefs` only. `base` is the first base href as
    written: where it is no http(s) URL it does not count. Of refreshes there may
    be several, such as one in `<noscript>`. `nofollow_for` are the names, in lower
    case, of the meta tags that say to follow no link. A page that is `cut` has
    more than `LINKS_MAX` tags that could say something, and these are the first.
    """

    base: str | None
    hrefs: list[str]
    nofollow: list[str]
    refreshes: list[str]
    title: str | None
    nofollow_for: frozenset[str]
    cut: bool = False


class WrittenLink(NamedTuple):
    """A link as a page has it: the element (`meta-refresh` for one of these), the address, the words of `rel`."""

    kind: str
    href: str
    rel: str


class LinkCandidate(NamedTuple):
    """What a tag says if it counts: where it leads, None if nowhere, and whether no robot is to follow it."""

    href: str | None
    nofollow: bool


_LEADS_NOWHERE = LinkCandidate(None, False)


def extract(html: bytes | str, *, xhtml: bool = False) -> PageLinks:
    """The links of a page, which is read as XML if it is `xhtml`; bytes are read as UTF-8. Never raises."""
    tags, beyond = _tags_of(html, xhtml)
    found = collect(tags)
    return found if next(beyond, None) is None else found._replace(cut=True)


def candidate_of(text: bytes, token: str = "") -> LinkCandidate | None:
    """What one of the `candidates` of a page says; None where only the page as a whole tells.

    That is a base, a refresh, `nofollow` for all links if it concerns the crawler with this product `token`, a frame,
    and a text that breaks off.
    """
    tag = tag_of(text)
    if tag is None:
        return _LEADS_NOWHERE if begins_hiding(text) else None
    name, attributes = tag
    if name == "meta":
        robots = _nofollow_for(attributes)
        counts = _refresh_of(attributes) is not None or (robots is not None and concerns(robots, token))
        return None if counts else _LEADS_NOWHERE
    if name not in ("a", "area", "iframe"):
        return None
    href = attributes.get(_LEADS_IN[name], "#").strip(_SPACE)
    if href[:11].lower().startswith(_NOT_FETCHED):
        return _LEADS_NOWHERE
    return LinkCandidate(href, "nofollow" in attributes.get("rel", "").lower().split())


def title_of(html: bytes) -> str | None:
    """The title of a UTF-8 page as `extract` has it, which reads no further."""
    plain = _PLAIN_TITLE.match(html)
    title = None if plain is None else _title_of(plain[1].decode("utf-8", "replace"))
    if title is not None:
        return title
    head = _Head()
    if _TITLE.search(html) is not None:
        for tag, attributes in islice(scan(html), LINKS_MAX):
            if tag not in _LEADS_IN:
                head.take(tag, attributes)
                if head.title is not None:
                    break
    return head.title


def written_links(html: bytes | str, *, xhtml: bool = False) -> tuple[str | None, list[WrittenLink]]:
    """The first base href of a page, and each of the links that `extract` finds, as often as it stands there."""
    tags = list(_tags_of(html, xhtml)[0])
    head, found = _Head(), _written(tags, _LEADS_IN)
    for tag, attributes in tags:
        if tag not in _LEADS_IN:
            head.take(tag, attributes)
    found += [WrittenLink("meta-refresh", refresh, "") for refresh in head.refreshes]
    return head.base, found


def embedded_links(html: bytes | str, *, xhtml: bool = False) -> list[WrittenLink]:
    """What a page needs or is connected with, and no crawl follows: pictures, scripts, style sheets and the like."""
    return _written(_embedded(utf_8(html), xhtml), _EMBEDS)


def _written(tags: Iterable[_Tag], attribute_of: Mapping[str, str]) -> list[WrittenLink]:
    found = []
    for tag, attributes in tags:
        name = attribute_of.get(tag)
        if name is not None and name in attributes:
            href = (attributes[name] or "").strip(_SPACE)
            if not href[:11].lower().startswith(_NOT_FETCHED):
                found.append(WrittenLink(tag, href, " ".join((attributes.get("rel") or "").lower().split())))
    return found


def utf_8(html: bytes | str) -> bytes:
    """A page in UTF-8, without lone surrogates, which no output could encode."""
    return html.encode("utf-8", "replace") if isinstance(html, str) else html


def is_small(page: bytes) -> bool:
    """Whether a page may be parsed: as a tree it cannot grow too far."""
    return len(page) <= TREE_BYTES_MAX and page.count(b"<") <= TREE_TAGS_MAX


def _embedded(page: bytes, xhtml: bool) -> Iterable[_Tag]:
    if xhtml:
        return islice(_scan_xhtml(page, _EMBEDS.keys()), LINKS_MAX)
    if is_small(page):
        nodes = LexborHTMLParser(page).css("[href],[src],template")
        if not any(node.tag == "template" for node in nodes):  # which lexbor does not search
            return [(node.tag or "", node.attributes) for node in nodes]
    return islice(scan_for(page, _EMBEDS.keys()), LINKS_MAX)


def _scan_xhtml(page: bytes, *names: Set[str]) -> Iterator[_Tag]:
    # Most sites have no XHTML, and its patterns take a start longer than one page.
    from dhtcrawl.fetch.xhtml import scan_xhtml

    yield from scan_xhtml(page.decode("utf-8", "replace"), *names)


def _tags_of(html: bytes | str, xhtml: bool) -> tuple[Iterable[_Tag], Iterator[_Tag]]:
    """The tags of a page that are looked at, and once these are taken those that are not."""
    page = utf_8(html)
    if not xhtml and is_small(page):
        parsed = _parsed(page)
        if parsed is not None:
            return parsed, iter(())
    tags: Iterator[_Tag] = _scan_xhtml(page) if xhtml else scan(page)
    return islice(tags, LINKS_MAX), tags


def _parsed(page: bytes) -> list[_Tag] | None:
    """The same tags as `scan` yields, from a tree; None if it has a `<template>`, which lexbor does not search."""
    found: list[_Tag] = []
    for node in LexborHTMLParser(page).css(_SELECTED):
        tag = node.tag
        if tag == "a" or tag in _TAGS:
            found.append((tag, node.attributes))
        elif tag == "title" and not _is_foreign(node):
            found.append((tag, {"text": node.text()}))
        elif tag == "base" and not _is_foreign(node):
            found.append((tag, node.attributes))
        elif tag == "template":
            return None
    return found


def _is_foreign(element: LexborNode) -> bool:
    """Whether a title or base is a drawing's. The tree tells no namespaces, but what is open around one decides it."""
    around = []
    node = element.parent
    if node is None or node.tag == "head":
        return False  # nearly all
    while node is not None:
        around.append(node)
        node = node.parent
    if not any(node.tag in ("svg", "math") for node in around):
        return False
    elements = OpenElements(rooted=True, steps=len(around))
    for node in reversed(around):
        elements.start((node.tag or "").lower(), False, partial(_attributes_of, node))
    return not elements.start(element.tag or "", False, dict)


def _attributes_of(node: LexborNode) -> dict[str, str]:
    return {name: value or "" for name, value in node.attributes.items()}


class _Head:
    """What a page says of itself: the first base and title, refreshes that lead somewhere, `nofollow` for whom."""

    __slots__ = ("base", "nofollow_for", "refreshes", "templates", "title")

    def __init__(self) -> None:
        self.base: str | None = None
        self.refreshes: list[str] = []
        self.title: str | None = None
        self.nofollow_for: set[str] = set()
        self.templates = 0  # open ones; what stands in them is not said of this page

    def take(self, tag: str, attributes: Mapping[str, str | None]) -> None:
        if tag == "template":
            self.templates += 1
        elif tag == "/template":
            self.templates = max(0, self.templates - 1)
        elif self.templates:
            return
        elif tag == "meta":
            refresh = _refresh_of(attributes)
            if refresh is not None:
                self.refreshes.append(refresh)
            name = _nofollow_for(attributes)
            if name is not None:
                self.nofollow_for.add(name)
        elif tag == "base" and self.base is None and "href" in attributes:
            self.base = (attributes["href"] or "").strip(_SPACE)
        elif tag == "title" and self.title is None:
            self.title = _title_of(attributes["text"] or "")


def collect(tags: Iterable[_Tag]) -> PageLinks:
    """What the tags of a page say, which are those that `fetch.tags.scan` yields, in order."""
    head = _Head()
    # Dicts, for order and uniqueness at once.
    hrefs: dict[str, None] = {}
    nofollow: dict[str, None] = {}
    for tag, attributes in tags:
        name = "href" if tag == "a" else _LEADS_IN.get(tag)  # most are
        if name is None:
            head.take(tag, attributes)
            continue
        if name not in attributes:
            continue
        href = (attributes[name] or "").strip(_SPACE)
        # The first letter rules most hrefs out of being one of these.
        if href[:1] in _NOT_FETCHED_LETTERS and href[:11].lower().startswith(_NOT_FETCHED):
            continue
        if forbids_following(attributes.get("rel")):
            nofollow[href] = None
        else:
            hrefs[href] = None
    nowhere_followed = [href for href in nofollow if href not in hrefs]
    shy = frozenset(head.nofollow_for)
    return PageLinks(head.base, list(hrefs), nowhere_followed, head.refreshes, head.title, shy)


def collect_plain(head: Iterable[_Tag], hrefs: list[str], nofollow: list[str] | None = None) -> PageLinks:
    """What `collect` finds of a page: its other tags, the links that are followed in order, and those that are not."""
    told = _Head()
    for tag, attributes in head:
        told.take(tag, attributes)
    found = _fetched(hrefs)
    left = _fetched(nofollow) if nofollow else []
    if left:
        followed = set(found)
        left = [href for href in left if href not in followed]
    return PageLinks(told.base, found, left, told.refreshes, told.title, frozenset(told.nofollow_for))


def _fetched(hrefs: list[str]) -> list[str]:
    """Those that lead to what can be fetched, without the white space around them, each once."""
    return [
        href
        for href in dict.fromkeys([href.strip(_SPACE) for href in hrefs])
        if href[:1] not in _NOT_FETCHED_LETTERS or not href[:11].lower().startswith(_NOT_FETCHED)
    ]


def forbids_following(rel: str | None) -> bool:
    """Whether no robot is to follow a link with this `rel`."""
    return rel is not None and "nofollow" in rel.lower().split()


def _title_of(text: str) -> str | None:
    folded = " ".join(text.split())
    return folded[:TITLE_CHARS_MAX].rstrip() or None


def _refresh_of(attributes: Mapping[str, str | None]) -> str | None:
    if (attributes.get("http-equiv") or "").strip(_SPACE).lower() != "refresh":
        return None
    return refresh_target(attributes.get("content") or "")


def refresh_target(value: str) -> str | None:
    """Where a refresh leads, by the `content` of a meta tag or a `Refresh` header; None if nowhere."""
    match = _REFRESH.match(value)
    if match is None:
        return None
    url = (match[1] or match[2] or match[3] or "").strip(_SPACE)
    # Nothing but a time reloads the page itself: no link.
    return None if not url or url.lower().startswith(_NOT_FETCHED) else url


def concerns(name: str, token: str) -> bool:
    """Whether what is said to robots of this name, in lower case, is said to the crawler with a product token."""
    return name == _ALL_ROBOTS or (name == token.lower() and name != "")


def header_says_nofollow(value: str, token: str) -> bool:
    """Whether an X-Robots-Tag tells the crawler with this product token to follow no link.

    What stands behind another crawler's name is for that one.
    """
    ours = True
    for part in value.lower().split(","):
        named = _AGENT.match(part)
        if named is not None and named[1] not in _WITH_VALUE:
            ours, part = concerns(named[1], token), part[named.end() :]
        if ours and not _NOFOLLOW.isdisjoint(part.split()):
            return True
    return False


def _nofollow_for(attributes: Mapping[str, str | None]) -> str | None:
    """The name, in lower case, of a meta tag that says to follow no link; None of any other."""
    name, content = attributes.get("name"), (attributes.get("content") or "").lower()
    if not name or _NOFOLLOW.isdisjoint(_SEPARATORS.split(content)):
        return None
    return name.strip(_SPACE).lower()
