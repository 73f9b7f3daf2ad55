"""From a page's links to tasks: resolved, in scope, each once, remembered without a difference."""

from __future__ import annotations

import pytest
from harness.memory import entries
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.config import CrawlSettings
from dhtcrawl.crawl.analysis import Analysis, analyse
from dhtcrawl.crawl.discovery import CHARS_A_TURN, LINKS_A_TURN, Discovery, Found
from dhtcrawl.crawl.known_links import CACHED_CHARS
from dhtcrawl.crawl.scope import Scope
from dhtcrawl.keyspace import url_key
from dhtcrawl.spec import make_spec
from dhtcrawl.url import canonicalize, without_fragment

from .turns import at_once


def make(*seeds: str, redirects_max: int = 10, cache_max: int = 1000, **settings: object) -> Discovery:
    spec = make_spec(seeds or ("http://a/",), CrawlSettings(**settings))  # type: ignore[arg-type]
    return Discovery(spec, Scope(spec.seeds, spec.settings), redirects_max=redirects_max, cache_max=cache_max)


def page(
    discovery: Discovery,
    *hrefs: str,
    url: str = "http://a/dir/page",
    base: str = "",
    depth: int = 0,
    nofollow: tuple[str, ...] = (),
) -> Found:
    analysis = Analysis(base=base or url, hrefs=list(hrefs), nofollow=list(nofollow))
    return at_once(discovery.discover(url, analysis, depth=depth, hops=0, seed=False))


def redirect(
    discovery: Discovery, location: str, *, url: str = "http://a/old", hops: int = 0, seed: bool = False
) -> Found:
    return at_once(discovery.discover(url, Analysis(base=url, redirect=location), depth=3, hops=hops, seed=seed))


def urls(found: Found) -> list[str]:
    return [link.url for link in found.links]


def test_links_are_one_deeper_than_their_page_and_say_where_they_were_found() -> None:
    (found,) = page(make(), "x", depth=4).links
    assert (found.url, found.depth, found.referrer, found.hops, found.seed) == (
        "http://a/dir/x", 5, "http://a/dir/page", 0, False,
    )  # fmt: skip
    assert found.key == url_key("http://a/dir/x")


def test_links_that_are_the_same_page_are_one_link() -> None:
    found = page(make(), "x", "./x", "http://A:80/dir/x#part", "%78", "/dir/x")
    assert urls(found) == ["http://a/dir/x"]
    assert found.link_keys == url_key("http://a/dir/x")


def test_white_space_before_a_fragment_is_of_the_path() -> None:
    assert urls(page(make(), "x #y", "x?z #y", "x#y")) == ["http://a/dir/x%20", "http://a/dir/x?z%20", "http://a/dir/x"]


@given(st.text("a #?/\t\n\x1f%:", max_size=8))
def test_a_link_leads_where_it_does_without_its_fragment(href: str) -> None:
    href = href.strip(" \t\n\f\r")  # as links are read
    assert canonicalize(without_fragment(href), "http://a/dir/page") == canonicalize(href, "http://a/dir/page")


def test_with_host_keys_a_link_key_is_twice_as_long() -> None:
    assert len(page(make(key="host"), "x", "y").link_keys) == 80


def test_what_is_not_followed_is_skipped_with_its_reason() -> None:
    found = page(
        make(exclude=("secret",)), "http://b/", "http://[", "ftp://a/", "/secret", nofollow=("shy", "http://c/")
    )
    assert urls(found) == []
    assert sorted(found.skipped) == [
        ("ftp://a/", "not-a-url"),
        ("http://[", "not-a-url"),
        ("http://a/dir/shy", "nofollow"),
        ("http://a/secret", "excluded"),
        ("http://b/", "out-of-scope"),
        ("http://c/", "out-of-scope"),
    ]


def test_a_nofollow_link_is_followed_where_robots_are_ignored() -> None:
    assert urls(page(make(ignore_robots=True), nofollow=("shy",))) == ["http://a/dir/shy"]


def test_a_page_at_the_depth_limit_leads_nowhere() -> None:
    discovery = make(depth=2)
    assert urls(page(discovery, "x", depth=1)) == ["http://a/dir/x"]
    found = page(discovery, "x", "y", depth=2)
    assert (found.links, found.link_keys) == ([], b"")
    assert found.skipped == [("http://a/dir/x", "depth"), ("http://a/dir/y", "depth")]


def test_an_absurd_href_is_shown_in_part() -> None:
    ((shown, reason),) = page(make(), "http://[" + "x" * 10_000).skipped
    assert (len(shown), reason) == (500, "not-a-url")


# -- relative to what --


@pytest.mark.parametrize("href", ["?q=1", "", "#part", "http:?q=1", "HTTP:", "http:#part", "\x01?q=1", "\x0b"])
def test_what_is_relative_to_the_page_is_not_remembered_for_its_neighbours(href: str) -> None:
    discovery = make()
    one = page(discovery, href, url="http://a/dir/one?old")
    two = page(discovery, href, url="http://a/dir/two?older")
    assert [url.partition("?")[0] for url in urls(one) + urls(two)] == ["http://a/dir/one", "http://a/dir/two"]


