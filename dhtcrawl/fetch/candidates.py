"""The tags that may say where to go, found without reading all that stands between them. Pure.

Most pages bring nothing new: whoever knows where each of the `candidates` leads
need not parse the page, whatever it hides in comments and scripts. They are a superset of the tags that count:
each `<` of a page is looked at, and the text of a tag goes to the first `<` or
`>` behind it, so that no two overlap. Where a tag really begins, its text is all of it, or breaks off
within a value; `tag_of` knows which. `dhtcrawl.fetch.links` judges what a tag says.

Of the few that are new, `outside` says which are tags. What could hide one is
a comment, the text of a script and the like, or an attribute of another tag.
All that could begin one of the former is among the candidates: for a few new
tags it suffices to see that each kind has ended since its last beginning,
whichever of the beginnings were real. Otherwise comments and texts are read in
order, as the tokenizer reads them. Of attributes it suffices to look back: a
value that is open has its quote, and a '=' before that, as the last quote; a
tag that is open has no '>' behind its `<`, but in a value. What is no such
clear case, and pages with content of other rules, are left to the parsers. All
of it is linear: nothing is looked at again from a later place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set

from dhtcrawl.fetch.tags import ATTRIBUTES, COMMENT, RAW_TEXT_NAMES, Tag, attributes_of, compiled, raw_element
from dhtcrawl.possessive import compile_pattern

_AFTER_NAME = rb"(?=[ \t\n\f\r/>])"
# The look at one letter, or at two, spares most tags the comparison of names.
_LINK = rb"<(?=[!abfimnpstx])(?:(?=[abfim])(?:(?:a|area|base|frame|iframe|meta)[ \t\n\f\r/]|frameset)"
_OR_HIDING = (
    rb"|(?=.[-acefilmotv])(?:!--|iframe(?=>)|(?:script|style|t(?:extarea|itle|emplate)|xmp|no(?:embed|frames)"
    rb"|svg|math|plaintext|selectedcontent)" + _AFTER_NAME + rb"))"
)
# To the end of the tag, past a '<' in it, which next to no page has: twice as fast to look for as either of two.
_CANDIDATE = compile_pattern(_LINK + rb"[^>]*+>?" + _OR_HIDING, re.IGNORECASE)
# As it should be; compiled when it is first needed.
_CUT_CANDIDATE = _LINK + rb"[^<>]*+>?" + _OR_HIDING
_WHOLE = compile_pattern(rb"<([a-z]+)(" + ATTRIBUTES + rb")>", re.IGNORECASE)
# What begins a comment or raw text; where one of the group stands, it takes a parser to say what is a link.
_HIDING = compile_pattern(
    rb"<(?=[!stxinpmf])(?=.[-cteimrfolav])"
    rb"(?:!--|(?:script|style|t(?:extarea|itle)|xmp|iframe|no(?:embed|frames))" + _AFTER_NAME + rb"|"
    rb"(svg|math|plaintext|frameset|selectedcontent|template)" + _AFTER_NAME + rb")",
    re.IGNORECASE,
)
_CHAINED = [name for name in RAW_TEXT_NAMES if name != b"iframe"]
# All that follow each other: most do. Compiled when it is first needed. Iframes stand alone, since they are candidates.
_HIDDEN = (
    rb"(?:(?:" + rb"|".join((COMMENT, *map(raw_element, _CHAINED))) + rb")(?:</[a-z]++>)?+[ \t\n\f\r]*+)++"
    rb"|" + raw_element(b"iframe")
)
# The ends of what candidates begin; what is written otherwise, or is none of these, is read in order.
_COMMENT_END = b"-->"
_ENDS = {b"<!--": _COMMENT_END} | {
    b"<" + name: b"</" + name for name in (b"script", b"style", b"title", b"textarea", b"noframes")
}
_AFTER_OCTETS = frozenset((b" ", b"\t", b"\n", b"\f", b"\r", b"/", b">"))
_UNKNOWN = -2
_TAG_END, _IFRAME = ord(">"), b"iI"
_NAME_BYTES_MAX = len(b"<selectedcontent")
# More new tags than these, or more beginnings of one kind, are not looked for one by one.
_LOOKED_BACK_MAX = 8
_FOUND_FORWARD_MAX = 4
_SPACES = (b" ", b"\t", b"\n", b"\f", b"\r")
# How far a '=' may stand before its quote.
_BEFORE_QUOTE = 16


def candidates(page: bytes) -> list[bytes]:
    """The texts of all that looks like a tag with a link, or like the beginning of what could hide one.

    The former are a, area, base, frame, iframe and meta tags with attributes, and framesets. Their texts end with
    '>' unless the page or another tag cuts them off. Of what could hide one the text is its `<` and its name alone.
    The page is in UTF-8.
    """
    found: list[bytes] = _CANDIDATE.findall(page)
    if b"".join(found).count(b"<") == len(found):
        return found
    return compiled(_CUT_CANDIDATE).findall(page)


def begins_hiding(text: bytes) -> bool:
    """Whether a candidate is no tag with a link, but the beginning of what could hide one."""
    return text == b"<!--" or (len(text) <= _NAME_BYTES_MAX and text[1:].isalpha())


def tag_of(text: bytes) -> Tag | None:
    """The name and the attributes of a candidate; None if it breaks off, so that its page has to be parsed."""
    whole = _WHOLE.fullmatch(text)
    # A value that was open at the '>' has taken it.
    return None if whole is None else (whole[1].decode().lower(), attributes_of(whole[2]))


def outside(page: bytes, texts: list[bytes], wanted: Set[bytes]) -> Set[bytes] | None:
    """Those of the candidates that are `wanted` that are tags: not all that stand there are hidden.

    None if that is not clear. `texts` are all candidates of the page; none of those that are wanted breaks off.
    """
    if len(wanted) <= _LOOKED_BACK_MAX:
        beginnings = _Beginnings(page, texts)
        if all(beginnings.are_clear_before(text) for text in wanted):
            return wanted
    return _in_order(page, [text for text in texts if text in wanted])


class _Beginnings:
    """What may begin comments or raw text on a page: where each kind has ended is looked for once for all new tags."""

    def __init__(self, page: bytes, texts: list[bytes]) -> None:
        self._page = page
        self._backwards = texts[::-1]
        self._hiding = [(n, text) for n, text in enumerate(texts) if text[-1] != _TAG_END or text[1] in _IFRAME]
        self._ended: dict[tuple[bytes, int], int] = {}

    def are_clear_before(self, text: bytes) -> bool:
        """Whether it is clear without reading the page in order that the last candidate with this text is a tag."""
        page, number = self._page, len(self._backwards) - 1 - self._backwards.index(text)
        at = page.rfind(text)
        counts: dict[bytes, int] = {}
        for place, name in self._hiding:
            if place >= number:
                break
            counts[name] = counts.get(name, 0) + 1
        return all(self._has_ended(name, count, at) for name, count in counts.items()) and _is_outside(page, 0, at)

    def _has_ended(self, name: bytes, count: int, at: int) -> bool:
        """Whether no comment or text is open at `at` that may begin with `name`, as `count` candidates before it do."""
        end = _ENDS.get(name)
        if end is None:
            return False
        if count > _FOUND_FORWARD_MAX:
            # Only those of a page's head are few. From behind, the last one is found wherever it is.
            ended = _end_of(self._page, name, self._page.rfind(name, 0, at))
        else:
            ended = self._ended.get((name, count), _UNKNOWN)
            if ended == _UNKNOWN:
                ended = self._ended[name, count] = _end_of(self._page, name, _last_of(self._page, name, count))
        return 0 <= ended <= at - len(end)


def _end_of(page: bytes, name: bytes, last: int) -> int:
    """Where what may begin with `name` at `last`, and every one before it, has ended; -1 if that is not clear."""
    end = _ENDS[name]
    ended = page.find(end, last + 2) if last >= 0 else -1
    if ended < 0 or end == _COMMENT_END:
        return ended
    # In a value of the tag that begins a text, what looks like the end of the text is none.
    if page[ended + len(end) : ended + len(end) + 1] not in _AFTER_OCTETS or not _is_outside(page, 0, ended):
        return -1
    # In a script, what looks like a comment may hide the end.
    comment = page.rfind(b"<!--", 0, ended) if name == b"<script" else -1
    return ended if comment < 0 or page.find(_COMMENT_END, comment + 2, ended) >= 0 else -1


def _last_of(page: bytes, name: bytes, count: int) -> int:
    """Where the `count`-th candidate `name` stands, or something later that looks like one; -1 if it is not clear."""
    last = -1
    for _ in range(count):
        last = page.find(name, last + 1)
        if last < 0 or (name != b"<!--" and page[last + len(name) : last + len(name) + 1] not in _AFTER_OCTETS):
            return -1
    return last


def _in_order(page: bytes, texts: Iterable[bytes]) -> set[bytes] | None:
    """What `outside` says of `texts`, in the order of the page and each as often as it stands there."""
    found: set[bytes] = set()
    hidden_at = compiled(_HIDDEN)
    at, data = 0, 0  # the candidate; a place before it which is in no tag, comment or raw text
    for text in texts:
        at = page.find(text, at)
        while (hiding := _HIDING.search(page, data, at)) is not None:
            hidden = hidden_at.match(page, hiding.start()) if hiding[1] is None else None
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
    return end >= 0 and _is_no_value(page, data, end, b'"') and _is_no_value(page, data, end, b"'")


def _is_no_value(page: bytes, data: int, at: int, quote: bytes) -> bool:
    last = page.rfind(quote, data, at)
    if last < 0:
        return True
    before = page[max(data, last - 1) : last]
    if before in _SPACES:
        before = page[max(data, last - _BEFORE_QUOTE) : last].rstrip(b" \t\n\f\r")[-1:]
    return before not in (b"", b"=")
