from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dhtcrawl.fetch import links, tags
from dhtcrawl.fetch.links import (
    LINKS_MAX,
    TITLE_CHARS_MAX,
    TREE_BYTES_MAX,
    TREE_TAGS_MAX,
    PageLinks,
    WrittenLink,
    extract,
    title_of,
    written_links,
)

# Enough to have a page scanned rather than parsed, and nothing that changes what it says.
SCANNED = "<!--" + "<" * TREE_TAGS_MAX + "-->"

both_ways = pytest.mark.parametrize("before", ["", SCANNED], ids=["parsed", "scanned"])


@both_ways
def test_links_come_in_document_order_and_once(before: str) -> None:
    page = (
        "<p><a href=b>b</a><map><area href=a></map><iframe src=c></iframe><a href=' b\n'>b</a>"
        "<A HREF='?x=1&amp;y=2'>x</a><a name=n>n</a><a href>self</a>"
    )
    assert extract(before + page).hrefs == ["b", "a", "c", "?x=1&y=2", ""]


@both_ways
def test_frames_of_a_frameset_count(before: str) -> None:
    page = "<frameset><frame src=left><frame src=right></frameset><noframes><a href=no></a></noframes>"
    assert extract(before + page).hrefs == ["left", "right"]


@both_ways
def test_what_nobody_fetches_is_no_link(before: str) -> None:
    page = "".join(
        f'<a href="{href}">x</a>'
        for href in ("#top", " JavaScript:go()", "mailto:a@b", "\tTEL:1", "Data:,x", "ftp://h/", "java", "tel", "d")
    )
    assert extract(before + page).hrefs == ["ftp://h/", "java", "tel", "d"]


@both_ways
def test_comments_scripts_and_values_hold_no_links(before: str) -> None:
    page = (
        "<!-- <a href=1> --><script>'<a href=2>'</script><style><a href=3></style><textarea><a href=4></textarea>"
        "<p title='<a href=5>'><title><a href=6></title><iframe src=f><a href=7></iframe>"
        "<noscript><a href=ok></a></noscript><a href=cut"
    )
    assert extract(before + page).hrefs == ["f", "ok"]


@both_ways
def test_nofollow_is_a_token_of_rel_and_one_followed_link_outweighs_it(before: str) -> None:
    page = (
        "<a href=a rel='external NoFollow'></a><a href=b rel=nofollow></a><a href=b></a>"
        "<a href=c rel=ugc></a><a href=d rel='sponsored'></a><a href=e rel='nofollowing'></a>"
        "<a href=a rel=nofollow></a>"
    )
    found = extract(before + page)
    assert found.hrefs == ["b", "c", "d", "e"]
    assert found.nofollow == ["a"]


@both_ways
def test_the_first_base_with_an_href_counts(before: str) -> None:
    assert extract(before + "<base target=_top><base href=' /x/ '><base href=/y/>").base == "/x/"
    assert extract(before + "<p>").base is None


@both_ways
@pytest.mark.parametrize(
    ("content", "url"),
    [
        ("0; url=next.html", "next.html"),
        ("5;URL='a b'>", "a b"),
        (' 1.5 , url = "q"rest', "q"),
        ("3 next", "next"),
        ("0;next", "next"),
        ("0; url", "url"),
        ("5", None),
        ("5;", None),
        ("soon; url=x", None),
        ("0; url=javascript:x", None),
        ("0; url=#top", None),
    ],
)
def test_a_refresh_names_a_url_in_many_ways(before: str, content: str, url: str | None) -> None:
    quoted = content.replace('"', "&quot;")
    assert extract(f'{before}<meta http-equiv=" Refresh" content="{quoted}">').refreshes == (
        [] if url is None else [url]
    )


@both_ways
def test_all_refreshes_count_whichever_a_browser_takes(before: str) -> None:
    page = (
        "<noscript><meta http-equiv=refresh content='0;nojs'></noscript><meta http-equiv=refresh content='5;url=own'>"
    )
    assert extract(before + page).refreshes == ["nojs", "own"]
    assert written_links(before + page)[1] == [
        WrittenLink("meta-refresh", "nojs", ""),
        WrittenLink("meta-refresh", "own", ""),
    ]


@both_ways
def test_a_meta_may_forbid_robots_of_its_name_to_follow(before: str) -> None:
    for name, content, forbidden in (
        ("robots", "noindex, NoFollow", "robots"),
        (" ROBOTS", "none", "robots"),
        ("OtherBot", "nofollow", "otherbot"),
        ("robots", "noindex,follow", None),
        ("robots", "", None),
        ("", "nofollow", None),
    ):
        page = f'{before}<meta name="{name}" content="{content}"><a href=x>'
        assert extract(page).nofollow_for == ({forbidden} if forbidden else set()), (name, content)


