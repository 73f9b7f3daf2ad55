"""The spec of a crawl: its bytes, its id, and what a user may type as a seed."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.cli.log_lines import one_line
from dhtcrawl.config import CrawlSettings
from dhtcrawl.errors import UsageError
from dhtcrawl.keyspace import host_key, url_key
from dhtcrawl.spec import CrawlSpec, make_spec
from dhtcrawl.url import canonicalize

SETTINGS = st.builds(
    CrawlSettings,
    scope=st.sampled_from(["page", "prefix", "host", "domain", "any"]),
    include=st.lists(st.text(max_size=8), max_size=3).map(tuple),
    depth=st.integers(-1, 2**63 - 1),
    delay_s=st.floats(0, 1e9),
    key=st.sampled_from(["url", "host"]),
    user_agent=st.text(max_size=20),
    allow_private=st.booleans(),
    copies=st.integers(1, 16),
)
SEEDS = st.lists(
    st.sampled_from(["a.org", "http://b.org/x?y", "https://[::1]:8443/", "c.org/é"]), min_size=1, max_size=4
)


@given(seeds=SEEDS, settings=SETTINGS)
def test_a_spec_survives_its_own_bytes(seeds: list[str], settings: CrawlSettings) -> None:
    spec = make_spec(seeds, settings)
    again = CrawlSpec.from_canonical(spec.canonical())
    assert again == spec
    assert again.canonical() == spec.canonical()


def test_every_setting_of_a_crawl_is_in_its_id() -> None:
    spec = make_spec(["a.org"], CrawlSettings(copies=2, policy_options=("mode=pso",)))
    fields = msgpack.unpackb(spec.canonical())
    assert set(fields) == {"seeds", "canon_version"} | {f.name for f in dataclasses.fields(CrawlSettings)}
    assert list(fields) == sorted(fields)
    other = make_spec(["a.org"], CrawlSettings(ignore_robots=True))
    assert spec.crawl_id(b"nonce") != other.crawl_id(b"nonce")


def test_a_setting_of_a_later_version_leaves_the_ids_of_crawls_begun_before_as_they_were() -> None:
    assert "copies" not in msgpack.unpackb(make_spec(["a.org"], CrawlSettings()).canonical())
    one, two = (make_spec(["a.org"], CrawlSettings(copies=copies)) for copies in (1, 2))
    assert one.crawl_id(b"nonce") != two.crawl_id(b"nonce")


def test_the_nonce_tells_two_crawls_of_one_spec_apart() -> None:
    spec = make_spec(["a.org"], CrawlSettings())
    assert len(spec.crawl_id(b"1")) == 16
    assert spec.crawl_id(b"1") == spec.crawl_id(b"1") != spec.crawl_id(b"2")


def test_fields_of_a_later_version_are_ignored() -> None:
    spec = make_spec(["a.org"], CrawlSettings())
    later = msgpack.packb({**msgpack.unpackb(spec.canonical()), "zeal": 11})
    assert CrawlSpec.from_canonical(later) == spec


PROGRAM = """
from dhtcrawl.config import CrawlSettings
from dhtcrawl.keyspace import host_key, url_key
from dhtcrawl.spec import make_spec
spec = make_spec(["http://a.org/", "b.org"], CrawlSettings(include=("x", "y"), delay_s=2.5))
print(spec.crawl_id(bytes(16)).hex())
"""


def test_the_id_of_a_crawl_is_the_same_in_every_process() -> None:
    ids = set()
    for seed in ("0", "1"):
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent.parent)},
        )
        ids.add(ran.stdout)
    # Nodes of other versions know a crawl by this id: it must not change.
    assert ids == {"f51d56575d37b1fe95671f88de3b2746\n"}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("example.org", "http://example.org/"),
        (" example.org/a?b#c ", "http://example.org/a?b"),
        ("localhost:8000/x", "http://localhost:8000/x"),
        ("[::1]:8000", "http://[::1]:8000/"),
        ("HTTPS://EXAMPLE.org:443", "https://example.org/"),
        ("http:/example.org", "http://example.org/"),
        ("example.org/login?next=http://example.com/", "http://example.org/login?next=http://example.com/"),
    ],
)
def test_people_type_addresses_without_a_scheme(typed: str, meant: str) -> None:
    assert make_spec([typed], CrawlSettings()).seeds == (meant,)


@pytest.mark.parametrize(
    "typed",
    ["", " ", "http://", "ftp://example.org/", "mailto:me@example.org", "http://[", "a b", "\udcff"],
)
def test_what_is_no_web_address_is_refused_by_name(typed: str) -> None:
    with pytest.raises(UsageError, match=r"is no web address; use something like https://example\.org/") as caught:
        make_spec(["http://a.org/", typed], CrawlSettings())
    assert repr(typed) in str(caught.value)


@pytest.mark.parametrize(
    "typed", ["http://a.org/" + "x" * 70_000, "a.org/" + "ä" * 3_000, "ftp://a.org/" + "x" * 5_000]
)
def test_of_a_long_text_that_is_no_web_address_the_beginning_and_the_remedy_are_told(typed: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_spec([typed], CrawlSettings())
    told = one_line(str(caught.value))
    assert told.startswith(f"'{typed[:100]}")
    assert "of at most 8192 characters" in told
    assert told.endswith("use something like https://example.org/")


def test_a_crawl_needs_a_seed() -> None:
    with pytest.raises(UsageError, match="no seed given"):
        make_spec([], CrawlSettings())


def test_seeds_keep_their_order_and_stand_once() -> None:
    spec = make_spec(["b.org", "a.org", "http://B.org:80/#x"], CrawlSettings())
    assert spec.seeds == ("http://b.org/", "http://a.org/")


@given(st.text(max_size=30))
def test_whatever_is_typed_is_canonical_or_refused(typed: str) -> None:
    try:
        (seed,) = make_spec([typed], CrawlSettings()).seeds
    except UsageError:
        return
    assert canonicalize(seed) == seed


def test_private_hosts_are_the_seeds_own_and_only_where_allowed() -> None:
    seeds = ["http://localhost:8000/", "http://10.0.0.1/"]
    assert make_spec(seeds, CrawlSettings()).private_hosts == frozenset()
    allowed = make_spec(seeds, CrawlSettings(allow_private=True))
    assert allowed.private_hosts == {"localhost:8000", "10.0.0.1"}


def test_the_contact_stands_in_the_user_agent() -> None:
    assert make_spec(["a.org"], CrawlSettings(user_agent="bot/1")).user_agent == "bot/1"
    with_contact = CrawlSettings(user_agent="bot/1", contact="https://a.org/bot")
    assert make_spec(["a.org"], with_contact).user_agent == "bot/1 (+https://a.org/bot)"


def test_a_key_is_the_url_s_alone_or_begins_with_its_host_s() -> None:
    url = "https://b.org:8443/x?y"
    by_url, by_host = (make_spec(["a.org"], CrawlSettings(key=mode)).key_of(url) for mode in ("url", "host"))
    assert by_url == url_key(url)
    assert by_host == host_key("b.org:8443") + url_key(url)
