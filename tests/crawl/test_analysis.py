"""What an exchange says, from its head and its body as they came."""

from __future__ import annotations

import gzip

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.crawl.analysis import (
    NOWHERE,
    Analysis,
    LongPage,
    PageLink,
    PageRecords,
    Unparsed,
    analyse,
    page_html,
    page_links,
)
from dhtcrawl.fetch.links import LINKS_MAX
from dhtcrawl.url import URL_CHARS_MAX

URL = "http://a/dir/page"
HTML = ("content-type", "text/html; charset=utf-8")


def look(
    body: bytes, *headers: tuple[str, str], status: int = 200, html_bytes_max: int = 1 << 20, url: str = URL
) -> Analysis:
    return analyse(url, status, headers, body, html_bytes_max=html_bytes_max, token="dhtcrawl")


def test_a_page_has_type_charset_title_and_links() -> None:
    found = look(b"<title>A  page</title><a href=x>1</a><a href=y rel=nofollow>2</a>", HTML)
    assert found == Analysis("text/html", "utf-8", "A page", URL, ["x"], ["y"])


def test_links_are_relative_to_the_base_element() -> None:
    assert look(b"<base href='../deep/'><a href=x>", HTML).base == "http://a/deep/"
    assert look(b"<base href='mailto:x'><a href=x>", HTML).base == URL


def test_a_meta_refresh_is_a_link_and_meta_nofollow_speaks_for_all() -> None:
    page = b"<meta http-equiv=refresh content='0; url=/next'><a href=x>"
    assert look(page, HTML).hrefs == ["x", "/next"]
    assert look(b"<meta http-equiv=refresh content='9; url=/more'>" + page, HTML).hrefs == ["x", "/more", "/next"]
    for name, forbidden in ((b"robots", True), (b"DhtCrawl", True), (b"otherbot", False), (b"description", False)):
        shy = b"<meta name=%b content=nofollow><a href=x><a href=y rel=nofollow>" % name
        assert (look(shy, HTML).hrefs, look(shy, HTML).nofollow) == (([], ["x", "y"]) if forbidden else (["x"], ["y"]))


@pytest.mark.parametrize(
    ("value", "shy"),
    [
        ("nofollow", True),
        ("None", True),
        ("noindex, NoFollow", True),
        ("noindex nofollow", True),
        ("dhtcrawl: nofollow", True),
        ("robots: noindex, nofollow", True),
        ("other: noindex, dhtcrawl: nofollow", True),
        ("unavailable_after: Wed, 25 Jun 2010 15:00:00 GMT, nofollow", True),
        ("max-snippet: 50, nofollow", True),
        ("", False),
        ("noindex", False),
        ("all", False),
        ("other: noindex, nofollow", False),
        ("dhtcrawl: noindex, other: nofollow", False),
        ("xnofollow", False),
    ],
)
def test_an_x_robots_tag_speaks_for_all_links_as_its_meta_does(value: str, shy: bool) -> None:
    def without_parser(html: bytes, charset: str) -> Unparsed:
        return Unparsed(b"", [], [], [])

    headers, page = [HTML, ("x-robots-tag", "noarchive"), ("x-robots-tag", value)], b"<a href=x><a href=y rel=nofollow>"
    found = look(page, *headers)
    assert (found.hrefs, found.nofollow) == (([], ["x", "y"]) if shy else (["x"], ["y"]))
    found = analyse(URL, 200, headers, page, html_bytes_max=1_000, token="dhtcrawl", without_parser=without_parser)
    assert (found.unparsed is None) == shy


def test_a_refresh_header_is_a_link_of_any_response_relative_to_its_url() -> None:
    refresh = ("refresh", "0; url=/next")
    found = look(b"<base href=http://b/><a href=x>", HTML, refresh)
    assert (found.base, found.hrefs) == ("http://b/", ["x", "http://a/next"])
    for kind, body in ((HTML, b""), (("content-type", "text/plain"), b"x")):
        assert (look(body, kind, refresh).base, look(body, kind, refresh).hrefs) == (URL, ["http://a/next"])
    assert look(b"<a href=x>", HTML, ("refresh", "5"), ("refresh", "1; #top"), ("refresh", "1; y")).hrefs == [
        "x", "http://a/dir/y",
    ]  # fmt: skip
    assert look(b"", HTML, refresh, status=404).hrefs == []
    choices = page_links(URL, 200, [HTML, refresh], b"<base href=http://b/><a href=x>", html_bytes_max=1_000)
    assert choices == [PageLink("http://a/next", "meta-refresh", ""), PageLink("http://b/x", "a", "")]


