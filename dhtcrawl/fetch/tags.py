"""The start tags of a page that say where to go, in one linear pass and without a tree.

Building the tree that HTML prescribes takes time quadratic in a page's depth
and in a tag's attributes, and lets 13 KB of `<b i=1><b i=2>…<p><p>…` grow into
a million nodes (measured: 370 MB). `dhtcrawl.fetch.links` therefore builds
trees of small pages only and scans the others; `dhtcrawl.fetch.charset` reads
`<meta>` with the same grammar. No other module calls this one.

The tokens are those of the WHATWG tokenizer (13.2.5): comments, raw text and
quoted attributes hide what is in them; a tag cut off by the end is none. Every
repetition is possessive and the end of input closes everything, so no match
fails half-way and each byte is looked at a bounded number of times. Two things
are simpler than there: `<script><!--<script>` is no script in a script, and
what lies in a `<template>` counts.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.entities import html5

# A name (which may begin with '='), and a value quoted, bare or absent.
_VALUE = rb"""[ \t\n\f\r]*+=[ \t\n\f\r]*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^ \t\n\f\r>"'][^ \t\n\f\r>]*+)?+"""
ATTRIBUTES = rb"(?:[ \t\n\f\r/]++|[^ \t\n\f\r/>][^ \t\n\f\r/>=]*+(?:" + _VALUE + rb")?+)*+"

_AFTER_NAME = rb"(?=[ \t\n\f\r/>])"
_REST = ATTRIBUTES + rb"(?:>|\Z)"
_RAW = (b"script", b"style", b"xmp", b"noembed", b"noframes", b"textarea")


def _raw_text(name: bytes) -> bytes:
    return rb"(?:[^<]++|<(?!/" + name + rb"[ \t\n\f\r/>]))*+"


_NOT_OURS = rb"(?!(?:a|area|base|frame|iframe|meta|title|plaintext|" + b"|".join(_RAW) + rb")[ \t\n\f\r/>])"
_SKIPPED = b"|".join(
    (
        rb"[^<]++",
        # First letters that none of ours has spare most tags the comparison.
        rb"<(?:/[a-z]|[c-eghj-loqru-wyz]|" + _NOT_OURS + rb"[a-z])[^ \t\n\f\r/>]*+" + _REST,
        rb"<!--(?:-?>|(?:[^-]++|-(?!-!?>))*+(?:--!?>|\Z))",
        rb"<(?:!(?!--)|\?|/(?![a-z]))[^>]*+(?:>|\Z)",
        *(rb"<" + name + _AFTER_NAME + _REST + _raw_text(name) for name in _RAW),
        rb"<plaintext" + _AFTER_NAME + rb"(?s:.*+)",
        rb"<(?![a-z!?/])",
    )
)
# One match: all that is skipped, then a tag of ours or the end. Groups 1 to 3
# are a tag's name, attributes and '>', 4 to 7 the same of one with raw text.
_TAG = re.compile(
    rb"(?:" + _SKIPPED + rb")*+(?:\Z"
    rb"|<(a|area|base|frame|meta)" + _AFTER_NAME + rb"(" + ATTRIBUTES + rb")(>|\Z)"
    rb"|<(?:(iframe)" + _AFTER_NAME + rb"(" + ATTRIBUTES + rb")(>|\Z)" + _raw_text(b"iframe") + rb""
    rb"|title" + _AFTER_NAME + ATTRIBUTES + rb"(?:>|\Z)(" + _raw_text(b"title") + rb")))",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(
    r"""([^ \t\n\f\r/>][^ \t\n\f\r/>=]*+)"""
    r"""(?:[ \t\n\f\r]*+=[ \t\n\f\r]*+(?:"([^"]*+)"?|'([^']*+)'?|([^ \t\n\f\r>"'][^ \t\n\f\r>]*+))?+)?+"""
)
_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[A-Za-z0-9]+[;=]?)")


def attributes_of(raw: bytes) -> dict[str, str]:
    """The attributes in the text of a start tag, names in lower case; of equal names the first counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(_text(raw)):
        value = double or single or bare
        found.setdefault(name.lower(), _REFERENCE.sub(_character, value) if "&" in value else value)
    return found


def scan(page: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    """The a, area, base, frame, iframe, meta and title tags of a UTF-8 page, in order, with their attributes.

    A title has one attribute, `text`.
    """
    for match in _TAG.finditer(page):
        name, attributes, end, _, frame_attributes, frame_end, title = match.groups()
        if title is not None:
            yield "title", {"text": html.unescape(_text(title))}
        elif frame_end:
            yield "iframe", attributes_of(frame_attributes)
        elif end:
            yield _text(name).lower(), attributes_of(attributes)


def _text(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")
    return text.replace("\0", "\ufffd") if "\0" in text else text


def _character(match: re.Match[str]) -> str:
    reference = match.group()
    # 13.2.5.73: `?a=1&copy=2` is no copyright sign. In an attribute a name
    # without ';' counts only where neither '=' nor a letter or digit follows.
    if reference[1] == "#":
        return html.unescape(reference)
    return html5.get(reference[1:], reference)
