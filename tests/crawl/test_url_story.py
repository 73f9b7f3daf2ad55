"""What `why` says of a URL, from what the store has."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from storage.stores import CRAWL, SPEC, Store, link

from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.explain import explain
from dhtcrawl.crawl.url_story import url_story
from dhtcrawl.searches import SearchEngine, Searches
from dhtcrawl.spec import make_spec
from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.counters import put_counters
from dhtcrawl.storage.store.crawl_record import CrawlRecord, with_settings
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.storage.store.tasks import Link

SEED = SPEC.seeds[0]


def test_a_task_for_nodes_of_a_type_says_so_while_it_waits() -> None:
    store = Store()
    store.accept(link(SEED))
    engine = SearchEngine("engine", f"{SEED}?{{query}}", type="meta")
    spec = replace(SPEC, searches=Searches((engine,)))
    plain, typed = CrawlRecord(CRAWL, SPEC, b""), CrawlRecord(CRAWL, spec, b"")
    first = url_story(store.run(partial(explain, crawl=plain, url=SEED)))[0]
    assert first == "is queued, and will be fetched when its host's turn comes"
    answer = store.run(partial(explain, crawl=typed, url=SEED))
    assert answer["node_type"] == "meta"
    first = url_story(answer)[0]
    assert first == "is queued, for a node of type 'meta' only (one that was started with --label type=meta)"
    assert url_story(answer | {"in_flight": True})[0] == "is being fetched"


@pytest.mark.parametrize(
    ("begun", "now", "says"),
    [
        (0, 10, "is queued; the crawl is at its limit of 10 pages, so it is not fetched"),
        (5, 10, "is queued; the crawl is at its limit of 10 pages, so it is not fetched"),
        (5, 20, "is queued, and will be fetched when its host's turn comes"),
        (5, 0, "is queued, and will be fetched when its host's turn comes"),
    ],
)
def test_the_limit_of_pages_is_the_one_with_which_the_crawl_goes_on(begun: int, now: int, says: str) -> None:
    store = Store()
    store.accept(link(SEED))
    store.run(partial(put_counters, crawl=CRAWL, known={"pages": 10}))
    spec = replace(SPEC, settings=replace(SPEC.settings, max_pages=begun))
    record = with_settings(CrawlRecord(CRAWL, spec, b""), replace(SPEC.settings, max_pages=now))
    assert url_story(store.run(partial(explain, crawl=record, url=SEED)))[0] == says


def test_a_url_that_no_url_led_to_is_told_of() -> None:
    """Another node may have sent any text as the page on which it found a link."""
    by_host = make_spec([SEED], CrawlSettings(key="host"))
    store = Store()
    store.accept(Link(by_host.key_of(SEED), SEED, 1, "nowhere"))
    answer = store.run(partial(explain, crawl=CrawlRecord(CRAWL, by_host, b""), url=SEED))
    assert (answer["state"], answer["referrer"]) == ("pending", "nowhere")


@pytest.mark.parametrize(
    ("reason", "attempt", "made"),
    [
        (SkipReason.FAILED, 0, 1),
        (SkipReason.FAILED, 2, 3),
        (SkipReason.ROBOTS, 0, None),
        (SkipReason.ROBOTS, 1, 1),
        (SkipReason.PRIVATE_ADDRESS, 0, None),
    ],
)
def test_a_task_that_died_before_it_was_asked_for_counts_no_request_for_that(
    reason: str, attempt: int, made: int | None
) -> None:
    store, key = Store(), SPEC.key_of(SEED)
    store.accept(link(SEED))
    store.run(partial(tasks.kill, crawl=CRAWL, key=key, reason=reason, detail="", attempt=attempt))
    answer = store.run(partial(explain, crawl=CrawlRecord(CRAWL, SPEC, b""), url=SEED))
    assert answer.get("attempts_made") == made
