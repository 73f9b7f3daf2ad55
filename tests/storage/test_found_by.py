"""Which searches led to a page, whatever other nodes say of the way there."""

from __future__ import annotations

from dataclasses import replace

from storage.stores import CRAWL, SPEC, Store, link

from dhtcrawl.searches import Search, SearchEngine, Searches, Wanted
from dhtcrawl.storage.outputs.found_by import FoundBy

ENGINE = SearchEngine("e", "http://e.example/?q={query}")
TEMPLATES = replace(SPEC, searches=Searches((ENGINE,), (("",),), (Wanted("milk", ("milk",), 0, (0,)),)))
RESULTS, FIRST, SECOND = "http://e.example/?q=milk", "http://a.example/1", "http://a.example/2"


def led_to(url: str, store: Store) -> list[dict[str, object]]:
    return store.run(lambda txn: FoundBy(txn, CRAWL, TEMPLATES).of(url))


def test_the_search_is_that_of_the_pages_of_results_that_the_way_begins_at() -> None:
    store = Store()
    store.accept(link(RESULTS, 0, ""), link(FIRST, referrer=RESULTS), link(SECOND, referrer=FIRST))
    milk = [Search("milk", "e", "", 1)._asdict()]
    assert [led_to(url, store) for url in (RESULTS, FIRST, SECOND)] == [milk] * 3


def test_a_way_from_no_url_leads_from_no_search() -> None:
    """Another node may have sent any text as the page on which it found a link."""
    store = Store()
    store.accept(link(FIRST, referrer="nowhere"), link(SECOND, referrer=FIRST))
    assert led_to(SECOND, store) == []