def test_what_is_said_to_robots_concerns_all_and_what_has_a_name_the_crawler_of_that_token() -> None:
    assert [links.concerns(name, "MyBot") for name in ("robots", "mybot", "dhtcrawl", "my", "")] == [
        True, True, False, False, False,
    ]  # fmt: skip
    assert [links.concerns(name, "") for name in ("robots", "mybot", "")] == [True, False, False]


@both_ways
def test_a_title_is_one_line_of_bounded_length(before: str) -> None:
    assert extract(before + "<title> A &amp;\n\t <b>B </title><title>C</title>").title == "A & <b>B"
    assert extract(before + "<title> \n </title>").title is None
    assert extract(before + "<p>no title").title is None
    assert extract(before + f"<title>{'ab ' * 1000}</title>").title == ("ab " * 1000)[:TITLE_CHARS_MAX].rstrip()


@both_ways
def test_references_in_an_href_are_read_as_browsers_read_them(before: str) -> None:
    hrefs = ("?a&copy=1", "?a&copyb", "?a&copy;", "?a&eacute", "?&#x41;&#66c&#0;", "?&nosuch;&amp", "&notit;")
    page = "".join(f'<a href="{href}">x</a>' for href in hrefs)
    assert extract(before + page).hrefs == [
        "?a&copy=1", "?a&copyb", "?a©", "?aé", "?ABc\ufffd", "?&nosuch;&", "&notit;",
    ]  # fmt: skip


@both_ways
def test_numbers_stand_for_control_and_noncharacters_too(before: str) -> None:
    page = "<a href='?&#1;&#x7f;&#xFFFE&#1114111;&#128;&#0;&#xD800;&#x110000;'><title>&#xfdd0;&#38;amp;&noti;</title>"
    found = extract(before + page)
    assert found.hrefs == ["?\x01\x7f\ufffe\U0010ffff\u20ac\ufffd\ufffd\ufffd"]
    assert found.title == "\ufdd0&amp;¬i;"


@both_ways
def test_bytes_that_are_no_text_do_no_harm(before: str) -> None:
    page = before.encode() + b'<title>\xff\0</title><a href="\xed\xa0\x80\0x">\xc3</a><a \xff=1 href=ok>\0'
    found = extract(page)
    assert found.title is not None
    assert found.hrefs[1:] == ["ok"]
    assert extract(before + "<a href='\ud800'>").hrefs == ["?"]
    for nothing in (b"", "", b"\0", b"\xef\xbb\xbf"):
        assert extract(nothing) == PageLinks(None, [], [], [], None, frozenset())


def test_a_page_has_at_most_so_many_links_and_says_if_it_had_more() -> None:
    page = b"".join(b"<a href=%d>" % number for number in range(LINKS_MAX + 10))
    found = extract(page)
    assert (len(found.hrefs), found.cut) == (LINKS_MAX, True)
    whole = extract(page[: page.index(b"<a href=%d>" % LINKS_MAX)] + b"<p>" * 10)
    assert (len(whole.hrefs), whole.cut) == (LINKS_MAX, False)
    assert extract(b"<a href='x'/>" * (LINKS_MAX + 1), xhtml=True).cut


HIDING = ("title", "style", "script", "textarea", "xmp", "iframe", "noembed", "noframes")


@both_ways
@pytest.mark.parametrize("island", ["svg", "math"])
@pytest.mark.parametrize("name", HIDING)
def test_nothing_in_foreign_content_hides_later_links(before: str, island: str, name: str) -> None:
    for content in (f"<{name}/>", f"<{name}>x</{name}>", f"<{name}>", f"<g a='/'><{name} x=y/></g>"):
        page = "".join(f"<{island}>{content}</{island}><a href={number}>" for number in range(20))
        assert extract(before + page).hrefs == [str(number) for number in range(20)], content


