"""An origin that answers nothing useful is given up, and what a host asked for outlives a restart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dhtcrawl.clock import Clock
from dhtcrawl.config import CrawlSettings, PolitenessSettings
from dhtcrawl.crawl.origins import Beginning, Origins
from dhtcrawl.fetch.http import FetchFailure, FetchFailureKind
from dhtcrawl.fetch.politeness import HostBook
from dhtcrawl.fetch.robots import Robots
from dhtcrawl.fetch.robots_book import RobotsBook
from dhtcrawl.policy.seam import TaskResult
from dhtcrawl.storage.store.records import SkipReason

ORIGIN = "http://a.example"
HOST = "a.example"
POLITE = PolitenessSettings(host_strikes_max=3, host_silences_max=2)
REFUSED = FetchFailure(FetchFailureKind.CONNECT, "refused", 0.0, 0.0)
NEW = Beginning({}, has_pages=False, alone=True)
OWING = NEW._replace(owed={"b.example": 30.0})
BUSY: Any = SimpleNamespace(status=503, started_at=0.0, ended_at=0.0)


@pytest.fixture
def robots() -> RobotsBook:
    return RobotsBook("dhtcrawl", now=lambda: 0.0, ttl_s=60.0, crawl_delay_max_s=60.0)


@pytest.fixture
def hosts() -> HostBook:
    return HostBook(started_at=0.0, fresh=True)


@pytest.fixture
def origins(robots: RobotsBook, hosts: HostBook) -> Origins:
    clock = cast(Clock, SimpleNamespace(monotonic=lambda: 0.0))
    return Origins(CrawlSettings(delay_s=1.0), POLITE, robots, hosts, clock, OWING, {})


def test_one_that_nobody_reaches_is_left_alone_for_longer_and_longer_and_then_given_up(
    origins: Origins, hosts: HostBook
) -> None:
    waits = []
    for _ in range(POLITE.host_strikes_max - 1):
        origins.lost(ORIGIN, REFUSED, 0.0)
        waits.append(hosts.clock(HOST).hold_until)
    assert waits == sorted(waits)
    assert origins.without_hope(ORIGIN) is None
    origins.lost(ORIGIN, REFUSED, 0.0)
    hopeless = origins.without_hope(ORIGIN)
    assert hopeless is not None
    assert hopeless.result is TaskResult.UNREACHABLE


def test_of_several_waits_that_a_host_asks_for_the_longest_counts(robots: RobotsBook, hosts: HostBook) -> None:
    clock = cast(Clock, SimpleNamespace(wall=lambda: datetime(2026, 1, 31, 12, tzinfo=UTC)))
    origins = Origins(CrawlSettings(delay_s=1.0), POLITE, robots, hosts, clock, NEW, {})

    def wait_s(*lines: str) -> float:
        busy: Any = SimpleNamespace(status=503, headers=[("retry-after", line) for line in lines])
        return origins.wait_s(busy, 0)

    assert wait_s("5", "soon", "Sat, 31 Jan 2026 12:02:00 GMT") == wait_s("120", "7") == 120
    assert wait_s("0") == 0
    assert wait_s("soon") == wait_s() == origins.backoff.wait_s(1)


@pytest.mark.parametrize("off", [timedelta(hours=-2), timedelta(), timedelta(hours=2)])
def test_a_date_that_a_host_asks_to_be_left_alone_until_counts_from_the_date_of_its_answer_whatever_our_clock_says(
    robots: RobotsBook, hosts: HostBook, off: timedelta
) -> None:
    """By a clock that is fast it was over at once: the host was asked again, and its pages were given up."""
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    clock = cast(Clock, SimpleNamespace(wall=lambda: noon + off))
    origins = Origins(CrawlSettings(delay_s=1.0), POLITE, robots, hosts, clock, NEW, {})
    headers = [("date", "soon"), ("date", format_datetime(noon, usegmt=True))]
    headers += [("retry-after", format_datetime(noon + timedelta(seconds=90), usegmt=True))]
    assert origins.wait_s(cast(Any, SimpleNamespace(status=503, headers=headers)), 0) == 90


def test_a_host_may_have_a_delay_of_its_own_which_a_longer_one_of_robots_txt_outdoes(
    robots: RobotsBook, hosts: HostBook
) -> None:
    clock = cast(Clock, SimpleNamespace(monotonic=lambda: 0.0))
    delays = {"slow.example": 5.0, HOST: 0.25}
    origins = Origins(CrawlSettings(delay_s=1.0), POLITE, robots, hosts, clock, NEW, delays)
    assert [origins.delay_s(host) for host in ("slow.example", HOST, "other.example")] == [5.0, 0.25, 1.0]
    origins.change(CrawlSettings(delay_s=9.0))
    assert [origins.delay_s(host) for host in ("slow.example", HOST, "other.example")] == [5.0, 0.25, 9.0]


def test_one_that_only_says_not_now_is_given_up_until_a_person_forgives_it(origins: Origins) -> None:
    for _ in range(POLITE.host_silences_max):
        assert origins.without_hope(ORIGIN) is None
        origins.note_answer(ORIGIN, BUSY)
    assert origins.without_hope(ORIGIN) is not None
    assert origins.may_ask(ORIGIN), "its tasks are to be offered, and to be given up"
    origins.forgive()
    assert origins.without_hope(ORIGIN) is None
    origins.note_answer(ORIGIN, BUSY)
    assert origins.without_hope(ORIGIN) is None, "it begins anew"


@pytest.mark.parametrize("status", [200, 404, 500])
def test_any_other_answer_is_one_and_what_was_in_a_row_before_it_counts_no_more(origins: Origins, status: int) -> None:
    for _ in range(POLITE.host_silences_max):
        origins.note_answer(ORIGIN, cast(Any, SimpleNamespace(status=status, started_at=0.0, ended_at=0.0)))
        origins.note_answer(ORIGIN, BUSY)
    assert origins.without_hope(ORIGIN) is None


def test_only_an_origin_that_was_taken_for_one_beyond_the_scope_is_pardoned(origins: Origins) -> None:
    beyond, failed = "http://beyond.example", "http://failed.example"
    origins.give_up(beyond, SkipReason.OUT_OF_SCOPE, "no seed leads there")
    origins.give_up(failed, SkipReason.FAILED, "refused")
    for origin in (beyond, failed, ORIGIN):
        origins.pardon(origin)
    assert [origin for origin, _ in origins.given_up(9)] == [failed]


def test_a_restart_is_told_of_waits_that_are_longer_than_the_delay_and_once(origins: Origins) -> None:
    assert origins.owe(HOST, 0.5) is None, "the delay is longer"
    assert origins.owe(HOST, 9.0) == 9.0
    assert origins.owe(HOST, 9.0) is None
    assert origins.owe(HOST, 0.0) == 0.0
    assert origins.owe("b.example", 30.0) is None, "the store has it"


def test_between_two_requests_lies_the_longer_of_our_delay_and_the_hosts_wish(
    origins: Origins, robots: RobotsBook
) -> None:
    assert origins.delay_s(HOST) == 1.0
    assert not origins.may_ask(ORIGIN)
    robots.put(ORIGIN, Robots.parse(b"User-agent: *\nCrawl-delay: 5\n"))
    assert origins.delay_s(HOST) == 5.0
    assert origins.may_ask(ORIGIN)
