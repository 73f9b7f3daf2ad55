"""The start tags of a page that say where to go, in one linear pass and without a tree.

Building the tree that HTML prescribes takes time quadratic in a page's depth
and in a tag's attributes, and lets 13 KB of `<b i=1><b i=2>…<p><p>…` grow into
a million nodes (measured: 370 MB). `dhtcrawl.fetch.links` therefore builds
trees of small pages only and scans the others; `dhtcrawl.fetch.charset` reads
`<meta>` with the same grammar. No other module calls this one.

The tokens are those of the WHATWG tokenizer (13.2.5): comments, raw text and
quoted attributes hide what is in them; a tag cut off by the end is none. In
`<svg>` and `<math>` nothing is raw text: there, each tag is looked at by itself
(`dhtcrawl.fetch.open_elements` says where that ends). Every
repetition is possessive and the end of input closes everything, so no match
fails half-way and each byte is looked at a bounded number of times. What a tree
has no place for (in a frameset, say) counts.
"""

from __future__ import annotations

import html
import re
from collections.abc import Generator, Iterator, Set
from functools import cache, partial
from html.entities import html5
from typing import NamedTuple

from dhtcrawl.fetch.open_elements import OpenElements
from dhtcrawl.possessive import compile_pattern

# While `re` looks for one match no other thread runs, nor the event loop, and a page may be nothing but "<".
TOKENS_A_MATCH_MAX = 4_096

# A name (which may begin with '='), and a value quoted, bare or absent.
VALUE = rb"""[ \t\n\f\r]*+=[ \t\n\f\r]*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^ \t\n\f\r>"'][^ \t\n\f\r>]*+)?+"""
NAME_REST = rb"[^ \t\n\f\r/>=]*+"
ATTRIBUTES = rb"(?:[ \t\n\f\r/]++|[^ \t\n\f\r/>]" + NAME_REST + rb"(?:" + VALUE + rb")?+)*+"

AFTER_NAME = rb"(?=[ \t\n\f\r/>])"
_REST = ATTRIBUTES + rb"(?:>|\Z)"
COMMENT = rb"<!--(?:-?>|(?:[^-]++|-(?!-!?>))*+(?:--!?>|\Z))"
_RAW = (b"script", b"style", b"xmp", b"noembed", b"noframes", b"textarea")
RAW_TEXT_NAMES = (*_RAW, b"iframe", b"title")


# In a script `<!--` begins an escape, in which a second `<script>` hides the
# next `</script>` (13.2.5.18 to 31); `-->` ends both.
_AFTER_SCRIPT = rb"script" + AFTER_NAME
_TWICE = rb"<" + _AFTER_SCRIPT + rb"(?:[^<-]++|-(?!->)|<(?!/" + _AFTER_SCRIPT + rb"))*+(?:</script)?+"
_ESCAPED = rb"<!--(?:-?>|(?:[^<-]++|-(?!->)|" + _TWICE + rb"|<(?!/?" + _AFTER_SCRIPT + rb"))*+(?:-->)?+)"
_SCRIPT_TEXT = rb"(?:[^<]++|<(?!/" + _AFTER_SCRIPT + rb"|!--)|" + _ESCAPED + rb")*+"


def raw_text(name: bytes) -> bytes:
    """A pattern for the text behind a tag with this name, up to its end tag."""
    if name == b"script":
        return _SCRIPT_TEXT
    return rb"(?:[^<]++|<(?!/" + name + rb"[ \t\n\f\r/>]))*+"


def raw_element(name: bytes) -> bytes:
    """A pattern for a tag with this name, and the text behind it up to its end tag."""
    return rb"<" + name + AFTER_NAME + _REST + raw_text(name)


