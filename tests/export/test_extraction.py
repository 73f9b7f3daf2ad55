"""Records of archived pages: each page's once, whatever was interrupted, damaged or begun twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dhtcrawl.errors import UsageError
from dhtcrawl.export import extraction
from dhtcrawl.export.collection import collection
from dhtcrawl.export.extraction import ExtractReport, extract_records
from dhtcrawl.export.extraction_journal import UNFINISHED

from .made import Made, make

RULES = """
[[rules]]
name = "r"
site = "a.example"
[[rules.fields]]
name = "title"
selector = "h1"
"""
URLS = [f"http://a.example/{number}" for number in range(9)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nine pages, each a record, in pieces of two."""
    monkeypatch.setattr(extraction, "PIECE_PAGES", 2)
    return make(tmp_path / "c", [Made(url, b"<h1>%d" % number) for number, url in enumerate(URLS)])


def ignore(_pages: int) -> None:
    pass


def extract(root: Path, progress: Callable[[int], None] = ignore, rules: str = RULES) -> ExtractReport:
    with collection(root) as opened:
        return extract_records(opened, rules, 1, progress)


def recorded(root: Path) -> list[str]:
    return [json.loads(line)["_url"] for line in (root / "records/r.jsonl").read_text().splitlines()]


def interrupt_at(pages: int) -> Callable[[int], None]:
    def progress(read: int) -> None:
        if read == pages:
            raise KeyboardInterrupt

    return progress


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "records").iterdir())


@pytest.mark.parametrize("rules", [RULES, RULES.replace("h1", "h2")], ids=["the same rules", "others"])
def test_a_second_extraction_in_a_directory_is_refused_and_leaves_the_first_alone(root: Path, rules: str) -> None:
    refused = []

    def begin_another(pages: int) -> None:
        with pytest.raises(UsageError, match="another extract is at work in"):
            extract(root, rules=rules)
        refused.append(pages)

    assert extract(root, begin_another).records == {"r": 9}
    assert refused == [2, 4, 6, 8, 9]
    assert recorded(root) == URLS
    assert names(root) == ["r.jsonl", "rules.toml"]


def test_an_interrupted_extraction_holds_the_directory_no_longer(root: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        extract(root, interrupt_at(4))
    assert [name for name in names(root) if not name.startswith(UNFINISHED)] == []
    assert extract(root).records == {"r": 9}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lines: [lines[0], lines[0], lines[1], lines[1], lines[2]],
        lambda lines: [lines[0], b"\0" * 512 + b"\n", lines[2]],
        lambda lines: [lines[0], b'[1, [["x", "y", 5, ""]]]\n', lines[2]],
        lambda lines: [lines[0], lines[1][:20] + lines[2]],
        lambda lines: [b'["0", []]\n', *lines],
    ],
    ids=["twice", "zeros", "other types", "two in one", "no number"],
)
def test_a_damaged_journal_takes_no_page_away_and_brings_none_twice(
    root: Path, spoil: Callable[[list[bytes]], list[bytes]]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        extract(root, interrupt_at(6))
    (journal,) = (root / "records").glob(f"{UNFINISHED}*")
    journal.write_bytes(b"".join(spoil(journal.read_bytes().splitlines(keepends=True))))
    with pytest.raises(KeyboardInterrupt):
        extract(root, interrupt_at(8))
    report = extract(root)
    assert (report.pages, report.records) == (9, {"r": 9})
    assert recorded(root) == URLS


def test_a_page_that_could_not_be_read_is_read_again_after_an_interruption(root: Path) -> None:
    archive = root / "archive/a.warc.gz"
    whole = archive.read_bytes()
    middle = len(whole) // 2
    archive.write_bytes(whole[:middle] + bytes(99) + whole[middle + 99 :])
    with pytest.raises(KeyboardInterrupt):
        extract(root, interrupt_at(8))
    archive.write_bytes(whole)
    report = extract(root)
    assert (report.problems, report.records) == ([], {"r": 9})


def test_an_interrupted_extraction_begins_anew_where_bodies_have_come_back(root: Path) -> None:
    index = root / "indexes/index.cdxj"
    whole = index.read_text()
    index.write_text("".join(whole.splitlines(keepends=True)[3:]))
    with pytest.raises(KeyboardInterrupt):
        extract(root, interrupt_at(4))
    index.write_text(whole)
    assert extract(root).records == {"r": 9}
    assert recorded(root) == URLS


def test_a_summary_with_half_a_character_is_counted_into(root: Path) -> None:
    (root / "summary.json").write_text(r'{"pages": 1, "policy": "\ud800"}')
    extract(root)
    assert json.loads((root / "summary.json").read_text())["policy"] == "?"
