"""What a header says in several lines of its name; without I/O.

Names are in lower case. Lines of a list are one list, in their order (RFC 9110,
5.3). Other headers should stand there once, and what counts of several is what
browsers do: of Content-Type the last that is one, and of Location none, if they
differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from dhtcrawl.fetch.charset import content_type_of
from dhtcrawl.url import URL_CHARS_MAX, without_fragment

Headers = Sequence[tuple[str, str]]

# As a response has it, and as the archive does (`dhtcrawl.fetch.heads`).
_TRANSFER = frozenset(("transfer-encoding", "x-archive-orig-transfer-encoding"))
_CODING = "content-encoding"
_NO_CODINGS = frozenset(("", "chunked", "identity"))
REFRESH = "refresh"
ROBOTS = "x-robots-tag"
_BESIDE_TYPE = _TRANSFER | {_CODING, REFRESH, ROBOTS}


def lines_of(headers: Headers, name: str) -> list[str]:
    """The values of all lines of the header, in their order."""
    return [value for key, value in headers if key == name]


def beside_type(headers: Headers) -> Headers:
    """The lines that say something of a page, but for its Content-Type: for most pages none has to be looked at."""
    return [line for line in headers if line[0] in _BESIDE_TYPE and (line[1] != "chunked" or line[0] == _CODING)]


def content_type(headers: Headers) -> str | None:
    """The Content-Type that counts; None without one."""
    return content_type_of(lines_of(headers, "content-type"))


def content_encoding(headers: Headers) -> str | None:
    """The list of content codings; None without one."""
    lines = lines_of(headers, _CODING)
    # A line that is repeated comes from a proxy that adds what was there already: nearly always the body is coded once.
    if len(lines) > 1:
        return ", ".join(dict.fromkeys(lines)) or None
    return lines[0] or None if lines else None


def is_coded_again(headers: Headers) -> bool:
    """Whether a line of Content-Encoding is repeated, so that the body may be coded twice."""
    if len(headers) < 2:
        return False
    lines = lines_of(headers, _CODING)
    return len(set(lines)) < len(lines)


def transfer_coding(headers: Headers) -> str | None:
    """The list of transfer codings, but for `chunked`; None without one."""
    lines = [value for key, value in headers if key in _TRANSFER]
    if not lines:
        return None
    codings = [coding.strip() for coding in ",".join(lines).lower().split(",")]
    return ", ".join([coding for coding in codings if coding not in _NO_CODINGS]) or None


def locations(headers: Headers) -> list[str]:
    """The different values of Location, one that is long without its fragment.

    Browsers follow none of several: one of them may have been smuggled in. An
    empty one is none: it would lead back to the page.
    """
    values = dict.fromkeys(lines_of(headers, "location"))
    return [value if len(value) <= URL_CHARS_MAX else without_fragment(value) for value in values if value]
