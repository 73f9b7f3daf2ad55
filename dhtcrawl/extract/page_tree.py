"""The tree of a page, if it cannot grow far beyond the page. Pure, and linear.

turbohtml builds it (decision 0064): attributes, and what is open, are not compared one with the other, and nothing is
nested more than 512 deep. A parser in C cannot be interrupted, and HTML lets a tree grow in these ways:

- An unclosed formatting element is opened again in each paragraph. But of equal ones at most three are (the "Noah's Ark
  clause", 13.2.4.3), and of links one, since a link ends the one before it. So it is bounded by how many *different*
  formatting tags a page has.
- The end of a formatting element that is not the innermost one makes up to 32 copies (the "adoption agency",
  13.2.6.4.7: eight rounds of three and one).
- The attributes of all `<html>` and `<body>` tags are put together.
- What an option has is copied into each `<selectedcontent>` of its list.

A page of few tags may have a tree whatever it has of the first three. What is no tag for the parser, as in a script,
may count as one here, never the other way round.
"""

from __future__ import annotations

from typing import Final

from turbohtml import Document, parse

from dhtcrawl.possessive import compile_pattern

NODES_MAX: Final = 1 << 20  # 126 MB and 0.2 s
BYTES_MAX: Final = 512 * 1024
TAGS_MAX: Final = 24_576
# What may have a tree with any formatting elements: with 512 open ones it has `NODES_MAX` nodes.
FREE_TAGS_MAX: Final = 2_048
FREE_BYTES_MAX: Final = 64 * 1024  # 13,000 attributes of a body: 0.2 s
ROOTS_MAX: Final = 4  # tags of html and body
_DEPTH_MAX: Final = 512
_COPIES_MAX: Final = 8 * 4

# The tags that let a tree grow and have attributes, but for links. Equal ones without are counted as if each page had
# them all. What lies ahead spares most tags the comparison of names.
_GROWING: Final = compile_pattern(
    rb"<(?=[BCEFHINSTUbcefhinstu][ \t\n\f\r/EIMOTeimot])"
    rb"(?:(?i:(b(?:ig|ody)?+|code|em|font|html|i|nobr|s(?:mall|trike|trong)?+|tt|u))[ \t\n\f\r/]"
    rb"|(?i:selectedcontent))"
)
_COPYING: Final = compile_pattern(rb"<(?i:selectedcontent)")
_FORMATTING_NAMES: Final = 13
_ROOTS: Final = (b"body", b"html")
# The attributes of a tag, if they are few and short. What is looked at lies ahead, so that what only looks like a tag
# hides none.
_VALUE: Final = (
    rb"""[ \t\n\f\r]*+=[ \t\n\f\r]*+(?:"[^"]{0,2048}+"|'[^']{0,2048}+'|[^ \t\n\f\r>"'][^ \t\n\f\r>]{0,2048}+)"""
)
_ATTRIBUTES: Final = compile_pattern(
    rb"(?:[ \t\n\f\r/]*+[^ \t\n\f\r/>][^ \t\n\f\r/>=]{0,64}+(?:" + _VALUE + rb")?+){0,64}+[ \t\n\f\r/]*+>"
)
# What may end a formatting element: a link and a nobr end the one before them.
_ENDING: Final = compile_pattern(
    rb"<(?i:a|nobr|/(?:a|b|i|code|em|strong|small|tt|u|s|font|big|nobr|strike))(?=[ \t\n\f\r/>])"
)


def tree_of(page: bytes, tags: int) -> Document | None:
    """The tree of a page in UTF-8 with so many `<`; None if it could grow too far."""
    if not may_be_parsed(page, tags):
        return None
    try:
        # As a text, or it would look for another charset.
        return parse(page.decode("utf-8", "replace"), positions=False, allow_declarative_shadow_roots=False)
    except MemoryError:
        return None


def may_be_parsed(page: bytes, tags: int) -> bool:
    """Whether a page in UTF-8 with so many `<` may become a tree."""
    if tags > TAGS_MAX or len(page) > BYTES_MAX:
        return False
    if tags <= FREE_TAGS_MAX and len(page) <= FREE_BYTES_MAX:
        return _COPYING.search(page) is None
    roots = 0
    different = set()
    for tag in _GROWING.finditer(page):
        name = (tag[1] or b"").lower()
        attributes = _ATTRIBUTES.match(page, tag.end(1)) if name else None
        if attributes is None:
            return False  # they are many or long, the page ends in them, or the tag copies what an option has
        if name in _ROOTS:
            roots += 1
        else:
            different.add((name, attributes[0]))
    opened_again = min(1 + 3 * (_FORMATTING_NAMES + len(different)), _DEPTH_MAX)

    def fits(endings: int) -> bool:
        return tags * (2 + opened_again) + _COPIES_MAX * endings <= NODES_MAX

    # Most pages need not be read for their ends.
    return roots <= ROOTS_MAX and (fits(tags) or fits(len(_ENDING.findall(page))))
