"""What a sitemap lists is found whatever its namespace and coding, and a document that is none lists nothing."""

from __future__ import annotations

import gzip
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.fetch.links import LINKS_MAX
from dhtcrawl.fetch.sitemap import LongSitemap, Sitemap, may_be_sitemap, sitemap_of

NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def listed(document: str | bytes, *, content_type: str = "application/xml", bytes_max: int = 10_000) -> Sitemap | None:
    raw = document if isinstance(document, bytes) else document.encode()
    return sitemap_of(content_type, [], raw, bytes_max=bytes_max)


def locs(document: str | bytes) -> list[str]:
    found = listed(document)
    assert found is not None
    assert (found.beyond, found.error) == (None, None)
    return found.locs


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (f"<urlset {NAMESPACE}><url><loc>http://a/</loc><lastmod>2005-01-01</lastmod></url></urlset>", ["http://a/"]),
        ("<sitemapindex><sitemap><loc>http://a/1.xml</loc></sitemap></sitemapindex>", ["http://a/1.xml"]),
        ("<?xml version='1.0'?><?xml-stylesheet href='s.xsl'?><!-- <loc>no</loc> --><urlset><loc>x</loc>", ["x"]),
        ("<urlset><loc>\n  http://a/?x=1&amp;y=2\n</loc></urlset>", ["http://a/?x=1&y=2"]),
        ("<urlset><loc><![CDATA[http://a/?x=1&y=2]]></loc></urlset>", ["http://a/?x=1&y=2"]),
        ("<urlset><loc>http://a/<!-- c -->b</loc></urlset>", ["http://a/b"]),
        ('<s:urlset xmlns:s="x"><s:loc>a</s:loc><loc>b</loc></s:urlset>', ["a"]),
        ("<urlset><image:loc>a</image:loc><loc>b</loc><video:player_loc>c</video:player_loc></urlset>", ["b"]),
        ("<urlset><loc/><loc></loc><loc> </loc><locale>a</locale></urlset>", []),
        ("<urlset><loc>a<b>c</b></loc><loc>d</loc></urlset>", ["d"]),
        ("<urlset><loc>a</loc><loc>http://a/cut off", ["a"]),
        ("<urlset><loc>a</loc><loc><![CDATA[http://a/cut", ["a"]),
        ("<urlset></urlset>", []),
        ("<urlset><loc>a&#" + "9" * 5_000 + ";b</loc></urlset>", ["a\ufffdb"]),
    ],
)
def test_what_stands_in_loc_is_listed_where_it_is_whole(document: str, expected: list[str]) -> None:
    assert locs(document) == expected


@pytest.mark.parametrize(
    "document",
    [
        "", "<rss><loc>a</loc></rss>", "<html><urlset><loc>a</loc></urlset></html>", "text <urlset><loc>a</loc>",
        "</urlset><loc>a</loc>", '{"loc": "a"}', "<!-- <urlset><loc>a</loc> -->",
    ],
)  # fmt: skip
def test_any_other_document_is_no_sitemap(document: str) -> None:
    assert listed(document) is None


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_it_is_read_in_its_charset(codec: str) -> None:
    said = f"<?xml version='1.0' encoding='{codec.removesuffix('-sig')}'?><urlset><loc>http://a/é</loc></urlset>"
    assert locs(said.encode(codec)) == ["http://a/é"]


def test_one_that_is_packed_is_unpacked_within_the_limit() -> None:
    entry, bytes_max = "<url><loc>http://a/</loc></url>", 1_000
    found = listed(gzip.compress(b"<urlset>" + entry.encode() * 100_000), bytes_max=bytes_max)
    assert found is not None
    assert len(found.locs) == (bytes_max - len("<urlset>")) // len(entry)
    assert (found.beyond, found.error) == ("1000 bytes (fetch.html_bytes_max)", None)


def test_of_one_whose_file_is_damaged_the_beginning_is_listed_and_the_damage_told() -> None:
    found = listed(gzip.compress(b"<urlset><loc>http://a/</loc></urlset>")[:-8])
    assert found is not None
    assert (found.locs, found.beyond, found.error) == (["http://a/"], None, "gzip: the stream ends too early")


def test_a_long_one_is_left_to_who_has_time_for_it_and_what_is_none_is_not() -> None:
    long = "<urlset>" + " " * 600
    with pytest.raises(LongSitemap):
        sitemap_of("text/xml", [], long.encode(), bytes_max=1_000, here_bytes_max=500)
    assert sitemap_of("text/xml", [], b"<rss>" + b" " * 600, bytes_max=1_000, here_bytes_max=500) is None


def test_no_more_is_taken_than_of_a_page() -> None:
    found = listed("<urlset>" + "<loc>a</loc>" * (LINKS_MAX + 1), bytes_max=10_000_000)
    assert found is not None
    assert (len(found.locs), found.beyond) == (LINKS_MAX, f"{LINKS_MAX} tags")


@given(st.lists(st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)))
def test_every_text_comes_back_as_it_was(texts: list[str]) -> None:
    assert locs("<urlset>" + "".join(f"<loc>{escape(text)}</loc>" for text in texts) + "</urlset>") == texts


@given(st.binary() | st.text().map(lambda text: b"<urlset>" + text.encode("utf-8", "replace")))
def test_no_bytes_raise(raw: bytes) -> None:
    listed(raw)


@pytest.mark.parametrize(
    ("media_type", "url", "expected"),
    [
        ("application/xml", "http://a/", True), ("text/xml", "http://a/", True), ("text/html", "http://a/s.xml", False),
        ("application/gzip", "http://a/s.xml.gz", True), ("application/gzip", "http://a/s.gz", False),
        ("application/octet-stream", "http://a/S.XML.GZ?v=1", True), ("", "http://a/s.xml.gz", True),
        ("binary/octet-stream", "http://a/s.xml.gz", True),
        ("image/png", "http://a/s.xml.gz", False), ("application/gzip", "http://a/?s.xml.gz", False),
    ],
)  # fmt: skip
def test_types_and_paths_say_what_is_worth_reading(media_type: str, url: str, expected: bool) -> None:
    assert may_be_sitemap(media_type, url) is expected