def test_a_slash_in_the_query_of_a_base_is_no_directory() -> None:
    discovery = make()
    assert urls(page(discovery, "x", url="http://a/one?path=/b/")) == ["http://a/x"]
    assert urls(page(discovery, "x", url="http://a/b/one")) == ["http://a/b/x"]


def test_the_base_of_a_page_counts_and_not_its_address() -> None:
    discovery = make()
    assert urls(page(discovery, "x", base="http://a/deep/er/")) == ["http://a/deep/er/x"]
    assert urls(page(discovery, "x")) == ["http://a/dir/x"]


HREFS = st.one_of(
    st.sampled_from(
        [
            "x", "./x", "../x", "/x", "//a/x", "//b/x", "?q", "?", "", "#f", "x?q", "http:", "http:?q", "http:x",
            "https:x", "https:?q", "HTTPS:#f", "http:/x", "http:\\x", "\\x", "\\\\a\\x", "\x01?q", "\x1f", "ht\ttp:?q",
            "\t?q", " ?q", "?q\t", "x\ny", ".", "..", "%2e", "%2E%2e/", "http://a/x", "http://a:80", "mailto:x", "http://[",
            "x:y", "./x:y", ";p", "&", "http:\t?q", "h\nttp:", "http:%3Fq", "\ufeff?q", "\x7f?q",
        ]
    ),
    st.text("abc:/?#.%\\@ \t\n\x01htps", max_size=12),
)  # fmt: skip
BASES = st.sampled_from(
    [
        "http://a/", "http://a/x", "http://a/dir/", "http://a/dir/one", "http://a/dir/two?q=/deep/x", "http://a/dir/two?",
        "http://a/dir/x/y", "https://a/dir/one", "http://b/", "http://a//", "http://a/dir//",
    ]
)  # fmt: skip


@given(
    pages=st.lists(st.tuples(BASES, st.lists(HREFS, max_size=6), st.lists(HREFS, max_size=2)), min_size=1, max_size=8),
    cache_max=st.sampled_from([0, 3, 1000]),
    ignore_robots=st.booleans(),
)
def test_what_is_remembered_makes_no_difference(
    pages: list[tuple[str, list[str], list[str]]], cache_max: int, ignore_robots: bool
) -> None:
    warm = make(cache_max=cache_max, ignore_robots=ignore_robots)
    skipped: set[tuple[str, str]] = set()
    for base, hrefs, nofollow in pages:
        cold = make(ignore_robots=ignore_robots)
        want = page(cold, *hrefs, base=base, nofollow=tuple(nofollow))
        have = page(warm, *hrefs, base=base, nofollow=tuple(nofollow))
        assert have.links == want.links
        assert have.link_keys == want.link_keys
        skipped.update(have.skipped)
        assert skipped.issuperset(want.skipped), "a link is skipped with a reason once in a crawl, or more often"


MANY = 5 * LINKS_A_TURN


