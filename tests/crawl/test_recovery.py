"""What a restart reads from the archive is what the crawl saw."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.crawl.recovery import parse_head
from dhtcrawl.fetch.heads import header_pairs, response_head

NAMES = st.sampled_from([b"Location", b"Content-Type", b"X-Odd"])
VALUES = st.binary(max_size=30).map(lambda raw: raw.translate(bytes.maketrans(b"\r\n", b"__")).strip())


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5))
def test_headers_read_back_as_they_arrived(raw: list[tuple[bytes, bytes]]) -> None:
    stored = response_head((1, 1), 302, "Found", raw, 0)
    assert parse_head(stored)[: len(raw)] == header_pairs(raw)


def test_a_location_that_is_not_utf_8_leads_to_the_same_place() -> None:
    stored = response_head((1, 1), 302, "Found", [(b"Location", b"/caf\xe9")], 0)
    assert ("location", "/café") in parse_head(stored)
