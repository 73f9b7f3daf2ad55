"""`dhtcrawl extract` where pages, disk or processes fail: what it tells, and what stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from e2e.stub import StubServer
from export.made import Made, make

from dhtcrawl.errors import Exit

from .conftest import Ended, Here, spawn

RULES = """
[[rules]]
name = "r"
site = "a.example"
[[rules.fields]]
name = "title"
selector = "h1"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two pages, and the rules in `r.toml` beside them."""
    (tmp_path / "r.toml").write_text(RULES)
    return make(tmp_path / "c", [Made(f"http://a.example/{n}", b"<h1>%d" % n + b"\n" * 4000 * n) for n in range(2)])


def told(ended: Ended) -> list[str]:
    """The lines on stderr, but for how far it is."""
    return [line for line in ended.stderr.splitlines() if not line.endswith(" pages read")]


def files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "records").iterdir())}


def test_pages_that_cannot_be_read_are_told_and_the_others_extracted(root: Path, here: Here) -> None:
    args = ["extract", root, "--rules", root.parent / "r.toml", "--processes", "1"]
    with (root / "pages/pages.jsonl").open("a") as file:
        file.write("no page\n")
    ended = here(*args)
    assert told(ended) == [f"dhtcrawl: 1 lines of {root}/pages/pages.jsonl could not be read and were left out"]
    assert (ended.code, ended.stdout) == (1, f"{root}/records/r.jsonl: 2 records\n")
    archive = root / "archive/a.warc.gz"
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-700])
    ended = here(*args)
    first, _ = told(ended)
    assert first == f"dhtcrawl: 1 pages have no body in {root}; 'dhtcrawl verify {root}' names them"
    assert (ended.code, ended.stdout) == (1, f"{root}/records/r.jsonl: 1 records\n")
    (row,) = (root / "records/r.jsonl").read_text().splitlines()
    assert json.loads(row)["_url"] == "http://a.example/0"


@pytest.mark.parametrize("lost", ["archive", "bodies", "lines"])
def test_where_no_page_can_be_read_the_records_that_are_there_stay(root: Path, here: Here, lost: str) -> None:
    args = ["extract", root, "--rules", root.parent / "r.toml", "--processes", "1"]
    assert here(*args).code == 0
    before, summary = files(root), (root / "summary.json").read_bytes()
    archive, pages = root / "archive/a.warc.gz", root / "pages/pages.jsonl"
    whole, lines = archive.read_bytes(), pages.read_bytes()
    if lost == "archive":
        archive.unlink()
        says = f"the bodies of 2 are not in {root}/archive"
    elif lost == "bodies":
        archive.write_bytes(bytes(len(whole)))
        says = "is damaged"
    else:
        pages.write_bytes(b"{}\n" * 3)
        says = f"3 lines of {root}/pages/pages.jsonl are none"
    ended = here(*args)
    assert (ended.code, ended.stdout) == (1, "")
    (line,) = told(ended)
    assert line.startswith(f"dhtcrawl: no page that the rules are for can be read in {root}: ")
    assert says in line
    assert line.endswith("; restore its files, or gather the crawl again (records that are there stay)")
    assert (files(root), (root / "summary.json").read_bytes()) == (before, summary)
    archive.write_bytes(whole)
    pages.write_bytes(lines)
    assert here(*args).code == 0
    assert files(root) == before


def test_a_crawl_that_goes_on_keeps_and_counts_what_was_extracted(tmp_path: Path, here: Here) -> None:
    (tmp_path / "r.toml").write_text(RULES.replace("a.example", "127.0.0.1").replace("h1", "a"))
    out = tmp_path / "out"
    with StubServer() as server:
        for number in range(6):
            server.page(f"/{number}", f"/{number + 1}")
        crawl = ["crawl", server.url + "/0", "--allow-private", "--delay", "0", "--out", "out", "--max-pages"]
        assert spawn(tmp_path, *crawl, "2").code == Exit.PAGE_LIMIT
        assert here("extract", out, "--rules", tmp_path / "r.toml", "--processes", "1").code == 0
        before = files(out)
        assert spawn(tmp_path, *crawl, "4").code == Exit.PAGE_LIMIT
    assert files(out) == before
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["pages"], summary["records"]) == (4, {"r": 2})
    ended = here("verify", out)
    assert ended.code == 0, ended
