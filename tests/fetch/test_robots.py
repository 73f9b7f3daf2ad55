from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from urllib.parse import quote, unquote_to_bytes

import pytest
from harness.memory import entries
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.fetch import robots
from dhtcrawl.fetch.robots import (
    ALLOW_ALL,
    DISALLOW_ALL,
    MATCH_WORK_MAX,
    PARSED_BYTES_MAX,
    Robots,
    RobotsVerdict,
    product_token,
    verdict_for_status,
)

SITE = "http://example.org"


def allowed(text: str | bytes, path: str, token: str = "dhtcrawl") -> bool:
    data = text.encode() if isinstance(text, str) else text
    return Robots.parse(data).allows(SITE + path, token)


# RFC 9309, 2.2.2, escapes what is not ASCII and unescapes what need not be
# escaped before it compares; the vectors compare bytes and leave that to the
# caller. Our callers' URLs are canonical, so these three cannot come up.
NOT_FOLLOWED = {
    ("Disallow: /\nAllow: /foo/bar/ツ", "http://foo.bar/foo/bar/ツ"),
    ("Disallow: /\nAllow: /foo/bar/%E3%83%84", "http://foo.bar/foo/bar/ツ"),
    ("Disallow: /\nAllow: /foo/bar/%62%61%7A", "http://foo.bar/foo/bar/baz"),
}


def test_the_vectors_of_the_rfcs_authors_hold_but_for_escapes(conformance_dir: Path) -> None:
    path = conformance_dir / "robots" / "robotstxt-spec-test.json"
    cases = json.loads(path.read_text(encoding="utf-8"))
    differing = set()
    for case in cases:
        data = base64.b64decode(case["robots_b64"])
        if Robots.parse(data).allows(case["url"], case["ua"]) != case["allowed"]:
            differing.add((data.decode().removeprefix("User-agent: FooBot\n").rstrip(), case["url"]))
    assert differing == NOT_FOLLOWED
    assert len(cases) == 141


def test_disallow_wins_only_when_its_rule_is_longer() -> None:  # RFC 9309, 2.2.2
    text = "User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /a/b/c\nAllow: /same\nDisallow: /same\n"
    assert not allowed(text, "/a/x")
    assert allowed(text, "/a/b/x")
    assert not allowed(text, "/a/b/c/x")
    assert allowed(text, "/same")


@pytest.mark.parametrize(
    ("rules", "path", "expected"),
    [
        ("Disallow: /page1\nAllow: /*?p=", "/page1?p=2", False),
        ("Disallow: /*?\nAllow: /cat", "/cat?x", True),
        ("Disallow: /a\nAllow: /*&", "/a?b&", True),  # three octets beat two
        ("Disallow: /abc\nAllow: /%61b", "/abc", False),  # an escaped letter is one octet
        ("Disallow: /*ab\nAllow: /é", "/%C3%A9ab", True),  # sent as six octets
        ("Disallow: /a*b\nAllow: /a$", "/a$b", False),
        ("Disallow: /a*c\nAllow: /a%2Ab", "/a*bc", True),  # an escaped star as sent is three
    ],
)
def test_a_rule_is_as_long_as_its_octets_as_sent(rules: str, path: str, expected: bool) -> None:  # 2.2.2
    assert allowed(f"User-agent: *\n{rules}\n", path) is expected


def test_an_empty_file_allows_everything_and_so_does_an_empty_disallow() -> None:
    assert allowed("", "/x")
    assert allowed("User-agent: *\nDisallow:\n", "/x")


def test_robots_txt_itself_is_always_allowed() -> None:
    assert DISALLOW_ALL.allows(SITE + "/robots.txt", "dhtcrawl")
    assert not DISALLOW_ALL.allows(SITE + "/", "dhtcrawl")
    assert ALLOW_ALL.allows(SITE + "/", "dhtcrawl")


