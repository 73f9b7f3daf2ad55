"""A collection gives each page with its body, also where the crawl was killed; what is half written is left out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dhtcrawl.errors import UsageError
from dhtcrawl.export.collection import collection
from dhtcrawl.export.lines import LINE_BYTES_MAX
from dhtcrawl.export.places import ResponsePlace

from .made import Made, make

URLS = [f"http://a.example/{n}" for n in range(5)]
PAGES = [Made(url, b"<p>%d</p>" % n) for n, url in enumerate(URLS)]


def bodies(root: Path) -> dict[str, bytes | None]:
    with collection(root) as opened:
        return {page.url: opened.read(page.member, 100).payload if page.member else None for page in opened.pages()}


def indexed(root: Path) -> list[str]:
    """The URLs of the index lines, which are sorted and lead to these URLs' records."""
    with collection(root) as opened:
        lines = list(opened.index_lines())
        assert lines == sorted(lines)
        entries = [json.loads(line.split(b" ", 2)[2]) for line in lines]
        for entry in entries:
            place = ResponsePlace(entry["filename"], int(entry["offset"]), int(entry["length"]))
            assert opened.read(place, 100).headers["warc-target-uri"] == entry["url"]
    return [entry["url"] for entry in entries]


@pytest.mark.parametrize("known", [None, 0, 2], ids=["ended", "killed in its first run", "killed in a later run"])
def test_every_page_has_its_body_and_its_index_line(tmp_path: Path, known: int | None) -> None:
    root = make(tmp_path / "c", PAGES, indexed=known)
    assert bodies(root) == {page.url: page.body for page in PAGES}
    assert indexed(root) == URLS


def test_a_page_that_is_not_in_the_archive_is_there_without_a_body_and_without_an_index_line(tmp_path: Path) -> None:
    root = make(tmp_path / "c", PAGES)
    (archive,) = (root / "archive").iterdir()
    with archive.open("r+b") as file:
        file.truncate(archive.stat().st_size - 700)  # the last response, and the request behind it
    assert bodies(root) == {page.url: page.body for page in PAGES[:-1]} | {URLS[-1]: None}
    assert indexed(root) == URLS[:-1]
    with collection(root) as opened:
        list(opened.pages())
        assert (opened.without_body, opened.unreadable_lines) == (1, 0)


def test_an_archive_that_ends_within_a_record_ends_before_it(tmp_path: Path) -> None:
    root = make(tmp_path / "c", PAGES, indexed=0)
    (archive,) = (root / "archive").iterdir()
    whole = archive.read_bytes()
    archive.write_bytes(whole + whole[:50])
    with collection(root) as opened:
        assert opened.archives == {archive.name: len(whole)}
    assert bodies(root) == {page.url: page.body for page in PAGES}


def test_a_line_that_is_no_page_is_counted_and_one_that_is_being_written_is_not(tmp_path: Path) -> None:
    root = make(tmp_path / "c", PAGES)
    pages = root / "pages/pages.jsonl"
    long = json.dumps({"url": "x" * 2 * LINE_BYTES_MAX, "fetched_at": ""}).encode()
    odd = {"url": "x", "fetched_at": "2026-01-31T12:00:00Z"}, {"url": URLS[0], "fetched_at": "yesterday"}
    long += b"".join(b"\n" + json.dumps(fields).encode() for fields in odd)
    pages.write_bytes(b'[]\n{"url": 1}\n' + long + b"\n" + b"\xff\n" + pages.read_bytes() + b'{"url": "http://a.')
    with collection(root) as opened:
        assert [page.url for page in opened.pages()] == URLS
        assert opened.unreadable_lines == 6


def test_what_is_written_after_the_opening_does_not_count(tmp_path: Path) -> None:
    root = make(tmp_path / "c", PAGES[:2])
    more = make(tmp_path / "more", PAGES)
    with collection(root) as opened:
        for name in ("pages/pages.jsonl", "archive/a.warc.gz"):
            with (root / name).open("ab") as file:
                file.write((more / name).read_bytes())
        assert [page.url for page in opened.pages()] == URLS[:2]


def test_a_page_that_comes_while_the_collection_is_opened_has_its_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "c", PAGES[:2], indexed=0)
    more = make(tmp_path / "more", PAGES, indexed=0)
    really_open = Path.open

    def grow_and_open(path: Path, *args: Any, **named: Any) -> Any:
        # As a crawl does: the body is in the archive before the page has a line.
        if path == root / "pages/pages.jsonl":
            for name in ("archive/a.warc.gz", "pages/pages.jsonl"):
                shutil.copyfile(more / name, root / name)
        return really_open(path, *args, **named)

    monkeypatch.setattr(Path, "open", grow_and_open)
    with collection(root) as opened:
        assert [page.url for page in opened.pages()] == URLS
        assert opened.without_body == 0


def test_what_came_of_a_url_is_its_status_or_why_it_was_skipped(tmp_path: Path) -> None:
    skipped: list[dict[str, Any]] = [
        {"url": URLS[2], "reason": "failed"},
        {"url": URLS[0], "reason": "depth"},
        {"url": 1},
    ]
    root = make(tmp_path / "c", [Made(URLS[0]), Made(URLS[1], status=404)], skipped=skipped)
    with collection(root) as opened:
        assert [opened.outcome(url) for url in URLS[:4]] == [200, 404, "failed", None]


@pytest.mark.parametrize(
    ("there", "says"),
    [
        ((), "holds no crawl: name the directory that was given to --out"),
        (("archive",), "has no pages/pages.jsonl"),
    ],
)
def test_a_directory_without_pages_is_refused_with_what_it_is(
    tmp_path: Path, there: tuple[str, ...], says: str
) -> None:
    for name in there:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(UsageError, match=says), collection(tmp_path):
        pass
