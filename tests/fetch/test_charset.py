from __future__ import annotations

import codecs
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.encodings import decode
from dhtcrawl.fetch.charset import GUESSED_BYTES, charset_of, looks_like_html, may_be_html, media_type_of, type_of_html

META = b'<meta charset="koi8-r">'


def test_a_byte_order_mark_beats_http_and_http_beats_meta_and_meta_beats_a_guess() -> None:
    utf8 = "é".encode()
    assert charset_of(codecs.BOM_UTF16_LE + META, "text/html; charset=koi8-u") == "utf-16le"
    assert charset_of(codecs.BOM_UTF16_BE + META, None) == "utf-16be"
    assert charset_of(codecs.BOM_UTF8 + META, "text/html; charset=koi8-u") == "utf-8"
    assert charset_of(META + utf8, "text/html; charset=koi8-u") == "koi8-u"
    assert charset_of(META + utf8, "text/html") == "koi8-r"
    assert charset_of(utf8, "text/html") == "utf-8"
    assert charset_of(b"\xe9 ", "text/html") == "windows-1252"
    assert charset_of(b"e", None) == "windows-1252"


@pytest.mark.parametrize(
    "content_type",
    [
        "text/html;charset=ISO-8859-2",
        'text/html; x=y; CharSet="latin2"',
        "text/html ; charset = csISOLatin2 ; q=1",
        'text/html; charset="iso-8859-2',
        "; charset=iso8859-2",
        "text/html;charset=;charset=iso-8859-2",
        "text/html; charset= ; charset=iso-8859-2",
        'text/html; charset="\\iso\\-8859-2"',
        'text/html; charset="iso-8859-2"x; y',
        "text/html; charset=iso-8859-2; charset=utf-8",
        'text/html; x="; charset=utf-8"; charset=iso-8859-2',
        'text/html; x="\\"; charset=utf-8"; charset=iso-8859-2',
        'text/html;";charset=iso-8859-2',
        "text/html; x; charset=iso-8859-2",
        "text/html; charset=iso-8859-2; x=" + "y" * 300,
    ],
)
def test_http_may_write_a_charset_in_many_ways(content_type: str) -> None:
    assert charset_of(b"", content_type) == "iso-8859-2"


@pytest.mark.parametrize(
    "content_type",
    [
        'text/html; charset="";charset=iso-8859-2',
        "text/html; charset='iso-8859-2'",
        'text/html; charset=iso-8859-2"',
        "text/html; charset=klingon; charset=iso-8859-2",
        'text/html; x="; charset=iso-8859-2',
        "text/html; xcharset=iso-8859-2",
        "text/html; charset",
        "charset=iso-8859-2",
    ],
)
def test_what_is_no_charset_to_browsers_is_none(content_type: str) -> None:  # MIME Sniffing, 4.4
    assert charset_of(META, content_type) == "koi8-r"


def test_an_unknown_label_counts_as_none() -> None:
    assert charset_of(META, "text/html; charset=klingon") == "koi8-r"
    assert charset_of(b"<meta charset=klingon>" + META, None) == "koi8-r"
    assert charset_of(b"<meta charset=klingon>", "charset") == "windows-1252"


def test_a_prefix_may_end_within_a_character() -> None:
    assert charset_of("日本".encode()[:-1], None) == "utf-8"
    assert charset_of("日本".encode()[:-1] + b"<", None) == "windows-1252"


def test_a_page_that_begins_with_much_ascii_is_guessed_by_what_comes_then() -> None:
    ascii_only = b" " * 200_001
    assert charset_of(ascii_only, None) == "windows-1252"
    assert charset_of(ascii_only + "é".encode(), None) == "utf-8"
    assert charset_of(ascii_only + b"\xe9 ", None) == "windows-1252"
    assert charset_of(b"\xe9 " + ascii_only + "é".encode(), None) == "windows-1252"
    # The block ends within a character.
    assert charset_of(b" " * (2 * GUESSED_BYTES - 1) + "é".encode(), None) == "utf-8"


def test_who_says_utf_16_in_ascii_is_not_believed() -> None:
    assert charset_of(b"<meta charset=utf-16be>", None) == "utf-8"
    assert charset_of(b"<meta charset=x-user-defined>", None) == "windows-1252"


def test_comments_values_and_what_is_cut_off_hide_a_meta() -> None:
    for hidden in (b"<!-- %b -->", b"<a title='%b'>", b"<? %b", b"<a title='%b", b"<!-- %b", b"</a x='%b'>"):
        assert charset_of(hidden % META, None) == "windows-1252", hidden
    assert charset_of(b"<!-->" + META, None) == "koi8-r"


def test_a_meta_after_the_first_1024_bytes_counts_where_a_parser_would_meet_it() -> None:
    assert charset_of(b" " * 5000 + META, None) == "koi8-r"
    assert charset_of(b" " * 5000 + b"<script>" + META + b"</script>", None) == "windows-1252"
    assert charset_of(b" " * 100_000 + META, None) == "windows-1252"


def test_an_xml_declaration_counts_after_a_meta() -> None:
    declaration = b'<?xml version="1.0" encoding="ISO-8859-2"?>'
    assert charset_of(declaration + b"<html>", None) == "iso-8859-2"
    assert charset_of(declaration + META, None) == "koi8-r"