def test_our_group_replaces_the_one_for_all_and_groups_of_one_name_are_one() -> None:  # 2.2.1
    text = "User-agent: DHTcrawl\nDisallow: /a\n\nUser-agent: *\nDisallow: /\n\nUser-agent: dhtcrawl\nDisallow: /b\n"
    assert not allowed(text, "/a")
    assert not allowed(text, "/b")
    assert allowed(text, "/c")
    assert not allowed(text, "/c", "other")


@pytest.mark.parametrize("agent", ["d", "dht", "crawl", "dhtcrawler", "my-dhtcrawl", "", "1", "*x", "*dhtcrawl"])
def test_a_name_that_is_not_the_whole_token_is_somebody_else(agent: str) -> None:
    assert allowed(f"User-agent: {agent}\nDisallow: /\n", "/x")


@pytest.mark.parametrize("agent", ["dhtcrawl/2.0", "DhtCrawl 1", "dhtcrawl*", "dhtcrawl2", "dhtcrawl # us", "* # all"])
def test_an_agent_is_cut_at_its_first_foreign_character(agent: str) -> None:
    assert not allowed(f"User-agent: {agent}\nDisallow: /\n", "/x")


def test_a_user_agent_is_known_by_what_precedes_its_first_foreign_character() -> None:
    assert product_token("dhtcrawl/0.1 (+http://example.org)") == "dhtcrawl"
    assert product_token("my_own-bot") == "my_own-bot"
    assert product_token("7bot") == ""


def test_only_rules_end_a_list_of_agents() -> None:  # 2.2.4
    shared = "User-agent: dhtcrawl\nSitemap: http://a/\nCrawl-delay: 3\nNoise: x\n\nUser-agent: other\nDisallow: /\n"
    assert not allowed(shared, "/x")
    assert allowed("User-agent: dhtcrawl\nDisallow:\nUser-agent: other\nDisallow: /\n", "/x")


def test_rules_before_any_agent_concern_nobody() -> None:
    assert allowed("Disallow: /\nUser-agent: *\nAllow: /x\n", "/y")


def test_wildcards_and_anchors_match() -> None:
    text = "User-agent: *\nDisallow: /*.pdf$\nDisallow: /a*b*c\n"
    assert not allowed(text, "/x/y.pdf")
    assert allowed(text, "/x/y.pdf?z")
    assert not allowed(text, "/a-b-cd")
    assert allowed(text, "/a-c-b")


def test_a_path_of_two_slashes_is_a_path() -> None:
    assert not allowed("User-agent: *\nDisallow: //x/\n", "//x/y")


def test_escapes_compare_by_what_they_mean() -> None:  # 2.2.2, its table
    for rule in ("/foo/bar/%E3%83%84", "/foo/bar/ツ", "/foo/bar/%e3%83%84"):
        assert not allowed(f"User-agent: *\nDisallow: {rule}\n", "/foo/bar/%E3%83%84"), rule
    assert not allowed("User-agent: *\nDisallow: /%62%61%7A\n", "/baz")
    assert allowed("User-agent: *\nDisallow: /a%2Fb\n", "/a/b")


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ("/*?", "/wiki/Who%3F", False),  # an escape of a reserved character is another path
        ("/*?", "/wiki/Who?x", True),
        ("/*?", "/wiki?", True),
        ("/a%3Fb", "/a?b", False),
        ("/a%3fb", "/a%3Fb", True),
        ("/a+b", "/a%2Bb", False),
        ("/*=", "/a%3Db", False),
        ("/a&", "/a%26", False),
        ("/a:b", "/a%3Ab", False),
        ("/a%7Eb", "/a~b", True),
        ("/a{b", "/a%7Bb", True),  # what cannot stand in a URL is escaped when it is sent
        ('/a"b', "/a%22b", True),
        ("/a?b='c", "/a?b=%27c", True),
        ("/%", "/%41b", False),  # no escape, so a percent sign
        ("/%", "/%25b", True),
        ("/%", "/%zz", True),
        ("/a*b", "/a%2Ab", True),
        ("/a%2Ab", "/a*b", True),  # 2.2.3
        ("/a%2Ab", "/axb", False),
        ("/a%24", "/a$b", True),
        ("/a$b", "/a$bc", True),
        ("/a$", "/a$", False),
        ("/a$", "/a", True),
        ("/a*$", "/ab", True),
        ("*", "/", True),
        ("*b", "/ab", True),
        ("a", "/a", False),
        ("http://example.org/a", "/a", False),
    ],
)
def test_a_rule_is_compared_octet_by_octet(rule: str, path: str, matches: bool) -> None:  # 2.2.2
    assert allowed(f"User-agent: *\nDisallow: {rule}\n", path) is not matches


