"""Pages that may be parsed have trees that are bounded; honest pages may be parsed, whatever their size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from dhtcrawl.fetch.links import TREE_BYTES_MAX, TREE_TAGS_MAX
from dhtcrawl.fetch.tree_size import ATTRIBUTES_MAX, BYTES_MAX, NODES_MAX, TAGS_MAX, may_be_parsed

ATTRIBUTES = b" ".join(b"a%d" % n for n in range(ATTRIBUTES_MAX + 10))

# What opens again, copies, hides, drops, or makes one reader see a tag where another sees a text.
PIECES = [
    *(b"<b>|<b x=%d>|<i>|<i y='>%d'>|<font a=\"%d\">|<a href=%d>|</b>|</i>|</a>|</font>|<nobr>|</nobr>".split(b"|")),
    *(b"<p>|<p>x|</p>|<div>|</div>|<table>|<td>|<tr>|</table>|<li>|<ul>|</ul>|<button>|<applet>|</applet>".split(b"|")),
    *(b"<span>|</span>|text|<h1>|</h1>|<form>|<object>|</object>|<caption>|<marquee>|<em>|</em>|<col>".split(b"|")),
    *(b"<svg>|</svg>|<math>|</math>|<path/>|<mi>|</mi>|<title>|</title>|<desc>|<foreignobject>|<mtext>".split(b"|")),
    *(b"<script>|</script>|<style>|</style>|<textarea>|</textarea>|<iframe>|</iframe>|<xmp>|</xmp>".split(b"|")),
    *(b"<select>|</select>|<option>|<template>|</template>|<frameset>|<plaintext>|<noscript>|</noscript>".split(b"|")),
    *(b'<!--|-->|<![CDATA[|]]>|<!x|<?|>|<|"|\'|=|/|<b x=a"|<b x="|<b x=\'|<b /|<svg/>|<svg a=b/>'.split(b"|")),
    b"<b " + ATTRIBUTES + b">",
    b" " + ATTRIBUTES + b" ",
    b'<i class="x" title="%d">',
    b' a="<b>" b="',
]


def many(piece: bytes) -> bytes:
    """So often that the page is not small; with other values each time."""
    return b"".join(piece.replace(b"%d", b"%d" % n) for n in range(TREE_TAGS_MAX + 10))


def fits(page: bytes) -> bool:
    return may_be_parsed(page, page.count(b"<"))


def nodes_of(page: bytes) -> int:
    return len(LexborHTMLParser(page).css("*"))


@pytest.mark.parametrize(
    "page",
    [
        many(b"<b x=%d>") + b"<p>x" * 2_000,
        many(b"<b x='%d>'>") + b"<p>x" * 2_000,
        many(b'<b x=">%d">') + b"<p>x" * 2_000,
        many(b'<b y=\'"\' x=">%d">') + b"<p>x" * 2_000,
        many(b"<B X=%d>").swapcase() + b"<p>x" * 2_000,
        many(b"<b x=A><b x=a><i x=%d>") + b"<p>x" * 2_000,
        b"x" * TREE_BYTES_MAX + b"<b" + many(b" a%d") + b">",
        b"x" * TREE_BYTES_MAX + b"<b" + many(b' a="%d"') + b">",
        b"x" * TREE_BYTES_MAX + b'<b x=a" y=">"' + many(b' a%d=">"') + b">",
        b"x" * TREE_BYTES_MAX + b"<svg><style><a x='</style>" + many(b" a%d") + b"'>",
        b"<p>" * (TAGS_MAX + 1),
        b"".join(b"<html %s>" % b" ".join(b"a%x" % (100 * n + i) for i in range(100)) for n in range(100))
        + many(b"<p>"),
        b'<p><b title="' + b"x" * 400_000 + b'">' + b"<p>y" * 5_000,
        b'<p><a title="' + b"x" * 1_500 + b'">' + many(b"<i x=%d>")[:6_000] + b"<p>y" * 9_000,
        b"<b>" * 8 + b"<div>" * 9_000 + b"</b>" * 3_000,
        b"x" * (BYTES_MAX + 1),
        b"<template><col><script><a x='</script>" + many(b"<p>") + b"'></template>",
    ],
)
def test_what_could_grow_is_not_parsed(page: bytes) -> None:
    assert not fits(page)


@pytest.mark.parametrize(
    "piece",
    [
        b'<li class="product"><a href="/p/%d"><b>A</b> name</a> <code>x</code></li>\n',
        b"<p title='a > b'>%d <i class=\"fa fa-x\"></i><a href='/x?a=1&b=%d'>x</a>",
        b'<svg viewBox="0 0 1 1"><title>Icon</title><path d="M0 0"/></svg><p>%d',
        b"<math><mrow><mi>x</mi><mo>=</mo><mn>%d</mn></mrow></math>",
        b"<script>if (a < b) { c('<p title=\"' + %d + '\">') }</script><p>",
        b"<select name=s><option value=1 selected>one<option>%d</select>",
        b"<!-- <i> it's %d --><p>text</p><br/>",
        b"<TABLE><TR><TD><FONT COLOR=red>%d</FONT></TABLE>",
        b'<style>a > b { x: y }</style><div data-x=\'{"a": "<b>%d</b>"}\'>x</div>',
    ],
)
def test_honest_pages_are_parsed(piece: bytes) -> None:
    pieces = b"".join(piece.replace(b"%d", b"%d" % n) for n in range(400))
    page = b"<!doctype html><html><head><title>T</title></head><body>" + pieces + b"x" * TREE_BYTES_MAX
    assert fits(page)
    assert nodes_of(page) <= page.count(b"<") + 100


def test_what_is_small_is_parsed_whatever_it_has() -> None:
    assert fits(b"<b" + b" a" * 1_000 + b"><p>" * 10)


@given(st.lists(st.sampled_from(PIECES), max_size=20), st.lists(st.sampled_from(PIECES), min_size=1, max_size=8))
def test_what_is_parsed_does_not_grow(before: list[bytes], repeated: list[bytes]) -> None:
    begun = b"".join(before).replace(b"%d", b"0")
    page = begun + many(b"".join(repeated)) + b"<p>" * TREE_TAGS_MAX
    if fits(page):
        elements = LexborHTMLParser(page).css("*")
        assert len(elements) <= NODES_MAX
        assert max(len(element.attributes) for element in elements) <= ATTRIBUTES_MAX