def test_a_declaration_in_utf_16_says_so_by_its_octets() -> None:  # HTML, 13.2.3.3
    for codec, name in (("utf-16-le", "utf-16le"), ("utf-16-be", "utf-16be")):
        page = "<?xml version='1.0' encoding='koi8-r'?><meta charset=koi8-r>".encode(codec)
        assert charset_of(page, "text/html") == charset_of(page, None, xml=True) == name
        assert charset_of(page, "text/html; charset=koi8-u") == "koi8-u"
    assert charset_of("<?php ?>".encode("utf-16-le"), None) == "windows-1252"


def test_in_xml_a_meta_says_nothing_and_utf_8_is_the_default() -> None:  # XML 1.0, 4.3.3
    declaration = b'<?xml version="1.0" encoding="ISO-8859-2"?>'
    assert charset_of(declaration + META, None, xml=True) == "iso-8859-2"
    assert charset_of(declaration + META, "application/xhtml+xml; charset=koi8-u", xml=True) == "koi8-u"
    assert charset_of(codecs.BOM_UTF8 + declaration, None, xml=True) == "utf-8"
    for page in (META, b"<html>" + META, b" " * 5000 + META, b"\xe9", b"<?xml version='1.0'?>", b""):
        assert charset_of(page, "application/xhtml+xml", xml=True) == "utf-8", page


@given(st.binary(max_size=300), st.text(max_size=30))
def test_any_bytes_have_a_charset_and_a_text(data: bytes, content_type: str) -> None:
    for header in (None, content_type, f"text/html; charset={content_type}"):
        charset = charset_of(data, header)
        assert charset == charset.lower()
        decode(data, charset)
        decode(data, charset_of(data, header, xml=True))
    for page in (b"<meta " + data + b" charset", b"<meta http-equiv=content-type content='" + data):
        charset_of(page, None)
    looks_like_html(media_type_of(content_type), data)


def test_a_media_type_is_lower_case_and_bare_or_nothing() -> None:
    assert media_type_of("Text/HTML") == "text/html"
    assert media_type_of(" text/html ;charset=utf-8") == "text/html"
    assert media_type_of("application/xhtml+xml; q=1") == "application/xhtml+xml"
    for malformed in (None, "", "text", "text/", "/html", "text/html, text/plain", "te xt/html", "text/ht\u00e9ml"):
        assert media_type_of(malformed) == ""


def test_html_is_known_by_its_type_or_where_there_is_none_by_its_beginning() -> None:
    assert looks_like_html("text/html", b"GIF89a")
    assert looks_like_html("application/xhtml+xml", b"")
    assert not looks_like_html("text/plain", b"<!doctype html>")
    assert not looks_like_html("image/svg+xml", b"<html>")
    for start in (b"<!DOCTYPE html>", b"\n <HTML lang=en>", b"<!--x", codecs.BOM_UTF8 + b"<p>", b"<a href=x>"):
        assert looks_like_html("", start), start
        assert looks_like_html("unknown/unknown", start)
    for start in (b"", b"%PDF-1.7", b"<?xml version='1.0'?>", b"<abbr>", b"hello <html>"):
        assert not looks_like_html("", start), start


def test_only_these_types_may_be_html() -> None:
    for media_type in ("text/html", "application/xhtml+xml", "", "unknown/unknown", "application/unknown", "*/*"):
        assert may_be_html(media_type)
    assert may_be_html("application/xml")
    assert may_be_html("text/xml")
    assert not may_be_html("text/plain")
    assert [type_of_html(each) for each in ("", "*/*", "application/xhtml+xml", "text/xml")] == [
        "text/html", "text/html", "application/xhtml+xml", "text/xml",
    ]  # fmt: skip


@pytest.mark.parametrize("media_type", ["application/xml", "text/xml"])
def test_xml_is_a_page_where_its_root_is_that_of_xhtml(media_type: str) -> None:
    root = '<html lang="en" xmlns="http://www.w3.org/1999/xhtml">'
    before = "<?xml version='1.0'?>\n<?xml-stylesheet href='s'?><!-- <rss> ü --><!DOCTYPE html [<!ENTITY a '<b>'>]>\n"
    for page in (root, before + root, "<h:html xmlns:h='http://www.w3.org/1999/xhtml'>"):
        for codec in ("utf-8", "utf-8-sig", "utf-16", "utf-16-be"):
            assert looks_like_html(media_type, page.encode(codec)), (page, codec)
    for other in (
        "", "<html>", "<html", "<rss><html xmlns='http://www.w3.org/1999/xhtml'>", "x" + root, "<" + root,
        "<!--" + root,
        "<HTML xmlns='http://www.w3.org/1999/xhtml'>", "<html xmlns:h='http://www.w3.org/1999/xhtml'>",
        "<svg xmlns='http://www.w3.org/2000/svg'>", " " * (1 << 17) + root,
    ):  # fmt: skip
        assert not looks_like_html(media_type, other.encode()), other


def test_declared_encodings_are_found_as_parsers_find_them(conformance_dir: Path) -> None:
    data = (conformance_dir / "encoding" / "tests1.dat").read_bytes()
    cases = data.split(b"#data\n")[1:]
    for case in cases:
        page, _, rest = case.partition(b"\n#encoding\n")
        expected = rest.split(b"\n")[0].decode().lower()
        assert charset_of(page, None) == expected, page[:200]
    assert len(cases) == 59
