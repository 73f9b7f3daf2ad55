"""Headers in several lines, with the examples of Fetch ("extract a MIME type") and of RFC 9110."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.fetch.charset import charset_of, media_type_of
from dhtcrawl.fetch.header_fields import content_encoding, content_type, locations


@pytest.mark.parametrize(
    ("lines", "counts"),
    [
        (["text/plain;charset=gbk, text/html"], "text/html"),
        (["text/html;charset=gbk;a=b, text/html;x=y"], "text/html;x=y;charset=gbk"),
        (["text/html;charset=gbk;a=b", "text/html;x=y"], "text/html;x=y;charset=gbk"),
        (["text/html;charset=gbk", "x/x", "text/html;x=y"], "text/html;x=y"),
        (["text/html", "cannot-parse"], "text/html"),
        (["text/html", "*/*"], "text/html"),
        (["text/html", ""], "text/html"),
        (["text/html;charset=gbk", "text/html; charset=big5"], "text/html; charset=big5"),
        (["text/html;charset=gbk", "text/html; charset=big5", "Text/HTML"], "Text/HTML; charset=big5"),
        (["text/plain", "text/html; charset=utf-8"], "text/html; charset=utf-8"),
        (["text/html", "image/png"], "image/png"),
        (['text/html;x="a,b/c";charset=gbk, x'], 'text/html;x="a,b/c";charset=gbk'),
        (['text/html;x="', "image/png"], 'text/html;x=",image/png'),
        (["", "nothing"], "nothing"),
        (["text/html; charset=x"], "text/html; charset=x"),
        (["*/*"], "*/*"),
    ],
)
def test_of_several_content_types_the_last_valid_one_counts(lines: list[str], counts: str) -> None:
    assert content_type([("x", "y"), *(("content-type", line) for line in lines)]) == counts


def test_without_a_content_type_there_is_none() -> None:
    assert content_type([("x-content-type", "text/html")]) is None


@given(st.lists(st.text('aZ/,;="\\ *\t', max_size=30), max_size=4))
def test_any_lines_have_a_content_type(lines: list[str]) -> None:
    counts = content_type([("content-type", line) for line in lines])
    assert (counts is None) == (not lines)
    media_type_of(counts)
    charset_of(b"", counts)


def test_a_content_type_is_read_once_only() -> None:
    for hostile in ('"' * 60_000, ";charset=" * 7_000, "," * 60_000, 'a/b;"\\' * 9_000, ";" + " " * 60_000 + ","):
        content_type([("content-type", hostile), ("content-type", hostile)])


def test_codings_in_several_lines_are_one_list() -> None:
    assert content_encoding([("content-encoding", "br"), ("content-encoding", "gzip")]) == "br, gzip"
    assert content_encoding([("content-encoding", "gzip"), ("content-encoding", "gzip")]) == "gzip"
    assert content_encoding([("content-encoding", "")]) is content_encoding([]) is None


def test_a_location_that_is_repeated_is_one() -> None:
    assert locations([("location", "/a"), ("location", "/a")]) == ["/a"]
    assert locations([("location", "/a"), ("location", "/b")]) == ["/a", "/b"]


def test_a_location_that_is_empty_is_none() -> None:
    assert locations([("location", "")]) == []
    assert locations([("location", ""), ("location", "/a")]) == ["/a"]
