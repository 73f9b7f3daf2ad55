"""The start tags of an XHTML page that say where to go, in one linear pass.

XML (fifth edition) has no raw text: `<script src="a.js"/>` is whole, what is
between tags is tags, and only comments, CDATA sections, processing
instructions and the document type hide what is in them. Nothing is declared
or expanded but character references and the named ones of HTML. `xml:base` does
not count, as in browsers. `dhtcrawl.fetch.links`, `charset` and `sitemap`
call this module.

Browsers stop at what is not well-formed; here it is skipped, and the rest is
read. A tag or a value that does not end before the next `<` ends there.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Set
from html.entities import html5
from typing import NamedTuple

from dhtcrawl.possessive import compile_pattern

_SPACE = r" \t\n\r"
# Each alternative takes what it began, up to its end or the page's. Groups: a
# section's text, '/' of an end tag, a tag's name without its prefix,
# attributes, '/' of an empty element, and text.
_TOKEN = compile_pattern(
    r"<!--(?:[^-]++|-(?!->))*+(?:-->|\Z)"
    r"|<!\[CDATA\[((?:[^\]]++|\](?!\]>))*+)(?:\]\]>|\Z)"
    r"|<\?(?:[^?]++|\?(?!>))*+(?:\?>|\Z)"
    # The internal subset has declarations with '>' in them, and comments with quotes.
    r"|<!DOCTYPE(?:[^\[>\"']++|\"[^\"]*+\"?|'[^']*+'?)*+"
    r"(?:\[(?:[^\]\"'<]++|\"[^\"]*+\"?|'[^']*+'?|<!--(?:[^-]++|-(?!->))*+(?:-->|\Z)|<)*+\]?[^>]*+)?+>?"
    rf"|<(/?)(?:[^{_SPACE}/<>=!?:]++:)?+([^{_SPACE}/<>=!?:]++)((?:[^<>\"'/]++|\"[^\"<]*+\"?|'[^'<]*+'?|/(?!>))*+)(/?)>?"
    r"|<|([^<]++)"
)
_ATTRIBUTE = compile_pattern(
    rf"([^{_SPACE}/<>=\"']++)"
    # Without a value it is none in XML; it is matched so that its text is read once.
    rf"(?:[{_SPACE}]*+=[{_SPACE}]*+(?:\"([^\"<]*+)\"?|'([^'<]*+)'?|([^{_SPACE}\"'<>]++)))?+"
)
_REFERENCE = compile_pattern(r"&(?:#[0-9]++|#x[0-9a-fA-F]++|[A-Za-z0-9]++);")
_REFERENCE_CHARS_MAX = 100
_NAMESPACE = "http://www.w3.org/1999/xhtml"
ROOT_BYTES_MAX = 64 * 1024  # in which a root begins: what stands before it is a licence or entities, if anything
_OURS = frozenset(("a", "area", "base", "frame", "iframe", "meta"))


def scan_xhtml(page: str, names: Set[str] = _OURS) -> Iterator[tuple[str, dict[str, str]]]:
    """The tags with these names in order, by default those that `dhtcrawl.fetch.tags.scan` finds in HTML, and a title.

    Names count as written, without prefix.

    Of titles there is the first one outside of other vocabularies (`svg` and `math`).
    """
    title: list[str] | None = None
    foreign = 0
    for token in _TOKEN.finditer(page.replace("\0", "\ufffd")):
        section, slash, name, attributes, empty, text = token.groups()
        if title is not None and (section or text):
            title.append(section or _expanded(text))
        elif not name:
            continue
        elif name in names and not slash:
            yield name, _attributes_of(attributes)
        elif name in ("svg", "math") and not empty:
            foreign = max(0, foreign - 1) if slash else foreign + 1
        elif name == "title" and title is not None and slash:
            yield "title", {"text": "".join(title)}
            title = None
        elif name == "title" and not (slash or empty or foreign):
            title = []
    if title is not None:
        yield "title", {"text": "".join(title)}


class Root(NamedTuple):
    """The root element of an XML document; `prefix` ends in ":", or is ""."""

    name: str
    prefix: str
    namespace: str | None


def root_of(document: bytes) -> Root | None:
    """The root of an XML document, of which `document` is the beginning; None where it is none."""
    # Up to its root a document is ASCII, but for comments, also in UTF-16.
    text = document[:ROOT_BYTES_MAX].replace(b"\0", b"").decode("utf-8", "replace").lstrip("\ufeff\ufffd \t\n\r")
    for token in _TOKEN.finditer(text):
        _, slash, name, attributes, _, between = token.groups()
        if slash:
            return None
        if name:
            prefix = text[token.start() + 1 : token.start(3)]
            namespace = _attributes_of(attributes).get(f"xmlns:{prefix[:-1]}" if prefix else "xmlns")
            return Root(name, prefix, namespace)
        if token.group() == "<" or (between is not None and between.strip(" \t\n\r")):
            return None  # it is not well-formed; and a page of nothing else would be looked through for long
    return None


def is_xhtml(page: bytes) -> bool:
    """Whether the root of an XML document is the `html` of XHTML, so that browsers show a page."""
    root = root_of(page)
    return root is not None and (root.name, root.namespace) == ("html", _NAMESPACE)


def texts_of(document: str, name: str, prefix: str) -> Iterator[str]:
    """The texts of the elements of an XML document with this name and prefix that have nothing else in them.

    One that does not end is none: the document is cut off there.
    """
    start, end = f"<{prefix}{name}", f"</{prefix}{name}"
    found: list[str] | None = None
    for token in _TOKEN.finditer(document.replace("\0", "\ufffd")):
        section, slash, tag, _, empty, text = token.groups()
        if tag:
            if found is not None and slash and tag == name and token.group().startswith(end):
                yield "".join(found)
            begins = tag == name and not (slash or empty) and token.group().startswith(start)
            found = [] if begins else None
        elif found is not None:
            said = section or (_expanded(text) if text else "")
            if said:
                found.append(said)


def _attributes_of(raw: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(raw):
        found.setdefault(name, _expanded(double or single or bare))
    return found


def _expanded(text: str) -> str:
    return _REFERENCE.sub(_character, text) if "&" in text else text


def _character(match: re.Match[str]) -> str:
    reference = match.group()
    if reference[1] != "#":
        return html5.get(reference[1:], reference)
    # Of thousands of digits Python makes no number, and no character has more than seven.
    return "\ufffd" if len(reference) > _REFERENCE_CHARS_MAX else html.unescape(reference)
