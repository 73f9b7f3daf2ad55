"""Which larger pages may become a tree, too: those whose tree cannot grow far beyond the page. Pure, and linear.

HTML lets a tree grow in these ways, and a parser in C cannot be interrupted (decision 0006):

- An unclosed formatting element is opened again in each paragraph. But of equal ones at most three are (the "Noah's Ark
  clause", 13.2.4.3), and of links one, since a link ends the one before it. So it is bounded by how many *different*
  formatting tags a page has, and by how long they are, as their attributes are copied.
- The end of a formatting element that is not the innermost one makes up to 32 copies (the "adoption agency",
  13.2.6.4.7: eight rounds of three and one), and looks at all that is open in each round.
- Each attribute of a tag is compared with all before it, those of all `<html>` and `<body>` tags together.
- A block looks for what it closes among all that is open.

A small page (`links.is_small`) may be parsed whatever it has; decision 0045 says what the others must be. What cannot
be told apart quickly gets no tree.
"""

from __future__ import annotations

import re
from typing import Final

from dhtcrawl.fetch.links import TREE_BYTES_MAX, TREE_TAGS_MAX
from dhtcrawl.fetch.tags import AFTER_NAME, COMMENT, NAME_REST, RAW_TEXT_NAMES, VALUE, raw_text