def test_a_page_with_a_refresh_header_is_parsed_as_its_links_are_more_than_its_tags() -> None:
    def without_parser(html: bytes, charset: str) -> Unparsed:
        return Unparsed(b"", [], [], [])

    for more, unparsed in ((("refresh", "0;y"), False), (("x", "0;y"), True)):
        found = analyse(URL, 200, [HTML, more], b"<a href=x>", html_bytes_max=1_000, without_parser=without_parser)
        assert (found.unparsed is not None) == unparsed


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_leads_to_its_location_and_nowhere_else(status: int) -> None:
    found = look(b"<a href=x>", HTML, ("location", "/there"), status=status)
    assert (found.redirect, found.hrefs) == ("/there", [])


def test_of_different_locations_none_is_followed_and_the_page_says_why() -> None:
    found = look(b"", ("location", "/a"), ("location", "/b"), ("location", "/a"), status=301)
    assert (found.redirect, found.error) == (None, "2 different Location headers, none is followed")
    assert look(b"", ("location", "/a"), ("location", "/a"), status=301).redirect == "/a"


def test_no_fragment_makes_a_location_too_long() -> None:
    found = look(b"", ("location", "/there#" + "x" * URL_CHARS_MAX), status=302)
    assert (found.redirect, found.error) == ("/there", None)
    assert look(b"", ("location", "/" + "x" * URL_CHARS_MAX), status=302).error == NOWHERE


def test_the_last_content_type_says_what_a_page_is() -> None:
    page = "<a href=x>é".encode("latin-1")
    for types, hrefs, charset in (
        (["text/plain", "text/html; charset=koi8-r"], ["x"], "koi8-r"),
        (["text/html; charset=koi8-r", "text/html"], ["x"], "koi8-r"),
        (["text/html", "image/png"], [], None),
    ):
        found = look(page, *(("content-type", each) for each in types))
        assert (found.hrefs, found.charset) == (hrefs, charset)


def test_codings_in_several_lines_are_undone_one_after_the_other() -> None:
    page = brotli.compress(gzip.compress(b"<a href=x>"))
    assert look(page, HTML, ("content-encoding", "gzip"), ("content-encoding", "br")).hrefs == ["x"]
    once = gzip.compress(b"<a href=x>")
    assert look(once, HTML, ("content-encoding", "gzip"), ("content-encoding", "gzip")).hrefs == ["x"]


def test_a_page_with_a_transfer_coding_or_coded_twice_has_its_links() -> None:
    once = gzip.compress(b"<a href=x>")
    for name in ("transfer-encoding", "x-archive-orig-transfer-encoding"):
        assert look(once, HTML, (name, "gzip, chunked")).hrefs == ["x"]
        assert look(b"<a href=x>", HTML, (name, "chunked")).error is None
    coded = ("content-encoding", "gzip")
    assert look(gzip.compress(once), HTML, coded, coded).hrefs == ["x"]
    told = look(b"<a href=x>", HTML, ("transfer-encoding", "deflate, chunked"))
    assert (told.hrefs, told.error) == (["x"], "transfer-encoding: 'deflate' is not undone")


@pytest.mark.parametrize("status", [300, 302, 304, 305, 306, 399])
def test_without_a_location_there_is_no_redirect_and_the_page_says_so(status: int) -> None:
    found = look(b"", status=status)
    assert (found.redirect, found.error) == (None, NOWHERE)


@pytest.mark.parametrize("status", [304, 305, 306, 399])
def test_what_is_no_redirect_here_leads_nowhere_whatever_its_location(status: int) -> None:
    found = look(b"<a href=x>", HTML, ("location", "/there"), status=status)
    assert (found.redirect, found.hrefs, found.error) == (None, [], NOWHERE)