# Grouped by their first letters, so that few are compared.
_NOT_OURS = (
    rb"(?!(?:a(?:rea)?|base|frame|iframe|m(?:ath|eta)|no(?:embed|frames)|plaintext|s(?:cript|tyle|vg)"
    rb"|t(?:emplate|extarea|itle)|xmp)[ \t\n\f\r/>])"
)
_SKIPPED = b"|".join(
    (
        rb"[^<]++",
        # First letters that none of ours has spare most tags the comparison.
        rb"<(?:/[a-su-z]|/t(?!emplate[ \t\n\f\r/>])|[c-eghj-loqru-wyz]|"
        + _NOT_OURS
        + rb"[a-z])[^ \t\n\f\r/>]*+"
        + _REST,
        COMMENT,
        rb"<(?:!(?!--)|\?|/(?![a-z]))[^>]*+(?:>|\Z)",
        *map(raw_element, _RAW),
        rb"<plaintext" + AFTER_NAME + rb"(?s:.*+)",
        rb"<(?![a-z!?/])",
    )
)
# Few crawls need the two that `compiled` compiles at their first use: 6 ms.
# One match: what is skipped, then a tag of ours, the end, or nothing where so
# many tokens were skipped. Groups 1 to 3 are a tag's name, attributes and '>',
# 4 to 7 the same of one with raw text; group 8 is the beginning of foreign content.
_TIMES = b"{0,%d}+" % TOKENS_A_MATCH_MAX
_TAG = (
    rb"(?:" + _SKIPPED + rb")" + _TIMES + rb"(?:\Z"
    rb"|<(a|area|base|frame|meta|template|/template)" + AFTER_NAME + rb"(" + ATTRIBUTES + rb")(>|\Z)"
    rb"|<(?:(iframe)" + AFTER_NAME + rb"(" + ATTRIBUTES + rb")(>|\Z)" + raw_text(b"iframe") + rb""
    rb"|title" + AFTER_NAME + ATTRIBUTES + rb"(?:>|\Z)(" + raw_text(b"title") + rb"))"
    rb"|(?=<(svg|math)" + AFTER_NAME + rb")|)"
)
# One token, where what is open matters. Groups: '/' of an end tag, a tag's
# name, attributes and '>', and what begins a CDATA section in foreign content.
# It is compiled when it is first needed, as raw text is: few pages are read so.
_TOKEN = (
    rb"[^<]++|<(?:(/?)([a-z][^ \t\n\f\r/>]*+)(" + ATTRIBUTES + rb")(>|\Z)"
    rb"|!--(?:-?>|(?:[^-]++|-(?!-!?>))*+(?:--!?>|\Z))|(!\[CDATA\[)|[!?/][^>]*+(?:>|\Z)|)"
)
# The document types with which a page has no quirks (13.2.6.4.1), but for rare identifiers.
_S = rb"[ \t\n\f\r]"
_ID = rb"[^\"'>]*+[\"']" + _S + rb"*+"  # the rest of an identifier
_NO_QUIRKS = (
    rb"(?:\xef\xbb\xbf)?+(?:" + _S + rb"++|<!--(?:-?>|(?:[^-]++|-(?!-!?>))*+--!?>)|<(?:\?|!(?!--|doctype))[^>]*+>)*+"
    rb"<!doctype"
    + _S
    + rb"*+html(?:"
    + _S
    + rb"*+>|"
    + _S
    + rb"++(?:system"
    + _S
    + rb"*+[\"']|public"
    + _S
    + rb"*+[\"']-//"
    rb"(?:(?:[^/\"'>]++//dtd xhtml |w3c//dtd html 4\.01?//)"
    + _ID
    + rb"[\"'>]|w3c//dtd html 4\.01 "
    + _ID
    + rb"[\"'])))"
)
_BOGUS_COMMENT = compile_pattern(rb"[^>]*+(?:>|\Z)")
_RAW_TEXT = {name.decode(): raw_text(name) for name in RAW_TEXT_NAMES}
_OURS = frozenset(("a", "area", "base", "frame", "iframe", "meta", "template"))
_LINKS = frozenset(("a", "area", "frame", "iframe"))
_ATTRIBUTE = compile_pattern(
    r"""([^ \t\n\f\r/>][^ \t\n\f\r/>=]*+)"""
    r"""(?:[ \t\n\f\r]*+=[ \t\n\f\r]*+(?:"([^"]*+)"?|'([^']*+)'?|([^ \t\n\f\r>"'][^ \t\n\f\r>]*+))?+)?+"""
)
# The same of bytes, in which only the end of each matters.
_ATTRIBUTE_SPAN = compile_pattern(rb"[^ \t\n\f\r/>][^ \t\n\f\r/>=]*+(?:" + VALUE + rb")?+")
_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[A-Za-z0-9]+[;=]?)")
_NUMERIC = re.compile(r"&#(?:([0-9]+)|[xX]([0-9a-fA-F]+));?")
_REFERENCE_IN_TEXT = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[A-Za-z0-9]+;?)")


