"""Records of pages: typed values, why there is none, the same as by another parser, and nothing that raises."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

import pytest
from fetch.test_links import MONSTERS
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser, LexborNode

from dhtcrawl.extract.records import RECORDS_MAX, TEXT_CHARS_MAX, Extracted, Record, Reject, extract
from dhtcrawl.extract.rules_file import read
from dhtcrawl.extract.values import VALUE_CHARS_MAX, VALUES_MAX, RejectReason

from .made_rules import URL, found, rules, toml, value


@pytest.mark.parametrize(
    ("page", "field", "wanted"),
    [
        ("<p> a\n <b>b\xa0</b>c ", {"selector": "p"}, "a b c"),
        ("<p> a ", {"selector": "p", "transforms": []}, " a "),
        ("<p> a  b ", {"selector": "p", "transforms": ["strip", "upper"]}, "A  B"),
        ("<p>Price: 3 (net)", {"selector": "p", "transforms": [{"after": ": "}, {"before": " ("}, "lower"]}, "3"),
        ("<p>3", {"selector": "p", "transforms": [{"after": ":"}]}, None),
        ("<p>3", {"selector": "p", "transforms": [{"before": ":"}]}, "3"),
        ("<p>abc", {"selector": "p", "transforms": [{"remove_prefix": "a"}, {"remove_suffix": "c"}]}, "b"),
        ("<p>a-b-c", {"selector": "p", "transforms": [{"replace": ["-", ""]}]}, "abc"),
        ("<p>a, b,,c", {"selector": "p", "list": True, "transforms": [{"split": ","}, "strip"]}, ["a", "b", "c"]),
        ("<p>a<p>b", {"selector": "p", "list": True}, ["a", "b"]),
        ("<p>a<p>b", {"selector": "p"}, "a"),
        ("<h2>b", {"selector": ["h1", "h2"]}, "b"),
        ("<p>", {"selector": "p"}, None),
        ("", {"selector": "p", "list": True}, []),
        ("a<i>b", {}, "ab"),
        ("<p>a<b>b</b><!--c-->", {"selector": "p", "take": "html"}, "a<b>b</b><!--c-->"),
        ("<p TITLE='x'>", {"selector": "p", "take": "@title"}, "x"),
        ("<p>", {"selector": "p", "take": "@title"}, None),
        ("<p>1.234.567,50 €", {"selector": "p", "type": "number", "decimal": ",", "group": "."}, 1234567.5),
        ("<p>USD 12", {"selector": "p", "type": "number"}, 12),
        ("<p>-3.50", {"selector": "p", "type": "number"}, -3.5),
        ("<p>−3 °C", {"selector": "p", "type": "number"}, -3),
        ("<p>a-3.", {"selector": "p", "type": "number"}, 3),
        ("<p>12&nbsp;345 kr", {"selector": "p", "type": "number", "group": " "}, 12345),
        ("<p>on 3.2.2026", {"selector": "p", "type": "date", "format": "on %d.%m.%Y"}, "2026-02-03"),
        ("<p>3 Feb 2026 4 PM", {"selector": "p", "type": "date", "format": "%d %b %Y %I %p"}, "2026-02-03T16:00:00"),
        ("<p>2024 366", {"selector": "p", "type": "date", "format": "%Y %j"}, "2024-12-31"),
        ("<p>1366 001", {"selector": "p", "type": "date", "format": "%Y %j"}, "1366-01-01"),
        ("<p>2026-02-03", {"selector": "p", "type": "date"}, "2026-02-03"),
        ("<p>2026-02-03T04:05:06+00:00", {"selector": "p", "type": "date"}, "2026-02-03T04:05:06Z"),
        ("<p>20260203T040506,5+0130", {"selector": "p", "type": "date"}, "2026-02-03T04:05:06.500000+01:30"),
        ("<p>2026-02-03 04Z", {"selector": "p", "type": "date"}, "2026-02-03T04:00:00Z"),
        ("<p>2026-W06-2", {"selector": "p", "type": "date"}, "2026-02-03"),
        ("<p>2/3/26", {"selector": "p", "type": "date", "format": ["%d.%m.%Y", "%m/%d/%y"]}, "2026-02-03"),
        ("<a href=' ../x?ü#y'>", {"selector": "a", "take": "@href", "type": "url"}, "http://shop.example/x?%C3%BC"),
        ("<a href='my  file.pdf'>", {"selector": "a", "take": "@href", "type": "url"}, f"{URL[:-1]}my%20%20file.pdf"),
        ("<a href='\n/a\nb\n'>", {"selector": "a", "take": "@href", "type": "url"}, "http://shop.example/ab"),
        ("<a href=' '>", {"selector": "a", "take": "@href", "type": "url"}, None),
        ("<base href=/b/><a href=x>", {"selector": "a", "take": "@href", "type": "url"}, "http://shop.example/b/x"),
        ("<svg><base href=/a/></base></svg><template><p><base href=/t/></template><base href=/b/><a href=x>",
         {"selector": "a", "take": "@href", "type": "url"}, "http://shop.example/b/x"),
        (
            "<ul><li><b>a</b><i>1</i><li><b>b</b></ul>",
            {
                "selector": "li",
                "type": "records",
                "list": True,
                "fields": [{"name": "n", "selector": "b"}, {"name": "v", "selector": "i", "type": "number"}],
            },
            [{"n": "a", "v": 1}, {"n": "b", "v": None}],
        ),
    ],
)  # fmt: skip
def test_a_value_is_what_the_field_says(page: str, field: dict[str, Any], wanted: Any) -> None:
    got = value(page, **field)
    assert (got, type(got)) == (wanted, type(wanted))


def test_the_query_of_a_url_is_in_the_charset_of_the_page() -> None:
    field = {"name": "f", "selector": "a", "take": "@href", "type": "url"}
    (record,) = found("<a href='?ü'>", field, charset="windows-1252").records
    assert record.fields["f"] == "http://shop.example/p/1?%FC"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("-5", -5), ("−5", -5), ("-$5.00", -5.0), ("−€5", -5), ("-€ 5", -5), ("- 5", -5), ("− 5 €", -5), ("- $5", -5),
        ("$-5", -5), ("Balance: -$5", -5), ("Balance -5", -5), ("(-5)", -5), ("-0.5", -0.5),
        ("Price - 5 €", 5), ("Only – $5", 5), ("Only - $5", 5), ("EUR-5", 5), ("US-$5", 5), ("a-5", 5), ("– 5", 5),
        ("5-", 5), ("(5.00)", 5.0), ("$5", 5), ("+5", 5), ("5 - each", 5),
    ],
)  # fmt: skip
def test_a_minus_counts_directly_before_a_number_or_its_currency_and_at_the_beginning(text: str, number: float) -> None:
    got = value(f"<p>{text}", selector="p", type="number")
    assert (got, type(got)) == (number, type(number))


@pytest.mark.parametrize(
    ("page", "field", "reason", "shown"),
    [
        ("", {"selector": "p", "required": True}, "missing", ""),
        ("", {"selector": "p", "required": True, "list": True}, "missing", ""),
        ("<p>ten", {"type": "number"}, "not-a-number", "ten"),
        ("<p>2 for 5", {"type": "number"}, "not-a-number", "2 for 5"),
        ("<p>1.5.6", {"type": "number"}, "not-a-number", "1.5.6"),
        ("<p>1,23", {"type": "number", "group": ","}, "not-a-number", "1,23"),
        ("<p>" + "9" * 19, {"type": "number"}, "not-a-number", "9" * 19),
        ("<p>" + "9" * 99, {"type": "number"}, "not-a-number", "9" * 99),
        ("<p>31.2.2026", {"type": "date", "format": "%d.%m.%Y"}, "not-a-date", "31.2.2026"),
        ("<p>soon", {"type": "date"}, "not-a-date", "soon"),
        ("<p>2025 366", {"type": "date", "format": "%Y %j"}, "not-a-date", "2025 366"),
        ("<p>366/65", {"type": "date", "format": "%j/%y"}, "not-a-date", "366/65"),
        ("<p>mailto:x", {"type": "url"}, "not-a-url", "mailto:x"),
        ("<p>" + "a" * (VALUE_CHARS_MAX // 2), {"transforms": [{"replace": ["a", "bbb"]}]}, "too-long", ""),
        ("<p>" + "a," * (VALUES_MAX + 1), {"list": True, "transforms": [{"split": ","}]}, "too-many-values", "1001"),
    ],
)
def test_what_is_no_value_is_told_and_costs_the_record_where_it_is_required(
    page: str, field: dict[str, Any], reason: str, shown: str
) -> None:
    field = {"name": "f", "selector": "p", **field}
    got = found(page, {**field, "required": True})
    assert got.records == []
    assert got.rejects == [Reject("r", 1, "f", reason, shown, False)]  # type: ignore[arg-type]
    got = found(page, {**field, "required": False})
    assert [record.fields for record in got.records] == [{"f": [] if field.get("list") else None}]
    assert [reject.kept for reject in got.rejects] == ([] if reason == "missing" else [True])


@pytest.mark.parametrize("group", [" ", "\xa0", "\u202f", "\u2009"])
@pytest.mark.parametrize("written", [" ", "\xa0", "\u202f"])
@pytest.mark.parametrize("transforms", [["collapse"], []])
def test_a_space_between_thousands_is_each_kind_of_space(group: str, written: str, transforms: list[str]) -> None:
    field = {"selector": "p", "type": "number", "decimal": ",", "group": group, "transforms": transforms}
    assert value(f"<p>1{written}299,50{written}€", **field) == 1299.5
    assert value(f"<p>€{written}1{written}299", **field) == 1299
    assert value(f"<p>-{written}5", **field) == -5
    assert found(f"<p>1{written}29", {"name": "f", **field}).rejects[0].reason == "not-a-number"


LIST = {"name": "f", "selector": "p", "list": True}


@pytest.mark.parametrize(
    ("page", "field", "values", "rejects"),
    [
        ("<p>1<p>sold out<p>2<p>3 of 4", {"type": "number"}, [1, 2],
         [("not-a-number", "sold out"), ("not-a-number", "3 of 4")]),
        ("<p>2026-01-31<p>soon", {"type": "date"}, ["2026-01-31"], [("not-a-date", "soon")]),
        ("<p>mailto:x<p>/x", {"type": "url"}, ["http://shop.example/x"], [("not-a-url", "mailto:x")]),
        ("<p>1,x,3", {"type": "number", "transforms": [{"split": ","}]}, [1, 3], [("not-a-number", "x")]),
        ("<p>a<p>" + "b" * (VALUE_CHARS_MAX + 1), {}, ["a"], [("too-long", "b" * 200)]),
        ("<p>a<p>" + "b" * 9_000, {"transforms": [{"replace": ["b", "c" * 200]}]}, ["a"], [("too-long", "")]),
        ("<p>x", {"type": "number"}, [], [("not-a-number", "x")]),
        ("<p>" + "x," * 600 + "<p>" + "x," * 600, {"type": "number", "transforms": [{"split": ","}]}, [],
         [("not-a-number", "x")] * 600 + [("too-many-values", "1200")]),
    ],
)  # fmt: skip
def test_what_is_no_value_in_a_list_is_told_and_the_others_stay(
    page: str, field: dict[str, Any], values: list[Any], rejects: list[tuple[str, str]]
) -> None:
    got = found(page, {**LIST, **field})
    assert [record.fields for record in got.records] == [{"f": values}]
    assert [(each.field, each.reason, each.found, each.kept) for each in got.rejects] == [
        ("f", *reject, True) for reject in rejects
    ]


def test_a_list_of_which_nothing_is_left_is_missing_where_it_is_required() -> None:
    field = {**LIST, "type": "number", "required": True}
    got = found("<p>1<p>x", field)
    assert [record.fields for record in got.records] == [{"f": [1]}]
    got = found("<p>x<p>y", field)
    assert got.records == []
    assert [(each.reason, each.found, each.kept) for each in got.rejects] == [
        ("not-a-number", "x", True), ("not-a-number", "y", True), ("missing", "", False),
    ]  # fmt: skip


def test_records_count_over_all_rules_of_a_page_with_those_that_are_rejected() -> None:
    required = {"name": "f", "selector": "b", "required": True}
    first = {"name": "a", "site": "shop.example", "record": "li", "fields": [required]}
    other = {"name": "other", "site": "other.example", "fields": [{"name": "f"}]}
    last = {"name": "z", "site": "shop.example", "fields": [{"name": "t", "selector": "title"}]}
    file = read("r.toml", f"rules = {toml([first, other, last])}")
    got = extract(
        file, URL, "<title>T</title><li><b>1</b><li>2<li><b>3</b><ul><li><b>4</b></ul>", "utf-8", findings=True
    )
    assert got.records == [Record("a", 1, {"f": "1"}), Record("a", 3, {"f": "3"}), Record("z", 4, {"t": "T"})]
    assert [(reject.rule, reject.number, reject.field) for reject in got.rejects] == [("a", 2, "f")]
    assert [(each.number, each.elements, each.value) for each in got.findings] == [
        (1, 1, "1"), (2, 0, None), (3, 2, "3"), (4, 1, "T"),
    ]  # fmt: skip


def test_a_nested_record_without_what_it_needs_is_left_out() -> None:
    nested = {
        "name": "offers", "type": "records", "list": True, "selector": "li",
        "fields": [{"name": "price", "selector": "b", "type": "number", "required": True}],
    }  # fmt: skip
    got = found("<li><b>1</b><li><b>x</b><li>", nested)
    assert [record.fields for record in got.records] == [{"offers": [{"price": 1}]}]
    assert [(each.field, each.reason, each.kept) for each in got.rejects] == [
        ("offers.price", "not-a-number", False), ("offers.price", "missing", False),
    ]  # fmt: skip
    got = found("<li>", {**nested, "required": True})
    assert got.records == []
    assert [each.field for each in got.rejects] == ["offers.price", "offers"]


def test_a_page_gives_so_many_records_and_so_much_text() -> None:
    got = found("<p>" * (RECORDS_MAX + 1), {"name": "f"}, record="p")
    assert len(got.records) == RECORDS_MAX
    assert [(each.number, each.reason, each.found) for each in got.rejects] == [(0, "too-many-records", "1001")]
    fields = [{"name": f"f{each}", "selector": "p"} for each in range(TEXT_CHARS_MAX // 60_000 + 1)]
    got = found("<p>" + "a" * 60_000, *fields)
    assert got.records == []
    assert [(each.number, each.reason) for each in got.rejects] == [(0, "too-much-text")]


@pytest.mark.parametrize(
    "page", ["<p>" * 24_577, "<p>" + "x" * 524_288, "<p>" + "".join(f"<b a={n}>" for n in range(200)) + "<p>x" * 3_000]
)
def test_a_page_that_gets_no_tree_is_rejected_once_a_rule(page: str) -> None:
    got = found(page, {"name": "f", "selector": "p"})
    assert got == Extracted([], [Reject("r", 0, "", RejectReason.NO_TREE, "", False)], [])
    elsewhere = extract(rules({"name": "f"}), "http://other.example/", page, "utf-8")
    assert elsewhere == Extracted([], [], [])


# Of everything something.
FIELDS: list[dict[str, Any]] = [
    {"name": "text", "selector": "p b"},
    {"name": "html", "take": "html"},
    {"name": "numbers", "selector": "b", "type": "number", "list": True, "group": ","},
    {"name": "day", "selector": "i", "type": "date", "format": ["%d.%m.%Y", "%H:%M %j %Y"]},
    {"name": "iso", "selector": "i", "type": "date"},
    {"name": "link", "selector": "[href]", "take": "@href", "type": "url", "required": True},
    {"name": "parts", "selector": "p", "list": True, "transforms": [{"split": "1"}, {"replace": ["2", "34"]}, "lower"]},
    {"name": "in", "type": "records", "selector": "p", "list": True, "fields": [{"name": "x", "selector": "b > i"}]},
]  # fmt: skip
TOKENS = [
    "<p>",
    "</p>",
    "<b>",
    "<i>",
    "</b>",
    "<a href=1>",
    "<a href='//[:'>",
    "1,234.5",
    "2026-01-31",
    "<!--",
    "\0",
    "\ud800",
]


# The first is a time in Unix seconds.
@pytest.mark.parametrize("text", [
    "1712012400", "20260131ab", "2026-01-31T10:00:00 +02:00", "2026-01-31T10:00.5", "2026-01-31_10:00",
    "2026-01-31T24:00", "2026-01-31T10:00+05:30:15", "2026-01-31T10:0000", "2026W05510", "2026-01", "٢٠٢٦-01-31",
    "2026-02-30",
])  # fmt: skip
def test_a_date_without_format_is_an_iso_date_and_nothing_else(text: str) -> None:
    (reject,) = found(f"<p>{text}", {"name": "f", "type": "date"}).rejects
    assert (reject.reason, reject.found) == ("not-a-date", text)


@given(st.lists(st.sampled_from(TOKENS)) | st.text().map(lambda text: [text]), st.binary(max_size=50), st.booleans())
def test_nothing_raises_and_all_of_it_can_be_written(tokens: list[str], junk: bytes, as_text: bool) -> None:
    page = "".join(tokens)
    html = page + junk.decode("latin-1") if as_text else page.encode("utf-8", "replace") + junk
    got = found(html, *FIELDS)
    assert got == found(html, *FIELDS)
    for each in (*got.records, *got.rejects):
        json.dumps(each, allow_nan=False, ensure_ascii=False).encode()


@given(
    st.text() | st.from_regex(r"[-+]?[0-9., ]{1,50}"),
    st.sampled_from([("number", ".", ","), ("date", "", ""), ("url", "", "")]),
)
def test_any_text_is_a_value_or_none(text: str, kind: tuple[str, str, str]) -> None:
    field = {"name": "f", "selector": "p", "take": "@a", "type": kind[0]}
    if kind[1]:
        field |= {"decimal": kind[1], "group": kind[2]}
    quoted = text.replace("&", "&amp;").replace('"', "&quot;")
    got = found(f'<p a="{quoted}">', field)
    assert len(got.records) == 1
    json.dumps(got.records[0].fields, allow_nan=False, ensure_ascii=False).encode("utf-8", "strict")


def test_records_are_those_that_another_parser_finds_field_by_field() -> None:
    rng = random.Random(24)
    fields: list[dict[str, Any]] = [
        {"name": "title", "selector": "h2 a", "required": True},
        {"name": "link", "selector": "h2 a", "take": "@href", "type": "url"},
        {"name": "price", "selector": "span.price", "type": "number", "group": ","},
        {"name": "tags", "selector": "ul.tags > li", "list": True},
        {"name": "offers", "type": "records", "selector": "table tr", "list": True, "fields": [
            {"name": "seller", "selector": "td:first-child"},
            {"name": "stock", "selector": "td + td", "type": "number"},
        ]},
    ]  # fmt: skip
    seen = 0
    for _ in range(40):
        page = _shop_page(rng)
        got = found(page, *fields, record="article.product")
        theirs = [_by_hand(article) for article in LexborHTMLParser(page).css("article.product")]
        assert [record.fields for record in got.records] == [each for each in theirs if each["title"] is not None]
        assert len(got.rejects) == sum(each["title"] is None for each in theirs)
        seen += len(got.records)
    assert seen > 100


def _shop_page(rng: random.Random) -> str:
    parts = ["<!doctype html><title>Shop</title><main><h2><a href=/none>no product</a></h2>"]
    for number in range(rng.randrange(8)):
        title = (
            f"<h2> <a href='?p={number}&amp;q'>Thing <b>{number}</b>\n</a></h2>" if rng.random() < 0.8 else "<h2>?</h2>"
        )
        tags = "".join(f"<li>t{rng.randrange(5)} &amp;" for _ in range(rng.randrange(4)))
        rows = "".join(f"<tr><td>s{rng.randrange(9)}<td>{rng.randrange(50)} left" for _ in range(rng.randrange(3)))
        price = f"<p><span class='old price'>${rng.randrange(1, 9)},{rng.randrange(100, 999)}.50</span>" * (
            rng.random() < 0.7
        )
        parts.append(
            f"<article class='x product'>{title}{price}<ul class=tags>{tags}</ul><table>{rows}</table></article>"
        )
    return "".join(parts)


def _by_hand(article: LexborNode) -> dict[str, Any]:
    def text(element: LexborNode) -> str:
        return " ".join(element.text().split())

    links, prices = article.css("h2 a"), article.css("span.price")
    return {
        "title": text(links[0]) if links else None,
        "link": f"{URL}{links[0].attributes['href']}" if links else None,
        "price": float(text(prices[0]).strip("$").replace(",", "")) if prices else None,
        "tags": [text(tag) for tag in article.css("ul.tags > li")],
        "offers": [
            {"seller": text(row.css("td")[0]), "stock": int(text(row.css("td")[1]).split()[0])}
            for row in article.css("table tr")
        ],
    }


# What takes long where nothing is counted, within the limits of pages and rules: rules, and a page for them.
_SELECTORS = ["q"] * 20
DEAR: dict[str, tuple[list[dict[str, Any]], str, str, str]] = {
    "many selectors in many records": (
        [{"name": f"f{n}", "selector": _SELECTORS} for n in range(100)], "i", "<i>a</i>" * 1_000, "too-much-work",
    ),
    "records within records, and what they lack": (
        [{"name": "l", "type": "records", "list": True, "selector": "x", "fields": [
            {"name": f"f{n}", "selector": "q", "required": True} for n in range(60)]}],
        "div", ("<div>" + "<x></x>" * 40 + "</div>") * 120, "too-many-rejects",
    ),
    "siblings": ([{"name": f"f{n}", "selector": "*:nth-of-type(7n+3)"} for n in range(100)], "", "<hr>" * 12_000,
                 "too-much-work"),
    "no text within each other": (
        [{"name": f"f{n}", "selector": "x", "list": True} for n in range(100)], "", "<x>" * 900 + "<br>" * 11_000,
        "too-much-work",
    ),
    "dates in many formats": (
        [{"name": f"f{n}", "selector": "i", "type": "date", "list": True,
          "format": [f"{x} %d/%m/%Y" for x in range(20)]} for n in range(100)],
        "", "<i>soon</i>" * 1_000, "too-much-work",
    ),
    "a small page that grows": (
        [{"name": f"f{n}", "selector": "b", "list": True} for n in range(100)], "",
        "<p>" + "".join(f"<b i={n}>" for n in range(510)) + "<p>y" * 512, "too-much-work",
    ),
    "texts that multiply": (
        [{"name": f"f{n}", "selector": "p", "list": True, "transforms": [
            {"split": "|"}, {"replace": ["a", "b" * 200]}, {"replace": ["b", "😀" * 10]}]} for n in range(100)],
        "", "<p>" + ("a" * 32 + "|") * 999, "too-much-text",
    ),
}  # fmt: skip
DEAR_CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from dhtcrawl.crawl.record_finder import stored
from extract.made_rules import found
from extract.test_records import DEAR
fields, record, page, reason = DEAR[sys.argv[1]]
extracted = found(page, *fields, **({"record": record} if record else {}))
stored(extracted)
print(reason in {reject.reason for reject in extracted.rejects})
"""


@pytest.mark.parametrize("name", DEAR)
def test_what_rules_ask_of_a_page_costs_neither_the_process_nor_a_gigabyte(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", DEAR_CHILD, name], capture_output=True, timeout=200, check=False,
                          env={"PYTHONPATH": ":".join(sys.path)})  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"True\n"), done.stderr[-500:]


CHILD = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from extract.made_rules import found
from extract.test_records import FIELDS
page = sys.stdin.buffer.read()
found(page, *FIELDS)
for record in ("div", "b", "p", "*"):
    found(page, *FIELDS, record=record)
from extract.test_page_sources import SAID, TEXTS, URL, extract
for rules in (SAID, TEXTS):
    extract(rules, URL, page, "utf-8")
print("done")
"""


@pytest.mark.parametrize("page", MONSTERS.values(), ids=MONSTERS)
def test_a_monster_costs_neither_the_process_nor_a_gigabyte(page: bytes) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], input=page, capture_output=True, timeout=120, check=False,
                          env={"PYTHONPATH": ":".join(sys.path)})  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr[-500:]