def test_an_end_says_nothing_of_a_path_with_a_dollar_sign() -> None:
    assert not allowed("User-agent: *\nAllow: /$\nDisallow: /\n", "/$secret")
    assert allowed("User-agent: *\nAllow: /$\nDisallow: /\n", "/")


def test_whose_index_is_allowed_that_directory_is() -> None:  # not in the RFC
    text = "User-agent: *\nDisallow: /\nAllow: /a/index.html\n"
    assert allowed(text, "/a/")
    assert not allowed(text, "/a/b")


PIECES = ["/", "a", "b", "*", "$", "?", "%41", "%2f", "%2A", "%24", "é", "{", "~", "%7e", "%"]
RULES = st.lists(st.tuples(st.booleans(), st.lists(st.sampled_from(PIECES), max_size=5).map("".join)), max_size=5)


def compared(text: str) -> str:
    """What a rule's part, or a path, is compared as: escapes of unreserved characters undone, all others made."""
    quoted = quote(unquote_to_bytes(re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", text)), safe="/?")
    return quoted if "%2f" not in text.lower() else "%2F".join(map(compared, re.split("(?i)%2f", text)))


@given(RULES, st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
def test_rules_match_as_regular_expressions_do(rules: list[tuple[bool, str]], tail: str) -> None:
    path, found = compared("/" + tail), list[bool]()
    for allows, value in rules:
        pattern = ".*".join(re.escape(compared(part)) for part in value.removesuffix("$").split("*"))
        if value and re.match(pattern + ("$" if value.endswith("$") else ""), path):
            found.append(allows)
    lines = "".join(f"{'Allow' if allows else 'Disallow'}: {value}\n" for allows, value in rules)
    assert allowed("User-agent: *\n" + lines, "/" + tail) in (found or [True])


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_may_end_in_three_ways_and_no_fourth(end: str) -> None:
    assert not allowed(end.join(["User-agent: x", "User-agent: dhtcrawl", "", "Disallow: /a"]), "/a")
    for char in ("\u2028", "\x85", "\x0b", "\x0c", "\x1c"):
        assert allowed(end.join(["User-agent: *", f"Disallow: /a{char}Disallow: /b"]), "/b")


def test_a_byte_order_mark_comments_and_odd_spacing_do_no_harm() -> None:
    assert not allowed(b"\xef\xbb\xbfUser-agent: *\nDisallow: /a", "/a")
    assert not allowed("  useragent :* # all\n\tdisallow\t/a # this\n", "/a")
    assert not allowed("User agent: *\nDissallow: /a\n", "/a")


def test_only_the_first_500_kib_count() -> None:
    head = b"User-agent: *\n#"
    rule = b"\nDisallow: /a"
    within = head + b"x" * (PARSED_BYTES_MAX - len(head) - len(rule)) + rule
    assert not allowed(within, "/a")
    beyond = head + b"x" * (PARSED_BYTES_MAX - len(head)) + rule
    assert allowed(beyond, "/a")
    half = within.removesuffix(b"a") + b"private"  # the limit falls behind its "/"
    assert allowed(half, "/x")


def test_crawl_delay_is_ours_or_everybodys_or_none() -> None:  # not in the RFC
    parsed = Robots.parse(b"User-agent: dhtcrawl\nCrawl-delay: 2.5\nUser-agent: *\nCrawl-delay: 9\nDisallow: /a\n")
    assert parsed.crawl_delay_s("dhtcrawl") == 9  # one group of two agents: no rule came between
    parsed = Robots.parse(b"User-agent: dhtcrawl\nCrawl-delay: 2.5\nAllow: /\nUser-agent: *\nCrawl-delay: 9\n")
    assert parsed.crawl_delay_s("dhtcrawl") == 2.5
    assert parsed.crawl_delay_s("other") == 9
    for nonsense in (b"soon", b"-1", b"nan", b"inf", b""):
        assert Robots.parse(b"User-agent: *\nCrawl-delay: " + nonsense).crawl_delay_s("x") is None
    assert ALLOW_ALL.crawl_delay_s("x") is None


def test_sitemaps_belong_to_the_whole_file() -> None:
    parsed = Robots.parse("Sitemap: http://a/1\nUser-agent: x\nSITEMAP: http://a/é # y\nDisallow: /\n".encode())
    assert parsed.sitemaps == ("http://a/1", "http://a/%C3%A9")


@pytest.mark.parametrize(
    ("verdict", "statuses"),
    [
        (RobotsVerdict.PARSE, (200, 204, 299)),
        (RobotsVerdict.ALLOW_ALL, (301, 304, 399, 400, 401, 403, 404, 410, 499)),
        (RobotsVerdict.DISALLOW_ALL, (429, 500, 503, 599, 600, 999, 0, 100)),
    ],
)
def test_a_status_decides_as_the_rfc_says(verdict: RobotsVerdict, statuses: tuple[int, ...]) -> None:  # 2.3.1
    assert {verdict_for_status(status) for status in statuses} == {verdict}


def test_matching_is_refused_where_it_could_compare_too_much() -> None:
    # Each wildcard rule is gone through once, left to right, for each URL: the work is at most this product.
    rule = "/*ab*ac*ad"
    parsed = Robots.parse(b"User-agent: *\n" + f"Disallow: {rule}\n".encode() * 10_000)
    longest = MATCH_WORK_MAX // (10_000 * len(rule))
    assert parsed.allows(SITE + "/" + "a" * (longest - 1), "x")
    assert not parsed.allows(SITE + "/" + "a" * longest, "x")
    # Plain rules cost one comparison of prefixes and have no such bound.
    plain = Robots.parse(b"User-agent: *\n" + b"Disallow: /x\n" * 30_000)
    assert plain.allows(SITE + "/" + "a" * 8_000, "x")


def test_many_agents_with_many_rules_are_not_multiplied() -> None:
    agents = b"".join(
        b"User-agent: %b\n" % bytes((97 + i % 26, 97 + i // 26 % 26, 97 + i // 676)) for i in range(9_000)
    )
    rules = b"".join(b"Disallow: /%d\n" % i for i in range(9_000))
    parsed = Robots.parse(agents + rules)
    assert entries(parsed) < 100_000
    assert not parsed.allows(SITE + "/77", "aaa")
    assert parsed.allows(SITE + "/77", "dhtcrawl")
    assert entries(parsed) < 200_000


def test_few_matchers_are_kept() -> None:
    parsed = Robots.parse(b"User-agent: *\nDisallow: /\n")
    before = entries(parsed)
    for number in range(100):
        parsed.allows(SITE + "/", "x" * number)
    assert entries(parsed) <= before + robots.MATCHERS_MAX


LINES = [b"User-agent: *", b"user-agent: dhtcrawl", b"Disallow: /*", b"Allow: /$", b"Disallow: %", b"Crawl-delay: 1"]


@given(st.lists(st.one_of(st.sampled_from(LINES), st.binary(max_size=40)), max_size=12), st.text(max_size=20))
def test_any_bytes_are_a_robots_txt(lines: list[bytes], path: str) -> None:
    parsed = Robots.parse(b"\n".join(lines))
    for url in (f"{SITE}/{path}", path, f"http://{path}/", ""):
        parsed.allows(url, "dhtcrawl")
        parsed.allows(url, path)
    parsed.crawl_delay_s("dhtcrawl")