@cache
def compiled(pattern: bytes) -> re.Pattern[bytes]:
    """A pattern that is compiled when it is first asked for; it takes letters of both cases."""
    return compile_pattern(pattern, re.IGNORECASE)


def attributes_of(raw: bytes) -> dict[str, str]:
    """The attributes in the text of a start tag, names in lower case; of equal names the first counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(_text(raw)):
        value = double or single or bare
        found.setdefault(name.lower(), _REFERENCE.sub(_character, value) if "&" in value else value)
    return found


Tag = tuple[str, dict[str, str]]


class _Wanted(NamedTuple):
    """The names of the tags that a scan yields, in HTML and in drawings or formulas."""

    in_html: Set[str]
    foreign: Set[str]


_FOR_LINKS = _Wanted(_OURS, _LINKS)


def scan(page: bytes) -> Iterator[Tag]:
    """The a, area, base, frame, iframe, meta and title tags of a UTF-8 page, in order, with their attributes.

    A title has one attribute, `text`. Foreign ones of base and title are none;
    of links the name counts, in whatever namespace.
    What stands between `template` and `/template` is not of the page itself.
    """
    at: int | None = 0
    quirks: bool | None = None
    while at is not None:
        begin, at = at, None
        for match in compiled(_TAG).finditer(page, begin):
            name, attributes, end, _, frame_attributes, frame_end, title, foreign = match.groups()
            if end:
                yield _text(name).lower(), attributes_of(attributes)
            elif title is not None:
                yield "title", {"text": _unescaped(_text(title))}
            elif frame_end:
                yield "iframe", attributes_of(frame_attributes)
            elif foreign is not None:
                # Once for all drawings: what stands before the document type may be long.
                quirks = _has_quirks(page) if quirks is None else quirks
                at = yield from _scan_foreign(page, match.end(), quirks)
                break


def scan_for(page: bytes, names: Set[str]) -> Iterator[Tag]:
    """The tags with these names of a UTF-8 page, one token at a time: slower than `scan`, and for any names."""
    elements = OpenElements(rooted=True, steps=2 * len(page), quirks=_has_quirks(page))
    for tag in _scan_open(page, 0, len(page), elements, _Wanted(names, names)):
        if tag[0] in names:
            yield tag


def _scan_foreign(page: bytes, at: int, quirks: bool) -> Generator[Tag, None, int]:
    """The tags of the drawing or formula at `at`; returns where it ends."""
    inner = OpenElements(rooted=False, steps=len(page), quirks=quirks)
    end = yield from _scan_open(page, at, len(page), inner, _FOR_LINKS)
    if not inner.stray:
        return end
    # An end tag, or a part of a table, that nothing in here was open for: the
    # page is read once more for what was, and then to its end with it.
    outer = OpenElements(rooted=True, steps=2 * len(page), quirks=quirks)
    for _ in _scan_open(page, 0, end, outer, _FOR_LINKS):
        pass
    return (yield from _scan_open(page, end, len(page), outer, _FOR_LINKS))


def _has_quirks(page: bytes) -> bool:
    return compiled(_NO_QUIRKS).match(page) is None


def _scan_open(page: bytes, at: int, until: int, elements: OpenElements, wanted: _Wanted) -> Generator[Tag, None, int]:
    """The tags that are wanted, and titles and ends of templates, until nothing is open or an end tag is stray.

    It begins at `at` and takes one token at a time. Returns where it stopped: after the last token, or before a stray
    end tag.
    """
    one_token = compiled(_TOKEN)
    while at < until:
        token = one_token.match(page, at)
        assert token is not None, "each byte begins a token"
        slash, raw_name, attributes, complete, cdata = token.groups()
        begin, at = at, token.end()
        if cdata is not None:
            at = _after_cdata(page, at, elements.foreign and cdata == b"![CDATA[")
        elif complete:
            name = _text(raw_name).lower()
            if slash:
                if elements.end(name) and name == "template" and not elements.stray:
                    yield "/template", {}
            elif elements.start(name, _closes_itself(attributes), partial(attributes_of, attributes)):
                at = yield from _html_tag(page, at, name, attributes, wanted.in_html)
            elif name in wanted.foreign:
                yield name, attributes_of(attributes)
            if elements.stray:
                return begin
            if not elements and not elements.rooted:
                return at
    return at


def _html_tag(page: bytes, at: int, name: str, attributes: bytes, wanted: Set[str]) -> Generator[Tag, None, int]:
    """Yield an HTML tag if it is wanted; returns where its raw text and its end tag end."""
    if name in wanted:
        yield name, attributes_of(attributes)
    if name == "plaintext":
        return len(page)
    raw_text = _RAW_TEXT.get(name)
    if raw_text is None:
        return at
    text = compiled(raw_text).match(page, at)
    assert text is not None, "raw text may be empty"
    if name == "title":
        yield "title", {"text": _unescaped(_text(text.group()))}
    # What ends the text ends this element, none that is open around it.
    end_tag = compiled(_TOKEN).match(page, text.end())
    return end_tag.end() if end_tag is not None else len(page)


def _closes_itself(attributes: bytes) -> bool:
    """Whether the text ends in a '/' that belongs to no value, as that of `href=a/` does."""
    if not attributes.endswith(b"/"):
        return False
    end = 0
    if b"=" in attributes:
        for attribute in _ATTRIBUTE_SPAN.finditer(attributes):
            end = attribute.end()
    return end < len(attributes)


def _after_cdata(page: bytes, at: int, section: bool) -> int:
    """Where a CDATA section ends, or what is a comment outside of foreign content."""
    if section:
        end = page.find(b"]]>", at)
        return end + 3 if end >= 0 else len(page)
    comment = _BOGUS_COMMENT.match(page, at)
    assert comment is not None, "a comment may be empty"
    return comment.end()


def _text(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    return text.replace("\0", "\ufffd") if "\0" in text else text


def _unescaped(text: str) -> str:
    return _REFERENCE_IN_TEXT.sub(_character_in_text, text) if "&" in text else text


def _character_in_text(match: re.Match[str]) -> str:
    reference = match.group()
    return _numbered(reference) if reference[1] == "#" else html.unescape(reference)


def _numbered(reference: str) -> str:
    """What a number stands for (13.2.5.80); `html.unescape` drops control and noncharacters, which count."""
    found = html.unescape(reference)
    if not found and (number := _NUMERIC.match(reference)) is not None:
        found = chr(int(number[1]) if number[1] else int(number[2], 16))
    return found


def _character(match: re.Match[str]) -> str:
    reference = match.group()
    # 13.2.5.73: `?a=1&copy=2` is no copyright sign. In an attribute a name
    # without ';' counts only where neither '=' nor a letter or digit follows.
    if reference[1] == "#":
        return _numbered(reference)
    return html5.get(reference[1:], reference)
