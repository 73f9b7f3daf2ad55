"""Limits: what they allow, and which of them ends a crawl how."""

from __future__ import annotations

import pytest

from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.budget import CrawlLimits, Stop, is_raised
from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.crawl.single_node import SoleBudget
from dhtcrawl.errors import Exit


def test_without_limits_nothing_is_ever_exceeded() -> None:
    limits = CrawlLimits(CrawlSettings())
    assert SoleBudget(0, CrawlCounters(pages=10**9)).may_start(10**9)
    assert limits.exceeded(pages=10**9, seconds=1e9, size_bytes=10**15) is None


@pytest.mark.parametrize(("pages", "in_flight", "may"), [(0, 0, True), (2, 0, True), (1, 2, False), (0, 3, False)])
def test_requests_in_flight_count_as_pages_before_they_are(pages: int, in_flight: int, may: bool) -> None:
    assert SoleBudget(3, CrawlCounters(pages=pages)).may_start(in_flight) is may


@pytest.mark.parametrize(
    ("settings", "stop", "code"),
    [
        (CrawlSettings(max_pages=10), Stop.PAGE_LIMIT, 21),
        (CrawlSettings(time_limit_s=5.0), Stop.TIME_LIMIT, 15),
        (CrawlSettings(size_limit_bytes=1000), Stop.SIZE_LIMIT, 14),
    ],
)
def test_a_limit_is_exceeded_when_it_is_reached(settings: CrawlSettings, stop: Stop, code: int) -> None:
    limits = CrawlLimits(settings)
    assert limits.exceeded(pages=9, seconds=4.9, size_bytes=999) is None
    assert limits.exceeded(pages=10, seconds=5.0, size_bytes=1000) is stop
    assert stop.exit_code == code


@pytest.mark.parametrize(
    ("ended", "before", "after", "goes_on"),
    [
        ("page limit", CrawlSettings(max_pages=10), CrawlSettings(max_pages=11), True),
        ("page limit", CrawlSettings(max_pages=10), CrawlSettings(), True),
        ("page limit", CrawlSettings(max_pages=10), CrawlSettings(max_pages=10, time_limit_s=9.0), False),
        ("page limit", CrawlSettings(max_pages=10), CrawlSettings(max_pages=9), False),
        ("time limit", CrawlSettings(time_limit_s=1.0), CrawlSettings(time_limit_s=1.5), True),
        ("size limit", CrawlSettings(size_limit_bytes=1), CrawlSettings(max_pages=1), True),
        ("disk limit", CrawlSettings(), CrawlSettings(), True),
        ("complete", CrawlSettings(max_pages=1), CrawlSettings(), False),
        ("complete", CrawlSettings(depth=1), CrawlSettings(depth=2), True),
        ("complete", CrawlSettings(depth=0), CrawlSettings(depth=-1), True),
        ("complete", CrawlSettings(depth=1), CrawlSettings(depth=1, max_pages=9), False),
        ("complete", CrawlSettings(depth=2), CrawlSettings(depth=1), False),
        ("complete", CrawlSettings(depth=-1), CrawlSettings(depth=9), False),
        ("page limit", CrawlSettings(max_pages=1, depth=1), CrawlSettings(max_pages=1, depth=2), False),
        ("stopped", CrawlSettings(max_pages=1), CrawlSettings(), False),
        ("a later version's word", CrawlSettings(max_pages=1), CrawlSettings(), False),
    ],
)
def test_a_crawl_goes_on_when_the_limit_that_ended_it_is_higher_or_gone(
    ended: str, before: CrawlSettings, after: CrawlSettings, goes_on: bool
) -> None:
    assert is_raised(ended, before, after) is goes_on


def test_every_stop_has_an_exit_code_of_its_own() -> None:
    codes = [stop.exit_code for stop in Stop]
    assert len(set(codes)) == len(codes)
    assert Exit.COMPLETE not in codes


def test_only_an_interrupted_crawl_leaves_what_is_pending_pending() -> None:
    assert [stop for stop in Stop if not stop.reason] == [Stop.INTERRUPTED]