@both_ways
@pytest.mark.parametrize(
    ("page", "hrefs"),
    [
        # What breaks out is HTML again, and so is what follows.
        ("<svg><p><style><a href=no></style><a href=x>", ["x"]),
        ("<svg><font color=red><style><a href=no></style>", []),
        ("<svg><font><style><a href=x></style>", ["x"]),
        ("<svg><g></p><style><a href=no></style>", []),
        # Integration points hold HTML.
        ("<svg><foreignObject><style><a href=no></style><a href=x></a></foreignObject><style><a href=y>", ["x", "y"]),
        ("<svg><desc><title><a href=no></title><a href=x>", ["x"]),
        ("<svg><title><style><a href=no></style><a href=x>", ["x"]),
        ("<math><mi><style><a href=no></style><mglyph><style><a href=x>", ["x"]),
        ("<math><annotation-xml encoding='Text/HTML'><style><a href=no></style>", []),
        ("<math><annotation-xml encoding=x><style><a href=x></style>", ["x"]),
        ("<math><annotation-xml><svg><style><a href=x></style>", ["x"]),
        ("<svg><script><desc><script></script><script><a href=no></script>", []),
        # HTML that is open in an integration point keeps it open.
        ("<svg><desc><p></desc></svg><style><a href=no></style>", []),
        ("<svg><desc><b></b></desc><style><a href=x></style>", ["x"]),
        # An end tag may close an element around the island, if there is one.
        ("<div><svg><g></div><style><a href=no></style>", []),
        ("<svg><g></div><style><a href=x></style>", ["x"]),
        ("<div><svg><desc><svg></div><style><a href=x></style>", ["x"]),
        ("<table><td><svg><desc><p></table><style><a href=no></style>", []),
        ("<a><div><math></a><style><a href=no></style>", []),
        # CDATA sections are text in foreign content only.
        ("<svg><![CDATA[<a href=no>]]><a href=x>", ["x"]),
        ("<svg><![CDATA[ > ]]]><a href=x>", ["x"]),
        ("<svg><desc><![CDATA[<a href=x>]]>", []),
        ("<svg><desc><p><![CDATA[><a href=x>]]>", ["x"]),
        ("<![CDATA[><a href=x>", ["x"]),
        # A '/' that belongs to a value closes nothing.
        ("<svg><desc x=y/><style><a href=no></style>", []),
        ("<svg><desc x='y'/><style><a href=x></style>", ["x"]),
        ("<svg/><style><a href=no></style>", []),
        ("<SVG><STYLE/><A HREF=x></SVG><STYLE><a href=no></STYLE>", ["x"]),
    ],
)
def test_foreign_content_ends_where_the_standard_says(before: str, page: str, hrefs: list[str]) -> None:
    assert extract(before + page).hrefs == hrefs


@both_ways
def test_a_table_ends_a_paragraph_only_on_a_page_without_quirks(before: str) -> None:
    page = "<svg><g><foreignObject><p><table></table></g><style><a href=x></style>"
    for start, hrefs in (
        ("<!DOCTYPE html>", ["x"]),
        ("<?xml version=1?>\n<!-- --><!doctype HTML system 'about:legacy-compat'>", ["x"]),
        ("<!DOCTYPE html PUBLIC '-//W3C//DTD XHTML 1.0 Transitional//EN' 'x'>", ["x"]),
        ("<!DOCTYPE html PUBLIC '-//W3C//DTD HTML 4.01 Transitional//EN' 'x'>", ["x"]),
        ("<!DOCTYPE html PUBLIC '-//W3C//DTD HTML 4.01 Transitional//EN'>", []),
        ("<!DOCTYPE html PUBLIC '-//W3C//DTD HTML 3.2 Final//EN'>", []),
        ("<!DOCTYPE htm>", []),
        ("", []),
    ):
        assert extract(before + start + page).hrefs == hrefs, start


@both_ways
def test_the_title_of_a_drawing_is_not_the_title_of_the_page(before: str) -> None:
    assert extract(before + "<svg><title>Icon</title></svg><title>Page</title>").title == "Page"
    assert extract(before + "<svg><title>Icon</title></svg>").title is None
    assert extract(before + "<svg><desc><title>Page</title>").title == "Page"


@both_ways
def test_links_in_a_template_count_and_what_it_says_of_a_page_does_not(before: str) -> None:
    # A page may open a shadow tree by it, which people see.
    said = "<base href=/no/><title>no</title><meta name=robots content=none><meta http-equiv=refresh content='0;no'>"
    page = f"<template shadowrootmode=open><a href=in></a><TEMPLATE>{said}</Template>{said}</template >"
    assert extract(before + page + "<a href=out>") == PageLinks(None, ["in", "out"], [], [], None, frozenset())
    after = extract(before + page + said.replace("no", "yes").replace("none", "all"))
    assert (after.base, after.refreshes, after.title) == ("/yes/", ["yes"], "yes")
    drawing = "<svg><template><desc><base href=/yes/></desc></template></svg>"
    assert extract(before + drawing).base == "/yes/"
    assert extract(before + "</template><template>" + drawing + "</template><base href=/x/>").base == "/x/"