@pytest.mark.parametrize("depth", [-1, 0])
def test_a_page_of_many_links_leaves_the_loop_its_turns(depth: int) -> None:
    discovery, turns = make(depth=depth), list[int]()
    analysis = Analysis(
        base="http://a/",
        hrefs=[f"x{number}" for number in range(MANY)] + [f"http://b/?{number}" for number in range(MANY)],
        nofollow=[f"y{number}" for number in range(MANY)],
    )
    found = at_once(discovery.discover("http://a/", analysis, depth=0, hops=0, seed=False), lambda: turns.append(0))
    assert len(turns) >= 3 * (MANY // LINKS_A_TURN - 1)
    want = [f"http://a/x{number}" for number in range(MANY)]
    assert urls(found) == ([] if depth == 0 else want)
    assert len(found.link_keys) == (0 if depth == 0 else 20 * MANY)
    assert len(found.skipped) == (3 if depth == 0 else 2) * MANY


@pytest.mark.parametrize("nofollow", [False, True])
def test_a_page_of_long_links_leaves_the_loop_its_turns_too(*, nofollow: bool) -> None:
    """An escape takes as long as a short link: a thousand of the longest links took seconds."""
    turns, links = list[int](), [f"{'%41' * 2_000}{number}" for number in range(100)]
    analysis = Analysis(base="http://a/", hrefs=[] if nofollow else links, nofollow=links if nofollow else [])
    found = at_once(make().discover("http://a/", analysis, depth=0, hops=0, seed=False), lambda: turns.append(0))
    assert len(turns) + 1 == len(links) / (CHARS_A_TURN // len(links[-1]))
    assert len(found.skipped if nofollow else found.links) == len(links)


def test_what_a_page_skips_is_told_by_a_page_that_is_whole_before_it() -> None:
    """Or a crash between the two would lose it."""
    discovery, skipped = make(), list[tuple[str, str]]()
    outside = tuple(f"http://b/{number}" for number in range(MANY))

    def other() -> None:
        skipped.extend(page(discovery, outside[0], "?", nofollow=("y",)).skipped)

    analysis = Analysis(base="http://a/dir/", hrefs=list(outside), nofollow=["y"])
    found = at_once(discovery.discover("http://a/dir/", analysis, depth=0, hops=0, seed=False), other)
    first = [("http://a/dir/y", "nofollow"), ("http://b/0", "out-of-scope")]
    assert skipped == first, "once: they are noted"
    assert not {*first} & {*found.skipped}
    assert len(found.skipped) == MANY - 1


def test_a_scope_that_grows_while_a_page_is_read_holds_for_all_of_it() -> None:
    discovery, turns = make("http://a/"), list[int]()

    def other() -> None:
        turns.append(0)
        if len(turns) == 3:
            redirect(discovery, "http://b/", url="http://a/", seed=True)

    analysis = Analysis(base="http://a/", hrefs=[f"http://b/{number}" for number in range(MANY)])
    found = at_once(discovery.discover("http://a/", analysis, depth=0, hops=0, seed=False), other)
    assert (len(found.links), found.skipped) == (MANY, [])


def test_a_cache_that_is_emptied_while_a_page_is_read_makes_no_difference() -> None:
    discovery = make(cache_max=10)
    hrefs = [f"x{number}" for number in range(MANY)]
    page(discovery, *hrefs[:5])

    def other() -> None:
        page(discovery, *(f"z{number}" for number in range(20)))

    analysis = Analysis(base="http://a/dir/", hrefs=hrefs)
    found = at_once(discovery.discover("http://a/dir/", analysis, depth=0, hops=0, seed=False), other)
    assert urls(found) == [f"http://a/dir/{href}" for href in hrefs]


def test_one_link_on_pages_of_several_charsets_is_several_pages() -> None:
    discovery = make()
    for _ in range(2):
        for charset, query in (
            ("utf-8", "%C3%A9"),
            ("latin1", "%E9"),
            ("shift_jis", "%26%23233%3B"),
            ("gbk", "%A8%A6"),
        ):
            headers = [("content-type", f"text/html; charset={charset}")]
            for url in ("http://a/dir/one", "http://a/dir/two"):
                analysis = analyse(url, 200, headers, b"<a href=/s?&eacute;>", html_bytes_max=1_000)
                found = at_once(discovery.discover(url, analysis, depth=0, hops=0, seed=False))
                assert urls(found) == [f"http://a/s?{query}"]
                assert found.link_keys == url_key(f"http://a/s?{query}")


def test_the_cache_is_bounded_in_entries_and_in_characters() -> None:
    discovery = make(cache_max=100)
    empty = entries(discovery)
    for number in range(1000):
        page(discovery, f"x{number}", url=f"http://a/{number % 7}/")
        assert entries(discovery) <= empty + 100
    page(discovery, *(f"http://[{'x' * 50 * CACHED_CHARS}{number}" for number in range(3)))
    assert entries(discovery) == empty


# -- redirects --


def test_a_redirect_is_the_same_links_way_not_a_deeper_one() -> None:
    found = redirect(make(), "new", hops=2)
    (link,) = found.links
    assert (link.url, link.depth, link.hops, link.referrer, link.seed) == ("http://a/new", 3, 3, "http://a/old", False)
    assert (found.link_keys, found.final_url, found.alias) == (link.key, "http://a/new", None)


def test_a_redirect_out_of_scope_is_skipped_and_still_named() -> None:
    found = redirect(make(), "http://b/")
    assert (found.links, found.skipped, found.final_url) == ([], [("http://b/", "out-of-scope")], "http://b/")


def test_redirects_in_a_row_have_an_end() -> None:
    discovery = make(redirects_max=2)
    assert redirect(discovery, "/x", hops=1).links
    found = redirect(discovery, "/x", hops=2)
    assert (found.links, found.skipped) == ([], [("http://a/x", "redirect-limit")])


def test_a_redirect_to_nowhere_is_skipped() -> None:
    found = redirect(make(), "mailto:x")
    assert (found.links, found.skipped, found.final_url) == ([], [("mailto:x", "not-a-url")], "http://a/old")


def test_a_seeds_redirect_brings_its_target_into_scope_and_what_was_skipped_there() -> None:
    discovery = make("http://a/")
    assert page(discovery, "http://b/x").skipped == [("http://b/x", "out-of-scope")]
    found = redirect(discovery, "http://b/home", url="http://a/", seed=True)
    assert found.alias == "http://b/home"
    assert [(link.url, link.seed) for link in found.links] == [("http://b/home", True)]
    assert urls(page(discovery, "http://b/x")) == ["http://b/x"]


def test_only_a_seeds_redirect_widens_the_scope() -> None:
    discovery = make("http://a/")
    assert redirect(discovery, "http://b/home").alias is None
    assert urls(page(discovery, "http://b/x")) == []


@given(st.text(max_size=30))
def test_no_location_whatever_raises(location: str) -> None:
    found = redirect(make(), location, seed=True)
    assert len(found.links) + len(found.skipped) == 1
