"""The links of a page's tree are those that are found without it, and all that it says of itself is the same."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from fetch.test_links_conformance import DROPPING, cases, drawn, told

from dhtcrawl.extract.page_tree import tree_of
from dhtcrawl.extract.tree_links import links_in
from dhtcrawl.fetch.links import PageLinks, extract


def of_tree(page: bytes) -> PageLinks | None:
    tree = tree_of(page, page.count(b"<"))
    return None if tree is None else links_in(tree)


@pytest.mark.parametrize(
    "page",
    [
        b"<title> a\n b</title><base href=' /b '><base href=/c><a href=' x '>1</a><a href=x>2</a><a>3</a><a href>4</a>",
        b"<a href=#x>1</a><a href=' JavaScript:x'>2</a><a href=mailto:x>3</a><a href=data>4</a><a href=tel:1>5</a>",
        b"<a href=x rel='a NoFollow'>1</a><a href=y>2</a><a href=x>3</a><a href=z rel=nofollow>4</a>",
        b"<a href=x>1</a><area href=y><iframe src=z></iframe><a href=w>2</a>",
        b"<frameset><frame src=x></frameset>",
        b"<meta http-equiv=refresh content='0;/x'><meta name=robots content=nofollow><a href=y>1</a>",
        b"<noscript><meta http-equiv=refresh content='0;/x'></noscript><meta http-equiv=refresh content='5;/y'>",
        b"<svg><title>no</title><a href=x>1</a></svg><title>yes</title>",
        b"<p>&amp; <a href='?a=1&amp;b=2&copy=3'>1</a>",
        b"",
    ],
)
def test_they_are_found_as_without_a_tree(page: bytes) -> None:
    assert of_tree(page) == extract(page)


def test_what_stands_in_a_template_is_not_said_of_the_page() -> None:
    assert of_tree(b"<template><title>no</title></template><a href=x>1</a>") is None


def test_they_are_the_same_on_pages_that_nobody_should_write(conformance_dir: Path) -> None:
    pages = [page for page, _ in cases(conformance_dir)]
    compared = 0
    for page in (*pages, *islice(drawn(pages), 3_000), *islice(drawn([]), 3_000)):
        found = of_tree(page)
        if found is not None and not DROPPING.search(page):
            compared += 1
            expected = extract(page)
            assert {*found.hrefs, *found.nofollow} == {*expected.hrefs, *expected.nofollow}, page
            assert told(found) == told(expected), page
    assert compared > 4_000
