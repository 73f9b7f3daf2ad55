"""A body without its content and transfer codings, however headers name them."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.fetch.body import Decoded
from dhtcrawl.fetch.coded_body import decoded_body

PAGE = b"<a href=x>" * 50
ONCE = gzip.compress(PAGE, mtime=0)
TWICE = gzip.compress(ONCE, mtime=0)
CODED = ("content-encoding", "gzip")


@pytest.mark.parametrize("name", ["transfer-encoding", "x-archive-orig-transfer-encoding"])
def test_a_transfer_coding_is_undone_on_arrival_and_from_the_archive(name: str) -> None:
    for value in ("gzip, chunked", "x-gzip", "GZIP,identity"):
        assert decoded_body([(name, value)], ONCE, 1_000) == Decoded(PAGE)
    assert decoded_body([(name, "gzip"), (name, "chunked")], ONCE, 1_000) == Decoded(PAGE)
    assert decoded_body([CODED, (name, "gzip, chunked")], TWICE, 1_000) == Decoded(PAGE)
    assert decoded_body([(name, "chunked")], PAGE, 1_000) == Decoded(PAGE)


def test_a_transfer_coding_that_is_not_undone_is_told() -> None:
    found = decoded_body([("transfer-encoding", "deflate, chunked")], zlib.compress(PAGE), 1_000)
    assert found == Decoded(zlib.compress(PAGE), error="transfer-encoding: 'deflate' is not undone")
    # A header that tells of another body, as that of an archive's reply may.
    found = decoded_body([("x-archive-orig-transfer-encoding", "gzip")], PAGE, 1_000)
    assert found == Decoded(PAGE, error="transfer-encoding: 'gzip' is not undone")


def test_a_body_coded_as_often_as_its_line_stands_there_is_undone_twice() -> None:
    assert decoded_body([CODED, CODED], ONCE, 1_000) == Decoded(PAGE)
    assert decoded_body([CODED, CODED], TWICE, 1_000) == Decoded(PAGE)
    assert decoded_body([CODED], TWICE, 1_000) == Decoded(ONCE)
    assert decoded_body([CODED, CODED, CODED], gzip.compress(TWICE), 1_000) == Decoded(ONCE)


def test_a_body_is_cut_at_the_limit_whatever_its_coding() -> None:
    assert decoded_body([], PAGE, 10) == Decoded(PAGE[:10], truncated=True)
    for headers, body in (([CODED], ONCE), ([CODED, CODED], TWICE), ([("transfer-encoding", "gzip")], ONCE)):
        assert decoded_body(headers, body, 100) == Decoded(PAGE[:100], truncated=True)
    # Its end is missing because it was cut off here.
    stored = gzip.compress(PAGE, compresslevel=0)
    assert decoded_body([CODED], stored, 100).error is None
    assert decoded_body([CODED], stored[:100], 1_000).error is not None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["content-encoding", "transfer-encoding", "x-archive-orig-transfer-encoding"]),
            st.sampled_from(["gzip", "gzip, chunked", "chunked", "br", "deflate", "zstd", ",", ""]),
        ),
        max_size=4,
    ),
    st.sampled_from([b"", PAGE, ONCE, TWICE, zlib.compress(PAGE), ONCE[:30]]),
)
def test_any_body_with_any_headers_is_within_the_limit(headers: list[tuple[str, str]], body: bytes) -> None:
    assert len(decoded_body(headers, body, 300).data) <= 300
