"""Which rules are in force for whom, for how long, and how many of them are kept."""

from __future__ import annotations

from harness.memory import entries

from dhtcrawl.fetch.robots import ALLOW_ALL, DISALLOW_ALL, Robots
from dhtcrawl.fetch.robots_book import UNUSED_S, RobotsBook


class Now:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def make(now: Now | None = None, *, origins_max: int = 100) -> RobotsBook:
    return RobotsBook("dhtcrawl", now=now or Now(), ttl_s=60.0, crawl_delay_max_s=30.0, origins_max=origins_max)


def wish(delay_s: float) -> Robots:
    return Robots.parse(b"user-agent: *\ncrawl-delay: %g" % delay_s)


def test_without_rules_nothing_is_allowed() -> None:
    book = make()
    assert not book.known("http://a")
    assert not book.allows("http://a", "http://a/")
    assert book.crawl_delay_s("a") == 0.0


def test_rules_are_an_origins_and_ours_by_our_token() -> None:
    book = make()
    book.put("http://a", Robots.parse(b"user-agent: dhtcrawl\ndisallow: /no\n\nuser-agent: *\ndisallow: /"))
    book.put("https://a", DISALLOW_ALL)
    assert book.allows("http://a", "http://a/yes")
    assert not book.allows("http://a", "http://a/no")
    assert not book.allows("https://a", "https://a/yes")
    assert not book.known("http://a:81")


def test_rules_expire_and_are_replaced() -> None:
    now = Now()
    book = make(now)
    book.put("http://a", DISALLOW_ALL)
    assert not book.allows("http://a", "http://a/")
    now.at += 59.0
    assert book.known("http://a")
    now.at += 1.0
    assert not book.known("http://a")
    book.put("http://a", ALLOW_ALL)
    assert book.known("http://a")
    assert book.allows("http://a", "http://a/")


def test_rules_by_which_no_task_was_decided_yet_count_for_one_but_no_longer_than_a_day() -> None:
    now = Now()
    for rules in (ALLOW_ALL, DISALLOW_ALL):
        book = make(now)
        book.put("http://a", rules)
        now.at += 61.0
        assert book.known("http://a")
        assert book.allows("http://a", "http://a/") is (rules is ALLOW_ALL)
        assert not book.known("http://a")
        book.put("http://b", rules)
        now.at += UNUSED_S
        assert not book.known("http://b")
    book.put("http://c", ALLOW_ALL, told=True)
    now.at += 60.0
    assert not book.known("http://c"), "who reads it knows them better"


def test_rules_that_have_expired_are_in_force_again_where_none_can_be_had() -> None:
    now = Now()
    book = make(now)
    rules = Robots.parse(b"user-agent: *\ndisallow: /no\ncrawl-delay: 5")
    for told in (False, True):
        book.put("http://a", rules)
        assert book.allows("http://a", "http://a/")
        now.at += 60.0
        assert not book.known("http://a")
        assert book.put("http://a", DISALLOW_ALL, told=told) is rules
        assert book.known("http://a")
        assert book.doubt("http://a") is told, "that there are none others can say of any host"
        assert book.crawl_delay_s("a") == 5.0
    assert book.put("http://a", ALLOW_ALL) is ALLOW_ALL, "there are new ones"
    assert book.put("http://b", DISALLOW_ALL) is DISALLOW_ALL, "there never were any"
    assert [book.unreachable(f"http://{host}") for host in "abc"] == [False, True, False]


def test_a_host_may_wish_for_a_delay_within_a_limit() -> None:
    book = make()
    book.put("http://a", wish(5))
    book.put("http://b:81", wish(10**9))
    assert (book.crawl_delay_s("a"), book.crawl_delay_s("b:81"), book.crawl_delay_s("b")) == (5.0, 30.0, 0.0)
    book.put("http://a", ALLOW_ALL)
    assert book.crawl_delay_s("a") == 0.0


