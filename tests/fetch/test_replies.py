"""Replies as browsers and curl read them (RFC 9112, 6.3), however they are cut into segments."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dhtcrawl.fetch.http import FetchFailureKind
from dhtcrawl.fetch.replies import BadReply, ReplyParser

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n"
LIMIT = 2000

# What a reply comes to: status, body, whether it is whole, and whether its connection may be used again; or why not.
Outcome = tuple[int, bytes, bool, bool] | tuple[FetchFailureKind, str]


def outcome(segments: Iterable[bytes], *, limit: int = LIMIT, bodiless: bool = False) -> Outcome | None:
    """What the reply in `segments`, at whose end the connection is closed, comes to; None for no head."""
    parser = ReplyParser(limit, bodiless=bodiless)
    try:
        body = b"".join([parser.feed(segment) for segment in segments])
    except BadReply as error:
        return error.kind, error.detail
    whole = parser.end()
    return None if parser.head is None else (parser.head.status, body, whole, parser.reusable)


def everywhere_cut(sent: bytes) -> Iterable[list[bytes]]:
    yield [sent]
    yield [sent[at : at + 1] for at in range(len(sent))]
    for at in range(1, len(sent)):
        yield [sent[:at], sent[at:]]


KEPT: list[tuple[bytes, Outcome]] = [
    (OK + b"Content-Length: 3\r\n\r\nabc", (200, b"abc", True, True)),
    (OK + b"Content-Length: 0\r\n\r\n", (200, b"", True, True)),
    (b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na", (200, b"a", True, True)),
    (b"HTTP/1.1 200 OK\nContent-Length: 1\n\na", (200, b"a", True, True)),
    (b"\r\n" + OK + b"Content-Length: 1\r\n\r\na", (200, b"a", True, True)),
    (OK + b"\r\nto the end", (200, b"to the end", True, False)),
    (OK + b"\r\n", (200, b"", True, False)),
    (OK + b"Connection: Close\r\nContent-Length: 1\r\n\r\na", (200, b"a", True, False)),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", (200, b"a", True, False)),
    (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", (200, b"a", True, True)),
    (b"HTTP/1.1 103 Hints\r\nLink: </a>\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na", (200, b"a", True, True)),
    # Bytes after the body.
    (OK + b"Content-Length: 3\r\n\r\nabcdef", (200, b"abc", True, False)),
    (OK + b"Content-Length: 0\r\n\r\nabc", (200, b"", True, False)),
    (b"HTTP/1.1 301 Moved\r\nContent-Length: 3\r\n\r\nabcdef", (301, b"abc", True, False)),
    (b"HTTP/1.1 301 Moved\r\n\r\nabc", (301, b"abc", True, False)),
    (b"HTTP/1.1 204 None\r\nContent-Length: 3\r\n\r\nabc", (204, b"", True, False)),
    (b"HTTP/1.1 204 None\r\n\r\n", (204, b"", True, True)),
    (b"HTTP/1.1 304 Same\r\nContent-Length: 3\r\n\r\n", (304, b"", True, True)),
    # Lengths.
    (OK + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", (200, b"abc", True, True)),
    (OK + b"Content-Length: 3, 03\r\n\r\nabc", (200, b"abc", True, True)),
    (OK + b"Content-Length:\r\n\r\nabc", (200, b"abc", True, False)),
    (OK + b"Content-Length: 5\r\n\r\nabc", (200, b"abc", False, True)),
    # Lines that are no fields.
    (OK + b"no colon\r\nContent-Length: 1\r\n\r\na", (200, b"a", True, False)),
    (OK + b"Content-Length : 1\r\n\r\na", (200, b"a", True, False)),
    (OK + b" Content-Length: 9\r\nContent-Length: 1\r\n\r\na", (200, b"a", True, False)),
    (OK + b"X: a\r\n b\r\nContent-Length:\r\n 1\r\n\r\na", (200, b"a", True, True)),
    (OK + b"A:\r\n" * 200 + b"Content-Length: 1\r\n\r\na", (200, b"a", True, True)),
    # Chunks.
    (CHUNKED + b"\r\n3\r\nabc\r\n0\r\n\r\n", (200, b"abc", True, True)),
    (CHUNKED + b"\r\n3 ;x=y\r\nabc\r\n2\nde\n0\n\n", (200, b"abcde", True, True)),
    (CHUNKED + b"\r\n1\r\na\r\n0\r\nDigest: x\r\nodd\r\n\r\n", (200, b"a", True, True)),
    (CHUNKED + b"\r\n1\r\na\r\n0\r\n\r\nsurplus", (200, b"a", True, False)),
    (CHUNKED + b"Content-Length: 9\r\n\r\n1\r\na\r\n0\r\n\r\n", (200, b"a", True, False)),
    (CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", (200, b"a", True, False)),
    (OK + b"Transfer-Encoding: gzip\r\nContent-Length: 1\r\n\r\nabc", (200, b"abc", True, False)),
    (OK + b"Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\na", (200, b"a", True, True)),
    (CHUNKED + b"\r\n1\r\na\r\n", (200, b"a", False, True)),
    (CHUNKED + b"\r\n1\r\na\r\n0\r\n", (200, b"a", False, True)),
    (CHUNKED + b"\r\n1\r\nabc", (200, b"a", False, False)),
    (CHUNKED + b"\r\n1\r\na\r\r\n", (200, b"a", False, False)),
    (CHUNKED + b"\r\n1\r\na\r\nzz\r\n", (200, b"a", False, False)),
    (CHUNKED + b"\r\n1\r\na\r\n-1\r\n", (200, b"a", False, False)),
    (CHUNKED + b"\r\n" + b"0" * 17 + b"\r\n\r\n", (200, b"", False, False)),
    (CHUNKED + b"\r\n0\r\n" + b"T: x\r\n" * 400 + b"\r\n", (200, b"", False, False)),
]

REFUSED: list[tuple[bytes, FetchFailureKind, str]] = [
    (b"SSH-2.0-OpenSSH\r\n", FetchFailureKind.PROTOCOL, "not HTTP: the answer does not begin with HTTP/"),
    (b"HTTP/1.1 2000 OK\r\n\r\n", FetchFailureKind.PROTOCOL, "not HTTP: the status line is 'HTTP/1.1 2000 OK'"),
    (
        b"HTTP/1.1 101 Other\r\n\r\n",
        FetchFailureKind.PROTOCOL,
        "unexpected status 101: the server changes the protocol",
    ),
    (
        OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        FetchFailureKind.PROTOCOL,
        "the reply has different Content-Lengths: 3 and 4",
    ),
    (OK + b"Content-Length: -3\r\n\r\n", FetchFailureKind.PROTOCOL, "the Content-Length is not a number: '-3'"),
    (
        OK + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
        FetchFailureKind.PROTOCOL,
        "the Content-Length is larger than any file",
    ),
    (OK + b"X: a\0b\r\n\r\n", FetchFailureKind.PROTOCOL, "a NUL byte in the response head"),
    (
        OK + b"X: " + b"a" * LIMIT + b"\r\n\r\n",
        FetchFailureKind.HEADERS,
        "the response head is larger than the limit of 2000 bytes",
    ),
]


@pytest.mark.parametrize(("sent", "expected"), KEPT)
def test_a_reply_comes_to_the_same_in_any_two_segments_and_byte_by_byte(sent: bytes, expected: Outcome) -> None:
    for segments in everywhere_cut(sent):
        assert outcome(segments) == expected


@pytest.mark.parametrize(("sent", "kind", "detail"), REFUSED)
def test_what_is_refused_says_why_in_any_segments(sent: bytes, kind: FetchFailureKind, detail: str) -> None:
    for segments in everywhere_cut(sent):
        assert outcome(segments) == (kind, detail)


def test_a_head_without_its_end_is_none() -> None:
    for sent in (b"", b"HT", OK, OK + b"X: y\r\n"):
        assert outcome([sent]) is None


def test_the_reply_to_a_head_request_has_no_body() -> None:
    assert outcome([OK + b"Content-Length: 3\r\n\r\n"], bodiless=True) == (200, b"", True, True)


def test_a_head_may_have_as_many_lines_as_curl_takes_and_no_more() -> None:
    for lines in (5000, 5001):
        sent = OK + b"A:\r\n" * lines + b"\r\n"
        expected = (FetchFailureKind.HEADERS, "the response head has 5001 lines, more than 5000")
        assert outcome([sent], limit=1 << 20) == (expected if lines > 5000 else (200, b"", True, False))


PIECES = st.sampled_from(
    [
        OK,
        CHUNKED,
        b"HTTP/1.1 103 x\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b" ",
        b":",
        b"Content-Length: 3\r\n",
        b"Content-Length: ",
        b"3",
        b"abc",
        b"3\r\nabc\r\n",
        b"0\r\n",
        b"0\r\n\r\n",
        b"A: b\r\n",
        b"odd\r\n",
        b"\0",
    ]
)
HOSTILE = st.lists(PIECES | st.binary(max_size=5), max_size=12).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(HOSTILE, st.sampled_from([b"", OK, CHUNKED, CHUNKED + b"\r\n"]), st.data())
def test_hostile_bytes_raise_nothing_else_and_segments_change_nothing(
    noise: bytes, start: bytes, data: st.DataObject
) -> None:
    sent = start + noise
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=8)))
    segments = [sent[a:b] for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True)]
    limit = data.draw(st.sampled_from([40, LIMIT]))
    expected = outcome([sent], limit=limit)
    assert outcome(segments, limit=limit) == expected
    assert outcome([sent[at : at + 1] for at in range(len(sent))], limit=limit) == expected
