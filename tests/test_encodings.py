"""Text from bytes and bytes from text, as the Encoding standard has them; expected values are those of its indexes."""

from __future__ import annotations

import codecs
import time

import pytest
from webencodings.labels import LABELS

from dhtcrawl.encodings import HELPED_MAX, decode, octets_of
from dhtcrawl.fetch.charset import charset_of

LEGACY = sorted(set(LABELS.values()) - {"utf-8", "utf-16le", "utf-16be", "replacement"})


def test_text_loses_its_byte_order_mark_and_keeps_the_rest() -> None:
    assert decode(codecs.BOM_UTF8 + "né".encode(), "utf-8") == "né"
    assert decode(codecs.BOM_UTF16_LE + "né".encode("utf-16-le"), "utf-16le") == "né"
    assert decode(b"n\xe9\x80", "windows-1252") == "né€"
    assert decode(b"a\xffb", "utf-8") == "a\ufffdb"
    assert decode(b"n\xe9", "no such charset") == "né"


def test_east_asian_names_mean_what_browsers_decode_with_them() -> None:
    assert decode(b"\x87\x40", "shift_jis") == "①"  # in windows-31j only
    assert decode(b"\x8c\x63", "euc-kr") == "똠"  # in code page 949 only
    assert decode(b"\x80\x30\x81\x30"[1:], "gbk") != ""
    assert decode(b"\x87\x40", "big5") == "䏰"  # in big5-hkscs only


def test_every_charset_decodes_anything() -> None:
    junk = bytes(range(256)) * 3
    for label in ("big5", "euc-jp", "euc-kr", "gb18030", "gbk", "iso-2022-jp", "iso-2022-kr", "shift_jis", "utf-16"):
        charset = charset_of(b"", f"text/html; charset={label}")
        assert decode(junk, charset) != ""
        decode(b"", charset)


def test_what_vendors_added_to_japanese_is_read() -> None:
    assert decode(b"\xad\xa1\xad\xea\xad\xe2\xa4\xa2", "euc-jp") == "①㈱№あ"
    assert decode(b"\xfc\xe2", "euc-jp") == decode(b"\xee\xe0", "shift_jis") == "髙"
    assert decode(b'\x1b$B-!-j$"\x1b(Ba', "iso-2022-jp") == "①㈱あa"
    assert decode(b"\xa1\xc1\xa1\xdd", "euc-jp") == decode(b"\x1b$B!A!]", "iso-2022-jp") == "～－"


def test_the_euro_of_windows_is_read_in_chinese() -> None:
    assert decode(b"5\x80", "gbk") == decode(b"5\x80", "gb18030") == decode(b"5\xa3\xe1", "big5") == "5€"


@pytest.mark.parametrize("charset", ["euc-jp", "iso-2022-jp", "gbk", "gb18030", "big5"])
def test_a_text_that_is_no_text_is_read_as_fast_as_one_that_is(charset: str) -> None:
    assert decode(b"\xff" * (HELPED_MAX + 1), charset) == "\ufffd" * (HELPED_MAX + 1)
    junk = b"\xff\x80\xa3" * (1 << 20)
    before = time.process_time()
    assert decode(junk, charset).count("\ufffd") > 1 << 20
    assert time.process_time() - before < 1.0


def test_code_pages_have_the_controls_that_they_do_not_define() -> None:
    assert decode(b"\x81\x8d\x80", "windows-1252") == "\x81\x8d€"
    assert decode(b"\xae\xbe", "koi8-u") == "ўЎ"
    assert decode(b"\xaa", "windows-1253") == "\ufffd"


@pytest.mark.parametrize(
    ("charset", "count"),
    [
        ("shift_jis", 7393),
        ("euc-jp", 7392),
        ("iso-2022-jp", 7390),
        ("euc-kr", 17048),
        ("windows-1252", 128),
        ("windows-1253", 125),
        ("x-user-defined", 128),
    ],
)
def test_an_encoder_knows_as_many_characters_as_the_standards(charset: str, count: int) -> None:
    assert len(octets_of(charset)) == count


# Characters that are written, but read as others (Encoding, 12.1 to 12.3).
ONE_WAY = {0xA5, 0x203E, 0x2212} | set(range(0xFF61, 0xFFA0))


@pytest.mark.parametrize("charset", LEGACY)
def test_what_was_read_is_written_with_the_same_octets(charset: str) -> None:
    around = (b"\x1b$B", b"\x1b(B") if charset == "iso-2022-jp" else (b"", b"")
    octets = octets_of(charset)
    assert len(set(octets.values())) >= len(octets) - len(ONE_WAY)
    for code, each in octets.items():
        if charset not in ("shift_jis", "euc-jp", "iso-2022-jp") or code not in ONE_WAY:
            assert decode(around[0] + each + around[1], charset) in (chr(code), BIG5.get(chr(code), chr(code)))


# Microsoft's characters, whose octets Python's Big5 reads as signs that look like them.
BIG5 = dict(zip("‧﹑¯～⊕⊙∕﹨￥￠￡", "•､‾∼♁☉／＼¥¢£", strict=True))