def test_the_longer_wish_of_a_hosts_two_origins_counts() -> None:
    book = make()
    book.put("https://a", wish(9))
    book.put("http://a", wish(4))
    assert book.crawl_delay_s("a") == 9.0
    book.put("http://a", ALLOW_ALL)
    assert book.crawl_delay_s("a") == 9.0, "the other origin's wish stays"
    book.put("https://a", ALLOW_ALL)
    assert book.crawl_delay_s("a") == 0.0


def test_the_rules_least_recently_asked_for_are_forgotten() -> None:
    book = make(origins_max=2)
    book.put("http://a", wish(5))
    book.put("http://b", wish(6))
    held = entries(book)
    assert book.known("http://a")
    book.put("http://c", wish(7))
    assert [book.known(f"http://{host}") for host in "abc"] == [True, False, True]
    assert [book.crawl_delay_s(host) for host in "abc"] == [5.0, 0.0, 7.0]
    assert entries(book) == held


def test_long_files_are_forgotten_sooner_and_the_newest_stays_however_long_it_is() -> None:
    book = RobotsBook("dhtcrawl", now=Now(), ttl_s=60.0, crawl_delay_max_s=30.0, bytes_max=100)
    long, longer = (Robots.parse(b"user-agent: *\ndisallow: /" + b"x" * size) for size in (20, 200))
    for host in "ab":
        book.put(f"http://{host}", long)
    book.put("http://b", long)
    assert book.known("http://a"), "what is put again counts once"
    book.put("http://c", longer)
    assert [book.known(f"http://{host}") for host in "abc"] == [False, False, True]
    book.put("http://c", long)
    book.put("http://a", ALLOW_ALL)
    assert [book.known(f"http://{host}") for host in "ac"] == [True, True], "what was replaced does not count"


def test_told_rules_are_in_force_until_they_are_doubted_and_only_what_this_node_reads_ends_the_doubt() -> None:
    book = make()
    book.put("http://a", DISALLOW_ALL, told=True)
    assert book.known("http://a")
    assert not book.doubted("http://a")
    assert book.doubt("http://a")
    assert book.doubt("http://a"), "for the next page, too"
    book.put("http://a", DISALLOW_ALL, told=True)
    assert book.doubted("http://a")
    assert not book.known("http://a")
    book.put("http://a", ALLOW_ALL)
    assert book.known("http://a")
    assert not book.doubted("http://a")
    assert not book.doubt("http://a"), "it was read here"


def test_a_doubt_outlives_the_rules_that_it_is_about_and_doubts_are_bounded() -> None:
    book = make(origins_max=2)
    for host in "abc":
        book.put(f"http://{host}", DISALLOW_ALL, told=True)
        assert book.doubt(f"http://{host}")
    assert [book.doubted(f"http://{host}") for host in "abc"] == [False, True, True]
    book.put("http://d", ALLOW_ALL)
    book.put("http://e", ALLOW_ALL)
    assert book.doubted("http://b")
    assert book.doubted("http://c")
    assert not book.doubt("http://b"), "there is nothing to doubt any more"


def test_what_is_told_does_not_take_the_place_of_what_this_node_has_read_until_that_expires() -> None:
    now = Now()
    book = make(now)
    book.put("http://a", ALLOW_ALL)
    book.put("http://a", DISALLOW_ALL, told=True)
    assert book.allows("http://a", "http://a/")
    assert not book.doubt("http://a"), "it was read here"
    now.at += 60.0
    book.put("http://a", DISALLOW_ALL, told=True)
    assert book.doubt("http://a")


def test_origins_share_only_a_file_that_this_node_has_read() -> None:
    book = make()
    book.put("http://a", ALLOW_ALL, told=True)
    assert book.rules_at("http://a/robots.txt") is None
    book.put("http://a", ALLOW_ALL)
    assert book.rules_at("http://a/robots.txt") is ALLOW_ALL