def test_choices_without_a_location_are_the_links_of_the_page() -> None:  # RFC 9110, 15.4.1
    found = look(b"<title>Two</title><a href=x><a href=y>", HTML, status=300)
    assert (found.redirect, found.hrefs, found.title, found.error) == (None, ["x", "y"], "Two", None)
    assert look(b"{}", ("content-type", "application/json"), status=300).error == NOWHERE
    choices = page_links(URL, 300, [HTML], b"<a href=x>", html_bytes_max=1_000)
    assert choices == [PageLink("http://a/dir/x", "a", "")]
    chosen = page_links(URL, 300, [HTML, ("location", "/z")], b"<a href=x>", html_bytes_max=1_000)
    assert chosen == [PageLink("http://a/z", "redirect", "")]


def test_records_are_those_of_2xx_pages() -> None:
    asked: list[bytes] = []

    def find(html: bytes, charset: str) -> PageRecords:
        asked.append(html)
        return PageRecords("[]", None, None)

    for status in (200, 300):
        found = analyse(URL, status, [HTML], b"<a href=x>", html_bytes_max=1_000, find_records=find)
        assert found.hrefs == ["x"]
    assert asked == [b"<a href=x>"]


@pytest.mark.parametrize("status", [400, 404, 410, 500, 503, 199])
def test_an_error_page_has_no_links(status: int) -> None:
    assert look(b"<title>x</title><a href=x>", HTML, status=status).hrefs == []


@pytest.mark.parametrize("kind", ["text/plain", "image/png", "application/json", "application/pdf"])
def test_what_says_it_is_no_html_is_none(kind: str) -> None:
    assert look(b"<!doctype html><a href=x>", ("content-type", kind)).hrefs == []


def test_without_a_type_the_body_decides() -> None:
    assert look(b"<!doctype html><a href=x>").hrefs == ["x"]
    assert look(b"\x89PNG\r\n\x1a\n<a href=x>").hrefs == []


@pytest.mark.parametrize("kind", ["*/*", "unknown/unknown", "application/unknown"])
def test_a_type_that_says_nothing_counts_as_none(kind: str) -> None:  # MIME Sniffing, 7
    found = look(b"<!doctype html><a href=x>", ("content-type", kind))
    assert (found.hrefs, found.content_type) == (["x"], "text/html")
    other = look(b"\x89PNG\r\n\x1a\n<a href=x>", ("content-type", kind))
    assert (other.hrefs, other.content_type) == ([], kind)


def test_a_compressed_body_is_read_up_to_the_limit() -> None:
    page = gzip.compress(b"<a href=near>" + b" " * 10_000 + b"<a href=far>")
    coded = ("content-encoding", "gzip")
    assert look(page, HTML, coded).hrefs == ["near", "far"]
    assert look(page, HTML, coded).error is None
    found = look(page, HTML, coded, html_bytes_max=5_000)
    assert (found.hrefs, found.error) == (["near"], TOO_LONG)
    # The rest of the body is not even decoded.
    noise = gzip.compress(b"<a href=near>" + bytes(range(256)) * 40, compresslevel=0)
    found = look(noise, HTML, coded, html_bytes_max=5_000)
    assert (found.hrefs, found.error) == (["near"], TOO_LONG)


TOO_LONG = "only the first 5000 bytes (fetch.html_bytes_max) were read for links"


def test_a_long_body_is_read_up_to_the_limit_and_says_so() -> None:
    page = b"<a href=near>" + b" " * 10_000 + b"<a href=far>"
    found = look(page, HTML, html_bytes_max=5_000)
    assert (found.hrefs, found.error) == (["near"], TOO_LONG)
    assert look(page, HTML, html_bytes_max=len(page)).error is None
    assert look(b"\x89PNG" + page, html_bytes_max=5_000).error is None
    assert look(page, HTML, ("location", "/x"), status=302, html_bytes_max=5_000).error is None


def test_a_page_with_too_many_tags_says_so() -> None:
    page = b"<a href=x>" * (LINKS_MAX + 1)
    assert look(page, HTML).error == "only the first 100000 tags were read for links"
    assert look(page[10:], HTML).error is None


def test_a_body_that_does_not_decode_is_an_error_and_keeps_what_came() -> None:
    page = gzip.compress(b"<a href=near>" + bytes(range(256)) * 400)[:-40]
    found = look(page, HTML, ("content-encoding", "gzip"))
    assert found.error is not None
    assert found.hrefs == ["near"]


def test_the_charset_may_stand_in_the_header_or_in_the_page() -> None:
    latin = "<title>café</title>".encode("latin-1")
    assert look(latin, ("content-type", "text/html; charset=iso-8859-1")).title == "café"
    assert look(b"<meta charset=iso-8859-1>" + latin, ("content-type", "text/html")).title == "café"


