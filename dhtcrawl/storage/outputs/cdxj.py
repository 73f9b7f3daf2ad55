"""Makes the lines of a CDXJ index, which give the archive file and offset of a URL's response.

A line is `surt timestamp {json}`, in the very form that cdxj-indexer prints
for our archives, so that either index can replace the other. A SURT (Sort-
friendly URI Reordering Transform, Internet Archive) reverses the host name and
drops what seldom makes a page different: `www.`, case, the order of the
query, session ids. It is a key to sort and look up by, never an identity:
several of our URLs may share one.

The transform is written here, from the results that it must give, instead of taken
from the `surt` package, which is under the AGPL while we are under the MIT licence,
brings a public-suffix library with an HTTP client along, is not typed, asks the
system's resolver about numeric hosts, and takes three to seven times as long.
`tests/storage/test_cdxj.py` compares the two.

Pure; never raises, whatever the URL.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote_from_bytes, unquote_to_bytes

_CANONICAL = re.compile(r"(https?)://([^/?#@]+)(/[^?#]*)(?:\?([^#]*))?", re.DOTALL)
_WWW = re.compile(r"www[0-9]*\.")
_DEFAULT_PORTS = {("http", "80"), ("https", "443")}
_MIME_END = re.compile(r"[;\s]")
_ISO_UTC = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z")
_json = json.encoder.encode_basestring_ascii
# Paths of which nothing is unescaped, escaped or resolved.
_PLAIN_PATH = re.compile(r"(?:/(?![/.])[!-$&-.0-~]*)+")

# Printable characters stay, except those that start an escape or a fragment.
_SAFE = "".join(map(chr, range(0x21, 0x7F))).replace("%", "").replace("#", "")
_HEX = frozenset(b"0123456789abcdefABCDEF")

# Session ids, at the end of a query argument (jsessionid=…), in two arguments
# (cfid=…&cftoken=…), or as path segments of ASP.NET: /(S(…))/page.aspx.
_SESSION_ARGUMENTS = tuple(
    re.compile(pattern + r"\Z")
    for pattern in (
        "jsessionid=[0-9a-z]{32}",
        "phpsessid=[0-9a-z]{32}",
        "sid=[0-9a-z]{32}",
        "aspsessionid[a-z]{8}=[a-z]{24}",
    )
)
_SESSION_SEGMENTS = (
    re.compile(r"/\((?:[a-z]\([0-9a-z]{24}\))+\)(?=/)"),
    re.compile(r"/\([0-9a-z]{24}\)(?=/)"),
)


def line(
    *,
    url: str,
    date: datetime | str,
    content_type: str | None,
    status: int,
    digest: str,
    length: int,
    offset: int,
    filename: str,
) -> str:
    """The index line of a response record, with its newline.

    `date` may be the text of an instant in ISO 8601; `content_type` is the
    header as it came, or None if there was none; `length` and `offset` are
    those of the gzip member.
    """
    mime = "" if content_type is None else f'"mime": {_json(_MIME_END.split(content_type, maxsplit=1)[0])}, '
    # A JSON object of texts, written as `json.dumps` writes it.
    return (
        f'{surt(url)} {_timestamp(date)} {{"url": {_json(url)}, {mime}"status": "{status}", "digest": {_json(digest)}, '
        f'"length": "{length}", "offset": "{offset}", "filename": {_json(filename)}}}\n'
    )


def _timestamp(date: datetime | str) -> str:
    """`20260131120000`, in UTC."""
    if isinstance(date, str):
        if _ISO_UTC.fullmatch(date) is not None:
            return date[:4] + date[5:7] + date[8:10] + date[11:13] + date[14:16] + date[17:19]
        date = datetime.fromisoformat(date)
    return f"{date.astimezone(UTC):%Y%m%d%H%M%S}"


def surt(url: str) -> str:
    """The sort key of a canonical URL: `org,example)/path?query`.

    A text that is not shaped like a canonical http(s) URL is returned as it is, and
    so is a URL whose host is dots only, which no name server knows.
    """
    match = _CANONICAL.fullmatch(url)
    if match is None:
        return url
    scheme, authority, path, query = match.groups()
    host = _host_key(scheme, authority)
    if not host:
        return url
    plain = _PLAIN_PATH.fullmatch(path) is not None
    key = host + _path_key(path.lower() if plain else _tidy(_unescape(path)))
    return f"{key}?{query}" if query and (query := _query_key(_fold(query))) else key


@lru_cache(maxsize=16_384)
def _host_key(scheme: str, authority: str) -> str:
    """`org,example:8080)`; empty if nothing is left of the host."""
    if authority.startswith("["):
        host, _, port = authority[1:].partition("]")
        port = port.removeprefix(":")
    else:
        host, _, port = authority.partition(":")
    host = _fold(host.lower().replace("..", ".").strip("."))
    if www := _WWW.match(host):
        host = host[www.end() :]
    if not host:
        return ""
    key = ",".join(reversed(host.split(".")))
    return f"{key})" if port in ("", "0") or (scheme, port) in _DEFAULT_PORTS else f"{key}:{port})"


def _path_key(path: str) -> str:
    if "(" in path:
        for segment in _SESSION_SEGMENTS:
            path = _without_session_segment(path, segment)
    return path[:-1] if path.endswith("/") and len(path) > 1 else path


def _without_session_segment(path: str, segment: re.Pattern[str]) -> str:
    """The path without the last such segment that stands before an `.aspx` page."""
    # `/x.aspx`: at least one character, and no question mark, in between.
    for match in reversed(list(segment.finditer(path))):
        page = path.find(".aspx", match.end() + 2)
        if page >= 0 and "?" not in path[match.end() : page]:
            return path[: match.start()] + path[match.end() :]
    return path


def _query_key(query: str) -> str:
    args = query.split("&")
    if "=" in query:
        _drop_sessions(args)
    args.sort(key=lambda arg: arg.split("=", 1))
    return "&".join(args)


def _drop_sessions(args: list[str]) -> None:
    for pattern in _SESSION_ARGUMENTS:
        for i in range(len(args) - 1, -1, -1):
            if match := pattern.search(args[i]):
                # The text before the id is joined to the next argument.
                args[i : i + 2] = [args[i][: match.start()] + "".join(args[i + 1 : i + 2])]
                break
    for i in range(len(args) - 2, -1, -1):
        at = args[i].rfind("cfid=", 0, -1)
        if at >= 0 and args[i + 1].startswith("cftoken=") and len(args[i + 1]) > len("cftoken="):
            args[i : i + 3] = [args[i][:at] + "".join(args[i + 2 : i + 3])]
            break


def _tidy(path: bytes) -> str:
    """Resolve dot segments, merge double slashes, escape and lower-case a path."""
    if b"//" in path or b"/." in path:
        kept: list[bytes] = []
        for segment in path.split(b"/")[1:]:
            if segment == b".." and kept:
                kept.pop()
            elif segment != b".":
                kept.append(segment)
        path = b"/" + b"/".join([segment for segment in kept[:-1] if segment] + kept[-1:])
    return quote_from_bytes(path, _SAFE).lower()


def _fold(text: str) -> str:
    return quote_from_bytes(_unescape(text), _SAFE).lower()


def _unescape(text: str) -> bytes:
    """Replace percent-escapes, also those that unescaping produces."""
    raw = text.encode("utf-8", "surrogatepass")
    if b"%" not in raw:
        return raw
    once = unquote_to_bytes(raw)
    return _unescape_all(once) if b"%" in once else once


def _unescape_all(raw: bytes) -> bytes:
    """Replace percent-escapes, also those that unescaping produces, in one pass.

    Escapes never overlap, so replacing each where it ends gives the same result as
    repeated passes, which a hostile URL (`%%%%3333…`) makes quadratic.
    """
    out = bytearray()
    for byte in raw:
        out.append(byte)
        while len(out) >= 3 and out[-3] == 0x25 and out[-2] in _HEX and out[-1] in _HEX:
            out[-3:] = bytes((int(out[-2:], 16),))
    return bytes(out)
