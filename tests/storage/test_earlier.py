"""The outputs of a crawl that failed make room for the next one, and are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from dhtcrawl.errors import StorageError
from dhtcrawl.storage.outputs.earlier import set_aside

CRAWL = bytes.fromhex("ab" * 16)
OTHER = "0123456789ab"
FILES = (
    "archive/abababababab-111111111111-00000.warc.gz",
    "indexes/index.cdxj",
    "pages/pages.jsonl",
    "reports/skipped.jsonl",
    "summary.json",
)


def outputs(out: Path) -> Path:
    for name in FILES:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_text(name)
    return out


def files(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


def test_all_outputs_of_the_crawl_are_moved_and_nothing_of_another(tmp_path: Path) -> None:
    out = outputs(tmp_path)
    theirs = f"archive/{OTHER}-111111111111-00000.warc.gz"
    (out / theirs).write_text("another crawl's")
    kept = set_aside(out, CRAWL)
    assert kept == out / "earlier" / "abababababab"
    assert files(kept) == set(FILES)
    assert files(out) - {f"earlier/abababababab/{name}" for name in FILES} == {theirs}


def test_a_crawl_without_a_page_leaves_nothing_to_keep(tmp_path: Path) -> None:
    assert set_aside(tmp_path, CRAWL) is None
    (outputs(tmp_path) / "pages/pages.jsonl").write_text("")
    assert set_aside(tmp_path, CRAWL) is None
    assert files(tmp_path) == set(FILES)


def test_a_file_among_the_records_that_has_none_is_a_persons_own_and_stays(tmp_path: Path) -> None:
    out = outputs(tmp_path)
    (out / "records").mkdir()
    (out / "records/rules.toml").write_text("the crawl's rules")
    (out / "records/pages.jsonl").write_text('{"_url":"http://a.example/","_record":1}\n')
    (out / "records/mine.jsonl").write_text('{"url":"http://a.example/"}\n')
    kept = set_aside(out, CRAWL)
    assert kept is not None
    assert files(kept / "records") == {"rules.toml", "pages.jsonl"}
    assert files(out / "records") == {"mine.jsonl"}


@pytest.mark.parametrize("moved", range(len(FILES) + 1))
def test_what_a_crash_left_behind_is_moved_the_next_time(moved: int, tmp_path: Path) -> None:
    out, before = outputs(tmp_path / "out"), outputs(tmp_path / "before")
    kept = out / "earlier" / "abababababab"
    for name in FILES[:moved]:
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).rename(kept / name)
    assert set_aside(out, CRAWL) == kept
    assert {name: (kept / name).read_text() for name in files(kept)} == {
        name: (before / name).read_text() for name in FILES
    }


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (outputs(tmp_path) / "earlier").write_text("a file is in the way")
    with pytest.raises(StorageError, match="cannot move outputs"):
        set_aside(tmp_path, CRAWL)
    assert FILES[2] in files(tmp_path)
