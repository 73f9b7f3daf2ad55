"""Heads as bytes: what an archive stores is readable whatever a server sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.fetch.heads import header_pairs, request_head, response_head

NAMES = st.sampled_from([b"Content-Length", b"transfer-encoding", b"X-A", b"content-LENGTH", b"Set-Cookie"])
HEADERS = st.lists(st.tuples(NAMES, st.binary(max_size=20)), max_size=6)


def test_a_request_head_keeps_order_and_case() -> None:
    head = request_head("/a?b", [("Host", "h"), ("accept", "*/*")])
    assert head == b"GET /a?b HTTP/1.1\r\nHost: h\r\naccept: */*\r\n\r\n"


def test_a_right_length_stays_and_a_missing_one_is_added() -> None:
    assert (
        response_head((1, 1), 200, "OK", [(b"content-length", b"3")], 3)
        == b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n"
    )
    assert response_head((1, 0), 200, "", [], 3) == b"HTTP/1.0 200 \r\nContent-Length: 3\r\n\r\n"


def test_a_304_keeps_the_length_of_what_it_does_not_send() -> None:
    head = response_head((1, 1), 304, "Not Modified", [(b"Content-Length", b"9")], 0)
    assert head == b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"


def test_line_breaks_inside_a_header_do_not_end_it() -> None:
    head = response_head((1, 1), 200, "O\rK", [(b"X", b"a\nInjected: b")], 0)
    assert head == b"HTTP/1.1 200 O K\r\nX: a Injected: b\r\nContent-Length: 0\r\n\r\n"


@given(HEADERS, st.integers(0, 99), st.text(max_size=10))
def test_any_stored_head_has_one_right_length_and_no_transfer_coding(
    headers: list[tuple[bytes, bytes]], size: int, reason: str
) -> None:
    head = response_head((1, 1), 200, reason.encode("utf-8", "replace").decode(), headers, size)
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    names = [line.partition(b":")[0].lower() for line in lines[1:]]
    lengths = [line for line, name in zip(lines[1:], names, strict=True) if name == b"content-length"]
    assert head.count(b"\n") == head.count(b"\r") == len(lines) + 1
    assert [int(line.partition(b":")[2]) for line in lengths] == [size]
    assert b"transfer-encoding" not in names


def test_a_location_that_is_not_utf_8_is_asked_for_in_its_octets() -> None:
    raw = [(b"Location", b"/caf\xe9?\xa0"), (b"X", b"caf\xe9")]
    assert header_pairs(raw) == [("location", "/caf%E9?%A0"), ("x", "café")]
    # Beside a header that is not, too.
    assert header_pairs([(b"Location", "/é".encode()), raw[1]]) == [("location", "/é"), ("x", "café")]


@given(HEADERS)
def test_pairs_can_be_written_as_utf8(headers: list[tuple[bytes, bytes]]) -> None:
    for name, value in header_pairs(headers):
        assert name == name.lower()
        assert value == value.strip()
        value.encode()
