"""Searches travel with a crawl: every node makes the same pages of them, and knows each page again."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from functools import partial
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL, Store

from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.scope import Scope
from dhtcrawl.crawl.seed_links import LINKS_A_PART, seed_parts
from dhtcrawl.keyspace import placement, search_key, url_key
from dhtcrawl.searches import (
    NO_SITE,
    RESULTS_MAX,
    TEXT_CHARS_MAX,
    Search,
    SearchEngine,
    Searches,
    Wanted,
    read_searches,
)
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.storage.store import tasks
from dhtcrawl.storage.store.crawl_record import CrawlRecord, NotARecord, from_wire, to_wire
from dhtcrawl.templates.expand import searches_of
from dhtcrawl.templates.template_file import read
from dhtcrawl.url import canonicalize, host_of

SEEDS = ("http://plain.example/1", "http://one.example/s?q=milk+site%3Aa.example&p=1")
FILE = """
[engines.one]
url = "http://one.example/s?q={query}&p={page}"
pages = 3
delay = "2.5s"
[engines.two]
url = "http://two.example/{page}/find/{query}"
site = "in:{site} or {site}"
extra = ["price"]
encoding = "shift_jis"
first = 0
step = 10
type = "meta"
[engines.other]
url = "http://two.example/f?{query}"
type = "meta"
delay = "1s"
[sites]
both = ["a.example", "b.example:81"]
[[tasks]]
name = "milk"
sites = ["both"]
[[tasks]]
name = "dairy"
keywords = ["milk"]
engines = ["one", "two"]
pages = 2
sites = ["a.example"]
[[tasks]]
name = "牛奶"
"""
SEARCHES = searches_of(read("t.toml", FILE))
URLS = [page.url for page in SEARCHES.pages() if page.url is not None]
WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="{}"), min_size=1, max_size=8).filter(
    str.strip
)
ENCODINGS = ["utf-8", "gbk", "iso-2022-jp", "gb18030", "koi8-r", "utf-16le", "shift_jis", "big5"]


def spec(key: str = "search", *seeds: str) -> CrawlSpec:
    return CrawlSpec(seeds or SEEDS, CrawlSettings(key=key, scope="page"), searches=SEARCHES)


@st.composite
def searches(draw: st.DrawFn) -> Searches:
    paths = st.sampled_from(["s?q={query}", "{page}?q={query}&x", "{query}/p{page}.html?%41", "f/{query}?{page}"])
    engines = [
        SearchEngine(
            str(number),
            f"http://{draw(st.sampled_from(['a', 'b']))}.example/{draw(paths)}",
            draw(WORDS),
            f"{draw(st.sampled_from(['', 'in ', '+']))}{{site}}{draw(WORDS)}",
            tuple(draw(st.lists(WORDS, max_size=1))),
            draw(st.sampled_from(ENCODINGS)),
            first=draw(st.integers(0, 2)),
            step=draw(st.integers(1, 3)),
        )
        for number in range(draw(st.integers(1, 3)))
    ]
    groups = (("",), ("x.org",), ("x.org:81", "", "y-z.org"))
    wanted = st.builds(
        Wanted,
        WORDS,
        st.lists(WORDS, min_size=1, max_size=2).map(tuple),
        st.integers(0, 2),
        st.permutations(range(len(engines))).map(tuple),
        st.just(1),
    )
    return Searches(tuple(engines), groups, tuple(draw(st.lists(wanted, min_size=1, max_size=4))))


@given(searches())
def test_every_page_is_known_again_for_all_searches_that_want_it_and_no_other(made: Searches) -> None:
    wanted: dict[str, list[Search]] = {}
    for url, number, place, site, page in made.pages():
        if url is not None:
            assert canonicalize(url) == url
            wanted.setdefault(url, []).append(Search(made.tasks[number].name, made.engines[place].name, site, page + 1))
    for url, expected in wanted.items():
        assert made.of(url) == expected
        assert made.of(url + "x") == [] or url + "x" in wanted
        assert made.place_of(url, host_of(url)) is not None


@given(searches(), st.sets(st.integers(0, 255)))
def test_what_is_left_out_is_never_what_is_wanted(made: Searches, kept: set[int]) -> None:
    crawl = CrawlSpec((), CrawlSettings(key="search"), searches=made)
    found = {page.url for page in made.pages(wanted=lambda key: key[0] in kept)}
    for page in made.pages():
        if page.url is not None and crawl.key_of(page.url)[0] in kept:
            assert page.url in found


@given(searches())
def test_what_is_written_is_read_also_as_json(made: Searches) -> None:
    back = read_searches(json.loads(json.dumps(made.plain())))
    assert back == made == read_searches(msgpack.unpackb(msgpack.packb(made.plain())))
    assert list(back.pages()) == list(made.pages())


def test_pages_come_in_the_order_of_the_file_and_are_counted_without_being_made() -> None:
    assert len(SEARCHES) == len(URLS) == 2 * (3 + 1 + 1) + 2 * 2 + (3 + 1 + 1)
    assert len(set(URLS)) == len(URLS) - 3, "two tasks want two pages of one engine, and one of another"
    assert list(make_spec(["plain.example/1"], CrawlSettings(), SEARCHES).all_seeds) == [SEEDS[0], *URLS]
    assert SEARCHES.of(URLS[0]) == [Search("milk", "one", "a.example", 1), Search("dairy", "one", "a.example", 1)]
    assert SEARCHES.delays == {"one.example": 2.5, "two.example": 1.0}
    assert SEARCHES.types == {"two.example": "meta"}


@pytest.mark.parametrize(
    "url",
    [
        "http://one.example/s?q=milk+site%3Aa.example&p=4",
        "http://one.example/s?q=milk+site%3Aa.example&p=01",
        "http://one.example/s?q=milk+site%3Ac.example&p=1",
        "http://one.example/s?q=tea&p=1",
        "http://one.example/s?q=milk",
        "http://two.example/5/find/milk+price",
        "http://two.example/0/find/milk+price+in%3Aa.example+or+b.example%3A81",
        "http://else.example/s?q=milk&p=1",
    ],
)
def test_a_page_that_nobody_wants_is_no_seed(url: str) -> None:
    assert SEARCHES.of(url) == []
    scope = Scope((), CrawlSettings(scope="page"), searches=SEARCHES)
    assert scope.refuses(url) == "out-of-scope"
    assert scope.refuses(URLS[0]) is None
    link = tasks.Link(b"", url, 0, "", 0, True)
    assert scope.strays([link, link._replace(url=URLS[-1])]) == [link]


@pytest.mark.parametrize("kind", ["prefix", "host", "domain"])
def test_what_lies_beside_pages_of_results_is_in_scope_as_beside_seeds(kind: str) -> None:
    scope = Scope((), CrawlSettings(scope=kind), searches=SEARCHES)
    assert scope.refuses("http://two.example/x") is None
    assert scope.refuses("http://three.example/x") == "out-of-scope"


def test_parts_of_the_seeds_are_all_of_them_and_go_on_where_they_ended() -> None:
    many = Searches(SEARCHES.engines[:1], (("",),), tuple(Wanted(str(n), (str(n),), 0, (0,)) for n in range(400)))
    crawl = CrawlSpec(SEEDS[:1], CrawlSettings(key="search"), searches=many)
    parts = list(seed_parts(crawl))
    assert [link.url for part in parts for link in part.links] == list(crawl.all_seeds)
    assert max(len(part.links) for part in parts) == LINKS_A_PART
    assert [part.tasks for part in parts] == [0, 166, 333, 399, 400]
    for part, rest in itertools.pairwise(parts):
        again = {link.url for one in seed_parts(crawl, part.tasks) for link in one.links}
        assert {link.url for link in rest.links} <= again


def test_a_store_knows_how_far_the_seeds_are_queued_and_queues_none_twice() -> None:
    store, crawl = Store(), spec()
    for part in seed_parts(crawl):
        for _ in range(2):  # killed before it was told
            store.run(partial(tasks.seed, crawl=CRAWL, links=part.links, orders=store.orders, tasks=part.tasks))
    assert store.run(partial(tasks.seeded, crawl=CRAWL)) == len(SEARCHES.tasks)
    found = [store.run(partial(tasks.get_task, crawl=CRAWL, key=crawl.key_of(url))) for url in crawl.all_seeds]
    assert all(task is not None and task.seed for task in found)
    queued = [key for key in store.stored_keys() if key.startswith(b"q")]
    assert len(queued) == len(set(crawl.all_seeds))


ROW = ["e", "http://e.example/{query}", " ", "site:{site}", [], "utf-8", 1, 1, 1, "", None]
PLAIN = {"version": 1, "engines": [ROW], "sites": [[""]], "tasks": [["a", ["a"], 0, [0], 0]]}


def row(place: int, value: Any) -> dict[str, Any]:
    return PLAIN | {"engines": [[*ROW[:place], value, *ROW[place + 1 :]]]}


@pytest.mark.parametrize(
    "plain",
    [
        None, [], {"searches": [], "delays": {}}, PLAIN | {"version": 2}, PLAIN | {"engines": []},
        PLAIN | {"engines": [ROW, ROW]}, PLAIN | {"engines": [ROW, ["f", *ROW[1:9], "meta", None]]},

        PLAIN | {"engines": [[str(n), *ROW[1:]] for n in range(257)]},
        PLAIN | {"engines": [ROW[:-1]]}, PLAIN | {"engines": {}}, row(0, 3), row(0, "x" * 501),
        row(1, "http://e.example/"), row(1, "http://e.example/{q}"), row(1, "ftp://e.example/{query}"),
        row(1, "http://{query}/"), row(1, "http://e.example/#{query}"), row(1, "http://e.example/{query}0{page}"),
        row(1, "http://e.example/{page}{query}"), row(1, "http://e.example/{query"), row(3, "site:"),
        row(3, "site:{page}"), row(4, ["x" * 501]), row(5, "rot13"), row(5, []), row(6, 0), row(6, 2), row(7, -1),
        row(8, 0), row(8, True), row(9, None), row(10, -1), row(10, "1"),
        PLAIN | {"sites": [["no host"]]}, PLAIN | {"sites": [["", ""]]}, PLAIN | {"sites": [[3]]},
        PLAIN | {"tasks": [["a", ["a"], 1, [0], 0]]}, PLAIN | {"tasks": [["a", ["a"], 0, [1], 0]]},
        PLAIN | {"tasks": [["a", ["a"], 0, [0, 0], 0]]}, PLAIN | {"tasks": [["a", ["a"], 0, [0], 1_001]]},
        PLAIN | {"tasks": [["a", ["a"], 0, [0]]]}, PLAIN | {"tasks": [["a", "a", 0, [0], 0]]},
        PLAIN | {"tasks": [["a", ["a"], 0, [0], 1_000]] * (RESULTS_MAX // 1_000 + 1)},
    ],
)  # fmt: skip
def test_what_is_no_searches_is_refused(plain: Any) -> None:
    assert read_searches(PLAIN)
    with pytest.raises(ValueError, match="searches: "):
        read_searches(plain)


def test_one_node_has_all_pages_of_an_engine_about_a_site_and_others_lie_by_their_url() -> None:
    crawl = spec()
    for url, _, place, site, _ in SEARCHES.pages():
        assert url is not None
        assert placement(crawl.key_of(url)) == search_key(SEARCHES.engines[place].name, site)
    assert placement(crawl.key_of(SEEDS[0])) == url_key(SEEDS[0])
    assert spec("url").key_of(URLS[0]) == url_key(URLS[0])


def test_what_is_longer_than_any_site_is_none_and_is_not_compared_with_itself() -> None:
    searches = Searches((SearchEngine("e", "http://e.example/{query}", site="{site}{site}"),))

    def place(site_chars: int) -> bytes | None:
        return searches.place_of(f"http://e.example/milk+{'a' * (2 * site_chars)}", "e.example")

    assert place(TEXT_CHARS_MAX) == search_key("e", "a" * TEXT_CHARS_MAX)
    assert place(TEXT_CHARS_MAX + 1) == search_key("e", NO_SITE)


def test_a_crawl_is_told_with_its_searches_and_is_another_one_without_them() -> None:
    nonce = b"n" * 16
    for crawl in (spec(), CrawlSpec((), CrawlSettings(), searches=SEARCHES)):
        back = from_wire(to_wire(CrawlRecord(crawl.crawl_id(nonce), crawl, nonce))).spec
        assert back == crawl == CrawlSpec.from_canonical(crawl.canonical())
        assert list(back.all_seeds) == list(crawl.all_seeds)
        assert not replace(crawl, searches=Searches()).is_like(crawl)


def test_a_crawl_without_searches_is_what_it_was_before_there_were_any() -> None:
    plain = make_spec(SEEDS, CrawlSettings())
    assert b"searches" not in plain.canonical()


@pytest.mark.parametrize("wrong", [Searches(), replace(SEARCHES, tasks=(Wanted("a", ("a",), 9, (0,)),))])
def test_a_record_without_seeds_or_with_searches_that_are_none_is_refused(wrong: Searches) -> None:
    nonce, crawl = b"n" * 16, CrawlSpec((), CrawlSettings())
    object.__setattr__(crawl, "searches", wrong)
    with pytest.raises(NotARecord, match=r"seeds|searches"):
        from_wire(to_wire(CrawlRecord(crawl.crawl_id(nonce), crawl, nonce)))


def test_seeds_are_taken_from_the_front_as_from_a_list() -> None:
    seeds = spec().all_seeds
    whole = list(seeds)
    assert (len(seeds), seeds[0], seeds[3]) == (len(whole), whole[0], whole[3])
    assert (seeds[:3], seeds[2:4]) == (whole[:3], whole[2:4])
    with pytest.raises(IndexError):
        seeds[len(whole)]
