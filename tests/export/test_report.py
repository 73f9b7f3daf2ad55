"""A report says what the lines of a crawl say, and whatever stands in them comes out as text."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser, LexborNode

from dhtcrawl.export.report import tally as tally_module
from dhtcrawl.export.report.notes import MANY_FAILED, Weight, notes
from dhtcrawl.export.report.page import ROWS_MAX, Subject, page
from dhtcrawl.export.report.report import Report
from dhtcrawl.export.report.tally import BROKEN_MAX, KINDS_MAX, LARGEST, SEEDS_MAX, Tally
from dhtcrawl.export.report.timeline import BARS_MAX, Timeline
from dhtcrawl.export.report.words import REASONS, duration, share
from dhtcrawl.storage.store.records import SkipReason
from dhtcrawl.units import size

from .made import Made, make, redirect

AT = "2026-01-31T12:00:05.999Z"
SUMMARY = {"pages": 1, "complete": True, "nodes": 1, "seconds": 2.0, "skipped": {}, "lost": 0}
LIMITED = SUMMARY | {"complete": False, "skipped": {"page-limit": 3}}
PAGE_FIELDS = ["status", "depth", "bytes", "content_type", "error", "referrer"]
SUMMARY_FIELDS = [*SUMMARY, "crawl", "policy", "per_node", "records", "rejected"]
TAGS = (
    "html head meta title style body header main footer section div span p a br h1 h2 dl dt dd code table thead tbody "
    "tr th td figure figcaption svg rect"
)
# A text as others may choose it, and anything that may stand in a line of JSON.
texts = st.text(max_size=40) | st.sampled_from(
    ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "]]>", "&lt;"]
)
values = st.none() | st.booleans() | st.integers() | st.floats() | texts | st.lists(texts, max_size=2)


def line(url: str = "http://a.example/", **fields: Any) -> dict[str, Any]:
    return {"url": url, "fetched_at": AT, "status": 200, "depth": 0, "bytes": 7, "content_type": "text/html"} | fields


def counted(*lines: dict[str, Any], skipped: tuple[dict[str, Any], ...] = ()) -> Tally:
    tally = Tally()
    for fields in lines:
        tally.page(fields)
    for fields in skipped:
        tally.skip(fields)
    return tally


def report(tally: Tally, summary: dict[str, Any] | None = None, archives: tuple[int, ...] = ()) -> LexborHTMLParser:
    subject = Subject("c", tally, summary or {}, archives=archives, unreadable={}, made="now")
    return LexborHTMLParser(page(subject, "p {}"))


def card(tree: LexborHTMLParser, title: str) -> LexborNode:
    (found,) = [each for each in tree.css("section.card") if title in (head.text() for head in each.css("h2"))]
    return found


def text_of(tree: LexborHTMLParser, selector: str) -> str:
    found = tree.css_first(selector)
    assert found is not None
    return found.text()


def all_of(tree: LexborHTMLParser) -> list[LexborNode]:
    assert tree.root is not None
    return list(tree.root.traverse())


def rows(tree: LexborHTMLParser, title: str) -> list[list[str]]:
    return [[cell.text().strip() for cell in row.css("td")] for row in card(tree, title).css("tbody tr")]


def test_it_tells_what_was_fetched_what_failed_and_where_that_was_found() -> None:
    tree = report(
        counted(
            line(),
            line("http://a.example/gone", status=404, depth=1, referrer="http://a.example/", bytes=3_000),
            line("http://b.example:81/x", status=301, depth=2, content_type=""),
            line("http://a.example/half", depth=2, error="truncated: time"),
            skipped=(
                {"url": "http://c.example/", "reason": "failed", "detail": "dns", "referrer": "http://a.example/half"},
                {"url": "http://d.example/", "reason": "out-of-scope", "referrer": None},
            ),
        ),
        SUMMARY | {"pages": 4, "fetches": 5, "refetches": 0},
        archives=(1_000, 500),
    )
    assert text_of(tree, "h1") == "Crawl of a.example"
    assert text_of(tree, "header p") == "4 pages, 3.0 kB, 2 hosts, 1 node"
    names, told = tree.css(".figures dt"), tree.css(".figures dd")
    figures = {name.text(): value.text() for name, value in zip(names, told, strict=True)}
    assert figures["Pages"] == "4"
    assert figures["Pages a second"] == "2.0"
    assert figures["Failed URLs"] == "2"
    assert [row[:4] for row in rows(tree, "Answers")] == [
        ["200", "2", "50 %", "14 B"], ["301", "1", "25 %", "7 B"], ["404", "1", "25 %", "3.0 kB"],
    ]  # fmt: skip
    assert rows(tree, "Failed URLs") == [
        ["http://a.example/gone", "404", "http://a.example/"],
        ["http://c.example/", "dns", "http://a.example/half"],
    ]
    assert [row[1] for row in rows(tree, "Not fetched")] == ["1", "1"]
    assert rows(tree, "Pages that are not whole") == [["truncated: time", "1", "http://a.example/half"]]
    assert rows(tree, "Hosts") == [
        ["a.example", "3", "75 %", "3.0 kB", "1"], ["b.example:81", "1", "25 %", "7 B", "0"],
        ["c.example", "0", "0 %", "0 B", "1"],
    ]  # fmt: skip
    assert [row[:2] for row in rows(tree, "Content types")] == [["text/html", "3"], ["none told", "1"]]
    assert [row[:2] for row in rows(tree, "Links from a seed")] == [["0", "1"], ["1", "1"], ["2", "2"]]
    assert rows(tree, "Largest pages")[0] == ["http://a.example/gone", "3.0 kB", "text/html"]
    assert "2 files, 1.5 kB" in card(tree, "Settings and files").text()


def test_nodes_and_records_are_told_as_the_summary_has_them() -> None:
    share_of = {"node": "ab" * 20, "pages": 3, "bytes": 2_000, "cpu_seconds": 90.0, "rss_bytes_max": 5_000_000}
    tree = report(
        counted(line()),
        SUMMARY
        | {"per_node": [share_of, share_of | {"pages": 1}], "records": {"book": 5}, "rejected": {"no price": 2}},
    )
    assert rows(tree, "Nodes")[0] == ["ab" * 6, "3", "75 %", "2.0 kB", "1 min 30 s", "5.0 MB"]
    assert rows(tree, "Records") == [["book", "5"], ["no price", "2"]]


@pytest.mark.parametrize(
    ("summary", "lines", "weight", "says"),
    [
        ({}, [line()], Weight.WARN, "has not ended"),
        (SUMMARY, [line()], Weight.GOOD, "is complete"),
        (LIMITED, [line()], Weight.WARN, "the page limit was reached"),
        (SUMMARY | {"complete": False}, [line()], Weight.WARN, "was interrupted or stopped"),
        (SUMMARY, [line(status=404)], Weight.BAD, "Nothing but redirects and errors was fetched"),
        (SUMMARY | {"lost": 2}, [line()], Weight.BAD, "2 links of fetched pages have no record; dhtcrawl verify DIR "),
        (SUMMARY | {"pages_missing": 1}, [line()], Weight.BAD, "1 page has no body"),
        (SUMMARY | {"politeness_violations": 1}, [line()], Weight.BAD, "1 request began sooner"),
        (SUMMARY, [line(), line(status=503)], Weight.WARN, "1 of 2 URLs that were asked for failed (50 %)"),
    ],
)  # fmt: skip
def test_what_matters_most_comes_first(
    summary: dict[str, Any], lines: list[dict[str, Any]], weight: Weight, says: str
) -> None:
    first = notes(counted(*lines), summary)[0]
    assert (first.weight, says in first.text) == (weight, True), first


def test_a_few_failures_are_no_note_and_what_robots_txt_closed_is_one() -> None:
    few = [line()] * int(1 / MANY_FAILED) + [line(status=404)]
    assert [note.weight for note in notes(counted(*few), SUMMARY)] == [Weight.GOOD]
    closed = counted(line(), skipped=({"url": "http://a.example/x", "reason": "robots"},) * 2)
    assert "robots.txt kept the crawl out of 2 URLs" in notes(closed, SUMMARY)[0].text


def test_every_reason_to_skip_has_its_words() -> None:
    assert REASONS.keys() == {value for name, value in vars(SkipReason).items() if name.isupper()}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(PAGE_FIELDS), values)),
    st.lists(st.dictionaries(st.sampled_from(["url", "reason", "detail", "referrer"]), values)),
    st.dictionaries(st.sampled_from(SUMMARY_FIELDS), values | st.just([{}])),
    texts,
)  # fmt: skip
def test_whatever_stands_in_the_lines_is_text_on_the_page(
    lines: list[dict[str, Any]], skipped: list[dict[str, Any]], summary: dict[str, Any], path: str
) -> None:
    url = "http://a.example/" + re.sub(r"\s", "", path)
    tree = report(counted(*(line(url, **fields) for fields in lines), skipped=tuple(skipped)), summary)
    assert {node.tag for node in all_of(tree)} <= set(TAGS.split())
    for node in all_of(tree):
        assert not [name for name in node.attributes if name.startswith("on") or name == "src"]
    assert all((each.attributes["href"] or "").startswith(("http://", "https://")) for each in tree.css("a"))
    assert text_of(tree, "header p").startswith(f"{len(lines):,} page")


def test_what_no_reader_sees_is_shown_as_a_mark() -> None:
    tree = report(counted(line(error="\x00a\u202eb\ud800")))
    assert rows(tree, "Pages that are not whole")[0][0] == "\ufffda\ufffdb?"


def test_memory_does_not_grow_with_a_site_that_makes_up_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_module, "HOSTS_MAX", 100)
    tally = counted(
        *(
            line(
                f"http://h{n}.example/" + n % 7 * "x", content_type=f"a/{n}", error=f"e{n}", depth=n, bytes=n, status=n
            )
            for n in range(3 * KINDS_MAX)
        )
    )
    assert (len(tally.hosts), len(tally.types), len(tally.depths), len(tally.answers)) == (100, *(KINDS_MAX,) * 3)
    assert tally.hosts.others.count == 3 * KINDS_MAX - 100
    assert [large.bytes for large in tally.largest_pages()] == list(range(3 * KINDS_MAX))[: -LARGEST - 1 : -1]
    assert (len(tally.broken.items), tally.broken.total) == (BROKEN_MAX, 3 * KINDS_MAX - 400)
    tree = report(tally)
    for title, kind in (("Content types", "types"), ("Links from a seed", "depths"), ("Answers", "statuses")):
        assert len(rows(tree, title)) == ROWS_MAX
        assert f"And 950 {kind} more." in card(tree, title).text()
        assert f"2,000 of further {kind}, not told apart." in card(tree, title).text()
    assert len(rows(tree, "Hosts")) == ROWS_MAX
    assert "And 50 hosts more." in card(tree, "Hosts").text()
    assert "2,900 of further hosts, not told apart." in card(tree, "Hosts").text()
    assert f"And {tally.broken.total - BROKEN_MAX:,} more." in card(tree, "Failed URLs").text()


@given(st.lists(st.floats(-1e9, 1e11) | st.floats(1.7e9, 1.7e9 + 1e4), min_size=1, max_size=60))
def test_each_page_is_in_the_bar_of_its_time(times: list[float]) -> None:
    timeline = Timeline()
    for at in times:
        timeline.add(at)
    bars = timeline.bars()
    assert 0 < len(bars) <= BARS_MAX
    assert [bar.since for bar in bars] == [bars[0].since + n * timeline.width_s for n in range(len(bars))]
    expected = Counter(int(at // timeline.width_s) * timeline.width_s for at in times)
    assert {bar.since: bar.pages for bar in bars if bar.pages} == expected


def test_the_picture_says_in_words_what_it_shows() -> None:
    tree = report(counted(line(), line(fetched_at="2026-01-31T12:00:07Z"), line(fetched_at="2026-01-31T12:00:07.5Z")))
    (picture,) = tree.css("svg.bars")
    assert (
        picture.attributes["aria-label"]
        == "From 2026-01-31 12:00:05 to 2026-01-31 12:00:08 UTC, 2 pages in 1 s at most."
    )
    assert [each.attributes["height"] for each in tree.css("svg.bars rect")] == ["50.00", "100.00"]


def test_a_day_that_no_calendar_has_is_counted_and_not_drawn() -> None:
    tally = counted(line(fetched_at="2026-02-31T12:00:00Z"))
    assert (tally.pages.count, tally.timeline.bars()) == (1, [])
    assert not [each for each in report(tally).css("h2") if each.text() == "Pages over time"]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (share(0, 0), ""), (share(1, 1000), "< 1 %"), (share(999, 1000), "> 99 %"), (share(1, 3), "33 %"),
        (size(999), "999 B"), (size(999_960), "1.0 MB"), (size(5 * 10**20), "500.0 EB"),
        (duration(59.94), "59.9 s"), (duration(59.96), "1 min 0 s"), (duration(3_725), "1 h 2 min"),
        (duration(200_000), "2 d 7 h"),
    ],
)  # fmt: skip
def test_figures_are_told_to_a_person(told: str, expected: str) -> None:
    assert told == expected


def test_a_crawls_directory_is_read_with_what_is_half_written_left_out(tmp_path: Path) -> None:
    root = make(
        tmp_path / "c",
        [Made("http://a.example/"), redirect("http://a.example/b", "/")],
        skipped=[{"url": "http://b.example/", "reason": "out-of-scope"}],
    )
    with (root / "pages/pages.jsonl").open("a") as file:
        file.write('{"url": "http://a.example/c"}\n{"url": "http://a.exam')
    with (root / "reports/skipped.jsonl").open("a") as file:
        file.write('{"url": "http://c.example/"}\nno JSON\n{"reason": "robots", "ur')
    found = Report(root)
    found.read()
    assert (found.pages, found.unreadable) == (2, {"pages/pages.jsonl": 1, "reports/skipped.jsonl": 2})
    tree = LexborHTMLParser(found.page("c", "now"))
    assert [each.text().partition(" could")[0] for each in tree.css(".note.bad")] == [
        "1 line of pages/pages.jsonl", "2 lines of reports/skipped.jsonl",
    ]  # fmt: skip
    assert [row[1] for row in rows(tree, "Not fetched")] == ["1"]
    assert "1 file" in card(tree, "Settings and files").text()


def test_a_summary_that_the_crawl_has_outrun_is_not_told(tmp_path: Path) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/"), Made("http://a.example/b")])
    for pages, says in ((2, "is complete"), (1, "has not ended")):
        (root / "summary.json").write_text(json.dumps(SUMMARY | {"pages": pages}))
        found = Report(root)
        found.read()
        assert says in text_of(LexborHTMLParser(found.page("c", "now")), ".note")


def test_a_summary_is_read_before_the_lines_that_come_after_it(tmp_path: Path) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/")])
    found = Report(root)
    found.read()
    (root / "summary.json").write_text(json.dumps(SUMMARY | {"pages": 100}))
    assert "is complete" not in found.page("c", "now").decode()


def test_a_damaged_summary_is_told_and_is_no_crawl_that_has_not_ended(tmp_path: Path) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/")])
    (root / "summary.json").write_text('{"pages": 3, "complete": tr')
    found = Report(root)
    found.read()
    assert found.unreadable == {"summary.json": 1}
    text = found.page("c", "now").decode()
    assert "how the crawl ended is not known" in text
    assert "has not ended" not in text


def test_what_is_not_known_before_the_end_is_not_told_as_none() -> None:
    tree = report(counted(line()))
    assert "not known before the crawl has ended" in card(tree, "Not fetched").text()
    assert "Failed URLs" not in [each.text() for each in tree.css("dt")]
    assert "nothing was skipped" in card(report(counted(line()), SUMMARY), "Not fetched").text()


def test_all_seeds_count_those_that_failed_too() -> None:
    failed = {"url": "http://b.example/", "reason": "failed", "detail": "dns", "referrer": None}
    tree = report(counted(line(), skipped=(failed,)), SUMMARY)
    assert text_of(tree, "h1") == "Crawl of a.example and 1 other host"
    assert "Seeds" in card(tree, "Settings and files").text()
    many = report(counted(*(line(f"http://h{n}.example/") for n in range(SEEDS_MAX + 5))), SUMMARY)
    assert text_of(many, "h1") == "Crawl of h0.example and others"
    assert "and 5 more" in card(many, "Settings and files").text()


def test_the_calendar_has_an_end_and_a_beginning() -> None:
    ends = counted(line(fetched_at="0001-01-01T00:00:00Z"), line(fetched_at="9999-12-31T23:59:59.999999Z"))
    said = report(ends).css("svg.bars")[0].attributes["aria-label"] or ""
    assert said.startswith("From 0001-01-01 00:00:00 to 9999-12-31 23:59:59 UTC")


@pytest.mark.parametrize(("hours", "says"), [(1, "1 min"), (25, "15 min"), (500, "6 h"), (5_000, "7 d")])
def test_the_width_of_a_bar_is_a_round_one(hours: int, says: str) -> None:
    last = datetime.fromisoformat(AT) + timedelta(hours=hours)
    tree = report(counted(line(), line(fetched_at=last.strftime("%Y-%m-%dT%H:%M:%SZ"))))
    assert f"A bar is {says};" in text_of(tree, "figcaption")


def test_a_crawl_without_a_page_has_a_report(tmp_path: Path) -> None:
    root = make(tmp_path / "c", [])
    found = Report(root)
    found.read()
    assert text_of(LexborHTMLParser(found.page("c", "now")), "h1") == "Crawl of c"