@both_ways
def test_in_a_drawing_href_leads_on_and_xlink_href_does_not(before: str) -> None:
    assert extract(before + "<svg><a xlink:href=no></a><a href=x></a></svg><a xlink:href=no></a>").hrefs == ["x"]


@both_ways
def test_the_base_of_a_drawing_is_not_the_base_of_the_page(before: str) -> None:
    assert extract(before + "<svg><base href=/no/></svg><base href=/yes/>").base == "/yes/"
    assert extract(before + "<math><base href=/no/></math>").base is None


@both_ways
def test_a_script_within_a_comment_of_a_script_hides_its_end(before: str) -> None:
    page = "<script><!--<script></script><a href=no></script><a href=x>"
    assert extract(before + page).hrefs == ["x"]
    assert extract(before + "<script><!--<script></script>--><a href=no></script><a href=x>").hrefs == ["x"]
    assert extract(before + "<script><!--<script>--></script><a href=x>").hrefs == ["x"]


TAGS = [
    "<a href=x>", "</a>", "<a href='y' rel=nofollow>", '<a href="z&amp;&lt">', "<area href=a>", "<iframe src=i>",
    "</iframe>", "<base href=/b/>", "<title>", "</title>", "<div title='<a href=no>'>", "</div>", "<p>", "</p>",
    "<meta name=robots content=nofollow>", "<meta http-equiv=refresh content='1;url=r'>", "<!--", "<noscript>",
    "</noscript>", "<meta http-equiv=refresh content='0;s'>", "-->", "<!", ">", "<",
    "text", "<script>", "</script>", "<style>", "</style >", "<b>", "</b>", '"', "'", "<a href", "=", "/", " ", "<li>",
    "<A HREF=Q/>", "<a x=1 x=2 href=h href=i>", "<textarea>", "</textarea>", "<abbr>", "<x-a href=n>", "</ a>", "<?",
    "é",
]  # fmt: skip


@given(st.lists(st.sampled_from(TAGS), max_size=25))
@example(["<a href", "=", '"', "<p>"])
@example(["<!--", ">", "<a href=x>"])
def test_scanning_finds_what_parsing_finds(tokens: list[str]) -> None:
    page = "".join(tokens).encode()
    parsed = extract(page)
    with patch.object(links, "TREE_TAGS_MAX", -1):
        assert extract(page) == parsed


FOREIGN = [
    *(f"{begin}{name}{end}" for name in (
        "svg", "math", "title", "style", "script", "textarea", "foreignObject", "desc", "g", "p", "div", "b", "span",
        "mi", "annotation-xml", "font", "table", "td", "li", "button", "a", "br",
    ) for begin, end in (("<", ">"), ("</", ">"), ("<", "/>"))),
    "<annotation-xml encoding=text/html>", "<mglyph>", "<font size=1>", "<g x=y/>", "<![CDATA[", "]]>", "x",
]  # fmt: skip


@given(st.sampled_from(["<svg>", "<math>", "<div><svg>", "<p><math>"]), st.lists(st.sampled_from(FOREIGN), max_size=14))
def test_scanning_finds_the_links_around_any_foreign_content(island: str, tokens: list[str]) -> None:
    page = (island + "".join(tokens) + "<area href=x>").encode()
    with patch.object(links, "TREE_TAGS_MAX", -1):
        scanned = extract(page).hrefs
    assert set(scanned) == set(extract(page).hrefs)


@given(st.binary(max_size=300), st.lists(st.sampled_from(TAGS), max_size=8))
def test_any_bytes_are_a_page(junk: bytes, tokens: list[str]) -> None:
    page = "".join(tokens).encode() + junk + "".join(reversed(tokens)).encode()
    scanned = SCANNED.encode() + page
    for found in (extract(page), extract(scanned), extract(page.decode("latin-1")), extract(page, xhtml=True)):
        for text in (*found.hrefs, *found.nofollow, found.base or "", found.title or "", *found.refreshes):
            text.encode()


