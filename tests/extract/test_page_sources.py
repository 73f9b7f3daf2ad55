"""What pages say of themselves: JSON-LD, Microdata, OpenGraph and main text, and pages that lie."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.crawl.record_finder import stored
from dhtcrawl.extract.page_sources import DEPTH_MAX, NAMES_MAX, REFERENCES_MAX
from dhtcrawl.extract.records import RECORDS_MAX, Extracted, extract
from dhtcrawl.extract.rules_file import read

from .made_rules import URL

SAID = read("r.toml", 'rules = [{ name = "s", site = "*", source = ["json-ld", "microdata", "opengraph"] }]')
TEXTS = read("r.toml", 'rules = [{ name = "t", site = "*", source = "main-text" }]')


def said(page: str) -> Extracted:
    return extract(SAID, URL, page, "utf-8")


def ld(*blocks: str) -> str:
    return "".join(f'<script type="application/ld+json">{block}</script>' for block in blocks)


@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        (ld('{"@context": "x", "@type": "A", "n": 1}'), [("json-ld", ["A"], {"n": 1})]),
        (ld('[{"@type": ["A", "B"]}, 3, {"@id": "i"}]'), [("json-ld", ["A", "B"], {}), ("json-ld", [], {"@id": "i"})]),
        (ld('{"@context": "x", "@graph": [{"@type": "A"}, {"t": true}]}'),
         [("json-ld", ["A"], {}), ("json-ld", [], {"t": True})]),
        (ld('{"@context": "x", "@graph": {"@type": "A", "n": 1}}'), [("json-ld", ["A"], {"n": 1})]),
        (ld('{"big": 99999999999999999999, "far": 1e999}'),
         [("json-ld", [], {"big": "99999999999999999999", "far": "inf"})]),
        (ld('{"huge": -' + "9" * 400 + "}"), [("json-ld", [], {"huge": "-" + "9" * 400})]),
        (ld('{"text": "a\nb\tc"}'), [("json-ld", [], {"text": "a\nb\tc"})]),
        (ld('{"huge": ' + "9" * 5_000 + "}", '{"text": "\r"}', "null"),
         [("json-ld", [], {"huge": "9" * 5_000}), ("json-ld", [], {"text": "\n"})]),
        ("<p itemscope itemtype='http://s/A' itemid=x><a itemprop=url href=/y>z</a><b itemprop=n>1</b><b itemprop=n>2",
         [("microdata", ["http://s/A"], {"@id": "x", "url": "http://shop.example/y", "n": ["1", "2"]})]),
        ("<div itemscope><div itemprop=o itemscope itemtype=B><meta itemprop=p content=3>",
         [("microdata", [], {"o": {"@type": "B", "p": "3"}})]),
        ("<meta property=og:type content=article><meta property=og:image content=i.png><meta property=x content=y>",
         [("opengraph", ["article"], {"og:type": "article", "og:image": "http://shop.example/p/i.png"})]),
        ("<p>nothing", []),
    ],
)  # fmt: skip
def test_an_item_has_its_types_and_properties(page: str, wanted: list[tuple[str, list[str], Any]]) -> None:
    got = said(page)
    assert [tuple(record.fields.values()) for record in got.records] == wanted
    assert got.rejects == []


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        (ld("{", "[]"), "not-json"),
        (ld("[" * 100_000), "not-json"),
        (ld('{"n": NaN}'), "not-json"),
        (ld('{"text": "\n"}', "{,}"), "not-json"),
        (ld('{"a":' * (DEPTH_MAX + 1) + "1" + "}" * (DEPTH_MAX + 1)), "too-deep"),
        ("<div itemscope>" + "<div itemscope itemprop=a>" * (DEPTH_MAX + 1), "too-deep"),
        (ld(json.dumps({"a": "x" * 70_000})), "too-long"),
        (ld(json.dumps({"a": [0] * 1_001})), "too-many-values"),
        (ld(json.dumps([{"a": 1}] * (RECORDS_MAX + 1))), "too-many-records"),
        (f"<p itemscope><b itemprop='{' '.join(f'n{n}' for n in range(NAMES_MAX + 1))}'>", "too-much-work"),
        ("<p itemscope itemref='a b'>" * (REFERENCES_MAX // 2) + "<p itemscope itemref=a>", "too-much-work"),
    ],
)
def test_what_is_too_much_or_none_is_told(page: str, reason: str) -> None:
    assert reason in {reject.reason for reject in said(page).rejects}


def test_the_main_text_is_without_navigation_and_knows_its_language() -> None:
    words = "Der Regen hat am Morgen begonnen, und er wird bis zum Abend bleiben, sagt der Dienst. "
    page = (
        f"<title>Wetter</title><nav>{'<a href=/>Start</a> ' * 9}</nav><article><p>{words * 3}<p>{words * 2}</article>"
    )
    (record,) = extract(TEXTS, URL, page + "<time datetime=gestern>", "utf-8").records
    assert "Start" not in record.fields["text"]
    assert record.fields["text"].count("Regen") == 5
    assert (record.fields["title"], record.fields["language"]) == ("Wetter", "deu")
    (none,) = extract(TEXTS, URL, "", "utf-8").rejects
    assert (none.field, none.reason) == ("main-text", "missing")


def test_bytes_that_look_like_another_charset_are_utf_8() -> None:
    page = b"\xff\xfe" + ld('{"n": "\xfc"}').encode()
    assert [record.fields["properties"] for record in extract(SAID, URL, page, "utf-8").records] == [{"n": "\xfc"}]


TOKENS = [
    "<div itemscope>",
    "<b itemprop=a>",
    "<i itemprop='a b' itemscope itemtype='c d'>",
    "<p id=x itemref='x y'>",
    "</p>",
    ld('{"@graph": [{}]}'),
    ld('[{"@type": 3, "a": [[[]]], "\\ud800": NaN}]'),
    "<meta property=og:a content=b>",
    "text, ",
    "<article>",
    "</article>",
    "<time datetime=2026-01-31>",
    "\0",
    "<script type=application/ld+json>",
    '{"a": "\\ud800"}',
]


@given(st.lists(st.sampled_from(TOKENS)), st.binary(max_size=30))
def test_no_page_raises_and_all_of_it_can_be_stored(tokens: list[str], junk: bytes) -> None:
    page = "".join(tokens).encode() + junk
    for rules in (SAID, TEXTS):
        got = extract(rules, URL, page, "utf-8")
        assert got == extract(rules, URL, page, "utf-8")
        json.loads(stored(got), parse_constant=lambda name: pytest.fail(name))
