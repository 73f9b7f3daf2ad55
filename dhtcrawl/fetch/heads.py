"""The heads of an exchange as bytes and as pairs, without I/O.

Both clients describe an exchange with these functions, so that an archive
cannot tell which of them fetched. What the server said comes back unchanged
but for what would make a stored response unreadable: the transfer coding is
undone, so the header that announced it is renamed, as archives do
(`X-Archive-Orig-…`), and `Content-Length` is that of the stored body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

RawHeaders = Sequence[tuple[bytes, bytes]]
# The name that stands for none: the value is a line of the head that is no
# field, such as one without a colon. It is stored as it came, and read by none.
NOT_A_FIELD = b""

_RENAMED = b"X-Archive-Orig-"
# RFC 9110, 6.4.1: these never have a body, and a 304 may tell the length of
# the one it does not send.
_BODILESS = frozenset((204, 304))
_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")


def request_head(target: str, headers: Iterable[tuple[str, str]], method: str = "GET") -> bytes:
    """The head of a request without a body; `headers` begin with `Host`."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode()


def response_head(version: tuple[int, int], status: int, reason: str, raw_headers: RawHeaders, body_size: int) -> bytes:
    """The head of a response whose stored body has `body_size` bytes.

    `reason` is what was sent, decoded as UTF-8 with surrogate escapes.
    """
    phrase = reason.encode("utf-8", "surrogateescape")
    lines = [b"HTTP/%d.%d %d %b" % (version[0], version[1], status, phrase)]
    bodiless = status in _BODILESS
    length_told = bodiless
    for name, value in raw_headers:
        lower = name.lower()
        if lower == b"transfer-encoding":
            name = _RENAMED + name
        elif lower == b"content-length" and not bodiless:
            if _number(value) == body_size and not length_told:
                length_told = True
            else:
                name = _RENAMED + name
        lines.append(b"%b: %b" % (name, value) if name else value)
    if not length_told:
        lines.append(b"Content-Length: %d" % body_size)
    head = b"\r\n".join(lines)
    # A lenient parser lets a lone CR or LF through, which would end a line
    # where the server did not.
    if head.count(b"\r") != len(lines) - 1 or head.count(b"\n") != len(lines) - 1:
        head = b"\r\n".join([line.translate(_LINE_BREAKS) for line in lines])
    return head + b"\r\n\r\n"


def header_pairs(raw_headers: RawHeaders) -> list[tuple[str, str]]:
    """Names in lower case, values stripped; UTF-8 where it is valid, else Latin-1.

    Of a Location that is no UTF-8 the octets beyond ASCII are percent-encoded.
    Never a surrogate, which no output could encode.
    """
    try:
        return [(name.decode().lower(), value.decode().strip()) for name, value in raw_headers if name]
    except UnicodeDecodeError:
        return [_pair(_decode(name, _latin_1).lower(), value) for name, value in raw_headers if name]


def _pair(name: str, value: bytes) -> tuple[str, str]:
    # Nobody knows which charset a server has its paths in: it gets back the octets that it sent, as from browsers.
    return name, _decode(value, _escaped if name == "location" else _latin_1).strip()


def _decode(raw: bytes, otherwise: Callable[[bytes], str]) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return otherwise(raw)


def _latin_1(raw: bytes) -> str:
    return raw.decode("latin-1")


def _escaped(raw: bytes) -> str:
    return "".join([chr(octet) if octet < 0x80 else f"%{octet:02X}" for octet in raw])


def _number(value: bytes) -> int | None:
    # 19 digits hold any length that a file system can store.
    text = value.strip()
    return int(text) if text.isdigit() and len(text) <= 19 else None
