"""Pages that may be parsed have trees that are bounded; honest pages may be parsed, whatever their size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turbohtml import Document, parse

from dhtcrawl.extract.page_tree import (
    BYTES_MAX,
    FREE_BYTES_MAX,
    FREE_TAGS_MAX,
    NODES_MAX,
    TAGS_MAX,
    may_be_parsed,
    tree_of,
)

ATTRIBUTES = b" ".join(b"a%d" % n for n in range(140))

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
    """So often that the page has too many tags to have a tree whatever it has; with other values each time."""
    return b"".join(piece.replace(b"%d", b"%d" % n) for n in range(FREE_TAGS_MAX + 10))


def tree(page: bytes) -> Document | None:
    return tree_of(page, page.count(b"<"))


def nodes_of(found: Document) -> int:
    count = found.xpath("count(//node())")
    assert isinstance(count, float)
    return int(count)


LARGE = b"x" * FREE_BYTES_MAX


@pytest.mark.parametrize(
    "page",
    [
        b"<p>" + many(b"<b x=%d>") + b"<p>x" * 2_000,
        many(b"<b x='%d>'>") + b"<p>x" * 2_000,
        many(b'<b x=">%d">') + b"<p>x" * 2_000,
        many(b'<b y=\'"\' x=">%d">') + b"<p>x" * 2_000,
        many(b"<B X=%d>").swapcase() + b"<p>x" * 2_000,
        many(b"<b x=A><b x=a><i x=%d>") + b"<p>x" * 2_000,
        LARGE + b"<b" + many(b" a%d") + b">",
        LARGE + b"<p><body" + many(b" a%d") + b">",
        LARGE + b"<p><BODY" + many(b' a="%d"') + b">",
        LARGE + b'<b x=a" y=">"' + many(b' a%d=">"') + b">",
        b"<p>" * (TAGS_MAX + 1),
        many(b"<body a%d>"),
        many(b"<html/a%d>"),
        many(b"<p>") + b"<body a>" * 5,
        b'<p><b title="' + b"x" * 400_000 + b'">' + b"<p>y" * 5_000,
        b"x" * (BYTES_MAX + 1),
        b"<select><button>" + b"<SelectedContent>" * 500 + b"</button><option selected>" + b"<i>x</i>" * 500,
    ],
)
def test_what_could_grow_is_not_parsed(page: bytes) -> None:
    assert not may_be_parsed(page, page.count(b"<"))
    assert tree(page) is None


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
    found = tree(b"<!doctype html><html><head><title>T</title></head><body class=a>" + pieces + LARGE)
    assert found is not None
    assert len(found.select("*")) <= pieces.count(b"<") + 100


@pytest.mark.parametrize(
    "page",
    [
        b"<p>" + b"".join(b"<b x=%d>" % n for n in range(512)) + b"<p>x" * (FREE_TAGS_MAX - 513),
        b"<p>" + b"".join(b"<b x=%d>" % n for n in range(FREE_TAGS_MAX // 2)) + b"<p>x" * (FREE_TAGS_MAX // 2 - 1),
        b"<table>" + b"".join(b"<i x=%d>" % n for n in range(FREE_TAGS_MAX // 3)) + b"<tr>x" * FREE_TAGS_MAX,
        b"".join(b"<body x%d>" % n for n in range(FREE_TAGS_MAX)),
        b"<b>" * (FREE_TAGS_MAX // 4) + b"<div>" * (FREE_TAGS_MAX // 4) + b"</b>" * (FREE_TAGS_MAX // 2),
    ],
)
def test_what_has_few_tags_grows_so_far_whatever_they_are(page: bytes) -> None:
    page = b"<".join(page.split(b"<")[: FREE_TAGS_MAX + 1])
    found = tree(page)
    assert found is not None
    assert nodes_of(found) <= NODES_MAX


def test_an_index_of_very_many_links_has_a_tree() -> None:
    entry = b'<dt>word %d, <a class="indexterm" href="page-%d.html">Section</a></dt>'
    index = b"<dl>" + b"".join(entry.replace(b"%d", b"%d" % n) for n in range(3_500)) + b"</dl>"
    found = tree(index)
    assert found is not None
    assert len(found.select("dt > a")) == 3_500


def test_nothing_is_nested_deeper_than_reckoned_with() -> None:
    found = tree(b"<div>" * FREE_TAGS_MAX)
    assert found is not None
    assert len(found.select("div")) == FREE_TAGS_MAX
    assert max(len(list(node.ancestors)) for node in found.select("div")) <= 513


@given(st.lists(st.sampled_from(PIECES), max_size=20), st.lists(st.sampled_from(PIECES), min_size=1, max_size=8))
def test_what_is_parsed_does_not_grow(before: list[bytes], repeated: list[bytes]) -> None:
    begun = b"".join(before).replace(b"%d", b"0")
    found = tree(begun + many(b"".join(repeated)) + b"<p>" * FREE_TAGS_MAX)
    if found is not None:
        assert nodes_of(found) <= NODES_MAX


@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_the_tree_is_that_of_the_page_as_text(pieces: list[bytes]) -> None:
    page = b"".join(pieces)
    found = tree(page)
    assert found is not None
    assert found.html == parse(page.decode(), allow_declarative_shadow_roots=False).html
