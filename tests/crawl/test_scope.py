"""Which links belong to a crawl."""

from __future__ import annotations

import time
from typing import Any

import pytest

from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.scope import Scope, registrable_domain
from dhtcrawl.keyspace import url_key
from dhtcrawl.storage.store.tasks import Link

SEED = "http://www.example.co.uk/docs/start.html?a=/b/"


@pytest.mark.parametrize(
    ("kind", "inside", "outside"),
    [
        ("page", [SEED], ["http://www.example.co.uk/docs/", "http://www.example.co.uk/docs/start.html"]),
        (
            "prefix",
            [SEED, "http://www.example.co.uk/docs/", "http://www.example.co.uk/docs/a/b"],
            [
                "http://www.example.co.uk/docs",
                "http://www.example.co.uk/other/",
                "https://www.example.co.uk/docs/",
                "http://www.example.co.uk:81/docs/",
            ],
        ),
        (
            "host",
            [SEED, "http://www.example.co.uk/", "https://www.example.co.uk/x"],
            ["http://example.co.uk/", "http://www.example.co.uk:81/", "http://www.example.co.uk.evil.org/"],
        ),
        (
            "domain",
            [SEED, "http://example.co.uk/", "https://a.b.example.co.uk:81/"],
            ["http://other.co.uk/", "http://co.uk/", "http://notexample.co.uk/"],
        ),
        ("any", [SEED, "http://other.org/", "https://[::1]/"], []),
    ],
)
def test_a_kind_covers_what_it_says(kind: str, inside: list[str], outside: list[str]) -> None:
    scope = Scope([SEED], CrawlSettings(scope=kind))
    assert [scope.refuses(url) for url in inside] == [None] * len(inside)
    assert [scope.refuses(url) for url in outside] == ["out-of-scope"] * len(outside)


def test_include_and_exclude_narrow_the_scope_but_never_a_seed() -> None:
    settings = CrawlSettings(include=("/docs/", "/faq"), exclude=(r"\.pdf$",))
    scope = Scope(["http://a/start.pdf"], settings)
    assert scope.refuses("http://a/start.pdf") is None
    assert scope.refuses("http://a/docs/x") is None
    assert scope.refuses("http://a/faq") is None
    assert scope.refuses("http://a/docs/x.pdf") == "excluded"
    assert scope.refuses("http://a/about") == "excluded"
    assert scope.refuses("http://b/docs/x") == "out-of-scope"


@pytest.mark.parametrize("kind", ["page", "prefix", "host", "domain", "any"])
def test_the_hosts_that_are_reached_are_those_of_all_pages_within_the_scope(kind: str) -> None:
    scope = Scope([SEED], CrawlSettings(scope=kind))
    hosts = ["www.example.co.uk", "www.example.co.uk:81", "a.example.co.uk", "other.org"]
    assert [scope.reaches(host) for host in hosts] == [True, *[kind in ("domain", "any")] * 2, kind == "any"]


def test_what_patterns_cannot_decide_is_followed_by_nobody_but_stays_where_it_was() -> None:
    long = "http://a/docs/" + "x" * 8_000
    for settings in (CrawlSettings(include=("(a{1,30}b?){30}",)), CrawlSettings(exclude=("(a{1,30}b?){30}",))):
        scope = Scope(["http://a/"], settings)
        assert scope.refuses(long) == "excluded"
        assert scope.rules_out(long) is None
    scope = Scope(["http://a/"], CrawlSettings(include=("/docs/",), exclude=(r"\.pdf$",)))
    urls = ["http://a/", "http://a/docs/x", "http://a/x", "http://a/docs/x.pdf", "http://b/docs/x"]
    assert [scope.rules_out(url) for url in urls] == [scope.refuses(url) for url in urls]


def test_a_pattern_that_backtracks_takes_no_longer_than_others() -> None:
    # With `re` this link alone takes longer than anybody waits, and the node does nothing else meanwhile.
    scope = Scope(["http://a/"], CrawlSettings(exclude=(r"/(([a-z])+.)+[A-Z]([a-z])+$",)))
    assert scope.refuses("http://a/" + "a" * 41) is None
    assert scope.refuses("http://a/aa/bb/Cc") == "excluded"


