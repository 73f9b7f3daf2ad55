from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dhtcrawl.fetch.candidates import candidates
from dhtcrawl.fetch.links import candidate_of
from dhtcrawl.fetch.plain_links import PlainLinks, is_anchor
from dhtcrawl.url import HOST_CHARS_MAX, URL_CHARS_MAX, canonicalize

PARTS = (
    "a", "b.html", "A-_~9", "..", ".", "...", ".x", "x.", "%2e", "%2E%2e", "%41", "%", "", "", "?", "#", "?q=1", "#f",
    ":", "http:", "http://a.example", "https://b-c.example", "http://1.2", "http://xn--a.b", "http://A.b",
    "http://a..b", "http://h:80", "?a=1&amp;b", "&amp;c=$(x)", "&copy;=1", "&b", "'", "javascript:", "\\", " ", "\t",
    "\n", "é", "&amp;", "&#46;", "@", ";p=1", "C|", "C:", "*", "//h", "\0",
)  # fmt: skip
hrefs = st.lists(st.sampled_from(PARTS), max_size=6).flatmap(
    lambda parts: st.sampled_from(("/".join(parts), "".join(parts), "/" + "/".join(parts), "../" + "/".join(parts)))
)
bases = st.builds(
    "{}{}".format,
    st.sampled_from(("http://h", "https://h:8443", "http://[::1]", "http://xn--9ca")),
    st.lists(
        st.sampled_from(("/", "/a", "/b.html", "//", "/%41", "/%2F", "/é", "/..x", "?q=/x/", "/~")), max_size=5
    ).map(lambda parts: "/" + "".join(parts)),
).map(canonicalize)
tags = st.sampled_from(
    ('a href="{}"', 'a title="t" href="{}" class="c d"', "a href='{}'", "a href={}", 'a  href="{}"', 'a href="{}"/',
     'a rel="nofollow" href="{}"', 'a href="{}" rel="nofollow"', 'a href="x" href="{}"', 'a href="{}" href="x"',
     'A HREF="{}"', 'a title="{}"', 'area href="{}"', 'a href="{}" title="é&quot;\0"', 'a href="{}" TITLE="t"',
     'a id="b" href="{}" name="c"', 'a href="#{}" id="b"', 'a href="#{}" href="x"', 'a id="{}"', 'a href="" id="#{}"',
     'a\nhref="{}"', 'a href="{}" hrefx="y"', 'a href=" {} "', 'a href="{}"title="t"', 'a data-href="z" href="{}"')
)  # fmt: skip


@given(tags, hrefs, bases)
@example('a href="{}"', "../" * 20 + "x", "http://h/a/b/c")
@example('a href="{}"', "../x", "http://h/a//b")
@example('a href="{}"', "x?a=1&amp;b=2;c", "http://h/a/b?q")
@example('a href="{}"', "http://" + "a" * 64 + ".example/", "http://h/a/b?q")
@example('a href="{}"', "http://" + "a." * 130 + "example/", "http://h/a/b?q")
@example('a href="{}"', "http://a.0x1/", "http://h/a/b?q")
@example('a href="{}"', "http://ab--c.example/", "http://h/a/b?q")
@example('a href="{}"', "http://a-.example/", "http://h/a/b?q")
@example('a href="{}"', "http://a.example/x/?", "https://h/a/b?q")
@example('a href="{}"', "", "http://h/a/b?q")
@example('a href="{}"', "/", "http://h/a/b")
@example('a href="{}"', "../..", "http://h/a/b/c")
def test_a_plain_link_leads_where_a_url_parser_says(tag: str, href: str, base: str | None) -> None:
    assert base is not None
    for text in candidates(f"<{tag.format(href)}>".encode()):
        target = PlainLinks(base).target_of(text)
        if target is not None:
            candidate = candidate_of(text)
            assert candidate is not None
            assert candidate.href is not None
            assert not candidate.nofollow
            assert canonicalize(candidate.href.partition("#")[0], base) == target.decode()
            assert PlainLinks(base).target_of_href(candidate.href) == target
        if is_anchor(text):
            assert target is None
            assert candidate_of(text) == (None, False)


