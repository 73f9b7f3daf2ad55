"""Queries of links in the charset of their page, as browsers send them but for which octets are escaped."""

from __future__ import annotations

from html import unescape
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st
from webencodings.labels import LABELS

from dhtcrawl.encodings import decode
from dhtcrawl.query_charset import ENCODED_CHARS_MAX, encode_query, in_charset
from dhtcrawl.url import URL_CHARS_MAX, canonicalize

LEGACY = sorted(set(LABELS.values()) - {"utf-8", "utf-16le", "utf-16be", "replacement"})
BIG5_DOT = b"\xa1E"
BASE = "http://a.example/dir/page"


def sent(link: str, charset: str) -> str:
    """Path and query of the request."""
    url = canonicalize(encode_query(link, charset), BASE)
    assert url is not None
    return url.removeprefix("http://a.example")


@pytest.mark.parametrize(
    ("charset", "link", "request_target"),
    [
        ("shift_jis", "/s?q=日本", "/s?q=%93%FA%96%7B"),
        ("shift_jis", "?q=ソニー～－①", "/dir/page?q=%83%5C%83j%81%5B%81%60%81%7C%87%40"),
        ("euc-jp", "/s?q=日本", "/s?q=%C6%FC%CB%DC"),
        ("euc-jp", "?q=ｱ㈱", "/dir/page?q=%8E%B1%AD%EA"),
        ("iso-2022-jp", "/s?q=日本&x", "/s?q=%1B%24BF%7CK%5C%1B%28B&x"),
        ("gbk", "/s?q=北京€", "/s?q=%B1%B1%BE%A9%80"),
        ("gb18030", "/s?q=北京€😀", "/s?q=%B1%B1%BE%A9%A2%E3%949%FC6"),
        ("big5", "/s?q=台北", "/s?q=%A5x%A5_"),
        ("big5", f"/s?q={decode(BIG5_DOT, 'big5')}‧", "/s?q=%A1E%A1E"),  # read as another dot
        ("euc-kr", "/s?q=서울똠", "/s?q=%BC%AD%BF%EF%8Cc"),
        ("windows-1251", "/s?q=Москва", "/s?q=%CC%EE%F1%EA%E2%E0"),
        ("koi8-r", "/s?q=Москва", "/s?q=%ED%CF%D3%CB%D7%C1"),
        ("windows-1252", "/s?q=café €", "/s?q=caf%E9%20%80"),
        ("x-user-defined", "/s?q=\uf7e9", "/s?q=%E9"),
    ],
)
def test_a_query_is_sent_in_the_charset_of_its_page(charset: str, link: str, request_target: str) -> None:
    assert sent(link, charset) == request_target


@pytest.mark.parametrize(
    ("charset", "char", "escaped"),
    [
        # URL, 1.3, and the standard's conversions before the index.
        ("shift_jis", "≡", "%81%DF"),
        ("shift_jis", "‽", "%26%238253%3B"),
        ("iso-2022-jp", "¥", "%1B%28J%5C%1B%28B"),
        ("iso-2022-jp", "日‽本", "%1B%24BF%7C%1B%28B%26%238253%3B%1B%24BK%5C%1B%28B"),
        ("iso-2022-jp", "ｱ", "%1B%24B%25%22%1B%28B"),
        ("shift_jis", "−¥‾", "%81%7C%5C~"),
        ("euc-jp", "−", "%A1%DD"),
        ("big5", "†€", "%26%238224%3B%A3%E1"),
        ("euc-kr", "†", "%A2%D3"),
        ("windows-1252", "†日\x81", "%86%26%2326085%3B%81"),
        ("gb18030", "\ue5e5", "%26%2358853%3B"),
        ("gbk", "😀", "%26%23128512%3B"),
        ("big5", "é", "%26%23233%3B"),
        ("x-user-defined", "é", "%26%23233%3B"),
    ],
)
def test_a_character_that_the_charset_lacks_is_a_reference(charset: str, char: str, escaped: str) -> None:
    assert sent(f"?{char}", charset) == f"/dir/page?{escaped}"


def test_path_and_fragment_are_in_utf_8_and_ascii_stays_as_it_is() -> None:
    assert encode_query("/日本/?q=日本#日本?日本", "euc-jp") == "/日本/?q=%C6%FC%CB%DC#日本?日本"
    assert sent("/é?é#é", "windows-1252") == "/%C3%A9?%E9"
    assert encode_query("#é?é", "windows-1252") == "#é?é"
    assert encode_query("/é", "windows-1252") == "/é"
    assert encode_query("?a={|}\\&%e9\t é", "windows-1252") == "?a={|}\\&%e9\t %E9"


@pytest.mark.parametrize("charset", ["utf-8", "utf-16le", "utf-16be", "replacement"])
def test_charsets_that_no_form_is_sent_in_have_queries_in_utf_8(charset: str) -> None:
    assert sent("?é", charset) == "/dir/page?%C3%A9"


WRITTEN = st.text(
    st.one_of(
        st.sampled_from("éßµ€ğЖяΩאب日本語あア한글똠台…①～‽😀"),
        st.characters(min_codepoint=0x4E00, max_codepoint=0x9FA5),
    ),
    max_size=20,
)


@pytest.mark.parametrize("charset", LEGACY)
@given(text=WRITTEN)
def test_a_server_reads_what_the_page_says(charset: str, text: str) -> None:
    encoded = encode_query(f"?{text}", charset)
    assert encoded.isascii()
    assert unescape(decode(unquote_to_bytes(encoded[1:]), charset)) == text


@given(links=st.lists(st.text(max_size=30)), charset=st.one_of(st.sampled_from(LEGACY), st.text(max_size=20)))
def test_any_links_on_a_page_of_any_charset_come_out(links: list[str], charset: str) -> None:
    encoded = in_charset(links, charset)
    assert len(encoded) == len(links)
    for link, ours in zip(links, encoded, strict=True):
        assert ours == link or not link.isascii()
        canonicalize(ours, BASE)


def test_links_that_do_not_change_are_the_same_list() -> None:
    for links, charset in ((["?é"], "utf-8"), (["?a", "/é"], "windows-1252"), (["?é"], "no such charset")):
        assert in_charset(links, charset) is links


def test_half_a_pair_of_surrogates_is_a_replacement_character() -> None:
    for charset in LEGACY:
        assert encode_query("?\ud83d", charset) == encode_query("?\ufffd", charset)


def test_a_link_that_is_too_long_to_be_fetched_is_not_encoded() -> None:
    link = "?" + "日" * 1_000_000
    assert encode_query(link, "shift_jis") is link
    longest = "?" + "日" * (URL_CHARS_MAX - 1)
    assert canonicalize(encode_query(longest, "windows-1252"), BASE) is None


def test_what_is_encoded_of_a_page_is_bounded() -> None:
    links = [f"?{number}" + "\ufffd" * 8_000 for number in range(1_000)]
    encoded = in_charset(links, "windows-1252")
    assert len(encoded) == len(links)
    assert encoded[0].isascii()
    assert encoded[-1] is links[-1]
    assert sum(map(len, encoded)) < ENCODED_CHARS_MAX + sum(map(len, links)) + 14 * URL_CHARS_MAX


def test_a_charset_goes_by_the_name_that_the_standard_gives_it() -> None:
    for name in (
        "SHIFT_JIS",
        "sjis",
        "latin1",
        "utf8",
        "rot13",
        "idna",
        "punycode",
        "base64",
        "\0",
        "\ud800",
        "x" * 100_000,
        "",
    ):
        assert encode_query("?é", name) == "?é"
