"""What a failure or a status asks for: tables, and the one header that says when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.fetch.http import FetchFailureKind, Truncated
from dhtcrawl.fetch.retry import FAILURES, STATUSES, TRUNCATIONS, Blame, retry_after_s

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
LIMIT_S = 3600.0


def test_every_kind_of_failure_is_somebodys() -> None:
    assert set(FAILURES) == set(FetchFailureKind)


def test_where_nobody_answers_the_host_is_blamed() -> None:
    blamed = {kind for kind, blame in FAILURES.items() if blame is Blame.HOST}
    assert blamed == {FetchFailureKind.DNS, FetchFailureKind.CONNECT, FetchFailureKind.TLS}


def test_a_refused_address_is_not_asked_again() -> None:
    assert FAILURES[FetchFailureKind.PRIVATE_ADDRESS] is Blame.NEITHER


def test_only_passing_troubles_are_tried_again() -> None:
    assert {408, 429, 500, 502, 503, 504, 509, 520, 522, 530, 599} <= set(STATUSES)
    assert not set(STATUSES) & {200, 404, 425, 501, 505, 506, 507, 508, 510, 511, 600, 999}
    assert {status for status, again in STATUSES.items() if again.hold_host} == {429, 503}
    assert set(TRUNCATIONS) == {Truncated.DISCONNECT}


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 120 ", 120.0),
        ("000000000000000000120", 120.0),
        ("3601", LIMIT_S),
        ("9" * 5000, LIMIT_S),
        ("Sat, 31 Jan 2026 12:02:00 GMT", 120.0),
        ("Sat, 31 Jan 2026 12:02:00 -0000", 120.0),
        ("Sat, 31 Jan 2026 14:02:00 +0200", 120.0),
        ("Saturday, 31-Jan-26 12:02:00 GMT", 120.0),
        ("Sat Jan 31 12:02:00 2026", 120.0),
        ("Sat, 31 Jan 2026 11:00:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LIMIT_S),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_seconds_or_an_instant_within_a_limit(value: str, wait_s: float) -> None:
    assert retry_after_s(value, NOW, LIMIT_S) == wait_s


@pytest.mark.parametrize(
    "value",
    ["", "-5", "1.5", "soon", "٣", "²", "1e3", "0x10", "12:00", "Sat, 99 Jan 2026 12:00:00 GMT", "120 s", "\x00",
     "Sat, 31 Jan 2026 12:02:00 +9999", "Sat, 31 Jan 99999999999 12:02:00 GMT"],
)  # fmt: skip
def test_a_malformed_retry_after_says_nothing(value: str) -> None:
    assert retry_after_s(value, NOW, LIMIT_S) is None


@given(st.one_of(st.text(max_size=60), st.text("SatJn 0123456789:,+-GMT", max_size=40)))
def test_no_header_whatever_raises_or_asks_for_more_than_the_limit(value: str) -> None:
    wait_s = retry_after_s(value, NOW, LIMIT_S)
    assert wait_s is None or 0.0 <= wait_s <= LIMIT_S


@given(st.integers(-(10**6), 10**6), st.integers(-14, 14))
def test_an_instant_means_the_same_in_every_zone(seconds: int, hours: int) -> None:
    at = (NOW + timedelta(seconds=seconds)).astimezone(timezone(timedelta(hours=hours)))
    assert retry_after_s(format_datetime(at), NOW, 1e9) == max(0.0, float(seconds))
