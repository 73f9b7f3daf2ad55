"""Index lines, held against those of cdxj-indexer and the `surt` package."""

from __future__ import annotations

from pathlib import Path

import pytest
import surt as reference  # type: ignore[import-untyped]
from hypothesis import example, given, settings
from hypothesis import strategies as st
from storage.warcs import DATE, NAME, archive, item, tool

from dhtcrawl.storage.outputs.cdxj import line, surt
from dhtcrawl.url import canonicalize

URLS = (
    "http://example.org/",
    "https://www.Example.org/",
    "http://www12.example.co.uk/UPPER/Case/",
    "http://example.org:8080/a?b=2&a=1&c&a=0&=",
    "https://example.org:443/?",
    "https://example.org:8443/x?Q=%C3%BC&q=a%20b+c#fragment",
    "http://127.0.0.1:8000/index.html",
    "http://[2001:db8::1]/",
    "https://[::1]:8443/?z&y",
    "http://bücher.example/ü",
    "http://example.org//double//slash/",
    "http://example.org/a%252e%252e/%2525/b%23c%3Fd?x=%26",
    "http://example.org/shop?a=1&PHPSESSID=0123456789abcdef0123456789ABCDEF&b=2",
    "http://example.org/?cfid=1&cftoken=2&b",
    "http://example.org/(S(0123456789abcdefghijklmn))/page.aspx?(",
)

PIECES = (
    *"/?&=.:;%#@()-_~!$*'[]|^`\"<> aZ09é",
    *("www.", "..", "%25", "%2e", "%2F", "//", "/./", "/../", "%2525"),
    *("sid=", "jsessionid=", "phpsessid=", "cfid=", "cftoken=", "0123456789abcdef" * 2),
    *("aspsessionidabcdefgh=abcdefghijklmnopqrstuvwx", "(S(0123456789abcdefghijklmn))", ".aspx"),
    *("/(0123456789abcdefghijklmn)/", "/(S(0123456789abcdefghijklmn)F(0123456789abcdefghijklmn))/"),
)
HOSTS = ("e.com", "www.e.com", "WWW12.e.co.uk", "127.0.0.1", "[::1]", "a..b", "x.", "www.", "www", "-", "e_f.g")


def test_a_key_begins_with_the_host_turned_round() -> None:
    assert surt("https://www.example.org:8443/A/B/?b=2&a=1") == "org,example:8443)/a/b?a=1&b=2"


def test_a_url_that_is_none_is_its_own_key() -> None:
    for url in ("", "mailto:a@b", "http://example.org", "http://./", "http://u@h/"):
        assert surt(url) == url


@settings(max_examples=500)
@given(
    scheme=st.sampled_from(("http", "https")),
    host=st.sampled_from(HOSTS),
    port=st.sampled_from(("", ":80", ":443", ":8080", ":0")),
    rest=st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
)
@example(scheme="http", host="e.com", port="", rest="?a=1&xsid=" + "0" * 32 + "&b=2&")
@example(scheme="http", host="e.com", port="", rest="?cfid=cfid=1&cftoken=2&z")
def test_every_canonical_url_has_the_key_that_other_tools_give_it(scheme: str, host: str, port: str, rest: str) -> None:
    url = canonicalize(f"{scheme}://{host}{port}/{rest}")
    if url is not None:
        assert surt(url) == reference.surt(url)


@given(st.text(max_size=40) | st.text("%25e3/:?&=.", max_size=40).map("http://h/".__add__))
def test_no_text_whatever_raises(text: str) -> None:
    assert isinstance(surt(text), str)


def test_escapes_within_escapes_are_resolved_in_one_pass() -> None:
    # A pass for each level would be quadratic: 4,000 times over 8,000 bytes.
    assert surt("http://e.com/" + "%" * 4000 + "3" * 4000 + "2") == "com,e)/2"


@pytest.mark.parametrize(
    ("content_type", "mime"),
    [("text/html; charset=x", "text/html"), ("TEXT/HTML;x", "TEXT/HTML"), ("a b", "a"), ("", ""), (None, None)],
)
def test_our_index_is_the_one_that_cdxj_indexer_makes(
    tmp_path: Path, content_type: str | None, mime: str | None
) -> None:
    header = b"" if content_type is None else b"Content-Type: " + content_type.encode() + b"\r\n"
    items = []
    for number, raw in enumerate(URLS):
        url = canonicalize(raw)
        assert url is not None
        head = b"HTTP/1.1 %d Whatever\r\n%b\r\n" % (200 + number, header)
        items.append(item(url, b"body %d" % number, head=head, number=number))
    directory, written = archive(*items)
    path = tmp_path / NAME
    path.write_bytes(directory.files[NAME])
    ours = [
        line(
            url=one.url,
            date=DATE,
            content_type=content_type,
            status=200 + number,
            digest=where.payload_digest,
            length=where.length,
            offset=where.offset,
            filename=NAME,
        )
        for number, (one, where) in enumerate(zip(items, written, strict=True))
    ]
    assert "".join(sorted(ours)) == tool("cdxj-indexer", "--sort", path)
    assert mime is None or f'"mime": "{mime}"' in ours[0]
