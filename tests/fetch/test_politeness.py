"""A host's clock: the delay is kept, and a promise broken would be counted."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.config import FetchSettings, PolitenessSettings
from dhtcrawl.fetch.politeness import GRANULARITY_S, Backoff, Health, HealthBook, HoldReason, HostBook, HostClock

HELD = HoldReason("retry-after", "429")


def no_delay(_: str) -> float:
    return 0.0


def test_the_delay_runs_from_the_end_of_a_response() -> None:
    clock = HostClock()
    clock.begin(10.0, 1.0)
    clock.end(40.0)
    assert clock.ready_at(1.0) == 41.0


def test_a_host_that_was_never_asked_may_be_asked_at_once() -> None:
    assert HostClock().ready_at(60.0) == -math.inf


def test_nobody_is_asked_while_a_request_is_under_way_unless_several_may_be() -> None:
    clock = HostClock()
    clock.begin(0.0, 0.0)
    assert clock.ready_at(0.0) == math.inf
    assert clock.ready_at(0.0, parallel=2) < 0.0
    clock.begin(0.0, 0.0)
    assert clock.ready_at(0.0, parallel=2) == math.inf


def test_a_request_that_was_never_sent_leaves_the_clock_as_it_was() -> None:
    clock = HostClock(5.0)
    clock.begin(7.0, 1.0)
    clock.cancel()
    assert (clock.ready_at(1.0), clock.in_flight) == (6.0, 0)


def test_responses_that_end_out_of_order_count_from_the_last() -> None:
    clock = HostClock()
    clock.begin(0.0, 0.0)
    clock.begin(0.0, 0.0)
    clock.end(9.0)
    clock.end(8.0)
    assert clock.ready_at(2.0) == 11.0


@pytest.mark.parametrize(
    ("begins_at", "violations"), [(10.9, 1), (11.0, 0), (11.0 - GRANULARITY_S / 2, 0), (11.0 - 2 * GRANULARITY_S, 1)]
)
def test_a_request_that_begins_too_soon_is_counted(begins_at: float, violations: int) -> None:
    book = HostBook(started_at=0.0, fresh=True)
    clock = book.clock("a")
    clock.begin(9.0, 1.0)
    clock.end(10.0)
    clock.begin(begins_at, 1.0)
    assert book.violations == violations


def test_a_request_beside_another_is_too_soon_where_there_is_a_delay() -> None:
    book = HostBook(started_at=0.0, fresh=True)
    for _ in range(2):
        book.clock("parallel").begin(1.0, 0.0)
        book.clock("polite").begin(1.0, 1.0)
    assert book.violations == 1


@pytest.mark.parametrize(
    ("failures", "wait_s"), [(1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (100, 60.0), (10**6, 60.0)]
)
def test_the_wait_after_failures_doubles_up_to_a_limit(failures: int, wait_s: float) -> None:
    assert Backoff(first_s=1.0, max_s=60.0).wait_s(failures) == wait_s


def test_an_origin_that_never_answered_is_given_up_sooner() -> None:
    backoff = Backoff(failures_max=5, strikes_max=2)
    silent, known = Health(), Health()
    known.succeeded()
    assert [silent.failed(backoff, at, at) for at in range(2)] == [False, True]
    assert [known.failed(backoff, at, at) for at in range(5)] == [False] * 4 + [True]


def test_an_origin_that_answered_before_has_some_twenty_minutes_by_default() -> None:
    polite = PolitenessSettings()
    backoff = Backoff(polite.backoff_first_s, polite.backoff_max_s)
    waits_s = [backoff.wait_s(failures) for failures in range(1, polite.host_failures_max)]
    longest_s = polite.host_failures_max * FetchSettings().connect_timeout_s
    assert sum(waits_s) == 1111
    assert 18 * 60 < sum(waits_s) < 20 * 60 < sum(waits_s) + longest_s < 21 * 60


def test_an_answer_begins_the_count_of_failures_anew() -> None:
    health, backoff = Health(), Backoff(failures_max=3, strikes_max=3, silences_max=3)
    for at in range(5):
        assert not health.failed(backoff, at, at)
        assert not health.failed(backoff, at, at)
        assert not health.fell_silent(backoff, at, at)
        assert not health.fell_silent(backoff, at, at)
        health.succeeded()
    assert health.failures == health.silences == 0


def test_an_origin_that_is_always_busy_or_silent_is_given_up_in_the_end() -> None:
    health, backoff = Health(), Backoff(silences_max=3)
    health.succeeded()
    assert [health.fell_silent(backoff, at, at) for at in range(3)] == [False, False, True]


def test_of_requests_that_were_under_way_together_the_first_to_fail_counts() -> None:
    backoff = Backoff(strikes_max=2, silences_max=2)
    for count in (Health().failed, Health().fell_silent):
        assert not any(count(backoff, started_at, 30.0 + started_at) for started_at in (0.0, 1.0, 29.9))
        assert count(backoff, 30.0, 60.0), "it began when the first had failed"


def test_the_health_of_an_origin_is_its_own_and_the_longest_unmet_is_forgotten() -> None:
    book = HealthBook(origins_max=2)
    closed = book.of("https://a")
    closed.failed(Backoff(), 0.0, 1.0)
    assert book.of("http://a").failures == 0
    assert book.of("https://a") is closed
    book.of("http://b")
    assert book.of("https://a") is not closed


def test_a_hold_only_grows() -> None:
    clock = HostClock()
    clock.hold(0.0, 100.0, HELD)
    clock.hold(50.0, 10.0, HELD)
    assert clock.ready_at(0.0) == 100.0


def test_after_a_restart_every_host_is_owed_a_delay() -> None:
    restarted = HostBook(started_at=50.0, fresh=False)
    assert restarted.clock("a").ready_at(7.0) == 57.0
    assert HostBook(started_at=50.0, fresh=True).clock("a").ready_at(7.0) < 50.0
    met = restarted.clock("b")
    assert (restarted.known("b"), restarted.known("c")) == (met, None), "to look at one makes none"


def test_only_what_owes_nothing_is_forgotten_and_only_when_there_is_too_much() -> None:
    book = HostBook(started_at=0.0, fresh=True, clocks_max=1)
    busy, waiting, held, idle = (book.clock(name) for name in ("busy", "waiting", "held", "idle"))
    busy.begin(0.0, 0.0)
    for clock, end_at in ((waiting, 9.0), (idle, 1.0)):
        clock.begin(0.0, 2.0)
        clock.end(end_at)
    held.hold(0.0, 100.0, HELD)
    for _ in range(2):  # it looks at as many as there are too many
        book.sweep(10.0, lambda _: 2.0)
    assert [book.clock(name) is clock for name, clock in (("busy", busy), ("waiting", waiting))] == [True, True]
    assert book.clock("held") is held
    assert book.clock("idle") is not idle
    small = HostBook(started_at=0.0, fresh=True, clocks_max=1)
    kept = small.clock("a")
    small.sweep(10.0, no_delay)
    assert small.clock("a") is kept


def test_a_host_that_wishes_for_a_long_delay_is_remembered_as_long() -> None:
    book = HostBook(started_at=0.0, fresh=True, clocks_max=0)
    for host in ("slow", "quick"):
        book.clock(host).begin(9.0, 0.0)
        book.clock(host).end(10.0)
    book.sweep(20.0, lambda host: 60.0 if host == "slow" else 1.0)
    assert book.clock("slow").ready_at(60.0) == 70.0
    assert book.clock("quick").ready_at(1.0) == -math.inf


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "begin", "end", "end", "cancel", "hold", "failed", "sweep"]),
        st.sampled_from("ab"),
        st.floats(0, 3),
    ),
    max_size=60,
)


@given(events=EVENTS, delay_s=st.sampled_from([0.0, 0.5, 2.0]), parallel=st.integers(1, 3), fresh=st.booleans())
def test_whoever_waits_for_the_clock_keeps_every_gap(
    events: list[tuple[str, str, float]], delay_s: float, parallel: int, fresh: bool
) -> None:
    if delay_s:
        parallel = 1
    now = 100.0
    book = HostBook(started_at=now, fresh=fresh, clocks_max=0)
    last_end_at = dict.fromkeys("ab", -math.inf if fresh else now)
    in_flight = dict.fromkeys("ab", 0)
    held_until = dict.fromkeys("ab", -math.inf)
    for event, host, amount in events:
        now += amount / 3
        clock = book.clock(host)
        match event:
            case "begin":
                ready_at = clock.ready_at(delay_s, parallel)
                assert (ready_at == math.inf) == (in_flight[host] == parallel)
                if ready_at == math.inf:
                    continue
                now = max(now, ready_at)
                assert now >= last_end_at[host] + delay_s
                assert now >= held_until[host]
                clock.begin(now, delay_s)
                in_flight[host] += 1
            case "end" | "failed" | "cancel" if in_flight[host]:
                in_flight[host] -= 1
                if event == "cancel":
                    clock.cancel()
                    continue
                clock.end(now)
                last_end_at[host] = now
                if event == "failed":
                    clock.hold(now, amount, HELD)
                    held_until[host] = max(held_until[host], now + amount)
            case "hold":
                clock.hold(now, amount, HELD)
                held_until[host] = max(held_until[host], now + amount)
            case "sweep":
                book.sweep(now, lambda _: delay_s)
    assert book.violations == 0
