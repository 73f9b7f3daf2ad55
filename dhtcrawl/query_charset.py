"""The queries of a page's links, in the page's charset; without I/O.

A link's query is percent-encoded in the charset of its page, path and fragment
in UTF-8 (URL, "query state"; HTML, "encoding-parse a URL"). A character that the
charset lacks becomes `&#NNNN;`, percent-encoded. Pages in UTF-16, and those that
browsers refuse to read ("replacement"), have queries in UTF-8.

Every octet of a character beyond ASCII is escaped, but for unreserved ones (RFC
3986, 2.3). Browsers leave those that look like `{` or `|` bare; a server reads
the same from both, and forms and programs write `%93%FA%96%7B`, so that a page has
one URL. What is ASCII in a link stays as it is. Links are hostile: nothing
raises, and the work is linear.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote

from webencodings.labels import LABELS

from dhtcrawl.encodings import octets_of
from dhtcrawl.url import URL_CHARS_MAX

UTF_8 = "utf-8"
# An octet can become a reference of 14 characters; the longest honest lists of links have a megabyte.
ENCODED_CHARS_MAX = 16 << 20
# The output encoding of these is UTF-8 (Encoding, 4.3), as URL parsers have it anyway.
_IN_UTF_8 = frozenset((UTF_8, "utf-16le", "utf-16be", "replacement"))
_LEGACY = frozenset(LABELS.values()) - _IN_UTF_8

_QUOTED = [quote(chr(octet), safe="", encoding="latin-1") for octet in range(256)]
_BEYOND_ASCII = re.compile(r"[^\0-\x7f]+")
_REPLACEMENT = 0xFFFD
# The escape sequences of ISO-2022-JP, percent-encoded: around Japanese, and around the two signs of its Roman set. The
# latter's end is spelt otherwise, so that what is between two Japanese characters is known from what follows a sign.
_TO_JIS, _TO_ASCII = "%1B%24B", "%1B%28B"
_TO_ROMAN, _FROM_ROMAN = "%1B%28J", "%1B%28%42"


class _Escapes(dict[int, str]):
    """The characters of a charset as they stand in a query, by code point; any other as a character reference."""

    def __missing__(self, code: int) -> str:
        # A URL parser is given U+FFFD for half a pair of surrogates.
        return self[_REPLACEMENT] if 0xD800 <= code < 0xE000 else f"%26%23{code}%3B"


class _AllOfUnicode(_Escapes):
    """GB 18030's: it has every character but U+E5E5; those of four octets are too many for a table."""

    def __missing__(self, code: int) -> str:
        if code == 0xE5E5 or 0xD800 <= code < 0xE000:
            return super().__missing__(code)
        return _quoted(chr(code).encode("gb18030"))


def in_charset(links: list[str], charset: str) -> list[str]:
    """`links` with their queries in `charset`: the same list where that changes nothing, or where nobody knows it.

    After `ENCODED_CHARS_MAX` the rest of the links stays as it is.
    """
    if charset not in _LEGACY or "".join(links).isascii():
        return links
    encoded = []
    left = ENCODED_CHARS_MAX
    for link in links:
        if left > 0 and not link.isascii():
            link = encode_query(link, charset)
            left -= len(link)
        encoded.append(link)
    return links if encoded == links else encoded


def encode_query(link: str, charset: str) -> str:
    """A link, absolute or not, with its query in `charset`; as it is where it cannot be fetched for its length."""
    if charset not in _LEGACY or len(link) > URL_CHARS_MAX:
        return link
    # The fragment begins at the first '#', before it the query at the first '?'.
    rest, sharp, fragment = link.partition("#")
    path, mark, query = rest.partition("?")
    if query.isascii():
        return link
    escapes = _escapes(charset)
    return path + mark + _BEYOND_ASCII.sub(lambda run: _escaped(run[0], escapes), query) + sharp + fragment


def _escaped(run: str, escapes: _Escapes) -> str:
    return run.translate(escapes).replace(_TO_ASCII + _TO_JIS, "")


@lru_cache
def _escapes(charset: str) -> _Escapes:
    known = {code: _quoted(octets) for code, octets in octets_of(charset).items()}
    if charset == "gb18030":
        return _AllOfUnicode(known)
    if charset != "iso-2022-jp":
        return _Escapes(known)
    jis = {code: f"{_TO_JIS}{pair}{_TO_ASCII}" for code, pair in known.items()}
    return _Escapes(jis | {0xA5: f"{_TO_ROMAN}%5C{_FROM_ROMAN}", 0x203E: f"{_TO_ROMAN}~{_FROM_ROMAN}"})


def _quoted(octets: bytes) -> str:
    return "".join([_QUOTED[octet] for octet in octets])
