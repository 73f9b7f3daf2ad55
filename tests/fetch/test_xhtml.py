from __future__ import annotations

import pytest

from dhtcrawl.crawl.analysis import analyse
from dhtcrawl.fetch.links import extract


def hrefs_of(page: str) -> list[str]:
    return extract(page, xhtml=True).hrefs


@pytest.mark.parametrize("name", ["script", "style", "title", "textarea", "iframe", "xmp", "plaintext"])
def test_an_empty_element_hides_nothing(name: str) -> None:
    assert hrefs_of(f'<html><{name} x="/"/><a href="x"/></html>') == ["x"]


def test_the_media_type_decides_whether_a_page_is_xml() -> None:
    page = b'<html><script src="a.js"/><a href="x">x</a></html>'
    for media_type, hrefs in (("application/xhtml+xml; charset=utf-8", ["x"]), ("text/html", [])):
        found = analyse("http://h/", 200, [("content-type", media_type)], page, html_bytes_max=1 << 20)
        assert found.hrefs == hrefs


def test_comments_sections_instructions_and_the_document_type_hold_no_links() -> None:
    page = (
        '<?xml version="1.0"?><!DOCTYPE html PUBLIC "a>b" "c" [<!ENTITY e "<a href=\'no\'/>"> <!-- \' ]> -->]>'
        '<html><!-- > <a href="no"/> --><![CDATA[ > <a href="no"/> ]]]><?x > <a href="no"/> ?>&e;<a href="x"/></html>'
    )
    assert hrefs_of(page) == ["x"]


def test_names_are_compared_as_written_and_without_prefix() -> None:
    assert hrefs_of('<h:a href="x"/><A href="no"/><a HREF="no"/><a xml:base="/y/" href="z"/><abbr href="no"/>') == [
        "x", "z",
    ]  # fmt: skip


def test_only_whole_references_count() -> None:
    assert hrefs_of("<a href='?&#" + "9" * 5_000 + ";&#x" + "9" * 5_000 + ";'/>") == ["?\ufffd\ufffd"]
    assert hrefs_of("<a href='?a&amp;b&#x26;&copy=1&nbsp;&nosuch;&lt'/>") == ["?a&b&&copy=1\xa0&nosuch;&lt"]


def test_nothing_is_expanded_that_a_document_declares() -> None:
    page = '<!DOCTYPE html [<!ENTITY a "xx"><!ENTITY b "&a;&a;">]><html><a href="&b;"/></html>'
    assert hrefs_of(page) == ["&b;"]


@pytest.mark.parametrize(
    "broken",
    ['<p title="x>', "<p title=x>", "<p>1 < 2 & 3</b></p>", "<b", "</", "<p x y=>", "<>", "]]>", "&nosuch;", "<a:>"],
)
def test_a_page_that_is_not_well_formed_still_has_its_links(broken: str) -> None:
    assert hrefs_of(f'<html><a href="x"/>{broken}<a href="y"/></html>') == ["x", "y"]


def test_head_and_title_are_read_as_in_html() -> None:
    found = extract(
        '<html><svg><title>Icon</title></svg><head><title/><title>A &amp; <![CDATA[<b>]]>\n</title>'
        '<base href="/b/"/><meta name="robots" content="nofollow"/></head><a rel="nofollow" href="x"/></html>',
        xhtml=True,
    )  # fmt: skip
    assert (found.title, found.base, found.nofollow_for, found.nofollow) == (
        "A & <b>",
        "/b/",
        frozenset(("robots",)),
        ["x"],
    )
