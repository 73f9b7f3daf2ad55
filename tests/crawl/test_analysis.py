"""What an exchange says, from its head and its body as they came."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.crawl.analysis import Analysis, analyse

URL = "http://a/dir/page"
HTML = ("content-type", "text/html; charset=utf-8")


def look(
    body: bytes, *headers: tuple[str, str], status: int = 200, html_bytes_max: int = 1 << 20, url: str = URL
) -> Analysis:
    return analyse(url, status, headers, body, html_bytes_max=html_bytes_max)


def test_a_page_has_type_charset_title_and_links() -> None:
    found = look(b"<title>A  page</title><a href=x>1</a><a href=y rel=nofollow>2</a>", HTML)
    assert found == Analysis("text/html", "utf-8", "A page", URL, ["x"], ["y"])


def test_links_are_relative_to_the_base_element() -> None:
    assert look(b"<base href='../deep/'><a href=x>", HTML).base == "http://a/deep/"
    assert look(b"<base href='mailto:x'><a href=x>", HTML).base == URL


def test_a_meta_refresh_is_a_link_and_meta_nofollow_speaks_for_all() -> None:
    page = b"<meta http-equiv=refresh content='0; url=/next'><a href=x>"
    assert look(page, HTML).hrefs == ["x", "/next"]
    shy = b"<meta name=robots content=nofollow><a href=x><a href=y rel=nofollow>"
    assert (look(shy, HTML).hrefs, look(shy, HTML).nofollow) == ([], ["x", "y"])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_leads_to_its_location_and_nowhere_else(status: int) -> None:
    found = look(b"<a href=x>", HTML, ("location", "/there"), status=status)
    assert (found.redirect, found.hrefs) == ("/there", [])


@pytest.mark.parametrize("status", [300, 304, 302])
def test_without_a_location_there_is_no_redirect(status: int) -> None:
    assert look(b"", status=status).redirect is None


@pytest.mark.parametrize("status", [400, 404, 410, 500, 503, 199])
def test_an_error_page_has_no_links(status: int) -> None:
    assert look(b"<title>x</title><a href=x>", HTML, status=status).hrefs == []


@pytest.mark.parametrize("kind", ["text/plain", "image/png", "application/json", "application/pdf"])
def test_what_says_it_is_no_html_is_none(kind: str) -> None:
    assert look(b"<!doctype html><a href=x>", ("content-type", kind)).hrefs == []


def test_without_a_type_the_body_decides() -> None:
    assert look(b"<!doctype html><a href=x>").hrefs == ["x"]
    assert look(b"\x89PNG\r\n\x1a\n<a href=x>").hrefs == []


def test_a_compressed_body_is_read_up_to_the_limit() -> None:
    page = gzip.compress(b"<a href=near>" + b" " * 10_000 + b"<a href=far>")
    coded = ("content-encoding", "gzip")
    assert look(page, HTML, coded).hrefs == ["near", "far"]
    assert look(page, HTML, coded, html_bytes_max=5_000).hrefs == ["near"]


def test_a_long_body_is_read_up_to_the_limit() -> None:
    page = b"<a href=near>" + b" " * 10_000 + b"<a href=far>"
    assert look(page, HTML, html_bytes_max=5_000).hrefs == ["near"]


def test_a_body_that_does_not_decode_is_an_error_and_keeps_what_came() -> None:
    page = gzip.compress(b"<a href=near>" + bytes(range(256)) * 400)[:-40]
    found = look(page, HTML, ("content-encoding", "gzip"))
    assert found.error is not None
    assert found.hrefs == ["near"]


def test_the_charset_may_stand_in_the_header_or_in_the_page() -> None:
    latin = "<title>café</title>".encode("latin-1")
    assert look(latin, ("content-type", "text/html; charset=iso-8859-1")).title == "café"
    assert look(b"<meta charset=iso-8859-1>" + latin, ("content-type", "text/html")).title == "café"


HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["content-type", "content-encoding", "location", "x"]),
        st.one_of(
            st.sampled_from(["text/html", "gzip", "br", "zstd", "deflate", "gzip, gzip", ""]), st.text(max_size=20)
        ),
    ),
    max_size=4,
)


@settings(deadline=None)
@given(status=st.integers(100, 999), headers=HEADERS, body=st.binary(max_size=200))
def test_no_response_whatever_raises(status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    found = analyse(URL, status, headers, body, html_bytes_max=1000)
    assert found.base.startswith("http")
