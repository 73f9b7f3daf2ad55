"""Each transaction that counts leaves what the others counted, and what was released is taken off once."""

from __future__ import annotations

from functools import partial

import pytest
from storage.stores import CRAWL, Store

from dhtcrawl.crawl.rounds import CrawlCounters
from dhtcrawl.storage.store import counters, given_up, keys, outcomes, tasks
from dhtcrawl.storage.store.records import SkipReason, unpack
from dhtcrawl.storage.store.tasks import Link
from dhtcrawl.swarm.lifecycle.roll import added_up

KEY = b"k" * 20
DETAIL = "disconnected: the server closed the connection"
GIVEN_UP = {"dead": 1, "errors": 1, "errors_disconnected": 1, "skipped_failed": 1}


def a_store_with_a_failure(detail: str = DETAIL) -> Store:
    store = Store()
    store.accept(Link(KEY, "http://a.example/", 0, ""))
    store.run(lambda txn: tasks.kill(txn, CRAWL, KEY, SkipReason.FAILED, detail, 2))
    counted = counters.of_dead(SkipReason.FAILED, detail)
    store.run(
        lambda txn: counters.put_counters(txn, CRAWL, {"urls_seen": 0, "fetches": 3}, {**counted, "urls_seen": 1})
    )
    return store


def release(store: Store) -> given_up.OpenedAgain:
    everything = {"mine": lambda _: True, "held": lambda _: False}
    return store.run(partial(given_up.release, crawl=CRAWL, task_keys=[KEY, KEY], **everything))


def stored(store: Store) -> dict[str, int]:
    value = store.engine.get(keys.key(keys.COUNTERS, CRAWL))
    assert value is not None
    return dict(unpack(value))


def test_what_is_released_is_told_as_given_up_no_more_and_counted_once_for_each_time() -> None:
    store = a_store_with_a_failure()
    assert counters.told(stored(store)) == {"urls_seen": 1, "fetches": 3, **GIVEN_UP}
    assert release(store).opened
    released = {"urls_seen": 1, "fetches": 3, "retried": 1, "dead": 0, "errors": 0}
    assert counters.told(stored(store)) == released
    assert not release(store).opened, "it is not given up any more"
    assert counters.told(stored(store)) == released


@pytest.mark.parametrize(
    ("detail", "retried"),
    [
        (DETAIL, 1),
        (f"0123abcd: {DETAIL}; 4567cdef: {DETAIL}", 1),
        ("timeout: no answer for 30 s", 1),
        (outcomes.again_and_again("timeout: no answer for 30 s"), 0),  # its origin's: each request was counted before
        (outcomes.answers_only(503), 0),
        ("dns: no such name", 0),  # no site saw it
    ],
)
def test_the_last_request_of_what_is_released_was_followed_by_another_try(detail: str, retried: int) -> None:
    store = a_store_with_a_failure(detail)
    known = CrawlCounters.unpack(store.engine.get(keys.key(keys.COUNTERS, CRAWL)))
    known.heard(release(store).counted)
    assert known.retried_in_all == retried
    assert counters.told(stored(store)).get("retried", 0) == retried


def test_what_is_dropped_is_no_error_and_skipped_for_another_reason() -> None:
    store = a_store_with_a_failure()
    store.run(partial(given_up.drop, crawl=CRAWL, task_keys=[KEY]))
    told = counters.told(stored(store))
    assert told == {"urls_seen": 1, "fetches": 3, "dead": 1, "errors": 0, "skipped_dropped": 1}


def test_a_round_that_began_before_a_release_does_not_undo_it() -> None:
    store = a_store_with_a_failure()
    known = CrawlCounters.unpack(store.engine.get(keys.key(keys.COUNTERS, CRAWL)))
    before = known.figures()
    known.heard(release(store).counted)
    store.run(lambda txn: counters.put_counters(txn, CRAWL, before, {"pages": 1}))
    known.add({"pages": 1})
    again = CrawlCounters.unpack(store.engine.get(keys.key(keys.COUNTERS, CRAWL)))
    assert again == known
    assert (again.told()["dead"], again.told()["pages"], again.queued) == (0, 1, 0)


def test_counters_as_they_are_stored_only_grow() -> None:
    store = a_store_with_a_failure()
    before = stored(store)
    release(store)
    assert {name: count for name, count in stored(store).items() if name in before} == before


def test_what_one_node_counted_and_another_one_released_is_taken_off_the_sum() -> None:
    counted = {"pages": 4, "dead": 2, "errors": 2, "errors_disconnected": 2, "skipped_failed": 2}
    released = counters.told({"pages": 1, "dead": 0, "errors": 0, **{f"released_{name}": 1 for name in GIVEN_UP}})
    assert min(released.values()) >= 0, "other nodes take no figure below 0"
    sums = added_up([counted, released])
    shown = {"dead": 1, "errors": 1, "errors_disconnected": 1, "skipped_failed": 1}
    assert {name: sums[name] for name in sums if name not in ("pages", "pages_reopened", "seconds")} == shown
    assert counters.shown(released) == {"pages": 1, "dead": 0, "errors": 0}
