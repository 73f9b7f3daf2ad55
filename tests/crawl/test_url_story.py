"""What `why` says of a URL, from what the store has."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from storage.stores import CRAWL, SPEC, Store, link

from dhtcrawl.crawl.explain import explain
from dhtcrawl.crawl.url_story import url_story
from dhtcrawl.searches import SearchEngine, Searches
from dhtcrawl.storage.store.crawl_record import CrawlRecord

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
