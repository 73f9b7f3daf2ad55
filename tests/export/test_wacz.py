"""A WACZ file is what its specification says, other tools accept it, and each page can be replayed from it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from storage.warcs import tool
from warcio.archiveiterator import ArchiveIterator

from dhtcrawl.errors import StorageError
from dhtcrawl.export import wacz

from .made import Made, export, make, redirect

HOME = "http://a.example/"
PAGES = [
    Made(HOME + "late", b"<p>late", fields={"depth": 1}),
    Made(HOME, b"<p>home", fields={"depth": 0, "title": None}),
    redirect(HOME + "moved", "/"),
    Made(HOME + "gone", b"<p>gone", status=404),
    Made(HOME + "p.png", b"\x89PNG", fields={"content_type": "image/png", "charset": None, "title": None}),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path / "c", PAGES)


def opened(root: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(export(root, "wacz")[0]))


def objects(package: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in package.read(name).splitlines()]


def test_another_tool_finds_it_valid(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.wacz"
    path.write_bytes(export(root, "wacz")[0])
    tool("wacz", "validate", "-f", path)


def test_everything_in_it_is_listed_with_its_size_and_hash(root: Path) -> None:
    package = opened(root)
    about = json.loads(package.read("datapackage.json"))
    assert (about["profile"], about["wacz_version"]) == ("data-package", "1.1.1")
    listed = {each["path"]: (each["bytes"], each["hash"]) for each in about["resources"]}
    content = {name: package.read(name) for name in package.namelist()}
    manifest, digest = content.pop("datapackage.json"), json.loads(content.pop("datapackage-digest.json"))
    assert listed == {name: (len(data), f"sha256:{hashlib.sha256(data).hexdigest()}") for name, data in content.items()}
    assert digest == {"path": "datapackage.json", "hash": f"sha256:{hashlib.sha256(manifest).hexdigest()}"}
    assert sorted(content) == ["archive/a.warc.gz", "indexes/index.cdx.gz", "indexes/index.idx", "pages/pages.jsonl"]


def test_what_is_compressed_already_is_stored_as_it_is(root: Path) -> None:
    package = opened(root)
    stored = {info.filename for info in package.infolist() if info.compress_type == zipfile.ZIP_STORED}
    assert stored == {"archive/a.warc.gz", "indexes/index.cdx.gz"}
    assert package.read("archive/a.warc.gz") == (root / "archive/a.warc.gz").read_bytes()


def test_the_pages_are_html_that_was_answered_with_2xx(root: Path) -> None:
    package = opened(root)
    header, *pages = objects(package, "pages/pages.jsonl")
    assert header == {"format": "json-pages-1.0", "id": "pages", "title": "All Pages"}
    assert [{name: page[name] for name in page if name != "id"} for page in pages] == [
        {"url": HOME + "late", "ts": "2026-01-31T12:00:05Z", "title": "T"},
        {"url": HOME, "ts": "2026-01-31T12:00:06Z"},
    ]
    assert len({page["id"] for page in pages}) == 2
    about = json.loads(package.read("datapackage.json"))
    assert (about["mainPageUrl"], about["mainPageDate"]) == (HOME, "2026-01-31T12:00:06Z")


@pytest.mark.parametrize("a_block", [3000, 2], ids=["one block", "several blocks"])
def test_every_response_is_found_through_the_index_as_a_reader_over_http_does(
    root: Path, a_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wacz, "_LINES_A_BLOCK", a_block)
    package = opened(root)
    meta, *blocks = package.read("indexes/index.idx").splitlines()
    assert meta == b'!meta 0 {"format": "cdxj-gzip-1.0", "filename": "index.cdx.gz"}'
    compressed, found = package.read("indexes/index.cdx.gz"), {}
    before = b""
    for block in blocks:
        key, stamp, text = block.split(b" ", 2)
        place = json.loads(text)
        data = compressed[place["offset"] :][: place["length"]]
        assert place["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
        lines = gzip.decompress(data).splitlines()
        assert lines[0].startswith(key + b" " + stamp + b" ")
        assert [before, *lines] == sorted([before, *lines])
        before = lines[-1]
        for line in lines:
            entry = json.loads(line.split(b" ", 2)[2])
            member = package.read(f"archive/{entry['filename']}")[int(entry["offset"]) :][: int(entry["length"])]
            record = next(iter(ArchiveIterator(io.BytesIO(member))))
            assert record.rec_headers.get_header("WARC-Target-URI") == entry["url"]
            assert record.http_headers.get_statuscode() == entry["status"]
            found[entry["url"]] = record.raw_stream.read()
    assert found == {page.url: page.body for page in PAGES}


def test_a_large_one_is_zip64(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 500)
    content, _ = export(root, "wacz")
    assert b"PK\x06\x06" in content  # the end of a ZIP64 directory
    monkeypatch.undo()
    package = zipfile.ZipFile(io.BytesIO(content))
    assert package.testzip() is None
    assert package.read("archive/a.warc.gz") == (root / "archive/a.warc.gz").read_bytes()


def test_a_killed_crawl_is_replayed_as_far_as_it_came(tmp_path: Path) -> None:
    root = make(tmp_path / "c", PAGES, indexed=0)
    archive = root / "archive/a.warc.gz"
    whole = archive.read_bytes()
    archive.write_bytes(whole + whole[:50])
    package = opened(root)
    assert package.read("archive/a.warc.gz") == whole
    assert len(gzip.decompress(package.read("indexes/index.cdx.gz")).splitlines()) == len(PAGES)


def test_a_page_whose_body_is_not_there_is_not_listed(root: Path) -> None:
    (root / "archive/a.warc.gz").rename(root / "archive/b.warc.gz")  # as if another node had it
    (root / "archive/b.warc.gz").write_bytes(b"")
    package = opened(root)
    assert len(objects(package, "pages/pages.jsonl")) == 1
    assert package.read("indexes/index.cdx.gz") == b""


def test_a_collection_without_an_archive_is_refused(root: Path) -> None:
    (root / "archive/a.warc.gz").unlink()
    with pytest.raises(StorageError, match="nothing to replay"):
        export(root, "wacz")


def test_an_archive_file_whose_name_is_no_text_is_named(tmp_path: Path) -> None:
    root = make(tmp_path / "c", [Made("http://a.example/")])
    (root / "archive" / os.fsdecode(b"\xff.warc.gz")).write_bytes(b"")
    with pytest.raises(StorageError, match="no text; rename the file"):
        export(root, "wacz")
