"""The words for where crawls and hosts stand, and for why nothing moves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.standing import (
    CAUSE_CHARS_MAX,
    CAUSES,
    SKIPPED,
    Cause,
    HostCondition,
    Obstacle,
    crawl_standing,
    first,
    host_state,
    sentence,
    span,
)
from dhtcrawl.storage.store.records import SkipReason

OBSTACLES = st.builds(
    Obstacle,
    st.sampled_from([*CAUSES, "of-a-later-version"]),
    st.text(max_size=9),
    st.text(max_size=9),
    st.integers(0, 10**6),
    st.none() | st.floats(0, 1e7),
    st.none() | st.floats(0, 1e7),
)


def words_of(namespace: type) -> set[str]:
    return {value for name, value in vars(namespace).items() if name.isupper()}


def test_every_word_has_a_sentence() -> None:
    assert words_of(Cause) == set(CAUSES)
    assert words_of(SkipReason) == set(SKIPPED)
    assert all(re.fullmatch(r"[a-z][a-z-]*", cause) and len(cause) <= CAUSE_CHARS_MAX for cause in CAUSES)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-1, "0.0 s"), (0.04, "0.0 s"), (0.4, "0.4 s"), (1, "1 s"), (26.2, "27 s"), (59.5, "1 min"),
        (558, "9 min 18 s"), (3_600, "1 h"), (7_500, "2 h 5 min"), (86_400 * 3 + 4 * 3_600, "3 d 4 h"),
    ],
)  # fmt: skip
def test_a_span_has_two_units_at_most(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_a_sentence_has_the_time_left_or_else_the_time_it_has_lasted() -> None:
    asked = Obstacle(Cause.RETRY_AFTER, "a.example", "429", left_s=26.2, for_s=3.0)
    assert sentence(asked) == "a.example asked for a pause (429), 27 s left"
    assert sentence(asked._replace(left_s=None)) == "a.example asked for a pause (429), for 3 s"


@given(st.lists(OBSTACLES))
def test_the_first_of_several_is_the_same_whatever_their_order(obstacles: list[Obstacle]) -> None:
    named, again = first(obstacles), first(obstacles[::-1])
    assert (named is None) == (not obstacles)
    if named is not None and again is not None:
        assert (named.cause, named.left_s, named.about) == (again.cause, again.left_s, again.about)
        assert "\n" not in sentence(named) or "\n" in named.about + named.detail


@pytest.mark.parametrize(
    ("cause", "state"),
    [(None, "ready"), ("retry-after", "snoozed"), ("failing", "asleep"), ("crawl-delay", "waiting"), ("new", "ready")],
)
def test_a_host_has_the_state_of_what_keeps_it_back(cause: str | None, state: str) -> None:
    assert host_state(None if cause is None else Obstacle(cause)) is HostCondition(state)


def test_a_running_crawl_that_something_keeps_back_waits_and_an_ended_one_says_how_it_ended() -> None:
    paused = Obstacle(Cause.PAUSED)
    assert crawl_standing("running", "", None)["state"] == "running"
    assert crawl_standing("running", "", Obstacle(Cause.LEASE, "h"))["state"] == "waiting"
    assert crawl_standing("paused", "", paused)["state"] == "paused"
    ended = crawl_standing("running", "page limit", paused)
    assert (ended["state"], ended["reason"]) == ("ended", "page limit")
    assert "page limit" in ended["text"]


def test_the_page_for_operators_has_every_word_in_the_order_in_which_they_are_named() -> None:
    page = (Path(__file__).parents[1] / "docs" / "operations.md").read_text("utf-8")
    table = page.split("## Why nothing moves", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE) == list(CAUSES)
    assert all(f"`{state.value}`" in table for state in HostCondition)


@given(OBSTACLES)
def test_what_a_crawl_waits_for_is_told_without_its_times_too(obstacle: Obstacle) -> None:
    told = crawl_standing("running", "", obstacle)
    assert told["says"] == sentence(obstacle._replace(for_s=None, left_s=None))
    assert told["text"].startswith(told["says"])


def test_every_cause_is_one_that_some_part_names() -> None:
    product = Path(__file__).parents[1] / "dhtcrawl"
    said = "".join(file.read_text("utf-8") for file in product.rglob("*.py") if file.name != "standing.py")
    unused = [name for name in vars(Cause) if name.isupper() and f"Cause.{name}" not in said]
    assert unused == []