NODES_MAX: Final = (TREE_TAGS_MAX // 2) ** 2  # what a small page may become: 100 MB and 0.3 s
BYTES_MAX: Final = 512 * 1024
TAGS_MAX: Final = 12_288  # each may look at all that is open: 0.4 s
ENDINGS_MAX: Final = 1 << 26  # looks at what is open for the ends of formatting elements: 0.7 s
COPIED_BYTES_MAX: Final = 128 << 20
ATTRIBUTES_MAX: Final = 128  # of a tag
ROOTS_MAX: Final = 4  # tags of html and body
_ROUNDS: Final = 8
_COPIES_MAX: Final = _ROUNDS * 4

_SPACE: Final = rb"[ \t\n\f\r/]*+"
_ATTRIBUTES: Final = (
    rb"(?:" + _SPACE + rb"[^ \t\n\f\r/>]" + NAME_REST + rb"(?:" + VALUE + rb")?+){0,%d}+" % ATTRIBUTES_MAX + _SPACE
)
_REST: Final = AFTER_NAME + _ATTRIBUTES + rb">"
_END: Final = rb"[ \t\n\f\r]*+>"


def _only_text_in(*names: bytes) -> bytes:
    return rb"|".join(rb"<" + name + _REST + rb"[^<]*+</" + name + _END for name in names)


def _element(name: bytes, inside: bytes, *with_text: bytes) -> bytes:
    """An element in which there are only tags with the names `inside`, and text."""
    of_text = rb"|" + _only_text_in(*with_text) if with_text else b""
    tags = rb"</?(?:" + inside + rb")" + _REST
    return rb"<" + name + _REST + rb"(?:[^<]++|" + COMMENT + rb"|" + tags + of_text + rb")*+</" + name + _END


# In a drawing and a formula nothing is raw text, and what ends them is intricate: only plain ones are taken. The same
# holds for a list of options, in which parsers drop tags.
_SVG: Final = (
    rb"a|g|path|rect|circle|ellipse|line|poly(?:line|gon)|use|symbol|defs|(?:linear|radial)gradient|stop|clippath|mask"
    rb"|filter|fe[a-z]++|animate(?:motion|transform)?+|set|pattern|marker|text(?:path)?+|tspan|image|view|switch|metadata"
)
_MATH: Final = (
    rb"semantics|annotation|m(?:row|frac|sqrt|root|style|error|padded|phantom|fenced|enclose|sub|sup|subsup|under|over"
    rb"|underover|multiscripts|prescripts|table|tr|td|labeledtr|space|action)"
)
_OPTIONS: Final = rb"option|optgroup|hr"
_SPECIAL: Final = b"|".join((*RAW_TEXT_NAMES, b"plaintext", b"svg", b"math", b"select", b"frameset"))
# Attributes as most pages write them: a part of `_ATTRIBUTES`, which takes longer.
_PLAIN_ATTRIBUTES: Final = rb"""(?: [a-z-]++="[^"]*+"){1,%d}+""" % ATTRIBUTES_MAX
# Of a page in lower case: tags, each with the text behind it. Most are told from special ones by their first letter.
_PAGE: Final = re.compile(
    rb"[^<]*+(?:(?:"
    rb"<(?:/[a-z]|[abcdeghjkloqruvwyz]|(?!(?:" + _SPECIAL + rb")" + AFTER_NAME + rb")[finmpstx])[^ \t\n\f\r/>]*+"
    rb"(?:>|" + _PLAIN_ATTRIBUTES + rb">|" + _ATTRIBUTES + rb">)"
    rb"|" + COMMENT + rb"|<(?:!(?!--)|\?|/(?![a-z]))[^>]*+(?:>|\Z)"
    rb"|<(?![a-z!?/])"
    rb"|" + b"|".join(rb"<" + name + _REST + raw_text(name) for name in RAW_TEXT_NAMES) + rb""
    rb"|" + _element(rb"svg", _SVG, rb"title", rb"desc", rb"style") + rb""
    rb"|" + _element(rb"math", _MATH, rb"mi", rb"mo", rb"mn", rb"ms", rb"mtext") + rb""
    rb"|" + _element(rb"select", _OPTIONS) + rb")[^<]*+)*+"
)
# The names of formatting elements, and a few that are none, with few alternatives; and the attributes as they are, if
# they are few and short, else nothing. What is looked at lies ahead, so that what only looks like a tag hides none.
_SHORT_VALUE: Final = (
    rb"""[ \t\n\f\r]*+=[ \t\n\f\r]*+(?:"[^"]{0,2048}+"|'[^']{0,2048}+'|[^ \t\n\f\r>"'][^ \t\n\f\r>]{0,2048}+)"""
)
_FORMATTING: Final = re.compile(
    rb"<([aAbBiIcCeEsStTuUfFnN](?i:ode|m|trong|mall|t|ont|ig|obr|trike)?+)"
    + AFTER_NAME
    + rb"(?=((?:"
    + _SPACE
    + rb"[^ \t\n\f\r/>][^ \t\n\f\r/>=]{0,64}+(?:"
    + _SHORT_VALUE
    + rb")?+){0,32}+"
    + _SPACE
    + rb">)?)",
)
# What may end a formatting element: a link and a nobr end the one before them.
_ENDING: Final = re.compile(rb"<(?:a|nobr|/(?:a|b|i|code|em|strong|small|tt|u|s|font|big|nobr|strike))" + AFTER_NAME)


def may_be_parsed(page: bytes, tags: int) -> bool:
    """Whether a page in UTF-8 may become a tree; it has so many `<`."""
    if tags <= TREE_TAGS_MAX and len(page) <= TREE_BYTES_MAX:  # `is_small`
        return True
    if tags > TAGS_MAX or len(page) > BYTES_MAX:
        return False
    lower = page.lower()
    if not _grows_little(page, lower, tags) or lower.count(b"<html") + lower.count(b"<body") > ROOTS_MAX:
        return False
    # After a `<col>` in a template tags are dropped, and what follows them is no raw text.
    return not (b"<template" in lower and b"<col" in lower) and _PAGE.fullmatch(lower) is not None


def _grows_little(page: bytes, lower: bytes, tags: int) -> bool:
    """Whether what is opened again, copied and looked at for that stays within bounds."""
    different: set[tuple[bytes, bytes]] = set()
    longest_link = 0
    for name, attributes in set(_FORMATTING.findall(page)):
        if not attributes:
            return False  # they are many or long, or the page ends in them
        if name in b"aA":
            longest_link = max(longest_link, len(attributes))
        else:
            different.add((name, attributes))
    opened_again = 1 + 3 * len(different)
    bytes_opened_again = longest_link + 3 * sum(len(name) + len(attributes) for name, attributes in different)

    def fits(endings: int) -> bool:
        return (
            tags * (2 + opened_again) + _COPIES_MAX * endings <= NODES_MAX
            and (tags + _COPIES_MAX * endings) * bytes_opened_again <= COPIED_BYTES_MAX
            and _ROUNDS * endings * tags <= ENDINGS_MAX
        )

    # Most pages need not be read for them.
    return fits(tags) or fits(len(_ENDING.findall(lower)))
