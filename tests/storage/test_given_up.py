"""What a user may have tried again or dropped: tasks that failed or were recalled, and no others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from storage.stores import CRAWL, PLACE, SPEC, Store, link, page

from dhtcrawl.storage.store import given_up
from dhtcrawl.storage.store.records import SkipReason, State

URLS = [f"http://a.example/{number}" for number in range(6)]
FAILED, RECALLED, ROBOTS, BEYOND, OPEN, DONE = URLS
UNKNOWN = "http://a.example/unknown"


@pytest.fixture
def store() -> Store:
    made = Store()
    made.accept(*map(link, URLS))
    made.kill(FAILED, detail="dns: none")
    for url, reason in (
        (RECALLED, SkipReason.RECALLED),
        (ROBOTS, SkipReason.ROBOTS),
        (BEYOND, SkipReason.OUT_OF_SCOPE),
    ):
        made.kill(url, reason)
    made.fetched(page(DONE))
    return made


def listed(store: Store, *, scanned_max: int = 99, found_max: int = 99, without: Iterable[str] = ()) -> list[list[str]]:
    """What each look finds, from where the one before ended."""
    cursor: bytes | None = b""
    others, found = set(map(SPEC.key_of, without)), list[list[str]]()
    while cursor is not None:
        at = cursor
        some, cursor = store.run(
            lambda txn, at=at: given_up.given_up(  # type: ignore[misc]
                txn, CRAWL, at, scanned_max=scanned_max, found_max=found_max, mine=lambda key: key not in others
            )
        )
        found.append([each.url for each in some])
    return found


def everything() -> list[bytes]:
    return [SPEC.key_of(url) for url in (*URLS, UNKNOWN)]


def test_only_what_failed_or_was_recalled_is_for_a_person_to_decide_about(store: Store) -> None:
    [found] = listed(store)
    assert sorted(found) == [FAILED, RECALLED]
    assert listed(store, without=[FAILED]) == [[RECALLED]], "another node's is listed there"


def test_a_look_reads_so_many_records_and_finds_so_many_tasks_at_most(store: Store) -> None:
    by_one = listed(store, scanned_max=1)
    assert len(by_one) == len(URLS)
    assert sorted(url for found in by_one for url in found) == [FAILED, RECALLED]
    assert max(map(len, listed(store, found_max=1))) == 1


def test_what_is_released_is_open_again_and_the_rest_stays_as_it_is(store: Store) -> None:
    again = store.run(
        lambda txn: given_up.release(txn, CRAWL, everything() * 2, mine=lambda _: True, held=lambda _: False)
    )
    assert sorted(task.url for _, task in again.opened) == [FAILED, RECALLED]
    assert [store.task(url).state for url in (FAILED, RECALLED)] == [State.PENDING] * 2
    assert [store.task(url).state for url in (ROBOTS, BEYOND, OPEN, DONE)] == [
        State.DEAD, State.DEAD, State.PENDING, State.FETCHED,
    ]  # fmt: skip
    assert (store.task(FAILED).gen, store.task(OPEN).gen) == (1, 0)
    assert listed(store) == [[]]


def test_what_died_beyond_the_scope_is_opened_when_the_scope_has_grown(store: Store) -> None:
    again = store.run(lambda txn: given_up.reach(txn, CRAWL, everything(), mine=lambda _: True, held=lambda _: False))
    assert [task.url for _, task in again.opened] == [BEYOND]


def test_what_is_dropped_is_off_the_list_for_good_and_nothing_else_is(store: Store) -> None:
    dropped = store.run(lambda txn: given_up.drop(txn, CRAWL, everything()))
    assert sorted(task.url for _, task in dropped.dropped) == [FAILED, RECALLED]
    assert listed(store) == [[]]
    assert {store.task(url).reason for url in (FAILED, RECALLED)} == {SkipReason.DROPPED}
    assert store.task(ROBOTS).reason == SkipReason.ROBOTS
    assert (store.task(OPEN).state, store.task(DONE).state) == (State.PENDING, State.FETCHED)
    assert store.task(DONE).place == PLACE
    assert not store.run(lambda txn: given_up.drop(txn, CRAWL, everything())).dropped
