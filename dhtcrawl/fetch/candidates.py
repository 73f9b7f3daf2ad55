"""The tags that may say where to go, found without reading all that stands between them. Pure.

Most pages bring nothing new: whoever knows where each of the `candidates` leads
need not parse the page, whatever it hides in comments and scripts. They are a superset of the tags that count:
each `<` of a page is looked at, and the text of a tag goes to the first `<` or
`>` behind it, so that no two overlap. Where a tag really begins, its text is all of it, or breaks off
within a value; `tag_of` knows which. `dhtcrawl.fetch.links` judges what a tag says.

Of the few that are new, `outside` says which are tags. What could hide one is
a comment, the text of a script and the like, or an attribute of another tag.
The former are read in order, as the tokenizer reads them. Of the latter it
suffices to look back: a value that is open has its quote, and a '=' before
that, as the last quote; a tag that is open has no '>' behind its `<`, but in
a value. What is no such clear case, and pages with content of other rules, are left to the
parsers. All of it is linear: nothing is looked at again from a later place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dhtcrawl.fetch.tags import ATTRIBUTES, COMMENT, RAW_TEXT_NAMES, Tag, attributes_of, raw_element

_AFTER_NAME = rb"(?=[ \t\n\f\r/>])"
# The look at one letter, or at two, spares most tags the comparison of names.
_CANDIDATE = re.compile(
    rb"<(?=[abfim])((?:(?:a|area|base|frame|iframe|meta)[ \t\n\f\r/]|frameset)[^<>]*+>?)",
    re.IGNORECASE,
)
_WHOLE = re.compile(rb"([a-z]+)(" + ATTRIBUTES + rb")>", re.IGNORECASE)
# What begins a comment or raw text; where one of the group stands, it takes a parser to say what is a link.
_HIDING = re.compile(
    rb"<(?=[!stxinpmf])(?=.[-cteimrfolav])"
    rb"(?:!--|(?:script|style|t(?:extarea|itle)|xmp|iframe|no(?:embed|frames))" + _AFTER_NAME + rb"|"
    rb"(svg|math|plaintext|frameset|selectedcontent|template)" + _AFTER_NAME + rb")",
    re.IGNORECASE,
)
_CHAINED = [name for name in RAW_TEXT_NAMES if name != b"iframe"]
# All that follow each other: most do. Iframes stand alone, since they are candidates.
_HIDDEN = re.compile(
    rb"(?:(?:" + rb"|".join((COMMENT, *map(raw_element, _CHAINED))) + rb")(?:</[a-z]++>)?+[ \t\n\f\r]*+)++"
    rb"|" + raw_element(b"iframe"),
    re.IGNORECASE,
)
_SPACES = (b" ", b"\t", b"\n", b"\f", b"\r")
# How far a '=' may stand before its quote.
_BEFORE_QUOTE = 16


def candidates(page: bytes) -> list[bytes]:
    """The texts of all that looks like a, area, base, frame, iframe and meta tags with attributes, and like framesets.

    The page is in UTF-8. A text begins with the name of the tag, and ends with its '>' unless the page or another tag
    cuts it off.
    """
    found: list[bytes] = _CANDIDATE.findall(page)
    return found


def tag_of(text: bytes) -> Tag | None:
    """The name and the attributes of a candidate; None if it breaks off, so that its page has to be parsed."""
    whole = _WHOLE.fullmatch(text)
    # A value that was open at the '>' has taken it.
    return None if whole is None else (whole[1].decode().lower(), attributes_of(whole[2]))


def outside(page: bytes, texts: Iterable[bytes]) -> set[bytes] | None:
    """Those of these candidates that are tags: not all that stand there are hidden. None if that is not clear.

    `texts` are in the order of the page, each as often as it stands there; none breaks off.
    """
    found: set[bytes] = set()
    at, data = 0, 0  # the candidate; a place before it which is in no tag, comment or raw text
    for text in texts:
        at = page.find(b"<" + text, at)
        while (hiding := _HIDING.search(page, data, at)) is not None:
            hidden = _HIDDEN.match(page, hiding.start()) if hiding[1] is None else None
            if hidden is None or not _is_outside(page, data, hiding.start()):
                return None
            data = hidden.end()
        if data <= at:
            if not _is_outside(page, data, at):
                return None
            found.add(text)
            data = at
        at += 1
    return found


def _is_outside(page: bytes, data: int, at: int) -> bool:
    """Whether `at` is clearly in no tag, as `data` is, with neither comment nor raw text in between."""
    tag = page.rfind(b"<", data, at)
    if tag < 0:
        return True
    end = page.rfind(b">", tag, at)
    # A '>' that is in no value ends the tag, if one is open; behind it there is none.
    return end >= 0 and all(_is_no_value(page, data, end, quote) for quote in (b'"', b"'"))


def _is_no_value(page: bytes, data: int, at: int, quote: bytes) -> bool:
    last = page.rfind(quote, data, at)
    if last < 0:
        return True
    before = page[max(data, last - 1) : last]
    if before in _SPACES:
        before = page[max(data, last - _BEFORE_QUOTE) : last].rstrip(b" \t\n\f\r")[-1:]
    return before not in (b"", b"=")
