"""The decoders of the WHATWG Encoding standard and the octets of their characters, from Python's codecs; without I/O.

Names are those of the standard, in lower case. Where Python's codec of a name
knows less than browsers do, it is helped: with the rows that NEC and IBM added
to JIS X 0208 (`①`, `㈱`, `№`), with Microsoft's signs there (`～`, `－`), the euro of
GBK and Big5, the C1 controls of the windows code pages. What stays different are
some characters of Big5 and GB 18030 that no keyboard has.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from functools import lru_cache

import webencodings

HELPED_MAX = 20_000  # characters of a text that are read by us and not by Python

# The codecs whose characters browsers decode (Encoding, 4.2 and its indexes), and how their errors are handled.
_CODECS = {
    "shift_jis": ("cp932", "replace"),
    "euc-jp": ("euc-jp", "dhtcrawl.jis"),
    "iso-2022-jp": ("iso-2022-jp", "dhtcrawl.jis"),
    "euc-kr": ("cp949", "replace"),
    "gbk": ("gb18030", "dhtcrawl.gb"),
    "gb18030": ("gb18030", "dhtcrawl.gb"),
    "big5": ("big5hkscs", "dhtcrawl.big5"),
    "iso-8859-8-i": ("iso-8859-8", "replace"),
}

# Octets of the windows code pages that Python's codecs leave out, besides the C1 controls, and KOI8-U's two letters.
_ALSO = {("windows-1255", 0xCA): "\u05ba", ("koi8-u", 0xAE): "\u045e", ("koi8-u", 0xBE): "\u040e"}
_CODE_PAGES = ("windows-", "koi8-u")
_UNDEFINED = "\ufffe"  # in a table of `codecs.charmap_decode`

# Signs for which Python's codecs have other characters than Microsoft's tables, which are the standard's.
_JIS_SIGNS = dict(zip("〜‖−¢£¬", "～∥－￠￡￢", strict=True))
_SIGNS = {
    "euc-jp": _JIS_SIGNS,
    "iso-2022-jp": _JIS_SIGNS,
    "gbk": {"\ue5e5": "\u3000"},
    "gb18030": {"\ue5e5": "\u3000"},
}
_JIS_CELLS = 94  # in a row

# The leads and trails of two-byte characters, in the order of the standard's indexes.
_SHIFT_JIS_TRAILS = (*range(0x40, 0x7F), *range(0x80, 0xFD))
_JIS_LEADS = (*range(0x81, 0xA0), *range(0xE0, 0xF0))
_SHIFT_JIS_LEADS = (*range(0x81, 0xA0), *range(0xE0, 0xED), *range(0xFA, 0xFD))
_BIG5_LEADS = range(0xA1, 0xFF)  # those below are read only (Encoding, 13.1)
_BIG5_TRAILS = (*range(0x40, 0x7F), *range(0xA1, 0xFF))
_BIG5_LAST = frozenset(map(ord, "═╞╡╪十卅"))  # of these the last place counts, of others the first
_EUC_KR_TRAILS = (*range(0x41, 0x5B), *range(0x61, 0x7B), *range(0x81, 0xFF))
_GBK_TRAILS = (*range(0x40, 0x7F), *range(0x80, 0xFF))
_LEADS = range(0x81, 0xFF)

# What the Japanese encoders write besides what they read (Encoding, 12).
_YEN, _OVERLINE, _MINUS = 0xA5, 0x203E, 0x2212
_FULLWIDTH_MINUS = 0xFF0D
# Index ISO-2022-JP katakana, U+FF61 to U+FF9F.
_KATAKANA = (
    "。「」、・ヲァィゥェォャュョッーアイウエオカキクケコサシスセソタチツテト"
    "ナニヌネノハヒフヘホマミムメモヤユヨラリルレロワン゛゜"
)
_HALFWIDTH = 0xFF61


def decode(data: bytes, name: str) -> str:
    """The text, without its byte order mark; what is malformed becomes U+FFFD, an unknown name windows-1252."""
    if name == "utf-8":
        return data.decode("utf-8", "replace").removeprefix("\ufeff")
    encoding, codec = webencodings.lookup(name), _CODECS.get(name)
    try:
        if codec is not None:
            python, errors = codec
            text = data.decode(python, "replace")
            # A handler of ours takes 1 µs for an error: what has more of them is not in this charset.
            if errors != "replace" and "\ufffd" in text and text.count("\ufffd") <= HELPED_MAX:
                text = data.decode(python, errors)
            for sign, standard in _SIGNS.get(name, {}).items():
                text = text.replace(sign, standard)
            return text
        if encoding is not None and not name.startswith(_CODE_PAGES):
            read: str = encoding.codec_info.decode(data, "replace")[0]
            return read.removeprefix("\ufeff")
    except (UnicodeError, LookupError):
        # A codec that does not know how to replace, or that this Python lacks.
        pass
    page = name if encoding is not None and name.startswith(_CODE_PAGES) else "windows-1252"
    return codecs.charmap_decode(data, "replace", _code_page(page))[0]


def octets_of(name: str) -> dict[int, bytes]:
    """The characters beyond ASCII that a charset's encoder knows, by code point.

    Of ISO-2022-JP the two octets of JIS X 0208, without the escape sequences that stand around them; of GB 18030 those
    of two octets.
    """
    match name:
        case "shift_jis":
            signs = {_YEN: b"\\", _OVERLINE: b"~", _MINUS: b"\x81\x7c", 0x80: b"\x80"}
            halfwidth = {_HALFWIDTH + at: bytes((0xA1 + at,)) for at in range(len(_KATAKANA))}
            return signs | halfwidth | _first(_pairs("cp932", _SHIFT_JIS_LEADS, _SHIFT_JIS_TRAILS))
        case "euc-jp":
            halfwidth = {_HALFWIDTH + at: bytes((0x8E, 0xA1 + at)) for at in range(len(_KATAKANA))}
            known = _first(_jis(0xA1))
            return known | halfwidth | {_YEN: b"\\", _OVERLINE: b"~", _MINUS: known[_FULLWIDTH_MINUS]}
        case "iso-2022-jp":
            known = _first(_jis(0x21))
            halfwidth = {_HALFWIDTH + at: known[ord(char)] for at, char in enumerate(_KATAKANA)}
            return known | halfwidth | {_MINUS: known[_FULLWIDTH_MINUS]}
        case "gbk" | "gb18030":
            known = _first(_pairs("gb18030", _LEADS, _GBK_TRAILS))
            del known[0xE5E5]
            return known | {0x20AC: b"\x80"} if name == "gbk" else known
        case "big5":
            pairs = list(_pairs("big5hkscs", _BIG5_LEADS, _BIG5_TRAILS))
            last = {code: pair for code, pair in pairs if code in _BIG5_LAST}
            # What Microsoft's table has, and Python's lacks or reads as a sign that looks like it.
            return _first(_pairs("cp950", _BIG5_LEADS[:3], _BIG5_TRAILS)) | _first(iter(pairs)) | last
        case "euc-kr":
            return _first(_pairs("cp949", _LEADS, _EUC_KR_TRAILS))
    single = ((ord(decode(bytes((octet,)), name)), bytes((octet,))) for octet in range(0x80, 0x100))
    return _first((code, octets) for code, octets in single if code != 0xFFFD)


def _first(characters: Iterator[tuple[int, bytes]]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for code, octets in characters:
        found.setdefault(code, octets)
    return found


def _pairs(codec: str, leads: Sequence[int], trails: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """The characters of two octets that a codec of Python reads."""
    for lead in leads:
        for trail in trails:
            pair = bytes((lead, trail))
            char = _read(pair, codec)
            if len(char) == 1:
                yield ord(char), pair


def _read(octets: bytes, codec: str) -> str:
    try:
        return octets.decode(codec)
    except UnicodeDecodeError:
        return ""


def _jis(first: int) -> Iterator[tuple[int, bytes]]:
    """JIS X 0208 with what NEC added, in octets that count from `first`."""
    for row in range(_JIS_CELLS):
        for cell in range(_JIS_CELLS):
            char = _jis_char(row, cell)
            if char:
                yield ord(char), bytes((first + row, first + cell))


def _jis_char(row: int, cell: int) -> str:
    """A character of JIS X 0208, of which Shift_JIS has two rows behind each lead; '' where there is none."""
    lead, trail = divmod(row * _JIS_CELLS + cell, 2 * _JIS_CELLS)
    return _read(bytes((_JIS_LEADS[lead], _SHIFT_JIS_TRAILS[trail])), "cp932")


@lru_cache
def _code_page(name: str) -> str:
    """A table for `codecs.charmap_decode`."""
    info = webencodings.lookup(name).codec_info
    table = list(map(chr, range(0x80)))
    for octet in range(0x80, 0x100):
        char = info.decode(bytes((octet,)), "replace")[0]
        if char == "\ufffd":
            char = chr(octet) if octet < 0xA0 else _UNDEFINED
        table.append(_ALSO.get((name, octet), char))
    return "".join(table)


def _read_jis(error: UnicodeError) -> tuple[str, int]:
    """The error handler of EUC-JP and ISO-2022-JP: a character that NEC or IBM added, or U+FFFD."""
    assert isinstance(error, UnicodeDecodeError)
    pair = error.object[error.start : error.start + 2]
    first = 0xA1 if pair >= b"\xa1" else 0x21
    if len(pair) == 2 and all(first <= octet < first + _JIS_CELLS for octet in pair):
        char = _jis_char(pair[0] - first, pair[1] - first)
        if char:
            return char, error.start + 2
    return "\ufffd", error.end


def _read_big5(error: UnicodeError) -> tuple[str, int]:
    """The error handler of Big5: a character of Microsoft's table, or U+FFFD."""
    assert isinstance(error, UnicodeDecodeError)
    char = _read(error.object[error.start : error.start + 2], "cp950")
    return (char, error.start + 2) if len(char) == 1 else ("\ufffd", error.end)


def _read_gb(error: UnicodeError) -> tuple[str, int]:
    """The error handler of GBK and GB 18030: the euro of Windows, or U+FFFD."""
    assert isinstance(error, UnicodeDecodeError)
    return "€" if error.object[error.start] == 0x80 else "\ufffd", error.end


codecs.register_error("dhtcrawl.jis", _read_jis)
codecs.register_error("dhtcrawl.gb", _read_gb)
codecs.register_error("dhtcrawl.big5", _read_big5)
