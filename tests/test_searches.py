"""Searches travel with a crawl: what was written is read, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.config import CrawlSettings
from dhtcrawl.keyspace import placement, search_key, url_key
from dhtcrawl.searches import PAGES_MAX, Search, Searches, read_searches, searches_of
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.storage.store.crawl_record import CrawlRecord, NotARecord, from_wire, to_wire

SEEDS = tuple(f"http://engine.example/{number}" for number in range(6))
MILK, TEA = Search("milk", "one", "a.example"), Search("tea", "one", "", "meta")
NAMES = st.text(max_size=5)
PAGES = st.lists(
    st.tuples(st.builds(Search, NAMES, NAMES, NAMES, NAMES, st.just(())), st.integers(0, 5), st.integers(1, 9)),
    max_size=12,
)


def spec(key: str = "search") -> CrawlSpec:
    pages = [(MILK, 0, 1), (MILK, 1, 2), (MILK, 2, 3), (TEA, 2, 1), (TEA, 4, 2)]
    return CrawlSpec(SEEDS, CrawlSettings(key=key), searches=searches_of(pages, {"engine.example": 2.5}))


@given(PAGES, st.dictionaries(NAMES, st.floats(0, 100)))
def test_what_is_written_is_read_also_as_json(pages: list[tuple[Search, int, int]], delays: dict[str, float]) -> None:
    searches = searches_of(pages, delays) if pages else Searches()
    assert read_searches(json.loads(json.dumps(searches.plain())), 6) == searches
    assert read_searches(msgpack.unpackb(msgpack.packb(searches.plain())), 6) == searches
    found = {(each._replace(runs=()), seed, page) for each in searches.searches for seed, page in each.pages()}
    assert found == set(pages)


def test_pages_that_follow_one_another_are_told_together() -> None:
    first, second = spec().searches.searches
    assert first.runs == ((0, 1, 3),)
    assert second.runs == ((2, 1, 1), (4, 2, 1))


@pytest.mark.parametrize(
    "plain",
    [
        None, [], {"searches": []}, {"searches": [], "delays": {}}, {"searches": [["a"]], "delays": {}},
        {"searches": [["a", "b", "c", "d", []]], "delays": {}},
        {"searches": [["a", "b", "c", 4, [[0, 1, 1]]]], "delays": {}},
        {"searches": [["a", "b", "c" * 501, "", [[0, 1, 1]]]], "delays": {}},
        {"searches": [["a", "b", "c", "d", [[0, 1]]]], "delays": {}},
        {"searches": [["a", "b", "c", "d", [[0, True, 1]]]], "delays": {}},
        {"searches": [["a", "b", "c", "d", [[0, 0, 1]]]], "delays": {}},
        {"searches": [["a", "b", "c", "d", [[5, 1, 2]]]], "delays": {}},
        {"searches": [["a", "b", "c", "d", [[0, 1, -1]]]], "delays": {}},
        {"searches": [["a", "b", "c", "d", [[0, 1, 1]]]], "delays": {"x": "1"}},
        {"searches": [["a", "b", "c", "d", [[0, 1, 1]]]], "delays": {"x": -1}},
        {"searches": [["a", "b", "c", "d", [[0, 1, 6]] * (PAGES_MAX // 6 + 1)]], "delays": {}},
    ],
)  # fmt: skip
def test_what_is_no_searches_is_refused(plain: Any) -> None:
    with pytest.raises(ValueError, match="searches: "):
        read_searches(plain, 6)


def test_one_node_has_all_pages_of_an_engine_about_a_site_and_others_lie_by_their_url() -> None:
    crawl = spec()
    places = [placement(crawl.key_of(url)) for url in SEEDS]
    assert places[:3] == [search_key("one", "a.example")] * 3, "the first search that has a seed places it"
    assert places[4] == search_key("one", "")
    assert places[3] == url_key(SEEDS[3])
    assert spec("url").key_of(SEEDS[0]) == url_key(SEEDS[0])


def test_a_crawl_is_told_with_its_searches_and_is_another_one_without_them() -> None:
    crawl, nonce = spec(), b"n" * 16
    record = CrawlRecord(crawl.crawl_id(nonce), crawl, nonce)
    back = from_wire(to_wire(record)).spec
    assert back == crawl == CrawlSpec.from_canonical(crawl.canonical())
    assert back.searches_by_url()[SEEDS[2]] == [(crawl.searches.searches[0], 3), (crawl.searches.searches[1], 1)]
    assert back.types == {"engine.example": "meta"}
    assert not replace(crawl, searches=Searches()).is_like(crawl)


def test_a_crawl_without_searches_is_what_it_was_before_there_were_any() -> None:
    plain = make_spec(SEEDS, CrawlSettings())
    assert b"searches" not in plain.canonical()


def test_a_record_with_searches_of_other_seeds_is_refused() -> None:
    crawl, nonce = spec(), b"n" * 16
    wrong = replace(crawl, searches=searches_of([(MILK, 0, 1)], {}))
    object.__setattr__(wrong, "searches", Searches((MILK._replace(runs=((9, 1, 1),)),)))
    with pytest.raises(NotARecord, match="searches"):
        from_wire(to_wire(CrawlRecord(wrong.crawl_id(nonce), wrong, nonce)))
