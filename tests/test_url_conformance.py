"""URLs against the vectors of the WHATWG and of a normalizer, and against themselves."""

from __future__ import annotations

import csv
import json
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from dhtcrawl.url import HOST_CHARS_MAX, canonicalize

UNRESERVED = frozenset(string.ascii_letters + string.digits + "-._~")


def unchanged(*urls: str) -> dict[str, str | None]:
    return {url: url for url in urls}


# Where the normalizer changes what may be another page, or guesses, we do not.
# By reason, what is given and what we make of it.
KEPT_ON_PURPOSE: dict[str, dict[str, str | None]] = {
    "the order of a query, empty values and empty parameters are the server's business": unchanged(
        "http://example.com/?b=1&a=1",
        "http://foo.com/foo.html?b=1&a=1",
        "http://foo.com/index?b=2&a=1",
        "http://foo.com/index?a=1&b=",
        "http://foo.com/index?b&a=1",
        "http://foo.com/index?b=&a=1",
        "http://foo.com/index?b=1&a=1&",
        "http://foo.com/index?&b=1&a=1",
        "http://foo.com/index?&=1&a=1",
        "http://foo.com/index?=1&b=1&a=1",
    )
    | {"http://foo.com/index?b=2&a=1#c": "http://foo.com/index?b=2&a=1"},
    "an empty query is a query": {
        "http://example.com?": "http://example.com/?",
        "http://example.com/?": "http://example.com/?",
    },
    "doubled slashes are empty path segments": unchanged(
        "http://foo.com//aa/bb/foo.html",
        "http://foo.com/aa//bb/foo.html",
        "http://foo.com/aa/bb//foo.html",
        "http://foo.com//aa//bb//foo.html",
        "http://foo.com////aa////bb//foo.html",
        "http://foo.com////aa////bb////foo.html",
    ),
    "a '%' that begins no escape is sent as it is": {
        "https://www.last.fm/music/Prefuse+73/_/90%+of+My+Mind+Is+With+You": (
            "https://www.last.fm/music/Prefuse+73/_/90%+of+My+Mind+Is+With+You"
        ),
        "http://www.example.com/a/c/../b/search?q=foobar%": "http://www.example.com/a/b/search?q=foobar%",
        "http://www.example.com/p%zz%77%v": "http://www.example.com/p%zzw%v",
        "http://www.example.com/search?q=foobar%": "http://www.example.com/search?q=foobar%",
        "http://www.example.com/search?q=foobar%2": "http://www.example.com/search?q=foobar%2",
    },
    "browsers send these characters of a query unescaped": {
        "http://x.com/?x[y]=1": "http://x.com/?x[y]=1",
        "http://www.example.com/a/c/../b/search?q=foobar^": "http://www.example.com/a/b/search?q=foobar^",
        "http://www.example.com/a/c/../b/search?q=foobar`": "http://www.example.com/a/b/search?q=foobar`",
        "http://www.example.com/a/c/../b/search?q=foobar|": "http://www.example.com/a/b/search?q=foobar|",
    },
    "a host with a trailing dot is another host": {"https://www.example.org./": "https://www.example.org./"},
    "not http, or no host": dict.fromkeys(
        (
            "file:///foo/bar.txt",
            "ftp:/",
            "http:////",
            "http:///////",
            "foo.com/index.html",
            "ftp://foo.com/index.html",
            "file:/path/index.html",
            "file:/var/www/html/////./bar/index.html",
            "file:/var/www/html/foo/../bar/index.html",
        )
    ),
}


def changed_on_purpose(href: str) -> str | None:
    """What `canonicalize` promises beyond the standard: no fragment, no credentials, normal escapes, http(s) only."""
    if not href.startswith(("http://", "https://")):
        return None
    href = re.sub(r"\A(https?://)[^/@]*@", r"\1", href.partition("#")[0])

    def normal(match: re.Match[str]) -> str:
        char = chr(int(match[0][1:], 16))
        return char if char in UNRESERVED else match[0].upper()

    return re.sub("%[0-9A-Fa-f]{2}", normal, href)


def rows_of(path: Path) -> Iterator[list[str]]:
    # Not splitlines: some of these URLs hold control characters.
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line and not line.startswith("#"):
            yield [field.strip(" ") for field in next(csv.reader([line], skipinitialspace=True))]


def test_links_resolve_as_in_browsers(conformance_dir: Path) -> None:
    data: list[Any] = json.loads((conformance_dir / "url" / "urltestdata.json").read_text(encoding="utf-8"))
    cases = [case for case in data if isinstance(case, dict)]
    wrong = []
    for case in cases:
        expected = None if case.get("failure") else changed_on_purpose(case["href"])
        base = canonicalize(case["base"]) if case["base"] else None
        found = canonicalize(case["input"], base)
        if found != expected:
            wrong.append((case["input"], case["base"], expected, found))
    assert wrong == []
    assert len(cases) > 800


def test_relative_links_resolve_against_their_page(conformance_dir: Path) -> None:
    rows = list(rows_of(conformance_dir / "url" / "url-resolve.csv"))
    for link, base, expected in rows:
        found = canonicalize(link, canonicalize(base) if base else None)
        assert found == changed_on_purpose(expected), (link, base)
    assert len(rows) > 20


def test_weird_urls_are_normalized_or_kept_for_a_reason(conformance_dir: Path) -> None:
    kept = {given: ours for group in KEPT_ON_PURPOSE.values() for given, ours in group.items()}
    met = set()
    for url, normalized in rows_of(conformance_dir / "url" / "weirdToNormalizedUrls.csv"):
        if url in kept:
            met.add(url)
            assert canonicalize(url) == kept[url] != normalized
        else:
            assert canonicalize(url) == normalized, url
    assert met == set(kept)


def test_a_host_that_is_longer_than_any_name_leads_nowhere() -> None:
    name = "a." * ((HOST_CHARS_MAX - 6) // 2)
    longest = f"http://{name}:65535/x"
    assert len(name) >= 253
    assert canonicalize(longest) == canonicalize(f"http://user:password@{name}:65535/x") == longest
    assert canonicalize(f"http://aaa{name}:65535/x") is canonicalize(f"//aaaaaaaaa{name}/x", "http://h/") is None


# Letters that make escapes, dots, slashes and delimiters meet.
pieces = st.text("%2eE4510aAfF./\\?#@:;&= \t\n[]é\ud800\0", max_size=30)


@given(tail=pieces, base=st.sampled_from([None, "http://example.org/a/b?c", "https://user@h.example:81/"]))
@example(tail="%%34%31", base=None)  # decoding may complete another escape
@example(tail="%%%33333", base=None)
def test_a_canonical_url_is_its_own_canonical_form(tail: str, base: str | None) -> None:
    canonical_base = canonicalize(base) if base else None
    raw = tail if canonical_base else f"http://h.example/{tail}"
    once = canonicalize(raw, canonical_base)
    if once is not None:
        assert canonicalize(once) == once
        assert canonicalize(once, "http://elsewhere.example/x/") == once
        assert once.isascii()


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_none(raw: str) -> None:
    for base in (None, "http://example.org/a/"):
        found = canonicalize(raw, base)
        assert found is None or found.startswith(("http://", "https://"))