def test_utf_8_may_begin_late() -> None:
    page = "<!doctype html>" + " " * 70_000 + "<a href='/é'>"
    found = look(page.encode(), ("content-type", "text/html"))
    assert (found.charset, found.hrefs) == ("utf-8", ["/é"])


# -- queries --


def test_a_query_is_in_the_charset_of_the_page() -> None:
    page = '<meta charset=shift_jis><a href="/s?q=日本">'.encode("shift_jis")
    found = look(page, ("content-type", "text/html"))
    assert (found.hrefs, found.query_charset) == (["/s?q=%93%FA%96%7B"], "shift_jis")
    assert look(page, HTML).query_charset is None, "HTTP says UTF-8"


@pytest.mark.parametrize(
    "link",
    [
        "<a href='?é'>",
        "<a href=?&eacute;>",
        "<area href=?é>",
        "<iframe src=?é></iframe>",
        "<meta http-equiv=refresh content='0; url=?é'>",
        "<svg><title/></svg>" + "<b></b>" * 1_100 + "<a href=?é>",
    ],
)
def test_each_kind_of_link_has_its_query_in_the_charset_of_the_page(link: str) -> None:
    found = look(link.encode("latin-1"), ("content-type", "text/html; charset=iso-8859-1"))
    assert (found.hrefs, found.query_charset) == (["?%E9"], "windows-1252")


def test_links_that_are_not_followed_and_the_base_have_their_queries_in_it_too() -> None:
    page = "<base href='/é?é'><a rel=nofollow href=?é&amp;x>".encode("latin-1")
    found = look(page, ("content-type", "text/html; charset=latin1"))
    assert (found.base, found.nofollow) == ("http://a/%C3%A9?%E9", ["?%E9&x"])
    shy = "<meta name=robots content=nofollow><a href=?é>".encode("latin-1")
    assert look(shy, ("content-type", "text/html; charset=latin1")).nofollow == ["?%E9"]
    alone = look("<base href=?é><a href=x>".encode("latin-1"), ("content-type", "text/html; charset=latin1"))
    assert (alone.base, alone.query_charset) == ("http://a/dir/page?%E9", "windows-1252")


def test_an_xhtml_page_has_its_queries_in_its_charset() -> None:
    page = '<?xml version="1.0" encoding="windows-1251"?><html><a href="?q=Я"/></html>'.encode("cp1251")
    assert look(page, ("content-type", "application/xhtml+xml")).hrefs == ["?q=%DF"]


@pytest.mark.parametrize("media_type", ["application/xml", "text/xml; charset=utf-8"])
def test_xhtml_has_its_links_also_where_it_is_served_as_xml(media_type: str) -> None:
    kind, root = ("content-type", media_type), b'<html xmlns="http://www.w3.org/1999/xhtml">'
    found = look(b"<?xml version='1.0'?>%b<title>T</title><script src='s'/><a href='x'/></html>" % root, kind)
    assert found == Analysis(media_type.partition(";")[0], "utf-8", "T", URL, ["x"])
    feed = look(b"<rss><a href='x'/></rss>", kind)
    assert (feed.charset, feed.hrefs) == (None, [])


SITEMAP = b"<urlset><url><loc>http://a/1</loc></url><url><loc> /2\n</loc></url></urlset>"


@pytest.mark.parametrize(
    ("url", "media_type", "packed"),
    [
        (URL, "application/xml", False), (URL, "text/xml", False), ("http://a/s.xml.gz", "application/gzip", True),
        ("http://a/S.XML.GZ?x", "application/x-gzip", True), ("http://a/s.xml.gz", "application/xml", True),
    ],
)  # fmt: skip
def test_a_sitemap_has_links_and_is_no_page_of_html(url: str, media_type: str, packed: bool) -> None:
    body = gzip.compress(SITEMAP) if packed else SITEMAP
    found = analyse(url, 200, [("content-type", media_type)], body, html_bytes_max=1_000)
    assert found == Analysis(media_type, base=url, hrefs=["http://a/1", "/2"])
    assert analyse(url, 404, [("content-type", media_type)], body, html_bytes_max=1_000).hrefs == []
    assert page_html(200, [("content-type", media_type)], body, html_bytes_max=1_000) is None