@pytest.mark.parametrize("narrowed", [{"include": ("(?=x)",)}, {"exclude": ("(?!x)",)}])
def test_a_link_that_patterns_of_an_earlier_version_would_decide_is_excluded(narrowed: dict[str, tuple[str]]) -> None:
    scope = Scope(["http://a/"], CrawlSettings(**narrowed))  # type: ignore[arg-type]
    assert scope.refuses("http://a/x") == "excluded"
    assert scope.refuses("http://a/") is None
    assert scope.refuses("http://b/") == "out-of-scope"


def test_a_link_that_the_patterns_could_take_long_to_decide_is_excluded() -> None:
    settings = CrawlSettings(exclude=("(?:a?b?){600}c",))
    scope = Scope(["http://a/"], settings)
    assert scope.refuses("http://a/" + "ab" * 4000) == "excluded"
    assert scope.refuses("http://a/" + "ab" * 400) is None


def test_what_a_seed_redirects_to_counts_as_a_seed() -> None:
    scope = Scope(["http://a/"], CrawlSettings())
    assert scope.refuses("http://b/home") == "out-of-scope"
    assert scope.extend("http://b/home")
    assert not scope.extend("http://b/home")
    assert scope.refuses("http://b/other") is None


def test_an_alias_widens_a_prefix_scope_by_its_own_directory() -> None:
    scope = Scope(["http://a/x/1"], CrawlSettings(scope="prefix"))
    scope.extend("http://a/y/z/1?q=/")
    assert scope.refuses("http://a/y/z/2") is None
    assert scope.refuses("http://a/y/2") == "out-of-scope"


def test_a_link_is_looked_up_among_many_directories_as_among_a_few() -> None:
    # What looks at each directory for each seed, and for each link, takes many times as long.
    before = time.process_time()
    scope = Scope([f"http://a/{number}/x" for number in range(40_000)], CrawlSettings(scope="prefix"))
    assert not any(scope.refuses(f"http://a/{number}/y") for number in range(40_000))
    assert all(scope.refuses(f"http://b/{number}/y") for number in range(40_000))
    assert time.process_time() - before < 2


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.example.co.uk:8080", "example.co.uk"),
        ("example.org", "example.org"),
        ("a.b.github.io", "b.github.io"),
        ("co.uk", "co.uk"),
        ("localhost:81", "localhost"),
        ("127.0.0.1:8080", "127.0.0.1"),
        ("[::1]:8080", "[::1]"),
        ("xn--85x722f.com.cn", "xn--85x722f.com.cn"),
        ("www.example.co.uk.:8080", "example.co.uk"),
        ("b.github.io.", "b.github.io"),
        ("localhost.", "localhost"),
    ],
)
def test_a_registrable_domain_is_one_label_more_than_the_public_suffix(host: str, domain: str) -> None:
    assert registrable_domain(host) == domain


@pytest.mark.parametrize("seeds", [["http://10.0.0.1/", "http://10.0.0.2/"], ["http://co.uk/"]])
def test_addresses_and_bare_suffixes_are_domains_of_their_own(seeds: list[str]) -> None:
    scope = Scope(seeds, CrawlSettings(scope="domain"))
    assert scope.refuses("http://10.0.0.3/") == "out-of-scope"
    assert scope.refuses("http://www.co.uk/") == "out-of-scope"


@pytest.mark.parametrize("kind", ["page", "prefix", "host", "domain", "any"])
def test_of_links_that_another_node_sent_those_stray_that_a_finder_would_not_have_followed(kind: Any) -> None:
    scope = Scope([SEED], CrawlSettings(scope=kind))
    urls = [
        SEED,
        "http://www.example.co.uk/docs/x",
        "http://www.example.co.uk/other/",
        "http://blog.example.co.uk/",
        "http://a.test/",
        "http://www.example.co.uk:81/docs/",
    ]
    links = [Link(url_key(url), url, 1, SEED) for url in urls]
    strays = scope.strays([None, *links])
    assert [link.url for link in strays] == [url for url in urls if scope.refuses(url) is not None]
    passing_for_seeds = [link._replace(seed=True) for link in links]
    assert [link.url for link in scope.strays(passing_for_seeds)] == urls[1:]
    scope.extend(urls[1])
    assert scope.strays(passing_for_seeds[:2]) == []


def test_patterns_are_not_asked_about_links_that_another_node_has_followed() -> None:
    scope = Scope([SEED], CrawlSettings(exclude=("/docs/x",)))
    url = "http://www.example.co.uk/docs/x"
    assert scope.refuses(url) is not None
    assert scope.strays([Link(url_key(url), url, 1, SEED)]) == []
