"""What answers and failures come to: kinds of errors that add up, and the word for a crawl that has nothing left."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.fetch.http import FetchFailureKind
from dhtcrawl.fetch.retry import STATUSES
from dhtcrawl.storage.store.crawl_record import COMPLETE, FAILED
from dhtcrawl.storage.store.outcomes import (
    ERROR_KINDS,
    OTHER,
    again_and_again,
    answers_only,
    counter_of,
    end_of,
    errors_by_kind,
    is_content,
    kind_of_detail,
    kind_of_status,
    may_have_reached,
    ok_pages,
)
from dhtcrawl.storage.store.records import pack
from dhtcrawl.swarm.calls.words import WORDS_MAX


def test_a_failure_has_the_kind_that_its_detail_begins_with() -> None:
    for kind in FetchFailureKind:
        # An address that the guard refuses is skipped as that, and no error.
        wanted = OTHER if kind is FetchFailureKind.PRIVATE_ADDRESS else kind
        assert kind_of_detail(f"{kind}: some words: more") == wanted
    assert kind_of_detail("timeout: no head within 30 s, again and again") == "timeout"
    assert kind_of_detail(answers_only(503)) == "503"
    assert kind_of_detail("0a1b2c3d: connect: connection refused; ffffffff: timeout: no head within 30 s") == "connect"
    assert kind_of_detail(answers_only(599)) == "5xx"


@given(st.text(max_size=20) | st.text(max_size=8).map("answers ".__add__))
def test_words_of_any_other_origin_are_an_error_of_another_kind(detail: str) -> None:
    assert kind_of_detail(detail) in ERROR_KINDS


def test_a_registered_status_that_is_tried_again_has_a_kind_of_its_own() -> None:
    assert {kind_of_status(status) for status in STATUSES} == {"408", "429", "500", "502", "503", "504", "5xx"}
    assert [kind_of_status(status) for status in (404, 418, 507, 999)] == ["404", "4xx", "5xx", OTHER]


def test_kinds_fit_beside_all_other_counters_of_a_node() -> None:
    """With what its report has besides, and room for a dozen more."""
    figures = CrawlCounters(kinds=dict.fromkeys(ERROR_KINDS, 1)).figures()
    assert len(figures) + 12 <= WORDS_MAX


def test_content_is_neither_a_redirect_nor_an_error() -> None:
    assert [status for status in (200, 204, 299, 300, 304, 399, 400, 503) if is_content(status)] == [200, 204, 299]
    assert [end_of(0), end_of(1)] == [FAILED, COMPLETE]


def test_counters_are_stored_with_their_kinds() -> None:
    counters = CrawlCounters(pages=5, pages_ok=1, redirects=1, errors=4)
    counters.add({"fetches": 2, counter_of("404"): 3, counter_of("dns"): 1})
    counters.add({counter_of("404"): 0})
    again = CrawlCounters.unpack(counters.pack())
    assert again == counters
    assert (again.fetches, again.kinds) == (2, {"404": 3, "dns": 1})


def test_what_an_earlier_version_counted_without_kinds_is_content_or_an_error_of_another_kind() -> None:
    stored = {"pages": 9, "redirects": 2, "errors": 4, "urls_seen": 12}
    counters = CrawlCounters.unpack(pack(stored))
    assert (counters.pages, counters.pages_ok, counters.kinds) == (9, 7, {OTHER: 4})
    assert CrawlCounters.unpack(pack({**stored, **counters.figures()})) == counters
    assert CrawlCounters.unpack(None) == CrawlCounters()


def test_only_who_was_connected_and_asked_to_the_end_may_have_reached_a_site() -> None:
    assert [may_have_reached(f"{kind}: why") for kind in ("timeout", "headers", "dns", "connect", "odd")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert not may_have_reached(again_and_again("timeout: no head within 30 s")), "it is of other pages"
    assert not may_have_reached(answers_only(503))


def test_a_kind_that_did_not_occur_is_not_told() -> None:
    assert errors_by_kind({"errors_404": 0, "errors_dns": 1}) == {"dns": 1}


def test_a_kind_of_a_later_version_counts_as_another() -> None:
    assert errors_by_kind({"errors": 3, "errors_404": 1, "errors_teapot": 2, "pages": 1}) == {"404": 1, OTHER: 2}


def test_a_node_that_does_not_say_how_many_pages_are_content_may_have_some() -> None:
    assert [ok_pages(counters) for counters in ({}, {"pages": 3, "redirects": 1}, {"pages": 3, "pages_ok": 0})] == [
        0,
        2,
        0,
    ]