def test_what_a_sitemap_lists_is_not_followed_where_its_header_says_so() -> None:
    headers = [("content-type", "text/xml"), ("x-robots-tag", "nofollow"), ("refresh", "0; url=/3")]
    found = analyse(URL, 200, headers, SITEMAP, html_bytes_max=1_000)
    assert (found.hrefs, found.nofollow) == (["http://a/3"], ["http://a/1", "/2"])


def test_of_a_long_sitemap_the_beginning_is_read_and_that_is_told() -> None:
    headers = [("content-type", "text/xml")]
    found = analyse(URL, 200, headers, SITEMAP, html_bytes_max=len(SITEMAP) - 20)
    assert found.hrefs == ["http://a/1"]
    assert found.error == f"only the first {len(SITEMAP) - 20} bytes (fetch.html_bytes_max) were read for links"
    with pytest.raises(LongPage):
        analyse(URL, 200, headers, SITEMAP, html_bytes_max=1_000, here_bytes_max=50)
    whole = analyse(URL, 200, headers, SITEMAP, html_bytes_max=1_000, here_bytes_max=500)
    assert (len(whole.hrefs), whole.error) == (2, None)


def test_a_page_in_utf_16_is_known_by_its_xml_declaration() -> None:
    page = "<?xml version='1.0' encoding='utf-16'?><html><a href='x'>é</a></html>"
    for codec in ("utf-16-le", "utf-16-be"):
        for kind in ("text/html", "application/xhtml+xml"):
            assert look(page.encode(codec), ("content-type", kind)).hrefs == ["x"]


def test_an_xhtml_page_that_declares_none_is_in_utf_8_whatever_its_meta_says() -> None:
    kind = ("content-type", "application/xhtml+xml")
    found = look(b'<html><meta charset="windows-1251"/><a href="?q=&#233;"/></html>', kind)
    assert (found.charset, found.hrefs, found.query_charset) == ("utf-8", ["?q=é"], None)
    assert look(b'<html><a href="?q=&#233;"/></html>', kind).hrefs == ["?q=é"]


def test_a_page_that_says_nothing_of_its_charset_has_queries_as_it_is_read() -> None:
    assert look("<a href=?é>".encode("latin-1"), ("content-type", "text/html")).hrefs == ["?%E9"]
    assert look("<a href=?é>".encode(), ("content-type", "text/html")).hrefs == ["?é"]


@pytest.mark.parametrize(
    ("said", "codec"),
    [("utf-16le", "utf-16-le"), ("utf-16be", "utf-16-be"), ("utf-8", "utf-8"), ("no-such-charset", "utf-8")],
)
def test_on_these_pages_queries_are_in_utf_8(said: str, codec: str) -> None:
    found = look("<a href='?é'>".encode(codec), ("content-type", f"text/html; charset={said}"))
    assert (found.hrefs, found.query_charset) == (["?é"], None)


def test_a_page_that_browsers_refuse_to_decode_has_no_links() -> None:
    assert look(b"<a href=x>", ("content-type", "text/html; charset=iso-2022-kr")).hrefs == []


def test_the_location_of_a_redirect_is_in_no_charset_of_a_page() -> None:
    moved = look(b"", ("content-type", "text/html; charset=shift_jis"), ("location", "/s?q=日本"), status=302)
    assert (moved.redirect, moved.query_charset) == ("/s?q=日本", None)


def test_a_page_whose_queries_were_in_another_charset_keeps_that() -> None:
    page = "<a href=?é>".encode("latin-1")
    headers = [("content-type", "text/html; charset=latin1")]
    for before, href in (("utf-8", "?é"), ("windows-1251", "?%26%23233%3B"), ("none of this world", "?é")):
        assert analyse(URL, 200, headers, page, html_bytes_max=1_000, query_charset=before).hrefs == [href]


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["content-type", "content-encoding", "transfer-encoding", "location", "x"]),
        st.one_of(
            st.sampled_from(
                ["text/html", "text/html; charset=big5", "gzip", "br", "zstd", "deflate", "gzip, gzip", ""]
            ),
            st.text(max_size=20),
        ),
    ),
    max_size=4,
)


@given(status=st.integers(100, 999), headers=HEADERS, body=st.binary(max_size=200))
def test_no_response_whatever_raises(status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    found = analyse(URL, status, headers, body, html_bytes_max=1000)
    assert found.base.startswith("http")