@pytest.mark.parametrize(
    ("text", "anchor"),
    [
        (b'<a id="a" class="b c">', True), (b"<a>", True), (b'<a href="#a" title="b">', True), (b'<a name="">', True),
        (b'<a id="a" href="b">', False), (b'<a href="">', False), (b'<a id="a" rel="nofollow">', False),
        (b'<a id="a"', False), (b"<a id=a>", False), (b'<area id="a">', False), (b"<!--", False),
    ],
)  # fmt: skip
def test_a_tag_that_leads_to_no_other_page_is_known_without_reading_its_attributes(text: bytes, anchor: bool) -> None:
    assert is_anchor(text) == anchor


@given(hrefs, bases)
@example("x?a=1&b=2;c#&\n", "http://h/a/b?q")
@example("?a=1", "http://h/a/b?q")
@example("", "http://h/a/b?q")
@example("\ud800", "http://h/a/b?q")
def test_a_plain_link_that_was_read_leads_where_a_url_parser_says(href: str, base: str | None) -> None:
    assert base is not None
    target = PlainLinks(base).target_of_href(href)
    assert target is None or target.decode() == canonicalize(href.partition("#")[0], base)


@pytest.mark.parametrize(
    ("href", "target"),
    [
        ("x.html", "http://h/a/b/x.html"), ("../c/", "http://h/a/c/"), ("../../x", "http://h/x"), ("/", "http://h/"),
        ("/a~b/c", "http://h/a~b/c"), ("x#part", "http://h/a/b/x"), ("../", "http://h/a/"),
        ("x?a=b", "http://h/a/b/x?a=b"), ("/w.php?t=a/b&amp;o=1#f", "http://h/w.php?t=a/b&o=1"), ("../?", "http://h/a/?"),
        ("https://a-b.example/", "https://a-b.example/"), ("http://a.b.example/c/d?e#f", "http://a.b.example/c/d?e"),
    ],
)  # fmt: skip
def test_the_links_of_most_pages_are_plain(href: str, target: str) -> None:
    assert PlainLinks("http://h/a/b/page?q=/").target_of(f'<a href="{href}" title="t">'.encode()) == target.encode()


@pytest.mark.parametrize(
    "href",
    [
        "",
        "#",
        "?q",
        "x?'",
        "x?a&b",
        "x?a&copy=1",
        "x?%41",
        "./x",
        "a/../x",
        "a/%2e",
        "//h/x",
        "http://h/x",
        "http://h.example",
        "http://h.example:80/",
        "http://1.2.3.4/",
        "http://A.example/",
        "http://xn--9ca.example/",
        "http://a@b.example/",
        "ftp://h.example/",
        "a//b",
        "x y",
        "../../x",
    ],
)
def test_a_link_of_another_kind_is_left_to_a_url_parser(href: str) -> None:
    assert PlainLinks("http://h/a/b").target_of(f'<a href="{href}">'.encode()) is None


def test_a_link_that_is_too_long_is_left_to_a_url_parser() -> None:
    links = PlainLinks("http://h/" + "a" * (URL_CHARS_MAX - 20) + "/")
    assert links.target_of(b'<a href="b">') is not None
    assert links.target_of(b'<a href="' + b"b" * 20 + b'">') is None


def test_a_name_that_is_too_long_is_left_to_a_url_parser() -> None:
    links, name = PlainLinks("http://h/"), ("a." * HOST_CHARS_MAX)[: HOST_CHARS_MAX - 4] + ".org"
    assert links.target_of_href(f"http://{name}/x") == f"http://{name}/x".encode()
    assert links.target_of_href(f"http://b{name}/x") is None
    assert links.target_of(f'<a href="https://b{name}/x">'.encode()) is None
