"""Which charset a page is in, and its media type; without I/O.

The order is that of the WHATWG (HTML, 13.2.3.2): byte order mark, HTTP,
`<meta>` in the first 1024 bytes, an XML declaration, a later `<meta>`; then a
guess, where browsers look at the user's locale: UTF-8 where the bytes are
UTF-8 beyond ASCII, else windows-1252. XHTML is XML, where `<meta>` says nothing
and UTF-8 is the default (XML 1.0, 4.3.3 and appendix F). Labels and names are those of the WHATWG
Encoding standard, names in lower case. Bytes and headers are hostile: nothing
raises.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import webencodings

from dhtcrawl.fetch.tags import ATTRIBUTES, attributes_of, scan
from dhtcrawl.possessive import compile_pattern

PRESCAN_BYTES = 1024
# A parser that meets `<meta>` later starts anew with its charset (13.2.3.5);
# browsers do so as far as the parser got before the page was complete.
LATE_META_BYTES = 64 * 1024
GUESSED_BYTES = 64 * 1024  # from the first ones that are not all ASCII
METAS_KEPT_MAX = 256  # of up to a kilobyte
TYPES_KEPT_MAX = 256
TYPE_KEPT_CHARS_MAX = 200
FALLBACK = "windows-1252"

# `<?x` in UTF-16: the first step of the prescan (13.2.3.3; XML 1.0, appendix F).
_UTF_16_DECLARATIONS = (b"<\0?\0x\0", b"\0<\0?\0x")
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))

# A parameter of a Content-Type: its name, and its value in quotes or without (MIME Sniffing, 4.4).
_PARAMETER = compile_pattern(r';([^;=]*+)(?:=[ \t]*+(?:"((?:[^"\\]|\\.)*+)[^;]*+|([^;]*+)))?', re.DOTALL)
_QUOTED_PAIR = re.compile(r"\\(.)", re.DOTALL)
# The values between commas that are not in quotes (Fetch, "get, decode, and split").
_CONTENT_TYPES = compile_pattern(r"(?:[^,\"]++|\"(?:[^\"\\]++|\\.)*+(?:\"|\\?\Z))++", re.DOTALL)
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MEDIA_TYPE = compile_pattern(rf"[ \t]*({_TOKEN}/{_TOKEN})[ \t]*(?:;|\Z)")

# The prescan (13.2.3.3), one match a step: a comment (`<!-->` is a whole one),
# a meta tag (its attributes, its end), another tag, something else with '<'.
# What the end of the bytes cuts off hides what is in it.
_PRESCAN = compile_pattern(
    rb"<(?:!--(?:-?>|.*?(?:-->|\Z))"
    rb"|meta([ \t\n\f\r/]" + ATTRIBUTES + rb")(>|\Z)"
    rb"|/?[a-z][^ \t\n\f\r>]*+" + ATTRIBUTES + rb"(?:>|\Z)"
    rb"|[!/?][^>]*+(?:>|\Z))",
    re.IGNORECASE | re.DOTALL,
)
# Without '<', so that a page full of `<meta` is still read once only.
_LATE_META = re.compile(rb"<meta[^<>]+?charset", re.IGNORECASE)
_CONTENT_CHARSET = compile_pattern(
    r"charset[ \t\n\f\r]*=[ \t\n\f\r]*(?:\"([^\"]*)\"|'([^']*)'|([^ \t\n\f\r;\"'][^ \t\n\f\r;]*))", re.I
)
_XML = re.compile(rb"<\?xml[^>]*?[ \t\n\r]encoding[ \t\n\r]*=[ \t\n\r]*[\"']([^\"'>]*)[\"']")

_HTML_TYPES = frozenset(("text/html", "application/xhtml+xml"))
# XML that browsers show as a page where its root says so (HTML, "navigate-xml").
XML_TYPES = frozenset(("application/xml", "text/xml"))
# MIME Sniffing, 5 and 7: types that say nothing, and what HTML begins with.
_NO_TYPES = frozenset(("", "unknown/unknown", "application/unknown", "*/*"))
_HTML_START = compile_pattern(
    rb"(?:\xef\xbb\xbf)?[ \t\n\f\r]*+<(?:!--|(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title"
    rb"|b|body|br|p)[ >])",
    re.IGNORECASE,
)


def charset_of(page: bytes, content_type: str | None, *, xml: bool = False) -> str:
    """The WHATWG name, in lower case, of the charset a page is in, which is XHTML if it is `xml`.

    Of `page`, which may be its beginning only, `<meta>` counts in the first
    64 KiB. Between UTF-8 and windows-1252 decide the first 64 KiB with a byte
    beyond ASCII.
    """
    for bom, name in _BOMS:
        if page.startswith(bom):
            return name
    if content_type is not None and (parameter := _charset_parameter(content_type)):
        named = _name_of(parameter.label)
        if named is not None:
            return named
    if xml:
        return _declared_in_xml(page) or "utf-8"
    return _declared(page) or _guessed(page)


def content_type_of(lines: Sequence[str]) -> str | None:
    """The Content-Type that counts of those in several lines, or in one with commas; None without a line.

    That is the last one that is well-formed; one of the same media type without a charset has the charset before it
    (Fetch, "extract a MIME type").
    """
    if len(lines) < 2 and not (lines and "," in lines[0]):
        return lines[0] if lines else None
    counts, media_type, charset = None, "", ""
    for each in _CONTENT_TYPES.findall(",".join(lines)):
        named = media_type_of(each)
        if named in ("", "*/*"):
            continue
        parameter = _charset_parameter(each)
        if parameter or named != media_type:
            charset = parameter.text if parameter else ""
        counts, media_type = each if parameter else each + charset, named
    return counts.strip(" \t") if counts is not None else lines[-1]


def media_type_of(content_type: str | None) -> str:
    """`type/subtype` in lower case, without parameters; '' where absent or malformed."""
    match = _MEDIA_TYPE.match(content_type) if content_type is not None else None
    return match[1].lower() if match else ""


def looks_like_html(media_type: str, prefix: bytes) -> bool:
    """Whether a page has links to extract: by its type, or where that does not tell by how it begins."""
    if media_type in _NO_TYPES:
        return _HTML_START.match(prefix) is not None
    if media_type in XML_TYPES:
        # Its patterns take a start longer than one page.
        from dhtcrawl.fetch.xhtml import is_xhtml

        return is_xhtml(prefix)
    return media_type in _HTML_TYPES


def may_be_html(media_type: str) -> bool:
    """Whether there are pages of this type that `looks_like_html` says yes to."""
    return media_type in _HTML_TYPES or media_type in _NO_TYPES or media_type in XML_TYPES


def is_read_as_xml(media_type: str) -> bool:
    """Whether pages of this type that `looks_like_html` says yes to are XHTML."""
    return media_type == "application/xhtml+xml" or media_type in XML_TYPES


def type_of_html(media_type: str) -> str:
    """The type of a page that looks like HTML: what says nothing is `text/html` (MIME Sniffing, 7.1)."""
    return "text/html" if media_type in _NO_TYPES else media_type


class _CharsetParameter(NamedTuple):
    text: str  # as it was sent, with its semicolon
    label: str


@lru_cache(maxsize=TYPES_KEPT_MAX)
def _kept_parameter(content_type: str) -> _CharsetParameter | None:
    return _find_charset(content_type)


def _charset_parameter(content_type: str) -> _CharsetParameter | None:
    """The first charset of a Content-Type that has a value; blanks around its `=`, which the standard takes none of,
    are left out. Most pages have the Content-Type of the page before.
    """
    find = _kept_parameter if len(content_type) <= TYPE_KEPT_CHARS_MAX else _find_charset
    return find(content_type)


def _find_charset(content_type: str) -> _CharsetParameter | None:
    for parameter in _PARAMETER.finditer(content_type):
        name, quoted, plain = parameter.groups()
        if name.strip(" \t").lower() == "charset" and (quoted is not None or (plain and plain.strip(" \t"))):
            return _CharsetParameter(parameter[0], plain if quoted is None else _QUOTED_PAIR.sub(r"\1", quoted))
    return None


def _name_of(label: str) -> str | None:
    encoding = webencodings.lookup(label.strip(" \t\n\f\r"))
    return encoding.name if encoding is not None else None


def _declared(page: bytes) -> str | None:
    """What `<meta>` says, or else an XML declaration; None where neither says anything known."""
    head = page[:PRESCAN_BYTES]
    if head.startswith(_UTF_16_DECLARATIONS):
        return _declared_in_xml(head)
    if b"charset" in head.lower():
        for meta in _PRESCAN.finditer(head):
            if meta[2] and (name := _of_meta_text(meta[1])):
                return name
    if name := _declared_in_xml(head):
        return name
    if len(page) > PRESCAN_BYTES and _LATE_META.search(page, 0, LATE_META_BYTES):
        for tag, attributes in scan(page[:LATE_META_BYTES]):
            if tag == "meta" and (name := _of_meta(attributes)):
                return name
    return None


def _declared_in_xml(page: bytes) -> str | None:
    if page.startswith(_UTF_16_DECLARATIONS):
        return "utf-16be" if page[0] == 0 else "utf-16le"
    declaration = _XML.match(page, 0, PRESCAN_BYTES)
    return None if declaration is None else _in_ascii_bytes(declaration[1].decode("ascii", "replace"))


@lru_cache(maxsize=METAS_KEPT_MAX)
def _of_meta_text(attributes: bytes) -> str | None:
    """What `_of_meta` says of the attributes in a tag's text: most pages have those of the page before."""
    return _of_meta(attributes_of(attributes))


def _of_meta(attributes: dict[str, str]) -> str | None:
    if "charset" in attributes:
        return _in_ascii_bytes(attributes["charset"])
    if attributes.get("http-equiv", "").lower() != "content-type":
        return None
    match = _CONTENT_CHARSET.search(attributes.get("content", ""))
    return _in_ascii_bytes(match[1] or match[2] or match[3] or "") if match else None


def _in_ascii_bytes(label: str) -> str | None:
    # Who can read the tag as ASCII is not reading UTF-16, whatever it says.
    name = _name_of(label)
    if name in ("utf-16le", "utf-16be"):
        return "utf-8"
    return FALLBACK if name == "x-user-defined" else name


def _guessed(page: bytes) -> str:
    at, block = 0, page[:GUESSED_BYTES]
    # None begins within a character, since all before it are ASCII.
    while block.isascii():
        at += GUESSED_BYTES
        if at >= len(page):
            return FALLBACK
        block = page[at : at + GUESSED_BYTES]
    try:
        # Not final: the block may end within a character.
        codecs.getincrementaldecoder("utf-8")().decode(block)
    except UnicodeDecodeError:
        return FALLBACK
    return "utf-8"