# Each is a page that makes a tree, or a careless expression, grow out of hand.
MONSTERS = {
    "a million nested elements": b"<div>" * 1_000_000,
    "formatting elements opened again in each paragraph": (
        b"<p>" + b"".join(b"<b i=%d>" % i for i in range(100_000)) + b"<p>x" * 100_000
    ),
    "as many of them as are still parsed": (
        b"".join(b"<b i=%d>" % i for i in range(TREE_TAGS_MAX // 2)) + b"<p>x" * (TREE_TAGS_MAX // 2)
    ),
    "half a million attributes": b"<a " + b"".join(b"x%d " % i for i in range(500_000)) + b"href=y>",
    "as many attributes as are still parsed": b"<a " + b"".join(b"%x " % i for i in range(TREE_BYTES_MAX // 6)) + b">",
    "end tags that close nothing": b"<span>" * 300_000 + b"</x>" * 300_000,
    "quotes that never close": b"<a x=\"<a y='" * 300_000,
    "comments that never close": b"<!--" * 1_000_000,
    "scripts that never close": b"<script></scrip" * 300_000,
    "tags that never close": b"<a " * 1_000_000,
    "nothing but less-than": b"<" * 2_000_000,
    "nothing but ampersands": b'<a href="' + b"&" * 2_000_000 + b'">',
    "nothing but NUL": b"\0" * 2_000_000,
    "a million templates": b"<template>" * 1_000_000,
    "a million nested drawings": b"<svg>" * 1_000_000,
    "HTML and drawings in each other": b"<svg><desc>" * 400_000,
    "end tags that look at all that is open": b"<svg><desc><x><div>" + b"<b>" * 500 + b"</x>" * 1_000_000,
    "drawings behind a long comment": b"<!--" + b"x" * 1_000_000 + b"-->" + b"<svg></svg>" * 100_000,
    "CDATA that never ends": b"<svg>" + b"<![CDATA[" * 500_000,
    "drawings that their neighbours end": b"<div><svg></div>" * 300_000,
    "scripts in comments of scripts": b"<script><!--<script>" * 300_000,
    "a name without end": b"<a " + b"x" * 3_000_000,
}
CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from dhtcrawl.fetch.links import extract
page = sys.stdin.buffer.read()
extract(page)
extract(page, xhtml=True)
print("done")
"""


@pytest.mark.parametrize("skipped", [-1, 0, 1])
@pytest.mark.parametrize("end", ["<a href=/x>", "<iframe src=/x>", "<svg><a href=/x>", "<svg></svg><a href=/x>"])
def test_no_match_goes_over_more_than_so_many_tokens(monkeypatch: pytest.MonkeyPatch, skipped: int, end: str) -> None:
    lengths, compiled = list[int](), tags.compiled

    class Patterns:
        """A pattern that notes how long its matches are."""

        def __init__(self, pattern: bytes) -> None:
            self.pattern = compiled(pattern)
            self.match = self.pattern.match

        def finditer(self, page: bytes, at: int) -> Iterator[re.Match[bytes]]:
            for match in self.pattern.finditer(page, at):
                lengths.append(len(match.group()))
                yield match

    page = "<" * (2 * tags.TOKENS_A_MATCH_MAX + skipped) + end
    with monkeypatch.context() as patched:
        patched.setattr(tags, "compiled", cache(Patterns))
        assert extract(page).hrefs == ["/x"]
    assert max(lengths) <= tags.TOKENS_A_MATCH_MAX + len(end)


@pytest.mark.parametrize("page", MONSTERS.values(), ids=MONSTERS)
def test_a_monster_costs_neither_the_process_nor_a_gigabyte(page: bytes) -> None:
    # In a process of its own: a crash of the parser would take this one along.
    done = subprocess.run([sys.executable, "-c", CHILD], input=page, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr[-500:]


@pytest.mark.parametrize(
    ("page", "title"),
    [
        (
            '<?xml version="1.0"?>\n<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8" /><title> a\n b </title>',
            "a b",
        ),
        ("<title>a &amp; b</title>", "a & b"),
        ("<title>a <b> c</title>", "a <b> c"),
        ("<title> </title><title>b</title>", "b"),
        ("<title>a</title x><title>b</title>", "a"),
        ('<meta content="<title>a</title>"><title>b</title>', "b"),
        ("<link title='\"><title>a</title>\"'><title>b</title>", "b"),
        ("<!-- <title>a</title> --><title>b</title>", "b"),
        ("<template><title>a</title></template><title>b</title>", "b"),
        ("<html><svg><title>a</title></svg><title>b</title>", "b"),
    ],
)
def test_a_title_is_read_with_and_without_a_scan(page: str, title: str) -> None:
    assert title_of(page.encode()) == title
    assert extract(page.encode()).title == title
