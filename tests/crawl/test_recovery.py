"""What a restart reads from the archive is what the crawl saw."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.analysis import analyse
from dhtcrawl.crawl.record_finder import finder_of
from dhtcrawl.crawl.recovery import StoredPage, look_again, parse_head
from dhtcrawl.fetch.heads import header_pairs, response_head
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.archive.warcread import WarcRecord
from dhtcrawl.storage.store.records import Task

NAMES = st.sampled_from([b"Location", b"Content-Type", b"X-Odd"])
VALUES = st.binary(max_size=30).map(lambda raw: raw.translate(bytes.maketrans(b"\r\n", b"__")).strip())


@given(st.lists(st.tuples(NAMES, VALUES), max_size=5))
def test_headers_read_back_as_they_arrived(raw: list[tuple[bytes, bytes]]) -> None:
    stored = response_head((1, 1), 302, "Found", raw, 0)
    assert parse_head(stored)[: len(raw)] == header_pairs(raw)


def test_a_location_that_is_not_utf_8_leads_to_the_same_place() -> None:
    stored = response_head((1, 1), 302, "Found", [(b"Location", b"/caf\xe9")], 0)
    assert ("location", "/caf%E9") in parse_head(stored)


def test_links_that_rules_leave_out_are_not_sent_when_a_page_is_looked_at_again() -> None:
    rules = """
        [[rules]]
        name = "r"
        site = "a"
        follow = "ul"
        fields = [{ name = "f", selector = "p" }]
    """
    spec = replace(make_spec(["http://a/"], CrawlSettings()), rules=rules)
    finder = finder_of(spec)
    assert finder is not None
    body = b"<p>x</p><a href=/no>n</a><ul><li><a href=' /yes '>y</a></ul><a href=/no rel=nofollow>n</a>"
    head = response_head((1, 1), 200, "OK", [(b"Content-Type", b"text/html")], len(body))
    fetched = analyse(
        "http://a/", 200, parse_head(head), body, html_bytes_max=1 << 20, find_records=finder("http://a/")
    )
    page = StoredPage(
        Task("http://a/", 0, 0, ""), {"status": 200, "query_charset": "utf-8"}, WarcRecord("response", {}, head, body)
    )
    again = look_again(page, 1 << 20, finder("http://a/"))
    assert (again.hrefs, again.left) == (fetched.hrefs, fetched.left) == (["/yes"], ["/no"])
    assert look_again(page, 1 << 20).hrefs == ["/no", "/yes"]
