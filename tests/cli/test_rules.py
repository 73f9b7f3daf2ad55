"""`--rules`, `try-rules` and `extract`: what docs/extraction.md shows is what happens."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from e2e.stub import Answer, StubServer

from dhtcrawl.cli.rules_files import rules_without_pages
from dhtcrawl.export import extraction
from dhtcrawl.export.collection import collection, read_response
from dhtcrawl.export.extraction import extract_records
from dhtcrawl.export.extraction_journal import UNFINISHED
from dhtcrawl.export.places import ResponsePlace
from dhtcrawl.storage.archive.warcread import WarcRecord

from .conftest import Here, spawn

DOCS = (Path(__file__).parents[2] / "docs" / "extraction.md").read_text("utf-8")
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
RULES = """
[[rules]]
name = "r"
site = "{host}"
[[rules.fields]]
name = "title"
selector = "h1"
required = true
"""


def fenced(language: str) -> list[str]:
    return [body for name, body in FENCES if name == language]


PRODUCTS, OFFERS, SAID, COMMANDS = fenced("toml")
PRODUCT_PAGE, OFFER_PAGE, STORY_PAGE = fenced("html")
PRODUCT, OFFER, *STORY = [json.loads(line) for body in fenced("json") for line in body.splitlines()]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("products.toml", PRODUCTS), ("offers.toml", OFFERS), ("page.html", PRODUCT_PAGE)):
        (tmp_path / name).write_text(text)
    (tmp_path / "offers.html").write_text(OFFER_PAGE)
    (tmp_path / "said.toml").write_text(SAID)
    (tmp_path / "story.html").write_text(STORY_PAGE)
    return tmp_path


def found(here: Here, rules: str, page: str, url: str) -> Any:
    return json.loads(here("try-rules", "--rules", rules, page, "--url", url, "--json").stdout)


def test_the_examples_of_the_page_give_the_records_that_stand_there(home: Path, here: Here) -> None:
    product = found(here, "products.toml", "page.html", "http://shop.example/p/7")
    assert [row["fields"] for row in product["records"]] == [PRODUCT]
    offers = found(here, "offers.toml", "offers.html", "http://de.market.example/today")
    assert [row["fields"] for row in offers["records"]] == [OFFER]
    rejects = [f"{row['rule']} {row['number']} {row['field']} {row['reason']}" for row in offers["rejects"]]
    (listed,) = [body for body in fenced("") if body.startswith("offers 1")]
    assert rejects == listed.splitlines()
    story = found(here, "said.toml", "story.html", "http://www.news.example/story/1")
    assert [row["fields"] for row in story["records"]] == STORY
    assert [row["rule"] for row in story["records"]] == ["said"] * 3 + ["texts"]


COMMAND = {
    "title": "COPY",
    "purpose": "copy data",
    "synopses": ["COPY x"],
    "links": ["http://www.postgresql.org/a"],
    "sections": [{"heading": "Description", "first": "It copies."}, {"heading": "Notes", "first": None}],
}


def test_the_queries_of_the_page_are_answered(home: Path, here: Here) -> None:
    for crawl, rules, name, row in (
        ("my-crawl", PRODUCTS, "products", PRODUCT),
        ("commands", COMMANDS, "commands", COMMAND),
    ):
        (home / crawl / "records").mkdir(parents=True)
        (home / crawl / "pages").mkdir()
        (home / crawl / "pages" / "pages.jsonl").write_text("")
        (home / crawl / "records" / "rules.toml").write_text(rules)
        place = {"_url": "http://a.example/", "_record": 1, "_fetched_at": "2026-01-31T12:00:00.123Z"}
        (home / crawl / "records" / f"{name}.jsonl").write_text(json.dumps(place | row) + "\n")
        assert here("export", crawl, "--format", "parquet", "--rule", name).code == 0
    queries = [
        query for body in fenced("sql") for query in body.removeprefix("-- DuckDB\n").split(";") if query.strip()
    ]
    answers = [duckdb.execute(query).fetchall() for query in queries]
    assert [sorted(each) for each in answers] == [
        [("Oat milk", 1299.5)],
        [("barista", 1), ("vegan", 1)],
        [("COPY", "copy data", 1)],
        [("Description", 1), ("Notes", 1)],
    ]


def test_a_person_sees_what_each_selector_found(home: Path, here: Here) -> None:
    ended = here("try-rules", "--rules", "products.toml", "page.html", "--url", "http://shop.example/p/7")
    (shown,) = [body for body in fenced("") if body.startswith("products 1")]
    assert (ended.code, ended.stdout) == (0, shown)
    offers = here("try-rules", "--rules", "offers.toml", "offers.html", "--url", "http://de.market.example/today")
    assert "offers 2  rejected\n" in offers.stdout
    assert "  title    missing  (h2: 0)" in offers.stdout


@pytest.mark.parametrize(
    ("name", "text", "colours"),
    [("NO_COLOR", "1", False), ("NO_COLOR", "", True), ("TERM", "dumb", False), ("TERM", "xterm", True)],
)
def test_there_are_colours_on_a_terminal_unless_they_are_not_wanted(
    name: str, text: str, colours: bool, home: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, text)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ended = here("try-rules", "--rules", "products.toml", "page.html", "--url", "http://shop.example/p/7")
    assert ("\x1b[" in ended.stdout) == colours


def test_what_a_crawl_stores_of_a_page_is_what_is_shown(home: Path, here: Here) -> None:
    (home / "r.toml").write_text(
        RULES.format(host="shop.example").replace("site", 'record = "p"\nsite').replace('"h1"', '"b"')
    )
    (home / "large.html").write_text(("<p><b>" + "x" * 9_900 + "</b>") * 30 + "<p>none")
    args = ["try-rules", "--rules", "r.toml", "large.html", "--url", "http://shop.example/"]
    shown = here(*args).stdout.splitlines()
    assert shown[0] == "r: too-large '11 records and 0 rejects are left out'"
    assert [line for line in shown if line.startswith("r ")] == [
        *(f"r {number}  record" for number in range(1, 20)),
        *(f"r {number}  left out" for number in range(20, 31)),
        "r 31  rejected",
    ]
    assert shown[-1] == "19 records, 2 rejects"
    parts = json.loads(here(*args, "--json").stdout)
    assert [row["number"] for row in parts["records"]] == list(range(1, 20))
    assert [row["reason"] for row in parts["rejects"]] == ["missing", "too-large"]


def test_what_is_no_unicode_is_shown_as_a_crawl_writes_it(home: Path, here: Here) -> None:
    (home / "half.html").write_text('<script type="application/ld+json">{"n": "\\ud800x"}</script>')
    args = ["try-rules", "--rules", "said.toml", "half.html", "--url", "http://shop.example/"]
    ended = here(*args)
    assert (ended.code, '{"n": "?x"}' in ended.stdout) == (0, True)
    ended = here(*args, "--json")
    assert (ended.code, json.loads(ended.stdout)["records"][0]["fields"]["properties"]) == (0, {"n": "?x"})


def test_what_a_terminal_would_obey_is_not_shown(home: Path, here: Here) -> None:
    rules = FOLLOW.format(host="shop.example").replace('pages = "/list/*"\n', "")
    (home / "r.toml").write_text(rules)
    (home / "odd.html").write_text('<h1>\u009b2Ja\u202eb</h1><ul class=products><a href="/\u009b2J">x</a></ul>')
    ended = here("try-rules", "--rules", "r.toml", "odd.html", "--url", "http://shop.example/p/1")
    assert ended.code == 0
    assert "".join(ended.stdout.splitlines()).isprintable()
    assert '"?2Ja?b"' in ended.stdout


ROWS = """
[[rules.fields]]
name = "rows"
type = "records"
selector = "tr"
list = true
[[rules.fields.fields]]
name = "n"
selector = "td"
type = "number"
required = true
[[rules.fields.fields]]
name = "links"
selector = "a"
take = "@href"
type = "url"
list = true
"""


def test_each_reject_is_shown_with_what_was_there(home: Path, here: Here) -> None:
    rules = RULES.format(host="*").replace("required = true", "") + ROWS
    (home / "r.toml").write_text(rules + '[[rules]]\nname = "said"\nsite = "*"\nsource = "json-ld"\n')
    said = '{"@type": "P", "n": "' + "x" * 70_000 + '"}'
    (home / "r.html").write_text(
        f'<h1>T</h1><table><tr><td>foo<tr><td>3<a href="mailto:x"></a><a href=/y></a><tr><td>bar<tr></table>'
        f'<script type="application/ld+json">{said}</script>'
    )
    args = ["try-rules", "--rules", "r.toml", "r.html", "--url", "http://shop.example/"]
    assert here(*args).stdout.splitlines() == [
        "r 1  record",
        '  title       "T"  (h1: 1)',
        "  rows.n      not-a-number 'foo'  (td: 1)",
        "  rows.links  []  (a: 0)",
        "  rows.n      3  (td: 1)",
        '  rows.links  ["http://shop.example/y"]  (a: 2)',
        "  rows.n      not-a-number 'bar'  (td: 1)",
        "  rows.links  []  (a: 0)",
        "  rows.n      missing  (td: 0)",
        "  rows.links  []  (a: 0)",
        '  rows        [{"n": 3, "links": ["http://shop.example/y"]}]  (tr: 4)',
        "  rows.links  not-a-url 'mailto:x'",
        "said 2  rejected",
        f"  json-ld  too-long '{'x' * 200}'",
        "1 records, 5 rejects",
    ]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["page.html"], "say with --url which page it is"),
        (["page.html", "--url", "http://a.example/"], "there are rules for shop.example, not for a.example"),
        (["page.html", "--url", "http://shop.example/q"], "of its site there is products for /p/*"),
        (["http://a.example/", "--url", "http://a.example/"], "--url is for a page in a file; leave it out"),
        (["missing.html", "--url", "http://shop.example/p/7"], "cannot read missing.html"),
    ],
)
def test_what_cannot_be_tried_is_told(args: list[str], says: str, home: Path, here: Here) -> None:
    ended = here("try-rules", "--rules", "products.toml", *args)
    assert ended.code == 2
    assert says in ended.message()


def test_a_url_is_asked_for_once(home: Path, here: Here) -> None:
    with StubServer() as server:
        server.page("/p/1")
        server.answers["/old"] = Answer(b"", 302, {"Location": "/p/1"})
        (home / "r.toml").write_text(RULES.format(host="127.0.0.1").replace('"h1"', '"body"'))
        args = ["try-rules", "--rules", "r.toml", "--allow-private", "--json"]
        ended = here(*args, server.url + "/p/1")
        assert ended.code in (0, 1), ended
        assert server.paths() == ["/p/1"]
        assert f"redirects to {server.url}/p/1; try that" in here(*args, server.url + "/old").message()
        refused = here(*args[:3], server.url + "/p/1")
        assert refused.code == 1
        assert "private-address" in refused.message()


@pytest.mark.parametrize("command", ["crawl", "submit", "try-rules", "extract"])
def test_rules_that_make_no_sense_end_a_command_with_file_line_and_remedy(command: str, home: Path, here: Here) -> None:
    (home / "bad.toml").write_text(PRODUCTS.replace('"h1"', '"h1 ~ p"'))
    rest = {"extract": ["."], "try-rules": ["http://shop.example/p/7"]}.get(command, ["http://shop.example/"])
    ended = here(command, "--rules", "bad.toml", *rest)
    assert ended.code == 4
    line = 1 + PRODUCTS.splitlines().index('selector = "h1"')
    assert ended.message().startswith(f"dhtcrawl: bad.toml:{line}: rules.1.fields.1.selector is 'h1 ~ p'; use + or")
    assert f"products.toml:{line}: rules.1.fields.1.selector is" in DOCS


def shop(server: StubServer, pages: int) -> None:
    for number in range(pages):
        server.page(f"/{number}", *([f"/{number + 1}"] if number + 1 < pages else []))


def test_other_rules_are_another_crawl_and_the_same_go_on(home: Path, here: Here) -> None:
    with StubServer() as server:
        shop(server, 3)
        elsewhere = RULES.format(host="www.shop.example").replace('"r"', '"elsewhere"')
        (home / "r.toml").write_text(RULES.format(host="127.0.0.1").replace('"h1"', '"a"') + elsewhere)
        args = ["crawl", server.url + "/0", "--allow-private", "--delay", "0", "--out", "out"]
        first = spawn(home, *args, "--rules", "r.toml")
        assert first.code == 0, first
        assert "no page is of the sites of the rules elsewhere\n" in first.stdout
        extracted = here("extract", "out", "--rules", "r.toml", "--processes", "1")
        assert "no page is of the sites of the rules elsewhere\n" in extracted.stdout
        lines = (home / "out" / "records" / "r.jsonl").read_text().splitlines()
        assert [json.loads(line)["_url"] for line in lines] == [f"{server.url}/{number}" for number in range(2)]
        rejects = (home / "out" / "reports" / "rejected.jsonl").read_text().splitlines()
        assert [json.loads(line)["reason"] for line in rejects] == ["missing"]
        again = spawn(home, *args, "--rules", "r.toml")
        assert "out holds this crawl, complete" in again.message()
        (home / "r.toml").write_text(RULES.format(host="127.0.0.1"))
        other = spawn(home, *args, "--rules", "r.toml")
        assert other.code == 2
        assert "--rules says other rules" in other.message()
        assert spawn(home, "forget", "", "--out", "out", "--outputs").code == 2
        crawl = json.loads((home / "out" / "summary.json").read_text())["crawl"]
        assert spawn(home, "forget", crawl, "--out", "out", "--outputs").code == 0
        assert not (home / "out" / "records" / "r.jsonl").exists()


def test_a_line_that_is_no_page_hides_no_rule_without_pages(tmp_path: Path) -> None:
    for name in ("records", "pages"):
        (tmp_path / name).mkdir()
    elsewhere = RULES.format(host="www.shop.example").replace('"r"', '"elsewhere"')
    (tmp_path / "records" / "rules.toml").write_text(RULES.format(host="shop.example") + elsewhere)
    lines = ["5", "[]", "[" * 100_000, "{}", '{"url": 5}', '{"url": "x"}', "{", '{"url": "http://shop.example/"}']
    (tmp_path / "pages" / "pages.jsonl").write_text("\n".join(lines) + "\n")
    assert rules_without_pages(tmp_path, {}) == ["elsewhere"]


def test_what_was_interrupted_goes_on_and_nothing_stands_there_twice(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extraction, "PIECE_PAGES", 2)
    with StubServer() as server:
        shop(server, 9)
        args = ["crawl", server.url + "/0", "--allow-private", "--delay", "0", "--out", "out"]
        assert spawn(home, *args).code == 0
    out, rules = home / "out", RULES.format(host="127.0.0.1").replace('"h1"', '"a"')
    seen: list[int] = []

    def interrupt(pages: int) -> None:
        seen.append(pages)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with collection(out) as opened, pytest.raises(KeyboardInterrupt):
        extract_records(opened, rules, 1, interrupt)
    (journal,) = (out / "records").glob(f"{UNFINISHED}*")
    journal.write_bytes(journal.read_bytes()[:-3])  # killed while it was written
    assert list((out / "records").glob("*.jsonl")) == []
    read = []

    def count(root: Path, member: ResponsePlace, payload_bytes_max: int) -> WarcRecord:
        read.append(member)
        return read_response(root, member, payload_bytes_max)

    monkeypatch.setattr(extraction, "read_response", count)
    with collection(out) as opened:
        report = extract_records(opened, rules, 1, seen.append)
    assert report.pages == 9
    assert len(read) == 7, "all but those of the piece that was noted whole"
    lines = (out / "records" / "r.jsonl").read_text().splitlines()
    assert [json.loads(line)["_url"] for line in lines] == [f"{server.url}/{number}" for number in range(8)]
    assert sorted(path.name for path in (out / "records").iterdir()) == ["r.jsonl", "rules.toml"]
    assert spawn(home, "verify", "out").code == 0


FOLLOW = RULES.replace('site = "{host}"', 'site = "{host}"\npages = "/list/*"\nfollow = ["ul.products", "a.next"]')
SAID_TOO = '[[rules]]\nname = "said"\nsite = "*"\nsource = "opengraph"\n'
LIST = b"""<meta property=og:title content=List><h1>L</h1>
<nav><a href=/about>a</a></nav><ul class=products><li><a href=/p/1>1</a><li><a href=/p/2#x>2</a>
</ul><a href=/p/2>again</a> <a class=next href=/list/2>on</a> <a href=/imprint rel=nofollow>i</a>"""


def test_only_the_links_that_rules_follow_lead_on_and_the_others_are_told(home: Path, here: Here) -> None:
    with StubServer() as server:
        server.answers["/list/1"] = Answer(LIST, headers={"Content-Type": "text/html"})
        server.page("/list/2", "/other")
        for path in ("/p/1", "/p/2"):
            server.page(path)
        (home / "r.toml").write_text(FOLLOW.format(host="127.0.0.1") + SAID_TOO)
        tried = here("try-rules", "--rules", "r.toml", server.url + "/list/1", "--allow-private")
        assert "follows /list/2 and 2 more\n" in tried.stdout
        args = ["--allow-private", "--delay", "0", "--rules", "r.toml", "--out", "out", "--depth", "1"]
        ended = spawn(home, "crawl", server.url + "/list/1", *args)
        assert ended.code == 0, ended
        assert sorted(server.paths()[1:]) == ["/list/1", "/list/2", "/p/1", "/p/2"]
        rows = map(json.loads, (home / "out" / "reports" / "skipped.jsonl").read_text().splitlines())
        skipped = {row["url"].removeprefix(server.url): row["reason"] for row in rows}
        assert skipped == {"/about": "rules", "/imprint": "nofollow", "/other": "rules"}
        (said,) = map(json.loads, (home / "out" / "records" / "said.jsonl").read_text().splitlines())
        assert (said["_url"], said["properties"]) == (server.url + "/list/1", {"og:title": "List"})
