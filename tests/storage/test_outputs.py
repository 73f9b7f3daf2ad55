"""The outputs are a function of the store: sorted, each line once, nothing left out."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage.stores import CRAWL, NODE, SPEC, Store, link, page

from dhtcrawl.errors import StorageError, StorageFull
from dhtcrawl.keyspace import url_key
from dhtcrawl.storage.outputs import outputs, sorting
from dhtcrawl.storage.outputs.outputs import (
    INDEX_FILE,
    PAGES_FILE,
    SKIPPED_FILE,
    LivePages,
    OutputCounters,
    OutputDirs,
    count_lost,
    write_outputs,
)
from dhtcrawl.storage.outputs.record_files import REJECTED_FILE
from dhtcrawl.storage.outputs.sorting import Sorter
from dhtcrawl.storage.store import keys
from dhtcrawl.storage.store.files import Directory
from dhtcrawl.storage.store.records import Place, SkipReason, pack
from dhtcrawl.storage.store.tasks import FetchedPage

FILE = "f.warc.gz"
A, B, C, D = (f"http://a.example/{name}" for name in "abcd")


def write(store: Store, dirs: OutputDirs, pending_reason: str = "") -> OutputCounters:
    return store.run(partial(write_outputs, crawl=CRAWL, dirs=dirs, spec=SPEC, pending_reason=pending_reason))


def lines(directory: Directory, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in directory.read(name, 0, 1 << 30).splitlines()]


def skipped(dirs: OutputDirs) -> dict[str, str]:
    found = [(fields["url"], fields["reason"]) for fields in lines(dirs.reports, SKIPPED_FILE)]
    assert len(found) == len(dict(found))
    assert found == sorted(found)
    return dict(found)


def fetch(store: Store, found: FetchedPage, offset: int = 0, *, depth: int = 1) -> None:
    store.accept(link(found.fields["url"], depth))
    store.fetched(found, Place(NODE, FILE, offset, 10))


def archive_of(store: Store, dirs: OutputDirs, size: int) -> None:
    dirs.archive.open(FILE, 0).append(bytes(size))
    store.put(keys.ARCHIVE + CRAWL + FILE.encode(), pack(size))


@pytest.fixture(params=["disk", "memory"])
def dirs(request: pytest.FixtureRequest, tmp_path: Path) -> OutputDirs:
    return OutputDirs.on_disk(tmp_path / "out") if request.param == "disk" else OutputDirs.in_memory()


def test_a_crawl_without_anything_has_empty_outputs(store: Store, dirs: OutputDirs) -> None:
    assert write(store, dirs) == OutputCounters()
    for directory, name in ((dirs.pages, PAGES_FILE), (dirs.indexes, INDEX_FILE), (dirs.reports, SKIPPED_FILE)):
        assert directory.read(name, 0, 10) == b""


def test_pages_come_in_the_order_of_their_fetch_and_show_no_place(store: Store, dirs: OutputDirs) -> None:
    for second, url in ((2, A), (1, C), (1, B)):
        fetch(store, page(url, second=second, title="Grüße \u2028", referrer=None))
    write(store, dirs)
    found = lines(dirs.pages, PAGES_FILE)
    assert [fields["url"] for fields in found] == [B, C, A]
    assert found[0] == {
        k: v for k, v in page(B, second=1, title="Grüße \u2028", referrer=None).fields.items() if k != "mime"
    }
    assert "Grüße".encode() in dirs.pages.read(PAGES_FILE, 0, 1 << 20)


def test_the_index_has_pages_and_robots_sorted_by_their_key(store: Store, dirs: OutputDirs) -> None:
    fetch(store, page("http://b.example/"), 10)
    fetch(store, page("http://a.example/Ü?b=2&a=1", mime=None, status=404), 20)
    for offset in (30, 40):  # fetched anew by a second run: both stand in the archive
        extra = page("http://a.example/robots.txt", mime="text/plain").fields | {"place": (NODE, FILE, offset, 10)}
        store.put(keys.extra_key(CRAWL, FILE, offset), pack(extra))
    write(store, dirs)
    text = dirs.indexes.read(INDEX_FILE, 0, 1 << 20).decode()
    found = [(line.split(" ", 2)[0], json.loads(line.split(" ", 2)[2])) for line in text.splitlines()]
    assert [(key, fields["offset"]) for key, fields in found] == [
        ("example,a)/%c3%9c?a=1&b=2", "20"),
        ("example,a)/robots.txt", "30"),
        ("example,a)/robots.txt", "40"),
        ("example,b)/", "10"),
    ]
    assert text.encode().splitlines() == sorted(text.encode().splitlines())
    assert {fields["filename"] for _, fields in found} == {FILE}
    assert "mime" not in found[0][1]
    assert found[1][1]["mime"] == "text/plain"


def test_writing_twice_gives_the_same(store: Store, dirs: OutputDirs) -> None:
    fetch(store, page(A, links=[B], skipped=[(C, SkipReason.ROBOTS)]))
    store.accept(link(B))
    before = write(store, dirs, "page-limit")
    files = [(dirs.pages, PAGES_FILE), (dirs.indexes, INDEX_FILE), (dirs.reports, SKIPPED_FILE)]
    content = [directory.read(name, 0, 1 << 20) for directory, name in files]
    assert write(store, dirs, "page-limit") == before
    assert [directory.read(name, 0, 1 << 20) for directory, name in files] == content


# skipped.jsonl


def test_each_url_that_was_not_fetched_stands_there_once_with_its_reason(store: Store, dirs: OutputDirs) -> None:
    fetch(store, page(A, skipped=[(C, SkipReason.NOFOLLOW), ("tel:é", SkipReason.NOT_A_URL), (B, SkipReason.DEPTH)]))
    store.accept(link(B))
    store.kill(B, SkipReason.FAILED, "timeout")
    totals = write(store, dirs)
    assert skipped(dirs) == {B: "failed", C: "nofollow", "tel:é": "not-a-url"}
    known = {"url": B, "reason": "failed", "referrer": "http://a.example/", "detail": "timeout"}
    assert known in lines(dirs.reports, SKIPPED_FILE)
    assert totals.skipped == Counter({"failed": 1, "nofollow": 1, "not-a-url": 1})


def test_each_skipped_url_has_the_page_on_which_it_was_found(store: Store, dirs: OutputDirs) -> None:
    fetch(store, page(A, skipped=[(C, SkipReason.NOFOLLOW)]))
    fetch(store, page(B, skipped=[(C, SkipReason.DEPTH), ("tel:é", SkipReason.NOT_A_URL)]))
    store.accept(link(D, referrer=B), link("http://a.example/seed", 0, "", seed=True))
    of_an_earlier_version = "http://b.example/"
    store.put(keys.SKIPPED + CRAWL + url_key(of_an_earlier_version), pack((of_an_earlier_version, "out-of-scope")))
    write(store, dirs, "page-limit")
    assert {row["url"]: row["referrer"] for row in lines(dirs.reports, SKIPPED_FILE)} == {
        C: A,
        "tel:é": B,
        D: B,
        "http://a.example/seed": None,
        of_an_earlier_version: None,
    }


def test_a_skipped_link_that_was_followed_after_all_is_not_there(store: Store, dirs: OutputDirs) -> None:
    fetch(store, page(A, skipped=[(B, SkipReason.DEPTH), (C, SkipReason.NOFOLLOW), (D, SkipReason.DEPTH)]))
    write(store, dirs)
    assert skipped(dirs) == {B: "depth", C: "nofollow", D: "depth"}
    fetch(store, page(B), 10)
    store.accept(link(C))
    write(store, dirs)
    assert skipped(dirs) == {D: "depth"}


def test_what_is_pending_is_skipped_only_when_a_limit_ended_the_crawl(store: Store, dirs: OutputDirs) -> None:
    fetch(store, page(A, skipped=[(C, SkipReason.DEPTH)]))
    store.accept(link(B), link(C))
    assert write(store, dirs).pending == 2
    assert skipped(dirs) == {}
    assert write(store, dirs, SkipReason.PAGE_LIMIT).pending == 2
    assert skipped(dirs) == {B: "page-limit", C: "page-limit"}
    fetch(store, page(B), 10)
    fetch(store, page(C), 20)
    assert write(store, dirs).pending == 0
    assert skipped(dirs) == {}


# Totals


def test_totals_are_counted_while_writing(store: Store, dirs: OutputDirs) -> None:
    archive_of(store, dirs, 30)
    fetch(store, page(A, bytes=1), 0)
    fetch(store, page(B, status=301, bytes=10), 10)
    fetch(store, page(C, status=500, bytes=100), 20)
    store.settle(C)
    store.accept(link(D), link("http://a.example/e"))
    store.kill(D, detail="dns: the name does not resolve")
    totals = write(store, dirs)
    assert totals == OutputCounters(
        pages=3,
        pages_ok=1,
        redirects=1,
        errors=2,
        bytes=111,
        urls_seen=5,
        brought=3,
        pending=1,
        unsettled=2,
        skipped=Counter({"failed": 1}),
        errors_by_kind=Counter({"500": 1, "dns": 1}),
    )


def test_a_page_whose_body_is_not_in_the_archive_is_missing(store: Store, dirs: OutputDirs) -> None:
    archive_of(store, dirs, 25)
    for offset, url in enumerate((A, B, C)):
        fetch(store, page(url), offset * 10)
    assert write(store, dirs).pages_missing == 1
    dirs.archive.remove(FILE)
    assert write(store, dirs).pages_missing == 3


def test_a_link_without_an_outcome_is_lost_and_counted_once(store: Store, dirs: OutputDirs) -> None:
    fetch(store, page(A, links=[B, C, D]))
    fetch(store, page(B, links=[D, A]), 10)
    store.accept(link(C), link(D))
    assert write(store, dirs).lost == 0
    store.put(keys.TASK + CRAWL + SPEC.key_of(D), None)
    assert write(store, dirs).lost == 1
    store.put(keys.TASK + CRAWL + SPEC.key_of(C), None)
    for known_max in (0, 1, 100):
        assert store.run(partial(count_lost, crawl=CRAWL, key_bytes=20, known_max=known_max)) == 2


def test_of_more_records_than_are_remembered_lost_ones_are_counted_alike(
    store: Store, dirs: OutputDirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(store, page(A, links=[B, C, D], skipped=[(B, SkipReason.DEPTH), ("http://a/n", SkipReason.NOFOLLOW)]))
    store.accept(link(B), link(C), link(D))
    store.put(keys.TASK + CRAWL + SPEC.key_of(D), None)
    for known_max in (0, 1, 2, 3):
        monkeypatch.setattr(outputs, "KNOWN_KEYS_MAX", known_max)
        assert write(store, dirs).lost == 1
        assert skipped(dirs) == {"http://a/n": "nofollow"}


# Sorting more than fits

# A lone surrogate never gets into the store; should one, sorting is not where it ends.
TEXT = st.text(st.characters(codec="utf-8") | st.sampled_from("\udc80\x85\u2028\n"), max_size=6)


@given(keyed=st.lists(st.tuples(TEXT, TEXT), max_size=20), at_once=st.integers(1, 1000), block=st.integers(1, 20))
def test_sorting_through_files_is_sorting(
    tmp_path_factory: pytest.TempPathFactory, keyed: list[tuple[str, str]], at_once: int, block: int
) -> None:
    scratch = tmp_path_factory.getbasetemp()
    items = [(key, json.dumps(text, ensure_ascii=False).encode("utf-8", "replace") + b"\n") for key, text in keyed]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "SORTED_BYTES_MAX", at_once)
        patch.setattr(sorting, "_BLOCK_BYTES", block)
        for where in (scratch, None):
            with ExitStack() as files:
                sorter = Sorter(where, files)
                for key, line in items:
                    sorter.add(key.encode("utf-8", "surrogatepass"), line)
                assert list(sorter.lines()) == [line for _, line in sorted(items)]


@pytest.mark.parametrize("at_once", [1, 3_000, 15_000])
def test_the_same_outputs_whether_they_fit_into_memory_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    store, found = Store(), []
    chance = random.Random(1)
    for i in range(50):
        url = f"http://a.example/{chance.choice('äß日😀')}{i}"
        odd = [(f"{chance.choice('äß日😀')}:{i}", SkipReason.NOT_A_URL)]
        fetch(store, page(url, title="😀\x85\u2028é", second=chance.randrange(5), skipped=odd), i * 10)
    for n in (sorting.SORTED_BYTES_MAX, at_once):
        monkeypatch.setattr(sorting, "SORTED_BYTES_MAX", n)
        dirs = OutputDirs.on_disk(tmp_path / str(n))
        write(store, dirs)
        found.append(
            [
                directory.read(name, 0, 1 << 20)
                for directory, name in (
                    (dirs.pages, PAGES_FILE),
                    (dirs.indexes, INDEX_FILE),
                    (dirs.reports, SKIPPED_FILE),
                )
            ]
        )
    assert found[0] == found[1]
    assert [content.count(b"\n") for content in found[0]] == [50, 50, 50]
    assert list((tmp_path / str(at_once)).glob("tmp*")) == []


def no_file(**_: object) -> None:
    raise OSError(28, "No space left on device")


def file_without_room(**_: object) -> Any:
    return io.BufferedRandom(io.FileIO("/dev/full", "r+"))


@pytest.mark.parametrize("full", [no_file, file_without_room])
def test_no_room_to_sort_leaves_the_old_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: Callable[..., object]
) -> None:
    store, dirs = Store(), OutputDirs.on_disk(tmp_path)
    fetch(store, page(A))
    write(store, dirs)
    before = dirs.pages.read(PAGES_FILE, 0, 1 << 20)
    fetch(store, page(B), 10)

    monkeypatch.setattr(sorting, "SORTED_BYTES_MAX", 1)
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(StorageFull):
        write(store, dirs)
    assert dirs.pages.read(PAGES_FILE, 0, 1 << 20) == before
    assert dirs.pages.names() == [PAGES_FILE]


def test_a_newer_page_record_is_refused_and_the_old_outputs_stay(store: Store, dirs: OutputDirs) -> None:
    fetch(store, page(A))
    write(store, dirs)
    before = dirs.pages.read(PAGES_FILE, 0, 1 << 20)
    store.put(keys.PAGE + CRAWL + SPEC.key_of(B), b"\2")
    with pytest.raises(StorageError, match="upgrade dhtcrawl"):
        write(store, dirs)
    assert dirs.pages.read(PAGES_FILE, 0, 1 << 20) == before


# While a crawl runs


def test_records_that_were_extracted_later_stay_and_are_counted(store: Store, dirs: OutputDirs) -> None:
    assert (write(store, dirs).records, dirs.reports.names()) == ({}, [SKIPPED_FILE])
    records = b'{"_url":"http://a.example/","_record":1}\n' * 3
    dirs.records().replace("r.jsonl", [records])
    dirs.records().replace("a-persons-own.jsonl", [b'{"name": "Li"}\n'])
    dirs.records().replace("empty.jsonl", [])
    dirs.records().replace("unfinished-0", [b"[]\n"])
    reasons = ["missing", "no-tree", "missing"]
    dirs.reports.replace(REJECTED_FILE, [b'{"reason": "%b"}\n' % reason.encode() for reason in reasons] + [b"[]\n"])
    totals = write(store, dirs)
    assert totals.records == {"r": 3}
    assert totals.rejected == {"missing": 2, "no-tree": 1, "unreadable": 1}
    assert dirs.records().read("r.jsonl", 0, 200) == records


def test_live_pages_grow_and_are_made_right_in_the_end(store: Store, dirs: OutputDirs) -> None:
    # What a killed run left: a line that was never committed, and half a line.
    dirs.pages.open(PAGES_FILE, 0).append(b'{"url":"http://a.example/never"}\n{"url":"http://a.exa')
    fetch(store, page(A))
    write(store, dirs)
    live = LivePages(dirs)
    fetch(store, page(C, second=2), 10)
    fetch(store, page(B, second=1, title="é"), 20)
    live.append([page(C, second=2).fields])
    live.append([page(B, second=1, title="é").fields])
    assert [fields["url"] for fields in lines(dirs.pages, PAGES_FILE)] == [A, C, B]
    live.close()
    live.close()
    write(store, dirs)
    assert [fields["url"] for fields in lines(dirs.pages, PAGES_FILE)] == [A, B, C]
    live.append([page(D).fields])
    assert [fields["url"] for fields in lines(dirs.pages, PAGES_FILE)] == [A, B, C, D]
    live.close()


def test_the_live_line_of_a_page_is_the_one_that_stays(store: Store, dirs: OutputDirs) -> None:
    live, found = LivePages(dirs), page(A, title="ü")
    live.append([found.fields])
    live.close()
    before = dirs.pages.read(PAGES_FILE, 0, 1 << 20)
    fetch(store, found)
    write(store, dirs)
    assert dirs.pages.read(PAGES_FILE, 0, 1 << 20) == before
